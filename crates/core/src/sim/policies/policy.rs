//! A policy by its few choices.

use std::fmt;

use super::Workload;
use crate::engine::Profile;
use crate::sched::{Admission, Caution, CostModel, Order, Predict, Price, Settings, TenantPolicy};

/// Order, admission and a cap on the last tenant's permits.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Policy {
    /// Who goes next.
    pub order: Order,
    /// Who is turned away.
    pub admission: Admission,
    /// The most permits of the last tenant.
    pub cap: Option<u32>,
}

impl Policy {
    /// A policy without a cap.
    #[must_use]
    pub const fn new(order: Order, admission: Admission) -> Self {
        Self { order, admission, cap: None }
    }

    /// The same with a cap on the last tenant.
    #[must_use]
    pub const fn capped(self, permits: u32) -> Self {
        Self { cap: Some(permits), ..self }
    }

    /// The scheduler's settings, all that is not chosen here being derived from the engine's profile.
    #[must_use]
    pub fn settings(&self, profile: &Profile, workload: &Workload) -> Settings {
        let predict = Predict { caution: Caution::default() };
        let last = workload.tenants.len().saturating_sub(1);
        let tenant = |(place, tenant): (usize, &TenantPolicy)| TenantPolicy {
            class: place as u32,
            max_permits: self.cap.filter(|_| place == last),
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
        self.cap.map_or(Ok(()), |cap| write!(f, ", last tenant at most {cap} permits"))
    }
}
