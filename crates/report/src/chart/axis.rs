//! Axes with marks, labels and units.

use maud::{Markup, html};

use super::at;
use super::scale::Scale;
use crate::fmt;

/// The place of a plot within its picture.
#[derive(Copy, Clone)]
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// A number at an axis: thousands apart, no trailing zeros.
pub(super) fn tick(value: f64, decimals: usize) -> String {
    let text = fmt::trimmed(value.abs(), decimals);
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
    let whole = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), fmt::count);
    let sign = if value < 0.0 && text != "0" { "−" } else { "" };
    format!("{sign}{whole}{rest}")
}

/// The decimals of a number that was set: as many as it has, at most four.
pub(super) fn decimals(value: f64) -> usize {
    (0..4).find(|d| (value * 10f64.powi(*d) - (value * 10f64.powi(*d)).round()).abs() < 1e-6).map_or(4, |d| d as usize)
}

/// The horizontal axis below the plot.
pub(super) fn horizontal(plot: Plot, scale: &Scale, label: &str) -> Markup {
    html! {
        path class="axis" d=(format!("M{} {}H{}", at(plot.left), at(plot.bottom), at(plot.right))) {}
        @for (i, tick) in scale.ticks().into_iter().enumerate() {
            @let x = scale.place(tick);
            path class="axis" d=(format!("M{} {}v5", at(x), at(plot.bottom))) {}
            // Every second label gives way on a small screen.
            text class=(if i % 2 == 1 { "tick second" } else { "tick" }) x=(at(x)) y=(at(plot.bottom + 20.0)) text-anchor="middle" {
                (self::tick(tick, scale.decimals()))
            }
        }
        text class="label" x=(at(f64::midpoint(plot.left, plot.right))) y=(at(plot.bottom + 42.0)) text-anchor="middle" { (label) }
    }
}

/// The vertical axis left of the plot, with lines across it; `unit` follows each number.
pub(super) fn vertical(plot: Plot, scale: &Scale, label: &str, unit: &str) -> Markup {
    html! {
        @for tick in scale.ticks() {
            @let y = scale.place(tick);
            path class="grid" d=(format!("M{} {}H{}", at(plot.left), at(y), at(plot.right))) {}
            text class="tick" x=(at(plot.left - 8.0)) y=(at(y + 4.5)) text-anchor="end" {
                (self::tick(tick, scale.decimals())) (unit)
            }
        }
        // Above the axis rather than along it: upright text reads at any size.
        text class="label" x="4" y="18" { (label) }
    }
}
