//! Whose the arrivals of a plan are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ArrivalProcess;
use crate::slo::Slo;

/// A tenant's part in a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanTenant {
    /// The tenant's name.
    pub name: String,
    /// Its share of the arrivals, relative to the others.
    pub share: f64,
    /// What makes an answer useful to it.
    pub slo: Slo,
    /// The class that its requests ask for, sent in `x-elasticserve-class`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<String>,
    /// The name of the environment variable with its API key. The key itself is never part of a plan.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key_env: Option<String>,
    /// Further request headers, which take the place of those of the run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub headers: BTreeMap<String, String>,
    /// When its requests arrive, if it has a process of its own; else it has its share of the plan's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arrivals: Option<ArrivalProcess>,
    /// How long its prompts and answers are, in words; of a plan that says one for all, nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lengths: Option<String>,
}

impl PlanTenant {
    /// A tenant with nothing but a name, a share and limits.
    #[must_use]
    pub fn new(name: impl Into<String>, share: f64, slo: Slo) -> Self {
        Self { name: name.into(), share, slo, ..Self::default() }
    }
}

/// What is wrong with the tenants of a plan, if anything.
pub(super) fn problem(tenants: &[PlanTenant]) -> Option<String> {
    if tenants.is_empty() || tenants.len() > usize::from(u16::MAX) {
        return Some("a plan needs from 1 to 65,535 tenants".into());
    }
    let bad = tenants.iter().find(|t| !(t.share > 0.0 && t.share.is_finite()))?;
    Some(format!("the share of tenant '{}' must be above 0, not {}", bad.name, bad.share))
}

/// The place of the share at a point between 0 and the sum of them all.
pub(super) fn pick(shares: &[f64], mut point: f64) -> u16 {
    for (i, share) in (0u16..).zip(shares) {
        if point < *share {
            return i;
        }
        point -= share;
    }
    // Rounding may leave a point just past the last share.
    (shares.len() - 1) as u16
}
