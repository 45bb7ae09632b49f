//! The gateway's configuration: what a user writes, and what has been checked.

use std::net::SocketAddr;

use elasticserve_core::sched::{Settings, TenantPolicy};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use http::Uri;
use http::uri::Authority;
use serde::Deserialize;

/// The configuration file as it is written, all of it optional. Flags fill the same structure.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// Where clients connect.
    pub listen: Option<String>,
    /// Where probes and metrics are served.
    pub admin: Option<String>,
    /// The servers behind the gateway.
    pub backends: Option<Vec<RawBackend>>,
    /// What may wait.
    #[serde(default)]
    pub queue: RawQueue,
    /// Bounds on what clients may send.
    #[serde(default)]
    pub limits: RawLimits,
    /// When to give up.
    #[serde(default)]
    pub timeouts: RawTimeouts,
    /// What makes an answer useful; decides what the metrics count as met.
    #[serde(default)]
    pub slo: RawSlo,
}

/// A backend as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawBackend {
    /// Its base URL, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// The requests that it may work on at once.
    pub permits: Option<u32>,
}

/// The queue as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawQueue {
    /// The most requests that may wait.
    pub depth: Option<u32>,
    /// The most bytes of bodies that may wait.
    pub bytes: Option<u64>,
    /// How long a request may wait, such as `"750ms"`.
    pub budget: Option<String>,
}

/// Bounds as they are written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// Connections from clients.
    pub connections: Option<u32>,
    /// Bytes of one request body.
    pub body_bytes: Option<u64>,
}

/// Timeouts as they are written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawSlo {
    /// Time to first token.
    pub ttft: Option<String>,
    /// Time per output token after the first.
    pub tpot: Option<String>,
    /// End to end.
    pub e2e: Option<String>,
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where probes and metrics are served.
    pub admin: SocketAddr,
    /// The servers behind the gateway, at least one.
    pub backends: Vec<Backend>,
    /// The most requests that may wait.
    pub queue_depth: u32,
    /// The most bytes of bodies that may wait.
    pub queue_bytes: u64,
    /// How long a request may wait; `None` for as long as it takes.
    pub queue_budget: Option<Span>,
    /// Connections from clients.
    pub max_connections: u32,
    /// Bytes of one request body.
    pub max_body_bytes: u64,
    /// When to give up.
    pub timeouts: Timeouts,
    /// What the metrics count as met.
    pub slo: Slo,
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
    /// The file is not TOML, or has a key that is unknown or of the wrong type.
    #[error("{0}")]
    Parse(String),
    /// A value that is out of range.
    #[error("{key}: {problem}")]
    Value {
        /// The key, with dots.
        key: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl Config {
    /// Permits of a backend that does not say how many: vLLM's default of a small engine.
    pub const DEFAULT_PERMITS: u32 = 32;

    /// What the scheduler is built from.
    #[must_use]
    pub fn scheduler(&self) -> Settings {
        Settings {
            tenants: vec![TenantPolicy::default()],
            depth: self.queue_depth as usize,
            max_bytes: self.queue_bytes,
            budget: self.queue_budget,
            ..Settings::fcfs(self.backends.iter().map(|b| b.permits).collect())
        }
    }
}

impl RawConfig {
    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// [`ConfigError::Parse`] names the key, the line and, for an unknown key, the nearest known one.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let deserializer =
            toml::Deserializer::parse(text).map_err(|e| ConfigError::Parse(e.to_string().trim_end().to_owned()))?;
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            let inner = error.into_inner();
            let hint = nearest_known(inner.message()).map(|known| format!("; did you mean `{known}`?"));
            ConfigError::Parse(format!("{path}: {}{}", inner.message(), hint.unwrap_or_default()))
        })
    }

    /// Checks everything and fills in the defaults.
    ///
    /// # Errors
    /// The first [`ConfigError::Value`] that is out of range.
    pub fn check(self) -> Result<Config, ConfigError> {
        let Self { listen, admin, backends, queue, limits, timeouts, slo } = self;
        let backends = backends.unwrap_or_default();
        if backends.is_empty() {
            return Err(value("backends", "at least one is needed, such as --backend http://127.0.0.1:8000"));
        }
        if backends.len() > usize::from(u16::MAX) {
            return Err(value("backends", "at most 65,535"));
        }
        let checked: Result<Vec<Backend>, ConfigError> =
            backends.into_iter().enumerate().map(|(i, b)| b.check(&format!("backends[{i}]"))).collect();
        Ok(Config {
            listen: address("listen", listen.as_deref().unwrap_or("127.0.0.1:8080"))?,
            admin: address("admin", admin.as_deref().unwrap_or("127.0.0.1:9090"))?,
            backends: checked?,
            queue_depth: queue.depth.unwrap_or(256),
            queue_bytes: queue.bytes.unwrap_or(256 << 20),
            queue_budget: optional_span("queue.budget", queue.budget.as_deref())?,
            max_connections: positive("limits.connections", limits.connections.unwrap_or(16_384))?,
            max_body_bytes: limits.body_bytes.unwrap_or(32 << 20),
            timeouts: timeouts.check()?,
            slo: slo.check()?,
        })
    }
}

impl RawBackend {
    fn check(self, key: &str) -> Result<Backend, ConfigError> {
        let url_key = format!("{key}.url");
        let example = "write a base URL such as http://127.0.0.1:8000";
        let uri: Uri = self.url.parse().map_err(|e| value(&url_key, &format!("'{}': {e}; {example}", self.url)))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(value(&url_key, "https:// backends are not supported yet; use http://")),
            _ => return Err(value(&url_key, &format!("'{}' has no http:// in front; {example}", self.url))),
        }
        let Some(authority) = uri.authority().filter(|a| !a.host().is_empty() && !a.as_str().contains('@')) else {
            return Err(value(&url_key, &format!("'{}' needs a host and no user name; {example}", self.url)));
        };
        if uri.query().is_some() {
            return Err(value(&url_key, &format!("'{}' must not have a query; {example}", self.url)));
        }
        // Requests carry the /v1 themselves, so a base that ends in it is taken as meant without.
        let path = uri.path().trim_end_matches('/');
        let base_path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        let permits = positive(&format!("{key}.permits"), self.permits.unwrap_or(Config::DEFAULT_PERMITS))?;
        Ok(Backend { authority: authority.clone(), base_path, permits })
    }
}

impl RawTimeouts {
    fn check(&self) -> Result<Timeouts, ConfigError> {
        let read = |key: &str, text: &Option<String>, default: Span| {
            let span = optional_span(key, text.as_deref())?.unwrap_or(default);
            if span == Span::ZERO { Err(value(key, "must be more than 0")) } else { Ok(span) }
        };
        Ok(Timeouts {
            header: read("timeouts.header", &self.header, Span::from_secs(60))?,
            body: read("timeouts.body", &self.body, Span::from_secs(30))?,
            connect: read("timeouts.connect", &self.connect, Span::from_secs(3))?,
            head: read("timeouts.head", &self.head, Span::from_secs(600))?,
            idle: read("timeouts.idle", &self.idle, Span::from_secs(300))?,
            drain: read("timeouts.drain", &self.drain, Span::from_secs(30))?,
        })
    }
}

impl RawSlo {
    fn check(&self) -> Result<Slo, ConfigError> {
        Ok(Slo {
            ttft: optional_span("slo.ttft", self.ttft.as_deref())?,
            tpot: optional_span("slo.tpot", self.tpot.as_deref())?,
            e2e: optional_span("slo.e2e", self.e2e.as_deref())?,
        })
    }
}

fn value(key: &str, problem: &str) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), problem: problem.to_owned() }
}

fn address(key: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse()
        .map_err(|_| value(key, &format!("'{text}' is not an address and port; write one such as 127.0.0.1:8080")))
}

fn optional_span(key: &str, text: Option<&str>) -> Result<Option<Span>, ConfigError> {
    text.map(|t| t.parse().map_err(|e| value(key, &format!("{e}")))).transpose()
}

fn positive(key: &str, n: u32) -> Result<u32, ConfigError> {
    if n == 0 { Err(value(key, "must be 1 or more")) } else { Ok(n) }
}

/// The known key that an unknown one was probably meant to be, from serde's list of expected fields.
fn nearest_known(message: &str) -> Option<&str> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown field").then(|| quoted.next())??;
    let score = |known: &str| strsim::jaro_winkler(unknown, known);
    quoted.filter(|known| score(known) > 0.75).max_by(|a, b| score(a).total_cmp(&score(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Config, ConfigError> {
        RawConfig::from_toml(text)?.check()
    }

    const BACKEND: &str = "[[backends]]\nurl = 'http://h:1'\n";

    #[test]
    fn a_backend_is_all_that_is_needed() {
        let config = check(BACKEND).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.backends[0].permits, 32);
        assert_eq!(config.queue_budget, None);
    }

    #[test]
    fn a_base_url_may_end_in_the_version_that_clients_use() {
        for (url, base) in
            [("http://h:1/", ""), ("http://h:1/v1", ""), ("http://h:1/v1/", ""), ("http://h:1/x/v1", "/x")]
        {
            let config = check(&format!("[[backends]]\nurl = '{url}'")).unwrap();
            assert_eq!(config.backends[0].base_path, base, "{url}");
        }
    }

    #[test]
    fn bad_values_are_refused_by_key_with_what_would_be_right() {
        for (text, key, hint) in [
            ("", "backends", "--backend"),
            ("[[backends]]\nurl = 'h:1'", "backends[0].url", "http://"),
            ("[[backends]]\nurl = 'https://h'", "backends[0].url", "not supported"),
            ("[[backends]]\nurl = 'http://u:p@h'", "backends[0].url", "user name"),
            ("[[backends]]\nurl = 'http://h'\npermits = 0", "backends[0].permits", "1 or more"),
            ("[[backends]]\nurl = 'http://h'\n[queue]\nbudget = '750'", "queue.budget", "750ms"),
            ("listen = 'localhost'\n[[backends]]\nurl = 'http://h'", "listen", "127.0.0.1:8080"),
            ("[[backends]]\nurl = 'http://h'\n[timeouts]\nidle = '0s'", "timeouts.idle", "more than 0"),
        ] {
            let message = check(text).unwrap_err().to_string();
            assert!(message.starts_with(key) && message.contains(hint), "{text}: {message}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let message = check("[queue]\nbudgett = '1s'").unwrap_err().to_string();
        assert!(message.contains("budgett") && message.contains("did you mean `budget`"), "{message}");
        let message = check("[queue]\nxyz = 1").unwrap_err().to_string();
        assert!(message.contains("xyz") && !message.contains("did you mean"), "{message}");
    }

    #[test]
    fn a_wrong_type_is_refused_with_its_place() {
        let message = check("[[backends]]\nurl = 'http://h'\npermits = 'many'").unwrap_err().to_string();
        assert!(message.contains("backends[0].permits"), "{message}");
    }
}
