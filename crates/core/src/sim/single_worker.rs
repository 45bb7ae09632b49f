//! One request at a time: an ordering check of the queue's orders.
//!
//! The engine is the profile `single-worker`, which does not batch, so nothing here says what a server
//! can carry. What it shows is how an order deals with one fixed overload: whose requests are still in
//! time when most are not.

use std::num::NonZeroU32;

use super::{Figures, GatewaySetup, Setup, Tally, run};
use crate::engine::{Profile, ProfileError};
use crate::sched::{AuditError, CostModel, Order, Settings, TenantPolicy};
use crate::slo::Slo;
use crate::stats::jain;
use crate::time::Span;
use crate::work::{ArrivalProcess, Extent, Lengths, Plan, PlanError, PlanSpec, PlanTenant};

/// Requests of the trace.
const REQUESTS: u32 = 300;
/// Requests per second.
const RATE: f64 = 4.0;

/// The four figures of a replay.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SingleWorker {
    /// Answers within every limit, as a share of all that was offered.
    pub goodput_share: f64,
    /// Jain's index over the tenants' attainments; absent if no tenant had an answer in time.
    pub jain: Option<f64>,
    /// The attainment of the tenant that fared worst.
    pub lowest_attainment: f64,
    /// The 95th percentile of the time to first token, in ms.
    pub ttft_p95_ms: f64,
}

/// Why there is no replay: a defect of this program.
#[derive(Debug, thiserror::Error)]
pub enum SingleWorkerError {
    /// The built-in profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The trace.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The scheduler.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// No request was answered.
    #[error("no request was answered")]
    Nothing,
}

/// Replays 300 requests at 4 a second, of three tenants and mixed lengths, drawn from this seed, in front of
/// the profile `single-worker`: no wait limit, and room in the queue for all.
///
/// # Errors
/// See [`SingleWorkerError`].
pub fn single_worker(order: Order, seed: u64) -> Result<SingleWorker, SingleWorkerError> {
    let plan = Plan::generate(&spec(seed))?;
    let tenants = &plan.header().tenants;
    let weights =
        [4, 2, 1].map(|w| TenantPolicy { weight: NonZeroU32::MIN.saturating_add(w - 1), ..TenantPolicy::default() });
    let profile = Profile::built_in("single-worker")?;
    let scheduler = Settings {
        order,
        depth: REQUESTS as usize,
        tenants: weights.to_vec(),
        cost: CostModel::from_profile(&profile),
        ..Settings::fcfs(vec![1])
    };
    let setup = Setup { engines: vec![profile], gateway: Some(GatewaySetup::instant(scheduler)), warm: Vec::new() };
    let mut tally = Tally::new(tenants.len());
    run(&plan, &setup, |row| {
        let place = tenants.iter().position(|t| t.name == row.tenant).unwrap_or(0);
        tally.add(&row, place, &tenants[place].slo);
    })?;
    figures(&tally.finish()).ok_or(SingleWorkerError::Nothing)
}

fn figures(figures: &Figures) -> Option<SingleWorker> {
    let attainments: Vec<f64> = figures.tenant_attainments().into_iter().flatten().collect();
    Some(SingleWorker {
        goodput_share: figures.attainment()?,
        jain: jain(&attainments),
        lowest_attainment: attainments.into_iter().min_by(f64::total_cmp)?,
        ttft_p95_ms: figures.ttft(0.95)?,
    })
}

/// The tenants and prompts of the reference's mixed workload.
///
/// The published trace itself is not known. Its waits (a 95th percentile of 14 s, 75 s after the start) tell
/// that it offered about 1.2 times what the worker serves, so the answers are as short as makes that
/// load: with the reference's answers, one request at a time, it would be 20 times.
fn spec(seed: u64) -> PlanSpec {
    let tenant = |name: &str, share, ttft, e2e| {
        let (ttft, e2e) = (Some(Span::from_millis(ttft)), Some(Span::from_millis(e2e)));
        PlanTenant::new(name, share, Slo { ttft, tpot: None, e2e })
    };
    PlanSpec {
        seed,
        process: ArrivalProcess::Poisson { rate: RATE },
        extent: Extent::Count(REQUESTS),
        input: Lengths { low: 64, high: 960 },
        output: Lengths { low: 2, high: 12 },
        tenants: vec![
            tenant("gold", 0.2, 600, 5_000),
            tenant("standard", 0.5, 1_200, 9_000),
            tenant("batch", 0.3, 5_000, 30_000),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, Prompt, Work};
    use crate::time::Tick;

    #[test]
    fn the_profile_is_the_published_cost_model() {
        let profile = Profile::built_in("single-worker").unwrap();
        for (input, output) in [(1, 1), (64, 32), (256, 64), (960, 224), (100_000, 3)] {
            let mut engine = Engine::new(&profile);
            let work = |tag| Work { tag, prompt: Prompt::Family(1), input, output };
            engine.submit(Tick::ZERO, work(1)).unwrap();
            engine.submit(Tick::ZERO, work(2)).unwrap();
            let ttft = Span::from_millis_f64(52.494 + 0.02864 * f64::from(input));
            let tpot = Span::from_millis_f64(41.063);
            let answer = ttft + tpot * u64::from(output - 1);
            while let Some(token) = engine.next_wake().map(|at| engine.poll(at)) {
                let Some(token) = token else { continue };
                // The second request starts when the first one has ended.
                let start = Tick::ZERO + answer * (token.tag - 1);
                assert_eq!(token.at, start + ttft + tpot * u64::from(token.index - 1), "{input} {token:?}");
            }
            assert_eq!(engine.stats().generated_tokens, u64::from(output) * 2);
        }
    }

    #[test]
    fn fair_queueing_moves_every_figure_the_way_it_was_published() {
        // The published ones: 0.090, 0.544, 0.0290, 14191.6 under fcfs; 0.2467, 0.609, 0.0408, 16733.2 under wfq.
        let effect = |seed| {
            let [fcfs, wfq] = [Order::Fcfs, Order::Wfq].map(|order| single_worker(order, seed).unwrap());
            [
                wfq.goodput_share - fcfs.goodput_share,
                wfq.jain.unwrap() - fcfs.jain.unwrap(),
                wfq.lowest_attainment - fcfs.lowest_attainment,
                wfq.ttft_p95_ms - fcfs.ttft_p95_ms,
            ]
        };
        assert!(effect(7).iter().all(|e| *e > 0.0), "{:?}", effect(7));
        // Other traces agree on what becomes of the whole.
        for seed in 1..=20 {
            let [goodput, _, _, ttft] = effect(seed);
            assert!(goodput > 0.0 && ttft > 0.0, "seed {seed}: {goodput} {ttft}");
        }
    }
}
