//! What became of the arrivals of each moment, as rates over the window.

use maud::{Markup, html};

use super::axis::{Plot, horizontal, vertical};
use super::ecdf::scaled;
use super::scale::{Scale, round_step};
use super::{Drawn, Key, Picture, at};
use crate::class::Class;
use crate::doc::Table;
use crate::fmt;

const PLOT: Plot = Plot { left: 52.0, right: 630.0, top: 46.0, bottom: 236.0 };
const HEIGHT: f64 = 286.0;
/// The most columns and the fewest; each is a round number of seconds wide.
const MAX_COLUMNS: f64 = 20.0;
const MIN_COLUMNS: f64 = 4.0;
/// The arrivals that a column should hold on average, where the plan has that many.
const PER_COLUMN: f64 = 8.0;

/// One picture a run, all to the same scales: columns of arrivals by the time they were planned for.
pub(crate) fn rates(runs: &[Drawn]) -> Vec<Picture> {
    let columns: Vec<Vec<Column>> = runs.iter().map(columns).collect();
    let highest = columns.iter().flatten().map(|c| c.rate(c.offered())).fold(0.0, f64::max);
    let longest = runs.iter().map(|d| d.summary.window_s).fold(0.0, f64::max);
    let x = Scale::new(longest, PLOT.left, PLOT.right, 7, false);
    let y = Scale::new(highest, PLOT.bottom, PLOT.top, 5, true);
    runs.iter().zip(&columns).map(|(drawn, columns)| picture(drawn, columns, &x, &y, scaled(runs))).collect()
}

/// The arrivals that were planned within a stretch of the window.
#[derive(Debug, PartialEq)]
struct Column {
    from: f64,
    to: f64,
    classes: [u32; 5],
    admitted: u32,
}

impl Column {
    fn offered(&self) -> u32 {
        self.classes.iter().sum()
    }

    fn rate(&self, n: u32) -> f64 {
        f64::from(n) / (self.to - self.from)
    }
}

/// The window in stretches of equal, round length; the last one ends with the window.
fn columns(drawn: &Drawn) -> Vec<Column> {
    let window = drawn.summary.window_s;
    if window <= 0.0 {
        return Vec::new();
    }
    let wanted = f64::from(drawn.summary.figures.planned) / PER_COLUMN;
    let width = round_step(window / wanted.clamp(MIN_COLUMNS, MAX_COLUMNS));
    let count = (window / width - 1e-6).ceil().max(1.0) as u32;
    let empty = |i| Column {
        from: f64::from(i) * width,
        to: (f64::from(i + 1) * width).min(window),
        classes: [0; 5],
        admitted: 0,
    };
    let mut columns: Vec<Column> = (0..count).map(empty).collect();
    for arrival in drawn.run.arrivals() {
        // An arrival at the very end of the window belongs to its last stretch.
        let place = ((arrival.planned.as_nanos() as f64 / 1e9 / width) as usize).min(columns.len() - 1);
        columns[place].classes[Class::of(&arrival, &drawn.run.slo(&arrival)) as usize] += 1;
        columns[place].admitted += u32::from(arrival.admitted);
    }
    columns
}

fn picture(drawn: &Drawn, columns: &[Column], x: &Scale, y: &Scale, scaled: &str) -> Picture {
    let body = html! {
        (vertical(PLOT, y, "requests per second", ""))
        @for column in columns { (bar(column, x, y)) }
        (outline(columns, x, y, "offered", |c| c.rate(c.offered())))
        (outline(columns, x, y, "admitted", |c| c.rate(c.admitted)))
        (horizontal(PLOT, x, &format!("planned time of the arrival, s{scaled}")))
    };
    let used = |class: &Class| columns.iter().any(|c| c.classes[*class as usize] > 0);
    let width = columns.first().map_or(0.0, |c| c.to - c.from);
    Picture {
        title: format!("{}: offered, admitted and good per second", drawn.label),
        alt: alt(columns),
        note: format!("Arrivals stand at the time they were planned for, in steps of {} s.", fmt::trimmed(width, 3)),
        legend: Class::ALL
            .into_iter()
            .filter(used)
            .map(Key::Class)
            .chain([Key::line("offered", "offered"), Key::line("admitted", "admitted")])
            .collect(),
        numbers: numbers(columns),
        height: HEIGHT,
        body,
    }
}

/// The whole window and its halves, as single columns.
fn parts(columns: &[Column]) -> [(&'static str, Column); 3] {
    let (early, late) = columns.split_at(columns.len() / 2);
    let whole = |part: &[Column]| Column {
        from: part.first().map_or(0.0, |c| c.from),
        to: part.last().map_or(0.0, |c| c.to),
        classes: Class::ALL.map(|class| part.iter().map(|c| c.classes[class as usize]).sum()),
        admitted: part.iter().map(|c| c.admitted).sum(),
    };
    [("whole window", whole(columns)), ("first half", whole(early)), ("second half", whole(late))]
}

impl Column {
    fn cells(&self) -> [String; 5] {
        let good = self.classes[Class::Good as usize];
        let share = (self.offered() > 0).then(|| f64::from(good) / f64::from(self.offered()));
        let rate = |n: u32| fmt::rate(Some(self.rate(n)).filter(|r| r.is_finite()));
        [
            format!("{}–{}", fmt::trimmed(self.from, 3), fmt::trimmed(self.to, 3)),
            rate(self.offered()),
            rate(self.admitted),
            rate(good),
            fmt::percent(share),
        ]
    }
}

/// What the columns add up to, and how it went over the run.
fn alt(columns: &[Column]) -> String {
    let each = parts(columns).map(|(name, part)| {
        let [time, offered, admitted, good, share] = part.cells();
        format!("{name} ({time} s): {offered}/s offered, {admitted}/s admitted, {good}/s good, which is {share}.")
    });
    each.join(" ")
}

fn numbers(columns: &[Column]) -> Table {
    let rates = ["offered /s", "admitted /s", "good /s", "good of the offered"];
    let rest = [Class::Late, Class::Failed, Class::Rejected, Class::Unsent];
    let table = Table::new("", "stretch").number("s").numbers(rates).numbers(rest.map(|c| format!("{} /s", c.name())));
    let row = |column: &Column| {
        let rest = rest.map(|class| fmt::rate(Some(column.rate(column.classes[class as usize]))));
        column.cells().into_iter().chain(rest).collect::<Vec<_>>()
    };
    let table = parts(columns).iter().fold(table, |table, (name, part)| table.row(*name, row(part)));
    columns.iter().fold(table, |table, column| table.row("", row(column)))
}

fn bar(column: &Column, x: &Scale, y: &Scale) -> Markup {
    let (left, right) = (x.place(column.from) + 0.75, x.place(column.to) - 0.75);
    let mut below = 0;
    html! {
        g {
            title {
                (fmt::trimmed(column.from, 3)) "–" (fmt::trimmed(column.to, 3)) " s: "
                (fmt::trimmed(column.rate(column.offered()), 2)) "/s offered"
                @for class in Class::ALL {
                    @let n = column.classes[class as usize];
                    @if n > 0 { ", " (fmt::trimmed(column.rate(n), 2)) " " (class.name()) }
                }
            }
            @for class in Class::ALL {
                @let n = column.classes[class as usize];
                @if n > 0 {
                    @let (bottom, top) = (y.place(column.rate(below)), y.place(column.rate(below + n)));
                    @let () = below += n;
                    rect class=(format!("c-{}", class.name())) x=(at(left)) y=(at(top)) width=(at((right - left).max(0.5)))
                        height=(at(bottom - top)) {}
                }
            }
        }
    }
}

/// A line of steps over the columns.
fn outline(columns: &[Column], x: &Scale, y: &Scale, style: &str, value: impl Fn(&Column) -> f64) -> Markup {
    let mut path = String::new();
    for (i, c) in columns.iter().enumerate() {
        let place = y.place(value(c));
        path += &if i == 0 { format!("M{} {}", at(x.place(c.from)), at(place)) } else { format!("V{}", at(place)) };
        path += &format!("H{}", at(x.place(c.to)));
    }
    html! { path class=(style) d=(path) {} }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Summary, fixture};

    #[test]
    fn columns_hold_every_arrival_once_and_add_up_to_the_summary() {
        for run in fixture::pair() {
            let run = crate::Account::of(&run);
            let summary = Summary::of_account(&run);
            let columns = columns(&Drawn { label: "x".into(), run: &run, summary: &summary });
            let total = |class: Class| columns.iter().map(|c| c.classes[class as usize]).sum::<u32>();
            assert_eq!(columns.iter().map(Column::offered).sum::<u32>(), 200);
            assert_eq!(total(Class::Good), summary.figures.good);
            assert_eq!(total(Class::Rejected), summary.figures.rejected);
            assert_eq!(columns.iter().map(|c| c.admitted).sum::<u32>(), summary.figures.admitted);
            assert_eq!((columns.len(), columns[0].to, columns[12].to), (13, 1.0, 12.5));
        }
    }

    #[test]
    fn an_arrival_at_the_end_of_the_window_is_in_the_last_column() {
        let mut run = fixture::mixed();
        run.rows[7].planned = fixture::ms(4000);
        let run = crate::Account::of(&run);
        let summary = Summary::of_account(&run);
        let columns = columns(&Drawn { label: "x".into(), run: &run, summary: &summary });
        assert_eq!((columns.len(), columns[3].to), (4, 4.0));
        assert_eq!(columns[3].classes, [0, 0, 1, 0, 1]);
    }
}
