use super::*;
use crate::slo::Slo;
use crate::work::{Lengths, PlanSpec, Turn};

const SECOND: Span = Span::from_secs(1);

fn class(name: &str, share: f64, input: u32) -> Class {
    let length = |tokens| Length::Uniform(Lengths::around(tokens, 0.25));
    Class {
        tenant: PlanTenant::new(name, share, Slo::default()),
        sizes: Sizes::Independent { input: length(input), output: length(64) },
        prefix: None,
    }
}

fn shared(classes: Vec<Class>) -> Mix {
    let offer = Offering::Shared { process: ArrivalProcess::Poisson { rate: 16.0 }, extent: Extent::Count(2000) };
    Mix { seed: 7, offer, classes, texts: None }
}

fn nonzero(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

#[test]
fn one_tenant_is_the_plan_that_the_simple_specification_draws() {
    let mix = shared(vec![class("default", 1.0, 256)]);
    let spec = PlanSpec {
        seed: 7,
        process: ArrivalProcess::Poisson { rate: 16.0 },
        extent: Extent::Count(2000),
        input: Lengths::around(256, 0.25),
        output: Lengths::around(64, 0.25),
        tenants: vec![PlanTenant::new("default", 1.0, Slo::default())],
    };
    assert_eq!(mix.plan().unwrap().hash(), Plan::generate(&spec).unwrap().hash());
}

#[test]
fn each_tenant_has_its_own_lengths_and_a_change_of_one_moves_no_other() {
    let plan = shared(vec![class("chat", 1.0, 100), class("code", 3.0, 1000)]).plan().unwrap();
    let of = |plan: &Plan, tenant| plan.arrivals().iter().filter(|a| a.tenant == tenant).copied().collect::<Vec<_>>();
    assert!(of(&plan, 0).iter().all(|a| (75..=125).contains(&a.input)));
    assert!(of(&plan, 1).iter().all(|a| (750..=1250).contains(&a.input)));
    let share = of(&plan, 1).len() as f64 / 2000.0;
    assert!((share - 0.75).abs() < 4.0 * (0.75f64 * 0.25 / 2000.0).sqrt(), "{share}");
    let other = shared(vec![class("chat", 1.0, 500), class("code", 3.0, 1000)]).plan().unwrap();
    assert_eq!(of(&other, 1), of(&plan, 1));
    assert_ne!(of(&other, 0), of(&plan, 0));
    let twins = shared(vec![class("a", 1.0, 1000), class("b", 1.0, 1000)]).plan().unwrap();
    let inputs = |tenant| of(&twins, tenant).iter().take(100).map(|a| a.input).collect::<Vec<_>>();
    assert_ne!(inputs(0), inputs(1), "tenants of one distribution do not draw the same lengths");
    assert!(plan.header().tenants[1].lengths.as_ref().unwrap().contains("input 750 to 1250"), "{:?}", plan.header());
}

#[test]
fn tenants_with_processes_of_their_own_do_not_move_each_other() {
    let own = |second: f64| {
        let mut classes = vec![class("steady", 1.0, 100), class("bursty", 1.0, 100)];
        classes[0].tenant.arrivals = Some(ArrivalProcess::Constant { rate: 2.0 });
        classes[1].tenant.arrivals = Some(ArrivalProcess::Gamma { rate: second, burstiness: 0.25 });
        let window = Span::from_secs(500);
        Mix { seed: 3, offer: Offering::Own { window }, classes, texts: None }.plan().unwrap()
    };
    let plan = own(8.0);
    assert!(plan.arrivals().is_sorted_by_key(|a| a.at));
    let times =
        |plan: &Plan, tenant| plan.arrivals().iter().filter(|a| a.tenant == tenant).map(|a| a.at).collect::<Vec<_>>();
    assert_eq!(times(&plan, 0), (1..=1000).map(|i| Span::from_millis(500 * i)).collect::<Vec<_>>());
    // 4,000 are expected; the variance of a gamma renewal count is mean / shape: four deviations are 506.
    assert!(times(&plan, 1).len().abs_diff(4000) < 506, "{}", times(&plan, 1).len());
    assert_eq!(plan.header().process, ArrivalProcess::Mixed { rate: 10.0 });
    assert_eq!(times(&own(4.0), 0), times(&plan, 0));
    assert_eq!(Plan::from_ndjson(&plan.to_ndjson()).unwrap(), plan);
}

#[test]
fn a_supply_has_no_times_and_no_rate() {
    let offer = Offering::Closed { workers: nonzero(8), count: nonzero(100), window: Some(SECOND) };
    let plan = Mix { offer, ..shared(vec![class("a", 1.0, 64), class("b", 1.0, 64)]) }.plan().unwrap();
    assert_eq!(plan.header().model, LoadModel::Closed { workers: nonzero(8) });
    assert_eq!((plan.header().count, plan.header().window, plan.header().process.rate()), (100, Some(SECOND), None));
    assert!(plan.arrivals().iter().all(|a| a.at == Span::ZERO));
    assert!((30..70).contains(&plan.arrivals().iter().filter(|a| a.tenant == 0).count()));
}

fn sessions(process: Option<ArrivalProcess>) -> SessionSpec {
    SessionSpec {
        users: nonzero(400),
        process,
        turns: Lengths { low: 1, high: 5 },
        think: Think::Exponential(Span::from_secs(2)),
        history: true,
        window: None,
    }
}

#[test]
fn a_session_is_of_one_tenant_comes_once_and_then_thinks_before_each_turn() {
    let offer = Offering::Sessions(sessions(Some(ArrivalProcess::Constant { rate: 4.0 })));
    let plan = Mix { offer, ..shared(vec![class("a", 1.0, 64), class("b", 1.0, 64)]) }.plan().unwrap();
    let turns: Vec<(Arrival, Turn)> = plan.arrivals().iter().map(|a| (*a, plan.turn(a).unwrap())).collect();
    let firsts: Vec<Span> = turns.iter().filter(|(_, t)| t.place == 0).map(|(a, _)| a.at).collect();
    assert_eq!(firsts, (1..=400).map(|i| Span::from_millis(250 * i)).collect::<Vec<_>>());
    // Uniform from 1 to 5: mean 3, variance 2.
    assert!((turns.len() as f64 / 400.0 - 3.0).abs() < 4.0 * (2.0f64 / 400.0).sqrt(), "{}", turns.len());
    let thinks: Vec<f64> = turns.iter().filter(|(_, t)| t.place > 0).map(|(_, t)| t.think.as_secs_f64()).collect();
    let n = thinks.len() as f64;
    assert!((thinks.iter().sum::<f64>() / n - 2.0).abs() < 4.0 * 2.0 / n.sqrt());
    assert!(turns.iter().filter(|(_, t)| t.place == 0).all(|(_, t)| t.think == Span::ZERO));
    assert_eq!(Plan::from_ndjson(&plan.to_ndjson()).unwrap(), plan);
}

#[test]
fn users_without_a_process_are_all_there_at_the_start() {
    let offer = Offering::Sessions(sessions(None));
    let plan = Mix { offer, ..shared(vec![class("a", 1.0, 64)]) }.plan().unwrap();
    assert!(plan.arrivals().iter().all(|a| a.at == Span::ZERO));
    assert_eq!(plan.header().window, None);
}

#[test]
fn shared_prefixes_come_on_top_of_the_lengths_and_equally_often() {
    let prefix = |scope| Some(SharedPrefix { tokens: nonzero(512), groups: nonzero(4), scope });
    let mut classes = vec![class("a", 1.0, 100), class("b", 1.0, 100), class("c", 1.0, 100)];
    (classes[0].prefix, classes[1].prefix) = (prefix(0), prefix(1));
    let plan = shared(classes.clone()).plan().unwrap();
    let plain = shared(vec![class("a", 1.0, 100), class("b", 1.0, 100), class("c", 1.0, 100)]).plan().unwrap();
    let mut families = std::collections::BTreeMap::new();
    for (a, b) in plan.arrivals().iter().zip(plain.arrivals()) {
        let on_top = if a.tenant == 2 { 0 } else { 512 };
        assert_eq!((a.input, a.at, a.output, a.prompt), (b.input + on_top, b.at, b.output, b.prompt));
        assert_eq!(plan.prefix(a).map_or(0, |p| p.tokens), on_top);
        if let Some(prefix) = plan.prefix(a) {
            *families.entry((a.tenant, prefix.family)).or_insert(0u32) += 1;
        }
    }
    assert_eq!(families.len(), 8, "two tenants with four texts each, none of them shared");
    assert!(families.values().all(|n| (110..225).contains(n)), "{families:?}");
    // Tenants of one scope have the same texts.
    classes[1].prefix = prefix(0);
    let plan = shared(classes).plan().unwrap();
    let families: std::collections::BTreeSet<u64> =
        plan.arrivals().iter().filter_map(|a| plan.prefix(a)).map(|p| p.family).collect();
    assert_eq!(families.len(), 4);
}

#[test]
fn only_the_first_turn_of_a_history_has_the_prefix() {
    let mut classes = vec![class("a", 1.0, 100)];
    classes[0].prefix = Some(SharedPrefix { tokens: nonzero(512), groups: nonzero(1), scope: 0 });
    let with = |history| {
        let offer = Offering::Sessions(SessionSpec { history, ..sessions(None) });
        Mix { offer, ..shared(classes.clone()) }.plan().unwrap()
    };
    let carried = with(true);
    assert!(carried.arrivals().iter().all(|a| carried.prefix(a).is_some() == (carried.turn(a).unwrap().place == 0)));
    let each = with(false);
    assert!(each.arrivals().iter().all(|a| each.prefix(a).is_some()));
}

fn dataset(conversations: u32) -> Arc<Dataset> {
    let turn = |n: u32| {
        let (question, answer) = ("word ".repeat(10 + n as usize), "yes ".repeat(20 + n as usize));
        format!(r#"{{"from":"human","value":"{question}"}},{{"from":"gpt","value":"{answer}"}}"#)
    };
    let conversation = |n: u32| format!(r#"{{"id":"{n}","conversations":[{},{}]}}"#, turn(n), turn(n + 1));
    let text = format!("[{}]", (0..conversations).map(conversation).collect::<Vec<_>>().join(","));
    Arc::new(Dataset::from_json(&text, "a test").unwrap())
}

fn texts(dataset: &Arc<Dataset>) -> Option<Texts> {
    Some(Texts { dataset: Arc::clone(dataset), bounds: TextBounds::default(), output: None })
}

#[test]
fn texts_are_used_once_each_before_any_comes_again_with_lengths_of_their_own() {
    let dataset = dataset(50);
    let offer = Offering::Shared { process: ArrivalProcess::Constant { rate: 1.0 }, extent: Extent::Count(100) };
    let plan = Mix { offer, texts: texts(&dataset), ..shared(vec![class("a", 1.0, 9)]) }.plan().unwrap();
    let refs: Vec<u32> = plan.arrivals().iter().map(|a| plan.text_ref(a).unwrap().conversation).collect();
    let mut once = refs[..50].to_vec();
    once.sort_unstable();
    assert_eq!(once, (0..50).collect::<Vec<_>>());
    assert_ne!(refs[..50], once[..], "the order is random");
    assert_eq!(refs[..50], refs[50..]);
    for a in plan.arrivals() {
        let n = plan.text_ref(a).unwrap().conversation;
        assert_eq!(plan.text(a).unwrap(), "word ".repeat(10 + n as usize));
        // A token is about four bytes: ⌈5 (10 + n) / 4⌉ and 4 (20 + n) / 4.
        assert_eq!((a.input, a.output), ((5 * (10 + n)).div_ceil(4), 20 + n));
    }
    let again = Plan::from_ndjson(&plan.to_ndjson()).unwrap();
    assert!(again.lacks_dataset() && again.text(&again.arrivals()[0]).is_none());
    assert_eq!(again.with_dataset(dataset).unwrap(), plan);
}

#[test]
fn a_session_has_the_turns_of_one_conversation() {
    let dataset = dataset(50);
    let offer = Offering::Sessions(SessionSpec { turns: Lengths { low: 1, high: 9 }, ..sessions(None) });
    let plan = Mix { offer, texts: texts(&dataset), ..shared(vec![class("a", 1.0, 9)]) }.plan().unwrap();
    assert!(plan.arrivals().iter().any(|a| plan.turn(a).unwrap().place == 1));
    let mut of_session = std::collections::BTreeMap::new();
    for a in plan.arrivals() {
        let (turn, text) = (plan.turn(a).unwrap(), plan.text_ref(a).unwrap());
        assert_eq!(text.message, turn.place);
        assert_eq!(*of_session.entry(turn.session).or_insert(text.conversation), text.conversation);
    }
    assert_eq!(of_session.len(), 400, "no user is lost to a short conversation");
}

#[test]
fn another_dataset_than_the_plan_s_is_refused() {
    let plan = Mix { texts: texts(&dataset(50)), ..shared(vec![class("a", 1.0, 9)]) }.plan().unwrap();
    let again = Plan::from_ndjson(&plan.to_ndjson()).unwrap();
    let error = again.with_dataset(dataset(51)).unwrap_err().to_string();
    assert!(error.contains("SHA-256"), "{error}");
    let error = shared(vec![class("a", 1.0, 9)]).plan().unwrap().with_dataset(dataset(50)).unwrap_err().to_string();
    assert!(error.contains("refers to no dataset"), "{error}");
}

#[test]
fn what_does_not_go_together_is_refused_with_the_reason() {
    let own = Offering::Own { window: SECOND };
    let mut with_own = class("b", 1.0, 64);
    with_own.tenant.arrivals = Some(ArrivalProcess::Constant { rate: 1.0 });
    let mut prefixed = class("a", 1.0, 64);
    prefixed.prefix = Some(SharedPrefix { tokens: nonzero(9), groups: nonzero(1), scope: 0 });
    let mut empty = class("b", 1.0, 64);
    let none = Length::Uniform(Lengths::fixed(0));
    empty.sizes = Sizes::Independent { input: none, output: none };
    let long = Offering::Shared {
        process: ArrivalProcess::Constant { rate: 1e6 },
        extent: Extent::Duration(Span::from_secs(60)),
    };
    let backwards = SessionSpec { think: Think::Uniform(SECOND, Span::ZERO), ..sessions(None) };
    let short = Offering::Shared { process: ArrivalProcess::Constant { rate: 0.1 }, extent: Extent::Duration(SECOND) };
    let base = || shared(vec![class("a", 1.0, 64)]);
    for (mix, says) in [
        (Mix { offer: own, ..base() }, "tenant 'a' needs arrivals of its own"),
        (shared(vec![class("a", 1.0, 64), with_own]), "tenant 'b' has arrivals of its own beside a share"),
        (Mix { texts: texts(&dataset(9)), ..shared(vec![prefixed]) }, "not both"),
        (Mix { offer: long, ..base() }, "more than 20000000 requests"),
        (Mix { offer: short, ..base() }, "too short for a single request"),
        (Mix { offer: Offering::Sessions(backwards), ..base() }, "think times from 1 s to 0 s are empty"),
        (shared(vec![class("a", 1.0, 64), empty]), "tenant 'b': input lengths must be 1 token or more"),
        (shared(vec![]), "from 1 to 65,535 tenants"),
    ] {
        let error = mix.plan().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
