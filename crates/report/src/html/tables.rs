//! The page's tables: figures, manifests and definitions.

use elasticserve_core::ledger::Manifest;
use maud::{Markup, html};

use super::{load, span};
use crate::fmt;
use crate::read::Run;
use crate::summary::Summary;
use crate::table::{self, Table};

/// Every figure with its n.
pub(super) fn figures(summaries: &[Summary]) -> Markup {
    let side_by_side = [table::arrivals(summaries), table::rates(summaries), table::validity(summaries)];
    let fairness = table::fairness(summaries);
    let by_row = [table::distributions(summaries), table::tenants(summaries), table::endings(summaries)];
    html! {
        section.tables aria-label="Figures" {
            h2 { "Figures" }
            div class=(if summaries.len() > 2 { "stack" } else { "columns" }) { @for t in &side_by_side { (draw(t)) } }
            @for t in by_row.iter().chain([&fairness]) { (draw(t)) }
        }
    }
}

pub(crate) fn draw(table: &Table) -> Markup {
    html! {
        @if !table.rows.is_empty() {
            div.scroll {
                table {
                    caption { (table.title) }
                    thead {
                        tr {
                            th scope="col" { (table.corner) }
                            @for column in &table.columns { th scope="col" { (column) } }
                        }
                    }
                    tbody {
                        @for (name, cells) in &table.rows {
                            tr {
                                th scope="row" { (name) }
                                @for cell in cells { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What was run, so that it can be run again and compared.
pub(super) fn manifests(runs: &[&Run], summaries: &[Summary]) -> Markup {
    let columns = table::labels(summaries);
    let told: Vec<Vec<(&'static str, String)>> = runs.iter().map(|r| pinned(&r.manifest)).collect();
    let mut t = Table { title: "Manifest", corner: "of the run", columns, rows: Vec::new() };
    for (place, (name, _)) in told.first().into_iter().flatten().enumerate() {
        t.rows.push(((*name).to_owned(), told.iter().map(|run| run[place].1.clone()).collect()));
    }
    let keys: std::collections::BTreeSet<&String> = runs.iter().flat_map(|r| r.manifest.metadata.keys()).collect();
    for key in keys {
        let cell = |r: &&Run| r.manifest.metadata.get(key).map_or(fmt::MISSING.to_owned(), |v| fmt::one_line(v, 200));
        t.rows.push((fmt::one_line(key, 60), runs.iter().map(cell).collect()));
    }
    html! {
        section.tables.words aria-label="Manifest" {
            h2 { "What was run" }
            (draw(&t))
        }
    }
}

fn pinned(m: &Manifest) -> Vec<(&'static str, String)> {
    let or_missing = |text: &str| if text.is_empty() { fmt::MISSING.to_owned() } else { fmt::one_line(text, 200) };
    let t = &m.timeouts;
    let end =
        |of: &dyn Fn(&elasticserve_core::ledger::RunEnd) -> String| m.end.as_ref().map_or(fmt::MISSING.to_owned(), of);
    vec![
        ("load", load(m)),
        ("plan, SHA-256", or_missing(&m.plan_hash)),
        ("target", or_missing(&m.target.url)),
        ("path", or_missing(&m.target.endpoint)),
        ("model", or_missing(&m.target.model)),
        ("answers", if m.target.streaming { "streamed" } else { "whole" }.to_owned()),
        ("server's version", or_missing(m.target.version.as_deref().unwrap_or_default())),
        ("models listed", or_missing(&m.target.models.join(", "))),
        ("warm-up requests, in no figure", fmt::count(u64::from(m.warmups))),
        ("prompts salted", if m.prompts_salted { "yes: prefix cache cold" } else { "no" }.to_owned()),
        (
            "timeouts",
            format!(
                "connect {}, first token {}, idle {}, total {}, drain {}",
                t.connect, t.ttft, t.idle, t.total, t.drain
            ),
        ),
        ("send lag tolerated at p99", span(m.tolerances.send_lag_p99)),
        ("started", or_missing(m.started.as_deref().unwrap_or_default())),
        ("most in flight", end(&|e| fmt::count(u64::from(e.peak_in_flight)))),
        ("connections opened", end(&|e| fmt::count(u64::from(e.connections)))),
        ("generator's CPU time", end(&|e| e.cpu.map_or(fmt::MISSING.to_owned(), |c| c.to_string()))),
        ("elasticserve", or_missing(&m.tool_version)),
        ("time scale", fmt::trimmed(m.time_scale, 6)),
    ]
}

/// What the words mean, with their formulas.
pub(super) fn definitions() -> Markup {
    html! {
        section.definitions aria-label="Definitions" {
            h2 { "Definitions" }
            dl {
                @for (term, meaning) in DEFINITIONS { div { dt { (term) } dd { (meaning) } } }
            }
        }
    }
}

const DEFINITIONS: [(&str, &str); 17] = [
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
