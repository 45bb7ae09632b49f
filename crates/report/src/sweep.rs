//! The document of a sweep: figures over offered rate, one line a policy.

use crate::chart;
use crate::doc::{Doc, Section, Table};
use crate::fmt;

/// The most lines that one picture can keep apart.
pub const MAX_LINES: usize = 12;

/// What a sweep's document shows.
#[derive(Clone, Debug)]
pub struct SweepPage {
    /// The document's title.
    pub title: String,
    /// What was offered to what, in a line.
    pub load: String,
    /// What was found, in a sentence.
    pub answer: String,
    /// The attainment that defines the knee.
    pub target: f64,
    /// The policies.
    pub lines: Vec<SweepLine>,
    /// The names of the table's columns, after that of its rows.
    pub columns: Vec<String>,
    /// The table's rows.
    pub rows: Vec<(String, Vec<String>)>,
}

/// A policy over the rates.
#[derive(Clone, Debug)]
pub struct SweepLine {
    /// The policy's name.
    pub name: String,
    /// In order of rate.
    pub points: Vec<SweepPoint>,
    /// The highest rate up to which the target is reached; `None` if it is at none.
    pub knee: Option<f64>,
}

/// A policy at a rate: mean, smallest and largest over the seeds.
#[derive(Copy, Clone, Debug)]
pub struct SweepPoint {
    /// Requests offered per second.
    pub rate: f64,
    /// Completions per second; `None` if nothing was completed.
    pub throughput: Option<[f64; 3]>,
    /// Good answers per second of the window.
    pub goodput: [f64; 3],
    /// Good answers as a share of what was offered.
    pub attainment: [f64; 3],
    /// Runs that they are made of.
    pub n: u64,
}

/// The document: three pictures and the table. Lines beyond [`MAX_LINES`] are in the table alone.
#[must_use]
pub fn sweep_doc(sweep: &SweepPage) -> Doc {
    let mut table = Table::new("Means over the seeds", "policy").numbers(sweep.columns.iter().cloned());
    for (name, cells) in &sweep.rows {
        table = table.row(name, cells.iter().cloned());
    }
    let mut doc = Doc::new("sweep", fmt::one_line(&sweep.title, 80), &sweep.answer)
        .subject(&sweep.load)
        .badge("simulated: no server was measured");
    let left_out = sweep.lines.len().saturating_sub(MAX_LINES);
    if left_out > 0 {
        doc = doc.warning(format!("{left_out} policies are in the table alone"));
    }
    let pictures = chart::sweep(&sweep.lines, sweep.target, "the smallest to the largest of the seeds");
    doc.section(Section::new("Pictures").pictures(pictures)).section(Section::new("Figures").table(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(lines: usize) -> SweepPage {
        let point = |rate: f64, share: f64| SweepPoint {
            rate,
            throughput: Some([rate.min(9.0); 3]),
            goodput: [rate * share, rate * share - 0.5, rate * share + 0.5],
            attainment: [share, share - 0.05, share],
            n: 5,
        };
        let line = |i: usize| SweepLine {
            name: format!("policy <{i}>"),
            points: vec![point(4.0, 1.0), point(8.0, 0.97), point(16.0, 0.4)],
            knee: (i == 0).then_some(8.0),
        };
        SweepPage {
            title: "A sweep".into(),
            load: "256/64".into(),
            answer: "The knee lies at 8/s.".into(),
            target: 0.95,
            lines: (0..lines).map(line).collect(),
            columns: vec!["goodput /s".into()],
            rows: vec![("policy <0> at 4/s".into(), vec!["4.00".into()])],
        }
    }

    #[test]
    fn every_policy_is_drawn_and_the_knee_marked_where_there_is_one() {
        let html = sweep_doc(&sweep(2)).to_html();
        assert_eq!(html.matches("<figure>").count(), 3);
        assert_eq!(html.matches("class=\"run run1\" d=\"M").count(), 3 * 2, "a line and a swatch in each");
        assert_eq!(html.matches("class=\"ring\"").count(), 3, "one policy has a knee");
        assert!(html.contains("policy &lt;0&gt; (knee 8/s)") && html.contains("policy &lt;1&gt; (no knee)"));
        assert!(html.contains("at least 95%"), "{html}");
    }

    #[test]
    fn the_numbers_of_the_pictures_are_those_of_the_points() {
        let markdown = sweep_doc(&sweep(1)).to_markdown();
        assert!(markdown.contains("97.0% at 8 (knee), 40.0% at 16"), "{markdown}");
        assert!(markdown.contains("| policy &lt;0> (knee 8/s) | knee | 8 | 97.0% | 92.0% | 97.0% | 5 |"), "{markdown}");
    }

    #[test]
    fn more_policies_than_can_be_told_apart_are_said_to_be_left_out() {
        assert!(sweep_doc(&sweep(MAX_LINES + 2)).to_html().contains("2 policies are in the table alone"));
    }
}
