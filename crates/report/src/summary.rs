//! The figures of a run, recomputed from its ledger.

mod endings;
mod tokens;

use std::collections::BTreeMap;

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use serde::Serialize;

use crate::class::{Class, was_admitted};
use crate::fairness::jain;
use crate::quantile::Distribution;
use crate::{Run, reconcile};
use endings::endings;
pub use endings::{Ending, MAX_DETAIL, MAX_ENDINGS};
pub use tokens::{CachedTokens, OutputTokens};

/// The figures of a run.
///
/// Times are in milliseconds and rates per second, both of the run's own clock: with a [`Self::time_scale`]
/// other than 1 they are in scaled time. A figure that does not exist is `None`, in JSON `null`; it is never 0
/// for want of a value. Of an [incomplete](Self::complete) run only the counts are given.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The format's version, 1.
    pub format: u32,
    /// The run's name.
    pub name: String,
    /// Whether the figures come from the simulator.
    pub simulated: bool,
    /// How many times faster than real time everything ran.
    pub time_scale: f64,
    /// The version of the program that made the run.
    pub tool_version: String,
    /// SHA-256 of the plan: two runs that differ in it were offered different work.
    pub plan_hash: String,
    /// The load model: `open`, `closed` or `sessions`.
    pub load_model: String,
    /// The most requests in flight that the generator allowed itself; `None` without a cap. With one, what found
    /// no slot was never sent.
    pub max_in_flight: Option<u32>,
    /// The time that rates divide by, in seconds: the arrival window, or where the plan fixes none the time until the
    /// last request ended.
    pub window_s: f64,
    /// Whether the manifest says how the run ended and every planned arrival has a row.
    pub complete: bool,
    /// Planned arrivals without a row.
    pub missing: u32,
    /// Whether the ledger's last line was cut off.
    pub torn: bool,
    /// Whether the run was stopped early; `None` if its manifest does not say how it ended.
    pub interrupted: Option<bool>,
    /// Whether planned = sent + unsent, and every row holds the times that its state needs.
    pub reconciled: bool,
    /// What does not reconcile.
    pub problems: Vec<String>,
    /// Whether the run says something about the server: complete, and the generator within its tolerances.
    pub valid: bool,
    /// Why it is not valid.
    pub invalid_because: Vec<String>,
    /// Arrivals by terminal state, all states listed.
    pub states: BTreeMap<Terminal, u32>,
    /// How the arrivals ended that were not completed, most frequent first.
    pub endings: Vec<Ending>,
    /// Attempts beyond the first of their arrival. An arrival ends as its last attempt ends.
    pub retries: u32,
    /// Attempts that were sent: what the server was asked, where arrivals are what users wanted.
    pub attempts: u32,
    /// The figures over all arrivals.
    #[serde(flatten)]
    pub figures: Figures,
    /// Completed answers divided by the time of the last completion: what load generators commonly report
    /// as throughput. It rewards late answers.
    pub completed_per_s: Option<f64>,
    /// How late the sends of first attempts started.
    pub send_lag: Distribution,
    /// The send lag that was declared tolerable, at p99, in ms.
    pub send_lag_tolerance_ms: f64,
    /// Tokens of completed answers.
    pub output: OutputTokens,
    /// Prompt tokens from the prefix cache; `None` if no answer reported them.
    pub cached: Option<CachedTokens>,
    /// The same figures for each tenant of the plan.
    pub tenants: Vec<TenantSummary>,
    /// Jain's index over the attainment of the tenants that had arrivals; `None` for fewer than two.
    pub jain: Option<f64>,
    /// The tenant with the lowest attainment; `None` for fewer than two.
    pub lowest_tenant: Option<LowestTenant>,
}

/// Figures over a set of arrivals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Arrivals in the plan, or of a closed load and of sessions those that came due; for a tenant, those of it in
    /// the ledger.
    pub planned: u32,
    /// Arrivals that were sent.
    pub sent: u32,
    /// Arrivals that were not.
    pub unsent: u32,
    /// Arrivals that the server took on: the head of the answer said success.
    pub admitted: u32,
    /// Whole answers.
    pub completed: u32,
    /// Whole answers within every limit, from the plan.
    pub good: u32,
    /// Whole answers past a limit: completed − good.
    pub late: u32,
    /// Turned away with 429 or 503.
    pub rejected: u32,
    /// Sent, neither completed nor rejected.
    pub failed: u32,
    /// sent / planned.
    pub sent_share: Option<f64>,
    /// admitted / planned.
    pub admitted_share: Option<f64>,
    /// completed / admitted.
    pub completed_of_admitted: Option<f64>,
    /// good / planned.
    pub attainment: Option<f64>,
    /// planned / window; `None` for a closed load and for sessions, which claim no rate.
    pub offered_per_s: Option<f64>,
    /// good / window.
    pub goodput_per_s: Option<f64>,
    /// Latencies of completed answers alone.
    pub latencies: Latencies,
    /// From the planned arrival to the end of the rejection.
    pub rejection: Distribution,
    /// Age, from the plan, of what was still open when the run ended: lower bounds of its latency.
    pub censored_age: Distribution,
}

/// Latencies of completed answers. Failures never enter; they stay in the denominators of the shares.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// From the planned arrival to the first usable content.
    pub ttft: Distribution,
    /// (last content − first content) / (output tokens − 1), for answers of two tokens and more.
    pub tpot: Distribution,
    /// From the planned arrival to the end of the answer.
    pub e2e: Distribution,
    /// From the send to the first usable content.
    pub ttft_from_send: Distribution,
    /// From the send to the end of the answer.
    pub e2e_from_send: Distribution,
    /// The longest gap between two content events of an answer.
    pub longest_gap: Distribution,
    /// The wait in the gateway, by the gateway's header.
    pub queue: Distribution,
}

/// A tenant's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantSummary {
    /// The tenant's name.
    pub name: String,
    /// Its limits.
    pub slo: Limits,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A service-level objective in milliseconds; a limit that is `None` always holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Of the time to first token, from the plan.
    pub ttft_ms: Option<f64>,
    /// Of the time per output token after the first.
    pub tpot_ms: Option<f64>,
    /// Of the time to the end, from the plan.
    pub e2e_ms: Option<f64>,
}

/// The tenant that was served worst.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LowestTenant {
    /// Its name.
    pub name: String,
    /// Its attainment.
    pub attainment: f64,
}

impl Summary {
    /// The figures of a run.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let manifest = &run.manifest;
        let outcomes = run.outcomes();
        let missing = run.due().saturating_sub(outcomes.len() as u32);
        let complete = manifest.end.is_some() && missing == 0;
        let window = run.window();
        let scope = Scope { complete, window, scheduled: manifest.plan.model.is_open() };
        let with_slo: Vec<(&Row, Slo)> = outcomes.iter().map(|r| (*r, run.slo(r))).collect();
        let mut figures = Figures::of(scope, &with_slo);
        figures.planned = run.due();
        let first_sends = run.rows.iter().filter(|r| r.attempt == 0);
        let send_lag = scope.distribution(first_sends.filter_map(Row::send_lag));
        let problems = reconcile::problems(run, &outcomes);
        let invalid_because = reconcile::invalid(run, &outcomes, complete, &send_lag);
        let makespan = outcomes.iter().filter(|r| r.state == Terminal::Completed).filter_map(|r| r.end).max();
        let makespan = makespan.filter(|_| complete).map(|t| t.since(Tick::ZERO));
        let tenants = tenants(run, scope, &with_slo);
        let served: Vec<(&str, f64)> =
            tenants.iter().filter_map(|t| Some((t.name.as_str(), t.figures.attainment?))).collect();
        Self {
            format: 1,
            name: manifest.name.clone(),
            simulated: manifest.simulated,
            time_scale: manifest.time_scale,
            tool_version: manifest.tool_version.clone(),
            plan_hash: manifest.plan_hash.clone(),
            load_model: manifest.plan.model.to_string(),
            max_in_flight: manifest.max_in_flight,
            window_s: window.as_secs_f64(),
            complete,
            missing,
            torn: run.torn,
            interrupted: manifest.end.map(|e| e.interrupted),
            reconciled: problems.is_empty(),
            problems,
            valid: invalid_because.is_empty(),
            invalid_because,
            states: Terminal::ALL.iter().map(|s| (*s, count(&outcomes, |r| r.state == *s))).collect(),
            endings: endings(&outcomes),
            retries: run.rows.iter().filter(|r| r.attempt > 0).count() as u32,
            attempts: run.rows.iter().filter(|r| r.state.was_sent()).count() as u32,
            completed_per_s: makespan.and_then(|m| per_second(u64::from(figures.completed), m)),
            send_lag,
            send_lag_tolerance_ms: manifest.tolerances.send_lag_p99.as_millis_f64(),
            output: OutputTokens::of(&outcomes, makespan),
            cached: CachedTokens::of(&outcomes),
            jain: jain(&served.iter().map(|(_, a)| *a).collect::<Vec<_>>()),
            lowest_tenant: lowest(&served),
            tenants,
            figures,
        }
    }
}

/// What the figures of a run have in common.
#[derive(Copy, Clone)]
struct Scope {
    complete: bool,
    window: Span,
    /// Whether the plan says when requests are due, so that there is an offered rate.
    scheduled: bool,
}

impl Scope {
    /// A distribution, or its size alone where rows are missing: which ones went missing is not chance.
    fn distribution(self, spans: impl Iterator<Item = Span>) -> Distribution {
        if self.complete { Distribution::of(spans) } else { Distribution::only_n(spans.count()) }
    }

    fn share(self, part: u32, whole: u32) -> Option<f64> {
        (self.complete && whole > 0).then(|| f64::from(part) / f64::from(whole))
    }

    fn rate(self, n: u32) -> Option<f64> {
        if self.complete { per_second(u64::from(n), self.window) } else { None }
    }
}

impl Figures {
    fn of(scope: Scope, arrivals: &[(&Row, Slo)]) -> Self {
        let planned = arrivals.len() as u32;
        let classed = |class| arrivals.iter().filter(|(r, slo)| Class::of(r, slo) == class).count() as u32;
        let [good, late, failed, rejected, unsent] = Class::ALL.map(classed);
        let (sent, completed) = (planned - unsent, good + late);
        let admitted = arrivals.iter().filter(|(r, _)| was_admitted(r)).count() as u32;
        let state = |state| arrivals.iter().map(|(r, _)| *r).filter(move |r| r.state == state);
        Self {
            planned,
            sent,
            unsent,
            admitted,
            completed,
            good,
            late,
            rejected,
            failed,
            sent_share: scope.share(sent, planned),
            admitted_share: scope.share(admitted, planned),
            completed_of_admitted: scope.share(completed, admitted),
            attainment: scope.share(good, planned),
            offered_per_s: scope.rate(planned).filter(|_| scope.scheduled),
            goodput_per_s: scope.rate(good),
            latencies: Latencies::of(scope, &state(Terminal::Completed).collect::<Vec<_>>()),
            rejection: scope.distribution(state(Terminal::Rejected).filter_map(Row::e2e)),
            censored_age: scope.distribution(state(Terminal::Censored).filter_map(Row::e2e)),
        }
    }
}

impl Latencies {
    fn of(scope: Scope, completed: &[&Row]) -> Self {
        let each = |latency: fn(&Row) -> Option<Span>| scope.distribution(completed.iter().filter_map(|r| latency(r)));
        Self {
            ttft: each(Row::ttft),
            tpot: each(Row::tpot),
            e2e: each(Row::e2e),
            ttft_from_send: each(Row::ttft_from_send),
            e2e_from_send: each(|r| Some(r.end?.since(r.send_started?))),
            longest_gap: each(|r| r.gaps.iter().copied().max()),
            queue: each(|r| r.queue),
        }
    }
}

impl From<Slo> for Limits {
    fn from(slo: Slo) -> Self {
        let ms = |limit: Option<Span>| limit.map(Span::as_millis_f64);
        Self { ttft_ms: ms(slo.ttft), tpot_ms: ms(slo.tpot), e2e_ms: ms(slo.e2e) }
    }
}

fn tenants(run: &Run, scope: Scope, arrivals: &[(&Row, Slo)]) -> Vec<TenantSummary> {
    let mut by_name: BTreeMap<&str, Vec<(&Row, Slo)>> = BTreeMap::new();
    for (row, slo) in arrivals {
        by_name.entry(row.tenant.as_str()).or_default().push((row, *slo));
    }
    let plan = run.manifest.plan.tenants.iter();
    plan.map(|t| TenantSummary {
        name: t.name.clone(),
        slo: t.slo.into(),
        figures: Figures::of(scope, by_name.get(t.name.as_str()).map_or(&[], Vec::as_slice)),
    })
    .collect()
}

fn lowest(served: &[(&str, f64)]) -> Option<LowestTenant> {
    let (name, attainment) = served.iter().min_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| served.len() >= 2)?;
    Some(LowestTenant { name: (*name).to_owned(), attainment: *attainment })
}

fn count(rows: &[&Row], which: impl Fn(&Row) -> bool) -> u32 {
    rows.iter().filter(|r| which(r)).count() as u32
}

fn per_second(n: u64, time: Span) -> Option<f64> {
    (time > Span::ZERO).then(|| n as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests;
