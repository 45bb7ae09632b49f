//! The tables that text and page share, so that both show the same numbers.

use super::figure::percent;
use super::sentence::p_value;
use super::{Comparison, Effect, Effects, Finding, Level, More, Side};
use crate::doc::{Cell, Table, Tone};
use crate::fmt::{self, MISSING, one_line};
use crate::unit::Unit;

/// The effects on figures of all arrivals.
pub(super) fn overall(all: &Effects) -> Table {
    effects(
        all,
        &all.effects.iter().filter(|e| e.figure.tenant.is_none()).collect::<Vec<_>>(),
        "All arrivals",
        "figure",
    )
}

/// Those on figures of tenants; no rows if there are none.
pub(super) fn tenants(all: &Effects) -> Table {
    effects(all, &all.effects.iter().filter(|e| e.figure.tenant.is_some()).collect::<Vec<_>>(), "Tenants", "figure")
}

fn effects(all: &Effects, which: &[&Effect], title: &str, corner: &str) -> Table {
    let [base, changed] = [&all.base, &all.changed].map(|name| one_line(name, 24));
    // Both sides may be called alike, as two folders of one name are.
    let [base, changed] = if base == changed { ["without".to_owned(), "with".to_owned()] } else { [base, changed] };
    // Said once where it is the same for all.
    let reached = |e: &&Effect| Some(e.difference.interval?.confidence);
    let first = which.iter().find_map(&reached).unwrap_or(all.confidence);
    let common = if which.iter().filter_map(&reached).all(|c| c == first) { first } else { all.confidence };
    let interval = format!("{} interval", percent(common));
    let table = Table::new(title, corner)
        .numbers([base, changed, "difference".to_owned(), interval])
        .numbers(["ratio", "pairs"])
        .words("says");
    which.iter().fold(table, |table, e| {
        let values = e.unit.of_values();
        let value = |level: &Level| level.median.map_or_else(|| MISSING.to_owned(), |v| values.text(v));
        let differences = e.unit.of_differences();
        let shown = e.difference.median.map_or_else(|| MISSING.to_owned(), |d| differences.signed(d));
        let ratio = e.ratio.and_then(|r| r.median).map_or_else(|| MISSING.to_owned(), |r| Unit::Plain(2).text(r));
        let cells: [Cell; 7] = [
            value(&e.base).into(),
            value(&e.changed).into(),
            shown.into(),
            interval_of(e, common).into(),
            ratio.into(),
            fmt::count(e.n as u64).into(),
            Cell::from(says(e)).tone(tone(e.finding)),
        ];
        table.row(e.figure.label(), cells)
    })
}

/// An interval; with its confidence where it is another than the column's.
fn interval_of(e: &Effect, common: f64) -> String {
    let Some(i) = e.difference.interval else { return MISSING.to_owned() };
    let bounds = bounds(e.unit.of_differences(), i.low, i.high);
    if i.confidence != common { format!("{bounds} ({})", percent(i.confidence)) } else { bounds }
}

fn bootstrap_of(e: &Effect) -> String {
    e.difference.bootstrap.map_or_else(|| MISSING.to_owned(), |i| bounds(e.unit.of_differences(), i.low, i.high))
}

fn bounds(unit: Unit, low: f64, high: f64) -> String {
    let decimals = unit.decimals(&[low, high]);
    let [low, high] = [low, high].map(|v| unit.signed_number(v, decimals));
    format!("{low} to {high}")
}

fn says(e: &Effect) -> String {
    match e.finding {
        Finding::Better => "better".to_owned(),
        Finding::Worse => "worse".to_owned(),
        Finding::Higher => "higher".to_owned(),
        Finding::Lower => "lower".to_owned(),
        Finding::NoDifference => "no difference shown".to_owned(),
        Finding::Undecided => format!("undecided: {}", more(e)),
    }
}

fn more(e: &Effect) -> String {
    match e.more {
        Some(More::Pairs(n)) => fmt::counted(n, "more pair"),
        Some(More::MoreThan(n)) => format!("over {} more pairs", fmt::count(u64::from(n))),
        None => MISSING.to_owned(),
    }
}

const fn tone(finding: Finding) -> Tone {
    match finding {
        Finding::Better => Tone::Good,
        Finding::Worse => Tone::Bad,
        Finding::Higher | Finding::Lower | Finding::NoDifference | Finding::Undecided => Tone::Neutral,
    }
}

/// How much the pairs differ among each other, and what so many of them can show.
pub(super) fn spread(all: &Effects) -> Table {
    let table = Table::new("Spread and reach", "figure").numbers([
        "by bootstrap",
        "mean",
        "deviation",
        "quartiles",
        "smallest shown",
        "margin",
        "sign p",
        "order p",
        "drift p",
    ]);
    all.effects.iter().filter(|e| e.n > 0).fold(table, |table, e| {
        let unit = e.unit.of_differences();
        let size = |v: Option<f64>| v.map_or_else(|| MISSING.to_owned(), |v| unit.text(v));
        let p = |p: Option<f64>| p.map_or_else(|| MISSING.to_owned(), p_value);
        let mean = e.mean.map_or_else(|| MISSING.to_owned(), |m| unit.signed(m.value));
        let cells = [
            bootstrap_of(e),
            mean,
            size(e.deviation),
            size(e.quartile_range),
            size(e.detectable),
            size(Some(e.margin)),
            p(e.sign_p),
            p(e.order.changed_first.map(|t| t.p)),
            p(e.order.by_pair.map(|t| t.p)),
        ];
        table.row(e.figure.label(), cells)
    })
}

/// The pairs, in their order, with what they say of the figure in question.
pub(super) fn pairs(all: &Effects, of: &[(Option<f64>, Option<f64>)]) -> Table {
    let Some(effect) = all.effect(&all.figure) else { return Table::default() };
    let table = Table::new(format!("Pairs: {}", effect.figure.label()), "pair").numbers([
        one_line(&all.base, 24),
        one_line(&all.changed, 24),
        "difference".to_owned(),
        "ran first".to_owned(),
    ]);
    let rows = all.pairs.iter().zip(&all.first).zip(of);
    rows.fold(table, |table, ((name, first), (base, changed))| {
        let value = |v: Option<f64>| v.map_or_else(|| MISSING.to_owned(), |v| effect.unit.of_values().text(v));
        let difference = base.zip(*changed).map(|(b, c)| effect.unit.of_differences().signed(c - b));
        let first = match first {
            Some(Side::Base) => one_line(&all.base, 24),
            Some(Side::Changed) => one_line(&all.changed, 24),
            None => "not known".to_owned(),
        };
        let cells = [value(*base), value(*changed), difference.unwrap_or_else(|| MISSING.to_owned()), first];
        table.row(one_line(name, 40), cells)
    })
}

/// What could have been served in time at all.
pub(super) fn ceilings(of: &Comparison) -> Table {
    let table = Table::new("What an idle engine could have served in time", "arrivals").numbers([
        "planned",
        "feasible",
        "share",
        "lowest pair",
        "highest pair",
    ]);
    of.ceilings.iter().fold(table, |table, c| {
        let share = fmt::percent(Some(f64::from(c.feasible) / f64::from(c.planned)));
        let [low, high] = c.range.map(|s| fmt::percent(Some(s)));
        let counts = [c.planned, c.feasible].map(|n| fmt::count(u64::from(n)));
        let [planned, feasible] = counts;
        let name = c.tenant.as_ref().map_or_else(|| "all".to_owned(), |t| one_line(t, 40));
        table.row(name, [planned, feasible, share, low, high])
    })
}

/// In what the manifests differ.
pub(super) fn differences(of: &Comparison) -> Table {
    let table = Table::new("What differs", "field of the manifest")
        .words(one_line(&of.effects.base, 24))
        .words(one_line(&of.effects.changed, 24));
    of.differences.iter().fold(table, |table, d| table.row(one_line(&d.key, 40), [d.base.clone(), d.changed.clone()]))
}
