//! The gateway's configuration: what a user writes, and what has been checked.

mod check;
mod effective;
mod policy;
mod raw;
mod sped_up;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use elasticserve_core::ids::TenantId;
use elasticserve_core::sched::{Admission, CostModel, Order, Predict, Price, Rules, Settings};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use http::StatusCode;
use http::uri::Authority;

pub use raw::{
    Lengths, RawAdmission, RawBackend, RawConfig, RawLimits, RawLog, RawPredict, RawQueue, RawReload, RawSlo, RawStall,
    RawState, RawTenant, RawTimeouts,
};
pub use tenants::{MAX_NAME, MAX_TENANTS, Tenant};

/// A checked configuration. All but `fixed` can be replaced while the gateway runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What holds for the whole life of a gateway.
    pub fixed: Fixed,
    /// The files that it was read from: once one of them changes, it is read again.
    pub files: Vec<PathBuf>,
    /// The servers behind the gateway, at least one.
    pub backends: Vec<Backend>,
    /// Whose requests there are, at least one, each by its [`TenantId`].
    pub tenants: Vec<Tenant>,
    /// The tenant of requests that name none, or one that is not known.
    pub default_tenant: TenantId,
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
    /// When to give up.
    pub timeouts: Timeouts,
    /// The limits of tenants that have none of their own.
    pub slo: Slo,
}

/// What is set up once, at the start: it takes a restart to change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where probes and metrics are served.
    pub admin: SocketAddr,
    /// Where what was learned is kept over a restart.
    pub state: Option<State>,
    /// A file for one line about each scheduled request.
    pub decisions: Option<PathBuf>,
    /// Whether the files of the configuration are watched.
    pub watch: bool,
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

/// A checked backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Host and port.
    pub authority: Authority,
    /// What comes before the request's path, without a trailing slash.
    pub base_path: String,
    /// The requests that it may work on at once.
    pub permits: u32,
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
    /// For what runs when the gateway is told to stop.
    pub drain: Span,
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

    /// What the shadow's scheduler is built from, if there is one.
    #[must_use]
    pub fn shadow(&self) -> Option<Settings> {
        let ShadowPolicy { rules, predict, price } = self.shadow?;
        let budget = match rules.admission {
            Admission::Budget(budget) => Some(budget),
            _ => None,
        };
        Some(Settings { order: rules.order, budget, predict, price, ..self.scheduler() })
    }

    /// What the scheduler is built from.
    #[must_use]
    pub fn scheduler(&self) -> Settings {
        Settings {
            tenants: self.tenants.iter().map(Tenant::policy).collect(),
            order: self.order,
            depth: self.queue_depth as usize,
            max_bytes: self.queue_bytes,
            budget: self.queue_budget,
            cost: self.cost,
            predict: self.predict,
            price: self.price,
            guard: self.guard,
            ..Settings::fcfs(self.backends.iter().map(|b| b.permits).collect())
        }
    }
}

fn value(key: &str, problem: &str) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), problem: problem.to_owned() }
}
