//! A policy by its few choices.

use std::fmt;
use std::num::NonZeroU32;

use super::Workload;
use crate::engine::Profile;
use crate::sched::{Admission, Caution, CostModel, OnMiss, Order, Predict, Price, Settings, TenantPolicy};
use crate::sim::Declares;

/// Order, admission and a cap on the last tenant's permits.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Policy {
    /// Who goes next.
    pub order: Order,
    /// Who is turned away.
    pub admission: Admission,
    /// The most permits of the last tenant.
    pub cap: Option<u32>,
    /// What requests say of the length of their answers.
    pub declares: Declares,
    /// What becomes of work whose deadline is lost.
    pub on_miss: OnMiss,
    /// Whether the tenants' weights count; else all weigh the same.
    pub weighted: bool,
}

impl Policy {
    /// A policy without a cap.
    #[must_use]
    pub const fn new(order: Order, admission: Admission) -> Self {
        Self { order, admission, cap: None, declares: Declares::All, on_miss: OnMiss::Finish, weighted: true }
    }

    /// The same with a cap on the last tenant.
    #[must_use]
    pub const fn capped(self, permits: u32) -> Self {
        Self { cap: Some(permits), ..self }
    }

    /// The same with other knowledge of the lengths of answers.
    #[must_use]
    pub const fn knowing(self, declares: Declares) -> Self {
        Self { declares, ..self }
    }

    /// The same with work cut when its deadline is lost.
    #[must_use]
    pub const fn aborting(self) -> Self {
        Self { on_miss: OnMiss::Abort, ..self }
    }

    /// The same with every tenant's answers worth the same.
    #[must_use]
    pub const fn unweighted(self) -> Self {
        Self { weighted: false, ..self }
    }

    /// The scheduler's settings, all that is not chosen here being derived from the engine's profile.
    #[must_use]
    pub fn settings(&self, profile: &Profile, workload: &Workload) -> Settings {
        let predict = Predict { caution: Caution::default() };
        let last = workload.tenants.len().saturating_sub(1);
        let tenant = |(place, tenant): (usize, &TenantPolicy)| TenantPolicy {
            class: place as u32,
            max_permits: self.cap.filter(|_| place == last),
            on_miss: self.on_miss,
            weight: if self.weighted { tenant.weight } else { NonZeroU32::MIN },
            ..*tenant
        };
        Settings {
            order: self.order,
            tenants: workload.tenants.iter().enumerate().map(tenant).collect(),
            depth: workload.depth,
            cost: CostModel::from_profile(profile),
            budget: match self.admission {
                Admission::Budget(budget) => Some(budget),
                _ => None,
            },
            predict: self.admission.predicts().then_some(predict),
            price: match self.admission {
                Admission::Price(mu) => Some(Price::from_profile(profile, mu)),
                _ => None,
            },
            ..Settings::fcfs(vec![workload.permits])
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = self.order;
        match self.admission {
            Admission::None => write!(f, "{order}, no budget")?,
            Admission::Budget(budget) => write!(f, "{order} + {budget}")?,
            Admission::Predict => write!(f, "{order} + predict")?,
            Admission::Price(mu) => write!(f, "{order} + price, mu {mu}")?,
        }
        if let Some(cap) = self.cap {
            write!(f, ", last tenant at most {cap} permits")?;
        }
        f.write_str(match self.declares {
            Declares::All => "",
            Declares::Half => ", half of the lengths declared",
            Declares::Hint => ", lengths hinted at",
            Declares::None => ", no lengths declared",
        })?;
        f.write_str(if self.weighted { "" } else { ", equal weights" })?;
        f.write_str(if self.on_miss == OnMiss::Abort { ", what is late is cut" } else { "" })
    }
}
