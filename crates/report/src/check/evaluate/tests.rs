use super::super::cohort::Case;
use super::*;

/// Arrivals, the given ones refused, the others answered after 1 to `n` ms in an order that has no runs.
fn cohort(n: u32, good: impl Fn(u32) -> bool) -> Cohort {
    let case = |i: u32| {
        let good = good(i);
        let ttft = Some(f64::from(i * 389 % n + 1)).filter(|_| good);
        Case {
            good,
            completed: good,
            rejected: !good,
            failed: false,
            capped: false,
            latencies: [ttft, None, ttft, None],
        }
    };
    Cohort { window_s: f64::from(n) / 10.0, cases: (0..n).map(case).collect() }
}

fn found(target: &str, repeats: &[Cohort]) -> Finding {
    evaluate(&target.parse().unwrap(), 0.95, repeats)
}

fn near(got: Option<f64>, expected: f64) {
    assert!((got.unwrap() - expected).abs() < 1e-9, "{got:?} where {expected} is right");
}

/// Every 20th refused, never two together: 190 of 200, with neighbours that are less alike than chance.
fn most() -> Cohort {
    cohort(200, |i| i % 20 != 19)
}

#[test]
fn a_share_has_the_interval_of_wilson_and_is_decided_by_it() {
    // statsmodels 0.15.0: proportion_confint(190, 200, 0.05, "wilson") = (0.91042, 0.97262)
    let open = found("attainment>=0.95", &[most()]);
    near(open.low, 0.9104218518612239);
    near(open.high, 0.972617354399236);
    assert_eq!((open.outcome, open.n, open.value), (Outcome::Open, 200, Some(0.95)));
    assert_eq!(found("attainment>=0.91", &[most()]).outcome, Outcome::Met);
    assert_eq!(found("attainment>=0.98", &[most()]).outcome, Outcome::Missed);
    assert_eq!(found("rejected<=0.09", &[most()]).outcome, Outcome::Met);
    assert_eq!(found("rejected<=0.02", &[most()]).outcome, Outcome::Missed);
    assert_eq!(found("failed<=0.02", &[most()]).outcome, Outcome::Met);
}

#[test]
fn goodput_is_the_share_times_the_rate_that_was_offered() {
    // 10/s were offered, 95 % of them good.
    let goodput = found("goodput>=9", &[most()]);
    near(goodput.value, 9.5);
    near(goodput.low, 9.104218518612239);
    assert_eq!(goodput.outcome, Outcome::Met);
    assert_eq!(found("goodput>=9.8", &[most()]).outcome, Outcome::Missed);
}

#[test]
fn how_many_more_requests_would_decide_is_the_least_that_does() {
    // 95 % seen, 93 % asked: Wilson's lower end passes 0.93 at n = 570 (0.92996 at 569), by statsmodels 0.15.0.
    let open = found("attainment>=0.93", &[most()]);
    assert_eq!(open.outcome, Outcome::Open);
    let n = 200 + open.more.unwrap();
    let z = deviations(0.95);
    assert!(wilson(0.95, n as f64, z)[0] >= 0.93 && wilson(0.95, (n - 1) as f64, z)[0] < 0.93, "{n}");
    // A figure that is the target itself is decided by no number of requests.
    assert_eq!(found("attainment>=0.95", &[most()]).more, None);
}

#[test]
fn a_quantile_lies_between_order_statistics_and_what_never_came_is_last() {
    // 1,000 answered after 1 to 1,000 ms. SciPy 1.18.1: binom.ppf([.025, .975], 1000, .99) gives ranks 983 and 997.
    let all = cohort(1000, |_| true);
    let p99 = found("ttft_p99<=998", std::slice::from_ref(&all));
    near(p99.low, 983.0);
    near(p99.high, 997.0);
    near(p99.value, 990.01);
    assert_eq!((p99.outcome, p99.n, p99.counts_as), (Outcome::Met, 1000, 1000.0));
    assert_eq!(found("ttft_p99<=996", std::slice::from_ref(&all)).outcome, Outcome::Open);
    assert_eq!(found("ttft_p99<=982", &[all]).outcome, Outcome::Missed);
    // With 5 % never answered the 99th percentile over all is never, over the answered it is not.
    let some = found("ttft_p99<=900", &[most()]);
    assert_eq!((some.value, some.outcome), (None, Outcome::Missed));
    assert!(some.shown.starts_with("never"), "{}", some.shown);
    assert_eq!(found("completed_ttft_p99<=900", &[most()]).n, 190);
}

#[test]
fn a_quantile_that_n_cannot_bound_is_open_and_says_how_many_it_takes() {
    // The largest of n values lies above the 99th percentile with 97.5 % only from n = 368: 0.99^368 < 0.025.
    let open = found("ttft_p99<=5000", &[cohort(200, |_| true)]);
    assert_eq!((open.outcome, open.high, open.more), (Outcome::Open, None, Some(168)));
    assert_eq!(found("ttft_p99<=5000", &[cohort(368, |_| true)]).outcome, Outcome::Met);
    // Nor is p99 itself printed below n = 100.
    assert_eq!(found("ttft_p99<=5000", &[cohort(99, |_| true)]).value, None);
    assert!(found("ttft_p99<=5000", &[cohort(100, |_| true)]).value.is_some());
}

#[test]
fn what_was_not_measured_is_open_and_has_no_value() {
    let none = found("longest_gap_p50<=100", &[most()]);
    assert_eq!((none.outcome, none.value, none.more), (Outcome::Open, None, None));
    let nobody = found("attainment>=0.5", &[Cohort::default()]);
    assert_eq!((nobody.outcome, nobody.n, nobody.shown.as_str()), (Outcome::Open, 0, "not measured"));
}

#[test]
fn arrivals_that_share_their_fate_count_as_fewer() {
    // The first 64 % good, the rest refused: what a queue that fills once looks like.
    let runs = found("attainment>=0.5", &[cohort(200, |i| i < 128)]);
    assert_eq!((runs.value, runs.outcome), (Some(0.64), Outcome::Open));
    assert!(runs.counts_as < 5.0, "{runs:?}");
    let mixed = found("attainment>=0.5", &[cohort(200, |i| i * 123 % 200 < 128)]);
    assert_eq!((mixed.value, mixed.outcome, mixed.counts_as), (Some(0.64), Outcome::Met, 200.0));
}

#[test]
fn repeats_are_pooled_and_their_spread_widens_the_interval() {
    let even = |share: u32| cohort(200, move |i| i * 123 % 200 < share);
    let alike = found("attainment>=0.9", &[even(190), even(188), even(190)]);
    assert_eq!((alike.n, alike.counts_as, alike.outcome), (600, 600.0, Outcome::Met));
    assert_eq!(alike.repeats, [Some(0.95), Some(0.94), Some(0.95)]);
    let apart = found("attainment>=0.9", &[even(200), even(170), even(198)]);
    assert_eq!(apart.outcome, Outcome::Open, "{apart:?}");
    assert!(apart.counts_as < 100.0, "{apart:?}");
}
