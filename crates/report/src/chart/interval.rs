//! Targets against the intervals that the sample supports.

use maud::{Markup, html};

use super::scale::Scale;
use super::{Key, Picture, at};
use crate::check::{Finding, Metric, Outcome};
use crate::doc::Table;

const LEFT: f64 = 14.0;
const RIGHT: f64 = 626.0;
/// The height of one target's row.
const ROW: f64 = 74.0;

/// One row a target: its interval as a bar, the figure as a dot, the target as an upright line. Shares are drawn from 0
/// to 100 %, everything else from 0 to a little more than what is largest.
pub(crate) fn intervals(findings: &[Finding], confidence: f64) -> Picture {
    let drawn: Vec<&Finding> = findings.iter().filter(|f| f.value.is_some() || f.low.is_some()).collect();
    let body = html! { @for (i, f) in drawn.iter().enumerate() { (row(f, ROW * i as f64)) } };
    let told: Vec<String> = findings
        .iter()
        .map(|f| format!("{}: {}, {} at n={}.", f.target, f.outcome.word(), f.shown, crate::fmt::count(f.n)))
        .collect();
    let percent = crate::fmt::trimmed(confidence * 100.0, 2);
    Picture {
        title: format!("Each target and its {percent}% interval"),
        alt: told.join(" "),
        note: "The bar is what the sample supports, the ring what was measured. A target is met or missed only if the \
               whole bar lies on one side of it."
            .into(),
        legend: vec![
            Key::line("span o-met", "met"),
            Key::line("span o-open", "open"),
            Key::line("span o-missed", "missed"),
            Key::line("bound", "target"),
        ],
        numbers: numbers(findings),
        height: (ROW * drawn.len() as f64).max(1.0),
        body,
    }
}

fn numbers(findings: &[Finding]) -> Table {
    let table = Table::new("", "target").words("says").number("figure and interval").number("n");
    findings.iter().fold(table, |table, f| {
        table.row(f.target.clone(), [f.outcome.word().to_owned(), f.shown.clone(), crate::fmt::count(f.n)])
    })
}

fn row(f: &Finding, top: f64) -> Markup {
    let share = matches!(f.of.metric, Metric::Share(_));
    let largest = [f.value, f.low, f.high, Some(f.limit)].into_iter().flatten().fold(0.0, f64::max);
    let x = Scale::new(if share { 1.0 } else { largest * 1.15 }, LEFT, RIGHT, 5, false);
    let (line, low) = (top + 42.0, x.place(f.low.unwrap_or(0.0)));
    // An end that the sample does not have is drawn at the scale's.
    let high = f.high.map_or(RIGHT, |h| x.place(h));
    let style = match f.outcome {
        Outcome::Met => "span o-met",
        Outcome::Open => "span o-open",
        Outcome::Missed => "span o-missed",
    };
    let bound = x.place(f.limit);
    html! {
        text class="end" x=(at(LEFT)) y=(at(top + 20.0)) { (f.target) }
        text class="tick" x=(at(RIGHT)) y=(at(top + 20.0)) text-anchor="end" { (f.outcome.word()) ", " (f.shown) }
        path class="track" d=(format!("M{} {}H{}", at(LEFT), at(line), at(RIGHT))) {}
        path class=(style) d=(format!("M{} {}H{}", at(low), at(line), at(high.max(low + 0.5)))) {}
        path class="bound" d=(format!("M{} {}V{}", at(bound), at(line - 12.0), at(line + 12.0))) {}
        @if let Some(value) = f.value { circle class="dot" cx=(at(x.place(value))) cy=(at(line)) r="5.5" {} }
    }
}
