//! The runs behind published rows: what was offered, to what, with which prompts in the prefix cache.
//!
//! A scenario holds conditions only. Measured values are kept beside it and never enter a simulation.

use super::published::GatewayTimes;
use crate::engine::{Profile, Prompt};
use crate::sched::{AuditError, CostModel, Order, Settings, TenantPolicy};
use crate::sim::{Declares, Figures, GatewaySetup, Setup, Tally, run};
use crate::time::Span;
use crate::work::Plan;

/// What every run of a file has in common: the engine and the gateway that was measured.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// The engine.
    pub profile: Profile,
    /// What the gateway took, where there was one.
    pub gateway: GatewayTimes,
}

/// The conditions of one run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(super) plan: Plan,
    pub(super) gateway: Option<GatewayConditions>,
    pub(super) cache: Cache,
    /// Whether warm-up requests had sent the first prompt of the plan.
    pub(super) first_prompt_warm: bool,
}

/// The settings of the gateway in a run.
#[derive(Clone, Debug)]
pub(super) struct GatewayConditions {
    pub(super) permits: u32,
    pub(super) depth: u32,
    pub(super) budget: Option<Span>,
    pub(super) order: Order,
    pub(super) tenants: Vec<TenantPolicy>,
}

/// What the prefix cache held of the plan's prompts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// The first so many prompts, in full.
    First(u32),
    /// The first so many tokens of every prompt.
    Leading(u32),
    /// The prompts that the runs before it in its sequence had completed.
    Partner,
}

impl Scenario {
    /// Replays the run; `before` are the places of prompts that earlier runs have completed.
    ///
    /// # Errors
    /// An [`AuditError`] if the scheduler's invariants break: a defect of this program.
    pub(super) fn run(&self, deployment: &Deployment, before: &[u32]) -> Result<Figures, AuditError> {
        let setup = Setup {
            engines: vec![deployment.profile.clone()],
            gateway: self.gateway.as_ref().map(|g| g.setup(deployment)),
            warm: self.warm(before),
        };
        let mut tally = Tally::new(self.plan.header().tenants.len());
        run(&self.plan, &setup, |row| {
            if let Some(arrival) = self.plan.arrivals().get(row.index as usize) {
                tally.add(&row, usize::from(arrival.tenant), &self.plan.tenant(arrival).slo);
            }
        })?;
        Ok(tally.finish())
    }

    fn warm(&self, before: &[u32]) -> Vec<(Prompt, u32)> {
        let arrivals = self.plan.arrivals();
        let whole = |count: usize| arrivals.iter().take(count).map(|a| (Prompt::Family(a.prompt), a.input));
        let first = whole(usize::from(self.first_prompt_warm));
        match self.cache {
            Cache::First(count) => first.chain(whole(count as usize)).collect(),
            Cache::Leading(tokens) => {
                first.chain(arrivals.iter().map(|a| (Prompt::Family(a.prompt), tokens.min(a.input)))).collect()
            }
            Cache::Partner => {
                let seen = before.iter().filter_map(|index| arrivals.get(*index as usize));
                first.chain(seen.map(|a| (Prompt::Family(a.prompt), a.input))).collect()
            }
        }
    }
}

impl GatewayConditions {
    fn setup(&self, deployment: &Deployment) -> GatewaySetup {
        let times = deployment.gateway;
        let scheduler = Settings {
            order: self.order,
            tenants: self.tenants.clone(),
            depth: self.depth as usize,
            budget: self.budget,
            cost: CostModel::from_profile(&deployment.profile),
            ..Settings::fcfs(vec![self.permits])
        };
        GatewaySetup {
            scheduler,
            overhead_in: times.overhead_in,
            overhead_out: times.overhead_out,
            release_delay: times.release_delay,
            declares: Declares::All,
        }
    }
}
