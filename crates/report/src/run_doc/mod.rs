//! The document of one run, or of several that are compared.

mod manifest;
mod words;

pub(crate) use words::load;

use crate::account::Account;
use crate::chart::{self, Drawn};
use crate::doc::{Block, Card, Doc, Section, Table, Tone};
use crate::fmt;
use crate::summary::Summary;
use crate::table;
use crate::verdict::{finding, tone};

/// The document of the given runs with their figures; the first is the one that the others are compared to.
///
/// Runs that are not whole are in the tables, by their counts, and in no picture.
#[must_use]
pub fn run_doc(title: &str, runs: &[&Account], summaries: &[Summary]) -> Doc {
    let labels = table::labels(summaries);
    let drawn: Vec<Drawn> = labels
        .into_iter()
        .zip(runs)
        .zip(summaries)
        .map(|((label, run), summary)| Drawn { label, run, summary })
        .filter(|d| d.summary.complete && d.summary.figures.planned > 0)
        .collect();
    let pictures = Section::new("Pictures");
    let pictures = if drawn.is_empty() { pictures } else { drawings(pictures, &drawn) };
    head(title, runs, summaries)
        .section(Section::new("Key figures").block(Block::Cards(cards(summaries))))
        .section(pictures)
        .section(figures(summaries))
        .section(Section::new("What was run").table(manifest::table(runs, summaries)))
        .section(Section::new("Definitions").terms(words::DEFINITIONS))
}

/// What was asked, and the answer.
fn head(title: &str, runs: &[&Account], summaries: &[Summary]) -> Doc {
    let mut doc = Doc::new("report", fmt::one_line(title, 80), finding(summaries));
    if let Some((word, tone)) = tone(summaries) {
        doc = doc.verdict(word, tone);
    }
    if let Some(run) = runs.first() {
        doc = doc.subject(load(&run.manifest));
    }
    if summaries.iter().any(|s| s.simulated) {
        doc = doc.badge("simulated: no server was measured");
    }
    if let Some(s) = summaries.iter().find(|s| s.time_scale != 1.0) {
        doc = doc.warning(format!("scaled time: {}; all times on this page are as they ran", table::scale(s)));
    }
    if summaries.iter().any(|s| !s.complete) {
        doc = doc.warning("incomplete: counts only");
    }
    if summaries.iter().any(|s| !s.valid) {
        doc = doc.warning("not valid");
    }
    table::complaints(summaries).into_iter().fold(doc, |doc, line| doc.point(Tone::Warn, line))
}

/// The figures that matter most, a card a run.
fn cards(summaries: &[Summary]) -> Vec<Card> {
    let labels = table::labels(summaries);
    let count = |n: u32| fmt::count(u64::from(n));
    let card = |(label, s): (String, &Summary)| {
        let f = &s.figures;
        let ttft = f.latencies.ttft.p95.map_or_else(|| fmt::MISSING.to_owned(), fmt::duration);
        let offered = f.offered_per_s.map_or_else(String::new, |o| format!("of {} offered", fmt::rate(Some(o))));
        let within = f.rejection.p95.map_or_else(String::new, |p95| format!("95% within {}", fmt::duration(p95)));
        let more = [
            ("goodput", format!("{} /s", fmt::rate(f.goodput_per_s)), offered),
            ("TTFT p95", ttft, format!("n={}", count(f.latencies.ttft.n as u32))),
            ("rejected", count(f.rejected), within),
            ("late", count(f.late), format!("of {}", fmt::counted(f.completed, "answer"))),
        ];
        Card {
            name: label,
            figure: fmt::percent(f.attainment),
            meaning: format!("attainment: {} good of {} planned", count(f.good), count(f.planned)),
            more: more.into_iter().map(|(name, value, beside)| (name.to_owned(), value, beside)).collect(),
        }
    };
    labels.into_iter().zip(summaries).map(card).collect()
}

fn drawings(section: Section, drawn: &[Drawn]) -> Section {
    section
        .pictures([chart::outcomes(drawn), chart::ecdf(drawn)])
        .pictures(chart::latency(drawn))
        .pictures(chart::rates(drawn))
        .pictures(chart::timeline(drawn))
        .picture(chart::sends(drawn))
        .pictures(chart::tenants(drawn))
}

/// Every figure with its n.
fn figures(summaries: &[Summary]) -> Section {
    let beside = [table::arrivals(summaries), table::rates(summaries), table::validity(summaries)];
    let by_row = [
        table::distributions(summaries),
        table::tenants(summaries),
        table::endings(summaries),
        table::fairness(summaries),
    ];
    let section = Section::new("Figures").tables(beside.iter().map(Table::from));
    by_row.iter().map(Table::from).fold(section, Section::table)
}

#[cfg(test)]
mod tests;
