//! What was run, in words, and what the words mean.

use elasticserve_core::ledger::Manifest;
use elasticserve_core::time::Span;
use elasticserve_core::work::LoadModel;

use crate::fmt;
use crate::table;

/// What was offered, in one line.
pub(crate) fn load(manifest: &Manifest) -> String {
    let plan = &manifest.plan;
    let process = fmt::one_line(&plan.process.to_string(), 120);
    let limits: Vec<String> = plan.tenants.iter().map(|t| table::limits(&t.slo.into())).collect();
    let limits = match limits.as_slice() {
        [first, rest @ ..] if rest.iter().all(|l| l == first) => format!("limits {first}"),
        _ => format!("{} tenants with limits of their own", limits.len()),
    };
    format!(
        "{}; seed {}, {}; {limits}.",
        offered(manifest, &process),
        plan.seed,
        plan.window.map_or_else(|| "no fixed window".to_owned(), |w| format!("window {}", span(w))),
    )
}

/// The load model with what it claims.
fn offered(manifest: &Manifest, process: &str) -> String {
    let count = fmt::count(u64::from(manifest.plan.count));
    let cap = manifest.max_in_flight.map_or_else(String::new, |k| {
        format!(", at most {} in flight and the rest not sent", fmt::count(u64::from(k)))
    });
    match manifest.plan.model {
        LoadModel::Open => format!("{count} planned arrivals, {process}, open load{cap}"),
        LoadModel::Closed { workers } => format!(
            "Closed load of {}, up to {count} requests: each is sent when the last one has ended, no arrival rate is claimed{cap}",
            fmt::counted(workers.get(), "worker")
        ),
        LoadModel::Sessions { users, history } => format!(
            "Sessions of {}, up to {count} turns, {process}: later turns follow the answers{}{cap}",
            fmt::counted(users.get(), "user"),
            if history { " and carry them" } else { "" }
        ),
    }
}

pub(super) fn span(span: Span) -> String {
    fmt::duration(span.as_millis_f64())
}

/// The terms of a report.
pub(super) const DEFINITIONS: [(&str, &str); 17] = [
    (
        "from the plan",
        "counted from the time the request was to be sent, so that a late or blocked sender cannot hide waiting; limits are held against this",
    ),
    ("from the send", "counted from the time the generator began to send, as most tools do"),
    ("TTFT", "time to first token: first usable content − planned arrival"),
    (
        "TPOT",
        "time per output token after the first: (last content − first content) / (output tokens − 1), a mean over one answer",
    ),
    ("E2E", "end to end: end of the answer − planned arrival"),
    ("longest gap", "the longest time between two content events of an answer; an event may hold several tokens"),
    ("completed", "a whole answer with content, a proper end and the asked length"),
    ("good", "completed, and within every limit of its tenant"),
    ("late", "completed − good"),
    (
        "admitted",
        "the head of the answer said success; of a request that ended before any head it is not known and it is not counted",
    ),
    ("rejected", "turned away with 429 or 503; the latency of rejections has a distribution of its own"),
    (
        "failed",
        "sent, and neither completed nor rejected: errors, timeouts, broken streams, cancelled, still open at the end. Never in a latency distribution, always in the denominators",
    ),
    ("attainment", "good / planned"),
    ("goodput", "good answers of the arrivals in the window / the window; completions after the window count, if good"),
    ("completed per s", "completed / time of the last completion: the usual throughput, which late answers raise"),
    (
        "quantiles",
        "linear interpolation between order statistics (type 7); p is given where n · (1 − p) ≥ 1: p50 from n = 2, p95 from 20, p99 from 100. A dash is a figure that does not exist",
    ),
    ("Jain's index", "(Σx)² / (n · Σx²) over the tenants' attainment: 1 is equal, 1/n is all to one"),
];
