//! Effects with their intervals against the line of no effect.

use maud::{Markup, html};

use super::axis;
use super::scale::Scale;
use super::{Key, Picture, at};
use crate::doc::{Cell, Table, Tone};
use crate::fmt;
use crate::unit::Unit;

const LEFT: f64 = 14.0;
const RIGHT: f64 = 626.0;
/// The height of an effect: its name and figures above its interval.
const ROW: f64 = 54.0;
/// The height of a group's heading, and of the axis below it.
const HEADING: f64 = 30.0;
const AXIS: f64 = 36.0;

/// Effects in groups; those of one group share a unit and a scale.
#[derive(Clone, Debug)]
pub struct Effects {
    /// The caption.
    pub title: String,
    /// What a reader needs beside what every such picture says.
    pub note: String,
    /// The two-sided confidence of the intervals, such as 0.95.
    pub confidence: f64,
    /// The groups.
    pub groups: Vec<EffectGroup>,
}

/// Effects on one scale.
#[derive(Clone, Debug)]
pub struct EffectGroup {
    /// What they are effects on, such as `attainment`.
    pub name: String,
    /// Their unit; for differences of shares [`Unit::Points`].
    pub unit: Unit,
    /// Which side of zero is to be wished for.
    pub better: Better,
    /// The effects.
    pub effects: Vec<Effect>,
}

/// Which side of zero is to be wished for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Better {
    /// Above it.
    Higher,
    /// Below it.
    Lower,
    /// Neither.
    Neither,
}

/// An effect: a difference, in the group's unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// On what, such as a tenant's name.
    pub name: String,
    /// The difference.
    pub value: f64,
    /// The interval's lower end; `None` if the sample supports none.
    pub low: Option<f64>,
    /// The interval's upper end.
    pub high: Option<f64>,
    /// Pairs that it is made of.
    pub n: u64,
}

impl Effect {
    /// How it is to be taken: good or bad if the whole interval lies on one side of zero.
    fn tone(&self, better: Better) -> Tone {
        let side = match (self.low, self.high) {
            (Some(low), _) if low > 0.0 => Better::Higher,
            (_, Some(high)) if high < 0.0 => Better::Lower,
            _ => return Tone::Neutral,
        };
        match better {
            Better::Neither => Tone::Neutral,
            better if better == side => Tone::Good,
            _ => Tone::Bad,
        }
    }

    /// The figure and its interval, all with the same decimals.
    fn shown(&self, unit: Unit) -> [String; 3] {
        let known: Vec<f64> = [Some(self.value), self.low, self.high].into_iter().flatten().collect();
        let decimals = unit.decimals(&known);
        let one = |v: Option<f64>| v.map_or_else(|| fmt::MISSING.to_owned(), |v| unit.signed_number(v, decimals));
        [one(Some(self.value)), one(self.low), one(self.high)]
    }
}

impl Effects {
    /// The picture.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let mut top = 0.0;
        let mut parts = Vec::new();
        for group in &self.groups {
            parts.push(draw_group(group, top));
            top += HEADING + ROW * group.effects.len() as f64 + AXIS;
        }
        let percent = fmt::trimmed(self.confidence * 100.0, 2);
        let sides = self.groups.iter().any(|g| g.better != Better::Neither);
        let legend = [("span o-met", "better"), ("span o-missed", "worse"), ("span o-none", "no difference shown")];
        Picture {
            title: self.title.clone(),
            alt: self.groups.iter().map(told).collect::<Vec<_>>().join(" "),
            note: format!(
                "The bar is the {percent}% interval, the ring the figure; the upright line is no difference. {}",
                self.note
            )
            .trim_end()
            .to_owned(),
            legend: legend.into_iter().filter(|_| sides).map(|(style, meaning)| Key::line(style, meaning)).collect(),
            numbers: numbers(&self.groups),
            height: top.max(1.0),
            body: html! { @for part in parts { (part) } },
        }
    }
}

fn draw_group(group: &EffectGroup, top: f64) -> Markup {
    let unit = group.unit;
    let ends = |e: &Effect| [Some(e.value), e.low, e.high].into_iter().flatten().collect::<Vec<_>>();
    let values = group.effects.iter().flat_map(ends).chain([0.0]).map(|v| unit.scaled(v));
    let x = Scale::over(values, LEFT + 6.0, RIGHT - 6.0, 6);
    let rows = top + HEADING;
    let bottom = rows + ROW * group.effects.len() as f64;
    let zero = x.place(0.0);
    let heading = if unit.head().is_empty() { group.name.clone() } else { format!("{}, {}", group.name, unit.head()) };
    html! {
        text class="name" x=(at(LEFT)) y=(at(top + 20.0)) { (heading) }
        path class="axis" d=(format!("M{} {}H{}", at(LEFT), at(bottom + 4.0), at(RIGHT))) {}
        @for (i, tick) in x.ticks().into_iter().enumerate() {
            path class="grid" d=(format!("M{} {}V{}", at(x.place(tick)), at(rows), at(bottom + 4.0))) {}
            text class=(if i % 2 == 1 { "tick second" } else { "tick" }) x=(at(x.place(tick))) y=(at(bottom + 22.0)) text-anchor="middle" {
                (axis::tick(tick, x.decimals()))
            }
        }
        path class="bound" d=(format!("M{} {}V{}", at(zero), at(rows), at(bottom + 4.0))) {}
        @for (i, effect) in group.effects.iter().enumerate() { (draw_effect(effect, group, rows + ROW * i as f64, &x)) }
    }
}

fn draw_effect(effect: &Effect, group: &EffectGroup, top: f64, x: &Scale) -> Markup {
    let style = match effect.tone(group.better) {
        Tone::Good => "span o-met",
        Tone::Bad => "span o-missed",
        _ => "span o-none",
    };
    let place = |v: f64| x.place(group.unit.scaled(v));
    let line = top + 36.0;
    let [value, low, high] = effect.shown(group.unit);
    html! {
        g {
            text class="halo" x=(at(LEFT)) y=(at(top + 18.0)) { (fmt::one_line(&effect.name, 34)) }
            text class="tick halo" x=(at(RIGHT)) y=(at(top + 18.0)) text-anchor="end" {
                (value)
                @if effect.low.is_some() || effect.high.is_some() { " [" (low) ", " (high) "]" }
                " n=" (fmt::count(effect.n))
            }
            @if let (Some(low), Some(high)) = (effect.low, effect.high) {
                path class=(style) d=(format!("M{} {}H{}", at(place(low)), at(line), at(place(high).max(place(low) + 0.5)))) {}
            }
            circle class="dot" cx=(at(place(effect.value))) cy=(at(line)) r="5.5" {}
        }
    }
}

fn told(group: &EffectGroup) -> String {
    let each = group.effects.iter().map(|e| {
        let [value, low, high] = e.shown(group.unit);
        let interval = if e.low.is_some() || e.high.is_some() { format!(" [{low}, {high}]") } else { String::new() };
        format!("{} {value}{interval}, n={}", e.name, fmt::count(e.n))
    });
    let unit = if group.unit.head().is_empty() { String::new() } else { format!(", {}", group.unit.head()) };
    format!("{}{unit}: {}.", group.name, each.collect::<Vec<_>>().join("; "))
}

fn numbers(groups: &[EffectGroup]) -> Table {
    let mut table = Table::new("", "effect on").words("of").words("unit").numbers(["difference", "low", "high", "n"]);
    for group in groups {
        for effect in &group.effects {
            let [value, low, high] = effect.shown(group.unit);
            let words = [effect.name.clone(), group.unit.head().to_owned()].map(Cell::from);
            let figure = Cell::from(value).tone(effect.tone(group.better));
            let rest = [low, high, fmt::count(effect.n)].map(Cell::from);
            table = table.row(group.name.clone(), words.into_iter().chain([figure]).chain(rest));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(better: Better, [value, low, high]: [f64; 3]) -> Picture {
        let effect = Effect { name: "all <b>".into(), value, low: Some(low), high: Some(high), n: 5 };
        Effects {
            title: "What changes".into(),
            note: String::new(),
            confidence: 0.95,
            groups: vec![EffectGroup { name: "goodput".into(), unit: Unit::PerSecond, better, effects: vec![effect] }],
        }
        .draw()
    }

    #[test]
    fn an_effect_is_better_or_worse_only_if_its_whole_interval_lies_on_one_side_of_zero() {
        let style = |better, ends| {
            let svg = effects(better, ends).svg("e").into_string();
            ["span o-met", "span o-missed", "span o-none"].into_iter().find(|s| svg.contains(s)).unwrap()
        };
        assert_eq!(style(Better::Higher, [8.25, 6.39, 8.86]), "span o-met");
        assert_eq!(style(Better::Lower, [8.25, 6.39, 8.86]), "span o-missed");
        assert_eq!(style(Better::Lower, [-8.25, -8.86, -6.39]), "span o-met");
        assert_eq!(style(Better::Higher, [-0.15, -0.42, 0.40]), "span o-none");
        assert_eq!(style(Better::Neither, [8.25, 6.39, 8.86]), "span o-none");
    }

    #[test]
    fn the_interval_is_drawn_where_its_numbers_are_and_told_in_words() {
        let picture = effects(Better::Higher, [8.25, 6.39, 8.86]);
        let svg = picture.svg("e").into_string();
        // A scale from 0 to 10 over 20..620.
        assert!(svg.contains("d=\"M403.4 66H551.6\"") && svg.contains("cx=\"515\""), "{svg}");
        assert_eq!(picture.alt, "goodput, /s: all <b> +8.25 [+6.39, +8.86], n=5.");
        assert!(!svg.contains("<b>"));
    }

    #[test]
    fn an_effect_without_an_interval_is_a_ring_and_decides_nothing() {
        let effect = Effect { name: "x".into(), value: 3.0, low: None, high: None, n: 1 };
        assert_eq!(effect.tone(Better::Higher), Tone::Neutral);
        let group = EffectGroup { name: "g".into(), unit: Unit::Millis, better: Better::Lower, effects: vec![effect] };
        let picture =
            Effects { title: String::new(), note: String::new(), confidence: 0.95, groups: vec![group] }.draw();
        assert!(picture.alt.contains("x +3.00, n=1."), "{}", picture.alt);
    }
}
