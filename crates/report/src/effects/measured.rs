//! What is kept of a run to compare it with another.

use elasticserve_core::engine::Profile;
use elasticserve_core::ledger::Manifest;
use serde::Serialize;

use super::{Figure, Kind, Values};
use crate::check::Latency;
use crate::quantile::Distribution;
use crate::summary::{Figures, Summary};
use crate::{Account, Class, Run};

/// A run without its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What tells it from the others of its side: the name of its folder.
    pub name: String,
    /// What was run.
    pub manifest: Manifest,
    /// Its place among all runs of both sides, in the order in which they were made, where the wall clock does not tell
    /// it.
    pub place: Option<u32>,
    /// Its figures.
    pub values: Values,
    /// Why it says nothing about the server; empty for a valid run.
    pub invalid: Vec<String>,
    /// Which share of the prompt tokens came from the prefix cache, where the server says so.
    pub cached: Option<f64>,
    /// Which arrivals could have been served in time at all; empty without a profile.
    pub ceilings: Vec<Ceiling>,
}

/// How many arrivals an idle engine could have served within their limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ceiling {
    /// Of which tenant; `None` for all arrivals.
    pub tenant: Option<String>,
    /// Arrivals.
    pub planned: u32,
    /// Those whose limits an idle engine keeps. No policy can answer more in time.
    pub feasible: u32,
    /// Good answers among the others, which show the profile to be slower than the engine.
    pub good_beyond: u32,
    /// Good answers among the feasible ones.
    pub good: u32,
}

impl Measured {
    /// What is kept of a run whose rows are at hand.
    #[must_use]
    pub fn of(name: &str, run: &Run, idle: Option<&Profile>) -> Self {
        Self::of_account(name, &Account::of(run), idle)
    }

    /// What is kept of a run. `idle` is the engine, whose profile tells which limits could be kept; it is in real time.
    #[must_use]
    pub fn of_account(name: &str, run: &Account, idle: Option<&Profile>) -> Self {
        let summary = Summary::of_account(run);
        let mut values = values(&summary);
        let ceilings = idle.map(|profile| ceilings(run, &profile.sped_up(run.manifest.time_scale)));
        let ceilings = ceilings.filter(|_| summary.complete).unwrap_or_default();
        for ceiling in ceilings.iter().filter(|c| c.feasible > 0) {
            let figure = Figure { tenant: ceiling.tenant.clone(), kind: Kind::FeasibleAttainment };
            values.insert(figure, f64::from(ceiling.good) / f64::from(ceiling.feasible));
        }
        let incomplete = (!summary.complete).then(|| "rows are missing, so it has no figures".to_owned());
        Self {
            name: name.to_owned(),
            manifest: run.manifest.clone(),
            place: None,
            values,
            invalid: incomplete.into_iter().chain(summary.problems).chain(summary.invalid_because).collect(),
            cached: summary.cached.filter(|c| c.input_tokens > 0).map(|c| c.tokens as f64 / c.input_tokens as f64),
            ceilings,
        }
    }
}

/// When a run was made, for comparing it with others of its kind: by the wall clock, else by its place. Manifests
/// write their times in UTC with the same digits, so that the order of the texts is that of the times.
pub(super) fn made(run: &Measured) -> Option<(Option<&str>, Option<u32>)> {
    let started = run.manifest.started.as_deref();
    (started.is_some() || run.place.is_some()).then_some((started, run.place))
}

/// The figures of a run that effects are told of; those that it lacks are not in it.
#[must_use]
pub fn values(summary: &Summary) -> Values {
    let mut out = Values::new();
    let mut put = |figure: Figure, value: Option<f64>| {
        if let Some(value) = value {
            out.insert(figure, value);
        }
    };
    let all = Figure::all;
    let f = &summary.figures;
    put(all(Kind::Attainment), f.attainment);
    put(all(Kind::Goodput), f.goodput_per_s);
    put(all(Kind::Throughput), summary.completed_per_s);
    put(all(Kind::Rejected), share(summary, f, f.rejected));
    put(all(Kind::Failed), share(summary, f, f.failed));
    let latencies =
        [(Latency::Ttft, &f.latencies.ttft), (Latency::Tpot, &f.latencies.tpot), (Latency::E2e, &f.latencies.e2e)];
    for (of, distribution) in latencies {
        for (p, value) in quantiles(distribution) {
            put(all(Kind::Latency(of, p)), value);
        }
    }
    put(all(Kind::Latency(Latency::LongestGap, 95)), f.latencies.longest_gap.p95);
    put(all(Kind::Jain), summary.jain);
    put(all(Kind::LowestTenant), summary.lowest_tenant.as_ref().map(|t| t.attainment));
    for tenant in summary.tenants.iter().filter(|_| summary.tenants.len() > 1) {
        let f = &tenant.figures;
        put(Figure::of(&tenant.name, Kind::Attainment), f.attainment);
        put(Figure::of(&tenant.name, Kind::Rejected), share(summary, f, f.rejected));
        put(Figure::of(&tenant.name, Kind::Latency(Latency::Ttft, 95)), f.latencies.ttft.p95);
    }
    out
}

fn share(summary: &Summary, of: &Figures, part: u32) -> Option<f64> {
    (summary.complete && of.planned > 0).then(|| f64::from(part) / f64::from(of.planned))
}

const fn quantiles(d: &Distribution) -> [(u8, Option<f64>); 3] {
    [(50, d.p50), (95, d.p95), (99, d.p99)]
}

/// Of all arrivals first, then of each tenant where there are several.
fn ceilings(run: &Account, idle: &Profile) -> Vec<Ceiling> {
    let empty = |tenant: Option<&str>| Ceiling {
        tenant: tenant.map(str::to_owned),
        planned: 0,
        feasible: 0,
        good_beyond: 0,
        good: 0,
    };
    let mut all = empty(None);
    let plan = &run.manifest.plan.tenants;
    let mut tenants: Vec<Ceiling> = plan.iter().map(|t| empty(Some(&t.name))).collect();
    for arrival in run.arrivals() {
        let slo = run.slo(&arrival);
        let feasible = !idle.at_best(arrival.input_planned, arrival.output_planned).misses(&slo);
        let good = Class::of(&arrival, &slo) == Class::Good;
        for c in std::iter::once(&mut all).chain(tenants.get_mut(arrival.tenant as usize)) {
            c.planned += 1;
            c.feasible += u32::from(feasible);
            c.good += u32::from(good && feasible);
            c.good_beyond += u32::from(good && !feasible);
        }
    }
    let several = plan.len() > 1;
    std::iter::once(all).chain(tenants.into_iter().filter(|t| several && t.planned > 0)).collect()
}
