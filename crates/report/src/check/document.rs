//! A check as a document: the verdict first, then what it rests on.

use super::text::{cells, exports, latencies, repeats};
use super::{Check, Checked, Mark, Verdict};
use crate::account::Account;
use crate::chart::{self, Drawn};
use crate::doc::{Block, Doc, Section, Table, Tone};
use crate::fmt;
use crate::foreign::Export;
use crate::table;

/// The document of a check, for whoever decides. `runs` are those that [`Check::of`] was given, for the pictures.
#[must_use]
pub fn check_doc(check: &Check, runs: &[&Account]) -> Doc {
    whole(check, |section| pictures(section, check, runs))
}

/// The same of exports: `exports` are those that [`Check::of_exports`] was given.
#[must_use]
pub fn exports_doc(check: &Check, exports: &[Export]) -> Doc {
    let sends = || exports.iter().take(MAX_PICTURES).map(|e| chart::offered(&e.offered()));
    whole(check, |section| section.pictures(sends()))
}

/// The most exports of which the sends are drawn.
const MAX_PICTURES: usize = 6;

fn whole(check: &Check, drawn: impl FnOnce(Section) -> Section) -> Doc {
    let targets_drawn = check.findings.iter().any(|f| f.value.is_some() || f.low.is_some());
    let targets = targets_drawn.then(|| chart::intervals(&check.findings, check.confidence));
    let figures = [repeats(check), exports(check), latencies(check)];
    head(check)
        .section(drawn(Section::new("Pictures").pictures(targets)))
        .section(check.checks.iter().fold(Section::new("Five checks"), evidence))
        .section(
            figures.iter().map(Table::from).fold(Section::new("Figures").table(targets_table(check)), Section::table),
        )
        .section(Section::new("Definitions").terms(definitions(check)))
}

fn head(check: &Check) -> Doc {
    let tone = match check.verdict {
        Verdict::Accept => Tone::Good,
        Verdict::Retest => Tone::Warn,
        Verdict::Resize => Tone::Bad,
    };
    let mut doc = Doc::new("check", fmt::one_line(&check.title, 80), &check.sentence)
        .verdict(check.verdict.word(), tone)
        .subject(&check.load);
    if check.invalid {
        doc = doc.warning("not valid: a finding about the generator");
    }
    if check.default_target {
        doc = doc.badge("no target was named: the default is taken");
    }
    if check.runs.iter().any(|s| s.simulated) {
        doc = doc.badge("simulated: no server was measured");
    }
    if let Some(s) = check.runs.iter().find(|s| s.time_scale != 1.0) {
        doc = doc.warning(format!("scaled time: {}", table::scale(s)));
    }
    if check.runs.iter().any(|s| !s.complete) {
        doc = doc.warning("incomplete: counts only");
    }
    check.needed.iter().fold(doc, |doc, what| doc.point(Tone::Neutral, format!("needed: {what}")))
}

/// What became of the arrivals, and when the answers began.
fn pictures(section: Section, check: &Check, runs: &[&Account]) -> Section {
    let named = table::labels(&check.runs).into_iter().zip(&check.runs).zip(&check.places);
    let drawn: Vec<Drawn> = named
        .filter(|((_, s), _)| s.complete && s.figures.planned > 0)
        .filter_map(|((label, summary), place)| Some(Drawn { label, run: runs.get(*place)?, summary }))
        .collect();
    if drawn.is_empty() {
        return section;
    }
    section.pictures([chart::outcomes(&drawn), chart::ecdf(&drawn)])
}

/// A check: what speaks against it in the open, what speaks for it folded away.
fn evidence(section: Section, checked: &Checked) -> Section {
    let of = |pass: bool| {
        let some = checked.evidence.iter().filter(move |e| (e.mark == Mark::Pass) == pass);
        Block::List(some.map(|e| (tone(e.mark), e.said.clone())).collect())
    };
    let passed = checked.evidence.iter().filter(|e| e.mark == Mark::Pass).count();
    let facts = match passed {
        1 => "1 fact that speaks for it".to_owned(),
        n => format!("{n} facts that speak for it"),
    };
    section
        .block(Block::Heading(tone(checked.mark), format!("{}: {}", capital(checked.name), checked.mark.word())))
        .paragraph(checked.question)
        .block(of(false))
        .details(facts, [of(true)])
}

fn capital(text: &str) -> String {
    super::own::capital(text)
}

const fn tone(mark: Mark) -> Tone {
    match mark {
        Mark::Pass => Tone::Good,
        Mark::Warn => Tone::Warn,
        Mark::Fail => Tone::Bad,
    }
}

/// The targets with their intervals and how those were made.
fn targets_table(check: &Check) -> Table {
    let empty = Table::new("Targets", "target").words("says").numbers(["figure and interval", "n", "counts as"]);
    check.findings.iter().fold(empty.words("interval by"), |table, f| {
        let mut row = cells(f);
        row.push(f.method.to_owned());
        table.row(f.target.clone(), row)
    })
}

fn definitions(check: &Check) -> [(&'static str, String); 7] {
    let percent = fmt::trimmed(check.confidence * 100.0, 2);
    [
        ("accept, retest, resize", "accept: every target's whole interval lies on its right side, and no check failed. resize: the run is valid and a target's whole interval lies on its wrong side. retest: everything else".to_owned()),
        ("interval", format!("two-sided, {percent}% confidence")),
        ("interval of a share", "Wilson's score interval (Wilson 1927). Goodput is the attainment times the rate of the plan, and so is its interval".to_owned()),
        ("interval of a quantile", "between two order statistics, whatever the distribution: their ranks are quantiles of the binomial distribution of n and p".to_owned()),
        ("ttft_p99 and its like", "over all planned arrivals; what was never answered in full is later than any limit. With completed_ before it, over answers alone".to_owned()),
        ("counts as", "how many independent requests the sample is worth. Where outcomes in order of arrival are correlated beyond chance (ρ > 1.96/√n), n · (1 − ρ) / (1 + ρ); where repeats differ by more than chance, n divided by Pearson's dispersion; the smaller of both".to_owned()),
        ("more requests", "the least number that would decide, if the figure stays what it is".to_owned()),
    ]
}
