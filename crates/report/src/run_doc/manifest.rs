//! What was run, so that it can be run again and compared.

use std::collections::BTreeSet;

use elasticserve_core::ledger::{Manifest, RunEnd};

use super::words::{load, span};
use crate::account::Account;
use crate::doc::Table;
use crate::fmt;
use crate::summary::Summary;
use crate::table::labels;

/// The manifests side by side, free notes last.
pub(super) fn table(runs: &[&Account], summaries: &[Summary]) -> Table {
    let empty = labels(summaries).into_iter().fold(Table::new("Manifest", "of the run"), Table::words);
    let told: Vec<Vec<(&'static str, String)>> = runs.iter().map(|r| pinned(&r.manifest)).collect();
    let names = told.first().into_iter().flatten().enumerate();
    let table = names.fold(empty, |t, (place, (name, _))| t.row(*name, told.iter().map(|run| run[place].1.clone())));
    let keys: BTreeSet<&String> = runs.iter().flat_map(|r| r.manifest.metadata.keys()).collect();
    keys.into_iter().fold(table, |table, key| {
        let cell =
            |r: &&Account| r.manifest.metadata.get(key).map_or(fmt::MISSING.to_owned(), |v| fmt::one_line(v, 200));
        table.row(fmt::one_line(key, 60), runs.iter().map(cell))
    })
}

fn pinned(m: &Manifest) -> Vec<(&'static str, String)> {
    let or_missing = |text: &str| if text.is_empty() { fmt::MISSING.to_owned() } else { fmt::one_line(text, 200) };
    let t = &m.timeouts;
    let end = |of: &dyn Fn(&RunEnd) -> String| m.end.as_ref().map_or(fmt::MISSING.to_owned(), of);
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
