use elasticserve_core::sched::OnMiss;

use super::*;

fn check(text: &str) -> Result<Config, ConfigError> {
    RawConfig::from_toml(text)?.check()
}

const BACKEND: &str = "[[backends]]\nurl = 'http://h:1'\n";

#[test]
fn a_backend_is_all_that_is_needed() {
    let config = check(BACKEND).unwrap();
    assert_eq!(config.fixed.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.backends[0].permits, 32);
    assert_eq!(config.queue_budget, None);
}

#[test]
fn a_base_url_may_end_in_the_version_that_clients_use() {
    for (url, base) in [("http://h:1/", ""), ("http://h:1/v1", ""), ("http://h:1/v1/", ""), ("http://h:1/x/v1", "/x")] {
        let config = check(&format!("[[backends]]\nurl = '{url}'")).unwrap();
        assert_eq!(config.backends[0].base_path, base, "{url}");
    }
}

#[test]
fn bad_values_are_refused_by_key_with_what_would_be_right() {
    for (text, key, hint) in [
        ("", "backends", "--backend"),
        ("[[backends]]\nurl = 'h:1'", "backends[0].url", "http://"),
        ("[[backends]]\nurl = 'ftp://h'", "backends[0].url", "https://"),
        ("[[backends]]\nurl = 'http://u:p@h'", "backends[0].url", "user name"),
        ("[[backends]]\nurl = 'http://h'\npermits = 0", "backends[0].permits", "1 or more"),
        ("[[backends]]\nurl = 'http://h'\n[queue]\nbudget = '750'", "queue.budget", "750ms"),
        ("trusted_proxies = ['10.0.0.1/8']\n[[backends]]\nurl = 'http://h'", "trusted_proxies[0]", "10.0.0.0/8"),
        ("[[backends]]\nurl = 'http://h'\n[limits]\nbody_memory = 5", "limits.body_memory", "33554432 or more"),
        (
            "[[backends]]\nurl = 'http://h'\n[[tenants]]\nname = 'a'\ntokens_per_minute = 0",
            "tenants[0].tokens_per_minute",
            "1 or more",
        ),
        ("listen = 'localhost'\n[[backends]]\nurl = 'http://h'", "listen", "127.0.0.1:8080"),
        ("[[backends]]\nurl = 'http://h'\n[timeouts]\nidle = '0s'", "timeouts.idle", "more than 0"),
    ] {
        let message = check(text).unwrap_err().to_string();
        assert!(message.starts_with(key) && message.contains(hint), "{text}: {message}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let message = check("[queue]\nbudgett = '1s'").unwrap_err().to_string();
    assert!(message.contains("budgett") && message.contains("did you mean `budget`"), "{message}");
    let message = check("[queue]\nxyz = 1").unwrap_err().to_string();
    assert!(message.contains("xyz") && !message.contains("did you mean"), "{message}");
}

#[test]
fn a_wrong_type_is_refused_with_its_place() {
    let message = check("[[backends]]\nurl = 'http://h'\npermits = 'many'").unwrap_err().to_string();
    assert!(message.contains("backends[0].permits"), "{message}");
}

#[test]
fn keys_that_cannot_be_told_apart_or_read_are_refused_by_their_place() {
    let digest = "852684dfb516b6f22e1d054053cbfc3f1a1ba76cec1f57b9dd21c790d902caae";
    let other = digest.replace('8', "9");
    let keys = |first: &str, second: &str| {
        let text = format!(
            "{BACKEND}[[tenants]]\nname = 'a'\n[[tenants.keys]]\n{first}\n[[tenants]]\nname = 'b'\n[[tenants.keys]]\n{second}\n"
        );
        check(&text)
    };
    let key = |id: &str, sha: &str| format!("id = '{id}'\nsha256 = '{sha}'");
    let config = keys(&key("k", digest), &key("l", &other)).unwrap();
    assert_eq!(config.keys.iter().map(|k| k.tenant.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    for (second, place, hint) in [
        (key("k", &other), "tenants[1].keys[0].id", "tenants[0].keys[0]"),
        (key("l", digest), "tenants[1].keys[0].sha256", "'k' again"),
        (key("l", "esk-the-key-itself-0123456789"), "tenants[1].keys[0].sha256", "never the key itself"),
        (key("", &other), "tenants[1].keys[0].id", "letters"),
        (key("l", &other) + "\nexpires = 'soon'", "tenants[1].keys[0].expires", "2027-01-31"),
        (key("l", &other) + "\nmodels = []", "tenants[1].keys[0].models", "leave it out"),
        (key("l", &other) + "\nmodels = ['a*b']", "tenants[1].keys[0].models", "at the end"),
        (key("l", &other) + "\nmodel = ['a']", "tenants[1].keys[0].model", "did you mean `models`"),
    ] {
        let message = keys(&key("k", digest), &second).unwrap_err().to_string();
        assert!(message.contains(place) && message.contains(hint), "{second}: {message}");
        assert!(!message.contains("esk-the-key"), "{message}");
    }
}

const TENANTS: &str = "[[tenants]]\nname = 'gold'\nweight = 4\nslo = { ttft = '600ms' }\n[[tenants]]\nname = 'batch'\n";

fn with(more: &str) -> Result<Config, ConfigError> {
    check(&format!("{BACKEND}{more}"))
}

#[test]
fn policies_that_do_not_go_together_are_refused_by_key_with_what_would_be_right() {
    for (text, key, hint) in [
        ("[queue]\nadmission = 'budget'", "queue.budget", "750ms"),
        ("[queue]\nadmission = 'none'\nbudget = '1s'", "queue.budget", "admission = \"budget\""),
        (
            "[queue]\nadmission = 'predict'\nbudget = '1s'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'",
            "queue.budget",
            "leave it out",
        ),
        ("[queue]\nadmission = 'predict'", "predict.profile", "gb10-qwen3-8b-fp8"),
        ("[queue]\nadmission = 'predict'\n[predict]\nprofile = 'h100'", "predict.profile", "gb10-qwen3-8b-fp8"),
        ("[queue]\nadmission = 'predict'\n[predict]\nprofile = 'no.toml'", "predict.profile", "no.toml"),
        (
            "[queue]\nadmission = 'predict'\n[predict]\noverhead = '13ms'",
            "predict.prefill_per_token",
            "predict.profile",
        ),
        (
            "[queue]\nadmission = 'predict'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\nmargin = 5.0",
            "predict.margin",
            "0.05",
        ),
        (
            "[queue]\nadmission = 'predict'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\nidle_tpot = '0'",
            "predict.idle_tpot",
            "more than 0",
        ),
        ("[queue]\nadmission = 'price'", "predict.profile", "\"price\": one of gb10-qwen3-8b-fp8"),
        (
            "[queue]\nadmission = 'price'\n[predict]\noverhead = '0'\nprefill_per_token = '0'\nfirst_token_steps = 1\nidle_tpot = '9ms'",
            "predict.profile",
            "predict.stall",
        ),
        (
            "[queue]\nadmission = 'price'\nbudget = '1s'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'",
            "queue.budget",
            "leave it out",
        ),
        (
            "[queue]\nadmission = 'price'\nfairness = -0.1\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'",
            "queue.fairness",
            "0 to 4",
        ),
        (
            "[queue]\nadmission = 'price'\nfairness = nan\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'",
            "queue.fairness",
            "0 to 4",
        ),
        (
            "[queue]\nadmission = 'predict'\nfairness = 0.5\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'",
            "queue.fairness",
            "\"price\" only",
        ),
        (
            "[queue]\nadmission = 'predict'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n\
             stall = { per_token_ms = 0.1, free_tokens = 40, attention_ms = 6, kv_ms_per_token = 0.0003 }",
            "predict.stall",
            "\"price\" only",
        ),
        (
            "[queue]\nadmission = 'price'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n\
             stall = { per_token_ms = 0.1, free_tokens = 40, attention_ms = -6, kv_ms_per_token = 0.0003 }",
            "predict.stall.attention_ms",
            "from 0",
        ),
        (
            "[queue]\nadmission = 'price'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\nstall = { per_token_ms = 0.1 }",
            "predict.stall",
            "free_tokens",
        ),
        ("[queue]\norder = 'least-slack'", "queue.order", "admission = \"predict\""),
        ("[queue]\norder = 'wfq'\nguard = '1s'", "queue.guard", "priority"),
        ("[predict]\nprofile = 'gb10-qwen3-8b-fp8'", "predict", "admission = \"predict\""),
        ("[queue]\norder = 'wfq'\n[predict]\npad = '1ms'", "predict.pad", "admission = \"predict\""),
        ("[queue]\ninfeasible_status = 400", "queue.infeasible_status", "422 or 429"),
        ("[queue]\nshadow = 'wfq+late'", "queue.shadow", "budget:750ms"),
        ("[queue]\nshadow = 'lifo'", "queue.shadow", "`fcfs`"),
        ("[queue]\nshadow = 'least-slack'", "queue.shadow", "least-slack+predict"),
        ("[queue]\nshadow = 'fcfs+predict'", "predict.profile", "gb10-qwen3-8b-fp8"),
        (
            "[queue]\nshadow = 'wfq+price'\n[predict]\noverhead = '0'\nprefill_per_token = '0'\n\
             first_token_steps = 1\nidle_tpot = '9ms'",
            "predict.profile",
            "predict.stall",
        ),
        ("[queue]\nclasses = { '7' = 1 }", "queue.classes.7", "letter"),
        ("[queue]\nclasses = { 'a b' = 1 }", "queue.classes.a b", "letters"),
        ("[queue]\nclasses = { a = -1 }", "queue.classes.a", "u32"),
        ("[queue]\norder = 'wfq'\n[predict]\nlengths = 'declared'", "predict.lengths", "\"predict\""),
        (
            "[queue]\nadmission = 'predict'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\nlengths = 'declared'\n\
             [state]\nfile = 's.json'",
            "state.file",
            "learned",
        ),
        ("[state]\ninterval = '5s'", "state.interval", "state.file"),
        ("[state]\ninterval = '5ms'", "state.interval", "1s or more"),
        ("[slo]\nttft = '0'", "slo.ttft", "more than 0"),
        ("[[tenants]]\nname = 'a'\n[[tenants]]\nname = 'a'", "tenants[1].name", "tenants[0]"),
        ("[[tenants]]\nname = 'a b'", "tenants[0].name", "letters"),
        ("[[tenants]]\nname = ''", "tenants[0].name", "letters"),
        ("[[tenants]]\nname = 'a'\nweight = 0", "tenants[0].weight", "max_permits"),
        ("[[tenants]]\nname = 'a'\nmax_permits = 0", "tenants[0].max_permits", "leave it out"),
        ("[[tenants]]\nname = 'a'\nslo = { e2e = '9' }", "tenants[0].slo.e2e", "unit"),
        ("[[tenants]]\nname = 'a'\nmax_queued = -1", "tenants[0].max_queued", "u32"),
        ("[[tenants]]\nname = 'a'\nmax_queued_bytes = '1MB'", "tenants[0].max_queued_bytes", "u64"),
    ] {
        let message = with(text).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{key}: ")) && message.contains(hint), "{text}: {message}");
    }
    let message = check(&format!("default_tenant = 'silver'\n{BACKEND}{TENANTS}")).unwrap_err().to_string();
    assert!(message.starts_with("default_tenant: ") && message.contains("batch, gold"), "{message}");
}

#[test]
fn unknown_keys_and_names_of_policies_are_refused_with_the_nearest_known_one() {
    for (text, unknown, known) in [
        ("[queue]\norder = 'least-slak'", "least-slak", "`least-slack`"),
        ("[queue]\nadmission = 'predicted'", "predicted", "`predict`"),
        ("[[tenants]]\nname = 'a'\nwieght = 1", "wieght", "`weight`"),
        ("[[tenants]]\nname = 'a'\nmax_queue = 1", "max_queue", "`max_queued`"),
        ("[[tenants]]\nname = 'a'\nslo = { tftt = '1s' }", "tftt", "`ttft`"),
        ("[predict]\nprofil = 'x'", "profil", "`profile`"),
        ("[queue]\nadmission = 'priced'", "priced", "`price`"),
        ("[queue]\non_miss = 'aborts'", "aborts", "`abort`"),
        ("[[tenants]]\nname = 'a'\non_mis = 'abort'", "on_mis", "`on_miss`"),
        ("[queue]\nshadows = 'wfq'", "shadows", "`shadow`"),
        ("[queue]\nclass = 1", "class", "`classes`"),
        ("[predict]\nlengths = 'learnt'", "learnt", "`learned`"),
        ("[predict]\nlength = 'learned'", "length", "`lengths`"),
        ("[state]\nfiles = 'x'", "files", "`file`"),
        ("[states]\nfile = 'x'", "states", "`state`"),
        ("[queue]\nfairnes = 1", "fairnes", "`fairness`"),
        ("[log]\ndecision = 'x'", "decision", "`decisions`"),
    ] {
        let message = with(text).unwrap_err().to_string();
        assert!(message.contains(unknown) && message.contains(&format!("did you mean {known}")), "{message}");
    }
}

#[test]
fn there_is_always_a_tenant_for_what_is_unknown() {
    let of = |text: &str| {
        let config = check(text).unwrap();
        let default = &config.tenants[config.default_tenant.index()];
        (default.name.clone(), default.class, config.tenants.len())
    };
    assert_eq!(of(BACKEND), ("default".into(), 0, 1));
    let added = format!("{BACKEND}[[tenants]]\nname = 'a'\nclass = 3\n");
    assert_eq!(of(&added), ("default".into(), 3, 2), "it goes behind all that are configured");
    assert_eq!(of(&format!("default_tenant = 'batch'\n{BACKEND}{TENANTS}")), ("batch".into(), 0, 2));
    assert_eq!(of(&format!("{BACKEND}{TENANTS}[[tenants]]\nname = 'default'\nclass = 1\n")), ("default".into(), 1, 3));
}

#[test]
fn a_tenant_without_limits_of_its_own_has_the_general_ones() {
    let config = with(&format!("[slo]\ntpot = '100ms'\n{TENANTS}")).unwrap();
    let slo = |i: usize| (config.tenants[i].slo.ttft, config.tenants[i].slo.tpot);
    assert_eq!(slo(0), (Some(Span::from_millis(600)), None), "its own, in place of all");
    assert_eq!(slo(1), (None, Some(Span::from_millis(100))));
    assert_eq!(slo(2), slo(1));
}

#[test]
fn the_effective_configuration_read_again_is_the_same() {
    let predict = "[queue]\nadmission = 'predict'\norder = 'least-slack'\ninfeasible_status = 429\n\
        [predict]\nprofile = 'gb10-qwen3-8b-fp8'\npad = '1500us'\nmargin = 0.013\n[log]\ndecisions = 'd.ndjson'\n";
    let price =
        "[queue]\nadmission = 'price'\norder = 'least-slack'\nfairness = 0.7\n[predict]\nprofile = 'single-worker'\n";
    let own_stall = "[queue]\nadmission = 'price'\n[predict]\nprofile = 'single-worker'\n\
        stall = { per_token_ms = 0.1, free_tokens = 40.5, attention_ms = 6.0, kv_ms_per_token = 0.0003, \
        sequence_ms = 0.2 }\n";
    for more in [
        "",
        "[queue]\nbudget = '750ms'\norder = 'wfq'\n",
        "[queue]\norder = 'priority'\nguard = '1.5s'\n[[tenants]]\nname = 'capped'\nmax_queued = 0\nmax_queued_bytes = 7\n",
        "[queue]\norder = 'shortest-first'\n[predict]\nprofile = 'single-worker'\n",
        predict,
        price,
        own_stall,
        "[queue]\nshadow = 'priority+budget:1.5s'\nguard = '7s'\non_miss = 'abort'\nclasses = { premium = 0, bulk = 9 }\n",
        "[queue]\nshadow = 'least-slack+price:0.7'\nbudget = '1s'\n[predict]\nprofile = 'single-worker'\npad = '7ms'\n",
        "[queue]\nadmission = 'predict'\n[predict]\nprofile = 'single-worker'\nlengths = 'declared'\n\
         [[tenants]]\nname = 'cut'\non_miss = 'abort'\n",
        "[queue]\nadmission = 'predict'\n[predict]\nprofile = 'single-worker'\n[state]\nfile = 's.json'\n",
        "[limits]\nbody_memory = 99999999\n[[tenants]]\nname = 'keyed'\nrequests_per_minute = 7\ntokens_per_minute = 9\n\
         [[tenants.keys]]\nid = 'k'\nsha256 = '852684dfb516b6f22e1d054053cbfc3f1a1ba76cec1f57b9dd21c790d902caae'\n\
         expires = '2027-01-31T12:00:00+02:00'\nmodels = ['a*', 'b']\nrequests_per_minute = 1\n",
    ] {
        let config = with(&format!("{more}{TENANTS}")).unwrap();
        let text = config.to_toml().unwrap();
        assert_eq!(check(&text).unwrap(), config, "{text}");
    }
}

#[test]
fn a_price_is_that_of_the_profile_with_the_usual_fairness_unless_set() {
    let profile = elasticserve_core::engine::Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    for (set, mu) in [("", 0.5), ("fairness = 0", 0.0), ("fairness = 1", 1.0)] {
        let text = format!("[queue]\nadmission = 'price'\n{set}\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n");
        let settings = with(&text).unwrap().scheduler();
        assert_eq!(settings.price, Some(Price::from_profile(&profile, mu)));
        assert_eq!(settings.predict.map(|_| settings.cost), Some(CostModel::from_profile(&profile)));
    }
    let own = "stall = { per_token_ms = 0.1, free_tokens = 40, attention_ms = 6, kv_ms_per_token = 0 }";
    let text = format!("[queue]\nadmission = 'price'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n{own}\n");
    let stall = with(&text).unwrap().price.unwrap().stall;
    assert_eq!((stall.per_token_ms, stall.free_tokens, stall.kv_ms_per_token), (0.1, 40.0, 0.0));
}

#[test]
fn a_shadow_has_its_own_policy_over_the_same_tenants_and_backends() {
    let text = "[queue]\nbudget = '1s'\nshadow = 'least-slack+price:0.7'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n";
    let config = with(&format!("{text}{TENANTS}")).unwrap();
    let (live, shadow) = (config.scheduler(), config.shadow().unwrap());
    assert_eq!((live.order, live.budget, live.predict), (Order::Fcfs, Some(Span::from_secs(1)), None));
    assert_eq!((shadow.order, shadow.budget), (Order::LeastSlack, None));
    assert!(shadow.predict.is_some() && shadow.price.is_some_and(|p| p.mu == 0.7));
    assert_eq!((live.tenants, live.backends, live.depth), (shadow.tenants, shadow.backends, shadow.depth));
    assert_eq!(with(TENANTS).unwrap().shadow().map(|s| s.order), None);
}

#[test]
fn a_tenants_word_on_lost_deadlines_wins_over_the_queues() {
    let text = "[queue]\non_miss = 'abort'\n[[tenants]]\nname = 'a'\non_miss = 'finish'\n[[tenants]]\nname = 'b'\n";
    let tenants = with(text).unwrap().scheduler().tenants;
    assert_eq!(tenants.iter().map(|t| t.on_miss).collect::<Vec<_>>(), [OnMiss::Finish, OnMiss::Abort, OnMiss::Abort]);
    assert_eq!(with(TENANTS).unwrap().scheduler().tenants[0].on_miss, OnMiss::Finish);
}

#[test]
fn a_value_wins_over_the_profiles() {
    let of =
        |more: &str| with(&format!("[queue]\norder = 'wfq'\n[predict]\nprofile = 'single-worker'\n{more}")).unwrap();
    let (plain, changed) = (of("").cost, of("idle_tpot = '7ms'").cost);
    assert_eq!((changed.idle_tpot, changed.overhead), (Span::from_millis(7), plain.overhead));
    assert_ne!(plain.idle_tpot, changed.idle_tpot);
}

#[test]
fn the_examples_are_valid_and_hold_the_published_tenants() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let file = folder.join("gateway.example.toml");
    let mut plain = RawConfig::from_file(&file).unwrap().check().unwrap();
    assert!(std::mem::take(&mut plain.files).paths().eq([file.as_path()]));
    assert_eq!(plain, check(&BACKEND.replace("http://h:1", "http://127.0.0.1:8000")).unwrap());

    let keyed = RawConfig::from_file(&folder.join("keys.example.toml")).unwrap().check().unwrap();
    let key = crate::secret::Secret::new("esk-example-0123456789").unwrap();
    assert_eq!(keyed.keys.find(&key).unwrap().id, "gold-1");

    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(folder.join("tenants.example.toml"), dir.path().join("t.toml")).unwrap();
    let write = |text: &str| std::fs::write(dir.path().join("g.toml"), text).unwrap();
    write(&format!("tenants_file = 't.toml'\n{BACKEND}"));
    let config = RawConfig::from_file(&dir.path().join("g.toml")).unwrap().check().unwrap();
    let reference = std::fs::read_to_string(folder.join("../reference/spark-gb10.toml")).unwrap();
    let reference: toml::Table = toml::from_str(&reference).unwrap();
    let published = reference["tenants"].as_array().unwrap();
    assert_eq!(published.len(), 3);
    for (tenant, published) in config.tenants.iter().zip(published) {
        let ms = |key: &str| Some(Span::from_millis(published[key].as_integer().unwrap() as u64));
        assert_eq!(tenant.name, published["name"].as_str().unwrap());
        assert_eq!(f64::from(tenant.weight.get()), published["weight"].as_float().unwrap());
        assert_eq!((tenant.slo.ttft, tenant.slo.e2e), (ms("ttft_ms"), ms("e2e_ms")));
    }
    assert_eq!(config.tenants[config.default_tenant.index()].name, "standard");

    write(&format!("tenants_file = 't.toml'\ndefault_tenant = 'gold'\n{BACKEND}"));
    let message = RawConfig::from_file(&dir.path().join("g.toml")).unwrap_err().to_string();
    assert!(message.contains("keep them in one"), "{message}");
    write(&format!("tenants_file = 'none.toml'\n{BACKEND}"));
    let message = RawConfig::from_file(&dir.path().join("g.toml")).unwrap_err().to_string();
    assert!(message.starts_with("tenants_file: ") && message.contains("none.toml"), "{message}");
}

#[test]
fn a_profile_is_looked_for_beside_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let profile = elasticserve_core::engine::Profile::built_in_text("single-worker").unwrap();
    std::fs::write(dir.path().join("mine.toml"), profile).unwrap();
    let text = format!("{BACKEND}[queue]\nadmission = 'predict'\n[predict]\nprofile = 'mine.toml'\n");
    std::fs::write(dir.path().join("g.toml"), text).unwrap();
    let config = RawConfig::from_file(&dir.path().join("g.toml")).unwrap().check().unwrap();
    assert_eq!(config.cost.idle_tpot, Span::from_millis_f64(41.063));
}

const POOLS: &str = "[[pools]]\nname = 'a'\nmodels = ['m', 'n']\n[[pools]]\nname = 'b'\nmodels = ['o']\n\
    [[backends]]\nurl = 'http://h:1'\npool = 'a'\n[[backends]]\nurl = 'http://h:2/v1'\npool = 'b'\nweight = 3\n";

#[test]
fn one_pool_needs_no_word_and_serves_every_model() {
    let config = check(BACKEND).unwrap();
    let pool = &config.pools[0];
    assert_eq!(
        (config.pools.len(), pool.name.as_str(), &pool.models, pool.affinity),
        (1, "default", &None, Affinity::None)
    );
    assert_eq!((config.backends[0].pool, config.backends[0].weight.get(), config.backends[0].look_up), (0, 1, None));
}

#[test]
fn several_pools_name_their_models_and_backends_name_their_pool() {
    let config = check(&format!("default_pool = 'b'\n{POOLS}")).unwrap();
    assert_eq!(config.backends.iter().map(|b| (b.pool, b.weight.get())).collect::<Vec<_>>(), [(0, 1), (1, 3)]);
    assert_eq!((config.default_pool, config.fixed.pools), (Some(1), vec!["a".to_owned(), "b".to_owned()]));
    let engine = elasticserve_core::engine::Profile::built_in("single-worker").unwrap();
    let text = POOLS.replacen("name = 'b'", "name = 'b'\nprofile = 'single-worker'", 1);
    let priced = "[queue]\nadmission = 'price'\n[predict]\nprofile = 'gb10-qwen3-8b-fp8'\n";
    let config = check(&format!("{text}{priced}")).unwrap();
    let (usual, own) = (config.scheduler_of(0), config.scheduler_of(1));
    assert_eq!((usual.cost, own.cost), (config.cost, CostModel::from_profile(&engine)));
    assert_eq!(own.price.map(|p| p.stall), Some(Price::from_profile(&engine, 0.0).stall));
    assert_ne!(own.price, usual.price);
}

#[test]
fn pools_and_backends_that_do_not_fit_are_refused_by_key_with_what_would_be_right() {
    let change = |from: &str, to: &str| POOLS.replacen(from, to, 1);
    for (text, key, hint) in [
        (change("models = ['o']\n", ""), "pools[1].models", "several pools"),
        (change("models = ['o']", "models = ['n']"), "pools[1].models", "pool 'a'"),
        (change("models = ['o']", "models = []"), "pools[1].models", "left out"),
        (change("models = ['o']", "models = ['']"), "pools[1].models", "1 to 256"),
        (change("name = 'b'", "name = 'a'"), "pools[1].name", "pools[0]"),
        (change("name = 'b'", "name = 'b c'"), "pools[1].name", "letters"),
        (change("pool = 'b'\n", ""), "backends[1].pool", "several pools"),
        (change("pool = 'b'", "pool = 'c'"), "backends[1].pool", "a, b"),
        (change("pool = 'b'", "pool = 'a'"), "pools[1]", "pool = \"b\""),
        (change("weight = 3", "weight = 0"), "backends[1].weight", "1 or more"),
        (change("weight = 3", "profile = 'h100'"), "backends[1].profile", "gb10-qwen3-8b-fp8"),
        (change("weight = 3", "interval = '1s'"), "backends[1].interval", "discover"),
        (change("weight = 3", "discover = 'dns'\ninterval = '1ms'"), "backends[1].interval", "100ms"),
        (change("weight = 3", "discover = 'consul'"), "backends[1].discover", "dns"),
        (change("weight = 3", "engine = 'tgi'"), "backends[1].engine", "vllm, sglang"),
        (change("models = ['o']", "models = ['o']\nprefix_bytes = 9"), "pools[1].prefix_bytes", "affinity"),
        (change("models = ['o']", "models = ['o']\naffinity_slack = '1s'"), "pools[1].affinity_slack", "affinity"),
        (
            change("models = ['o']", "models = ['o']\naffinity = 'session'\nprefix_bytes = 9"),
            "pools[1].prefix_bytes",
            "prefix",
        ),
        (
            change("models = ['o']", "models = ['o']\naffinity = 'prefix'\nprefix_bytes = 0"),
            "pools[1].prefix_bytes",
            "1 to",
        ),
        (format!("default_pool = 'c'\n{POOLS}"), "default_pool", "a, b"),
        (format!("pools = []\n{BACKEND}"), "pools", "1 to 64"),
        (format!("{POOLS}[health]\npath = 'health'"), "health.path", "/health"),
        (format!("{POOLS}[health]\nfailures = 0"), "health.failures", "1 or more"),
        (format!("{POOLS}[health]\nopen = '0'"), "health.open", "more than 0"),
    ] {
        let message = check(&text).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{key}: ")) && message.contains(hint), "{text}: {message}");
    }
    for (text, unknown, known) in [
        ("[[pool]]\nname = 'a'", "pool", "`pools`"),
        ("[[pools]]\nname = 'a'\nmodel = ['m']", "model", "`models`"),
        ("[[pools]]\nname = 'a'\naffinity = 'sessions'", "sessions", "`session`"),
        ("[health]\nslowstart = '1s'", "slowstart", "`slow_start`"),
        ("[engines.x]\nrunnin = 'a'", "runnin", "`running`"),
    ] {
        let message = with(text).unwrap_err().to_string();
        assert!(message.contains(unknown) && message.contains(&format!("did you mean {known}")), "{message}");
    }
}

#[test]
fn the_effective_pools_and_backends_read_again_are_the_same() {
    for more in [
        "default_pool = 'a'\n",
        "health = { path = '/ping?x=1', interval = '1s', probes = 7, slow_start = '0ms' }\n",
        "engines = { mine = { running = 'r', waiting = 'w' } }\n",
    ] {
        let text = POOLS
            .replacen("weight = 3", "engine = 'mine'\nprofile = 'single-worker'\ndiscover = 'dns'\ninterval = '3s'", 1)
            .replacen(
                "models = ['o']",
                "models = ['o']\naffinity = 'prefix'\nprefix_bytes = 7\nprofile = 'single-worker'",
                1,
            );
        let text = if more.starts_with("engines") { text } else { text.replace("'mine'", "'vllm'") };
        let config = check(&format!("{more}{text}")).unwrap();
        let effective = config.to_toml().unwrap();
        assert_eq!(check(&effective).unwrap(), config, "{effective}");
    }
}
