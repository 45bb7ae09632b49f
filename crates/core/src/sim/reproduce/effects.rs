//! What a change did, over pairs of runs of the same arrivals.

use std::collections::BTreeMap;

use super::cases::Case;
use super::column::{Column, Rule};
use super::published::{Effect, Published};
use super::report::{Cell, held};
use crate::sim::Figures;
use crate::stats::quantile;

/// The median effects that were published: intervals over five pairs are wide, and a single pair's effect
/// may be a matter of three requests.
///
/// An effect is held by its sign. Where its published interval holds 0, the measurements do not tell the
/// sign, and the simulated effect has to lie in that interval.
pub(super) fn effects(published: &Published, runs: &[(&Case, &Figures)]) -> Vec<Cell> {
    let tenants: Vec<&str> = published.tenants.iter().map(|t| t.name.as_str()).collect();
    let admission = |name: &str| admission_change(name);
    let order = |name: &str| order_change(name, &tenants);
    let mut cells = medians("admission_effects", "admission_pairs", &published.admission_effects, runs, &admission);
    cells.extend(medians("queue_order_effects", "queue_order_pairs", &published.queue_order_effects, runs, &order));
    cells
}

/// From the figures without and with the change to its effect.
type Change = Box<dyn Fn(&Figures, &Figures) -> Option<f64>>;

fn medians(
    group: &'static str,
    pairs: &str,
    published: &BTreeMap<String, Effect>,
    runs: &[(&Case, &Figures)],
    change: &dyn Fn(&str) -> Option<Change>,
) -> Vec<Cell> {
    let pairs = sides(pairs, runs);
    if pairs.is_empty() {
        return Vec::new();
    }
    let cell = |(name, effect): (&String, &Effect)| {
        let Effect::Median { median, low, high } = effect else { return None };
        let rule = match low.zip(*high) {
            Some((low, high)) if low <= 0.0 && high >= 0.0 => Rule::Within(low, high),
            _ => Rule::Sign,
        };
        let change = change(name)?;
        let mut effects: Vec<f64> = pairs.iter().filter_map(|(without, with)| change(without, with)).collect();
        effects.sort_by(f64::total_cmp);
        Some(held(group, format!("{group}/median"), name.clone(), *median, quantile(&effects, 0.5), rule))
    };
    published.iter().filter_map(cell).collect()
}

/// The figures without and with the change, of each pair of which both are there.
fn sides<'a>(group: &str, runs: &[(&Case, &'a Figures)]) -> Vec<(&'a Figures, &'a Figures)> {
    let mut pairs: BTreeMap<&str, [Option<&Figures>; 2]> = BTreeMap::new();
    for (case, figures) in runs.iter().filter(|(case, _)| case.group == group) {
        if let Some((pair, changed)) = &case.side {
            pairs.entry(pair).or_default()[usize::from(*changed)] = Some(figures);
        }
    }
    pairs.into_values().filter_map(|[without, with]| without.zip(with)).collect()
}

fn difference(column: Column, scale: f64) -> Change {
    Box::new(move |without, with| Some((column.of(with)? - column.of(without)?) * scale))
}

fn admission_change(name: &str) -> Option<Change> {
    match name {
        "goodput_gain" => Some(difference(Column::Goodput, 1.0)),
        "attainment_gain_points" => Some(difference(Column::Attainment, 100.0)),
        "ttft_p95_reduction_ms" => Some(difference(Column::Ttft(95), -1.0)),
        "e2e_p95_reduction_ms" => Some(difference(Column::E2e(95), -1.0)),
        _ => None,
    }
}

fn order_change(name: &str, tenants: &[&str]) -> Option<Change> {
    let lowest = |f: &Figures| f.tenant_attainments().into_iter().flatten().min_by(f64::total_cmp);
    match name {
        "goodput" => Some(difference(Column::Goodput, 1.0)),
        "attainment_points" => Some(difference(Column::Attainment, 100.0)),
        "jain" => Some(difference(Column::Jain, 1.0)),
        "min_tenant_attainment_points" => {
            Some(Box::new(move |without, with| Some((lowest(with)? - lowest(without)?) * 100.0)))
        }
        _ => {
            let place = tenants.iter().position(|tenant| name.strip_suffix("_points") == Some(tenant))?;
            let of = move |f: &Figures| f.tenant_attainments().get(place).copied().flatten();
            Some(Box::new(move |without, with| Some((of(with)? - of(without)?) * 100.0)))
        }
    }
}
