//! Pools and backends: who serves what, and how they are watched.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use elasticserve_core::gate::GateRules;
use elasticserve_core::sched::{BackendPolicy, CostModel, Price, Stall};
use elasticserve_core::time::Span;
use http::Uri;
use http::uri::{Authority, PathAndQuery};

use super::check::{limit, optional_span, positive};
use super::policy;
use super::raw::{Affinity, Discovery, RawBackend, RawEngine, RawEngines, RawHealth, RawPool};
use super::tenants::is_name;
use super::{Config, ConfigError, Credential, credential, value};
use crate::tls::BackendTls;

/// The most pools: each has metrics of its own.
pub const MAX_POOLS: usize = 64;
/// The most backends that are written down.
pub const MAX_BACKENDS: usize = 4096;
/// The most models of one pool, and the longest name of one, in bytes.
pub const MAX_MODELS: usize = 1024;
const MAX_MODEL_NAME: usize = 256;
/// The pool that there is where none is written down.
const DEFAULT: &str = "default";
/// How much longer a request may be for its affinity, unless set.
const AFFINITY_SLACK: Span = Span::from_secs(1);
/// The bytes of a prompt that make its prefix, unless set, and at most.
const PREFIX_BYTES: u32 = 1024;
const MAX_PREFIX_BYTES: u32 = 1 << 20;
/// How often addresses are looked up, unless set.
const LOOK_UP: Span = Span::from_secs(10);
/// A look-up more often than this serves nobody.
const SOONEST_LOOK_UP: Span = Span::from_millis(100);
/// What is built in of engines' metrics: name, running, waiting.
const ENGINES: [(&str, &str, &str); 2] = [
    ("vllm", "vllm:num_requests_running", "vllm:num_requests_waiting"),
    ("sglang", "sglang:num_running_reqs", "sglang:num_queue_reqs"),
];

/// A checked pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The models that it serves; `None` for whatever is asked for.
    pub models: Option<BTreeSet<String>>,
    /// What a request takes there, if it does not go by `predict`.
    pub profile: Option<PoolProfile>,
    /// Which requests are better off on the same backend.
    pub affinity: Affinity,
    /// How much longer the least loaded backend's work for each seat may be exceeded for that.
    pub affinity_slack: Span,
    /// The bytes of a prompt that make its prefix.
    pub prefix_bytes: u32,
}

/// What a profile says.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolProfile {
    /// The name or file.
    pub name: String,
    /// What a request takes.
    pub cost: CostModel,
    /// What it takes from the others.
    pub stall: Stall,
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
    /// Whether it gets no new work.
    pub drain: bool,
    /// The place of its pool.
    pub pool: usize,
    /// How much faster a seat of it works than one of weight 1.
    pub weight: NonZeroU32,
    /// The name or file of its profile, and what a request takes there.
    pub profile: Option<(String, CostModel)>,
    /// How often its host is looked up, if every address of it is a backend.
    pub look_up: Option<Span>,
    /// The engine whose metrics it shows: its name, and theirs.
    pub engine: Option<(String, RawEngine)>,
    /// The key that it is shown, in place of the client's.
    pub credential: Option<Credential>,
    /// How it proves who it is; `None` for plain HTTP.
    pub tls: Option<BackendTls>,
}

impl Backend {
    /// The permits that there are of it now.
    pub(crate) const fn seats(&self) -> u32 {
        if self.drain { 0 } else { self.permits }
    }

    /// The port of its URL, or of its scheme.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 })
    }

    /// What the scheduler knows of it.
    #[must_use]
    pub fn policy(&self) -> BackendPolicy {
        let cost = self.profile.as_ref().map(|(_, cost)| *cost);
        let text = format!("{}{}", self.authority, self.base_path);
        BackendPolicy { permits: self.seats(), weight: self.weight, cost, identity: fnv(text.as_bytes()) }
    }
}

/// Checked ways to watch backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The path of the probe.
    pub path: PathAndQuery,
    /// Between two probes.
    pub interval: Span,
    /// A probe without an answer for so long has failed.
    pub timeout: Span,
    /// What is made of it.
    pub gate: GateRules,
    /// Between two looks at an engine's metrics.
    pub metrics_interval: Span,
}

/// FNV-1a: a short hash that is the same everywhere and for ever.
#[must_use]
pub const fn fnv(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The pools, one that serves whatever is asked for if none is written down.
pub(super) fn check_pools(raw: Option<Vec<RawPool>>) -> Result<Vec<Pool>, ConfigError> {
    let raw = raw.unwrap_or_else(|| vec![RawPool { name: DEFAULT.to_owned(), ..RawPool::default() }]);
    if raw.is_empty() || raw.len() > MAX_POOLS {
        return Err(value("pools", &format!("{} are given; there can be 1 to {MAX_POOLS}", raw.len())));
    }
    let several = raw.len() > 1;
    let mut names = BTreeMap::new();
    let mut models: BTreeMap<String, String> = BTreeMap::new();
    let mut pools = Vec::with_capacity(raw.len());
    for (i, raw) in raw.into_iter().enumerate() {
        let key = format!("pools[{i}]");
        let pool = raw.check(&key)?;
        if let Some(first) = names.insert(pool.name.clone(), i) {
            let problem = format!("'{}' is the name of pools[{first}] too; names must differ", pool.name);
            return Err(value(&format!("{key}.name"), &problem));
        }
        if pool.models.is_none() && several {
            let problem = "is needed where there are several pools, such as [\"Qwen/Qwen3-8B\"]";
            return Err(value(&format!("{key}.models"), problem));
        }
        for model in pool.models.iter().flatten() {
            if let Some(other) = models.insert(model.clone(), pool.name.clone()) {
                let problem = format!("'{model}' is served by pool '{other}' already; a model belongs to one pool");
                return Err(value(&format!("{key}.models"), &problem));
            }
        }
        pools.push(pool);
    }
    Ok(pools)
}

impl RawPool {
    fn check(self, key: &str) -> Result<Pool, ConfigError> {
        is_name(&format!("{key}.name"), &self.name)?;
        let models_key = format!("{key}.models");
        if let Some(models) = &self.models {
            if models.is_empty() || models.len() > MAX_MODELS {
                return Err(value(&models_key, &format!("must name 1 to {MAX_MODELS} models, or be left out")));
            }
            let fits = |m: &&String| !(1..=MAX_MODEL_NAME).contains(&m.len()) || m.chars().any(char::is_control);
            if let Some(bad) = models.iter().find(fits) {
                let problem = format!("{bad:?} must be 1 to {MAX_MODEL_NAME} bytes without control characters");
                return Err(value(&models_key, &problem));
            }
        }
        let affinity = self.affinity.unwrap_or_default();
        let set = [("affinity_slack", self.affinity_slack.is_some()), ("prefix_bytes", self.prefix_bytes.is_some())];
        let of_use = [affinity != Affinity::None, affinity == Affinity::Prefix];
        if let Some(((name, _), _)) = set.iter().zip(of_use).find(|((_, set), of_use)| *set && !of_use) {
            let problem = "goes with affinity = \"prefix\" (or, a slack, \"session\") only; set that, or leave it out";
            return Err(value(&format!("{key}.{name}"), problem));
        }
        let slack = optional_span(&format!("{key}.affinity_slack"), self.affinity_slack.as_deref())?;
        let prefix_bytes = self.prefix_bytes.unwrap_or(PREFIX_BYTES);
        if !(1..=MAX_PREFIX_BYTES).contains(&prefix_bytes) {
            return Err(value(&format!("{key}.prefix_bytes"), &format!("must be 1 to {MAX_PREFIX_BYTES}")));
        }
        let profile = match self.profile {
            Some(name) => {
                let engine = policy::profile(&format!("{key}.profile"), &name)?;
                let stall = Price::from_profile(&engine, 0.0).stall;
                Some(PoolProfile { name, cost: CostModel::from_profile(&engine), stall })
            }
            None => None,
        };
        Ok(Pool {
            name: self.name,
            models: self.models.map(|models| models.into_iter().collect()),
            profile,
            affinity,
            affinity_slack: slack.unwrap_or(AFFINITY_SLACK),
            prefix_bytes,
        })
    }
}

/// The pool of requests that name no model, where that is not the only one.
pub(super) fn check_default_pool(raw: Option<&str>, pools: &[Pool]) -> Result<Option<usize>, ConfigError> {
    raw.map(|name| place("default_pool", name, pools)).transpose()
}

fn place(key: &str, name: &str, pools: &[Pool]) -> Result<usize, ConfigError> {
    pools.iter().position(|p| p.name == name).ok_or_else(|| {
        let known: Vec<&str> = pools.iter().map(|p| p.name.as_str()).collect();
        value(key, &format!("there is no pool '{name}'; there are: {}", known.join(", ")))
    })
}

pub(super) fn check_backends(
    raw: Option<Vec<RawBackend>>,
    pools: &[Pool],
    engines: &RawEngines,
) -> Result<Vec<Backend>, ConfigError> {
    let raw = raw.unwrap_or_default();
    if raw.is_empty() {
        return Err(value("backends", "at least one is needed, such as --backend http://127.0.0.1:8000"));
    }
    if raw.len() > MAX_BACKENDS {
        return Err(value("backends", &format!("{} are given; at most {MAX_BACKENDS} can be", raw.len())));
    }
    let one = |(i, b): (usize, RawBackend)| b.check(&format!("backends[{i}]"), pools, engines);
    let backends: Vec<Backend> = raw.into_iter().enumerate().map(one).collect::<Result<_, _>>()?;
    if let Some(idle) = (0..pools.len()).find(|place| !backends.iter().any(|b| b.pool == *place)) {
        let problem = format!("no backend belongs to it; write pool = \"{}\" in one", pools[idle].name);
        return Err(value(&format!("pools[{idle}]"), &problem));
    }
    Ok(backends)
}

impl RawBackend {
    fn check(self, key: &str, pools: &[Pool], engines: &RawEngines) -> Result<Backend, ConfigError> {
        let (authority, base_path, secure) = check_url(&format!("{key}.url"), &self.url)?;
        let pool_key = format!("{key}.pool");
        let pool = match (self.pool, pools.len()) {
            (Some(name), _) => place(&pool_key, &name, pools)?,
            (None, 1) => 0,
            (None, _) => return Err(value(&pool_key, "is needed where there are several pools")),
        };
        let weight = NonZeroU32::new(self.weight.unwrap_or(1))
            .ok_or_else(|| value(&format!("{key}.weight"), "must be 1 or more; a backend without work is left out"))?;
        let profile = match self.profile {
            Some(name) => {
                let engine = policy::profile(&format!("{key}.profile"), &name)?;
                Some((name, CostModel::from_profile(&engine)))
            }
            None => None,
        };
        let interval_key = format!("{key}.interval");
        let interval = limit(&interval_key, self.interval.as_deref())?;
        let look_up = match (self.discover, interval) {
            (None, Some(_)) => {
                return Err(value(&interval_key, "goes with discover = \"dns\" only; set that, or leave it out"));
            }
            (Some(Discovery::Dns), Some(often)) if often < SOONEST_LOOK_UP => {
                return Err(value(&interval_key, "must be 100ms or more"));
            }
            (Some(Discovery::Dns), interval) => Some(interval.unwrap_or(LOOK_UP)),
            (None, None) => None,
        };
        let engine = self.engine.map(|name| engine(&format!("{key}.engine"), name, engines)).transpose()?;
        let permits = positive(&format!("{key}.permits"), self.permits.unwrap_or(Config::DEFAULT_PERMITS))?;
        let drain = self.drain.unwrap_or(false);
        if self.ca_file.is_some() && !secure {
            let problem = "goes with an https:// url only; leave it out, or change that";
            return Err(value(&format!("{key}.ca_file"), problem));
        }
        let tls = secure.then(|| BackendTls::read(authority.host(), self.ca_file)).transpose();
        let tls = tls.map_err(|e| value(&format!("{key}.{}", e.key), &e.problem))?;
        let credential = credential::check(key, self.key_env, self.key_file)?;
        Ok(Backend { authority, base_path, permits, drain, pool, weight, profile, look_up, engine, credential, tls })
    }
}

/// Host and port, the path before those of requests, and whether it is `https://`.
fn check_url(key: &str, url: &str) -> Result<(Authority, String, bool), ConfigError> {
    let example = "write a base URL such as http://127.0.0.1:8000";
    let uri: Uri = url.parse().map_err(|e| value(key, &format!("'{url}': {e}; {example}")))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        _ => return Err(value(key, &format!("'{url}' has no http:// or https:// in front; {example}"))),
    }
    let Some(authority) = uri.authority().filter(|a| !a.host().is_empty() && !a.as_str().contains('@')) else {
        return Err(value(key, &format!("'{url}' needs a host and no user name; {example}")));
    };
    if uri.query().is_some() {
        return Err(value(key, &format!("'{url}' must not have a query; {example}")));
    }
    // Requests carry the /v1 themselves, so a base that ends in it is taken as meant without.
    let path = uri.path().trim_end_matches('/');
    let secure = uri.scheme_str() == Some("https");
    Ok((authority.clone(), path.strip_suffix("/v1").unwrap_or(path).to_owned(), secure))
}

fn engine(key: &str, name: String, own: &RawEngines) -> Result<(String, RawEngine), ConfigError> {
    let built_in = |(_, running, waiting): &(&str, &str, &str)| RawEngine {
        running: (*running).to_owned(),
        waiting: (*waiting).to_owned(),
    };
    let known = own.get(&name).cloned().or_else(|| ENGINES.iter().find(|e| e.0 == name).map(built_in));
    match known {
        Some(names) => Ok((name, names)),
        None => {
            let all: Vec<&str> = ENGINES.iter().map(|e| e.0).chain(own.keys().map(String::as_str)).collect();
            let problem =
                format!("there is no engine '{name}'; there are: {}; or write [engines.{name}]", all.join(", "));
            Err(value(key, &problem))
        }
    }
}

impl RawHealth {
    pub(super) fn check(&self) -> Result<Watch, ConfigError> {
        let usual = GateRules::default();
        let read = |key: &str, text: &Option<String>, usual| {
            Ok(limit(&format!("health.{key}"), text.as_deref())?.unwrap_or(usual))
        };
        let path = self.path.as_deref().unwrap_or("/health");
        let wrong = || value("health.path", &format!("'{path}' must be a path such as /health"));
        let path: PathAndQuery = path.parse().ok().filter(|_| path.starts_with('/')).ok_or_else(wrong)?;
        Ok(Watch {
            path,
            interval: read("interval", &self.interval, Span::from_secs(2))?,
            timeout: read("timeout", &self.timeout, Span::from_secs(5))?,
            gate: GateRules {
                probes: positive("health.probes", self.probes.unwrap_or(usual.probes))?,
                failures: positive("health.failures", self.failures.unwrap_or(usual.failures))?,
                open: read("open", &self.open, usual.open)?,
                slow_start: optional_span("health.slow_start", self.slow_start.as_deref())?.unwrap_or(usual.slow_start),
            },
            metrics_interval: read("metrics_interval", &self.metrics_interval, Span::from_secs(1))?,
        })
    }
}
