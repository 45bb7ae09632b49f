//! Points and lines over two axes: sweeps, fronts, fits, residuals, probes.

mod drawing;
mod told;

use super::Picture;
use super::axis;
use super::scale::Scale;
use crate::doc::Tone;
use crate::unit::Unit;
use drawing::Drawing;

/// The most points of a series in the table of numbers; of more, evenly spaced ones, and the lowest and the highest.
pub const MAX_LISTED: usize = 40;
/// The most points of a series that are drawn; of more, evenly spaced ones.
pub const MAX_DRAWN: usize = 2_000;

/// Series of points over two axes.
///
/// The text and the table of numbers are made from the points, so that all three say the same. More than
/// [`MAX_DRAWN`] points of a series are thinned out.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The caption.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Lines and bands to hold it against.
    pub references: Vec<Reference>,
    /// What a reader needs to read it.
    pub note: String,
}

/// An axis: what it shows, and in which unit.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    unit: Unit,
    from_zero: bool,
    reaching: Option<f64>,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// What they are.
    pub name: String,
    /// In the order in which they are joined.
    pub points: Vec<Point>,
    /// How they are drawn.
    pub shape: Shape,
    /// How they are to be taken; without it they get a colour of their own.
    pub tone: Option<Tone>,
}

/// How a series is drawn.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A mark for each point.
    Marks,
    /// Marks joined by a line.
    Joined,
    /// A line alone, as of a fitted formula.
    Line,
}

/// A point with what is known of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    x: f64,
    y: f64,
    ends: Option<[f64; 2]>,
    n: Option<u64>,
    name: String,
    ring: String,
}

/// A line or a band to hold points against.
#[derive(Clone, Debug)]
pub enum Reference {
    /// A level of the vertical axis, and what it means.
    Across(f64, String),
    /// A place on the horizontal axis.
    Upright(f64, String),
    /// A stretch of the horizontal axis.
    Span(f64, f64, String),
    /// Where both axes have the same value.
    Equal(String),
}

/// The look of a point.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The series' place, which gives the shape.
    place: usize,
    bar: bool,
    tone: Option<Tone>,
}

impl Axis {
    /// An axis over the values that there are.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, from_zero: false, reaching: None }
    }

    /// Beginning at 0.
    #[must_use]
    pub const fn from_zero(mut self) -> Self {
        self.from_zero = true;
        self
    }

    /// Reaching at least to a value.
    #[must_use]
    pub const fn reaching(mut self, value: f64) -> Self {
        self.reaching = Some(value);
        self
    }

    fn scale(&self, values: impl Iterator<Item = f64>, from: f64, to: f64, marks: u32) -> Scale {
        let zero = self.from_zero.then_some(0.0);
        Scale::over(values.chain(zero).chain(self.reaching).map(|v| self.unit.scaled(v)), from, to, marks)
    }

    /// A value of this axis as it was set, such as a rate: no more decimals than it has.
    fn exact(&self, value: f64) -> String {
        axis::tick(self.unit.scaled(value), axis::decimals(self.unit.scaled(value)))
    }

    /// The label with its unit, where the marks do not carry it.
    fn label(&self) -> String {
        match self.unit {
            Unit::Share | Unit::Count | Unit::Plain(_) => self.label.clone(),
            unit if unit.head().is_empty() => self.label.clone(),
            unit => format!("{}, {}", self.label, unit.head()),
        }
    }

    const fn tick_unit(&self) -> &'static str {
        if matches!(self.unit, Unit::Share) { "%" } else { "" }
    }
}

impl Series {
    /// A series of points.
    #[must_use]
    pub fn new(name: impl Into<String>, shape: Shape, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, shape, tone: None }
    }

    /// With how it is to be taken.
    #[must_use]
    pub const fn tone(mut self, tone: Tone) -> Self {
        self.tone = Some(tone);
        self
    }
}

impl Point {
    /// A point.
    #[must_use]
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, ..Self::default() }
    }

    /// With an interval or a spread of y.
    #[must_use]
    pub const fn between(mut self, low: f64, high: f64) -> Self {
        self.ends = Some([low, high]);
        self
    }

    /// With the number of values behind it.
    #[must_use]
    pub const fn n(mut self, n: u64) -> Self {
        self.n = Some(n);
        self
    }

    /// With a name of its own.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// With a ring around it, and what that says.
    #[must_use]
    pub fn ring(mut self, meaning: impl Into<String>) -> Self {
        self.ring = meaning.into();
        self
    }

    fn is_finite(&self) -> bool {
        self.x.is_finite() && self.y.is_finite()
    }

    /// The point's own name and what its ring says, if it has them.
    fn words(&self) -> String {
        [&self.name, &self.ring].into_iter().filter(|s| !s.is_empty()).cloned().collect::<Vec<_>>().join(", ")
    }
}

impl Plot {
    /// The picture.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let ends = |p: &Point| p.ends.into_iter().flatten().collect::<Vec<_>>();
        let points = self.series.iter().flat_map(|s| &s.points).flat_map(|p| [vec![p.y], ends(p)].concat());
        let across =
            self.references.iter().filter_map(|r| if let Reference::Across(y, _) = r { Some(*y) } else { None });
        let y_decimals = self.y.unit.decimals(&points.chain(across).collect::<Vec<_>>());
        Drawing { plot: self, y_decimals }.draw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<Point>, shape: Shape) -> Plot {
        Plot {
            title: "TTFT over prompt tokens".into(),
            x: Axis::new("prompt tokens", Unit::Count).from_zero(),
            y: Axis::new("TTFT", Unit::Millis).from_zero(),
            series: vec![Series::new("measured", shape, points)],
            references: vec![
                Reference::Across(100.0, "limit".into()),
                Reference::Span(512.0, 1024.0, "the knee".into()),
            ],
            note: String::new(),
        }
    }

    #[test]
    fn a_point_stands_at_its_place_with_its_interval() {
        let picture = plot(vec![Point::new(1024.0, 50.0).between(40.0, 60.0).n(9)], Shape::Marks).draw();
        let svg = picture.svg("p").into_string();
        // Scales from 0 to 1,200 over 49..622 and from 0 to 100 over 296..46.
        assert!(svg.contains("cx=\"538\" cy=\"171\""), "{svg}");
        assert!(svg.contains("d=\"M538 196V146\""), "{svg}");
        assert_eq!(
            picture.alt,
            "TTFT, ms over prompt tokens. measured: 50 at 1,024. limit: 100. the knee: 512 to 1,024."
        );
        let cells: Vec<&str> = picture.numbers.rows[0].cells.iter().map(|c| c.text.as_str()).collect();
        assert_eq!(cells, ["1,024", "50", "40", "60", "9"]);
    }

    #[test]
    fn many_points_are_thinned_and_the_extremes_stay_in_the_table() {
        let mut points: Vec<Point> = (0..100_000).map(|i| Point::new(f64::from(i), 50.0)).collect();
        points[31_415].y = 99.0;
        points[27_182].y = 1.0;
        let picture = plot(points, Shape::Marks).draw();
        assert!(picture.svg("p").into_string().matches("<circle").count() <= MAX_DRAWN + 1);
        assert!(picture.numbers.rows.len() <= MAX_LISTED + 6);
        assert!(picture.alt.contains("lowest 1 at 27,182, highest 99 at 31,415"), "{}", picture.alt);
        let listed = |x: &str| picture.numbers.rows.iter().any(|r| r.cells[0].text == x);
        assert!(listed("27,182") && listed("31,415") && listed("99,999"));
    }

    #[test]
    fn a_plot_of_nothing_and_values_that_are_no_numbers_are_still_a_picture() {
        let empty = plot(Vec::new(), Shape::Joined).draw();
        assert!(empty.alt.contains("measured: no points."));
        let broken = plot(vec![Point::new(f64::NAN, 1.0), Point::new(1.0, f64::INFINITY)], Shape::Joined).draw();
        assert!(!broken.svg("p").into_string().contains("NaN"));
    }
}
