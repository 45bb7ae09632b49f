//! From what is written to what has been checked.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use http::StatusCode;

use super::raw::{Lengths, RawConfig, RawSlo, RawState, RawTimeouts, RawTls};
use super::{Config, ConfigError, Fixed, Net, State, Timeouts, Trace, backends, keys, policy, tenants, value};
use crate::secret::{Digest, DigestError};
use crate::tls::ListenerTls;

impl RawConfig {
    /// Checks everything, fills in the defaults, and reads the engine profile if a file is named.
    ///
    /// # Errors
    /// The first [`ConfigError`]: a value that is out of range, or does not go with another.
    pub fn check(self) -> Result<Config, ConfigError> {
        let Self { listen, admin, tenants_file, default_tenant, backends: servers, tenants, queue, .. } = self;
        let Self { predict, limits, timeouts, slo, state, log, trace, reload, files, .. } = self;
        let Self { pools, default_pool, health, engines, .. } = self;
        let Self { trusted_proxies, tls, admin_token_sha256, admin_api, .. } = self;
        if tenants_file.is_some() {
            return Err(value("tenants_file", "has not been read; it needs a configuration file beside it"));
        }
        let pools = backends::check_pools(pools)?;
        let default_pool = backends::check_default_pool(default_pool.as_deref(), &pools)?;
        let checked = backends::check_backends(servers, &pools, &engines)?;
        let slo = slo.check("slo")?;
        let keys = keys::check(tenants.as_deref().unwrap_or_default())?;
        let (tenants, default_tenant) =
            tenants::check(tenants, default_tenant.as_deref(), slo, queue.on_miss.unwrap_or_default())?;
        let infeasible_status = match queue.infeasible_status {
            None | Some(422) => StatusCode::UNPROCESSABLE_ENTITY,
            Some(429) => StatusCode::TOO_MANY_REQUESTS,
            Some(other) => return Err(value("queue.infeasible_status", &format!("must be 422 or 429, not {other}"))),
        };
        let policy = policy::check(&queue, &predict)?;
        let state = check_state(state, policy.lengths == Lengths::Learned)?;
        let admin_address = address("admin", admin.as_deref().unwrap_or("127.0.0.1:9090"))?;
        let (admin_token, admin_api) = check_admin(admin_address, admin_token_sha256.as_deref(), admin_api)?;
        let fixed = Fixed {
            listen: address("listen", listen.as_deref().unwrap_or("127.0.0.1:8080"))?,
            admin: admin_address,
            admin_token,
            admin_api,
            state,
            decisions: log.decisions,
            log_level: log.level.unwrap_or_default(),
            log_format: log.format,
            trace: Trace::check(trace)?,
            watch: reload.watch.unwrap_or(true),
            pools: pools.iter().map(|p| p.name.clone()).collect(),
        };
        let max_body_bytes = limits.body_bytes.unwrap_or(32 << 20);
        Ok(Config {
            fixed,
            files,
            backends: checked,
            pools,
            default_pool,
            watch: health.check()?,
            tenants,
            default_tenant,
            tls: check_tls(tls)?,
            keys,
            trusted_proxies: check_proxies(trusted_proxies)?,
            order: policy.order,
            guard: policy.guard,
            predict: policy.predict,
            price: policy.price,
            shadow: policy.shadow,
            lengths: policy.lengths,
            cost: policy.cost,
            queue_depth: queue.depth.unwrap_or(256),
            queue_bytes: queue.bytes.unwrap_or(256 << 20),
            queue_budget: policy.budget,
            classes: check_classes(queue.classes)?,
            infeasible_status,
            max_connections: positive("limits.connections", limits.connections.unwrap_or(16_384))?,
            max_body_bytes,
            max_body_memory: check_memory(limits.body_memory, max_body_bytes)?,
            timeouts: timeouts.check()?,
            slo,
            access_log: log.access.unwrap_or(false),
        })
    }
}

/// How often the state is written, unless set, and at most.
const STATE_INTERVAL: Span = Span::from_secs(30);
const MIN_STATE_INTERVAL: Span = Span::from_secs(1);
/// The most names of classes.
const MAX_CLASSES: usize = 64;
/// How long a handshake may take, unless set.
const HANDSHAKE: Span = Span::from_secs(4);
/// Bytes of all request bodies that are in memory, unless set.
const BODY_MEMORY: u64 = 512 << 20;
/// The most networks of proxies that are believed.
const MAX_PROXIES: usize = 256;

fn check_tls(raw: RawTls) -> Result<Option<ListenerTls>, ConfigError> {
    let handshake = limit("tls.handshake", raw.handshake.as_deref())?;
    match (raw.cert, raw.key) {
        (Some(cert), Some(key)) => {
            let read = ListenerTls::read(cert, key, raw.client_ca, handshake.unwrap_or(HANDSHAKE));
            read.map(Some).map_err(|e| value(&format!("tls.{}", e.key), &e.problem))
        }
        (None, None) if handshake.is_none() && raw.client_ca.is_none() => Ok(None),
        (Some(_), None) => Err(value("tls.key", "is needed beside tls.cert: the certificate's private key")),
        (None, _) => Err(value("tls.cert", "is needed beside the other keys of [tls]: the listener's certificate")),
    }
}

fn check_memory(raw: Option<u64>, one: u64) -> Result<u64, ConfigError> {
    match raw {
        Some(all) if all < one => {
            let problem = format!("must be {one} or more, so that one body of limits.body_bytes can be read");
            Err(value("limits.body_memory", &problem))
        }
        Some(all) => Ok(all),
        None => Ok(one.max(BODY_MEMORY)),
    }
}

fn check_proxies(raw: Option<Vec<String>>) -> Result<Vec<Net>, ConfigError> {
    let raw = raw.unwrap_or_default();
    if raw.len() > MAX_PROXIES {
        return Err(value("trusted_proxies", &format!("{} are given; at most {MAX_PROXIES} can be", raw.len())));
    }
    let read =
        |(i, text): (usize, &String)| text.parse().map_err(|e: String| value(&format!("trusted_proxies[{i}]"), &e));
    raw.iter().enumerate().map(read).collect()
}

fn check_state(raw: RawState, learns: bool) -> Result<Option<State>, ConfigError> {
    let interval = optional_span("state.interval", raw.interval.as_deref())?;
    if interval.is_some_and(|i| i < MIN_STATE_INTERVAL) {
        return Err(value("state.interval", "must be 1s or more"));
    }
    match raw.file {
        Some(_) if !learns => Err(value(
            "state.file",
            "nothing is learned that could be kept; set predict.lengths = \"learned\", or leave it out",
        )),
        Some(file) => Ok(Some(State { file, interval: interval.unwrap_or(STATE_INTERVAL) })),
        None if interval.is_some() => {
            Err(value("state.interval", "goes with state.file only; set that, or leave it out"))
        }
        None => Ok(None),
    }
}

/// The token of operators, and whether they may do anything. What others can reach needs a token.
fn check_admin(
    address: SocketAddr,
    token: Option<&str>,
    api: Option<bool>,
) -> Result<(Option<Digest>, bool), ConfigError> {
    let wrong = |e: DigestError| value("admin_token_sha256", &e.to_string());
    let token = token.map(|text| text.parse().map_err(wrong)).transpose()?;
    let api = api.unwrap_or(true);
    if api && token.is_none() && !address.ip().is_loopback() {
        let problem = format!(
            "{address} can be reached from other machines: set admin_token_sha256 (`elasticserve keys` makes one), \
             or admin_api = false for probes and metrics alone"
        );
        return Err(value("admin", &problem));
    }
    Ok((token, api))
}

fn check_classes(raw: Option<BTreeMap<String, u32>>) -> Result<BTreeMap<String, u32>, ConfigError> {
    let classes = raw.unwrap_or_default();
    if classes.len() > MAX_CLASSES {
        return Err(value("queue.classes", &format!("{} are given; at most {MAX_CLASSES} can be", classes.len())));
    }
    for name in classes.keys() {
        let key = format!("queue.classes.{name}");
        tenants::is_name(&key, name)?;
        if name.bytes().all(|b| b.is_ascii_digit()) {
            return Err(value(&key, "a number stands for itself; give the class a name with a letter"));
        }
    }
    Ok(classes)
}

impl RawTimeouts {
    fn check(&self) -> Result<Timeouts, ConfigError> {
        let read = |key, text: &Option<String>, default| Ok(limit(key, text.as_deref())?.unwrap_or(default));
        Ok(Timeouts {
            header: read("timeouts.header", &self.header, Span::from_secs(60))?,
            body: read("timeouts.body", &self.body, Span::from_secs(30))?,
            connect: read("timeouts.connect", &self.connect, Span::from_secs(3))?,
            head: read("timeouts.head", &self.head, Span::from_secs(600))?,
            idle: read("timeouts.idle", &self.idle, Span::from_secs(300))?,
            keep_alive: limit("timeouts.keep_alive", self.keep_alive.as_deref())?,
            write: read("timeouts.write", &self.write, Span::from_secs(60))?,
            drain: read("timeouts.drain", &self.drain, Span::from_secs(30))?,
            drain_delay: optional_span("timeouts.drain_delay", self.drain_delay.as_deref())?.unwrap_or(Span::ZERO),
        })
    }
}

impl RawSlo {
    pub(super) fn check(&self, key: &str) -> Result<Slo, ConfigError> {
        Ok(Slo {
            ttft: limit(&format!("{key}.ttft"), self.ttft.as_deref())?,
            tpot: limit(&format!("{key}.tpot"), self.tpot.as_deref())?,
            e2e: limit(&format!("{key}.e2e"), self.e2e.as_deref())?,
        })
    }
}

fn address(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse()
        .map_err(|_| value(key, &format!("'{text}' is not an address and port; write one such as 127.0.0.1:8080")))
}

/// A length of time that may be nothing.
pub(super) fn optional_span(key: &str, text: Option<&str>) -> Result<Option<Span>, ConfigError> {
    text.map(|t| t.parse().map_err(|e| value(key, &format!("{e}")))).transpose()
}

/// A length of time that may not.
pub(super) fn limit(key: &str, text: Option<&str>) -> Result<Option<Span>, ConfigError> {
    match optional_span(key, text)? {
        Some(Span::ZERO) => Err(value(key, "must be more than 0")),
        span => Ok(span),
    }
}

pub(super) fn positive(key: &str, n: u32) -> Result<u32, ConfigError> {
    if n == 0 { Err(value(key, "must be 1 or more")) } else { Ok(n) }
}
