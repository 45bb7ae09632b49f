//! How long each arrival waited for what became of it: a distribution for each outcome, with the limit.

use std::collections::BTreeSet;

use elasticserve_core::time::Span;
use maud::{Markup, html};

use super::axis::{Plot, horizontal, vertical};
use super::ecdf::scaled;
use super::scale::{Scale, round_step};
use super::{Drawn, Key, Picture, at};
use crate::account::Arrival;
use crate::class::Class;
use crate::doc::Table;
use crate::fmt;
use crate::quantile::Distribution;

const PLOT: Plot = Plot { left: 72.0, right: 622.0, top: 46.0, bottom: 236.0 };
const HEIGHT: f64 = 286.0;
/// Columns over the time; the last holds what lies beyond.
const COLUMNS: f64 = 25.0;
/// The most limits that are drawn.
const MAX_LIMITS: usize = 4;

/// One picture a run, all to the same scale of time: arrivals by the time until their first token, or until they
/// were turned away or failed, stacked by class.
pub(crate) fn latency(runs: &[Drawn]) -> Vec<Picture> {
    let limits: BTreeSet<Span> =
        runs.iter().flat_map(|d| &d.run.manifest.plan.tenants).filter_map(|t| t.slo.ttft).collect();
    let told: Vec<[Distribution; 5]> = runs.iter().map(distributions).collect();
    // A few that hung until a timeout do not stretch the picture: they are in the last column.
    let reach = |d: &Distribution| d.p95.or(d.max).unwrap_or(0.0);
    let longest = told.iter().flatten().map(reach).chain(limits.iter().map(|l| l.as_millis_f64())).fold(0.0, f64::max);
    let width = round_step((longest / 1e3 / (COLUMNS - 1.0)).max(1e-6));
    let x = Scale::new(width * COLUMNS, PLOT.left, PLOT.right, 7, false);
    let columns: Vec<Vec<[u32; 5]>> = runs.iter().map(|d| columns(d, width)).collect();
    let highest = columns.iter().flatten().map(|c| c.iter().sum::<u32>()).max().unwrap_or(0);
    let y = Scale::new(f64::from(highest), PLOT.bottom, PLOT.top, 5, true);
    let picture = |((d, columns), told): ((&Drawn, &Vec<[u32; 5]>), &[Distribution; 5])| Picture {
        title: format!("{}: how long until what became of it", d.label),
        alt: alt(told),
        note: format!(
            "Good and late: until the first token; rejected and failed: until the end; all from the planned time, in \
             steps of {} s. The last column holds all that took longer.",
            fmt::trimmed(width, 4)
        ),
        legend: legend(d, !limits.is_empty()),
        numbers: numbers(told),
        height: HEIGHT,
        body: html! {
            (vertical(PLOT, &y, "arrivals", ""))
            @for (i, column) in columns.iter().enumerate() { (bar(column, i as f64 * width, width, &x, &y)) }
            @for limit in limits.iter().take(MAX_LIMITS) {
                @let place = x.place(limit.as_secs_f64());
                path class="slo" d=(format!("M{} {}V{}", at(place), at(PLOT.bottom), at(PLOT.top))) {}
            }
            (horizontal(PLOT, &x, &format!("time from the planned arrival, s{}", scaled(runs))))
        },
    };
    runs.iter().zip(&columns).zip(&told).map(picture).collect()
}

/// What an arrival waited for: its first token, or its end where it got none in time or at all.
fn waited(arrival: &Arrival, class: Class) -> Option<Span> {
    match class {
        Class::Good | Class::Late => arrival.ttft(),
        Class::Rejected | Class::Failed => arrival.e2e(),
        Class::Unsent => None,
    }
}

fn waits<'a>(d: &'a Drawn) -> impl Iterator<Item = (Class, Span)> + 'a {
    d.run.arrivals().filter_map(|a| {
        let class = Class::of(&a, &d.run.slo(&a));
        Some((class, waited(&a, class)?))
    })
}

fn distributions(d: &Drawn) -> [Distribution; 5] {
    Class::ALL.map(|class| Distribution::of(waits(d).filter(|w| w.0 == class).map(|w| w.1)))
}

fn columns(d: &Drawn, width: f64) -> Vec<[u32; 5]> {
    let mut columns = vec![[0; 5]; COLUMNS as usize];
    for (class, span) in waits(d) {
        let place = ((span.as_secs_f64() / width) as usize).min(columns.len() - 1);
        columns[place][class as usize] += 1;
    }
    columns
}

fn bar(column: &[u32; 5], from: f64, width: f64, x: &Scale, y: &Scale) -> Markup {
    let (left, right) = (x.place(from) + 0.75, x.place(from + width) - 0.75);
    let mut below = 0;
    html! {
        @for class in Class::ALL {
            @let n = column[class as usize];
            @if n > 0 {
                @let (bottom, top) = (y.place(f64::from(below)), y.place(f64::from(below + n)));
                @let () = below += n;
                rect class=(format!("c-{}", class.name())) x=(at(left)) y=(at(top)) width=(at((right - left).max(0.5))) height=(at(bottom - top)) {
                    title { (fmt::count(u64::from(n))) " " (class.name()) ", " (fmt::trimmed(from, 4)) " s and more" }
                }
            }
        }
    }
}

fn legend(d: &Drawn, limited: bool) -> Vec<Key> {
    let used = |class: &Class| *class != Class::Unsent && super::outcomes::of(&d.summary.figures, *class) > 0;
    let slo = limited.then(|| Key::line("slo", "TTFT limit of the SLO"));
    Class::ALL.into_iter().filter(used).map(Key::Class).chain(slo).collect()
}

fn cells(d: &Distribution) -> Vec<String> {
    let ms = |v: Option<f64>| v.map_or_else(|| fmt::MISSING.to_owned(), fmt::duration);
    std::iter::once(fmt::count(d.n as u64)).chain([d.p50, d.p95, d.p99, d.max].map(ms)).collect()
}

fn shown(told: &[Distribution; 5]) -> impl Iterator<Item = (Class, &Distribution)> {
    Class::ALL.into_iter().zip(told).filter(|(_, d)| d.n > 0)
}

fn alt(told: &[Distribution; 5]) -> String {
    let each = shown(told).map(|(class, d)| {
        let cells = cells(d);
        format!(
            "{} {}: half within {}, 95% within {}, {} at most.",
            cells[0],
            class.name(),
            cells[1],
            cells[2],
            cells[4]
        )
    });
    let told: Vec<String> = each.collect();
    if told.is_empty() { "No arrival has a time.".to_owned() } else { told.join(" ") }
}

fn numbers(told: &[Distribution; 5]) -> Table {
    let table = Table::new("", "class").numbers(["n", "p50", "p95: 95% within", "p99", "at most"]);
    shown(told).fold(table, |table, (class, d)| table.row(class.name(), cells(d)))
}
