//! `[[tenants]]`: whose requests there are.

use elasticserve_core::sched::OnMiss;
use serde::{Deserialize, Serialize};

use super::keys::RawKey;
use super::slo::RawSlo;

/// A tenant as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTenant {
    /// Its name, in the header and in metrics.
    pub name: String,
    /// Its share of the seats relative to the others, under `wfq`.
    pub weight: Option<u32>,
    /// The most permits that it may hold at once.
    pub max_permits: Option<u32>,
    /// The most requests of it that may wait.
    pub max_queued: Option<u32>,
    /// The most bytes of its bodies that may wait.
    pub max_queued_bytes: Option<u64>,
    /// Requests of it in a minute.
    pub requests_per_minute: Option<u64>,
    /// Tokens of it in a minute, of prompts and answers together.
    pub tokens_per_minute: Option<u64>,
    /// Its class under `priority`, 0 the first; the highest that its requests may ask for.
    pub class: Option<u32>,
    /// What becomes of its work whose deadline is lost, in place of the queue's.
    pub on_miss: Option<OnMiss>,
    /// Its limits, in place of all of `slo`.
    pub slo: Option<RawSlo>,
    /// The keys by which its clients are known.
    pub keys: Option<Vec<RawKey>>,
}
