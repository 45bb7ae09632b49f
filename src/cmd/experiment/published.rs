//! Figures and effects that somebody has measured, beside those of the experiment.

use std::collections::BTreeMap;

use elasticserve_core::sim::Figures;
use elasticserve_core::sim::reproduce::{Column, Rule};
use elasticserve_core::stats::median;
use elasticserve_core::stats::resample::{Bootstrap, Percentile, Statistic};
use serde::Serialize;

use super::design::{Workload, Wrong};
use super::measure::Measured;
use super::raw::{RawEffect, RawPublished};

/// What was measured elsewhere, checked against the arms and workloads of the experiment.
pub(super) struct Published {
    pub(super) source: String,
    figures: Vec<PublishedRun>,
    effects: Vec<PublishedEffects>,
}

struct PublishedRun {
    workload: usize,
    arm: usize,
    seed: Option<u64>,
    values: Vec<(Column, f64)>,
}

struct PublishedEffects {
    workload: usize,
    arm: usize,
    values: Vec<(String, Change, RawEffect)>,
}

/// A published value beside the measured one.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Beside {
    pub(super) workload: String,
    pub(super) arm: String,
    /// The seed, of a figure of one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<u64>,
    pub(super) name: String,
    /// Pairs, of an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pairs: Option<usize>,
    pub(super) published: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) published_interval: Option<[f64; 2]>,
    pub(super) measured: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured_interval: Option<[f64; 2]>,
    /// A share of the published value where `relative`, else a difference.
    pub(super) deviation: Option<f64>,
    pub(super) relative: bool,
    /// Whether it is within what the engine model is held to; absent where it is held to nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) within: Option<bool>,
}

/// What an effect is made of: figures without and with the change.
enum Change {
    Difference { column: Column, scale: f64 },
    Ratio(Column),
    Lowest,
    Tenant(usize),
}

impl Published {
    pub(super) fn checked(raw: RawPublished, names: &(Vec<&str>, Vec<&Workload>)) -> Result<Self, Wrong> {
        let (arms, workloads) = names;
        let figures = raw.figures.into_iter().enumerate().map(|(i, row)| {
            let key = format!("published.figures[{i}]");
            let value = |(name, value): (String, f64)| {
                let column = Column::from_name(&name);
                let unknown = || format!("{key}.values.{name}: no such figure; there are: {}", Column::names());
                Ok((column.ok_or_else(unknown)?, value))
            };
            Ok(PublishedRun {
                workload: workload(&key, row.workload.as_deref(), workloads)?,
                arm: arm(&key, row.arm.as_deref(), arms, 0)?,
                seed: row.seed,
                values: row.values.into_iter().map(value).collect::<Result<_, Wrong>>()?,
            })
        });
        let figures = figures.collect::<Result<_, Wrong>>()?;
        let effects = raw.effects.into_iter().enumerate().map(|(i, row)| {
            let key = format!("published.effects[{i}]");
            let workload = workload(&key, row.workload.as_deref(), workloads)?;
            let arm = arm(&key, row.arm.as_deref(), arms, 1)?;
            if arm == 0 {
                return Err(format!("{key}.arm: the baseline has no effect against itself"));
            }
            let tenants = tenants(workloads[workload]);
            let value = |(name, effect): (String, RawEffect)| {
                let change = Change::named(&name, &tenants).map_err(|e| format!("{key}.values.{name}: {e}"))?;
                Ok((name, change, effect))
            };
            let values = row.values.into_iter().map(value).collect::<Result<_, Wrong>>()?;
            Ok(PublishedEffects { workload, arm, values })
        });
        let effects = effects.collect::<Result<_, Wrong>>()?;
        Ok(Self { source: raw.source, figures, effects })
    }

    /// Each published value beside what the runs say.
    pub(super) fn beside(&self, runs: &[&Measured], arms: &[String], workloads: &[&Workload]) -> Vec<Beside> {
        let mut all = Vec::new();
        for row in &self.figures {
            let workload = workloads[row.workload];
            let seed = |run: &Measured| workload.plans.get(run.place.seed).map(|(seed, _)| *seed);
            let of: Vec<&&Measured> = runs
                .iter()
                .filter(|r| (r.place.workload, r.place.arm) == (row.workload, row.arm))
                .filter(|r| row.seed.is_none() || seed(r) == row.seed)
                .collect();
            // A run of a seed that was left out on the command line is no deviation.
            if of.is_empty() {
                continue;
            }
            let requests = workload.plans.first().map_or(0, |(_, plan)| plan.header().count);
            for (column, published) in &row.values {
                let values: Vec<f64> = of.iter().filter_map(|r| column.of(&r.counted)).collect();
                let rule = column.rule(requests, tenants(workload).len() > 1);
                let names = (workload.name.clone(), arms[row.arm].clone());
                all.push(figure(names, row.seed, (*column, rule), *published, median(&values)));
            }
        }
        for row in &self.effects {
            let pairs = pairs(runs, row.workload, row.arm);
            if pairs.is_empty() {
                continue;
            }
            for (name, change, effect) in &row.values {
                let values: Vec<f64> = pairs.iter().filter_map(|(a, b)| change.of(&a.counted, &b.counted)).collect();
                let names = (workloads[row.workload].name.clone(), arms[row.arm].clone());
                all.push(effect_beside(names, name, effect, &values));
            }
        }
        all
    }
}

/// The runs of the baseline and of an arm, of each seed of a workload that has both.
pub(super) fn pairs<'a>(runs: &[&'a Measured], workload: usize, arm: usize) -> Vec<(&'a Measured, &'a Measured)> {
    let side = |arm: usize| -> BTreeMap<usize, &'a Measured> {
        let of = runs.iter().filter(|r| (r.place.workload, r.place.arm) == (workload, arm));
        of.map(|r| (r.place.seed, *r)).collect()
    };
    let (without, with) = (side(0), side(arm));
    without.into_iter().filter_map(|(seed, run)| Some((run, *with.get(&seed)?))).collect()
}

/// The median of paired differences with the interval of the percentile bootstrap, which is what was published.
pub(super) fn median_and_interval(values: &[f64]) -> (Option<f64>, Option<[f64; 2]>) {
    let interval = Bootstrap::default().percentile(values, Statistic::Median, 0.95);
    (median(values), interval.map(|Percentile { low, high, .. }| [low, high]))
}

pub(super) fn tenants(workload: &Workload) -> Vec<String> {
    let header = workload.plans.first().map(|(_, plan)| plan.header());
    header.into_iter().flat_map(|h| h.tenants.iter().map(|t| t.name.clone())).collect()
}

fn figure(
    (workload, arm): (String, String),
    seed: Option<u64>,
    (column, rule): (Column, Rule),
    published: f64,
    measured: Option<f64>,
) -> Beside {
    let held = rule.tolerance().is_some();
    Beside {
        workload,
        arm,
        seed,
        name: column.name(),
        pairs: None,
        published,
        published_interval: None,
        measured,
        measured_interval: None,
        deviation: measured.map(|m| rule.error(published, m)),
        relative: matches!(rule, Rule::Relative(_)),
        within: measured.filter(|_| held).map(|m| rule.holds(published, m)),
    }
}

/// An effect is held by its sign, or where its published interval holds 0 and so tells none, to that interval.
fn effect_beside((workload, arm): (String, String), name: &str, effect: &RawEffect, values: &[f64]) -> Beside {
    let published_interval = effect.low.zip(effect.high).map(|(low, high)| [low, high]);
    let (measured, measured_interval) = median_and_interval(values);
    let rule = match published_interval {
        Some([low, high]) if low <= 0.0 && high >= 0.0 => Rule::Within(low, high),
        _ => Rule::Sign,
    };
    Beside {
        workload,
        arm,
        seed: None,
        name: name.to_owned(),
        pairs: Some(values.len()),
        published: effect.median,
        published_interval,
        measured,
        measured_interval,
        deviation: measured.map(|m| m - effect.median),
        relative: false,
        within: measured.map(|m| rule.holds(effect.median, m)),
    }
}

impl Change {
    fn named(name: &str, tenants: &[String]) -> Result<Self, String> {
        if name == "lowest_attainment_points" && tenants.len() > 1 {
            return Ok(Self::Lowest);
        }
        let tenant = name.strip_suffix("_attainment_points");
        if let Some(place) = tenants.iter().position(|t| Some(t.as_str()) == tenant) {
            return Ok(Self::Tenant(place));
        }
        if let Some(column) = name.strip_suffix("_ratio").and_then(Column::from_name) {
            return Ok(Self::Ratio(column));
        }
        let (stem, scale) = match (name.strip_suffix("_points"), name.strip_suffix("_reduction")) {
            (Some(stem), _) => (stem, 100.0),
            (None, Some(stem)) => (stem, -1.0),
            (None, None) => (name, 1.0),
        };
        let column = Column::from_name(stem).ok_or_else(|| {
            format!(
                "no such effect; write a figure ({}), with _points for shares, _reduction for what shrinks, _ratio, or \
                 TENANT_attainment_points or lowest_attainment_points",
                Column::names()
            )
        })?;
        Ok(Self::Difference { column, scale })
    }

    fn of(&self, without: &Figures, with: &Figures) -> Option<f64> {
        let lowest = |f: &Figures| f.tenant_attainments().into_iter().flatten().min_by(f64::total_cmp);
        let tenant = |f: &Figures, place: usize| f.tenant_attainments().get(place).copied().flatten();
        match self {
            Self::Difference { column, scale } => Some((column.of(with)? - column.of(without)?) * scale),
            Self::Ratio(column) => Some(column.of(with)? / column.of(without).filter(|v| *v != 0.0)?),
            Self::Lowest => Some((lowest(with)? - lowest(without)?) * 100.0),
            Self::Tenant(place) => Some((tenant(with, *place)? - tenant(without, *place)?) * 100.0),
        }
    }
}

fn workload(key: &str, name: Option<&str>, workloads: &[&Workload]) -> Result<usize, Wrong> {
    match name {
        Some(name) => workloads
            .iter()
            .position(|w| w.name == name)
            .ok_or_else(|| format!("{key}.workload: no workload is called '{name}'")),
        None if workloads.len() == 1 => Ok(0),
        None => Err(format!("{key}.workload: which of the {}?", workloads.len())),
    }
}

/// The place of an arm; where none is named, the only one from `first` on.
fn arm(key: &str, name: Option<&str>, arms: &[&str], first: usize) -> Result<usize, Wrong> {
    match name {
        Some(name) => {
            arms.iter().position(|a| *a == name).ok_or_else(|| format!("{key}.arm: no arm is called '{name}'"))
        }
        None if arms.len() == first + 1 => Ok(first),
        None => Err(format!("{key}.arm: which of the {}?", arms.len())),
    }
}
