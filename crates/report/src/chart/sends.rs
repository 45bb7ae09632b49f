//! Arrivals planned and sent over time: whether the load was offered as planned.

use std::collections::BTreeMap;

use elasticserve_core::time::Tick;
use maud::html;

use super::axis::{Plot, horizontal, vertical};
use super::ecdf::scaled;
use super::scale::Scale;
use super::{Drawn, Key, Picture, at, run_class};
use crate::doc::Table;
use crate::fmt;

const PLOT: Plot = Plot { left: 72.0, right: 622.0, top: 46.0, bottom: 236.0 };
const HEIGHT: f64 = 286.0;

/// How many had been planned and how many sent by each time, a line for each run. Runs of one plan share its line.
pub(crate) fn sends(runs: &[Drawn]) -> Picture {
    let ends = runs.iter().flat_map(|d| d.run.arrivals()).map(|a| a.send_started.unwrap_or(a.planned)).max();
    let x = Scale::new(ends.map_or(0.0, seconds), PLOT.left, PLOT.right, 7, true);
    let most = runs.iter().map(|d| d.run.len()).max().unwrap_or(0) as f64;
    let y = Scale::new(most, PLOT.bottom, PLOT.top, 5, true);
    let mut plans: Vec<&Drawn> = Vec::new();
    for drawn in runs {
        if !plans.iter().any(|d| d.summary.plan_hash == drawn.summary.plan_hash) {
            plans.push(drawn);
        }
    }
    let body = html! {
        (vertical(PLOT, &y, "requests so far", ""))
        (horizontal(PLOT, &x, &format!("time since the start of the run, s{}", scaled(runs))))
        @for (i, d) in runs.iter().enumerate() {
            path class=(run_class(i)) d=(steps(d.run.arrivals().filter_map(|a| a.send_started), &x, &y)) {}
        }
        @for d in &plans { path class="plan" d=(steps(d.run.arrivals().map(|a| a.planned), &x, &y)) {} }
    };
    let keys = runs.iter().enumerate().map(|(i, d)| Key::Run(i, format!("{}: sent", d.label)));
    Picture {
        title: "Arrivals planned and sent".to_owned(),
        alt: runs.iter().map(told).collect::<Vec<_>>().join(" "),
        note: "Where a line lies below the dotted one, requests were sent late or not at all.".to_owned(),
        legend: keys.chain([Key::line("plan", "planned")]).collect(),
        numbers: numbers(runs),
        height: HEIGHT,
        body,
    }
}

/// One step for each place of the scale in tenths of a unit, so that a long run is no longer to draw.
fn steps(times: impl Iterator<Item = Tick>, x: &Scale, y: &Scale) -> String {
    let mut places: BTreeMap<u64, u64> = BTreeMap::new();
    for time in times {
        *places.entry((x.place(seconds(time)) * 10.0).round() as u64).or_default() += 1;
    }
    let mut path = format!("M{} {}", at(x.place(0.0)), at(y.place(0.0)));
    let mut so_far = 0;
    for (tenths, n) in places {
        so_far += n;
        path += &format!("H{}V{}", at(tenths as f64 / 10.0), at(y.place(so_far as f64)));
    }
    path
}

fn cells(d: &Drawn) -> [String; 5] {
    let f = &d.summary.figures;
    let lag = |ms: Option<f64>| ms.map_or_else(|| fmt::MISSING.to_owned(), |ms| format!("{} ms", fmt::ms(Some(ms))));
    let [planned, sent, unsent] = [f.planned, f.sent, f.unsent].map(|n| fmt::count(u64::from(n)));
    [planned, sent, unsent, lag(d.summary.send_lag.p99), lag(d.summary.send_lag.max)]
}

fn told(d: &Drawn) -> String {
    let [planned, sent, unsent, p99, max] = cells(d);
    format!(
        "{}: {planned} planned, {sent} sent, {unsent} not sent; sends began {p99} after their time at p99 and {max} at most.",
        d.label
    )
}

fn numbers(runs: &[Drawn]) -> Table {
    let table = Table::new("", "run").numbers(["planned", "sent", "not sent", "send lag p99", "send lag at most"]);
    runs.iter().fold(table, |table, d| table.row(d.label.clone(), cells(d)))
}

fn seconds(t: Tick) -> f64 {
    t.as_nanos() as f64 / 1e9
}
