//! Policies side by side on the same arrivals, with what each is expected to reach.
//!
//! ```text
//! Workload (plans by seed) × Policy ─ measure ─> Outcome ─ mean ─> Row ─ bars ─> Bar
//! ```

mod bars;
mod hindsight;
mod policy;
mod table;
#[cfg(test)]
mod tests;
mod workload;

pub use crate::sched::Admission;
pub use bars::{Bar, bars};
pub use hindsight::{Hindsight, search};
pub use policy::Policy;
pub use table::{Compared, Expected, Front, Row, Table, by_knowledge, front_policies, tables};
pub use workload::{Cache, Workload, WorkloadError};

use super::{GatewaySetup, Setup, run};
use crate::engine::{Profile, Prompt};
use crate::outcome::{RejectReason, Terminal};
use crate::sched::AuditError;
use crate::stats::jain;
use crate::time::Tick;
use crate::work::Plan;

/// What a policy made of a plan. Shares are of all that was offered, a refusal being a miss.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Answers within every limit.
    pub attainment: f64,
    /// Answers within every limit per second, up to the last completion.
    pub goodput: f64,
    /// Jain's index over the tenants' attainments; `None` for fewer than two tenants.
    pub jain: Option<f64>,
    /// The attainment of the tenant that has the lowest; `None` for fewer than two tenants.
    pub lowest: Option<f64>,
    /// Work that was admitted and missed a limit, cut or not.
    pub missed: f64,
    /// Refusals that were told at arrival, of all refusals; `None` if nothing was refused.
    pub at_arrival: Option<f64>,
    /// Every tenant's attainment, of those that offered.
    pub tenants: Vec<f64>,
    /// Requests refused at arrival, as a share of what was offered.
    pub refused: f64,
}

/// Runs a plan under a policy.
///
/// # Errors
/// An [`AuditError`] if the scheduler's invariants break: a defect of this program.
pub fn measure(plan: &Plan, setup: &Setup) -> Result<Outcome, AuditError> {
    let mut count = Count::new(plan.header().tenants.len());
    run(plan, setup, |row| {
        let Some(arrival) = plan.arrivals().get(row.index as usize) else { return };
        let (offered, good) = &mut count.tenants[usize::from(arrival.tenant)];
        *offered += 1;
        match row.state {
            Terminal::Completed => {
                count.last = count.last.max(row.end.unwrap_or(Tick::ZERO));
                if row.is_good(&plan.tenant(arrival).slo) { *good += 1 } else { count.missed += 1 }
            }
            Terminal::Rejected => {
                count.refused += 1;
                count.at_arrival += u32::from(row.reason.as_deref() != Some(RejectReason::QueueExpired.name()));
            }
            // Cut when its deadline was lost.
            Terminal::StreamError | Terminal::HttpError => count.missed += 1,
            _ => {}
        }
    })?;
    Ok(count.outcome())
}

struct Count {
    /// Offered and good, by tenant.
    tenants: Vec<(u32, u32)>,
    missed: u32,
    refused: u32,
    at_arrival: u32,
    last: Tick,
}

impl Count {
    fn new(tenants: usize) -> Self {
        Self { tenants: vec![(0, 0); tenants], missed: 0, refused: 0, at_arrival: 0, last: Tick::ZERO }
    }

    fn outcome(&self) -> Outcome {
        let offered: u32 = self.tenants.iter().map(|t| t.0).sum();
        let good: u32 = self.tenants.iter().map(|t| t.1).sum();
        let share = |count: u32, of: u32| f64::from(count) / f64::from(of.max(1));
        let tenants: Vec<f64> = self.tenants.iter().filter(|t| t.0 > 0).map(|t| share(t.1, t.0)).collect();
        let seconds = self.last.since(Tick::ZERO).as_secs_f64();
        Outcome {
            attainment: share(good, offered),
            goodput: if seconds > 0.0 { f64::from(good) / seconds } else { 0.0 },
            jain: jain(&tenants),
            lowest: tenants.iter().copied().min_by(f64::total_cmp).filter(|_| tenants.len() > 1),
            missed: share(self.missed, offered),
            at_arrival: (self.refused > 0).then(|| share(self.at_arrival, self.refused)),
            refused: share(self.at_arrival, offered),
            tenants,
        }
    }
}

impl Outcome {
    /// The mean over several runs, of each figure over the runs that have it; `None` of nothing.
    #[must_use]
    pub fn mean(all: &[Self]) -> Option<Self> {
        let mean = |of: &dyn Fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = all.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        let tenants = all.iter().map(|o| o.tenants.len()).min()?;
        Some(Self {
            attainment: mean(&|o| Some(o.attainment))?,
            goodput: mean(&|o| Some(o.goodput))?,
            jain: mean(&|o| o.jain),
            lowest: mean(&|o| o.lowest),
            missed: mean(&|o| Some(o.missed))?,
            at_arrival: mean(&|o| o.at_arrival),
            tenants: (0..tenants).filter_map(|k| mean(&|o| o.tenants.get(k).copied())).collect(),
            refused: mean(&|o| Some(o.refused))?,
        })
    }
}

/// One engine behind a gateway with the policy, with this in its prefix cache.
#[must_use]
pub fn setup(workload: &Workload, plan: &Plan, profile: &Profile, policy: &Policy) -> Setup {
    let times = workload.gateway;
    let whole = |a: &crate::work::Arrival| (Prompt::Family(a.prompt), a.input);
    Setup {
        engines: vec![profile.clone()],
        gateway: Some(GatewaySetup {
            scheduler: policy.settings(profile, workload),
            overhead_in: times.overhead_in,
            overhead_out: times.overhead_out,
            release_delay: times.release_delay,
            declares: policy.declares,
        }),
        warm: match workload.cache {
            Cache::Cold => Vec::new(),
            Cache::Warm => plan.arrivals().iter().map(whole).collect(),
        },
    }
}
