//! Requests over time: as many as were declared, and as many as were sent.

use std::collections::BTreeMap;

use maud::html;

use super::axis::{Plot, horizontal, vertical};
use super::scale::Scale;
use super::{Key, Picture, at};
use crate::doc::Table;
use crate::fmt;

const PLOT: Plot = Plot { left: 62.0, right: 600.0, top: 46.0, bottom: 256.0 };
const HEIGHT: f64 = 306.0;

/// Sends over time, against the rate that was declared.
pub(crate) struct Offered<'a> {
    /// Whose sends.
    pub(crate) label: &'a str,
    /// When each was sent, ascending, in seconds from the first.
    pub(crate) times: Vec<f64>,
    /// Requests per second that were declared.
    pub(crate) rate: Option<f64>,
    /// Arrivals that were declared.
    pub(crate) arrivals: Option<f64>,
}

/// How many had been sent at each time, beside how many should have been.
pub(crate) fn offered(sends: &Offered) -> Picture {
    let last = sends.times.last().copied().unwrap_or(0.0);
    let due = sends.rate.zip(sends.arrivals).map(|(rate, n)| n / rate);
    let n = sends.times.len() as f64;
    let x = Scale::new(last.max(due.unwrap_or(0.0)), PLOT.left, PLOT.right, 7, true);
    // Without a number of arrivals the declared rate goes on to the end.
    let declared = sends.rate.map(|rate| (due.unwrap_or(last), rate * due.unwrap_or(last)));
    let y = Scale::new(n.max(declared.map_or(0.0, |d| d.1)), PLOT.bottom, PLOT.top, 5, true);
    let body = html! {
        (vertical(PLOT, &y, "requests so far", ""))
        (horizontal(PLOT, &x, "time since the first send, s"))
        @if let Some((until, all)) = declared {
            path class="window" d=(format!("M{} {}L{} {}", at(x.place(0.0)), at(y.place(0.0)), at(x.place(until)), at(y.place(all)))) {}
        }
        path class="run run1" d=(steps(&sends.times, &x, &y)) {}
    };
    let told = declared.map_or_else(String::new, |(until, all)| {
        format!(" Declared were {} in {} s.", fmt::trimmed(all, 0), fmt::trimmed(until, 1))
    });
    let mut numbers = Table::new("", "requests").numbers(["n", "until, s"]);
    numbers = numbers.row("sent", [fmt::count(n as u64), fmt::trimmed(last, 1)]);
    if let Some((until, all)) = declared {
        numbers = numbers.row("declared", [fmt::trimmed(all, 0), fmt::trimmed(until, 1)]);
    }
    Picture {
        title: format!("{}: what was declared and what was sent", fmt::one_line(sends.label, 40)),
        alt: format!("{} requests were sent in {} s.{told}", fmt::count(n as u64), fmt::trimmed(last, 1)),
        note: "Where the solid line lies below the dashed one, requests came late or not at all.".into(),
        legend: vec![Key::Run(0, "sent".into()), Key::line("window", "declared, on average")],
        numbers,
        height: HEIGHT,
        body,
    }
}

/// One step a send, none narrower than a tenth of a unit.
fn steps(times: &[f64], x: &Scale, y: &Scale) -> String {
    let mut places: BTreeMap<u64, u32> = BTreeMap::new();
    for (n, time) in (1u32..).zip(times) {
        places.insert((x.place(*time) * 10.0).round() as u64, n);
    }
    let mut path = format!("M{} {}", at(x.place(0.0)), at(y.place(0.0)));
    for (tenths, n) in places {
        path += &format!("H{}V{}", at(tenths as f64 / 10.0), at(y.place(f64::from(n))));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_ends_at_the_last_send_and_the_declared_one_where_it_should_have() {
        let times = (0..24).map(|i| f64::from(i) * 0.5).collect();
        let picture = offered(&Offered { label: "x", times, rate: Some(20.0), arrivals: Some(160.0) });
        assert_eq!(picture.alt, "24 requests were sent in 11.5 s. Declared were 160 in 8 s.");
        let unknown = offered(&Offered { label: "x", times: vec![0.0], rate: None, arrivals: None });
        assert_eq!(unknown.alt, "1 requests were sent in 0 s.");
        let long: Vec<f64> = (0..1_000_000).map(f64::from).collect();
        let scale = Scale::new(1e6, 62.0, 600.0, 5, true);
        assert!(steps(&long, &scale, &scale).len() < 100_000, "a long run is no longer to draw");
    }
}
