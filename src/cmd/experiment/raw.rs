//! An experiment as a user writes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_gateway::config::RawConfig;
use serde::{Deserialize, Deserializer};

use crate::cmd::load::scenario::{RunPart, TargetPart, WorkPart};

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExperiment {
    pub(super) name: String,
    pub(super) title: Option<String>,
    pub(super) question: Option<String>,
    #[serde(default)]
    pub(super) stand: RawStand,
    #[serde(default)]
    pub(super) runs: RawRuns,
    #[serde(default)]
    pub(super) target: TargetPart,
    #[serde(default)]
    pub(super) run: RunPart,
    pub(super) workloads: Vec<RawWorkload>,
    pub(super) gateway: Option<RawConfig>,
    pub(super) permits: Option<u32>,
    pub(super) arms: Vec<RawArm>,
    pub(super) baseline: Option<String>,
    #[serde(default)]
    pub(super) allow: Vec<String>,
    pub(super) published: Option<RawPublished>,
}

/// Where runs are made, unless flags say otherwise.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStand {
    pub(super) profile: Option<String>,
    pub(super) speed: Option<f64>,
    #[serde(default)]
    pub(super) simulated_gateway: RawGatewayTimes,
}

/// What a simulated gateway takes of a request's time.
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGatewayTimes {
    #[serde(rename = "in")]
    pub(super) before: Option<Time>,
    pub(super) out: Option<Time>,
    pub(super) release: Option<Time>,
}

/// Which runs there are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRuns {
    pub(super) seeds: Option<Vec<u64>>,
    pub(super) order: Option<RawOrder>,
    pub(super) order_seed: Option<u64>,
    pub(super) salt: Option<RawSalt>,
    pub(super) prompts: Option<String>,
    pub(super) reset_cache: Option<bool>,
    pub(super) cool_down: Option<Time>,
}

/// Which arm of a pair is run first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawOrder {
    /// From seed to seed the next one.
    #[default]
    Alternate,
    /// Drawn for each seed.
    Random,
    /// Always the one that stands first in the file.
    AsListed,
}

/// Which runs have prompts in common.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawSalt {
    /// None.
    #[default]
    Own,
    /// Those of one seed and workload.
    Pair,
    /// All that have no salt, in this experiment and elsewhere.
    None,
}

/// What is offered: one of a scenario file, a scenario in place, and recorded arrivals.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorkload {
    pub(super) name: String,
    pub(super) scenario: Option<PathBuf>,
    pub(super) work: Option<WorkPart>,
    pub(super) vllm_bench: Option<RawVllmBench>,
    pub(super) primed: Option<RawPrimed>,
    pub(super) seeds: Option<Vec<u64>>,
}

/// The recorded arrivals of `vllm bench serve`.
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVllmBench {
    pub(super) rate: f64,
    pub(super) requests: Option<u32>,
    pub(super) input: Option<u32>,
    pub(super) output: Option<u32>,
    pub(super) lengths: Option<RawRecorded>,
    #[serde(default)]
    pub(super) slo: RawSlo,
}

/// Lengths that were recorded with the arrivals.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawRecorded {
    /// Mixed ones.
    Recorded,
}

/// Limits.
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSlo {
    ttft: Option<Time>,
    tpot: Option<Time>,
    e2e: Option<Time>,
}

/// So many of a plan's first prompts are in the prefix cache: a number, or `"all"`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct RawPrimed(pub(super) u32);

/// A policy, or another target.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawArm {
    pub(super) name: String,
    #[serde(default)]
    pub(super) direct: bool,
    pub(super) policy: Option<String>,
    pub(super) permits: Option<u32>,
    pub(super) gateway: Option<RawConfig>,
    pub(super) gateway_file: Option<PathBuf>,
    pub(super) url: Option<String>,
}

/// Figures that somebody has measured, to compare with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPublished {
    pub(super) source: String,
    #[serde(default)]
    pub(super) figures: Vec<RawFigures>,
    #[serde(default)]
    pub(super) effects: Vec<RawEffects>,
}

/// Figures of one run; what is not named is the only one that there is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFigures {
    pub(super) workload: Option<String>,
    pub(super) arm: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) values: BTreeMap<String, f64>,
}

/// Median effects of an arm against the baseline over all seeds of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEffects {
    pub(super) workload: Option<String>,
    pub(super) arm: Option<String>,
    pub(super) values: BTreeMap<String, RawEffect>,
}

/// A median and its interval of 95 %.
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEffect {
    pub(super) median: f64,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

/// A time with its unit: `"750ms"`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) Span);

impl RawSlo {
    pub(super) fn slo(self) -> Slo {
        let span = |time: Option<Time>| time.map(|t| t.0);
        Slo { ttft: span(self.ttft), tpot: span(self.tpot), e2e: span(self.e2e) }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RawPrimed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Count(u32),
            Word(String),
        }
        match Form::deserialize(deserializer) {
            Ok(Form::Count(count)) => Ok(Self(count)),
            Ok(Form::Word(word)) if word == "all" => Ok(Self(u32::MAX)),
            _ => Err(serde::de::Error::custom("write how many of the first prompts, or \"all\"")),
        }
    }
}
