//! Planned arrivals beside those that were sent, moment by moment.

use maud::html;

use super::axis::{Plot, horizontal, vertical};
use super::scale::Scale;
use super::{Key, Picture, at};
use crate::doc::Table;
use crate::fmt;
use crate::omission::{OmissionCase, OmissionPage};

const PLOT: Plot = Plot { left: 52.0, right: 630.0, top: 46.0, bottom: 196.0 };
const HEIGHT: f64 = 246.0;
/// Stretches of the window.
const COLUMNS: usize = 40;
const EARLIER_S: f64 = 0.005;

/// One picture a case, all to the same scales.
pub(crate) fn arrivals(page: &OmissionPage) -> Vec<Picture> {
    let counted: Vec<[Vec<u32>; 2]> =
        page.cases.iter().map(|c| [columns(&c.planned_s, page.window_s), columns(&c.sent_s, page.window_s)]).collect();
    let highest = counted.iter().flatten().flatten().copied().max().unwrap_or(0);
    let width = page.window_s / COLUMNS as f64;
    let x = Scale::new(page.window_s, PLOT.left, PLOT.right, 8, true);
    let y = Scale::new(f64::from(highest) / width, PLOT.bottom, PLOT.top, 4, true);
    let draw = |(case, [planned, sent]): (&OmissionCase, &[Vec<u32>; 2])| picture(page, case, planned, sent, &x, &y);
    page.cases.iter().zip(&counted).map(draw).collect()
}

/// How many of the times lie in each stretch of the window; one at its very end belongs to the last. Planned
/// times lie on the edges of stretches, so all are looked at a little earlier: what is sent within that of
/// its time is drawn where it was planned.
fn columns(times: &[f64], window: f64) -> Vec<u32> {
    let mut counts = vec![0; COLUMNS];
    for time in times {
        let place = (((time - EARLIER_S).max(0.0) / window * COLUMNS as f64) as usize).min(COLUMNS - 1);
        counts[place] += 1;
    }
    counts
}

fn picture(page: &OmissionPage, case: &OmissionCase, planned: &[u32], sent: &[u32], x: &Scale, y: &Scale) -> Picture {
    let width = page.window_s / COLUMNS as f64;
    let left = |i: usize| x.place(i as f64 * width);
    let top = |n: u32| y.place(f64::from(n) / width);
    let steps: String =
        planned.iter().enumerate().map(|(i, n)| format!("V{}H{}", at(top(*n)), at(left(i + 1)))).collect();
    let body = html! {
        (vertical(PLOT, y, "arrivals per second", ""))
        @for (i, n) in sent.iter().enumerate().filter(|(_, n)| **n > 0) {
            rect class="c-good" x=(at(left(i) + 0.75)) y=(at(top(*n)))
                width=(at(left(i + 1) - left(i) - 1.5)) height=(at(PLOT.bottom - top(*n))) {}
        }
        @if !case.planned_s.is_empty() {
            path class="offered" d=(format!("M{} {}{steps}", at(left(0)), at(PLOT.bottom))) {}
        }
        @for edge in [page.slow_s.0, page.slow_s.1] {
            path class="window" d=(format!("M{} {}V{}", at(x.place(edge)), at(PLOT.top - 8.0), at(PLOT.bottom))) {}
        }
        (horizontal(PLOT, x, "time since the start of the run, s"))
    };
    let in_slow = |times: &[f64]| times.iter().filter(|t| **t >= page.slow_s.0 && **t < page.slow_s.1).count();
    let planned_words = if case.planned_s.is_empty() {
        "It plans no arrivals.".to_owned()
    } else {
        format!(
            "{} arrivals were planned, {} of them in the slow time.",
            case.planned_s.len(),
            in_slow(&case.planned_s)
        )
    };
    let count = |n: usize| fmt::count(n as u64);
    let mut numbers = Table::new("", "arrivals").numbers(["n", "in the slow time"]);
    if !case.planned_s.is_empty() {
        numbers = numbers.row("planned", [count(case.planned_s.len()), count(in_slow(&case.planned_s))]);
    }
    let numbers = numbers.row("sent", [count(case.sent_s.len()), count(in_slow(&case.sent_s))]);
    Picture {
        title: format!("{}: arrivals planned and sent", case.name),
        alt: format!(
            "{planned_words} {} were sent, {} of them in the slow time.",
            case.sent_s.len(),
            in_slow(&case.sent_s)
        ),
        note: format!("In steps of {} s. {}", fmt::trimmed(width, 3), case.note),
        legend: (!case.planned_s.is_empty())
            .then_some(Key::line("offered", "planned"))
            .into_iter()
            .chain([Key::line("window", "begin and end of the slow time; the columns are what was sent")])
            .collect(),
        numbers,
        height: HEIGHT,
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenly_spaced_times_fill_every_stretch_alike() {
        let times: Vec<f64> = (1..=160).map(|i| f64::from(i) / 40.0).collect();
        assert_eq!(columns(&times, 4.0), vec![4; COLUMNS]);
        assert_eq!(columns(&[0.0, 4.0, 9.0], 4.0).iter().sum::<u32>(), 3, "what lies beyond is counted at the end");
    }
}
