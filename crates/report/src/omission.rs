//! A page on coordinated omission: one slow server, three load models.

use maud::html;

use crate::chart;
use crate::fmt;
use crate::html::tables;
use crate::html::{figure, page};
use crate::table::Table;

/// What the page shows.
#[derive(Clone, Debug, PartialEq)]
pub struct OmissionPage {
    /// The page's title.
    pub title: String,
    /// What was done, in a line.
    pub load: String,
    /// What it shows, in sentences.
    pub answer: Vec<String>,
    /// The time in which requests arrive, in seconds.
    pub window_s: f64,
    /// From when to when the server is slow, in seconds.
    pub slow_s: (f64, f64),
    /// The load models.
    pub cases: Vec<OmissionCase>,
    /// The heads of the table's columns.
    pub columns: Vec<String>,
    /// A row a case.
    pub rows: Vec<(String, Vec<String>)>,
}

/// A load model's part.
#[derive(Clone, Debug, PartialEq)]
pub struct OmissionCase {
    /// Its name.
    pub name: String,
    /// The planned times, in seconds; empty if it plans none.
    pub planned_s: Vec<f64>,
    /// The times of the sends, in seconds.
    pub sent_s: Vec<f64>,
    /// What a reader should see.
    pub note: String,
}

/// The page, self-contained.
#[must_use]
pub fn omission_html(omission: &OmissionPage) -> String {
    let title = fmt::one_line(&omission.title, 80);
    let table = Table {
        title: "What each load model counted",
        corner: "load model",
        columns: omission.columns.clone(),
        rows: omission.rows.clone(),
    };
    let body = html! {
        header {
            p.kicker { "ElasticServe experiment" }
            h1 { (title) }
            p.load { (omission.load) }
            @for sentence in &omission.answer { p.answer { (sentence) } }
        }
        section.pictures aria-label="Pictures" {
            @for (i, picture) in chart::arrivals(omission).iter().enumerate() { (figure(&format!("arrivals{i}"), picture)) }
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

    #[test]
    fn every_case_has_its_picture_and_names_are_escaped() {
        let case = |name: &str, planned: &[f64]| OmissionCase {
            name: name.into(),
            planned_s: planned.to_vec(),
            sent_s: vec![0.5, 1.5],
            note: String::new(),
        };
        let html = omission_html(&OmissionPage {
            title: "A <slow> server".into(),
            load: "40/s".into(),
            answer: vec!["It waits.".into()],
            window_s: 4.0,
            slow_s: (1.0, 3.0),
            cases: vec![case("<closed>", &[]), case("open", &[0.5, 1.5, 2.5])],
            columns: vec!["sent".into()],
            rows: vec![("<closed>".into(), vec!["2".into()])],
        });
        assert_eq!(html.matches("<figure>").count(), 2);
        assert_eq!(
            html.matches("class=\"offered\" d=\"M").count(),
            1 + 1,
            "where there is a plan: the line and its swatch"
        );
        assert!(html.contains("It plans no arrivals.") && html.contains("2 of them in the slow time"));
        assert!(!html.contains("<closed>") && !html.contains("<slow>") && !html.contains("<script"));
    }
}
