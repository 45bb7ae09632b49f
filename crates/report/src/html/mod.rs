//! The page: one file without scripts that needs nothing from anywhere.

pub(crate) mod tables;

use elasticserve_core::ledger::Manifest;
use elasticserve_core::time::Span;
use elasticserve_core::work::LoadModel;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::{self, Drawn, Key, Picture};
use crate::fmt;
use crate::read::Run;
use crate::summary::Summary;
use crate::table;
use crate::verdict::finding;

const STYLE: &str = include_str!("style.css");
/// Nothing may be loaded or run; only the styles in the page itself apply.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A self-contained page that compares the given runs; the first is the baseline.
///
/// Runs that are not whole are in the tables, by their counts, and in no picture.
#[must_use]
pub fn html(title: &str, runs: &[&Run]) -> String {
    let summaries: Vec<Summary> = runs.iter().map(|run| Summary::of(run)).collect();
    let labels = table::labels(&summaries);
    let drawn: Vec<Drawn> = labels
        .into_iter()
        .zip(runs)
        .zip(&summaries)
        .map(|((label, run), summary)| Drawn { label, run, summary })
        .filter(|d| d.summary.complete && d.summary.figures.planned > 0)
        .collect();
    let title = fmt::one_line(title, 80);
    let body = html! {
        (head(&title, runs, &summaries))
        (tiles(&summaries))
        @if !drawn.is_empty() { (pictures(&drawn)) }
        (tables::figures(&summaries))
        (tables::manifests(runs, &summaries))
        (tables::definitions())
    };
    page(&title, &body)
}

/// A whole page around a body.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(concat!("elasticserve ", env!("CARGO_PKG_VERSION")));
                title { (title) " · ElasticServe report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (chart::patterns())
                main { (body) }
            }
        }
    }
    .into_string()
}

/// What was asked, and the answer.
fn head(title: &str, runs: &[&Run], summaries: &[Summary]) -> Markup {
    let complaints = table::complaints(summaries);
    html! {
        header {
            p.kicker { "ElasticServe report" }
            h1 { (title) }
            @if let Some(run) = runs.first() { p.load { (load(&run.manifest)) } }
            ul.badges {
                @if summaries.iter().any(|s| s.simulated) { li { "simulated: no server was measured" } }
                @if let Some(s) = summaries.iter().find(|s| s.time_scale != 1.0) {
                    li.warn { "scaled time: " (table::scale(s)) "; all times on this page are as they ran" }
                }
                @if summaries.iter().any(|s| !s.complete) { li.warn { "incomplete: counts only" } }
                @if summaries.iter().any(|s| !s.valid) { li.warn { "not valid" } }
            }
            p.answer { (finding(summaries)) }
            @if !complaints.is_empty() {
                ul.complaints { @for line in complaints { li { (line) } } }
            }
        }
    }
}

/// The figures that matter most, a card a run.
fn tiles(summaries: &[Summary]) -> Markup {
    let labels = table::labels(summaries);
    html! {
        section.tiles aria-label="Key figures" {
            @for (label, s) in labels.iter().zip(summaries) {
                @let f = &s.figures;
                div.tile {
                    h2 { (label) }
                    p.big { (fmt::percent(f.attainment)) }
                    p { "attainment: " (fmt::count(u64::from(f.good))) " good of " (fmt::count(u64::from(f.planned))) " planned" }
                    dl {
                        div { dt { "goodput" } dd { (fmt::rate(f.goodput_per_s)) span.unit { " /s of " (fmt::rate(f.offered_per_s)) " offered" } } }
                        div { dt { "TTFT p95" } dd { (ms(f.latencies.ttft.p95)) span.unit { " n=" (f.latencies.ttft.n) } } }
                        div { dt { "rejected" } dd { (fmt::count(u64::from(f.rejected))) span.unit { (rejected_within(f.rejection.p95)) } } }
                        div { dt { "late" } dd { (fmt::count(u64::from(f.late))) span.unit { " of " (fmt::counted(f.completed, "answer")) } } }
                    }
                }
            }
        }
    }
}

fn rejected_within(p95: Option<f64>) -> String {
    p95.map_or_else(String::new, |p95| format!(" 95% within {}", fmt::duration(p95)))
}

fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| fmt::MISSING.to_owned(), fmt::duration)
}

fn pictures(drawn: &[Drawn]) -> Markup {
    html! {
        section.pictures aria-label="Pictures" {
            (figure("outcomes", &chart::outcomes(drawn)))
            (figure("ecdf", &chart::ecdf(drawn)))
            @for (i, p) in chart::rates(drawn).iter().enumerate() { (figure(&format!("rates{i}"), p)) }
            @for (i, p) in chart::timeline(drawn).iter().enumerate() { (figure(&format!("timeline{i}"), p)) }
        }
    }
}

pub(crate) fn figure(id: &str, picture: &Picture) -> Markup {
    html! {
        figure {
            figcaption { (picture.title) }
            ul.legend {
                @for key in &picture.legend {
                    li {
                        (chart::swatch(key))
                        @match key {
                            Key::Class(class) => { b { (class.name()) } span.meaning { " " (class.meaning()) } },
                            Key::Run(_, text) | Key::Mark(_, text) | Key::Line(_, text) => (text),
                        }
                    }
                }
            }
            (picture.svg(id))
            p.note { (picture.note) }
        }
    }
}

/// What was offered, in one line.
pub(crate) fn load(manifest: &Manifest) -> String {
    let plan = &manifest.plan;
    let process = fmt::one_line(&plan.process.to_string(), 120);
    let limits: Vec<String> = plan.tenants.iter().map(|t| table::limits(&t.slo.into())).collect();
    let limits = match limits.as_slice() {
        [first, rest @ ..] if rest.iter().all(|l| l == first) => format!("limits {first}"),
        _ => format!("{} tenants with limits of their own", limits.len()),
    };
    format!(
        "{}; seed {}, {}; {limits}.",
        offered(manifest, &process),
        plan.seed,
        plan.window.map_or_else(|| "no fixed window".to_owned(), |w| format!("window {}", span(w))),
    )
}

/// The load model with what it claims.
fn offered(manifest: &Manifest, process: &str) -> String {
    let count = fmt::count(u64::from(manifest.plan.count));
    let cap = manifest.max_in_flight.map_or_else(String::new, |k| {
        format!(", at most {} in flight and the rest not sent", fmt::count(u64::from(k)))
    });
    match manifest.plan.model {
        LoadModel::Open => format!("{count} planned arrivals, {process}, open load{cap}"),
        LoadModel::Closed { workers } => format!(
            "Closed load of {}, up to {count} requests: each is sent when the last one has ended, no arrival rate is claimed{cap}",
            fmt::counted(workers.get(), "worker")
        ),
        LoadModel::Sessions { users, history } => format!(
            "Sessions of {}, up to {count} turns, {process}: later turns follow the answers{}{cap}",
            fmt::counted(users.get(), "user"),
            if history { " and carry them" } else { "" }
        ),
    }
}

fn span(span: Span) -> String {
    fmt::duration(span.as_millis_f64())
}

#[cfg(test)]
mod tests;
