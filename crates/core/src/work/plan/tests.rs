use std::num::NonZeroU32;

use super::super::{Extent, Lengths};
use super::*;
use crate::slo::Slo;

fn spec() -> PlanSpec {
    PlanSpec {
        seed: 7,
        process: ArrivalProcess::Poisson { rate: 16.0 },
        extent: Extent::Count(200),
        input: Lengths::fixed(256),
        output: Lengths::around(64, 0.5),
        tenants: vec![PlanTenant::new("a", 1.0, Slo::default()), PlanTenant::new("b", 3.0, Slo::default())],
    }
}

#[test]
fn a_plan_read_back_is_the_same_plan() {
    let plan = Plan::generate(&spec()).unwrap();
    let again = Plan::from_ndjson(&plan.to_ndjson()).unwrap();
    assert_eq!(plan, again);
    assert_eq!(plan.hash(), again.hash());
}

/// Hashes that earlier versions gave: a plan that was written down must stay the same plan.
#[test]
fn plans_of_earlier_versions_keep_their_hashes() {
    let spec = |process, extent, output| PlanSpec {
        seed: 7,
        process,
        extent,
        input: Lengths::around(1024, 0.0),
        output,
        tenants: vec![PlanTenant::new("default", 1.0, Slo::default())],
    };
    let (poisson, constant) = (ArrivalProcess::Poisson { rate: 16.0 }, ArrivalProcess::Constant { rate: 16.0 });
    let fixed = Lengths::fixed(128);
    for (spec, hash) in [
        (
            spec(poisson.clone(), Extent::Count(2000), fixed),
            "614e7280ad4ae6c035724ec46501b44176812d62ff7b506ac98c60f5343dbaf7",
        ),
        (spec(constant, Extent::Count(200), fixed), "e70757521455eeb082f7e8e2a3739622c44680b7b3ade8bcb05c70ae2a52d546"),
        (
            spec(poisson, Extent::Duration(Span::from_secs(20)), fixed),
            "524c44a83fd854cef6872a027c21381ed63a2e00e042534404729ca9b3405986",
        ),
    ] {
        assert_eq!(Plan::generate(&spec).unwrap().hash(), hash, "{spec:?}");
    }
}

#[test]
fn a_seed_gives_one_plan_and_another_seed_another() {
    let plan = Plan::generate(&spec()).unwrap();
    assert_eq!(plan.hash(), Plan::generate(&spec()).unwrap().hash());
    let other = Plan::generate(&PlanSpec { seed: 8, ..spec() }).unwrap();
    assert_ne!(plan.hash(), other.hash());
}

#[test]
fn a_counted_poisson_plan_ends_at_count_over_rate() {
    let plan = Plan::generate(&spec()).unwrap();
    assert_eq!(plan.arrivals().last().unwrap().at, Span::from_millis(12_500));
    assert_eq!(plan.header().window, Some(Span::from_millis(12_500)));
}

#[test]
fn shares_and_lengths_are_what_was_asked() {
    let plan = Plan::generate(&PlanSpec { extent: Extent::Count(20_000), ..spec() }).unwrap();
    let b = plan.arrivals().iter().filter(|a| a.tenant == 1).count() as f64 / 20_000.0;
    assert!((b - 0.75).abs() < 0.0124, "{b}"); // four standard errors
    assert!(plan.arrivals().iter().all(|a| (32..=96).contains(&a.output)));
    let mean = plan.arrivals().iter().map(|a| f64::from(a.output)).sum::<f64>() / 20_000.0;
    assert!((mean - 64.0).abs() < 0.54, "{mean}");
}

#[test]
fn faster_time_scales_arrivals_window_and_slo_alike() {
    let mut spec = spec();
    spec.tenants[0].slo.ttft = Some(Span::from_millis(1000));
    let plan = Plan::generate(&spec).unwrap();
    let fast = plan.sped_up(4.0);
    assert_eq!(fast.header().window, Some(Span::from_millis(3125)));
    assert_eq!(fast.header().process.rate(), Some(64.0));
    assert_eq!(fast.header().tenants[0].slo.ttft, Some(Span::from_millis(250)));
    assert_eq!(fast.arrivals().last().unwrap().at, Span::from_millis(3125));
}

#[test]
fn a_bad_plan_is_refused_with_the_reason() {
    let rate = PlanSpec { process: ArrivalProcess::Poisson { rate: 0.0 }, ..spec() };
    assert!(Plan::generate(&rate).unwrap_err().to_string().contains("request rate"));
    let input = PlanSpec { input: Lengths::fixed(0), ..spec() };
    assert!(Plan::generate(&input).unwrap_err().to_string().contains("input"));
    let text = Plan::generate(&spec()).unwrap().to_ndjson();
    let cut: String = text.lines().take(100).map(|l| format!("{l}\n")).collect();
    assert!(Plan::from_ndjson(&cut).unwrap_err().to_string().contains("99 arrivals"));
    assert!(Plan::from_ndjson("").unwrap_err().to_string().contains("line 1"));
}

fn two_tenants(times: &[u64]) -> Plan {
    let arrival =
        |at: &u64| Arrival { index: 0, at: Span::from_secs(*at), tenant: 0, input: 100, output: 9, prompt: 5 };
    let tenants = vec![PlanTenant::new("a", 1.0, Slo::default())];
    Plan::recorded("a test", 1.0, Span::from_secs(9), tenants, times.iter().map(arrival).collect()).unwrap()
}

fn turn(session: u32, place: u32, think: u64) -> Turn {
    Turn { session, place, think: Span::from_secs(think) }
}

#[test]
fn sessions_shared_prefixes_and_supplies_survive_the_plan_s_text() {
    let users = NonZeroU32::new(2).unwrap();
    let prefix = Some(Prefix { family: 7, tokens: 60 });
    let sessions = two_tenants(&[0, 0, 1])
        .with_turns(users, true, vec![turn(0, 0, 0), turn(0, 1, 3), turn(1, 0, 0)])
        .and_then(|plan| plan.with_prefixes(vec![prefix, None, prefix]))
        .unwrap();
    let again = Plan::from_ndjson(&sessions.to_ndjson()).unwrap();
    assert_eq!(again, sessions);
    assert_eq!(again.header().model, LoadModel::Sessions { users, history: true });
    let [first, second, _] = again.arrivals() else { panic!("{again:?}") };
    assert_eq!((again.turn(second), again.prefix(first)), (Some(turn(0, 1, 3)), prefix));

    let supply = two_tenants(&[1, 2]).as_supply(users, None);
    let again = Plan::from_ndjson(&supply.to_ndjson()).unwrap();
    assert_eq!(again, supply);
    assert_eq!((again.header().window, again.header().process.rate()), (None, None));
    assert_eq!(again.header().model.to_string(), "closed");
    assert!(again.arrivals().iter().all(|a| a.at == Span::ZERO));
}

#[test]
fn conversations_that_do_not_hold_together_are_refused_with_the_arrival() {
    let users = NonZeroU32::new(2).unwrap();
    let with =
        |times: &[u64], turns: Vec<Turn>| two_tenants(times).with_turns(users, true, turns).unwrap_err().to_string();
    for (times, turns, says) in [
        (&[0, 0][..], vec![turn(0, 0, 0)], "1 turns for 2 arrivals"),
        (&[0, 0], vec![turn(0, 0, 0), turn(0, 2, 0)], "arrival 1: turn 2 of session 0 where turn 1 belongs"),
        (&[0, 0], vec![turn(0, 1, 0), turn(0, 0, 0)], "arrival 0: turn 1 of session 0 where turn 0 belongs"),
        (&[0, 0], vec![turn(0, 0, 0), turn(2, 0, 0)], "arrival 1: session 2 of 2 users"),
        (&[0, 1], vec![turn(0, 0, 0), turn(0, 1, 0)], "arrival 1: session 0 has another time"),
    ] {
        let error = with(times, turns);
        assert!(error.contains(says), "{error}");
    }
    let long = two_tenants(&[0]).with_prefixes(vec![Some(Prefix { family: 1, tokens: 101 })]).unwrap_err();
    assert!(long.to_string().contains("a prefix of 101 tokens for 100 input tokens"), "{long}");
    // A file is held to the same, and the line is named.
    let good = two_tenants(&[0, 0]).with_turns(users, false, vec![turn(0, 0, 0), turn(0, 1, 0)]).unwrap().to_ndjson();
    let bad = good.replace("\"place\":1", "\"place\":3");
    let error = Plan::from_ndjson(&bad).unwrap_err().to_string();
    assert!(error.starts_with("plan line 3: turn 3 of session 0"), "{error}");
    let open = good.replacen("{\"sessions\":{\"users\":2,\"history\":false}}", "\"open\"", 1);
    let error = Plan::from_ndjson(&open).unwrap_err().to_string();
    assert!(error.starts_with("plan line 2: a turn of a session"), "{error}");
}
