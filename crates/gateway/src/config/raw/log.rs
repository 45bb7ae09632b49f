//! `[log]`: what is written down.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Logs as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLog {
    /// A file for one line about each scheduled request, relative to the working directory.
    pub decisions: Option<PathBuf>,
}
