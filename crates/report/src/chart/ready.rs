//! Plots of a known shape: a fit with its residuals, and the probes of a search.

use super::{Axis, Picture, Plot, Point, Reference, Series, Shape};
use crate::doc::Tone;
use crate::unit::Unit;

/// Measured points with the line that was fitted to them.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The caption.
    pub title: String,
    /// What was set.
    pub x: Axis,
    /// What was measured.
    pub y: Axis,
    /// The measured points, in groups that are told apart, such as by output length.
    pub measured: Vec<Series>,
    /// The fitted lines: points to join, a series each. Its name is the formula with its parameters.
    pub fitted: Vec<Series>,
    /// What a reader needs to read it.
    pub note: String,
}

impl Fit {
    /// The picture.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let marks = self.measured.iter().map(|s| Series { shape: Shape::Marks, ..s.clone() });
        let lines = self.fitted.iter().map(|s| Series { shape: Shape::Line, ..s.clone() });
        Plot {
            title: self.title.clone(),
            x: self.x.clone(),
            y: self.y.clone(),
            series: marks.chain(lines).collect(),
            references: Vec::new(),
            note: self.note.clone(),
        }
        .draw()
    }
}

/// What is left of measured points after a fit: measured less fitted, over what was set. A pattern in it speaks
/// against the formula.
#[must_use]
pub fn residuals(title: &str, x: Axis, y: Axis, groups: Vec<Series>, note: &str) -> Picture {
    Plot {
        title: title.to_owned(),
        x,
        y,
        series: groups.into_iter().map(|s| Series { shape: Shape::Marks, ..s }).collect(),
        references: vec![Reference::Across(0.0, "as fitted".to_owned())],
        note: note.to_owned(),
    }
    .draw()
}

/// The probes of a search for the highest rate that keeps a target.
#[derive(Clone, Debug)]
pub struct Probes {
    /// The caption.
    pub title: String,
    /// The attainment to be kept, from 0 to 1.
    pub target: f64,
    /// What each probe found, in the order in which they were made.
    pub probes: Vec<Probe>,
    /// The highest rate shown to keep the target and the lowest shown to miss it, where they are known.
    pub between: [Option<f64>; 2],
    /// What a reader needs to read it.
    pub note: String,
}

/// A probe at a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Requests offered per second.
    pub rate: f64,
    /// The share of good answers.
    pub attainment: f64,
    /// Its interval.
    pub ends: Option<[f64; 2]>,
    /// Arrivals.
    pub n: u64,
    /// Whether it keeps the target; `None` if it cannot be told.
    pub keeps: Option<bool>,
}

impl Probes {
    /// The picture.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let of = |name: &str, tone: Tone, keeps: Option<bool>| {
            let probes = (1..).zip(&self.probes).filter(|(_, p)| p.keeps == keeps);
            let points: Vec<Point> = probes.map(|(place, p)| point(place, p)).collect();
            (!points.is_empty()).then(|| Series::new(name, Shape::Marks, points).tone(tone))
        };
        let series = [
            of("keeps the target", Tone::Good, Some(true)),
            of("misses it", Tone::Bad, Some(false)),
            of("cannot be told", Tone::Warn, None),
        ];
        let found = match self.between {
            [Some(low), Some(high)] => Some(Reference::Span(low, high, "the target is lost in here".to_owned())),
            [Some(low), None] => Some(Reference::Upright(low, "highest rate shown to keep it".to_owned())),
            [None, Some(high)] => Some(Reference::Upright(high, "lowest rate shown to miss it".to_owned())),
            [None, None] => None,
        };
        let target = Reference::Across(self.target, "target".to_owned());
        Plot {
            title: self.title.clone(),
            x: Axis::new("offered requests", Unit::PerSecond),
            y: Axis::new("good answers of those offered", Unit::Share).from_zero().reaching(1.0),
            series: series.into_iter().flatten().collect(),
            references: found.into_iter().chain([target]).collect(),
            note: self.note.clone(),
        }
        .draw()
    }
}

fn point(place: u32, probe: &Probe) -> Point {
    let point = Point::new(probe.rate, probe.attainment).n(probe.n).named(format!("probe {place}"));
    match probe.ends {
        Some([low, high]) => point.between(low, high),
        None => point,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_told_apart_by_what_they_found_and_the_answer_is_the_stretch_between() {
        let probe = |rate, attainment, keeps| Probe { rate, attainment, ends: Some([0.5, 0.9]), n: 400, keeps };
        let picture = Probes {
            title: "Probes".into(),
            target: 0.95,
            probes: vec![probe(8.0, 0.99, Some(true)), probe(16.0, 0.4, Some(false)), probe(12.0, 0.95, None)],
            between: [Some(8.0), Some(16.0)],
            note: String::new(),
        }
        .draw();
        let svg = picture.svg("p").into_string();
        for class in ["mark k-good", "mark k-bad", "mark k-warn", "span-band"] {
            assert_eq!(svg.matches(class).count(), 1, "{class}");
        }
        assert!(picture.alt.contains("misses it: 40.0% at 16 (probe 2)."), "{}", picture.alt);
        assert!(picture.alt.contains("the target is lost in here: 8 to 16."), "{}", picture.alt);
    }

    #[test]
    fn a_fit_is_marks_for_what_was_measured_and_a_line_for_the_formula() {
        let line = |points| Series::new("35.2 + 0.0732 · tokens", Shape::Marks, points);
        let picture = Fit {
            title: "TTFT".into(),
            x: Axis::new("prompt tokens", Unit::Count),
            y: Axis::new("TTFT", Unit::Millis),
            measured: vec![Series::new(
                "medians",
                Shape::Joined,
                vec![Point::new(256.0, 54.0), Point::new(512.0, 72.7)],
            )],
            fitted: vec![line(vec![Point::new(256.0, 53.9), Point::new(512.0, 72.7)])],
            note: String::new(),
        }
        .draw();
        let svg = picture.svg("f").into_string();
        assert_eq!((svg.matches("class=\"mark").count(), svg.matches("class=\"run").count()), (2, 1));
        assert!(picture.alt.contains("35.2 + 0.0732 · tokens: 53.9 at 256, 72.7 at 512."), "{}", picture.alt);
    }
}
