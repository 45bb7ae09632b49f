//! A document on coordinated omission: one slow server, three load models.

use crate::chart;
use crate::doc::{Doc, Section, Table};
use crate::fmt;

/// What the document shows.
#[derive(Clone, Debug, PartialEq)]
pub struct OmissionPage {
    /// The document's title.
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

/// The document.
#[must_use]
pub fn omission_doc(omission: &OmissionPage) -> Doc {
    let empty = Table::new("What each load model counted", "load model").numbers(omission.columns.iter().cloned());
    let table = omission.rows.iter().fold(empty, |t, (name, cells)| t.row(name, cells.iter().cloned()));
    let mut answer = omission.answer.iter();
    let doc = Doc::new("experiment", fmt::one_line(&omission.title, 80), answer.next().cloned().unwrap_or_default());
    answer
        .fold(doc, Doc::answer)
        .subject(&omission.load)
        .section(Section::new("Pictures").pictures(chart::arrivals(omission)))
        .section(Section::new("Figures").table(table))
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
        let html = omission_doc(&OmissionPage {
            title: "A <slow> server".into(),
            load: "40/s".into(),
            answer: vec!["It waits.".into()],
            window_s: 4.0,
            slow_s: (1.0, 3.0),
            cases: vec![case("<closed>", &[]), case("open", &[0.5, 1.5, 2.5])],
            columns: vec!["sent".into()],
            rows: vec![("<closed>".into(), vec!["2".into()])],
        })
        .to_html();
        assert_eq!(html.matches("<figure>").count(), 2);
        assert_eq!(
            html.matches("class=\"offered\" d=\"M").count(),
            1 + 1,
            "where there is a plan: the line and its swatch"
        );
        assert!(html.contains("It plans no arrivals.") && html.contains("1 of them in the slow time"));
        assert!(!html.contains("<closed>") && !html.contains("<slow>") && !html.contains("<script"));
    }
}
