//! The distribution of the time to first token over all planned arrivals.

use std::collections::BTreeMap;

use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Span;
use maud::{Markup, html};

use super::axis::{Plot, horizontal, vertical};
use super::scale::Scale;
use super::{Drawn, Key, Picture, at, run_class};
use crate::account::Arrival;
use crate::doc::Table;
use crate::fmt;

const PLOT: Plot = Plot { left: 62.0, right: 568.0, top: 46.0, bottom: 326.0 };
const HEIGHT: f64 = 376.0;
/// The most limits that are drawn.
const MAX_LIMITS: usize = 4;
/// The most runs for which the share without an answer is marked in the picture.
const MAX_LACKS: usize = 2;
/// The least share, in percent, that is marked.
const LEAST_LACK: f64 = 15.0;
/// The room that the label of a limit takes.
const LABEL_WIDTH: f64 = 150.0;
/// The least distance between two labels.
const LABEL_HEIGHT: f64 = 19.0;

/// The share of all planned arrivals whose answer had begun after so much time. A run's line ends at the share
/// that was answered at all: what lacks to 100 % was rejected, failed or never sent.
pub(crate) fn ecdf(runs: &[Drawn]) -> Picture {
    let limits = limits(runs);
    let longest = runs.iter().filter_map(|d| d.run.arrivals().filter_map(answered).max());
    let longest = longest.map(Span::as_secs_f64).chain(limits.keys().map(|ns| seconds(*ns)));
    let x = Scale::new(longest.fold(0.0, f64::max), PLOT.left, PLOT.right, 6, true);
    let lines: Vec<Line> = runs.iter().map(|d| Line::of(d, &x, &limits)).collect();
    let y = Scale::new(100.0, PLOT.bottom, PLOT.top, 5, true);
    let body = html! {
        (vertical(PLOT, &y, "share of all planned arrivals", "%"))
        (horizontal(PLOT, &x, &format!("time to first token, from the planned arrival, s{}", scaled(runs))))
        @for (ns, name) in &limits {
            @let place = x.place(seconds(*ns));
            path class="slo" d=(format!("M{} {}V{}", at(place), at(PLOT.bottom), at(PLOT.top))) {}
            // At the right edge there is room on the left alone.
            @let (x, anchor) = if place > PLOT.right - LABEL_WIDTH { (place - 6.0, "end") } else { (place + 6.0, "start") };
            text class="tick halo" x=(at(x)) y=(at(PLOT.bottom - 9.0)) text-anchor=(anchor) { "limit " (fmt::duration(seconds(*ns) * 1e3)) (name) }
        }
        @for (i, line) in lines.iter().enumerate() {
            path class=(run_class(i)) d=(line.path(&x, &y)) {}
            @if lines.len() <= MAX_LACKS { (lack(line, i, &y)) }
        }
        @for (i, (line, place)) in lines.iter().zip(label_places(&lines, &y)).enumerate() {
            text class=(format!("end t{}", i % super::RUN_STYLES + 1)) x=(at(PLOT.right + 6.0)) y=(at(place + 4.5)) {
                (fmt::trimmed(line.share(line.answered), 1)) "%"
            }
        }
    };
    let told: Vec<String> = runs.iter().zip(&lines).map(|(d, l)| l.words(d, &limits)).collect();
    let keys = (0..).zip(runs).map(|(i, d)| Key::Run(i, d.label.clone()));
    let slo = (!limits.is_empty()).then_some(Key::line("slo", "TTFT limit of the SLO"));
    Picture {
        title: "How long until the first token, counted from the plan".into(),
        alt: told.join(" "),
        note: "Higher and further left is better. The figure at a line's end is the share that was answered in full; \
               the rest was rejected, failed or never sent, and has no latency."
            .into(),
        legend: keys.chain(slo).collect(),
        numbers: numbers(runs, &lines, &limits),
        height: HEIGHT,
        body,
    }
}

/// The share that was never answered, between the line's end and the whole.
fn lack(line: &Line, i: usize, y: &Scale) -> Markup {
    let share = line.share(line.answered);
    let (end, whole) = (y.place(share), y.place(100.0));
    let right = PLOT.right - 10.0 * i as f64;
    html! {
        @if share <= 100.0 - LEAST_LACK {
            path class=(format!("lack run{}", i % super::RUN_STYLES + 1)) d=(format!("M{r} {}V{}M{} {w}H{}", at(end), at(whole), at(right - 4.0), at(right + 4.0), r = at(right), w = at(whole))) {}
            // Two short lines, clear of the other run's curve.
            @let middle = f64::midpoint(end, whole);
            text class="tick halo" x=(at(right - 9.0)) y=(at(middle - 4.0)) text-anchor="end" { (fmt::trimmed(100.0 - share, 1)) "% never" }
            text class="tick halo" x=(at(right - 9.0)) y=(at(middle + 16.0)) text-anchor="end" { "answered" }
        }
    }
}

/// The time to first token of a completed answer.
fn answered(arrival: Arrival) -> Option<Span> {
    arrival.ttft().filter(|_| arrival.state == Terminal::Completed)
}

/// A run's line.
#[derive(Default)]
struct Line {
    /// Answers that had begun by each place of the scale, in tenths of a unit: so a long run is no longer to draw.
    steps: BTreeMap<u64, u64>,
    /// Answers that began within each limit.
    within: Vec<u64>,
    answered: u64,
    planned: u32,
}

impl Line {
    fn of(drawn: &Drawn, x: &Scale, limits: &BTreeMap<u64, String>) -> Self {
        let mut line =
            Self { within: vec![0; limits.len()], planned: drawn.summary.figures.planned, ..Self::default() };
        for ttft in drawn.run.arrivals().filter_map(answered) {
            line.add(ttft, x, limits);
        }
        line
    }

    fn add(&mut self, ttft: Span, x: &Scale, limits: &BTreeMap<u64, String>) {
        *self.steps.entry((x.place(ttft.as_secs_f64()) * 10.0).round() as u64).or_default() += 1;
        self.answered += 1;
        for (within, limit) in self.within.iter_mut().zip(limits.keys()) {
            *within += u64::from(ttft.as_nanos() <= *limit);
        }
    }

    /// So many arrivals as a percentage of the plan.
    fn share(&self, n: u64) -> f64 {
        100.0 * n as f64 / f64::from(self.planned.max(1))
    }

    fn path(&self, x: &Scale, y: &Scale) -> String {
        let mut path = format!("M{} {}", at(x.place(0.0)), at(y.place(0.0)));
        let mut so_far = 0;
        for (tenths, n) in &self.steps {
            so_far += n;
            path += &format!("H{}V{}", at(*tenths as f64 / 10.0), at(y.place(self.share(so_far))));
        }
        path + &format!("H{}", at(x.place(x.most())))
    }

    fn words(&self, drawn: &Drawn, limits: &BTreeMap<u64, String>) -> String {
        let mut parts: Vec<String> = limits
            .keys()
            .zip(&self.within)
            .map(|(ns, n)| format!("{:.1}% had their first token within {}", self.share(*n), shown(*ns)))
            .collect();
        parts.push(format!("{:.1}% were answered in full", self.share(self.answered)));
        let median = drawn.summary.figures.latencies.ttft.p50;
        parts.extend(median.map(|m| format!("the median of the answered is {}", fmt::duration(m))));
        format!("{}: of {} planned arrivals {}.", drawn.label, fmt::count(u64::from(self.planned)), parts.join(", "))
    }
}

fn shown(ns: u64) -> String {
    fmt::duration(seconds(ns) * 1e3)
}

fn numbers(runs: &[Drawn], lines: &[Line], limits: &BTreeMap<u64, String>) -> Table {
    let within = limits.keys().map(|ns| format!("first token within {}", shown(*ns)));
    let table = Table::new("", "run")
        .number("planned")
        .numbers(within)
        .numbers(["answered in full", "median TTFT of the answered"]);
    runs.iter().zip(lines).fold(table, |table, (d, line)| {
        let shares = line.within.iter().chain([&line.answered]).map(|n| format!("{:.1}%", line.share(*n)));
        let median = d.summary.figures.latencies.ttft.p50.map_or_else(|| fmt::MISSING.to_owned(), fmt::duration);
        let cells = [fmt::count(u64::from(line.planned))].into_iter().chain(shares).chain([median]);
        table.row(d.label.clone(), cells)
    })
}

/// The distinct TTFT limits in ns, with the tenants' names where there is more than one limit.
fn limits(runs: &[Drawn]) -> BTreeMap<u64, String> {
    let mut found: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for tenant in runs.iter().flat_map(|d| &d.run.manifest.plan.tenants) {
        if let Some(limit) = tenant.slo.ttft {
            let names = found.entry(limit.as_nanos()).or_default();
            if !names.contains(&tenant.name.as_str()) {
                names.push(&tenant.name);
            }
        }
    }
    let alone = found.len() == 1;
    let named = |names: &[&str]| format!(" ({})", fmt::one_line(&names.join(", "), 16));
    let all = found.into_iter().map(|(ns, names)| (ns, if alone { String::new() } else { named(&names) }));
    all.take(MAX_LIMITS).collect()
}

/// Where the labels at the ends go: beside their line, pushed down where two would overlap.
fn label_places(lines: &[Line], y: &Scale) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = lines.iter().map(|l| y.place(l.share(l.answered))).enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut places = vec![0.0; lines.len()];
    let mut free = f64::NEG_INFINITY;
    for (i, wanted) in order {
        places[i] = wanted.max(free);
        free = places[i] + LABEL_HEIGHT;
    }
    places
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// What to add to a unit of time if time was scaled.
pub(super) fn scaled(runs: &[Drawn]) -> &'static str {
    if runs.iter().any(|d| d.summary.time_scale != 1.0) { " of scaled time" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(spans: impl Iterator<Item = u64>, planned: u32, x: &Scale) -> Line {
        let limits = BTreeMap::from([(31_000_000_000, String::new())]);
        let mut line = Line { within: vec![0], planned, ..Line::default() };
        spans.for_each(|ms| line.add(Span::from_millis(ms), x, &limits));
        line
    }

    #[test]
    fn a_line_ends_at_the_share_that_was_answered_and_labels_do_not_overlap() {
        let (x, y) = (Scale::new(100.0, 0.0, 100.0, 5, true), Scale::new(100.0, 100.0, 0.0, 5, true));
        let line = |n: u64| line((0..n).map(|i| i * 1000), 100, &x);
        assert!(line(64).path(&x, &y).ends_with("H63V36H100"), "{}", line(64).path(&x, &y));
        assert_eq!(line(64).within, [32]);
        assert_eq!(label_places(&[line(50), line(64), line(50)], &y), [55.0, 36.0, 74.0]);
    }

    #[test]
    fn a_long_run_is_no_longer_to_draw() {
        let (x, y) = (Scale::new(100.0, 62.0, 620.0, 5, true), Scale::new(100.0, 322.0, 34.0, 5, true));
        let line = line((0..1_000_000).map(|i| i / 10), 1_000_000, &x);
        assert!(line.path(&x, &y).len() < 120_000, "{}", line.path(&x, &y).len());
    }
}
