//! Every request as a line: when it came, how long it waited, how long it was answered.

use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Tick;
use maud::{Markup, html};

use super::axis::{Plot, horizontal};
use super::ecdf::scaled;
use super::scale::Scale;
use super::{Drawn, Key, Picture, at};
use crate::account::Arrival;
use crate::class::Class;
use crate::doc::Table;
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
    let answered = |a: &Arrival| matches!(a.state, Terminal::Completed | Terminal::Rejected);
    let ends = runs.iter().flat_map(|d| d.run.arrivals()).filter(answered).filter_map(|a| a.end).map(seconds);
    ends.chain(runs.iter().map(|d| d.summary.window_s)).fold(0.0, f64::max)
}

fn picture(drawn: &Drawn, x: &Scale, scaled: &str) -> Picture {
    let every = drawn.run.len().div_ceil(MAX_LINES).max(1);
    let shown: Vec<Arrival> = (0..drawn.run.len()).step_by(every).map(|i| drawn.run.arrival(i)).collect();
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
    let (alt, numbers) = told(drawn);
    Picture {
        title: format!("{}: each request from its planned arrival to its end", drawn.label),
        alt,
        note,
        legend: Class::ALL
            .into_iter()
            .filter(used)
            .map(Key::Class)
            .chain([Key::line("window", "end of the arrival window")])
            .collect(),
        numbers,
        height: HEIGHT,
        body,
    }
}

/// Each class with its size, its mean wait and its last end, in words and as a table.
fn told(drawn: &Drawn) -> (String, Table) {
    let mut waits = [(0_u64, 0_u128, None); 5];
    for arrival in drawn.run.arrivals() {
        let (n, waited, last) = &mut waits[Class::of(&arrival, &drawn.run.slo(&arrival)) as usize];
        *n += 1;
        *waited += arrival.ttft().map_or(0, |t| u128::from(t.as_nanos()));
        *last = (*last).max(arrival.end);
    }
    let mut table = Table::new("", "class").numbers(["n", "mean wait for the first token", "last end"]);
    let mut words = Vec::new();
    for (class, (n, waited, last)) in Class::ALL.into_iter().zip(waits).filter(|(_, w)| w.0 > 0) {
        let answered = matches!(class, Class::Good | Class::Late);
        let wait = if answered { fmt::duration(waited as f64 / n as f64 / 1e6) } else { fmt::MISSING.to_owned() };
        let last = last.map_or_else(|| fmt::MISSING.to_owned(), |t: Tick| fmt::duration(seconds(t) * 1e3));
        let waiting = if answered { format!(", first token after {wait} on average") } else { String::new() };
        words.push(format!("{} {}{waiting}, last end at {last}.", fmt::count(n), class.name()));
        table = table.row(class.name(), [fmt::count(n), wait, last]);
    }
    (words.join(" "), table)
}

fn note(every: usize, beyond: bool) -> String {
    let drawn =
        if every == 1 { "Every request is a line.".to_owned() } else { format!("One request in {every} is drawn.") };
    let cut = if beyond { " What was open for longer is cut at the right edge." } else { "" };
    format!(
        "{drawn} Pale: waiting for the first token; full: the answer. A short mark is the end of one that got none.{cut}"
    )
}

fn line(row: &Arrival, class: Class, x: &Scale, top: f64, height: f64) -> Markup {
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
