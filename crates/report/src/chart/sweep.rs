//! Goodput, attainment and throughput over the offered rate.

use super::{Axis, Picture, Plot, Point, Reference, Series, Shape};
use crate::fmt;
use crate::sweep::{MAX_LINES, SweepLine, SweepPoint};
use crate::unit::Unit;

/// The three pictures of a sweep, the knee ringed. Lines beyond [`MAX_LINES`] are left out. `spread` says what the
/// bars at the points reach over, such as `the smallest to the largest of the seeds`.
#[must_use]
pub fn sweep(lines: &[SweepLine], target: f64, spread: &str) -> [Picture; 3] {
    let lines = &lines[..lines.len().min(MAX_LINES)];
    let offered = || Reference::Equal("as much as is offered".to_owned());
    let level = Reference::Across(target, "target".to_owned());
    let good = Axis::new("good answers", Unit::PerSecond).from_zero();
    let share = Axis::new("good answers of those offered", Unit::Share).from_zero().reaching(1.0);
    let all = Axis::new("completions, good or late", Unit::PerSecond).from_zero();
    let draw = |title: &str, y: Axis, reference: Reference, value: fn(&SweepPoint) -> Option<[f64; 3]>| {
        Plot {
            title: title.to_owned(),
            x: Axis::new("offered requests", Unit::PerSecond).from_zero(),
            y,
            series: lines.iter().map(|line| series(line, value)).collect(),
            references: vec![reference],
            note: format!(
                "Lines join the means, bars reach over {spread}. A ring marks the knee: the highest offered rate up to \
                 which, at every rate of the sweep, on average at least {} of all that was offered got a good answer.",
                fmt::trimmed(target * 100.0, 1) + "%"
            ),
        }
        .draw()
    };
    [
        draw("Goodput over offered rate", good, offered(), |p| Some(p.goodput)),
        draw("Attainment over offered rate", share, level, |p| Some(p.attainment)),
        draw("Throughput over offered rate", all, offered(), |p| p.throughput),
    ]
}

fn series(line: &SweepLine, value: fn(&SweepPoint) -> Option<[f64; 3]>) -> Series {
    let point = |p: &SweepPoint| {
        let [mean, low, high] = value(p)?;
        let point = Point::new(p.rate, mean).between(low, high).n(p.n);
        Some(if line.knee == Some(p.rate) { point.ring("knee") } else { point })
    };
    let name = match line.knee {
        Some(rate) => format!("{} (knee {}/s)", line.name, fmt::trimmed(rate, 2)),
        None => format!("{} (no knee)", line.name),
    };
    Series::new(name, Shape::Joined, line.points.iter().filter_map(point).collect())
}
