//! Whether the ledger accounts for the plan, and whether the run says anything about the server.

use std::collections::BTreeMap;

use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Tick;
use elasticserve_core::work::LoadModel;

use crate::account::{Account, Arrival, MAX_EXAMPLES, Offenders, is_in_order};
use crate::fmt::counted;
use crate::quantile::Distribution;

/// What does not add up: empty if planned = sent + unsent and each row says what its state needs.
pub(crate) fn problems(run: &Account) -> Vec<String> {
    let p = &run.problems;
    let checks: [(&Offenders, &str); 6] = [
        (&p.missing, "planned but not in the ledger"),
        (&p.never_due, "in the ledger but never due"),
        (&p.sent_without_time, "counted as sent but without a time of sending"),
        (&p.unsent_with_time, "counted as unsent but with a time of sending"),
        (&p.completed_without_times, "completed but without a time of first content or of the end"),
        (&p.orphans, "retried without the attempt before"),
    ];
    let named = checks.iter().filter(|(found, _)| found.n > 0).map(|(found, what)| describe(found, what));
    let rows = run.len() as u32;
    let turns = (!is_in_order(&run.manifest) && rows != run.due())
        .then(|| format!("{} came due, but the ledger accounts for {rows}", counted(run.due(), "turn")));
    named.chain(turns).collect()
}

/// Whether a worker of a closed load became free within its window and found nothing more to send.
fn ran_out(run: &Account) -> bool {
    let plan = &run.manifest.plan;
    let (LoadModel::Closed { .. }, Some(window)) = (plan.model, plan.window) else { return false };
    let last = run.arrivals().map(|a| a.planned).max();
    let idle = |a: Arrival| a.end.is_some_and(|end| Some(end) >= last && end < Tick::ZERO + window);
    run.len() == plan.count as usize && run.arrivals().any(idle)
}

fn describe(found: &Offenders, what: &str) -> String {
    let named: Vec<String> = found.first.iter().map(u32::to_string).collect();
    let more = if found.n as usize > MAX_EXAMPLES { ", …" } else { "" };
    format!("{} {what}: {}{more}", counted(found.n, "arrival"), named.join(", "))
}

/// Why the run says nothing about the server: empty if it is valid.
pub(crate) fn invalid(
    run: &Account,
    states: &BTreeMap<Terminal, u32>,
    complete: bool,
    send_lag: &Distribution,
) -> Vec<String> {
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
    let count = |state| states.get(&state).copied().unwrap_or(0);
    let capped = count(Terminal::UnsentClientCap);
    let declared = run.manifest.max_in_flight.is_some();
    if capped > 0 && !declared && run.manifest.plan.model.is_open() {
        reasons.push(format!(
            "{} found no free client slot or socket, so the load was not open",
            counted(capped, "arrival")
        ));
    }
    if ran_out(run) {
        reasons.push(format!(
            "the supply of {} was used up before the duration was over, so workers were idle",
            counted(run.manifest.plan.count, "request")
        ));
    }
    // A user whose answer failed goes no further: that is the model's, and no stop.
    let stopped = is_in_order(&run.manifest) || run.manifest.end.is_none_or(|end| end.interrupted);
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
