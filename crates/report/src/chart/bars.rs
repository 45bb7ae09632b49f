//! Figures of groups as bars beside each other, such as the attainment of each tenant in each run.

use maud::{Markup, html};

use super::axis;
use super::scale::Scale;
use super::{Key, Mark, Picture, RUN_STYLES, at};
use crate::doc::{Cell, Table};
use crate::fmt;
use crate::unit::Unit;

const LEFT: f64 = 8.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 8.0;
const NAME: f64 = 26.0;
const BAR: f64 = 20.0;
const GAP: f64 = 10.0;
const AXIS: f64 = 46.0;
/// The most bars that are drawn; what is beyond is in the table of numbers.
pub const MAX_BARS: usize = 60;

/// A bar for each series in each group, from 0.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The caption.
    pub title: String,
    /// What the bars show, along the axis.
    pub label: String,
    /// Their unit.
    pub unit: Unit,
    /// The names of the series, such as runs.
    pub series: Vec<String>,
    /// The groups, such as tenants.
    pub groups: Vec<BarGroup>,
    /// A level to hold them against, and what it means.
    pub reference: Option<(f64, String)>,
    /// What a reader needs to read it.
    pub note: String,
}

/// The bars of a group.
#[derive(Clone, Debug)]
pub struct BarGroup {
    /// What the group is.
    pub name: String,
    /// A bar for each series; `None` where there is no figure.
    pub bars: Vec<Option<Bar>>,
}

/// A figure.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its value, not below 0.
    pub value: f64,
    /// An interval or a spread.
    pub ends: Option<[f64; 2]>,
    /// Values that it is made of.
    pub n: u64,
}

impl Bars {
    /// The picture.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let shown = &self.groups[..self.drawn()];
        let values = || shown.iter().flat_map(|g| g.bars.iter().flatten());
        let ends = values().filter_map(|b| b.ends).flatten();
        let largest = values().map(|b| b.value).chain(ends).chain(self.reference.iter().map(|r| r.0));
        let largest = largest.map(|v| self.unit.scaled(v)).fold(0.0, f64::max);
        let x = Scale::new(if self.unit == Unit::Share { 100.0 } else { largest }, LEFT, RIGHT, 5, true);
        let height = |g: &BarGroup| NAME + BAR * g.bars.len() as f64 + GAP;
        let bottom = TOP + shown.iter().map(height).sum::<f64>();
        let mut top = TOP;
        let mut parts = Vec::new();
        for group in shown {
            parts.push(self.group(group, top, &x));
            top += height(group);
        }
        let plot = axis::Plot { left: LEFT, right: RIGHT, top: TOP, bottom };
        let reference = self.reference.as_ref().map(|(v, _)| x.place(self.unit.scaled(*v)));
        let left_out = self.groups.len() - shown.len();
        let note = if left_out > 0 {
            format!("{left_out} more are in the table alone. {}", self.note)
        } else {
            self.note.clone()
        };
        let series = self.series.iter().enumerate();
        let keys = series.filter(|_| self.series.len() > 1).map(|(i, name)| Key::Mark(Mark::bar(i), name.clone()));
        Picture {
            title: self.title.clone(),
            alt: self.alt(),
            note: note.trim_end().to_owned(),
            legend: keys.chain(self.reference.iter().map(|(_, meaning)| Key::line("slo", meaning))).collect(),
            numbers: self.numbers(),
            height: bottom + AXIS,
            body: html! {
                @for tick in x.ticks() {
                    path class="grid" d=(format!("M{} {}V{}", at(x.place(tick)), at(TOP), at(bottom))) {}
                }
                @for part in parts { (part) }
                @if let Some(place) = reference { path class="slo" d=(format!("M{} {}V{}", at(place), at(TOP), at(bottom))) {} }
                (axis::horizontal(plot, &x, &self.axis_label()))
            },
        }
    }

    fn axis_label(&self) -> String {
        if self.unit.head().is_empty() { self.label.clone() } else { format!("{}, {}", self.label, self.unit.head()) }
    }

    /// How many groups are drawn.
    fn drawn(&self) -> usize {
        (MAX_BARS / self.series.len().max(1)).clamp(1, self.groups.len().max(1)).min(self.groups.len())
    }

    fn group(&self, group: &BarGroup, top: f64, x: &Scale) -> Markup {
        html! {
            text class="halo end" x=(at(LEFT)) y=(at(top + 18.0)) { (fmt::one_line(&group.name, 48)) }
            @for (i, bar) in group.bars.iter().enumerate() {
                @let y = top + NAME + BAR * i as f64;
                @if let Some(bar) = bar {
                    @let end = x.place(self.unit.scaled(bar.value));
                    g {
                        title { (self.series.get(i).map_or("", String::as_str)) ", " (group.name) ": " (self.text(bar.value)) }
                        rect class=(format!("bar k{}", i % RUN_STYLES + 1)) x=(at(LEFT)) y=(at(y + 2.0)) width=(at((end - LEFT).max(0.5))) height=(BAR - 5.0) {}
                        @if let Some([low, high]) = bar.ends {
                            path class="whisker" d=(format!("M{} {}H{}", at(x.place(self.unit.scaled(low))), at(y + BAR / 2.0), at(x.place(self.unit.scaled(high))))) {}
                        }
                    }
                    @let far = bar.ends.map_or(end, |e| end.max(x.place(self.unit.scaled(e[1]))));
                    text class="tick halo" x=(at(far + 6.0)) y=(at(y + 15.0)) { (self.text(bar.value)) }
                } @else {
                    text class="tick" x=(at(LEFT + 4.0)) y=(at(y + 15.0)) { (fmt::MISSING) }
                }
            }
        }
    }

    fn text(&self, value: f64) -> String {
        self.unit.text(value)
    }

    fn alt(&self) -> String {
        let group = |g: &BarGroup| {
            let each = g.bars.iter().enumerate().map(|(i, bar)| {
                let value = bar.map_or_else(|| fmt::MISSING.to_owned(), |b| self.text(b.value));
                match self.series.get(i) {
                    Some(name) if self.series.len() > 1 => format!("{name} {value}"),
                    _ => value,
                }
            });
            format!("{}: {}.", g.name, each.collect::<Vec<_>>().join(", "))
        };
        let shown: Vec<String> = self.groups[..self.drawn()].iter().map(group).collect();
        let reference =
            self.reference.as_ref().map_or_else(String::new, |(v, meaning)| format!(" {meaning}: {}.", self.text(*v)));
        format!("{}. {}{reference}", self.label, shown.join(" "))
    }

    fn numbers(&self) -> Table {
        let spread = self.groups.iter().flat_map(|g| &g.bars).flatten().any(|b| b.ends.is_some());
        let mut table = Table::new("", "of").words("series").number(self.axis_label());
        if spread {
            table = table.numbers(["low", "high"]);
        }
        table = table.number("n");
        let missing = || Cell::from(fmt::MISSING);
        for group in &self.groups {
            for (i, bar) in group.bars.iter().enumerate() {
                let mut cells: Vec<Cell> = vec![self.series.get(i).cloned().unwrap_or_default().into()];
                cells.push(bar.map_or_else(missing, |b| self.text(b.value).into()));
                if spread {
                    let ends = bar.and_then(|b| b.ends);
                    cells.extend([0, 1].map(|i| ends.map_or_else(missing, |e| self.text(e[i]).into())));
                }
                cells.push(bar.map_or_else(missing, |b| fmt::count(b.n).into()));
                table = table.row(group.name.clone(), cells);
            }
        }
        if let Some((value, meaning)) = &self.reference {
            table = table.row(meaning.clone(), [String::new(), self.text(*value)]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(groups: usize) -> Bars {
        let bar = |value| Some(Bar { value, ends: None, n: 100 });
        let group = |i: usize| BarGroup {
            name: format!("tenant <{i}>"),
            bars: vec![bar(0.16), if i == 0 { bar(0.64) } else { None }],
        };
        Bars {
            title: "Attainment of each tenant".into(),
            label: "good answers of those planned".into(),
            unit: Unit::Share,
            series: vec!["direct".into(), "gateway".into()],
            groups: (0..groups).map(group).collect(),
            reference: Some((0.95, "target".into())),
            note: String::new(),
        }
    }

    #[test]
    fn a_bar_is_as_long_as_its_share_and_a_missing_one_is_a_dash() {
        let picture = bars(2).draw();
        let svg = picture.svg("b").into_string();
        // A scale from 0 to 100 over 552 units.
        assert!(svg.contains("width=\"88.3\"") && svg.contains("width=\"353.3\""), "{svg}");
        assert_eq!(
            picture.alt,
            "good answers of those planned. tenant <0>: direct 16.0%, gateway 64.0%. tenant <1>: direct 16.0%, gateway –. target: 95.0%."
        );
        assert_eq!(picture.numbers.rows[3].cells[1].text, "–");
        assert!(!svg.contains("<0>"));
    }

    #[test]
    fn more_groups_than_can_be_drawn_are_said_to_be_in_the_table() {
        let picture = bars(200).draw();
        assert!(picture.note.starts_with("170 more are in the table alone."), "{}", picture.note);
        assert_eq!(picture.numbers.rows.len(), 401);
    }
}
