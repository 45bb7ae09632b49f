//! A check as text: the verdict first, then what it rests on.

use std::fmt::Write;

use super::{Check, Finding};
use crate::fmt;
use crate::grid::grid;
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

/// A text after a lead, broken at spaces, its further lines below its first word.
fn wrap(out: &mut String, lead: &str, text: &str) {
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
