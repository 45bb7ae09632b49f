//! Published measurements as data: the rows of `reference/spark-gb10.toml`, or of a file of the user's own
//! in the same form.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Column;
use crate::slo::Slo;
use crate::time::Span;

/// A file of measurements with the conditions under which they were taken.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    pub(super) slo: SloMs,
    #[serde(default)]
    pub(super) workload: Workload,
    #[serde(default)]
    pub(super) mixed: Mixed,
    #[serde(default)]
    pub(super) gateway: MeasuredGateway,
    #[serde(default)]
    pub(super) cache: BTreeMap<String, CacheOfRows>,
    #[serde(default)]
    pub(super) pair_order: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub(super) requests: BTreeMap<String, u32>,

    #[serde(default)]
    pub(super) unloaded: Vec<Unloaded>,
    pub(super) low_rate: Option<Rate>,
    #[serde(default)]
    pub(super) saturation: Vec<Rate>,
    pub(super) gateway_overhead: Option<Overhead>,
    #[serde(default)]
    pub(super) permits: Vec<Permits>,
    #[serde(default)]
    pub(super) queue_budget: Vec<Budget>,
    #[serde(default)]
    pub(super) admission_pairs: Vec<Pair>,
    #[serde(default)]
    pub(super) mixed_pilot: Vec<Budget>,
    #[serde(default)]
    pub(super) tenants: Vec<Tenant>,
    #[serde(default)]
    pub(super) queue_order_pairs: Vec<Pair>,

    #[serde(default)]
    pub(super) admission_effects: BTreeMap<String, Effect>,
    #[serde(default)]
    pub(super) queue_order_effects: BTreeMap<String, Effect>,

    // Other models' parameters and output: nothing to replay.
    #[serde(default, rename = "cost_model")]
    _cost_model: Unread,
    #[serde(default, rename = "single_worker")]
    _single_worker: Unread,
}

/// Why a file of measurements cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PublishedError {
    /// Not TOML, an unknown key or a wrong type.
    #[error("measurements: {0}")]
    Parse(#[from] toml::de::Error),
    /// A row that cannot be replayed.
    #[error("measurements: {row}: {problem}")]
    Row {
        /// Which.
        row: String,
        /// Why.
        problem: String,
    },
}

const MEASUREMENTS: &str = include_str!("../../../../../reference/spark-gb10.toml");
const CONDITIONS: &str = include_str!("../../../../../reference/spark-gb10-conditions.toml");

impl Published {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`PublishedError::Parse`], which names the key and the line.
    pub fn from_toml(text: &str) -> Result<Self, PublishedError> {
        Ok(toml::from_str(text)?)
    }

    /// The published measurements that come with the program.
    ///
    /// # Errors
    /// As [`Published::from_toml`].
    pub fn built_in() -> Result<Self, PublishedError> {
        Self::from_toml(&format!("{MEASUREMENTS}\n{CONDITIONS}"))
    }

    /// The time that the measured gateway itself took.
    #[must_use]
    pub fn gateway_times(&self) -> GatewayTimes {
        let ms = Span::from_millis_f64;
        GatewayTimes {
            overhead_in: ms(self.gateway.in_ms),
            overhead_out: ms(self.gateway.out_ms),
            release_delay: ms(self.gateway.release_ms),
        }
    }
}

/// The time that a gateway itself takes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayTimes {
    /// From the client's send to the scheduler.
    pub overhead_in: Span,
    /// From the engine's token to the client.
    pub overhead_out: Span,
    /// From the end of a stream to the next waiter's release.
    pub release_delay: Span,
}

/// Limits in ms.
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SloMs {
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    e2e_ms: Option<f64>,
}

impl From<SloMs> for Slo {
    fn from(ms: SloMs) -> Self {
        let span = |limit: Option<f64>| limit.map(Span::from_millis_f64);
        Self { ttft: span(ms.ttft_ms), tpot: span(ms.tpot_ms), e2e: span(ms.e2e_ms) }
    }
}

/// Where arrival times come from.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Arrivals {
    /// The recorded times of `vllm bench serve`.
    VllmBench,
    /// Drawn as `elasticserve load` draws them.
    #[default]
    Load,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Workload {
    pub(super) arrivals: Arrivals,
    pub(super) seed: u64,
    pub(super) requests: u32,
    pub(super) input: u32,
    pub(super) output: u32,
    pub(super) first_prompt_warm: bool,
}

impl Default for Workload {
    fn default() -> Self {
        let (seed, requests, input, output) = (0, 200, 256, 64);
        Self { arrivals: Arrivals::Load, seed, requests, input, output, first_prompt_warm: false }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mixed {
    pub(super) seed: u64,
    pub(super) offered: f64,
    pub(super) input: [u32; 2],
    pub(super) output: [u32; 2],
}

impl Default for Mixed {
    fn default() -> Self {
        Self { seed: 101, offered: 8.0, input: [64, 960], output: [32, 224] }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MeasuredGateway {
    pub(super) permits: u32,
    pub(super) depth: u32,
    pub(super) offered: f64,
    pub(super) budget_ms: f64,
    in_ms: f64,
    out_ms: f64,
    release_ms: f64,
}

impl Default for MeasuredGateway {
    fn default() -> Self {
        let (permits, depth, offered, budget_ms) = (32, 256, 16.0, 750.0);
        Self { permits, depth, offered, budget_ms, in_ms: 0.0, out_ms: 0.0, release_ms: 0.0 }
    }
}

/// The state of the prefix cache for a table's rows: one for all, or one each.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum CacheOfRows {
    All(CacheWord),
    Each(Vec<CacheWord>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum CacheWord {
    Named(String),
    First(u32),
}

/// One request at a time.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Unloaded {
    pub(super) input: u32,
    pub(super) output: u32,
    #[serde(flatten)]
    pub(super) cells: Cells,
}

/// An open load straight to the engine.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Rate {
    pub(super) offered: f64,
    #[serde(flatten)]
    pub(super) cells: Cells,
}

/// The same load without and with a gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Overhead {
    #[serde(default = "half")]
    pub(super) offered: f64,
    pub(super) direct: Cells,
    pub(super) gateway: Cells,
}

const fn half() -> f64 {
    0.5
}

/// A gateway with a number of permits and no queue budget.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Permits {
    pub(super) permits: u32,
    #[serde(flatten)]
    pub(super) cells: Cells,
}

/// A gateway with a queue budget; 0 stands for none.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Budget {
    pub(super) budget_ms: f64,
    #[serde(flatten)]
    pub(super) cells: Cells,
}

/// Two runs of one trace.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pair {
    pub(super) seed: u64,
    #[serde(flatten)]
    pub(super) cells: Cells,
}

/// Whose requests they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) share: f64,
    pub(super) weight: f64,
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    e2e_ms: Option<f64>,
}

impl Tenant {
    pub(super) fn slo(&self) -> Slo {
        SloMs { ttft_ms: self.ttft_ms, tpot_ms: self.tpot_ms, e2e_ms: self.e2e_ms }.into()
    }
}

/// Measured values by the names of their columns.
pub(super) type Cells = BTreeMap<String, Cell>;

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Cell {
    /// A value.
    One(f64),
    /// A value for each of several quantiles, or for each side of a pair.
    Several(BTreeMap<String, f64>),
}

/// What a change did over all pairs.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Effect {
    /// The median over the pairs, and the interval that it lies in with a confidence of 95 %.
    Median { median: f64, low: Option<f64>, high: Option<f64> },
    /// Something that is not a median: not compared.
    Other(Unread),
}

/// A part of the file that is not read.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread;

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The values of one run: of `cells` those of this side, where a cell has sides.
pub(super) fn columns(row: &str, cells: &Cells, side: Option<&str>) -> Result<Vec<(Column, f64)>, PublishedError> {
    let mut found = Vec::new();
    for (name, cell) in cells {
        let unknown = |name: &str| PublishedError::Row {
            row: row.to_owned(),
            problem: format!("no figure is called '{name}'; there are: {}", Column::names()),
        };
        let named = |name: &str| Column::from_name(name).ok_or_else(|| unknown(name));
        match (cell, side) {
            (Cell::One(value), None) => found.push((named(name)?, *value)),
            (Cell::Several(values), None) => {
                for (part, value) in values {
                    found.push((named(&format!("{name}_{part}"))?, *value));
                }
            }
            (Cell::Several(sides), Some(side)) => {
                let column = named(name)?;
                found.extend(sides.get(side).map(|value| (column, *value)));
            }
            // A value of one side alone carries the side in its name.
            (Cell::One(value), Some(side)) => match name.split_once('_') {
                Some((of, rest)) if of == side => found.push((named(rest)?, *value)),
                Some(("control" | "candidate" | "fcfs" | "wfq", _)) => {}
                _ => return Err(unknown(name)),
            },
        }
    }
    Ok(found)
}
