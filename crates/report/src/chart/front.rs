//! Attainment against fairness: a line for each family of policies.

use maud::{Markup, html};

use super::axis::Plot;
use super::scale::round_step;
use super::{Key, Picture, RUN_STYLES, at, run_class};
use crate::fmt;
use crate::front::{FrontLine, FrontPicture};

const PLOT: Plot = Plot { left: 52.0, right: 630.0, top: 46.0, bottom: 296.0 };
const HEIGHT: f64 = 346.0;
const MARK: f64 = 3.5;
const MARKS: f64 = 6.0;

/// A scale over a range that does not start at 0.
struct Range {
    low: f64,
    high: f64,
    step: f64,
    from: f64,
    to: f64,
}

impl Range {
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low < high { (low, high) } else { (0.0, 1.0) };
        let step = round_step((high - low) / MARKS);
        Self { low: (low / step).floor() * step, high: (high / step).ceil() * step, step, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = ((self.high - self.low) / self.step).round() as u32;
        (0..=count).map(|i| self.low + f64::from(i) * self.step)
    }
}

/// The picture of a workload's fronts.
pub(crate) fn front(front: &FrontPicture) -> Picture {
    let points = || front.lines.iter().flat_map(|line| &line.points);
    let x = Range::over(points().map(|p| p.jain), PLOT.left, PLOT.right);
    let y = Range::over(points().map(|p| p.attainment * 100.0), PLOT.bottom, PLOT.top);
    let body = html! {
        (axes(&x, &y))
        @for (place, line) in front.lines.iter().enumerate() { (curve(place, line, &x, &y)) }
    };
    Picture {
        title: format!("Attainment against fairness: {}", front.workload),
        desc: front.lines.iter().map(described).collect::<Vec<_>>().join(" "),
        note: "Each mark is a policy, the mean over the traces. Further right is fairer to the tenants, higher is \
               more good answers; the axes do not start at 0."
            .to_owned(),
        legend: front.lines.iter().enumerate().map(|(place, line)| Key::Run(place, line.name.clone())).collect(),
        height: HEIGHT,
        body,
    }
}

fn described(line: &FrontLine) -> String {
    let told = line
        .points
        .iter()
        .map(|p| format!("{}: {}% at {}", p.name, fmt::trimmed(p.attainment * 100.0, 1), fmt::trimmed(p.jain, 3)));
    format!("{}: {}.", line.name, told.collect::<Vec<_>>().join(", "))
}

fn axes(x: &Range, y: &Range) -> Markup {
    html! {
        @for tick in y.ticks() {
            path class="grid" d=(format!("M{} {}H{}", at(PLOT.left), at(y.place(tick)), at(PLOT.right))) {}
            text class="tick" x=(at(PLOT.left - 8.0)) y=(at(y.place(tick) + 4.5)) text-anchor="end" {
                (fmt::trimmed(tick, 1)) "%"
            }
        }
        text class="label" x="4" y="18" { "good answers of those offered" }
        path class="axis" d=(format!("M{} {}H{}", at(PLOT.left), at(PLOT.bottom), at(PLOT.right))) {}
        @for (i, tick) in x.ticks().enumerate() {
            path class="axis" d=(format!("M{} {}v5", at(x.place(tick)), at(PLOT.bottom))) {}
            text class=(if i % 2 == 1 { "tick second" } else { "tick" }) x=(at(x.place(tick))) y=(at(PLOT.bottom + 20.0)) text-anchor="middle" {
                (fmt::trimmed(tick, 3))
            }
        }
        text class="label" x=(at(f64::midpoint(PLOT.left, PLOT.right))) y=(at(PLOT.bottom + 42.0)) text-anchor="middle" {
            "Jain's index over the tenants' attainments"
        }
    }
}

fn curve(place: usize, line: &FrontLine, x: &Range, y: &Range) -> Markup {
    let join = |(i, p): (usize, &crate::front::FrontPoint)| {
        format!("{}{} {}", if i == 0 { "M" } else { "L" }, at(x.place(p.jain)), at(y.place(p.attainment * 100.0)))
    };
    let path: String = line.points.iter().enumerate().map(join).collect();
    let colour = format!("fill:var(--run{})", place % RUN_STYLES + 1);
    html! {
        path class=(run_class(place)) d=(path) {}
        @for p in &line.points {
            g {
                title {
                    (line.name) ", " (p.name) ": " (fmt::trimmed(p.attainment * 100.0, 1)) "% at "
                    (fmt::trimmed(p.jain, 3))
                }
                circle cx=(at(x.place(p.jain))) cy=(at(y.place(p.attainment * 100.0))) r=(MARK) style=(colour) {}
            }
        }
    }
}
