//! The configuration as a user writes it: one file for each section.

mod backends;
mod file;
mod keys;
mod limits;
mod log;
mod predict;
mod queue;
mod reload;
mod slo;
mod state;
mod tenants;
mod timeouts;
mod tls;
mod trace;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Files;

pub use backends::{Affinity, Discovery, RawBackend, RawEngine, RawEngines, RawHealth, RawPool};
pub(super) use file::is_file;
pub use keys::RawKey;
pub use limits::RawLimits;
pub use log::{LogFormat, LogLevel, RawLog};
pub use predict::{Lengths, RawPredict, RawStall};
pub use queue::{RawAdmission, RawQueue};
pub use reload::RawReload;
pub use slo::RawSlo;
pub use state::RawState;
pub use tenants::RawTenant;
pub use timeouts::RawTimeouts;
pub use tls::RawTls;
pub use trace::RawTrace;

/// The configuration file as it is written, all of it optional. Flags fill the same structure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// Where clients connect.
    pub listen: Option<String>,
    /// Where probes and metrics are served.
    pub admin: Option<String>,
    /// The SHA-256 of the token that operators show on the admin listener, in hexadecimal.
    pub admin_token_sha256: Option<String>,
    /// Whether there is more than probes and metrics on the admin listener.
    pub admin_api: Option<bool>,
    /// A file with the tenants, relative to this one.
    pub tenants_file: Option<PathBuf>,
    /// The tenant of requests that name none, or one that is not known.
    pub default_tenant: Option<String>,
    /// The pool of requests that name no model, where there are several.
    pub default_pool: Option<String>,
    /// Networks of proxies whose word on tenants is believed, such as `10.0.0.0/8`.
    pub trusted_proxies: Option<Vec<String>>,
    /// The servers behind the gateway.
    pub backends: Option<Vec<RawBackend>>,
    /// Which of them serve what.
    pub pools: Option<Vec<RawPool>>,
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
    /// How backends are watched.
    #[serde(default)]
    pub health: RawHealth,
    /// The metrics of engines that are not built in.
    #[serde(default)]
    pub engines: RawEngines,
    /// What the listener shows.
    #[serde(default)]
    pub tls: RawTls,
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
    /// Where spans go.
    #[serde(default)]
    pub trace: RawTrace,
    /// When it is read again.
    #[serde(default)]
    pub reload: RawReload,
    /// The files that this was read from.
    #[serde(skip)]
    pub files: Files,
}
