//! A scenario as a user writes it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use elasticserve_core::slo::Slo;
use elasticserve_core::work::{ArrivalProcess, Step};
use serde::Deserialize;

use super::value::{RawLength, RawThink, RawTurns, Time};

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScenario {
    pub(super) name: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) requests: Option<NonZeroU32>,
    pub(super) duration: Option<Time>,
    pub(super) arrivals: Option<RawArrivals>,
    pub(super) closed: Option<RawClosed>,
    pub(super) sessions: Option<RawSessions>,
    pub(super) trace: Option<RawTrace>,
    pub(super) lengths: Option<RawSizes>,
    #[serde(default)]
    pub(super) prompts: RawPrompts,
    #[serde(default)]
    pub(super) slo: RawSlo,
    pub(super) tenants: Option<Vec<RawTenant>>,
    #[serde(default)]
    pub(super) target: RawTarget,
    #[serde(default)]
    pub(super) run: RawRun,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, String>,
}

/// When requests arrive.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum RawArrivals {
    Constant { rate: f64 },
    Poisson { rate: f64 },
    Gamma { rate: f64, burstiness: f64 },
    Steps { steps: Vec<RawStep> },
    Ramp { from: f64, to: f64 },
    Bursts { size: u32, every: Time },
}

#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    pub(super) rate: f64,
    #[serde(rename = "for")]
    pub(super) length: Time,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawClosed {
    pub(super) workers: NonZeroU32,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSessions {
    pub(super) users: NonZeroU32,
    pub(super) turns: RawTurns,
    pub(super) think: RawThink,
    pub(super) history: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTrace {
    pub(super) file: PathBuf,
    pub(super) speed_up: Option<f64>,
    pub(super) rows: Option<NonZeroU32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSizes {
    pub(super) input: Option<RawLength>,
    pub(super) output: Option<RawLength>,
    pub(super) pairs: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrompts {
    pub(super) kind: Option<String>,
    pub(super) salt: Option<bool>,
    pub(super) shared_prefix: Option<RawPrefix>,
    pub(super) dataset: Option<PathBuf>,
    pub(super) max_input: Option<u32>,
    pub(super) max_total: Option<u32>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrefix {
    pub(super) tokens: NonZeroU32,
    pub(super) groups: Option<NonZeroU32>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSlo {
    pub(super) ttft: Option<Time>,
    pub(super) tpot: Option<Time>,
    pub(super) e2e: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenant {
    pub(super) name: String,
    pub(super) share: Option<f64>,
    pub(super) arrivals: Option<RawArrivals>,
    pub(super) lengths: Option<RawSizes>,
    pub(super) shared_prefix: Option<RawPrefix>,
    pub(super) slo: Option<RawSlo>,
    pub(super) class: Option<String>,
    pub(super) key_env: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTarget {
    pub(super) url: Option<String>,
    pub(super) endpoint: Option<String>,
    pub(super) model: Option<String>,
    pub(super) streaming: Option<bool>,
    pub(super) ignore_eos: Option<bool>,
    pub(super) send_slo: Option<bool>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) extra_body: Option<toml::Table>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRun {
    pub(super) warmups: Option<u32>,
    pub(super) max_concurrency: Option<NonZeroU32>,
    pub(super) retries: Option<u32>,
    pub(super) ready_check: Option<Time>,
    pub(super) connect_timeout: Option<Time>,
    pub(super) ttft_timeout: Option<Time>,
    pub(super) idle_timeout: Option<Time>,
    pub(super) timeout: Option<Time>,
    pub(super) drain: Option<Time>,
    pub(super) max_send_lag: Option<Time>,
    pub(super) max_client_cpu: Option<f64>,
}

impl RawArrivals {
    /// The one rate, of a process that has one.
    pub(super) const fn rate_mut(&mut self) -> Option<&mut f64> {
        match self {
            Self::Constant { rate } | Self::Poisson { rate } | Self::Gamma { rate, .. } => Some(rate),
            Self::Steps { .. } | Self::Ramp { .. } | Self::Bursts { .. } => None,
        }
    }

    pub(super) fn process(&self) -> ArrivalProcess {
        match self.clone() {
            Self::Constant { rate } => ArrivalProcess::Constant { rate },
            Self::Poisson { rate } => ArrivalProcess::Poisson { rate },
            Self::Gamma { rate, burstiness } => ArrivalProcess::Gamma { rate, burstiness },
            Self::Steps { steps } => {
                let step = |s: RawStep| Step { rate: s.rate, length: s.length.0 };
                ArrivalProcess::Steps { steps: steps.into_iter().map(step).collect() }
            }
            Self::Ramp { from, to } => ArrivalProcess::Ramp { from, to },
            Self::Bursts { size, every } => ArrivalProcess::Bursts { size, every: every.0 },
        }
    }
}

impl RawSlo {
    pub(super) fn slo(self) -> Slo {
        let span = |time: Option<Time>| time.map(|t| t.0);
        Slo { ttft: span(self.ttft), tpot: span(self.tpot), e2e: span(self.e2e) }
    }
}
