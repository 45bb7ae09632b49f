//! The document of a policy comparison: fronts of attainment against fairness, and the tables.

use crate::chart;
use crate::doc::{Doc, Section, Table};
use crate::fmt;

/// What a comparison's document shows.
#[derive(Clone, Debug)]
pub struct PolicyPage {
    /// The document's title.
    pub title: String,
    /// What was offered to what, in a line.
    pub load: String,
    /// What was found, in sentences.
    pub answer: String,
    /// The pictures.
    pub fronts: Vec<FrontPicture>,
    /// What the policies cost, a sentence each.
    pub costs: Vec<String>,
    /// The tables: a heading, the names of the columns and the rows.
    pub tables: Vec<PolicyTable>,
}

/// A table of a comparison.
#[derive(Clone, Debug)]
pub struct PolicyTable {
    /// Its heading.
    pub title: String,
    /// The names of the columns, after that of the rows.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<(String, Vec<String>)>,
}

/// Fronts on one workload.
#[derive(Clone, Debug)]
pub struct FrontPicture {
    /// What was offered.
    pub workload: String,
    /// The fronts.
    pub lines: Vec<FrontLine>,
}

/// A line of policies that differ in one number.
#[derive(Clone, Debug)]
pub struct FrontLine {
    /// What they are.
    pub name: String,
    /// In order of that number.
    pub points: Vec<FrontPoint>,
}

/// A policy on a front.
#[derive(Clone, Debug)]
pub struct FrontPoint {
    /// What sets it apart.
    pub name: String,
    /// Jain's index over the tenants' attainments.
    pub jain: f64,
    /// Attainment, from 0 to 1.
    pub attainment: f64,
}

/// The document: a picture for each workload, the costs and the tables.
#[must_use]
pub fn policies_doc(policies: &PolicyPage) -> Doc {
    let figures = policies.tables.iter().fold(Section::new("Figures"), |section, table| {
        let empty = Table::new(&table.title, "policy").numbers(table.columns.iter().cloned());
        section.table(table.rows.iter().fold(empty, |t, (name, cells)| t.row(name, cells.iter().cloned())))
    });
    Doc::new("policies", fmt::one_line(&policies.title, 80), &policies.answer)
        .subject(&policies.load)
        .badge("simulated: no server was measured")
        .section(Section::new("Pictures").pictures(policies.fronts.iter().map(chart::front)))
        .section(Section::new("What it costs").list(policies.costs.iter().cloned()))
        .section(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies() -> PolicyPage {
        let point = |name: &str, jain, attainment| FrontPoint { name: name.into(), jain, attainment };
        let line = |name: &str, gain: f64| FrontLine {
            name: name.into(),
            points: vec![point("cap <8>", 0.93, 0.59 + gain), point("cap <10>", 0.90, 0.62 + gain)],
        };
        PolicyPage {
            title: "Policies".into(),
            load: "five traces".into(),
            answer: "A price dominates.".into(),
            fronts: vec![FrontPicture {
                workload: "five".into(),
                lines: vec![line("caps", 0.0), line("prices", 0.01)],
            }],
            costs: vec!["Long prompts pay.".into()],
            tables: vec![PolicyTable {
                title: "five <traces>".into(),
                columns: vec!["attainment".into()],
                rows: vec![("cap <8>".into(), vec!["59.0%".into()])],
            }],
        }
    }

    #[test]
    fn the_page_draws_every_front_and_says_what_it_costs() {
        let html = policies_doc(&policies()).to_html();
        assert_eq!(html.matches("<figure>").count(), 1);
        assert_eq!(html.matches("class=\"run run1\" d=\"M").count(), 2, "a line and a swatch");
        assert_eq!(html.matches("class=\"run run2\" d=\"M").count(), 2);
        assert!(html.contains("Long prompts pay.") && html.contains("59.0%"));
    }

    #[test]
    fn a_fairer_policy_is_drawn_further_right_and_a_better_one_higher() {
        let html = policies_doc(&policies()).to_html();
        let centre = |of: &str| {
            let mark = &html[html.find(of).unwrap()..];
            let number = |key: &str| {
                let rest = &mark[mark.find(key).unwrap() + key.len()..];
                rest[..rest.find('"').unwrap()].parse::<f64>().unwrap()
            };
            (number("cx=\""), number("cy=\""))
        };
        let (fair, better) = (centre("<title>caps (cap &lt;8&gt;)"), centre("<title>caps (cap &lt;10&gt;)"));
        assert!(fair.0 > better.0 && fair.1 > better.1, "{fair:?} {better:?}");
    }

    #[test]
    fn the_page_needs_nothing_from_anywhere_and_escapes_names() {
        let html = policies_doc(&policies()).to_html();
        assert!(!html.contains("cap <8>") && !html.contains("five <traces>"));
        assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("href="));
    }
}
