use super::*;
use elasticserve_core::ledger::CountSource;

use crate::fixture::{self, ended, mixed, ms};

#[test]
fn attainment_counts_every_planned_arrival_whatever_became_of_it() {
    let s = Summary::of(&mixed());
    let f = &s.figures;
    assert_eq!((f.planned, f.sent, f.unsent, f.completed), (8, 7, 1, 4));
    assert_eq!((f.good, f.late, f.rejected, f.failed), (3, 1, 1, 2));
    assert_eq!(f.attainment, Some(3.0 / 8.0));
    assert_eq!(f.goodput_per_s, Some(3.0 / 4.0));
    assert_eq!(f.offered_per_s, Some(2.0));
    assert_eq!((f.admitted, f.admitted_share, f.completed_of_admitted), (4, Some(0.5), Some(1.0)));
    assert!(s.complete && s.reconciled);
}

#[test]
fn failures_never_enter_the_latencies_of_answers() {
    let mut run = mixed();
    // A stream that broke after its first token: it has a TTFT but gave no answer.
    let mut broken = fixture::answered(5, "b", 2500, 7);
    broken.state = Terminal::Truncated;
    run.rows[5] = broken;
    let s = Summary::of(&run);
    assert_eq!(s.figures.latencies.ttft.n, 4);
    assert_eq!(s.figures.latencies.ttft.p50, Some(250.0));
    assert_eq!(s.figures.rejection.n, 1);
    assert_eq!(s.figures.rejection.max, Some(12.0));
    assert_eq!((s.figures.censored_age.n, s.figures.censored_age.max), (1, Some(90_000.0)));
}

#[test]
fn every_terminal_state_is_counted_and_the_counts_add_up_to_the_plan() {
    let mut run = mixed();
    let window = run.manifest.plan.window.unwrap();
    run.manifest.plan.count = Terminal::ALL.len() as u32;
    run.rows = (0u32..).zip(Terminal::ALL).map(|(i, state)| ended(i, "a", u64::from(i), 5, state)).collect();
    run.rows[0] = fixture::answered(0, "a", 0, 100);
    let s = Summary::of(&run);
    assert!(s.states.values().all(|n| *n == 1) && s.states.len() == Terminal::ALL.len());
    let f = &s.figures;
    assert_eq!(f.planned, f.good + f.late + f.rejected + f.failed + f.unsent);
    assert_eq!((f.sent, f.unsent, f.failed), (16, 2, 14));
    assert_eq!(f.goodput_per_s, Some(1.0 / window.as_secs_f64()));
    assert!(s.reconciled, "{:?}", s.problems);
}

#[test]
fn latencies_count_from_the_plan_and_from_the_send_apart() {
    let mut run = mixed();
    run.rows[0].send_started = Some(ms(40));
    let s = Summary::of(&run);
    let l = &s.figures.latencies;
    // Row 0: planned 0, sent 40, first content 100, end 120; the others are sent when planned.
    assert_eq!((l.ttft.mean, l.ttft_from_send.mean), (Some(525.0), Some(515.0)));
    assert_eq!((l.e2e.mean, l.e2e_from_send.mean), (Some(545.0), Some(535.0)));
    assert_eq!((l.tpot.p50, l.longest_gap.p50), (Some(10.0), Some(10.0)));
    assert_eq!(l.queue, Distribution::default());
    assert_eq!((s.send_lag.n, s.send_lag.max), (7, Some(40.0)));
}

#[test]
fn an_incomplete_run_has_counts_and_no_quantiles() {
    let whole = fixture::simulated("killed", true, &[("default", 1.0)]);
    let mut short = whole.clone();
    short.rows.truncate(150);
    let mut killed = whole.clone();
    killed.manifest.end = None;
    for (run, missing, rows) in [(short, 50, 150), (killed, 0, 200)] {
        let s = Summary::of(&run);
        assert!(!s.complete && !s.valid);
        assert_eq!(s.missing, missing);
        assert_eq!(s.figures.completed + s.figures.rejected, rows);
        assert!(s.figures.latencies.ttft.n > 0 && s.figures.latencies.ttft.p50.is_none());
        assert_eq!(s.figures.latencies.ttft.max, None);
        assert_eq!((s.figures.attainment, s.figures.goodput_per_s, s.completed_per_s), (None, None, None));
        assert_eq!(s.tenants[0].figures.attainment, None);
    }
    assert!(!Summary::of(&Run { rows: Vec::new(), ..whole }).reconciled);
}

#[test]
fn what_does_not_reconcile_is_named() {
    let mut run = mixed();
    run.rows[0].send_started = None;
    run.rows[1].end = None;
    run.rows[7].send_started = Some(ms(1));
    run.rows.remove(4);
    let s = Summary::of(&run);
    assert!(!s.reconciled);
    let all = s.problems.join("\n");
    for part in [
        "1 arrival planned but not in the ledger: 4",
        "without a time of sending: 0",
        "unsent but with a time of sending: 7",
        "completed but without a time of first content or of the end: 1",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
}

#[test]
fn a_retried_arrival_ends_once_as_its_last_attempt_and_counts_from_its_plan() {
    let mut run = mixed();
    let mut again = fixture::answered(3, "b", 1500, 800);
    (again.attempt, again.send_started) = (1, Some(ms(2000)));
    run.rows.push(again);
    let s = Summary::of(&run);
    assert_eq!((s.retries, s.figures.rejected, s.figures.good, s.figures.planned), (1, 0, 4, 8));
    assert_eq!(s.figures.latencies.ttft.max, Some(1500.0));
    assert_eq!(s.send_lag.max, Some(0.0), "a retry is not a late send");
    run.rows.retain(|r| r.index != 3 || r.attempt == 1);
    assert!(Summary::of(&run).problems[0].contains("retried without the attempt before: 3"));
}

#[test]
fn a_generator_past_its_tolerance_makes_the_run_invalid() {
    let mut run = fixture::simulated("late", false, &[("default", 1.0)]);
    assert!(Summary::of(&run).valid);
    for row in run.rows.iter_mut().take(5) {
        row.send_started = Some(row.planned + Span::from_millis(30));
    }
    let s = Summary::of(&run);
    assert!(!s.valid && s.invalid_because[0].contains("p99 of the send lag is 30.0 ms"), "{:?}", s.invalid_because);
    // Too few for a p99: the largest is held to the tolerance.
    let mut small = mixed();
    small.rows[7] = ended(7, "b", 3500, 5, Terminal::Cancelled);
    assert!(Summary::of(&small).valid);
    small.rows[0].send_started = Some(ms(11));
    assert!(Summary::of(&small).invalid_because[0].contains("largest send lag is 11.0 ms"));
}

#[test]
fn unsent_work_makes_an_open_run_invalid() {
    let mut run = mixed();
    assert!(Summary::of(&run).invalid_because[0].contains("1 arrival found no free client slot"));
    run.rows[7].state = Terminal::UnsentAbort;
    assert!(Summary::of(&run).invalid_because[0].contains("stopped with 1 arrival not yet sent"));
}

#[test]
fn tenants_have_figures_of_their_own_and_a_fairness_index() {
    let s = Summary::of(&mixed());
    let [a, b] = s.tenants.as_slice() else { panic!("two tenants") };
    assert_eq!((a.figures.planned, a.figures.attainment), (4, Some(0.5)));
    assert_eq!((b.figures.planned, b.figures.attainment), (4, Some(0.25)));
    assert_eq!(a.slo.ttft_ms, Some(1000.0));
    // (0.5 + 0.25)² / (2 · (0.25 + 0.0625)) = 0.5625 / 0.625
    assert!((s.jain.unwrap() - 0.9).abs() < 1e-12);
    assert_eq!(s.lowest_tenant, Some(LowestTenant { name: "b".into(), attainment: 0.25 }));
}

#[test]
fn a_tenant_without_arrivals_has_no_attainment_and_no_part_in_fairness() {
    let mut run = mixed();
    let slo = run.manifest.plan.tenants[0].slo;
    run.manifest.plan.tenants.push(elasticserve_core::work::PlanTenant::new("idle", 1.0, slo));
    let s = Summary::of(&run);
    assert_eq!(s.tenants[2].figures.attainment, None);
    assert!((s.jain.unwrap() - 0.9).abs() < 1e-12);
    assert_eq!(s.lowest_tenant.unwrap().name, "b");
}

#[test]
fn tokens_say_where_their_count_comes_from_and_unreported_ones_are_absent() {
    let mut run = mixed();
    run.rows[0].output_tokens_from = Some(CountSource::Events);
    (run.rows[1].output_tokens, run.rows[1].output_tokens_from) = (None, None);
    let s = Summary::of(&run);
    assert_eq!(s.output.tokens, Some(9));
    assert_eq!((s.output.from_usage, s.output.from_events, s.output.unknown), (2, 1, 1));
    // The last completion is arrival 2: 1000 + 1500 + 20 ms.
    assert!((s.output.per_s.unwrap() - 9.0 / 2.52).abs() < 1e-12);
    assert!((s.completed_per_s.unwrap() - 4.0 / 2.52).abs() < 1e-12);
    assert_eq!(s.cached, None);
    run.rows[0].cached_tokens = Some(0);
    assert_eq!(Summary::of(&run).cached, Some(CachedTokens { n: 1, hits: 0, tokens: 0, input_tokens: 256 }));
    // A turn with its history is longer than planned.
    (run.rows[0].cached_tokens, run.rows[0].input_tokens) = (Some(640), Some(975));
    assert_eq!(Summary::of(&run).cached, Some(CachedTokens { n: 1, hits: 1, tokens: 640, input_tokens: 975 }));
}

#[test]
fn endings_are_counted_by_what_was_said_and_stay_bounded() {
    let s = Summary::of(&mixed());
    assert!(s.endings.iter().any(|e| e.status == Some(429) && e.detail.as_deref() == Some("queue_full") && e.n == 1));
    let mut run = mixed();
    run.manifest.plan.count = 60;
    run.rows = (0..60)
        .map(|i| {
            let mut row = ended(i, "a", 0, 1, Terminal::StreamError);
            row.error = Some(format!("error {i} {}", "x".repeat(500)));
            row
        })
        .collect();
    let s = Summary::of(&run);
    assert_eq!(s.endings.len(), MAX_ENDINGS);
    assert_eq!(s.endings.iter().map(|e| e.n).sum::<u32>(), 60);
    assert!(s.endings.iter().flat_map(|e| &e.detail).all(|d| d.chars().count() <= MAX_DETAIL));
}

/// The published overload on the engine's model: what the project promises of the pair.
#[test]
fn the_simulated_pair_has_the_figures_that_are_promised() {
    let [direct, gateway] = fixture::pair().map(|run| Summary::of(&run));
    let figures = |s: &Summary| {
        let f = &s.figures;
        (f.planned, f.completed, f.good, f.late, f.rejected, f.failed, f.attainment)
    };
    assert_eq!(figures(&direct), (200, 200, 32, 168, 0, 0, Some(0.16)));
    assert_eq!(figures(&gateway), (200, 128, 128, 0, 72, 0, Some(0.64)));
    assert_eq!((direct.window_s, gateway.figures.goodput_per_s), (12.5, Some(10.24)));
    assert!(direct.valid && gateway.valid && direct.reconciled && gateway.reconciled);
    assert_eq!(
        gateway.endings,
        [Ending { state: Some(Terminal::Rejected), status: Some(429), detail: Some("queue_expired".into()), n: 72 }]
    );
    assert_eq!((gateway.output.tokens, gateway.output.from_usage), (Some(128 * 64), 128));
    assert_eq!(gateway.figures.latencies.queue.n, 128);
}

#[test]
fn the_json_is_flat_with_null_for_what_is_missing() {
    let json = serde_json::to_value(Summary::of(&mixed())).unwrap();
    assert_eq!(json["attainment"], 0.375);
    assert_eq!(json["latencies"]["ttft"]["n"], 4);
    assert_eq!(json["latencies"]["ttft"]["p95"], serde_json::Value::Null);
    assert_eq!(json["states"]["timeout_ttft"], 1);
    assert_eq!(json["cached"], serde_json::Value::Null);
    assert_eq!(json["tenants"][1]["attainment"], 0.25);
}
