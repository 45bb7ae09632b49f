//! The rule that a run is held to.

use std::collections::BTreeMap;

use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use serde::Deserialize;

use super::target::{Target, TargetError};

/// What a release must reach, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What it is for.
    pub name: Option<String>,
    /// The two-sided confidence of every interval, strictly between 0 and 1.
    pub confidence: f64,
    /// The targets; where there is none, [`Target::DEFAULT`].
    pub targets: Vec<Target>,
    /// Planned arrivals that all repeats together must have.
    pub min_requests: u32,
    /// The same for tenants.
    pub tenant_min_requests: BTreeMap<String, u32>,
    /// Valid runs that it takes.
    pub repeats: u32,
    /// The name of the run that is to be fallen back to. It is compared with and not counted as a repeat.
    pub baseline: Option<String>,
    /// Whether a simulated run may be accepted.
    pub allow_simulated: bool,
    /// The limits of a good answer, for exports of other tools, which do not hold any.
    pub slo: Slo,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            name: None,
            confidence: 0.95,
            targets: Vec::new(),
            min_requests: 0,
            tenant_min_requests: BTreeMap::new(),
            repeats: 1,
            baseline: None,
            allow_simulated: false,
            slo: Slo::default(),
        }
    }
}

/// A rule as its file has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRule {
    name: Option<String>,
    confidence: Option<f64>,
    #[serde(default)]
    targets: Vec<String>,
    min_requests: Option<u32>,
    repeats: Option<u32>,
    baseline: Option<String>,
    allow_simulated: Option<bool>,
    #[serde(default)]
    slo: RawSlo,
    #[serde(default)]
    tenants: BTreeMap<String, RawTenant>,
}

/// Limits of a good answer in milliseconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSlo {
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    e2e_ms: Option<f64>,
}

/// What a rule asks for a tenant.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTenant {
    #[serde(default)]
    targets: Vec<String>,
    min_requests: Option<u32>,
}

/// Why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// A text that is not a target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A value that is out of range.
    #[error("{key}: {problem}")]
    Value {
        /// The key.
        key: String,
        /// What would be right.
        problem: &'static str,
    },
}

impl TryFrom<RawRule> for Rule {
    type Error = RuleError;

    fn try_from(raw: RawRule) -> Result<Self, RuleError> {
        let wrong = |key: &str, problem| RuleError::Value { key: key.to_owned(), problem };
        let confidence = raw.confidence.unwrap_or(0.95);
        if !(0.5..1.0).contains(&confidence) {
            return Err(wrong("confidence", "must be from 0.5 to below 1, such as 0.95"));
        }
        let repeats = raw.repeats.unwrap_or(1);
        if !(1..=super::MAX_REPEATS).contains(&repeats) {
            return Err(wrong("repeats", "must be from 1 to 16"));
        }
        let mut targets: Vec<Target> = raw.targets.iter().map(|t| t.parse()).collect::<Result<_, _>>()?;
        let mut tenant_min_requests = BTreeMap::new();
        for (name, tenant) in &raw.tenants {
            for text in &tenant.targets {
                let target: Target = text.parse()?;
                if target.tenant.is_some() {
                    return Err(wrong(
                        &format!("tenants.{name}.targets"),
                        "the tenant is named already: leave [NAME] out",
                    ));
                }
                targets.push(target.of_tenant(name));
            }
            tenant_min_requests.extend(tenant.min_requests.map(|n| (name.clone(), n)));
        }
        Ok(Self {
            name: raw.name,
            confidence,
            targets,
            min_requests: raw.min_requests.unwrap_or(0),
            tenant_min_requests,
            repeats,
            baseline: raw.baseline,
            allow_simulated: raw.allow_simulated.unwrap_or(false),
            slo: raw.slo.checked()?,
        })
    }
}

impl RawSlo {
    fn checked(&self) -> Result<Slo, RuleError> {
        let limit = |key: &str, ms: Option<f64>| match ms {
            Some(ms) if !(ms.is_finite() && ms > 0.0) => {
                Err(RuleError::Value { key: format!("slo.{key}"), problem: "must be milliseconds above 0" })
            }
            ms => Ok(ms.map(Span::from_millis_f64)),
        };
        Ok(Slo {
            ttft: limit("ttft_ms", self.ttft_ms)?,
            tpot: limit("tpot_ms", self.tpot_ms)?,
            e2e: limit("e2e_ms", self.e2e_ms)?,
        })
    }
}

impl Rule {
    /// The targets, or the default where the rule has none.
    #[must_use]
    pub fn targets_or_default(&self) -> Vec<Target> {
        if self.targets.is_empty() { vec![Target::DEFAULT] } else { self.targets.clone() }
    }
}
