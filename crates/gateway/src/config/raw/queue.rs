//! `[queue]`: what may wait, who goes next and what is turned away.

use std::collections::BTreeMap;

use elasticserve_core::sched::{OnMiss, Order};
use serde::{Deserialize, Serialize};

/// The queue as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawQueue {
    /// Who goes next.
    pub order: Option<Order>,
    /// What is turned away.
    pub admission: Option<RawAdmission>,
    /// The most requests that may wait.
    pub depth: Option<u32>,
    /// The most bytes of bodies that may wait.
    pub bytes: Option<u64>,
    /// How long a request may wait, such as `"750ms"`.
    pub budget: Option<String>,
    /// How much Jain's index over the tenants counts beside attainment, under `price`.
    pub fairness: Option<f64>,
    /// How long a class may hold back what came before it, under `priority`.
    pub guard: Option<String>,
    /// What becomes of running work whose deadline is lost, of tenants that do not say.
    pub on_miss: Option<OnMiss>,
    /// Names of classes that requests may ask for.
    pub classes: Option<BTreeMap<String, u32>>,
    /// Another policy, of which only the decisions are counted, such as `"wfq+budget:750ms"`.
    pub shadow: Option<String>,
    /// The status of what cannot be met even by an idle server: 422 or 429.
    pub infeasible_status: Option<u16>,
}

/// What is turned away, other than for the queue's size.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawAdmission {
    /// Nothing.
    None,
    /// What has waited for its budget.
    Budget,
    /// What is predicted to miss its limits.
    Predict,
    /// That, and what costs the others more than it is worth.
    Price,
}
