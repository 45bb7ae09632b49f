//! Throughput, goodput and attainment over the offered rate.

use maud::{Markup, html};

use super::axis::{Plot, horizontal, vertical};
use super::scale::Scale;
use super::{Key, Picture, RUN_STYLES, at, run_class};
use crate::fmt;
use crate::sweep::{MAX_LINES, SweepLine, SweepPage, SweepPoint};

const PLOT: Plot = Plot { left: 52.0, right: 630.0, top: 46.0, bottom: 296.0 };
const HEIGHT: f64 = 346.0;
const MARK: f64 = 3.5;
const KNEE: f64 = 8.0;

/// A figure over the offered rate.
struct Panel {
    title: &'static str,
    label: &'static str,
    unit: &'static str,
    /// From a point to what is drawn: mean, low and high.
    value: fn(&SweepPoint) -> Option<[f64; 3]>,
    /// The line that a perfect server would follow, or that has to be kept.
    ideal: Ideal,
}

#[derive(Copy, Clone)]
enum Ideal {
    /// As much as is offered.
    Offered,
    /// The target attainment, in percent.
    Target(f64),
}

/// The three pictures of a sweep.
pub(crate) fn sweep(sweep: &SweepPage) -> Vec<Picture> {
    let panels = [
        Panel {
            title: "Goodput over offered rate",
            label: "good answers per second",
            unit: "",
            value: |p| Some(p.goodput),
            ideal: Ideal::Offered,
        },
        Panel {
            title: "Attainment over offered rate",
            label: "good answers of those offered",
            unit: "%",
            value: |p| Some(p.attainment.map(|share| share * 100.0)),
            ideal: Ideal::Target(sweep.target * 100.0),
        },
        Panel {
            title: "Throughput over offered rate",
            label: "completions per second, good or late",
            unit: "",
            value: |p| p.throughput,
            ideal: Ideal::Offered,
        },
    ];
    let lines = &sweep.lines[..sweep.lines.len().min(MAX_LINES)];
    panels.iter().map(|panel| picture(panel, lines, sweep.target)).collect()
}

fn picture(panel: &Panel, lines: &[SweepLine], target: f64) -> Picture {
    let points = || lines.iter().flat_map(|line| &line.points);
    let fastest = points().map(|p| p.rate).fold(0.0, f64::max);
    let highest = points().filter_map(panel.value).map(|[_, _, high]| high).fold(0.0, f64::max);
    let x = Scale::new(fastest * 1.02, PLOT.left, PLOT.right, 8, false);
    let y = match panel.ideal {
        Ideal::Offered => Scale::new(highest, PLOT.bottom, PLOT.top, 6, true),
        Ideal::Target(_) => Scale::new(100.0, PLOT.bottom, PLOT.top, 5, true),
    };
    let body = html! {
        (vertical(PLOT, &y, panel.label, panel.unit))
        (ideal(panel.ideal, &x, &y))
        @for (place, line) in lines.iter().enumerate() { (curve(place, line, panel, &x, &y)) }
        (horizontal(PLOT, &x, "offered requests per second"))
    };
    let name = |line: &SweepLine| match line.knee {
        Some(rate) => format!("{} (knee {}/s)", line.name, fmt::trimmed(rate, 2)),
        None => format!("{} (no knee)", line.name),
    };
    let runs = lines.iter().enumerate().map(|(place, line)| Key::Run(place, name(line)));
    let last = match panel.ideal {
        Ideal::Offered => Key::Line("window", "as much as is offered"),
        Ideal::Target(_) => Key::Line("slo", "target"),
    };
    Picture {
        title: panel.title.to_owned(),
        desc: lines.iter().map(|line| described(line, panel)).collect::<Vec<_>>().join(" "),
        note: format!(
            "Lines join the means over the seeds, bars reach from the smallest to the largest. A ring marks the knee: \
             the highest offered rate up to which, at every rate of the sweep, on average at least {} of all that was \
             offered got a good answer.",
            fmt::trimmed(target * 100.0, 1) + "%"
        ),
        legend: runs.chain([last]).collect(),
        height: HEIGHT,
        body,
    }
}

fn described(line: &SweepLine, panel: &Panel) -> String {
    let values = line.points.iter().filter_map(|p| Some((p.rate, (panel.value)(p)?[0])));
    let told: Vec<String> = values
        .map(|(rate, value)| format!("{}{} at {}/s", fmt::trimmed(value, 2), panel.unit, fmt::trimmed(rate, 2)))
        .collect();
    format!("{}: {}.", line.name, told.join(", "))
}

fn ideal(ideal: Ideal, x: &Scale, y: &Scale) -> Markup {
    let (style, to) = match ideal {
        Ideal::Offered => {
            let end = x.most().min(y.most());
            ("window", format!("M{} {}L{} {}", at(x.place(0.0)), at(y.place(0.0)), at(x.place(end)), at(y.place(end))))
        }
        Ideal::Target(percent) => ("slo", format!("M{} {}H{}", at(PLOT.left), at(y.place(percent)), at(PLOT.right))),
    };
    html! { path class=(style) d=(to) {} }
}

fn curve(place: usize, line: &SweepLine, panel: &Panel, x: &Scale, y: &Scale) -> Markup {
    let drawn: Vec<(f64, [f64; 3])> = line.points.iter().filter_map(|p| Some((p.rate, (panel.value)(p)?))).collect();
    let join = |(i, (rate, [mean, ..])): (usize, &(f64, [f64; 3]))| {
        format!("{}{} {}", if i == 0 { "M" } else { "L" }, at(x.place(*rate)), at(y.place(*mean)))
    };
    let path: String = drawn.iter().enumerate().map(join).collect();
    let colour = format!("fill:var(--run{})", place % RUN_STYLES + 1);
    html! {
        path class=(run_class(place)) d=(path) {}
        @for (rate, [mean, low, high]) in &drawn {
            @let (cx, cy) = (x.place(*rate), y.place(*mean));
            g {
                title {
                    (line.name) " at " (fmt::trimmed(*rate, 2)) "/s: " (fmt::trimmed(*mean, 2)) (panel.unit)
                    " (" (fmt::trimmed(*low, 2)) " to " (fmt::trimmed(*high, 2)) ")"
                }
                path class="axis" d=(format!("M{} {}V{}", at(cx), at(y.place(*low)), at(y.place(*high)))) {}
                // Styles repeat after a few lines; the shape of the marks keeps those apart.
                @if place < RUN_STYLES {
                    circle cx=(at(cx)) cy=(at(cy)) r=(MARK) style=(colour) {}
                } @else {
                    rect x=(at(cx - MARK)) y=(at(cy - MARK)) width=(2.0 * MARK) height=(2.0 * MARK) style=(colour) {}
                }
                @if line.knee == Some(*rate) {
                    circle class="offered" cx=(at(cx)) cy=(at(cy)) r=(KNEE) {
                        title { (line.name) ": knee at " (fmt::trimmed(*rate, 2)) "/s" }
                    }
                }
            }
        }
    }
}
