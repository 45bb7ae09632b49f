use elasticserve_core::health::{Health, Lateness};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Span;
use elasticserve_core::work::LoadModel;

use super::*;
use crate::Run;
use crate::fixture::{self, answered, ended, manifest, plan};

/// `n` measured arrivals of one tenant, 100 ms apart; the given ones were refused, the others good.
fn measured(name: &str, n: u32, refused: impl Fn(u32) -> bool) -> Run {
    let mut manifest = manifest(name, &plan(&[("a", 1.0)]));
    manifest.simulated = false;
    manifest.target.streaming = true;
    (manifest.plan.count, manifest.plan.window) = (n, Some(Span::from_millis(u64::from(n) * 100)));
    let row = |i: u32| {
        let planned = u64::from(i) * 100;
        if refused(i) { ended(i, "a", planned, 12, Terminal::Rejected) } else { answered(i, "a", planned, 200) }
    };
    Run { manifest, rows: (0..n).map(row).collect(), torn: false }
}

/// 1 % refused, never two in a row.
fn good(name: &str) -> Run {
    measured(name, 500, |i| i % 100 == 50)
}

fn check(runs: &[&Run], rule: &Rule) -> Check {
    checked(runs, &Beside::default(), rule).unwrap()
}

fn checked(runs: &[&Run], beside: &Beside, rule: &Rule) -> Result<Check, CheckError> {
    let accounts: Vec<Account> = runs.iter().map(|r| Account::of(r)).collect();
    Check::of("t", &accounts.iter().collect::<Vec<_>>(), beside, rule)
}

fn rule(targets: &[&str]) -> Rule {
    Rule { targets: targets.iter().map(|t| t.parse().unwrap()).collect(), ..Rule::default() }
}

fn part<'a>(check: &'a Check, name: &str) -> &'a Checked {
    check.checks.iter().find(|c| c.name == name).unwrap()
}

fn says(check: &Check, name: &str, mark: Mark, text: &str) {
    let found = part(check, name).evidence.iter().any(|e| e.mark == mark && e.said.contains(text));
    assert!(found, "{name}, {mark:?}, {text}: {:#?}", part(check, name));
}

#[test]
fn a_valid_run_is_accepted_resized_or_retested_by_its_interval() {
    let run = good("one");
    // statsmodels 0.15.0: proportion_confint(495, 500, 0.05, "wilson") = (0.97680, 0.99572)
    for (target, verdict, code) in [
        ("attainment>=0.97", Verdict::Accept, 0),
        ("attainment>=0.98", Verdict::Retest, 3),
        ("attainment>=0.996", Verdict::Resize, 4),
        ("rejected<=0.001", Verdict::Resize, 4),
        ("ttft_p95<=250", Verdict::Accept, 0),
        ("ttft_p95<=150", Verdict::Resize, 4),
    ] {
        let found = check(&[&run], &rule(&[target]));
        assert_eq!((found.verdict, found.exit_code(), found.invalid), (verdict, code, false), "{target}");
    }
}

#[test]
fn one_missed_target_is_enough_to_resize_and_one_open_to_retest() {
    let run = good("one");
    let all = check(&[&run], &rule(&["attainment>=0.97", "attainment>=0.98", "attainment>=0.996"]));
    assert_eq!(all.verdict, Verdict::Resize);
    let open = check(&[&run], &rule(&["attainment>=0.97", "attainment>=0.98"]));
    assert_eq!(open.verdict, Verdict::Retest);
    assert!(open.needed.iter().any(|n| n.contains("about") && n.contains("more requests")), "{:?}", open.needed);
    assert!(check(&[&run], &Rule::default()).default_target);
}

#[test]
fn a_generator_past_a_tolerance_makes_the_run_invalid_whatever_the_figures_say() {
    let mut late = good("late");
    for row in &mut late.rows {
        row.send_started = Some(row.planned + Span::from_millis(50));
    }
    let mut busy = good("busy");
    let health = Health {
        runtime_delay: Lateness { p99: Some(Span::from_millis(80)), ..Lateness::default() },
        ..Health::default()
    };
    busy.manifest.end.as_mut().unwrap().health = Some(health);
    let mut unaccounted = good("unaccounted");
    unaccounted.rows[7].send_started = None;
    let mut killed = good("killed");
    killed.rows.truncate(300);
    let mut running = good("running");
    running.manifest.end = None;
    for (run, why) in [
        (&late, "send lag"),
        (&busy, "timers"),
        (&unaccounted, "without a time of sending"),
        (&killed, "not in the ledger"),
        (&running, "incomplete"),
    ] {
        for target in ["attainment>=0.5", "attainment>=0.999"] {
            let found = check(&[run], &rule(&[target]));
            assert_eq!((found.verdict, found.exit_code()), (Verdict::Retest, 5), "{why}");
            says(&found, "generator", Mark::Fail, why);
        }
    }
    assert_eq!(check(&[&killed], &Rule::default()).findings[0].value, None, "no figure of a run that is not whole");
}

#[test]
fn a_simulated_run_is_accepted_only_on_request_and_says_so() {
    let [_, gateway] = fixture::pair();
    let simulated = rule(&["attainment>=0.3"]);
    let found = check(&[&gateway], &simulated);
    assert_eq!((found.verdict, found.invalid), (Verdict::Retest, false));
    says(&found, "release", Mark::Fail, "Simulated");
    let allowed = Rule { allow_simulated: true, ..simulated };
    assert_eq!(check(&[&gateway], &allowed).verdict, Verdict::Accept);
    says(&check(&[&gateway], &allowed), "load", Mark::Warn, "no server did");
    // What a model misses is no finding about a server either.
    assert_eq!(check(&[&gateway], &rule(&["attainment>=0.99"])).verdict, Verdict::Retest);
}

#[test]
fn runs_that_differ_are_not_pooled_and_their_difference_is_named() {
    let (one, mut other) = (good("one"), good("other"));
    other.manifest.target.model = "another".into();
    other.manifest.prompts_salted = false;
    let found = check(&[&one, &other], &rule(&["attainment>=0.9"]));
    assert_eq!((found.verdict, found.findings[0].value), (Verdict::Retest, None));
    says(&found, "load", Mark::Fail, "they differ in model, salting of prompts");
}

#[test]
fn a_rule_can_ask_for_repeats_requests_and_tenants() {
    let run = good("one");
    let asks = Rule { repeats: 3, min_requests: 2000, ..rule(&["attainment>=0.97"]) };
    let found = check(&[&run], &asks);
    assert_eq!(found.verdict, Verdict::Retest);
    assert_eq!(found.needed, ["2 more runs with other seeds", "1,500 more arrivals"]);
    // What is missed already is missed whatever the rule still asks for.
    assert_eq!(check(&[&run], &Rule { repeats: 3, ..rule(&["attainment>=0.999"]) }).verdict, Verdict::Resize);
    let three = [good("a"), good("b"), good("c")];
    let found = check(
        &three.iter().collect::<Vec<_>>(),
        &Rule { repeats: 3, min_requests: 1500, ..rule(&["attainment>=0.97"]) },
    );
    assert_eq!((found.verdict, found.findings[0].n), (Verdict::Accept, 1500));
    says(&found, "release", Mark::Pass, "99.0% to 99.0%");
}

#[test]
fn targets_of_a_tenant_are_about_its_arrivals_alone() {
    let mut run = fixture::mixed();
    run.manifest.simulated = false;
    run.rows.iter_mut().for_each(|r| r.error = None);
    let found = check(&[&run], &rule(&["attainment[a]>=0.5", "attainment[b]>=0.5", "attainment>=0.5"]));
    let figures: Vec<(u64, Option<f64>)> = found.findings.iter().map(|f| (f.n, f.value)).collect();
    assert_eq!(figures, [(4, Some(0.5)), (4, Some(0.25)), (8, Some(0.375))]);
    let unknown = checked(&[&run], &Beside::default(), &rule(&["attainment[zz]>=0.5"])).unwrap_err().to_string();
    assert!(unknown.contains("'zz'") && unknown.contains("it has a, b"), "{unknown}");
}

#[test]
fn the_baseline_is_compared_with_and_is_no_repeat() {
    let runs = [measured("old", 500, |i| i % 2 == 0), good("new")];
    let both: Vec<&Run> = runs.iter().collect();
    let named = Rule { baseline: Some("old".into()), ..rule(&["attainment>=0.97"]) };
    let found = check(&both, &named);
    assert_eq!((found.verdict, found.runs.len(), found.findings[0].n), (Verdict::Accept, 1, 500));
    says(&found, "release", Mark::Pass, "495 (99.0%) got a good answer with new and 250 (50.0%) with old");
    let apart = checked(
        &[&runs[1]],
        &Beside { baseline: Some(&Account::of(&runs[0])), reader: None },
        &rule(&["attainment>=0.97"]),
    )
    .unwrap();
    says(&apart, "release", Mark::Pass, "250 (50.0%) with old");
    let wrong =
        checked(&both, &Beside::default(), &Rule { baseline: Some("x".into()), ..Rule::default() }).unwrap_err();
    assert!(wrong.to_string().contains("old, new"), "{wrong}");
    let nothing = checked(&[&runs[0]], &Beside::default(), &Rule { baseline: Some("old".into()), ..Rule::default() });
    assert_eq!(nothing.unwrap_err(), CheckError::NoRuns);
}

#[test]
fn a_capped_run_keeps_what_was_not_sent_in_the_denominator() {
    let mut run = measured("capped", 500, |_| false);
    run.manifest.max_in_flight = Some(4);
    for row in run.rows.iter_mut().filter(|r| r.index % 5 == 2) {
        *row = ended(row.index, "a", u64::from(row.index) * 100, 0, Terminal::UnsentClientCap);
    }
    let found = check(&[&run], &rule(&["attainment>=0.95", "ttft_p90<=250"]));
    assert_eq!((found.verdict, found.findings[0].value), (Verdict::Retest, Some(0.8)));
    says(
        &found,
        "load",
        Mark::Fail,
        "attainment ≥ 95% is missed only by 100 arrivals that found none of the client's own slots",
    );
    assert_eq!(found.findings[1].outcome, Outcome::Missed, "an arrival that was never sent had no first token");
    says(&found, "generator", Mark::Warn, "100 arrivals found none of the 4 slots free");
    // What is missed by those that were sent as well is missed by the server.
    let slow = check(&[&run], &rule(&["ttft_p50<=150"]));
    assert_eq!(slow.verdict, Verdict::Resize, "{}", check_text(&slow));
}

#[test]
fn a_closed_load_claims_no_rate_and_counts_what_was_drawn() {
    let mut run = measured("closed", 400, |_| false);
    run.manifest.plan.model = LoadModel::Closed { workers: std::num::NonZeroU32::new(8).unwrap() };
    (run.manifest.plan.count, run.manifest.plan.window) = (500, None);
    run.manifest.end.as_mut().unwrap().drawn = Some(400);
    let found = check(&[&run], &rule(&["attainment>=0.97"]));
    assert_eq!((found.verdict, found.findings[0].n), (Verdict::Accept, 400));
    let figures = &found.runs[0].figures;
    assert_eq!((figures.planned, figures.offered_per_s), (400, None));
    // Without a window, rates divide by the time until the last answer: 39.9 s + 220 ms.
    assert!((found.runs[0].window_s - 40.12).abs() < 1e-9);
    says(&found, "load", Mark::Pass, "Closed load of 8 workers");
    says(&found, "load", Mark::Warn, "not what becomes of users who come at a rate");
}

#[test]
fn workers_without_a_request_to_send_make_a_closed_run_of_a_duration_invalid() {
    let mut run = measured("closed", 400, |_| false);
    run.manifest.plan.model = LoadModel::Closed { workers: std::num::NonZeroU32::new(8).unwrap() };
    run.manifest.end.as_mut().unwrap().drawn = Some(400);
    // The last is drawn at 39.9 s, the next worker is free at 39.92 s.
    for (count, window_ms, idle) in
        [(400, 39_910, false), (400, 39_930, true), (400, 60_000, true), (500, 60_000, false)]
    {
        (run.manifest.plan.count, run.manifest.plan.window) = (count, Some(Span::from_millis(window_ms)));
        let found = crate::Summary::of(&run);
        let said = found.invalid_because.iter().any(|why| why.contains("the supply of 400 requests was used up"));
        assert_eq!((said, found.valid), (idle, !idle), "{count} {window_ms}: {:?}", found.invalid_because);
    }
}

#[test]
fn turns_after_a_failed_answer_are_no_stop_and_turns_that_were_not_due_are_not_missed() {
    let mut run = measured("sessions", 400, |i| i == 7);
    run.manifest.plan.model = LoadModel::Sessions { users: std::num::NonZeroU32::new(100).unwrap(), history: true };
    run.manifest.plan.count = 500;
    run.manifest.end.as_mut().unwrap().drawn = Some(400);
    run.rows[8] = ended(8, "a", 800, 0, Terminal::UnsentAbort);
    // The last user came further in its turns than others.
    run.rows[399].index = 470;
    let found = check(&[&run], &rule(&["attainment>=0.95"]));
    assert_eq!((found.verdict, found.findings[0].n), (Verdict::Accept, 400), "{}", check_text(&found));
    says(&found, "generator", Mark::Warn, "1 turn never sent, as the answer before failed");
    assert_eq!(found.runs[0].figures.offered_per_s, None);
    run.rows.pop();
    let found = check(&[&run], &Rule::default());
    says(&found, "generator", Mark::Fail, "400 turns came due, but the ledger accounts for 399");
    assert_eq!(found.exit_code(), 5);
}

#[test]
fn attempts_are_told_apart_from_arrivals() {
    let mut run = good("retried");
    let mut again = answered(50, "a", 5000, 900);
    (again.attempt, again.send_started) = (1, Some(fixture::ms(5700)));
    run.rows.push(again);
    let found = check(&[&run], &rule(&["attainment>=0.97", "completed_ttft_p50<=250"]));
    let s = &found.runs[0];
    assert_eq!((s.figures.planned, s.attempts, s.retries), (500, 501, 1));
    assert_eq!((s.figures.completed, s.figures.rejected), (496, 4), "an arrival ends as its last attempt");
    assert_eq!(found.verdict, Verdict::Accept, "a retry sent 700 ms after the plan is no late generator");
    says(&found, "load", Mark::Pass, "501 attempts for 500 arrivals: 1 further one");
}

#[test]
fn the_reader_of_streams_is_vouched_for_by_its_corpus() {
    let run = good("one");
    let held = |version, right| {
        let beside = Beside { baseline: None, reader: Some(Reader { version, right, all: 97 }) };
        checked(&[&run], &beside, &rule(&["attainment>=0.97"])).unwrap()
    };
    says(&held("0.1.0", 97), "streaming", Mark::Pass, "all 97 cases");
    says(&held("9.9.9", 97), "streaming", Mark::Warn, "made by version 0.1.0");
    assert_eq!(held("0.1.0", 96).verdict, Verdict::Retest);
}

#[test]
fn what_was_not_streamed_is_said_and_has_no_gaps() {
    let mut run = good("whole");
    run.manifest.target.streaming = false;
    run.rows.iter_mut().for_each(|r| r.gaps.clear());
    let found = check(&[&run], &rule(&["longest_gap_p95<=100"]));
    assert_eq!(found.verdict, Verdict::Retest);
    says(&found, "streaming", Mark::Warn, "not streamed");
}

#[test]
fn text_and_page_say_the_verdict_first_and_the_same_numbers() {
    let run = good("one");
    let found = check(&[&run], &rule(&["attainment>=0.98"]));
    let (text, page) = (check_text(&found), check_doc(&found, &[&Account::of(&run)]).to_html());
    assert!(
        text.starts_with("RETEST: attainment ≥ 98% cannot be told yet: it is 99.0% (97.7% to 99.6%) at n=500."),
        "{text}"
    );
    for told in ["99.0% (97.7% to 99.6%)", "495 (99.0%) good", "Is it enough to decide on?"] {
        assert!(page.contains(told), "{told}");
    }
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    assert_eq!(page.matches("<svg role=\"img\"").count(), 3);
}

#[test]
fn names_from_the_data_are_text_on_the_page_and_cannot_steer_a_terminal() {
    let evil = "<script>alert(1)</script>\u{1b}[2J\"'><svg onload=x>";
    let mut run = good(evil);
    run.manifest.target.url = evil.into();
    run.manifest.plan.tenants[0].name = evil.into();
    run.rows.iter_mut().for_each(|r| r.tenant = evil.into());
    let mut other = run.clone();
    other.manifest.plan_hash = evil.into();
    let mut held = rule(&["attainment>=0.9"]);
    held.targets.push(Target::DEFAULT.of_tenant(evil));
    held.tenant_min_requests.insert(evil.into(), 5000);
    let [run, other] = [Account::of(&run), Account::of(&other)];
    let found = Check::of(evil, &[&run, &other], &Beside { baseline: Some(&other), reader: None }, &held).unwrap();
    let (text, page) = (check_text(&found), check_doc(&found, &[&run, &other]).to_html());
    assert!(!page.contains("<script") && !page.contains("<svg onload") && !page.contains("\"'>"));
    assert!(page.contains("&lt;script&gt;"));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    assert!(page.contains("default-src 'none'") && !page.contains("http:") && !page.contains("https:"));
}
