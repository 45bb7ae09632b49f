//! A plot in words and as a table, from the same points.

use super::drawing::Drawing;
use super::{MAX_LISTED, Point, Reference, Series};
use crate::doc::{Cell, Table};
use crate::fmt;
use crate::unit::Unit;

/// The most points of a series that its text names one by one.
const MAX_TOLD: usize = 12;

impl Drawing<'_> {
    /// A point in words.
    pub(super) fn told(&self, series: &Series, p: &Point) -> String {
        let words = p.words();
        let words = if words.is_empty() { String::new() } else { format!(" ({words})") };
        format!("{}{words}: {} at {}", series.name, self.y_text(p.y), self.plot.x.exact(p.x))
    }

    fn y_text(&self, value: f64) -> String {
        let number = self.plot.y.unit.with_decimals(value, self.y_decimals);
        if matches!(self.plot.y.unit, Unit::Share) { number + "%" } else { number }
    }

    pub(super) fn alt(&self) -> String {
        let one = |p: &Point| {
            let words = p.words();
            let words = if words.is_empty() { String::new() } else { format!(" ({words})") };
            format!("{} at {}{words}", self.y_text(p.y), self.plot.x.exact(p.x))
        };
        let series = self.plot.series.iter().map(|s| {
            let finite: Vec<&Point> = s.points.iter().filter(|p| p.is_finite()).collect();
            let told = match finite.as_slice() {
                [] => "no points".to_owned(),
                [first, .., last] if finite.len() > MAX_TOLD => {
                    let [low, high] = extremes(&finite);
                    format!("from {} to {}, lowest {}, highest {}", one(first), one(last), one(low), one(high))
                }
                all => all.iter().map(|p| one(p)).collect::<Vec<_>>().join(", "),
            };
            format!("{}: {told}.", s.name)
        });
        let references = self.plot.references.iter().filter_map(|r| match r {
            Reference::Across(y, meaning) => Some(format!("{}: {}.", meaning, self.y_text(*y))),
            Reference::Upright(x, meaning) => Some(format!("{}: {}.", meaning, self.plot.x.exact(*x))),
            Reference::Span(from, to, meaning) => {
                Some(format!("{}: {} to {}.", meaning, self.plot.x.exact(*from), self.plot.x.exact(*to)))
            }
            Reference::Equal(_) => None,
        });
        format!("{} over {}. ", self.plot.y.label(), self.plot.x.label())
            + &series.chain(references).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn numbers(&self) -> Table {
        let points = || self.plot.series.iter().flat_map(|s| &s.points);
        let (named, spread, sized) = (
            points().any(|p| !p.words().is_empty()),
            points().any(|p| p.ends.is_some()),
            points().any(|p| p.n.is_some()),
        );
        let mut table = Table::new("", "series");
        if named {
            table = table.words("point");
        }
        table = table.number(self.plot.x.label()).number(self.plot.y.label());
        if spread {
            table = table.number("low").number("high");
        }
        if sized {
            table = table.number("n");
        }
        let row = |words: String, x: String, y: String, ends: Option<[f64; 2]>, n: Option<u64>| {
            let missing = || fmt::MISSING.to_owned();
            let mut cells: Vec<Cell> = Vec::new();
            cells.extend(named.then(|| words.into()));
            cells.extend([x.into(), y.into()]);
            if spread {
                cells.extend([0, 1].map(|i| Cell::from(ends.map_or_else(missing, |e| self.y_text(e[i])))));
            }
            cells.extend(sized.then(|| n.map_or_else(missing, fmt::count).into()));
            cells
        };
        for series in &self.plot.series {
            for p in listed(&series.points) {
                let cells = row(p.words(), self.plot.x.exact(p.x), self.y_text(p.y), p.ends, p.n);
                table = table.row(series.name.clone(), cells);
            }
        }
        for reference in &self.plot.references {
            let missing = || fmt::MISSING.to_owned();
            let (meaning, x, y) = match reference {
                Reference::Across(y, meaning) => (meaning, missing(), self.y_text(*y)),
                Reference::Upright(x, meaning) => (meaning, self.plot.x.exact(*x), missing()),
                Reference::Span(from, to, meaning) => {
                    (meaning, format!("{} to {}", self.plot.x.exact(*from), self.plot.x.exact(*to)), missing())
                }
                Reference::Equal(_) => continue,
            };
            table = table.row(meaning.clone(), row(String::new(), x, y, None, None));
        }
        table
    }
}

/// The points that the table of numbers lists.
fn listed(points: &[Point]) -> Vec<&Point> {
    let finite: Vec<&Point> = points.iter().filter(|p| p.is_finite()).collect();
    if finite.is_empty() {
        return finite;
    }
    let every = finite.len().div_ceil(MAX_LISTED).max(1);
    let kept = extremes(&finite);
    let last = finite.len() - 1;
    let wanted = |(i, p): &(usize, &&Point)| i % every == 0 || *i == last || kept.iter().any(|k| std::ptr::eq(*k, **p));
    finite.iter().enumerate().filter(wanted).map(|(_, p)| *p).collect()
}

/// The lowest and the highest of some points.
fn extremes<'a>(points: &[&'a Point]) -> [&'a Point; 2] {
    let first = points[0];
    points
        .iter()
        .fold([first, first], |[low, high], p| [if p.y < low.y { p } else { low }, if p.y > high.y { p } else { high }])
}
