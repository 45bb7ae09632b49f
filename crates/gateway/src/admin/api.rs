//! What operators may ask and change while the gateway runs.

use bytes::Bytes;
use elasticserve_core::sched::{Rules, RulesError};
use http::header::{self, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{PATIENCE, json, state, text, with_type};
use crate::config::ConfigError;
use crate::framing::is_host;
use crate::live::ReloadError;
use crate::proxy::Shared;
use crate::reload::Why;
use crate::secret::Secret;

/// The longest body of a change.
const MAX_BODY: usize = 64 << 10;
/// Where the API begins.
pub(super) const PREFIX: &str = "/admin/";

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("a token is needed: Authorization: Bearer TOKEN, of which admin_token_sha256 is the digest")]
    NoToken,
    #[error("without a token this answers only to an IP address or localhost as Host")]
    ForeignHost,
    #[error(
        "there are GET /admin/state and /admin/config, and POST /admin/reload, /admin/drain, /admin/policy, /admin/tenants/NAME and /admin/backends/HOST:PORT"
    )]
    NoSuchPath,
    #[error("this path takes {0}")]
    WrongMethod(Method),
    #[error("the body must be JSON, with content-type: application/json")]
    NotJson,
    #[error("the body: {0}")]
    Body(String),
    #[error("the body did not arrive within {PATIENCE:?}")]
    Slow,
    #[error(transparent)]
    Change(#[from] ReloadError),
}

/// A change of a tenant; what is not said stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantChange {
    weight: Option<u32>,
    max_permits: Option<u32>,
    max_queued: Option<u32>,
    max_queued_bytes: Option<u64>,
    class: Option<u32>,
}

/// A change of a backend; what is not said stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackendChange {
    permits: Option<u32>,
    weight: Option<u32>,
    drain: Option<bool>,
}

/// Another policy, and the engine that its predictions go by.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyChange {
    policy: String,
    profile: Option<String>,
}

pub(super) async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    match act(shared, request).await {
        Ok(response) => response,
        Err(refused) => {
            let status = refused.status();
            tracing::warn!(status = status.as_u16(), %refused, "admin request is refused");
            json(status, &serde_json::json!({ "error": refused.to_string() }))
        }
    }
}

async fn act(shared: &Shared, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Refused> {
    may(shared, request.headers())?;
    let path = request.uri().path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
    match path.as_str() {
        "state" => takes(&request, Method::GET).map(|()| json(StatusCode::OK, &state::of(shared))),
        "config" => {
            takes(&request, Method::GET)?;
            let toml = shared.config().to_toml().map_err(ReloadError::from)?;
            Ok(with_type(text(StatusCode::OK, toml), "application/toml"))
        }
        "reload" => {
            takes(&request, Method::POST)?;
            is_json(request.headers())?;
            shared.reload(Why::Admin)?;
            Ok(done(shared))
        }
        "drain" => {
            takes(&request, Method::POST)?;
            is_json(request.headers())?;
            tracing::warn!("an operator asks to drain");
            shared.stop_asked.cancel();
            Ok(done(shared))
        }
        "policy" => {
            takes(&request, Method::POST)?;
            let PolicyChange { policy, profile } = body(request).await?;
            let wrong = |e: RulesError| ReloadError::Wrong(value("policy", e.to_string()));
            let rules: Rules = policy.parse().map_err(wrong)?;
            shared.change(format_args!("policy = {rules}"), |raw| {
                raw.set_policy(rules, profile);
                Ok(())
            })?;
            Ok(done(shared))
        }
        _ => match path.split_once('/') {
            Some(("tenants", name)) => {
                takes(&request, Method::POST)?;
                let change: TenantChange = body(request).await?;
                change_tenant(shared, name, &change)?;
                Ok(done(shared))
            }
            Some(("backends", name)) => {
                takes(&request, Method::POST)?;
                let change: BackendChange = body(request).await?;
                change_backend(shared, name, &change)?;
                Ok(done(shared))
            }
            _ => Err(Refused::NoSuchPath),
        },
    }
}

fn change_backend(shared: &Shared, name: &str, change: &BackendChange) -> Result<(), ReloadError> {
    let BackendChange { permits, weight, drain } = *change;
    let number = |n: Option<u32>| n.map(|n| n.to_string());
    let said = [("permits", number(permits)), ("weight", number(weight)), ("drain", drain.map(|d| d.to_string()))];
    shared.change(format_args!("backends.{name}: {}", listed(&said)), |raw| {
        for backend in raw.backends_mut(name)? {
            backend.permits = permits.or(backend.permits);
            backend.weight = weight.or(backend.weight);
            backend.drain = drain.or(backend.drain);
        }
        Ok(())
    })
}

fn change_tenant(shared: &Shared, name: &str, change: &TenantChange) -> Result<(), ReloadError> {
    let TenantChange { weight, max_permits, max_queued, max_queued_bytes, class } = *change;
    shared.change(format_args!("tenants.{name}: {}", listed(&said(change))), |raw| {
        let tenant = raw.tenant_mut(name)?;
        tenant.weight = weight.or(tenant.weight);
        tenant.max_permits = max_permits.or(tenant.max_permits);
        tenant.max_queued = max_queued.or(tenant.max_queued);
        tenant.max_queued_bytes = max_queued_bytes.or(tenant.max_queued_bytes);
        tenant.class = class.or(tenant.class);
        Ok(())
    })
}

/// What a change says, by key.
fn said(change: &TenantChange) -> [(&'static str, Option<String>); 5] {
    let TenantChange { weight, max_permits, max_queued, max_queued_bytes, class } = *change;
    let number = |n: Option<u32>| n.map(|n| n.to_string());
    [
        ("weight", number(weight)),
        ("max_permits", number(max_permits)),
        ("max_queued", number(max_queued)),
        ("max_queued_bytes", max_queued_bytes.map(|n| n.to_string())),
        ("class", number(class)),
    ]
}

/// The same in one line, for the log.
fn listed(said: &[(&str, Option<String>)]) -> String {
    let said = said.iter().filter_map(|(key, value)| value.as_ref().map(|value| format!("{key} = {value}")));
    said.collect::<Vec<_>>().join(", ")
}

/// Whether who asks may. A page in a browser on this machine must not be able to: without a token it would have to
/// send a name that it controls as the host, and cannot send JSON elsewhere without being asked first.
fn may(shared: &Shared, headers: &HeaderMap) -> Result<(), Refused> {
    if let Some(digest) = shared.config().fixed.admin_token {
        let shown = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let token = shown.and_then(|v| v.strip_prefix("Bearer ")).and_then(|t| Secret::new(t.trim()).ok());
        return if token.is_some_and(|token| digest.is_of(&token)) { Ok(()) } else { Err(Refused::NoToken) };
    }
    let host = headers.get(header::HOST).and_then(|v| v.to_str().ok()).filter(|host| is_host(host.as_bytes()));
    let name = host.and_then(|host| host.parse::<http::uri::Authority>().ok());
    let name = name.as_ref().map_or("", |a| a.host()).trim_matches(['[', ']']);
    let own = name == "localhost" || name.parse::<std::net::IpAddr>().is_ok();
    if own { Ok(()) } else { Err(Refused::ForeignHost) }
}

fn takes(request: &Request<Incoming>, method: Method) -> Result<(), Refused> {
    if *request.method() == method { Ok(()) } else { Err(Refused::WrongMethod(method)) }
}

fn is_json(headers: &HeaderMap) -> Result<(), Refused> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let is = kind.split(';').next().is_some_and(|k| k.trim().eq_ignore_ascii_case("application/json"));
    if is { Ok(()) } else { Err(Refused::NotJson) }
}

async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refused> {
    is_json(request.headers())?;
    let collecting = Limited::new(request.into_body(), MAX_BODY).collect();
    let collected = tokio::time::timeout(PATIENCE, collecting).await.map_err(|_| Refused::Slow)?;
    let bytes = collected.map_err(|e| Refused::Body(e.to_string()))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|e| Refused::Body(e.to_string()))
}

fn done(shared: &Shared) -> Response<Full<Bytes>> {
    json(StatusCode::OK, &state::of(shared))
}

fn value(key: &str, problem: String) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), problem }
}

impl Refused {
    const fn status(&self) -> StatusCode {
        match self {
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::ForeignHost => StatusCode::FORBIDDEN,
            Self::NoSuchPath => StatusCode::NOT_FOUND,
            Self::WrongMethod(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Change(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}
