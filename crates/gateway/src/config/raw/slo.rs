//! `slo`: what makes an answer useful.

use serde::{Deserialize, Serialize};

/// Service-level objectives as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSlo {
    /// Time to first token.
    pub ttft: Option<String>,
    /// Time per output token after the first.
    pub tpot: Option<String>,
    /// End to end.
    pub e2e: Option<String>,
}
