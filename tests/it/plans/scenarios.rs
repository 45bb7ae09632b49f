//! Scenario files: what they mean, what flags change in them, and what is wrong with bad ones.

use std::num::NonZeroU32;

use elasticserve_core::time::Span;
use elasticserve_core::work::{ArrivalProcess, LoadModel, Plan};

use super::{elasticserve, example, planned, text};

/// The plan of a scenario's text.
fn plan(toml: &str) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, toml).unwrap();
    planned(&["--scenario", file.to_str().unwrap()]).0
}

#[test]
fn a_scenario_of_one_tenant_is_the_plan_of_the_same_flags() {
    let flags = ["--request-rate", "16", "--num-prompts", "200", "--isl", "256", "--osl", "64", "--seed", "7"];
    let limits = ["--goodput", "ttft:1000", "tpot:100", "e2el:15000"];
    assert_eq!(planned(&["--scenario", &example("steady")]).1, planned(&[&flags[..], &limits].concat()).1);
}

#[test]
fn flags_win_over_the_file() {
    let scenario = example("steady");
    let (plan, _) = planned(&["--scenario", &scenario, "--request-rate", "5", "--seed", "9", "--duration", "30"]);
    let header = plan.header();
    assert_eq!((&header.process, header.seed), (&ArrivalProcess::Poisson { rate: 5.0 }, 9));
    assert_eq!(header.window, Some(Span::from_secs(30)));
    let (plan, _) = planned(&["--scenario", &example("burst"), "--num-prompts", "77"]);
    assert_eq!(plan.header().count, 77);
}

#[test]
fn tenants_have_their_own_arrivals_lengths_limits_and_headers() {
    let plan = plan(
        r#"
        seed = 3
        duration = "100s"
        slo = { ttft = "2s" }
        lengths = { input = 100, output = 10 }
        [[tenants]]
        name = "steady"
        arrivals = { pattern = "constant", rate = 2 }
        class = "interactive"
        key_env = "STEADY_KEY"
        headers = { x-team = "search" }
        [[tenants]]
        name = "clumps"
        arrivals = { pattern = "bursts", size = 5, every = "20s" }
        lengths = { input = [200, 300], output = { median = 50, sigma = 0.5, min = 20, max = 80 } }
        slo = { e2e = "30s" }
        shared_prefix = { tokens = 1000 }
        "#,
    );
    let [steady, clumps] = plan.header().tenants.as_slice() else { panic!("{:?}", plan.header()) };
    assert_eq!((steady.class.as_deref(), steady.key_env.as_deref()), (Some("interactive"), Some("STEADY_KEY")));
    assert_eq!(steady.headers["x-team"], "search");
    assert_eq!((steady.slo.ttft, steady.slo.e2e), (Some(Span::from_secs(2)), None));
    assert_eq!((clumps.slo.ttft, clumps.slo.e2e), (None, Some(Span::from_secs(30))), "its own are all its limits");
    let of = |tenant| plan.arrivals().iter().filter(move |a| a.tenant == tenant);
    assert_eq!((of(0).count(), of(1).count()), (200, 25));
    assert!(of(0).all(|a| (a.input, a.output) == (100, 10) && plan.prefix(a).is_none()));
    assert!(of(1).all(|a| (1200..=1300).contains(&a.input) && (20..=80).contains(&a.output)));
    assert!(of(1).all(|a| plan.prefix(a).unwrap().tokens == 1000));
    assert_eq!(plan.header().process, ArrivalProcess::Mixed { rate: 2.25 });
}

#[test]
fn sessions_closed_loads_and_traces_are_what_the_file_says() {
    let (sessions, _) = planned(&["--scenario", &example("sessions")]);
    let users = NonZeroU32::new(40).unwrap();
    assert_eq!(sessions.header().model, LoadModel::Sessions { users, history: true });
    let turns: Vec<u32> = sessions.arrivals().iter().map(|a| sessions.turn(a).unwrap().place).collect();
    assert_eq!(turns.iter().filter(|place| **place == 0).count(), 40);
    assert!(turns.iter().filter(|place| **place == 1).count() == 40 && turns.iter().max() <= Some(&5));
    assert!(sessions.arrivals().iter().all(|a| sessions.prefix(a).is_some() == (sessions.turn(a).unwrap().place == 0)));

    let closed = plan("requests = 50\nclosed = { workers = 4 }\nlengths = { input = 10, output = 5 }\n");
    assert_eq!(closed.header().model, LoadModel::Closed { workers: NonZeroU32::new(4).unwrap() });

    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/reference/traces/m3_seed11.csv");
    let tenants = "[[tenants]]\nname = 'gold'\nslo = { e2e = '5s' }\n[[tenants]]\nname = 'standard'\n[[tenants]]\nname = 'batch'\n";
    let replay = plan(&format!("trace = {{ file = '{trace}', speed_up = 2.0, rows = 50 }}\n{tenants}"));
    assert_eq!((replay.header().count, replay.header().tenants[0].slo.e2e), (50, Some(Span::from_secs(5))));
    let plain = planned(&["--trace", trace, "--trace-rows", "50", "--trace-speedup", "2"]).0;
    let times = |plan: &Plan| plan.arrivals().iter().map(|a| (a.at, a.input, a.output)).collect::<Vec<_>>();
    assert_eq!(times(&replay), times(&plain));
}

const GOOD: &str = r#"
requests = 10
arrivals = { pattern = "poisson", rate = 4 }
lengths = { input = 100, output = 10 }
[[tenants]]
name = "a"
[target]
endpoint = "chat"
[run]
drain = "30s"
"#;

#[test]
fn what_is_wrong_in_a_file_is_refused_with_the_key_and_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    plan(GOOD);
    for (from, to, says) in [
        ("requests = 10", "request = 10", "unknown field `request`"),
        ("requests = 10", "request = 10", "did you mean `requests`?"),
        ("requests = 10", "", "requests: how many, or a duration"),
        ("requests = 10", "requests = 10\nduration = '5s'", "say one of the two"),
        ("requests = 10", "duration = 5", "duration"),
        ("requests = 10", "duration = '5'", "needs a unit"),
        ("'poisson'", "'poison'", "did you mean `poisson`?"),
        ("rate = 4", "rate = 0", "rate must be above 0"),
        ("rate = 4", "rate = 4, burstiness = 2", "unknown field `burstiness`"),
        ("'poisson', rate = 4", "'gamma', rate = 4", "missing field `burstiness`"),
        ("arrivals =", "#", "arrivals: missing"),
        ("input = 100", "input = [100]", "lengths.input"),
        ("input = 100", "input = 'long'", "lengths.input"),
        ("input = 100", "input = { median = 9, sigma = 1, maximum = 99 }", "did you mean `max`?"),
        ("input = 100", "input = { median = 9, sd = 1, max = 99 }", "either median and sigma, or mean and sd"),
        ("input = 100", "input = [20, 10]", "the low end first, not 20 to 10"),
        ("input = 100, ", "", "needs either input and output, or pairs"),
        ("input = 100, output = 10", "pairs = 'no.csv'", "lengths.pairs"),
        ("lengths =", "#", "lengths: missing"),
        ("name = \"a\"", "name = 'a'\n[[tenants]]\nname = 'a'", "two are called 'a'"),
        ("name = \"a\"", "name = 'a'\nshare = -1", "share of tenant 'a' must be above 0"),
        ("name = \"a\"", "name = 'a'\narrivals = { pattern = 'constant', rate = 1 }", "the tenants have their own"),
        ("name = \"a\"", "name = 'a'\nheaders = { connection = 'x' }", "tenants.0.headers.connection"),
        ("name = \"a\"", "name = 'a'\nkey_env = 'A=B'", "tenants.0.key_env"),
        ("endpoint = \"chat\"", "endpoint = 'chats'", "target.endpoint"),
        ("endpoint = \"chat\"", "url = 'example.org'", "target.url"),
        ("endpoint = \"chat\"", "headers = { host = \"\\n\" }", "target.headers.host"),
        ("drain = \"30s\"", "drains = '30s'", "did you mean `drain`?"),
        ("drain = \"30s\"", "drain = 'soon'", "run.drain"),
        ("drain = \"30s\"", "max_client_cpu = 2", "run.max_client_cpu"),
        ("[run]", "[closed]\nworkers = 3\n[run]", "arrivals: do not go with closed"),
        ("[run]", "[sessions]\nusers = 3\nturns = 2\nthink = '1s'\n[run]", "requests: do not go with sessions"),
        ("[run]", "[trace]\nfile = 'x'\n[run]", "does not go with trace"),
        ("[run]", "[prompts]\nkind = 'words'\n[run]", "prompts.kind"),
        ("[run]", "[prompts]\nmax_input = 9\n[run]", "bounds on the texts of a dataset"),
        ("[run]", "[prompts]\ndataset = 'no.json'\n[run]", "prompts.dataset"),
    ] {
        let (good, from) = (GOOD.replace('"', "'"), from.replace('"', "'"));
        let bad = good.replacen(&from, &to.replace('"', if to.contains('\\') { "\"" } else { "'" }), 1);
        assert_ne!(bad, good, "{from}");
        std::fs::write(&file, &bad).unwrap();
        let output = elasticserve(&["load", "--plan-only", "--scenario", file.to_str().unwrap()]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{to}: {message}");
        assert!(message.contains("scenario.toml: ") && message.contains(says), "{to}: {message}");
    }
}
