//! Pictures as SVG for inlining into the page.
//!
//! Each is made from a value that holds its numbers ([`Effects`], [`Plot`], [`Bars`], [`Fit`], [`Probes`]) and gives a
//! [`Picture`], which a [`Doc`](crate::doc::Doc) takes.
//!
//! Colours, dashes and type sizes come from the page's style sheet by class, so that one drawing serves
//! light, dark, print and small screens. Shapes differ without colour too: classes by hatching, runs by
//! dashes. Every picture has a title and a description of what it shows.

mod arrivals;
mod axis;
mod bars;
mod ecdf;
mod effects;
mod front;
mod interval;
mod latency;
mod offered;
mod outcomes;
mod plot;
mod rates;
mod ready;
mod scale;
mod sends;
mod sweep;
mod tenants;
mod timeline;

use maud::{Markup, PreEscaped, html};

pub(crate) use arrivals::arrivals;
pub use bars::{Bar, BarGroup, Bars, MAX_BARS};
pub(crate) use ecdf::ecdf;
pub use effects::{Better, Effect, EffectGroup, Effects};
pub(crate) use front::front;
pub(crate) use interval::intervals;
pub(crate) use latency::latency;
pub(crate) use offered::{Offered, offered};
pub(crate) use outcomes::outcomes;
pub use plot::{Axis, MAX_DRAWN, MAX_LISTED, Mark, Plot, Point, Reference, Series, Shape};
pub(crate) use rates::rates;
pub use ready::{Fit, Probe, Probes, residuals};
pub(crate) use sends::sends;
pub use sweep::sweep;
pub(crate) use tenants::tenants;
pub(crate) use timeline::timeline;

use crate::account::Account;
use crate::class::Class;
use crate::doc::{Table, Tone, plain};
use crate::summary::Summary;

/// The width of every picture in its own units.
const WIDTH: f64 = 640.0;
/// Dash patterns and colours of runs; more runs than this repeat them.
pub(crate) const RUN_STYLES: usize = 6;

/// A run with its figures and the name that tells it apart.
pub(crate) struct Drawn<'a> {
    pub(crate) label: String,
    pub(crate) run: &'a Account,
    pub(crate) summary: &'a Summary,
}

/// A picture with all that belongs to it: a caption, a legend, what it shows in words for those who do not see it, and
/// the numbers that it is made of.
#[derive(Clone, Debug)]
pub struct Picture {
    pub(crate) title: String,
    /// What it shows, in words and numbers; every number in it is in [`Self::numbers`] too.
    pub(crate) alt: String,
    /// What a reader needs to read it.
    pub(crate) note: String,
    pub(crate) legend: Vec<Key>,
    pub(crate) numbers: Table,
    height: f64,
    body: Markup,
}

/// An entry of a legend.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    /// A class of arrivals.
    Class(Class),
    /// A run, by its place.
    Run(usize, String),
    /// A mark by its look.
    Mark(Mark, String),
    /// A line of its own style: the style's name and what it means.
    Line(&'static str, String),
}

impl Key {
    fn line(style: &'static str, meaning: impl Into<String>) -> Self {
        Self::Line(style, meaning.into())
    }
}

impl Picture {
    /// The drawing; `id` must be unique on the page.
    pub(crate) fn svg(&self, id: &str) -> Markup {
        let title = format!("{id}-title");
        let desc = format!("{id}-desc");
        let drawn = html! {
            svg role="img" viewBox=(format!("0 0 {WIDTH} {}", self.height)) aria-labelledby=(format!("{title} {desc}")) {
                title id=(title) { (self.title) }
                desc id=(desc) { (self.alt) }
                (self.body)
            }
        };
        // Names from the data are in it at many places; none of them may steer anything.
        PreEscaped(plain(&drawn.into_string()))
    }
}

/// The small drawing beside an entry of a legend.
pub(crate) fn swatch(key: &Key) -> Markup {
    html! {
        svg class="swatch" viewBox="0 0 28 14" aria-hidden="true" {
            @match key {
                Key::Class(class) => rect class=(format!("c-{}", class.name())) x="1" y="1" width="26" height="12" {},
                Key::Run(place, _) => path class=(run_class(*place)) d="M0 7H28" {},
                Key::Mark(mark, _) => (mark.draw(14.0, 7.0)),
                Key::Line(style, _) => path class=(style) d="M0 7H28" {},
            }
        }
    }
}

/// The hatchings of the classes, once for the whole page.
pub(crate) fn patterns() -> Markup {
    let hatch = |class: Class, path: &'static str| {
        html! {
            pattern id=(format!("p-{}", class.name())) width="6" height="6" patternUnits="userSpaceOnUse" {
                rect class=(format!("f-{}", class.name())) width="6" height="6" {}
                path class="hatch" d=(path) {}
            }
        }
    };
    html! {
        svg class="defs" aria-hidden="true" width="0" height="0" {
            defs {
                (hatch(Class::Late, "M-1 5L1 7M0 0L6 6M5 -1L7 1"))
                (hatch(Class::Failed, "M0 0L6 6M6 0L0 6"))
                (hatch(Class::Rejected, "M1.5 1.5h1.2v1.2h-1.2zM4.5 4.5h1.2v1.2h-1.2z"))
                (hatch(Class::Unsent, ""))
            }
        }
    }
}

/// The class of what is coloured by how it is to be taken.
const fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Neutral => "k-neutral",
        Tone::Good => "k-good",
        Tone::Warn => "k-warn",
        Tone::Bad => "k-bad",
    }
}

fn run_class(place: usize) -> String {
    format!("run run{}", place % RUN_STYLES + 1)
}

/// A coordinate with one decimal: a tenth of a unit is less than a pixel.
fn at(value: f64) -> String {
    crate::fmt::trimmed(value, 1)
}
