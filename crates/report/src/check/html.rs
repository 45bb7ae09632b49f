//! A check as a page: the verdict first, then what it rests on.

use maud::{Markup, html};

use super::text::{cells, exports, latencies, repeats};
use super::{Check, Checked};
use crate::Run;
use crate::chart::{self, Drawn, Picture};
use crate::fmt;
use crate::foreign::Export;
use crate::html::{figure, page, tables};
use crate::table::{self, Table};

/// A self-contained page, for whoever decides. `runs` are those that [`Check::of`] was given, for the pictures.
#[must_use]
pub fn check_html(check: &Check, runs: &[&Run]) -> String {
    whole(check, &pictures(check, runs))
}

/// The same of exports: `exports` are those that [`Check::of_exports`] was given.
#[must_use]
pub fn exports_html(check: &Check, exports: &[Export]) -> String {
    let pictures: Vec<Picture> = exports.iter().take(MAX_PICTURES).map(|e| chart::offered(&e.offered())).collect();
    let drawn = html! { @for (i, p) in pictures.iter().enumerate() { (figure(&format!("offered{i}"), p)) } };
    whole(check, &drawn)
}

/// The most exports of which the sends are drawn.
const MAX_PICTURES: usize = 6;

fn whole(check: &Check, pictures: &Markup) -> String {
    let title = fmt::one_line(&check.title, 80);
    let body = html! {
        (head(&title, check))
        section.pictures aria-label="Pictures" {
            @if check.findings.iter().any(|f| f.value.is_some() || f.low.is_some()) {
                (figure("targets", &chart::intervals(&check.findings, check.confidence)))
            }
            (pictures)
        }
        section aria-label="Checks" {
            h2 { "Five checks" }
            div.checks { @for checked in &check.checks { (card(checked)) } }
        }
        section.tables aria-label="Figures" {
            h2 { "Figures" }
            (tables::draw(&targets(check)))
            (tables::draw(&repeats(check)))
            (tables::draw(&exports(check)))
            (tables::draw(&latencies(check)))
        }
        (definitions(check))
    };
    page(&title, &body)
}

fn head(title: &str, check: &Check) -> Markup {
    let word = check.verdict.word();
    html! {
        header {
            p.kicker { "ElasticServe check" }
            h1 { (title) }
            p.load { (check.load) }
            ul.badges {
                @if check.invalid { li.warn { "not valid: a finding about the generator" } }
                @if check.default_target { li { "no target was named: the default is taken" } }
                @if check.runs.iter().any(|s| s.simulated) { li { "simulated: no server was measured" } }
                @if let Some(s) = check.runs.iter().find(|s| s.time_scale != 1.0) { li.warn { "scaled time: " (table::scale(s)) } }
                @if check.runs.iter().any(|s| !s.complete) { li.warn { "incomplete: counts only" } }
            }
            p class=(format!("answer verdict v-{word}")) { b { (word) } (check.sentence) }
            @if !check.needed.is_empty() {
                ul.needed { @for what in &check.needed { li { "needed: " (what) } } }
            }
        }
    }
}

/// What became of the arrivals, and when the answers began.
fn pictures(check: &Check, runs: &[&Run]) -> Markup {
    let named = table::labels(&check.runs).into_iter().zip(&check.runs).zip(&check.places);
    let drawn: Vec<Drawn> = named
        .filter(|((_, s), _)| s.complete && s.figures.planned > 0)
        .filter_map(|((label, summary), place)| Some(Drawn { label, run: runs.get(*place)?, summary }))
        .collect();
    html! {
        @if !drawn.is_empty() {
            (figure("outcomes", &chart::outcomes(&drawn)))
            (figure("ecdf", &chart::ecdf(&drawn)))
        }
    }
}

fn card(checked: &Checked) -> Markup {
    html! {
        div class=(format!("check m-{}", checked.mark.word())) {
            h3 { (checked.name) span.mark { (checked.mark.word()) } }
            p { (checked.question) }
            ul {
                @for evidence in &checked.evidence {
                    li class=(format!("m-{}", evidence.mark.word())) {
                        span.sign aria-label=(evidence.mark.word()) { (evidence.mark.sign()) } (evidence.said)
                    }
                }
            }
        }
    }
}

/// The targets with their intervals and how those were made.
fn targets(check: &Check) -> Table {
    let columns = ["says", "figure and interval", "n", "counts as", "interval by"].map(str::to_owned).to_vec();
    let rows = check.findings.iter().map(|f| {
        let mut row = cells(f);
        row.push(f.method.to_owned());
        (f.target.clone(), row)
    });
    Table { title: "Targets", corner: "target", columns, rows: rows.collect() }
}

fn definitions(check: &Check) -> Markup {
    let percent = fmt::trimmed(check.confidence * 100.0, 2);
    let terms: [(&str, String); 7] = [
        ("accept, retest, resize", "accept: every target's whole interval lies on its right side, and no check failed. resize: the run is valid and a target's whole interval lies on its wrong side. retest: everything else".to_owned()),
        ("interval", format!("two-sided, {percent}% confidence")),
        ("interval of a share", "Wilson's score interval (Wilson 1927). Goodput is the attainment times the rate of the plan, and so is its interval".to_owned()),
        ("interval of a quantile", "between two order statistics, whatever the distribution: their ranks are quantiles of the binomial distribution of n and p".to_owned()),
        ("ttft_p99 and its like", "over all planned arrivals; what was never answered in full is later than any limit. With completed_ before it, over answers alone".to_owned()),
        ("counts as", "how many independent requests the sample is worth. Where outcomes in order of arrival are correlated beyond chance (ρ > 1.96/√n), n · (1 − ρ) / (1 + ρ); where repeats differ by more than chance, n divided by Pearson's dispersion; the smaller of both".to_owned()),
        ("more requests", "the least number that would decide, if the figure stays what it is".to_owned()),
    ];
    html! {
        section.definitions aria-label="Definitions" {
            h2 { "Definitions" }
            dl { @for (term, meaning) in &terms { div { dt { (term) } dd { (meaning) } } } }
        }
    }
}
