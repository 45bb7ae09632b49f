//! `[log]`: what is written down.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which lines are written to stderr.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// What failed.
    Error,
    /// That, and what may need attention.
    Warn,
    /// That, and what changes.
    #[default]
    Info,
    /// That, and single requests.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How lines look on stderr.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For a person.
    Text,
    /// One JSON object on each line.
    Json,
}

/// Logs as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLog {
    /// A file for one line about each scheduled request, relative to the working directory.
    pub decisions: Option<PathBuf>,
    /// Whether there is a line on stderr for each request that has ended.
    pub access: Option<bool>,
    /// Which lines there are on stderr.
    pub level: Option<LogLevel>,
    /// How they look; by the terminal unless set.
    pub format: Option<LogFormat>,
}
