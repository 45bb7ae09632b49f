//! What a run is told.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use elasticserve_core::ledger::{Timeouts, Tolerances};
use elasticserve_core::time::Span;
use http::{HeaderName, HeaderValue, Uri};
use serde_json::{Map, Value};

use crate::ceiling::CeilingCheck;
use crate::validate::Validator;

/// Everything about a run except its plan.
#[derive(Clone)]
pub struct LoadConfig {
    /// The run's name, such as `direct`.
    pub name: String,
    /// The server.
    pub url: BaseUrl,
    /// Whose certificates an `https://` server may have.
    pub trust: Trust,
    /// What kind of request it gets.
    pub endpoint: Endpoint,
    /// The model asked for; empty: the first that the server lists.
    pub model: String,
    /// Whether answers are streamed. TPOT cannot be measured on those that are not.
    pub streaming: bool,
    /// How prompts go to `/v1/completions`; the other interfaces take text only.
    pub prompt: PromptKind,
    /// Sent as a bearer token, written nowhere.
    pub api_key: Option<Secret>,
    /// The keys of tenants that have their own, by the name of the environment variable in the plan.
    pub tenant_keys: BTreeMap<String, Secret>,
    /// Further request headers, which take the place of the generator's own of the same name.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Further fields of the request body, which take the place of the generator's own.
    pub extra_body: Map<String, Value>,
    /// Forces every answer to its planned length with `ignore_eos` and `min_tokens`; a shorter one,
    /// by the server's own count, is then a [`LengthShortfall`](elasticserve_core::outcome::Terminal::LengthShortfall).
    pub ignore_eos: bool,
    /// Sends each request's SLO in `x-elasticserve-slo-*` headers.
    pub slo_headers: bool,
    /// What makes this run's prompts differ from every other run's, so that the prefix cache starts
    /// cold; without it the prompts are the same in every run of the plan.
    pub salt: Option<String>,
    /// What a completed answer must be besides; one that fails is an
    /// [`InvalidAnswer`](elasticserve_core::outcome::Terminal::InvalidAnswer).
    pub validators: Vec<Validator>,
    /// Requests sent at once and awaited before the run, with prompts of their own, in no figure.
    pub warmups: u32,
    /// When to give up.
    pub timeouts: Timeouts,
    /// What the generator may at most show of itself.
    pub tolerances: Tolerances,
    /// The most requests in flight at once. An arrival of an open plan that finds no slot at its time is
    /// never sent; without this there is no cap.
    pub max_in_flight: Option<u32>,
    /// The most further attempts of an arrival that was turned away or failed, see `retry`.
    pub retries: u32,
    /// How much of the generator's own ceiling is measured before the run.
    pub ceiling: CeilingCheck,
    /// How many times faster than real time the plan runs, for the manifest only.
    pub time_scale: f64,
    /// Free notes for the manifest.
    pub metadata: BTreeMap<String, String>,
    /// How long to wait for the server to answer; without it the run starts at once.
    pub ready_timeout: Option<Span>,
    /// Called once, shortly before the run's clock starts to count, with that instant.
    pub on_start: Option<OnStart>,
}

/// What is told when the run's clock starts.
pub type OnStart = Arc<dyn Fn(Instant) + Send + Sync>;

impl LoadConfig {
    /// A streaming run of completions against `url`, with every other choice at its default.
    #[must_use]
    pub fn new(name: &str, url: BaseUrl, model: &str) -> Self {
        Self {
            name: name.to_owned(),
            url,
            trust: Trust::Public,
            endpoint: Endpoint::Completions,
            model: model.to_owned(),
            streaming: true,
            prompt: PromptKind::Ids,
            api_key: None,
            tenant_keys: BTreeMap::new(),
            headers: Vec::new(),
            extra_body: Map::new(),
            ignore_eos: false,
            slo_headers: false,
            salt: None,
            validators: Vec::new(),
            warmups: 0,
            timeouts: Timeouts::default(),
            tolerances: Tolerances::default(),
            max_in_flight: None,
            retries: 0,
            ceiling: CeilingCheck::Off,
            time_scale: 1.0,
            metadata: BTreeMap::new(),
            ready_timeout: None,
            on_start: None,
        }
    }
}

/// The kind of request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions` with token ids, whose number is exact.
    Completions,
    /// `/v1/chat/completions` with text of about the planned number of tokens.
    Chat,
    /// `/v1/responses` with text of about the planned number of tokens.
    Responses,
    /// A GET of `/`, for a server that is no language model: every byte of the answer's body is content, and
    /// its proper end is a whole answer.
    Plain,
}

/// How prompts go to `/v1/completions`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// As token ids, of which there are exactly as many as planned; still as text where a prompt holds what
    /// a server answered before or comes from a dataset.
    Ids,
    /// As text of about as many tokens.
    Text,
}

impl Endpoint {
    /// The path below the base URL.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Plain => "/",
        }
    }

    /// The field of the body that limits the tokens of an answer.
    pub(crate) const fn limit_field(self) -> &'static str {
        match self {
            Self::Completions | Self::Chat | Self::Plain => "max_tokens",
            Self::Responses => "max_output_tokens",
        }
    }
}

/// Text that is neither shown nor compared.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` out of sight.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// Whose certificates an `https://` server may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The public authorities that Mozilla trusts.
    Public,
    /// Only the authorities of these certificates, in PEM.
    Only(Vec<u8>),
    /// Anyone at all: the connection may be to somebody else.
    Anyone,
}

/// The base of a server's URLs: `http://host:port` or `https://host:port`, perhaps with a path. It never holds
/// credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    secure: bool,
    host: String,
    port: u16,
    /// Empty, or starts with a slash and does not end with one.
    path: String,
}

/// Why a text is not a base URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not a URL with a host.
    #[error("'{0}' is not a URL: write http://host:port, such as http://127.0.0.1:8000")]
    NotAUrl(String),
    /// Another scheme.
    #[error("'{0}': only http:// and https:// are supported")]
    Scheme(String),
    /// A user name or a query, which a base URL does not have. The URL is not repeated.
    #[error("the URL must not hold a user name, password or query: give keys in OPENAI_API_KEY or --header")]
    Extra,
}

impl BaseUrl {
    /// What names the host in a look-up, without the brackets of IPv6.
    pub(crate) fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is `https://`.
    pub(crate) const fn is_secure(&self) -> bool {
        self.secure
    }

    /// The `host` header: without the port if that is the scheme's own (RFC 9110, section 7.2).
    pub(crate) fn authority(&self) -> String {
        if self.port == default_port(self.secure) { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// The path of a request to `path`, which starts with a slash.
    pub(crate) fn join(&self, path: &str) -> String {
        format!("{}{path}", self.path)
    }
}

impl FromStr for BaseUrl {
    type Err = UrlError;

    /// Reads `http://host[:port][/base]`, or the same with `https`. A base that ends in `/v1`, as `OPENAI_BASE_URL` usually
    /// does, stands for the server in front of it.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        let bad = || UrlError::NotAUrl(text.to_owned());
        if text.contains('@') || text.contains('?') {
            return Err(UrlError::Extra);
        }
        let uri: Uri = text.trim().parse().map_err(|_| bad())?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(UrlError::Scheme(text.to_owned())),
            None => return Err(bad()),
        };
        let host = uri.host().filter(|h| !h.is_empty()).ok_or_else(bad)?.to_owned();
        let port = match uri.port() {
            Some(port) => Some(port.as_u16()).filter(|p| *p != 0).ok_or_else(bad)?,
            None => default_port(secure),
        };
        let path = uri.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/').to_owned();
        Ok(Self { secure, host, port, path })
    }
}

impl From<SocketAddr> for BaseUrl {
    /// A server at an address, over plain HTTP.
    fn from(address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        Self { secure: false, host, port: address.port(), path: String::new() }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

const fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> BaseUrl {
        text.parse().unwrap()
    }

    #[test]
    fn a_base_url_with_v1_does_not_double_it() {
        assert_eq!(url("http://h:8000/v1/").join(Endpoint::Chat.path()), "/v1/chat/completions");
        assert_eq!(url("http://h:8000/api/v1").join("/version"), "/api/version");
        assert_eq!(url("http://h").to_string(), "http://h:80");
        assert_eq!(url("http://h:8000").authority(), "h:8000");
        assert_eq!(
            (url("https://h").to_string().as_str(), url("https://h").authority().as_str()),
            ("https://h:443", "h")
        );
        assert_eq!((url("https://h:80").authority(), url("http://h").authority()), ("h:80".into(), "h".into()));
    }

    #[test]
    fn an_ipv6_host_keeps_its_brackets_in_the_header_only() {
        let six = url("http://[::1]:8000");
        assert_eq!((six.host(), six.authority().as_str()), ("::1", "[::1]:8000"));
        let address: SocketAddr = "[::1]:8000".parse().unwrap();
        assert_eq!(BaseUrl::from(address), six);
    }

    #[test]
    fn what_is_not_http_is_refused_with_the_reason() {
        let refuse = |text: &str| text.parse::<BaseUrl>().unwrap_err();
        assert!(matches!(refuse("ftp://h"), UrlError::Scheme(_)));
        assert!(matches!(refuse("localhost:8000"), UrlError::NotAUrl(_) | UrlError::Scheme(_)));
        assert!(matches!(refuse("/v1"), UrlError::NotAUrl(_)));
        assert!(matches!(refuse("http://h:0"), UrlError::NotAUrl(_)));
        let secret = refuse("http://user:hunter2@h").to_string();
        assert!(!secret.contains("hunter2"), "{secret}");
    }
}
