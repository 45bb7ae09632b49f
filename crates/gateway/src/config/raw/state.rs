//! `[state]`: what is kept over a restart.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is kept over a restart, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawState {
    /// A file for what was learned, relative to the working directory.
    pub file: Option<PathBuf>,
    /// How often it is written, and once more at the end.
    pub interval: Option<String>,
}
