//! A check as text: the verdict first, then what it rests on.

use std::fmt::Write;

use super::{Check, Finding};
use crate::fmt;
use crate::foreign::ExportFigures;
use crate::grid::grid;
use crate::quantile::Distribution;
use crate::table::Table;

/// Where lines are broken.
const WIDTH: usize = 100;

/// What was found, for a terminal. Ends without a newline.
#[must_use]
pub fn check_text(check: &Check) -> String {
    let mut out = String::new();
    let verdict = if check.invalid { "RETEST (not valid)".to_owned() } else { check.verdict.word().to_uppercase() };
    wrap(&mut out, &format!("{verdict}: "), &check.sentence);
    if !check.needed.is_empty() {
        out.push('\n');
        for what in &check.needed {
            wrap(&mut out, "  needed: ", what);
        }
    }
    out.push('\n');
    wrap(&mut out, "", &format!("{}: {}", fmt::one_line(&check.title, 80), check.load));
    out.push('\n');
    out.push_str(&targets(check));
    if check.runs.len() > 1 {
        out.push('\n');
        let table = repeats(check);
        out.push_str(&grid(table.title, &table.columns, &table.rows));
    }
    for table in [exports(check), latencies(check)].iter().filter(|t| !t.rows.is_empty()) {
        out.push('\n');
        out.push_str(&grid(table.title, &table.columns, &table.rows));
    }
    for checked in &check.checks {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n{:<10} {:<5} {}\n", checked.name, checked.mark.word(), checked.question);
        for evidence in &checked.evidence {
            wrap(&mut out, &format!("  {} ", evidence.mark.sign()), &evidence.said);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

fn targets(check: &Check) -> String {
    let columns = ["says", "figure and interval", "n", "counts as"].map(str::to_owned).to_vec();
    let rows: Vec<(String, Vec<String>)> = check.findings.iter().map(|f| (f.target.clone(), cells(f))).collect();
    let title = format!("Targets, {}% intervals", fmt::trimmed(check.confidence * 100.0, 2));
    grid(&title, &columns, &rows)
}

/// The cells of a target's row.
pub(crate) fn cells(f: &Finding) -> Vec<String> {
    let counts = fmt::count(f.counts_as.floor() as u64);
    vec![f.outcome.word().to_owned(), f.shown.clone(), fmt::count(f.n), counts]
}

/// The figures of each repeat.
pub(crate) fn repeats(check: &Check) -> Table {
    let columns =
        ["planned", "attainment", "goodput /s", "rejected", "TTFT p50, ms", "p99, ms"].map(str::to_owned).to_vec();
    let rows = crate::table::labels(&check.runs).into_iter().zip(&check.runs).map(|(label, s)| {
        let f = &s.figures;
        let cells = vec![
            fmt::count(u64::from(f.planned)),
            fmt::percent(f.attainment),
            fmt::rate(f.goodput_per_s),
            fmt::count(u64::from(f.rejected)),
            fmt::ms(f.latencies.ttft.p50),
            fmt::ms(f.latencies.ttft.p99),
        ];
        (label, cells)
    });
    Table { title: "Runs", corner: "run", rows: rows.collect(), columns }
}

/// What became of the requests of each export.
pub(crate) fn exports(check: &Check) -> Table {
    let columns = ["declared", "sent", "completed", "rejected", "failed", "cut off", "sends /s", "most in flight"];
    let number = |n: u32| fmt::count(u64::from(n));
    let rows = names(check).into_iter().zip(&check.exports).map(|(label, f)| {
        let declared = f.arrivals.map_or_else(|| fmt::MISSING.to_owned(), |n| format!("{n:.0}"));
        let mut cells = vec![declared, number(f.sent), number(f.completed), number(f.rejected), number(f.failed)];
        cells.extend([number(f.cut), fmt::rate(f.sends.rate), fmt::count(f.sends.peak as u64)]);
        (label, cells)
    });
    Table { title: "Exports", corner: "export", rows: rows.collect(), columns: columns.map(str::to_owned).to_vec() }
}

/// The recomputed latencies of each export.
pub(crate) fn latencies(check: &Check) -> Table {
    type Metric = (&'static str, fn(&ExportFigures) -> &Distribution);
    let metrics: [Metric; 7] = [
        ("TTFT from plan", |f| &f.ttft),
        ("E2E from plan", |f| &f.e2e),
        ("TTFT from send", |f| &f.ttft_from_send),
        ("E2E from send", |f| &f.e2e_from_send),
        ("TPOT", |f| &f.tpot),
        ("longest gap", |f| &f.longest_gap),
        ("send lag", |f| &f.send_lag),
    ];
    let columns = ["n", "p50", "p95", "p99", "mean", "max"].map(str::to_owned).to_vec();
    let labels = names(check);
    let rows =
        metrics.iter().flat_map(|(name, of)| labels.iter().zip(&check.exports).map(move |(l, f)| (name, l, of(f))));
    let several = check.exports.len() > 1;
    let row = |(name, label, d): (&&str, &String, &Distribution)| {
        let cells = std::iter::once(fmt::count(d.n as u64)).chain([d.p50, d.p95, d.p99, d.mean, d.max].map(fmt::ms));
        (if several { format!("{name} · {label}") } else { (*name).to_owned() }, cells.collect())
    };
    let rows = rows.filter(|(_, _, d)| d.n > 0).map(row).collect();
    Table { title: "Latency of answers, ms", corner: "recomputed", columns, rows }
}

fn names(check: &Check) -> Vec<String> {
    fmt::labels(&check.exports.iter().map(|f| f.name.as_str()).collect::<Vec<_>>())
}

/// A text after a lead, broken at spaces, its further lines below its first word.
pub(crate) fn wrap(out: &mut String, lead: &str, text: &str) {
    let indent = lead.chars().count().min(10);
    out.push_str(lead);
    let mut used = lead.chars().count();
    for (i, word) in text.split_whitespace().enumerate() {
        let long = word.chars().count();
        if i > 0 && used + 1 + long > WIDTH {
            let _ = write!(out, "\n{:indent$}", "");
            used = indent;
        } else if i > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += long;
    }
    out.push('\n');
}
