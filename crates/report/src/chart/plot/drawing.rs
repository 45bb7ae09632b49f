//! A plot as SVG.

use maud::{Markup, html};

use super::super::axis::{self, horizontal, vertical};
use super::super::scale::Scale;
use super::super::{Key, Picture, RUN_STYLES, at, run_class, tone_class};
use super::{MAX_DRAWN, Mark, Plot, Point, Reference, Series, Shape};

const TOP: f64 = 46.0;
const BOTTOM: f64 = 296.0;
const RIGHT: f64 = 622.0;
const HEIGHT: f64 = 346.0;
/// Half the width of a mark.
const MARK: f64 = 4.0;
const RING: f64 = 8.5;
/// The room that a character of an axis's label takes on a small screen.
const CHARACTER: f64 = 11.0;

/// A plot, and how its numbers are written.
pub(super) struct Drawing<'a> {
    pub(super) plot: &'a Plot,
    pub(super) y_decimals: usize,
}

impl Drawing<'_> {
    pub(super) fn draw(&self) -> Picture {
        let points = || self.plot.series.iter().flat_map(|s| &s.points).filter(|p| p.is_finite());
        let ends = points().filter_map(|p| p.ends).flatten();
        let y_marks =
            self.plot.references.iter().filter_map(|r| if let Reference::Across(y, _) = r { Some(*y) } else { None });
        let x_marks = self.plot.references.iter().flat_map(|r| match r {
            Reference::Upright(x, _) => vec![*x],
            Reference::Span(from, to, _) => vec![*from, *to],
            _ => Vec::new(),
        });
        let y = self.plot.y.scale(points().map(|p| p.y).chain(ends).chain(y_marks), BOTTOM, TOP, 5);
        let widest = y.ticks().into_iter().map(|t| axis::tick(t, y.decimals()).chars().count()).max().unwrap_or(0);
        let left = 16.0 + CHARACTER * (widest + self.plot.y.tick_unit().len()).max(3) as f64;
        let x = self.plot.x.scale(points().map(|p| p.x).chain(x_marks), left, RIGHT, 7);
        let plot = axis::Plot { left, right: RIGHT, top: TOP, bottom: BOTTOM };
        let body = html! {
            @for r in &self.plot.references { @if let Reference::Span(..) = r { (self.reference(r, plot, &x, &y)) } }
            (vertical(plot, &y, &self.plot.y.label(), self.plot.y.tick_unit()))
            @for r in &self.plot.references { @if !matches!(r, Reference::Span(..)) { (self.reference(r, plot, &x, &y)) } }
            @for (place, series) in self.plot.series.iter().enumerate() { (self.curve(place, series, &x, &y)) }
            (horizontal(plot, &x, &self.plot.x.label()))
        };
        Picture {
            title: self.plot.title.clone(),
            alt: self.alt(),
            note: self.plot.note.clone(),
            legend: self.legend(),
            numbers: self.numbers(),
            height: HEIGHT,
            body,
        }
    }

    fn legend(&self) -> Vec<Key> {
        let series = self.plot.series.iter().enumerate().map(|(place, s)| match s.shape {
            Shape::Line if s.tone.is_none() => Key::Run(place, s.name.clone()),
            Shape::Joined if s.tone.is_none() && place < RUN_STYLES => Key::Run(place, s.name.clone()),
            _ => Key::Mark(Mark { place, bar: false, tone: s.tone }, s.name.clone()),
        });
        let references = self.plot.references.iter().map(|r| match r {
            Reference::Across(_, meaning) => Key::line("slo", meaning),
            Reference::Upright(_, meaning) | Reference::Equal(meaning) => Key::line("window", meaning),
            Reference::Span(_, _, meaning) => Key::line("span-key", meaning),
        });
        series.chain(references).collect()
    }

    fn reference(&self, reference: &Reference, plot: axis::Plot, x: &Scale, y: &Scale) -> Markup {
        let px = |v: f64| at(x.place(self.plot.x.unit.scaled(v)));
        let (style, path) = match reference {
            Reference::Across(v, _) => {
                ("slo", format!("M{} {}H{}", at(plot.left), at(y.place(self.plot.y.unit.scaled(*v))), at(plot.right)))
            }
            Reference::Upright(v, _) => ("window", format!("M{} {}V{}", px(*v), at(plot.bottom), at(plot.top))),
            Reference::Span(from, to, _) => (
                "span-band",
                format!("M{} {}V{}H{}V{}Z", px(*from), at(plot.bottom), at(plot.top), px(*to), at(plot.bottom)),
            ),
            Reference::Equal(_) => {
                let (low, high) = (x.low().max(y.low()), x.most().min(y.most()));
                let place = |v| format!("{} {}", at(x.place(v)), at(y.place(v)));
                ("window", format!("M{}L{}", place(low), place(high.max(low))))
            }
        };
        html! { path class=(style) d=(path) {} }
    }

    fn curve(&self, place: usize, series: &Series, x: &Scale, y: &Scale) -> Markup {
        let drawn: Vec<&Point> = thinned(&series.points, MAX_DRAWN).filter(|p| p.is_finite()).collect();
        let px = |p: &Point| x.place(self.plot.x.unit.scaled(p.x));
        let py = |v: f64| y.place(self.plot.y.unit.scaled(v));
        let join =
            |(i, p): (usize, &&Point)| format!("{}{} {}", if i == 0 { "M" } else { "L" }, at(px(p)), at(py(p.y)));
        let mark = Mark { place, bar: false, tone: series.tone };
        html! {
            @if series.shape != Shape::Marks && drawn.len() > 1 {
                @let path: String = drawn.iter().enumerate().map(join).collect();
                path class=(series.tone.map_or_else(|| run_class(place), |t| format!("run {}", tone_class(t)))) d=(path) {}
            }
            @if series.shape != Shape::Line {
                @for p in drawn {
                    g {
                        title { (self.told(series, p)) }
                        @if let Some([low, high]) = p.ends {
                            path class="whisker" d=(format!("M{} {}V{}", at(px(p)), at(py(low)), at(py(high)))) {}
                        }
                        (mark.draw(px(p), py(p.y)))
                        @if !p.ring.is_empty() { circle class="ring" cx=(at(px(p))) cy=(at(py(p.y))) r=(RING) {} }
                    }
                }
            }
        }
    }
}

impl Mark {
    /// The look of a bar.
    pub(in crate::chart) const fn bar(place: usize) -> Self {
        Self { place, bar: true, tone: None }
    }

    /// The mark around a place. Shapes differ, so that they can be told apart without colour.
    pub(in crate::chart) fn draw(self, x: f64, y: f64) -> Markup {
        let class = match self.tone {
            Some(tone) => format!("mark {}", tone_class(tone)),
            None => format!("mark k{}", self.place % RUN_STYLES + 1),
        };
        let m = MARK;
        if self.bar {
            return html! { rect class=(class) x=(at(x - 12.0)) y=(at(y - 5.0)) width="24" height="10" {} };
        }
        let path = match self.place % 6 {
            0 => return html! { circle class=(class) cx=(at(x)) cy=(at(y)) r=(m) {} },
            1 => format!("M{} {}h{s}v{s}h-{s}Z", at(x - m), at(y - m), s = 2.0 * m),
            2 => format!(
                "M{} {}l{w} {h}h-{d}Z",
                at(x),
                at(y - m - 1.0),
                w = m + 1.0,
                h = 2.0 * m + 1.0,
                d = 2.0 * (m + 1.0)
            ),
            3 => format!("M{} {}l{w} {w}l-{w} {w}l-{w} -{w}Z", at(x), at(y - m - 1.0), w = m + 1.0),
            4 => format!(
                "M{} {}l{w} -{h}h-{d}Z",
                at(x),
                at(y + m + 1.0),
                w = m + 1.0,
                h = 2.0 * m + 1.0,
                d = 2.0 * (m + 1.0)
            ),
            _ => format!("M{} {}h3v3h3v3h-3v3h-3v-3h-3v-3h3Z", at(x - 1.5), at(y - 4.5),),
        };
        html! { path class=(class) d=(path) {} }
    }
}

/// At most so many of the points, evenly spaced, the last among them.
fn thinned(points: &[Point], most: usize) -> impl Iterator<Item = &Point> {
    let every = points.len().div_ceil(most).max(1);
    let last = points.len().saturating_sub(1);
    points.iter().enumerate().filter(move |(i, _)| i % every == 0 || *i == last).map(|(_, p)| p)
}
