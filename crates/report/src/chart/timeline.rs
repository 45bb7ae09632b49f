//! Every request as a line: when it came, how long it waited, how long it was answered.

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Tick;
use maud::{Markup, html};

use super::axis::{Plot, horizontal};
use super::ecdf::scaled;
use super::scale::Scale;
use super::{Drawn, Key, Picture, at};
use crate::class::Class;
use crate::fmt;

const TOP: f64 = 34.0;
const BOTTOM: f64 = 356.0;
const PLOT: Plot = Plot { left: 20.0, right: 622.0, top: TOP, bottom: BOTTOM };
const HEIGHT: f64 = 406.0;
/// The most requests that are drawn; of more, every k-th.
const MAX_LINES: usize = 250;

/// One picture a run, all to the same scale of time.
pub(crate) fn timeline(runs: &[Drawn]) -> Vec<Picture> {
    let x = Scale::new(last_answer(runs), PLOT.left, PLOT.right, 8, true);
    runs.iter().map(|drawn| picture(drawn, &x, scaled(runs))).collect()
}

/// When the last answer or rejection ended, or the window if that is later, in seconds. What hangs on until a
/// timeout does not stretch the picture.
fn last_answer(runs: &[Drawn]) -> f64 {
    let answered = |r: &&Row| matches!(r.state, Terminal::Completed | Terminal::Rejected);
    let ends = runs.iter().flat_map(|d| &d.run.rows).filter(answered).filter_map(|r| r.end).map(seconds);
    ends.chain(runs.iter().map(|d| d.summary.window_s)).fold(0.0, f64::max)
}

fn picture(drawn: &Drawn, x: &Scale, scaled: &str) -> Picture {
    let outcomes = drawn.run.outcomes();
    let every = outcomes.len().div_ceil(MAX_LINES).max(1);
    let shown: Vec<&Row> = outcomes.iter().copied().step_by(every).collect();
    let height = (BOTTOM - TOP) / shown.len().max(1) as f64;
    let window = x.place(drawn.summary.window_s);
    let body = html! {
        text class="label" x="4" y="18" { "requests in order of arrival" }
        path class="window" d=(format!("M{} {}V{}", at(window), at(TOP - 4.0), at(BOTTOM))) {}
        @for (i, row) in shown.iter().enumerate() {
            (line(row, Class::of(row, &drawn.run.slo(row)), x, TOP + i as f64 * height, height))
        }
        (horizontal(PLOT, x, &format!("time since the start of the run, s{scaled}")))
    };
    let beyond = shown.iter().filter_map(|r| r.end).any(|t| seconds(t) > x.most());
    let note = note(every, beyond);
    let used = |class: &Class| super::outcomes::of(&drawn.summary.figures, *class) > 0;
    let ttft = &drawn.summary.figures.latencies.ttft;
    let last = outcomes.iter().filter_map(|r| r.end).max();
    Picture {
        title: format!("{}: each request from its planned arrival to its end", drawn.label),
        alt: format!(
            "Of {} completed answers the mean wait for the first token was {}; the last request ended {} after the start.",
            fmt::count(ttft.n as u64),
            ttft.mean.map_or_else(|| "not measured".to_owned(), fmt::duration),
            last.map_or_else(|| "at an unknown time".to_owned(), |t| fmt::duration(seconds(t) * 1e3)),
        ),
        note,
        legend: Class::ALL
            .into_iter()
            .filter(used)
            .map(Key::Class)
            .chain([Key::line("window", "end of the arrival window")])
            .collect(),
        numbers: crate::doc::Table::default(),
        height: HEIGHT,
        body,
    }
}

fn note(every: usize, beyond: bool) -> String {
    let drawn =
        if every == 1 { "Every request is a line.".to_owned() } else { format!("One request in {every} is drawn.") };
    let cut = if beyond { " What was open for longer is cut at the right edge." } else { "" };
    format!(
        "{drawn} Pale: waiting for the first token; full: the answer. A short mark is the end of one that got none.{cut}"
    )
}

fn line(row: &Row, class: Class, x: &Scale, top: f64, height: f64) -> Markup {
    let thick = (height * 0.86).max(0.6);
    let style = format!("f-{}", class.name());
    let planned = x.place(seconds(row.planned));
    let end = row.end.map_or(planned, |t| x.place(seconds(t)));
    let content = row.first_content.map(|t| x.place(seconds(t)));
    let waited = content.unwrap_or(end);
    let part = |style: &str, from: f64, to: f64| {
        html! { rect class=(style) x=(at(from)) y=(crate::fmt::trimmed(top, 2)) width=(at((to - from).max(0.4))) height=(crate::fmt::trimmed(thick, 2)) {} }
    };
    html! {
        (part(&format!("{style} wait"), planned, waited))
        @match content {
            Some(from) => (part(&style, from, end)),
            None => (part(&style, end - 4.0, end)),
        }
    }
}

fn seconds(t: Tick) -> f64 {
    t.as_nanos() as f64 / 1e9
}
