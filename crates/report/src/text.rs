//! The figures of runs as text, one column a run.

use std::fmt::Write;

use crate::fmt;
use crate::grid::grid;
use crate::quantile::Distribution;
use crate::summary::Summary;
use crate::table::{self, Table};
use crate::verdict::finding;

/// The figures of the given runs side by side, and what they mean. Ends without a newline.
#[must_use]
pub fn text(summaries: &[Summary]) -> String {
    let tables = [
        table::arrivals(summaries),
        table::rates(summaries),
        latencies(summaries),
        table::fairness(summaries),
        table::validity(summaries),
    ];
    let mut out = String::new();
    for t in tables.iter().filter(|t| !t.rows.is_empty()) {
        draw(&mut out, t);
        out.push('\n');
    }
    let by_row = [table::tenants(summaries), table::endings(summaries)];
    for t in by_row.iter().filter(|t| !t.rows.is_empty()) {
        draw(&mut out, t);
        out.push('\n');
    }
    for line in table::complaints(summaries) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "! {line}");
    }
    out.push_str(&finding(summaries));
    out
}

/// Each latency in one line: p50 / p95 / p99 and the sample size.
fn latencies(summaries: &[Summary]) -> Table {
    let columns = table::labels(summaries);
    let mut t =
        Table { title: "Latency, ms: p50 / p95 / p99 (n)", corner: "of completed answers", columns, rows: Vec::new() };
    let mut add = |name: &str, of: &dyn Fn(&Summary) -> Distribution| {
        let found: Vec<Distribution> = summaries.iter().map(of).collect();
        if found.iter().any(|d| d.n > 0) {
            t.rows.push((name.to_owned(), found.iter().map(one_cell).collect()));
        }
    };
    for (name, of) in table::METRICS {
        add(name, &|s| of(&s.figures.latencies).clone());
    }
    add("rejections, from plan", &|s| s.figures.rejection.clone());
    add("age of open work, from plan", &|s| s.figures.censored_age.clone());
    t
}

fn one_cell(d: &Distribution) -> String {
    if d.n == 0 {
        return fmt::MISSING.to_owned();
    }
    format!("{} / {} / {} (n={})", fmt::ms(d.p50), fmt::ms(d.p95), fmt::ms(d.p99), d.n)
}

fn draw(out: &mut String, table: &Table) {
    out.push_str(&grid(table.title, &table.columns, &table.rows));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn runs_stand_side_by_side_with_their_sample_sizes() {
        let summaries: Vec<Summary> = fixture::pair().iter().map(Summary::of).collect();
        let text = text(&summaries);
        let line = |name: &str| text.lines().find(|l| l.trim_start().starts_with(name)).unwrap().to_owned();
        assert!(line("Arrivals").contains("direct") && line("Arrivals").contains("gateway"), "{text}");
        assert!(line("good").contains("32 (16.0%)") && line("good").contains("128 (64.0%)"), "{text}");
        assert!(line("TTFT from plan").contains("(n=200)") && line("TTFT from plan").contains("(n=128)"), "{text}");
    }

    #[test]
    fn a_small_sample_prints_no_p95_and_no_p99() {
        let text = text(&[Summary::of(&fixture::mixed())]);
        let ttft = text.lines().find(|l| l.contains("TTFT from plan")).unwrap();
        assert!(ttft.ends_with("250 / – / – (n=4)"), "{ttft}");
    }

    #[test]
    fn scaled_time_is_said_in_the_text() {
        let mut run = fixture::mixed();
        run.manifest.time_scale = 4.0;
        assert!(text(&[Summary::of(&run)]).contains("4x real time"));
    }

    #[test]
    fn the_text_holds_no_control_characters_from_the_data() {
        let mut run = fixture::mixed();
        run.manifest.name = "evil\u{1b}[2J".into();
        run.rows[3].reason = Some("\u{7}\r\n".into());
        assert!(!text(&[Summary::of(&run)]).chars().any(|c| c.is_control() && c != '\n'));
    }
}
