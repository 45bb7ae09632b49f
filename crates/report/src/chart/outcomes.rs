//! What became of all planned arrivals: one bar a run, the whole plan long.

use maud::html;

use super::{Drawn, Key, Picture, WIDTH, at};
use crate::class::Class;
use crate::doc::Table;
use crate::fmt;
use crate::summary::Figures;

const LEFT: f64 = 4.0;
/// The height of all rows together, where they fit it.
const HEIGHT: f64 = 360.0;
/// The height of a row without its bar: the name above, the counts below.
const AROUND: f64 = 64.0;
/// The most characters of a run's name above its bar.
const LABEL: usize = 32;
/// The room that a character of a label takes on a small screen.
const CHARACTER: f64 = 11.0;

/// One bar for each run, split by class.
pub(crate) fn outcomes(runs: &[Drawn]) -> Picture {
    let full = WIDTH - 2.0 * LEFT;
    let row = (HEIGHT / runs.len().max(1) as f64).clamp(86.0, 140.0);
    let bar = row - AROUND;
    let body = html! {
        @for (i, drawn) in runs.iter().enumerate() {
            @let f = &drawn.summary.figures;
            @let top = i as f64 * row;
            text class="name" x=(at(LEFT)) y=(at(top + 20.0)) { (fmt::one_line(&drawn.label, LABEL)) }
            text class="name" x=(at(WIDTH - LEFT)) y=(at(top + 20.0)) text-anchor="end" {
                (fmt::percent(f.attainment)) " good"
            }
            @for (class, n, before) in parts(f) {
                @let x = LEFT + full * f64::from(before) / f64::from(f.planned);
                @let width = full * f64::from(n) / f64::from(f.planned);
                @let label = format!("{} {}", fmt::count(u64::from(n)), class.name());
                rect class=(format!("c-{}", class.name())) x=(at(x)) y=(at(top + 29.0)) width=(at(width)) height=(at(bar)) {}
                @if width > label.len() as f64 * CHARACTER {
                    text x=(at(x)) y=(at(top + 29.0 + bar + 19.0)) { (label) }
                }
            }
        }
    };
    let used = |class: &Class| runs.iter().any(|d| of(&d.summary.figures, *class) > 0);
    let told: Vec<String> = runs.iter().map(|d| format!("{}: {}", d.label, words(&d.summary.figures))).collect();
    Picture {
        title: "What became of every planned arrival".into(),
        alt: format!("{}.", told.join(". ")),
        note: "Each bar is the whole plan: nothing is left out of it.".into(),
        legend: Class::ALL.into_iter().filter(used).map(Key::Class).collect(),
        numbers: numbers(runs),
        height: runs.len() as f64 * row,
        body,
    }
}

fn numbers(runs: &[Drawn]) -> Table {
    let table = Table::new("", "run").number("planned").numbers(Class::ALL.map(Class::name));
    runs.iter().fold(table, |table, d| {
        let f = &d.summary.figures;
        let classes = Class::ALL.map(|class| fmt::part(of(f, class), f.planned));
        table.row(d.label.clone(), [fmt::count(u64::from(f.planned))].into_iter().chain(classes))
    })
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
