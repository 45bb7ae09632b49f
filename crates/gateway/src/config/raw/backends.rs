//! `[[backends]]`, `[[pools]]` and how they are watched.

use std::collections::BTreeMap;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A backend as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawBackend {
    /// Its base URL, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// The requests that it may work on at once.
    pub permits: Option<u32>,
    /// Whether it gets no new work.
    pub drain: Option<bool>,
    /// The pool that it belongs to; needed where there are several.
    pub pool: Option<String>,
    /// How much faster a seat of it works than one of weight 1.
    pub weight: Option<u32>,
    /// A built-in engine profile, or a file that ends in `.toml`: what a request takes there.
    pub profile: Option<String>,
    /// Where its addresses come from, if there are several behind the URL.
    pub discover: Option<Discovery>,
    /// How often they are looked up.
    pub interval: Option<String>,
    /// Whose metrics it shows under `/metrics`: a name of `engines`, or one that is built in.
    pub engine: Option<String>,
    /// The variable of the environment with the key that it is shown.
    pub key_env: Option<String>,
    /// The file with the key that it is shown, relative to this one.
    pub key_file: Option<PathBuf>,
    /// The only roots that are trusted behind `https://`, in PEM, relative to this file; the public ones if there is none.
    pub ca_file: Option<PathBuf>,
}

/// Where addresses come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discovery {
    /// Every address of the URL's host is a backend.
    Dns,
}

/// A pool as it is written: backends that serve the same models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPool {
    /// Its name, in `backends` and in metrics.
    pub name: String,
    /// The models that it serves; all that are asked for if it is the only pool.
    pub models: Option<Vec<String>>,
    /// A built-in engine profile, or a file that ends in `.toml`, in place of `predict.profile`.
    pub profile: Option<String>,
    /// Which requests are better off on the same backend.
    pub affinity: Option<Affinity>,
    /// How much longer than the least loaded backend's its work for each seat may be for that.
    pub affinity_slack: Option<String>,
    /// The bytes of a prompt that make its prefix.
    pub prefix_bytes: Option<u32>,
}

/// Which requests are better off on the same backend.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Affinity {
    /// None.
    #[default]
    None,
    /// Those of a session, as the client names it.
    Session,
    /// Those whose prompts begin alike.
    Prefix,
}

/// How backends are watched, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawHealth {
    /// The path of the probe.
    pub path: Option<String>,
    /// Between two probes.
    pub interval: Option<String>,
    /// A probe without an answer for so long has failed.
    pub timeout: Option<String>,
    /// Failed probes in a row after which a backend counts as down.
    pub probes: Option<u32>,
    /// Failed requests in a row after which its circuit breaker opens.
    pub failures: Option<u32>,
    /// How long the breaker stays open the first time.
    pub open: Option<String>,
    /// How long it takes until a backend that has come back may have all its permits.
    pub slow_start: Option<String>,
    /// Between two looks at the metrics of backends that have an `engine`.
    pub metrics_interval: Option<String>,
}

/// The metrics of an engine, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEngine {
    /// The gauge of requests that run.
    pub running: String,
    /// The gauge of requests that wait in the engine.
    pub waiting: String,
}

/// Engines by name.
pub type RawEngines = BTreeMap<String, RawEngine>;
