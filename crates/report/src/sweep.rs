//! The page of a sweep: figures over offered rate, one line a policy.

use maud::html;

use crate::chart;
use crate::fmt;
use crate::html::{figure, page, tables};
use crate::table::Table;

/// The most lines that one picture can keep apart.
pub const MAX_LINES: usize = 12;

/// What a sweep's page shows.
#[derive(Clone, Debug)]
pub struct SweepPage {
    /// The page's title.
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
}

/// A self-contained page with three pictures and the table. Lines beyond [`MAX_LINES`] are in the table alone.
#[must_use]
pub fn sweep_html(sweep: &SweepPage) -> String {
    let title = fmt::one_line(&sweep.title, 80);
    let table = Table {
        title: "Means over the seeds",
        corner: "policy and rate",
        columns: sweep.columns.clone(),
        rows: sweep.rows.clone(),
    };
    let left_out = sweep.lines.len().saturating_sub(MAX_LINES);
    let body = html! {
        header {
            p.kicker { "ElasticServe sweep" }
            h1 { (title) }
            p.load { (sweep.load) }
            ul.badges {
                li { "simulated: no server was measured" }
                @if left_out > 0 { li.warn { (left_out) " policies are in the table alone" } }
            }
            p.answer { (sweep.answer) }
        }
        section.pictures aria-label="Pictures" {
            @for (i, picture) in chart::sweep(sweep).iter().enumerate() { (figure(&format!("sweep{i}"), picture)) }
        }
        section.tables aria-label="Figures" {
            h2 { "Figures" }
            (tables::draw(&table))
        }
    };
    page(&title, &body)
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
    fn the_page_draws_every_policy_and_marks_the_knee_where_there_is_one() {
        let html = sweep_html(&sweep(2));
        assert_eq!(html.matches("<figure>").count(), 3);
        assert_eq!(html.matches("class=\"run run1\" d=\"M").count(), 3 * 2, "a line and a swatch in each");
        assert_eq!(html.matches("policy &lt;0&gt;: knee at 8/s").count(), 3);
        assert!(html.contains("no knee") && html.contains("at least 95%"), "{html}");
    }

    #[test]
    fn the_page_needs_nothing_from_anywhere_and_escapes_names() {
        let html = sweep_html(&sweep(2));
        assert!(!html.contains("policy <0>"));
        assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("href="));
    }

    #[test]
    fn more_policies_than_can_be_told_apart_are_said_to_be_left_out() {
        assert!(sweep_html(&sweep(MAX_LINES + 2)).contains("2 policies are in the table alone"));
    }
}
