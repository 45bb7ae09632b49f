//! The gateway's configuration: what a user writes, and what has been checked.

mod backends;
mod change;
mod check;
mod credential;
mod effective;
mod files;
mod keys;
mod nets;
mod policy;
mod raw;
mod sped_up;
mod tenants;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use elasticserve_core::ids::TenantId;
use elasticserve_core::sched::{Admission, CostModel, Order, Predict, Price, Rules, Settings};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use http::StatusCode;

use crate::secret::Digest;
use crate::tls::ListenerTls;

pub use backends::{Backend, MAX_BACKENDS, MAX_MODELS, MAX_POOLS, Pool, PoolProfile, Watch, fnv};
pub use credential::{Credential, Source};
pub use files::Files;
pub use keys::{Expiry, Key, Keys, MAX_KEYS};
pub use nets::Net;
pub use raw::{
    Affinity, Discovery, Lengths, LogFormat, LogLevel, RawAdmission, RawBackend, RawConfig, RawEngine, RawEngines,
    RawHealth, RawKey, RawLimits, RawLog, RawPool, RawPredict, RawQueue, RawReload, RawSlo, RawStall, RawState,
    RawTenant, RawTimeouts, RawTls, RawTrace,
};
pub use tenants::{MAX_NAME, MAX_TENANTS, Tenant};
pub use trace::Trace;

/// A checked configuration. All but `fixed` can be replaced while the gateway runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What holds for the whole life of a gateway.
    pub fixed: Fixed,
    /// The files that it was read from: once one of them changes, it is read again.
    pub files: Files,
    /// Which backends serve what, at least one.
    pub pools: Vec<Pool>,
    /// The place of the pool of requests that name no model, where there are several.
    pub default_pool: Option<usize>,
    /// The servers behind the gateway, at least one of each pool.
    pub backends: Vec<Backend>,
    /// How they are watched.
    pub watch: Watch,
    /// Whose requests there are, at least one, each by its [`TenantId`].
    pub tenants: Vec<Tenant>,
    /// The tenant of requests that name none, or one that is not known.
    pub default_tenant: TenantId,
    /// What the listener shows; `None` for plain HTTP.
    pub tls: Option<ListenerTls>,
    /// The keys of all tenants; without any, clients need not show one.
    pub keys: Keys,
    /// Proxies whose word on tenants is believed.
    pub trusted_proxies: Vec<Net>,
    /// Who goes next.
    pub order: Order,
    /// How long a class may hold back what came before it.
    pub guard: Span,
    /// What turns away requests that cannot meet their limits; `None` for nothing.
    pub predict: Option<Predict>,
    /// What also turns away requests that cost the others more than they are worth; `None` for nothing.
    pub price: Option<Price>,
    /// Another policy, of which only the decisions are counted.
    pub shadow: Option<ShadowPolicy>,
    /// What lengths of answers are taken from.
    pub lengths: Lengths,
    /// What a request takes.
    pub cost: CostModel,
    /// The most requests that may wait.
    pub queue_depth: u32,
    /// The most bytes of bodies that may wait.
    pub queue_bytes: u64,
    /// How long a request may wait; `None` for as long as it takes.
    pub queue_budget: Option<Span>,
    /// Names of classes that requests may ask for.
    pub classes: BTreeMap<String, u32>,
    /// The status of what cannot be met even by an idle server.
    pub infeasible_status: StatusCode,
    /// Connections from clients.
    pub max_connections: u32,
    /// Bytes of one request body.
    pub max_body_bytes: u64,
    /// Bytes of all request bodies that are in memory.
    pub max_body_memory: u64,
    /// When to give up.
    pub timeouts: Timeouts,
    /// The limits of tenants that have none of their own.
    pub slo: Slo,
    /// Whether there is a line on stderr for each request that has ended.
    pub access_log: bool,
}

/// What is set up once, at the start: it takes a restart to change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where probes and metrics are served.
    pub admin: SocketAddr,
    /// What the token of operators is known by, if they need one.
    pub admin_token: Option<Digest>,
    /// Whether operators may ask and change anything on the admin listener, beside probes and metrics.
    pub admin_api: bool,
    /// Where what was learned is kept over a restart.
    pub state: Option<State>,
    /// A file for one line about each scheduled request.
    pub decisions: Option<PathBuf>,
    /// Which lines there are on stderr.
    pub log_level: LogLevel,
    /// How they look; by the terminal unless set.
    pub log_format: Option<LogFormat>,
    /// Where spans go.
    pub trace: Option<Trace>,
    /// Whether the files of the configuration are watched.
    pub watch: bool,
    /// The names of the pools.
    pub pools: Vec<String>,
}

/// A policy that decides nothing.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ShadowPolicy {
    /// Who would go next and who would be turned away.
    pub rules: Rules,
    /// By which predictions.
    pub predict: Option<Predict>,
    /// At which price.
    pub price: Option<Price>,
}

/// What is kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its file.
    pub file: PathBuf,
    /// How often it is written.
    pub interval: Span,
}

/// Checked timeouts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a client's request head, and for an idle client connection.
    pub header: Span,
    /// For a client's request body.
    pub body: Span,
    /// For a connection to a backend.
    pub connect: Span,
    /// For a backend's response head.
    pub head: Span,
    /// Between two pieces of a backend's response body.
    pub idle: Span,
    /// How long a stream of events may be silent before its client gets a comment; `None` for never.
    pub keep_alive: Option<Span>,
    /// For a client that reads nothing of what there is for it.
    pub write: Span,
    /// For what runs when the gateway is told to stop.
    pub drain: Span,
    /// Between the moment at which the gateway tells that it is going, and that from which on it refuses.
    pub drain_delay: Span,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not TOML, or has a key that is unknown or of the wrong type.
    #[error("{0}")]
    Parse(String),
    /// A value that is out of range, or does not go with another.
    #[error("{key}: {problem}")]
    Value {
        /// The key, with dots.
        key: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A file that cannot be read.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl Config {
    /// Permits of a backend that does not say how many: vLLM's default of a small engine.
    pub const DEFAULT_PERMITS: u32 = 32;

    /// What the shadow's scheduler of the first pool is built from, if there is one.
    #[must_use]
    pub fn shadow(&self) -> Option<Settings> {
        self.shadow_of(0).map(|settings| Settings { backends: self.permits_of(0), ..settings })
    }

    /// What the scheduler of the first pool is built from.
    #[must_use]
    pub fn scheduler(&self) -> Settings {
        Settings { backends: self.permits_of(0), ..self.scheduler_of(0) }
    }

    /// What the shadow's scheduler of a pool is built from, if there is one, without its backends.
    #[must_use]
    pub fn shadow_of(&self, pool: usize) -> Option<Settings> {
        let ShadowPolicy { rules, predict, price } = self.shadow?;
        let budget = match rules.admission {
            Admission::Budget(budget) => Some(budget),
            _ => None,
        };
        let price = self.price_of(pool, price);
        Some(Settings { order: rules.order, budget, predict, price, ..self.scheduler_of(pool) })
    }

    /// What the scheduler of a pool is built from, without its backends.
    #[must_use]
    pub fn scheduler_of(&self, pool: usize) -> Settings {
        let of_pool = self.pools.get(pool);
        let profile = of_pool.and_then(|p| p.profile.as_ref());
        Settings {
            tenants: self.tenants.iter().map(Tenant::policy).collect(),
            order: self.order,
            depth: self.queue_depth as usize,
            max_bytes: self.queue_bytes,
            budget: self.queue_budget,
            cost: profile.map_or(self.cost, |p| p.cost),
            predict: self.predict,
            price: self.price_of(pool, self.price),
            guard: self.guard,
            affinity_slack: of_pool.map_or(Span::ZERO, |p| p.affinity_slack),
            ..Settings::fcfs(Vec::new())
        }
    }

    /// The permits of the backends of a pool that are written down with their addresses.
    fn permits_of(&self, pool: usize) -> Vec<u32> {
        self.backends.iter().filter(|b| b.pool == pool && b.look_up.is_none()).map(Backend::seats).collect()
    }

    /// A price by what a request takes from the others in that pool.
    fn price_of(&self, pool: usize, price: Option<Price>) -> Option<Price> {
        let stall = self.pools.get(pool).and_then(|p| p.profile.as_ref()).map(|p| p.stall);
        price.map(|price| Price { stall: stall.unwrap_or(price.stall), ..price })
    }
}

fn value(key: &str, problem: &str) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), problem: problem.to_owned() }
}
