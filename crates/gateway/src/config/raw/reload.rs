//! `[reload]`: when the configuration is read again.

use serde::{Deserialize, Serialize};

/// Reloading as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawReload {
    /// Whether a change of its files is a reason, beside the signal.
    pub watch: Option<bool>,
}
