//! Many runs that differ in rate, policy and seed, and where each policy's knee lies.

use super::{Figures, GatewaySetup, Setup, Tally, run};
use crate::engine::Profile;
use crate::sched::{AuditError, CostModel, Order, Settings, TenantPolicy};
use crate::search::knee;
use crate::stats::jain;
use crate::time::Span;
use crate::work::{ArrivalProcess, Extent, Lengths, Plan, PlanError, PlanSpec, PlanTenant};

/// What is varied. Every combination is one run, except that a direct run has no permits, order or budget.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Requests per second.
    pub rates: Vec<f64>,
    /// Permits of the gateway.
    pub permits: Vec<u32>,
    /// Orders of the queue.
    pub orders: Vec<Order>,
    /// Queue budgets; `None` for no limit.
    pub budgets: Vec<Option<Span>>,
    /// Seeds of arrivals and lengths.
    pub seeds: Vec<u64>,
    /// Whether the engine is run without a gateway too.
    pub direct: bool,
}

/// What all runs have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// The engine.
    pub profile: Profile,
    /// Requests in each run.
    pub requests: u32,
    /// Prompt lengths.
    pub input: Lengths,
    /// Answer lengths.
    pub output: Lengths,
    /// Whose requests they are.
    pub tenants: Vec<PlanTenant>,
    /// The tenants' weights and caps, one for each.
    pub policies: Vec<TenantPolicy>,
    /// The most requests that may wait.
    pub depth: u32,
    /// Whether the prefix cache holds every prompt from the start.
    pub warm: bool,
}

/// How requests get to the engine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Straight, into the engine's own queue.
    Direct,
    /// Through a gateway.
    Gateway {
        /// Requests that the engine may work on at once.
        permits: u32,
        /// Who goes next.
        order: Order,
        /// How long a request may wait.
        budget: Option<Span>,
    },
}

/// One run.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Point {
    /// How requests get to the engine.
    pub policy: Policy,
    /// Requests per second.
    pub rate: f64,
    /// The seed of arrivals and lengths.
    pub seed: u64,
}

/// The figures of one run. Shares and goodput count all that was offered in the arrival window.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Which run.
    pub point: Point,
    /// Requests offered.
    pub offered: u32,
    /// Requests answered in full.
    pub completed: u32,
    /// Requests turned away.
    pub rejected: u32,
    /// Answers within every limit.
    pub good: u32,
    /// Completions per second, until the last one.
    pub throughput: Option<f64>,
    /// Answers within every limit per second of the arrival window.
    pub goodput: f64,
    /// Answers within every limit as a share of all that was offered.
    pub attainment: f64,
    /// The 95th percentile of the time to first token of completed answers, in ms.
    pub ttft_p95: Option<f64>,
    /// The same of the time per output token.
    pub tpot_p95: Option<f64>,
    /// The same of the time to the end.
    pub e2e_p95: Option<f64>,
    /// Jain's index over the tenants' attainments; `None` for fewer than two.
    pub jain: Option<f64>,
    /// The lowest attainment of a tenant; `None` for fewer than two.
    pub lowest_tenant: Option<f64>,
}

/// Why a run of a sweep failed.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// There is no plan of such parameters.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The scheduler's invariants broke: a defect of this program.
    #[error(transparent)]
    Audit(#[from] AuditError),
}

impl Grid {
    /// The policies, in the order of the grid.
    #[must_use]
    pub fn policies(&self) -> Vec<Policy> {
        let mut all: Vec<Policy> = self.direct.then_some(Policy::Direct).into_iter().collect();
        for &permits in &self.permits {
            for &order in &self.orders {
                all.extend(self.budgets.iter().map(|&budget| Policy::Gateway { permits, order, budget }));
            }
        }
        all
    }

    /// Every run: by policy, rate and seed.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let runs = |policy: Policy| {
            let seeds = move |rate| self.seeds.iter().map(move |&seed| Point { policy, rate, seed });
            self.rates.iter().flat_map(move |&rate| seeds(rate))
        };
        self.policies().into_iter().flat_map(runs).collect()
    }
}

impl Common {
    /// Simulates one run.
    ///
    /// # Errors
    /// [`SweepError`].
    pub fn run(&self, point: Point) -> Result<Outcome, SweepError> {
        let plan = Plan::generate(&PlanSpec {
            seed: point.seed,
            process: ArrivalProcess::Poisson { rate: point.rate },
            extent: Extent::Count(self.requests),
            input: self.input,
            output: self.output,
            tenants: self.tenants.clone(),
        })?;
        let gateway = match point.policy {
            Policy::Direct => None,
            Policy::Gateway { permits, order, budget } => Some(GatewaySetup::instant(Settings {
                order,
                budget,
                tenants: self.policies.clone(),
                depth: self.depth as usize,
                cost: CostModel::from_profile(&self.profile),
                ..Settings::fcfs(vec![permits])
            })),
        };
        let warm = plan.arrivals().iter().filter(|_| self.warm).map(|a| (plan.prompt(a), a.input)).collect();
        let setup = Setup { engines: vec![self.profile.clone()], gateway, warm };
        let mut tally = Tally::new(self.tenants.len());
        run(&plan, &setup, |row| {
            if let Some(arrival) = plan.arrivals().get(row.index as usize) {
                tally.add(&row, usize::from(arrival.tenant), &plan.tenant(arrival).slo);
            }
        })?;
        Ok(Outcome::of(point, plan.header().window.unwrap_or(Span::ZERO), &tally.finish()))
    }
}

impl Outcome {
    fn of(point: Point, window: Span, figures: &Figures) -> Self {
        let tenants: Vec<f64> = figures.tenant_attainments().into_iter().flatten().collect();
        let several = tenants.len() >= 2;
        Self {
            point,
            offered: figures.offered(),
            completed: figures.completed(),
            rejected: figures.rejected(),
            good: figures.passing(),
            throughput: figures.throughput(),
            goodput: f64::from(figures.passing()) / window.as_secs_f64(),
            attainment: figures.attainment().unwrap_or(0.0),
            ttft_p95: figures.ttft(0.95),
            tpot_p95: figures.tpot(0.95),
            e2e_p95: figures.e2e(0.95),
            jain: jain(&tenants),
            lowest_tenant: tenants.into_iter().min_by(f64::total_cmp).filter(|_| several),
        }
    }
}

/// A figure over the seeds.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

impl Spread {
    /// Of the values that exist; `None` if there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().flatten().collect();
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { mean: values.iter().sum::<f64>() / values.len() as f64, low, high })
    }
}

/// One policy over the rates.
#[derive(Clone, Debug)]
pub struct Curve<'a> {
    /// The policy.
    pub policy: Policy,
    /// Each rate with the runs of all seeds at it.
    pub rates: Vec<(f64, &'a [Outcome])>,
}

impl Curve<'_> {
    /// The knee: the highest rate of the sweep up to which, at every rate, the mean attainment over the
    /// seeds is at least `target`. `None` if it is missed at the lowest rate already.
    #[must_use]
    pub fn knee(&self, target: f64) -> Option<f64> {
        let mean = |runs: &[Outcome]| Spread::of(runs.iter().map(|o| Some(o.attainment))).map(|s| s.mean);
        knee(self.rates.iter().filter_map(|(rate, runs)| Some((*rate, mean(runs)?))), target)
    }
}

/// The outcomes of [`Grid::points`], in their order, as one curve for each policy.
#[must_use]
pub fn curves<'a>(grid: &Grid, outcomes: &'a [Outcome]) -> Vec<Curve<'a>> {
    let per_policy = (grid.rates.len() * grid.seeds.len()).max(1);
    let policies = grid.policies().into_iter().zip(outcomes.chunks(per_policy));
    policies
        .map(|(policy, runs)| Curve {
            policy,
            rates: grid.rates.iter().copied().zip(runs.chunks(grid.seeds.len().max(1))).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slo::Slo;

    fn grid() -> Grid {
        Grid {
            rates: vec![4.0, 8.0, 16.0],
            permits: vec![32, 16],
            orders: vec![Order::Fcfs],
            budgets: vec![None, Some(Span::from_millis(750))],
            seeds: vec![7, 11],
            direct: true,
        }
    }

    fn common() -> Common {
        let slo = Slo { ttft: Some(Span::from_secs(1)), tpot: None, e2e: None };
        Common {
            profile: Profile::built_in("gb10-qwen3-8b-fp8").unwrap(),
            requests: 60,
            input: Lengths::fixed(256),
            output: Lengths::fixed(64),
            tenants: vec![PlanTenant::new("default", 1.0, slo)],
            policies: vec![TenantPolicy::default()],
            depth: 256,
            warm: false,
        }
    }

    #[test]
    fn every_combination_is_run_once_and_lands_on_its_curve() {
        let grid = grid();
        let points = grid.points();
        assert_eq!(points.len(), (1 + 2 * 2) * 3 * 2);
        let outcomes: Vec<Outcome> = points.iter().map(|p| common().run(*p).unwrap()).collect();
        let curves = curves(&grid, &outcomes);
        assert_eq!(curves.len(), 5);
        for curve in &curves {
            for (rate, runs) in &curve.rates {
                assert!(runs.iter().all(|o| o.point.policy == curve.policy && o.point.rate == *rate));
                assert_eq!(runs.iter().map(|o| o.point.seed).collect::<Vec<_>>(), [7, 11]);
            }
        }
        assert!(outcomes.iter().all(|o| o.offered == 60 && o.completed + o.rejected == 60));
        let of = |policy, rate| outcomes.iter().find(|o| o.point.policy == policy && o.point.rate == rate).unwrap();
        let short = Policy::Gateway { permits: 16, order: Order::Fcfs, budget: Some(Span::from_millis(750)) };
        assert!(of(Policy::Direct, 16.0).rejected == 0 && of(short, 16.0).rejected > 0);
    }

    #[test]
    fn the_knee_is_the_last_rate_before_the_target_is_first_missed() {
        let outcome = |rate: f64, attainment: f64| {
            let point = Point { policy: Policy::Direct, rate, seed: 0 };
            Outcome { attainment, ..common_outcome(point) }
        };
        let runs = [outcome(4.0, 1.0), outcome(8.0, 0.96), outcome(12.0, 0.5), outcome(16.0, 0.97)];
        let rates = runs.iter().map(|o| (o.point.rate, std::slice::from_ref(o))).collect();
        let curve = Curve { policy: Policy::Direct, rates };
        assert_eq!((curve.knee(0.95), curve.knee(0.99), curve.knee(1.1)), (Some(8.0), Some(4.0), None));
    }

    fn common_outcome(point: Point) -> Outcome {
        Outcome {
            point,
            offered: 1,
            completed: 1,
            rejected: 0,
            good: 1,
            throughput: None,
            goodput: 0.0,
            attainment: 0.0,
            ttft_p95: None,
            tpot_p95: None,
            e2e_p95: None,
            jain: None,
            lowest_tenant: None,
        }
    }
}
