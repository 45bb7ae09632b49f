//! The configuration as a user writes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use elasticserve_core::sched::{OnMiss, Order};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ConfigError, value};

/// The configuration file as it is written, all of it optional. Flags fill the same structure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// Where clients connect.
    pub listen: Option<String>,
    /// Where probes and metrics are served.
    pub admin: Option<String>,
    /// A file with the tenants, relative to this one.
    pub tenants_file: Option<PathBuf>,
    /// The tenant of requests that name none, or one that is not known.
    pub default_tenant: Option<String>,
    /// The servers behind the gateway.
    pub backends: Option<Vec<RawBackend>>,
    /// Whose requests there are.
    pub tenants: Option<Vec<RawTenant>>,
    /// What may wait, who goes next and what is turned away.
    #[serde(default)]
    pub queue: RawQueue,
    /// What a request takes.
    #[serde(default)]
    pub predict: RawPredict,
    /// Bounds on what clients may send.
    #[serde(default)]
    pub limits: RawLimits,
    /// When to give up.
    #[serde(default)]
    pub timeouts: RawTimeouts,
    /// What makes an answer useful, for tenants that have no limits of their own.
    #[serde(default)]
    pub slo: RawSlo,
    /// What is kept over a restart.
    #[serde(default)]
    pub state: RawState,
    /// What is written down.
    #[serde(default)]
    pub log: RawLog,
}

/// A backend as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawBackend {
    /// Its base URL, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// The requests that it may work on at once.
    pub permits: Option<u32>,
}

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
    /// Its class under `priority`, 0 the first; the highest that its requests may ask for.
    pub class: Option<u32>,
    /// What becomes of its work whose deadline is lost, in place of the queue's.
    pub on_miss: Option<OnMiss>,
    /// Its limits, in place of all of `slo`.
    pub slo: Option<RawSlo>,
}

/// The queue as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawQueue {
    /// Who goes next.
    pub order: Option<Order>,
    /// What is turned away.
    pub admission: Option<RawAdmission>,
    /// The most requests that may wait.
    pub depth: Option<u32>,
    /// The most bytes of bodies that may wait.
    pub bytes: Option<u64>,
    /// How long a request may wait, such as `"750ms"`.
    pub budget: Option<String>,
    /// How much Jain's index over the tenants counts beside attainment, under `price`.
    pub fairness: Option<f64>,
    /// How long a class may hold back what came before it, under `priority`.
    pub guard: Option<String>,
    /// What becomes of running work whose deadline is lost, of tenants that do not say.
    pub on_miss: Option<OnMiss>,
    /// Names of classes that requests may ask for.
    pub classes: Option<BTreeMap<String, u32>>,
    /// Another policy, of which only the decisions are counted, such as `"wfq+budget:750ms"`.
    pub shadow: Option<String>,
    /// The status of what cannot be met even by an idle server: 422 or 429.
    pub infeasible_status: Option<u16>,
}

/// What is turned away, other than for the queue's size.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RawAdmission {
    /// Nothing.
    None,
    /// What has waited for its budget.
    Budget,
    /// What is predicted to miss its limits.
    Predict,
    /// That, and what costs the others more than it is worth.
    Price,
}

/// A cost model as it is written: an engine profile, single values, or both; values win.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPredict {
    /// A built-in engine profile, or a file that ends in `.toml`, relative to this one.
    pub profile: Option<String>,
    /// Both ways between the gateway and the engine's queue.
    pub overhead: Option<String>,
    /// Computing one prompt token.
    pub prefill_per_token: Option<String>,
    /// Steps from a free seat to the first token.
    pub first_token_steps: Option<u64>,
    /// Time per output token of an idle engine.
    pub idle_tpot: Option<String>,
    /// Kept free before every limit.
    pub pad: Option<String>,
    /// Added to the time per output token, as a fraction of it.
    pub margin: Option<f64>,
    /// What lengths of answers are taken from.
    pub lengths: Option<Lengths>,
    /// What a request takes from the others, where it is not the profile's.
    pub stall: Option<RawStall>,
}

/// How lengths of answers are known.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// As a request declares it exactly; else as they were before, `max_tokens` telling requests apart.
    #[default]
    Learned,
    /// As a request declares it exactly; else `max_tokens` is taken for the length.
    Declared,
}

/// The stall of a request as it is written, all of it needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawStall {
    /// Of a prompt token beyond those that are free, in ms.
    pub per_token_ms: f64,
    /// Prompt tokens that a full batch's steps hide.
    pub free_tokens: f64,
    /// Of (1000 prompt tokens)², in ms.
    pub attention_ms: f64,
    /// Of reading one token of KV cache once, in ms.
    pub kv_ms_per_token: f64,
}

/// Bounds as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// Connections from clients.
    pub connections: Option<u32>,
    /// Bytes of one request body.
    pub body_bytes: Option<u64>,
}

/// Timeouts as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTimeouts {
    /// For a client's request head, and for an idle client connection.
    pub header: Option<String>,
    /// For a client's request body.
    pub body: Option<String>,
    /// For a connection to a backend.
    pub connect: Option<String>,
    /// For a backend's response head.
    pub head: Option<String>,
    /// Between two pieces of a backend's response body.
    pub idle: Option<String>,
    /// For what runs when the gateway is told to stop.
    pub drain: Option<String>,
}

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

/// What is kept over a restart, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawState {
    /// A file for what was learned, relative to the working directory.
    pub file: Option<PathBuf>,
    /// How often it is written, and once more at the end.
    pub interval: Option<String>,
}

/// Logs as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLog {
    /// A file for one line about each scheduled request, relative to the working directory.
    pub decisions: Option<PathBuf>,
}

/// A file of tenants.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantsFile {
    default_tenant: Option<String>,
    tenants: Vec<RawTenant>,
}

impl RawConfig {
    /// Reads a configuration file, and the file of tenants that it names.
    ///
    /// # Errors
    /// [`ConfigError::File`] names the file; then see [`RawConfig::from_toml`].
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let mut raw: Self = read_file(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        if let Some(profile) = raw.predict.profile.as_mut().filter(|p| is_file(p)) {
            *profile = folder.join(&*profile).to_string_lossy().into_owned();
        }
        raw.read_tenants(folder)?;
        Ok(raw)
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// [`ConfigError::Parse`] names the key, the line and, for an unknown key, the nearest known one.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        from_toml(text)
    }

    /// Puts the tenants of `tenants_file` in its place.
    fn read_tenants(&mut self, folder: &Path) -> Result<(), ConfigError> {
        let Some(file) = self.tenants_file.take() else { return Ok(()) };
        if self.tenants.is_some() || self.default_tenant.is_some() {
            return Err(value(
                "tenants_file",
                "tenants and default_tenant are in this file too; keep them in one of the two",
            ));
        }
        let read: TenantsFile = read_file(&folder.join(file))?;
        self.tenants = Some(read.tenants);
        self.default_tenant = read.default_tenant;
        Ok(())
    }
}

/// Whether a profile is named by its file.
pub(super) fn is_file(profile: &str) -> bool {
    Path::new(profile).extension().is_some_and(|e| e == "toml")
}

fn read_file<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let wrong = |problem: String| ConfigError::File { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    from_toml(&text).map_err(|e| wrong(e.to_string()))
}

fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    elasticserve_core::config::from_toml(text).map_err(ConfigError::Parse)
}
