//! The figures of a run, recomputed from its ledger.

mod endings;
mod tokens;

use std::collections::BTreeMap;

use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use serde::Serialize;

use crate::account::{Account, Arrival};
use crate::class::Class;
use crate::fairness::jain;
use crate::quantile::Distribution;
use crate::{Run, parallel, reconcile};
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
    /// The figures of a run whose rows are at hand.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        Self::of_account(&Account::of(run))
    }

    /// The figures of a run.
    #[must_use]
    pub fn of_account(run: &Account) -> Self {
        let manifest = &run.manifest;
        let missing = run.due().saturating_sub(run.len() as u32);
        let complete = manifest.end.is_some() && missing == 0;
        let window = run.window();
        let scope = Scope { complete, window, scheduled: manifest.plan.model.is_open() };
        let mut figures = Figures::of(scope, run, None);
        let tenants = tenants(run, scope, &figures);
        figures.planned = run.due();
        let send_lag = scope.distribution(run.first_lags.iter().copied());
        let problems = reconcile::problems(run);
        let states = states(run);
        let invalid_because = reconcile::invalid(run, &states, complete, &send_lag);
        let makespan = run.arrivals().filter(|r| r.state == Terminal::Completed).filter_map(|r| r.end).max();
        let makespan = makespan.filter(|_| complete).map(|t| t.since(Tick::ZERO));
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
            states,
            endings: endings(run),
            retries: run.retries,
            attempts: run.attempts,
            completed_per_s: makespan.and_then(|m| per_second(u64::from(figures.completed), m)),
            send_lag,
            send_lag_tolerance_ms: manifest.tolerances.send_lag_p99.as_millis_f64(),
            output: OutputTokens::of(run, makespan),
            cached: CachedTokens::of(run),
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
    /// The figures of all arrivals, or of those in the given places.
    fn of(scope: Scope, run: &Account, places: Option<&[u32]>) -> Self {
        let n = places.map_or(run.len(), <[u32]>::len);
        let of = || (0..n).map(|i| run.arrival(places.map_or(i, |places| places[i] as usize)));
        let (mut classes, mut admitted) = ([0_u32; 5], 0);
        for arrival in of() {
            classes[Class::of(&arrival, &run.slo(&arrival)) as usize] += 1;
            admitted += u32::from(arrival.admitted);
        }
        let [good, late, failed, rejected, unsent] = classes;
        let planned = classes.iter().sum();
        let (sent, completed) = (planned - unsent, good + late);
        let each =
            |state, latency: Latency| scope.distribution(of().filter(|a| a.state == state).filter_map(|a| latency(&a)));
        let mut spans = parallel::map(&LATENCIES, |(state, latency)| each(*state, *latency)).into_iter();
        let mut next = || spans.next().unwrap_or_default();
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
            latencies: Latencies {
                ttft: next(),
                tpot: next(),
                e2e: next(),
                ttft_from_send: next(),
                e2e_from_send: next(),
                longest_gap: next(),
                queue: next(),
            },
            rejection: next(),
            censored_age: next(),
        }
    }
}

type Latency = fn(&Arrival) -> Option<Span>;

/// What each distribution of [`Figures`] is over, in the order of its fields.
const LATENCIES: [(Terminal, Latency); 9] = [
    (Terminal::Completed, Arrival::ttft),
    (Terminal::Completed, |a| a.tpot),
    (Terminal::Completed, Arrival::e2e),
    (Terminal::Completed, Arrival::ttft_from_send),
    (Terminal::Completed, Arrival::e2e_from_send),
    (Terminal::Completed, |a| a.longest_gap),
    (Terminal::Completed, |a| a.queue),
    (Terminal::Rejected, Arrival::e2e),
    (Terminal::Censored, Arrival::e2e),
];

impl From<Slo> for Limits {
    fn from(slo: Slo) -> Self {
        let ms = |limit: Option<Span>| limit.map(Span::as_millis_f64);
        Self { ttft_ms: ms(slo.ttft), tpot_ms: ms(slo.tpot), e2e_ms: ms(slo.e2e) }
    }
}

/// The figures of each tenant; `all` are those of all arrivals, which a single tenant has.
fn tenants(run: &Account, scope: Scope, all: &Figures) -> Vec<TenantSummary> {
    let plan = &run.manifest.plan.tenants;
    let mut places = vec![Vec::new(); plan.len()];
    if plan.len() > 1 {
        for (place, arrival) in (0..).zip(run.arrivals()) {
            places.get_mut(arrival.tenant as usize).into_iter().for_each(|of: &mut Vec<u32>| of.push(place));
        }
    }
    let figures = |places: &Vec<u32>| if plan.len() == 1 { all.clone() } else { Figures::of(scope, run, Some(places)) };
    plan.iter()
        .zip(&places)
        .map(|(t, places)| TenantSummary { name: t.name.clone(), slo: t.slo.into(), figures: figures(places) })
        .collect()
}

/// Arrivals by terminal state, all states listed.
fn states(run: &Account) -> BTreeMap<Terminal, u32> {
    let mut states: BTreeMap<Terminal, u32> = Terminal::ALL.iter().map(|s| (*s, 0)).collect();
    for arrival in run.arrivals() {
        *states.entry(arrival.state).or_default() += 1;
    }
    states
}

fn lowest(served: &[(&str, f64)]) -> Option<LowestTenant> {
    let (name, attainment) = served.iter().min_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| served.len() >= 2)?;
    Some(LowestTenant { name: (*name).to_owned(), attainment: *attainment })
}

fn per_second(n: u64, time: Span) -> Option<f64> {
    (time > Span::ZERO).then(|| n as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests;
