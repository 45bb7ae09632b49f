//! What became of all planned arrivals: one bar a run, the whole plan long.

use maud::html;

use super::{Drawn, Key, Picture, WIDTH, at};
use crate::class::Class;
use crate::fmt;
use crate::summary::Figures;

const LEFT: f64 = 4.0;
const ROW: f64 = 74.0;
const BAR: f64 = 34.0;
/// The narrowest part of a bar that is labelled inside.
const ROOM: f64 = 84.0;

/// One bar for each run, split by class.
pub(crate) fn outcomes(runs: &[Drawn]) -> Picture {
    let full = WIDTH - 2.0 * LEFT;
    let body = html! {
        @for (i, drawn) in runs.iter().enumerate() {
            @let f = &drawn.summary.figures;
            @let top = i as f64 * ROW + 4.0;
            text class="name" x=(at(LEFT)) y=(at(top + 15.0)) { (drawn.label) }
            text class="value" x=(at(WIDTH - LEFT)) y=(at(top + 15.0)) text-anchor="end" {
                (fmt::percent(f.attainment)) " good"
            }
            @for (class, n, before) in parts(f) {
                @let x = LEFT + full * f64::from(before) / f64::from(f.planned);
                @let width = full * f64::from(n) / f64::from(f.planned);
                rect class=(format!("c-{}", class.name())) x=(at(x)) y=(at(top + 24.0)) width=(at(width)) height=(at(BAR)) {}
                @if width > ROOM {
                    text class="on-bar" x=(at(x + width / 2.0)) y=(at(top + 46.0)) text-anchor="middle" {
                        (fmt::count(u64::from(n))) " " (class.name())
                    }
                }
            }
        }
    };
    let used = |class: &Class| runs.iter().any(|d| of(&d.summary.figures, *class) > 0);
    let told: Vec<String> = runs.iter().map(|d| format!("{}: {}", d.label, words(&d.summary.figures))).collect();
    Picture {
        title: "What became of every planned arrival".into(),
        desc: format!("{}.", told.join(". ")),
        note: "Each bar is the whole plan: nothing is left out of it.".into(),
        legend: Class::ALL.into_iter().filter(used).map(Key::Class).collect(),
        height: runs.len() as f64 * ROW,
        body,
    }
}

pub(super) fn of(f: &Figures, class: Class) -> u32 {
    match class {
        Class::Good => f.good,
        Class::Late => f.late,
        Class::Failed => f.failed,
        Class::Rejected => f.rejected,
        Class::Unsent => f.unsent,
    }
}

/// The classes that occur, how often, and how many arrivals lie before them in the bar.
fn parts(f: &Figures) -> Vec<(Class, u32, u32)> {
    let mut before = 0;
    let mut parts = Vec::new();
    for class in Class::ALL {
        let n = of(f, class);
        if n > 0 {
            parts.push((class, n, before));
        }
        before += n;
    }
    parts
}

fn words(f: &Figures) -> String {
    let named: Vec<String> =
        parts(f).iter().map(|(class, n, _)| format!("{} {}", fmt::part(*n, f.planned), class.name())).collect();
    named.join(", ")
}
