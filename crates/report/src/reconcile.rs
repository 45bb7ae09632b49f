//! Whether the ledger accounts for the plan, and whether the run says anything about the server.

use std::collections::BTreeSet;

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Tick;
use elasticserve_core::work::LoadModel;

use crate::Run;
use crate::fmt::counted;
use crate::quantile::Distribution;

/// The most examples that a message names.
const MAX_EXAMPLES: usize = 5;

/// What does not add up: empty if planned = sent + unsent and each row says what its state needs.
pub(crate) fn problems(run: &Run, outcomes: &[&Row]) -> Vec<String> {
    let missing = missing(run, outcomes);
    let attempts: BTreeSet<(u32, u32)> = run.rows.iter().map(|r| (r.index, r.attempt)).collect();
    let every = run.rows.iter();
    let of = |wrong: fn(&Row) -> bool| every.clone().filter(|r| wrong(r)).map(|r| r.index).collect();
    let orphans = every.clone().filter(|r| r.attempt > 0 && !attempts.contains(&(r.index, r.attempt - 1)));
    let early = every.clone().filter(|r| in_order(run) && r.index >= run.due()).map(|r| r.index).collect();
    let checks: [(Vec<u32>, &str); 6] = [
        (missing, "planned but not in the ledger"),
        (early, "in the ledger but never due"),
        (of(|r| r.state.was_sent() && r.send_started.is_none()), "counted as sent but without a time of sending"),
        (of(|r| !r.state.was_sent() && r.send_started.is_some()), "counted as unsent but with a time of sending"),
        (
            of(|r| r.state == Terminal::Completed && (r.first_content.is_none() || r.end.is_none())),
            "completed but without a time of first content or of the end",
        ),
        (orphans.map(|r| r.index).collect(), "retried without the attempt before"),
    ];
    let named = checks.iter().filter(|(found, _)| !found.is_empty()).map(|(found, what)| describe(found, what));
    let rows = outcomes.len() as u32;
    let turns = (!in_order(run) && rows != run.due())
        .then(|| format!("{} came due, but the ledger accounts for {rows}", counted(run.due(), "turn")));
    named.chain(turns).collect()
}

/// Whether what came due is the first of the plan. Of sessions that ended with their window it is not: each user got as
/// far as the answers let it.
const fn in_order(run: &Run) -> bool {
    !matches!(run.manifest.plan.model, LoadModel::Sessions { .. })
}

/// Whether a worker of a closed load became free within its window and found nothing more to send.
fn ran_out(run: &Run, outcomes: &[&Row]) -> bool {
    let plan = &run.manifest.plan;
    let (LoadModel::Closed { .. }, Some(window)) = (plan.model, plan.window) else { return false };
    let last = outcomes.iter().map(|r| r.planned).max();
    let idle = |r: &&Row| r.end.is_some_and(|end| Some(end) >= last && end < Tick::ZERO + window);
    outcomes.len() == plan.count as usize && outcomes.iter().any(idle)
}

/// The planned arrivals that have no row, where it is known which came due.
fn missing(run: &Run, outcomes: &[&Row]) -> Vec<u32> {
    if !in_order(run) {
        return Vec::new();
    }
    let present: BTreeSet<u32> = outcomes.iter().map(|r| r.index).collect();
    (0..run.due()).filter(|i| !present.contains(i)).collect()
}

fn describe(found: &[u32], what: &str) -> String {
    let named: Vec<String> = found.iter().take(MAX_EXAMPLES).map(u32::to_string).collect();
    let more = if found.len() > MAX_EXAMPLES { ", …" } else { "" };
    format!("{} {what}: {}{more}", counted(found.len() as u32, "arrival"), named.join(", "))
}

/// Why the run says nothing about the server: empty if it is valid.
pub(crate) fn invalid(run: &Run, outcomes: &[&Row], complete: bool, send_lag: &Distribution) -> Vec<String> {
    let mut reasons = Vec::new();
    if !complete {
        reasons.push("the run is incomplete".to_owned());
    }
    let tolerance = run.manifest.tolerances.send_lag_p99.as_millis_f64();
    // A sample too small for its p99 is held to the tolerance by its largest value.
    let (lag, which) = send_lag.p99.map_or((send_lag.max, "largest send lag"), |p| (Some(p), "p99 of the send lag"));
    if let Some(lag) = lag.filter(|l| *l > tolerance) {
        reasons.push(format!("the {which} is {lag:.1} ms, past the declared {tolerance} ms: the generator was late"));
    }
    let count = |state| outcomes.iter().filter(|r| r.state == state).count() as u32;
    let capped = count(Terminal::UnsentClientCap);
    let declared = run.manifest.max_in_flight.is_some();
    if capped > 0 && !declared && run.manifest.plan.model.is_open() {
        reasons.push(format!(
            "{} found no free client slot or socket, so the load was not open",
            counted(capped, "arrival")
        ));
    }
    if ran_out(run, outcomes) {
        reasons.push(format!(
            "the supply of {} was used up before the duration was over, so workers were idle",
            counted(run.manifest.plan.count, "request")
        ));
    }
    // A user whose answer failed goes no further: that is the model's, and no stop.
    let stopped = in_order(run) || run.manifest.end.is_none_or(|end| end.interrupted);
    let aborted = count(Terminal::UnsentAbort);
    if stopped && aborted > 0 {
        reasons.push(format!("the run was stopped with {} not yet sent", counted(aborted, "arrival")));
    }
    if let Some(health) = run.manifest.end.and_then(|end| end.health) {
        reasons.extend(health.violations(&run.manifest.tolerances, run.manifest.ceiling.as_ref()));
    }
    let broken = count(Terminal::ProtocolError);
    if f64::from(broken) > f64::from(run.due()) * run.manifest.tolerances.protocol_errors {
        reasons.push(format!(
            "{} had an answer that broke the protocol, past the declared {:.0} %: client and server do not \
             understand each other",
            counted(broken, "arrival"),
            run.manifest.tolerances.protocol_errors * 100.0
        ));
    }
    reasons
}
