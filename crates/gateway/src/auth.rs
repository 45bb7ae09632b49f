//! Whose a request is: by its key, by the word of a proxy that is believed, or by default.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use elasticserve_core::ids::TenantId;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::config::Key;
use crate::headers::{self, TENANT};
use crate::live::Active;
use crate::reply::Refusal;
use crate::secret::Secret;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Headers that carry keys: OpenAI's and most others', Anthropic's, Azure's.
pub(crate) const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, X_API_KEY, HeaderName::from_static("api-key")];
/// Headers that tell of the hops before, beside those that begin with `x-forwarded-`.
const HOPS: [HeaderName; 2] = [header::FORWARDED, HeaderName::from_static("x-real-ip")];
const HOPS_PREFIX: &str = "x-forwarded-";

/// Who asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    /// Whose the request is; `None` for the default tenant.
    pub(crate) tenant: Option<TenantId>,
    /// The key that was shown, where keys are needed.
    pub(crate) key: Option<Arc<Key>>,
    /// How the tenant is known: `key`, `header` or `default`.
    pub(crate) known_by: &'static str,
    /// Whether what it says of the hops before it goes on to a backend.
    believed: bool,
}

/// Why a key is not accepted. Clients are not told; operators see it counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Missing,
    Malformed,
    Unknown,
    Expired,
}

impl Denied {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
        }
    }
}

/// Finds out who asks, by the head of a request and the address that it comes from.
pub(crate) fn identify(config: &Active, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<Caller, Refusal> {
    let trusted = peer.is_some_and(|peer| config.trusted_proxies.iter().any(|net| net.contains(peer)));
    let open = config.keys.is_empty() && config.trusted_proxies.is_empty();
    let believed = trusted || open;
    let named = if believed { headers::tenant(headers, |name| config.tenant(name))? } else { None };
    let key = match presented(headers) {
        _ if config.keys.is_empty() => None,
        Ok(None) if named.is_some() => None,
        Ok(None) => return Err(Refusal::Unauthorized(Denied::Missing)),
        Ok(Some(secret)) => Some(valid(config, &secret).map_err(Refusal::Unauthorized)?),
        Err(denied) => return Err(Refusal::Unauthorized(denied)),
    };
    // By name: a tenant's number is its place, which another configuration may give to nobody else.
    let of_key = key.as_ref().and_then(|key| config.tenant(&key.tenant));
    let known_by = match (named, of_key) {
        (Some(_), _) => "header",
        (None, Some(_)) => "key",
        (None, None) => "default",
    };
    Ok(Caller { tenant: named.or(of_key), key, known_by, believed })
}

impl Caller {
    /// Whether its key may be used for certain models only.
    pub(crate) fn is_bound_to_models(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.models.is_some())
    }

    /// Refuses a model that the key may not use.
    pub(crate) fn check_model(&self, model: impl FnOnce() -> Option<String>) -> Result<(), Refusal> {
        let Some(key) = self.key.as_ref().filter(|key| key.models.is_some()) else { return Ok(()) };
        let model = model();
        if key.may_use(model.as_deref()) {
            return Ok(());
        }
        Err(Refusal::Forbidden { key: key.id.clone(), model })
    }

    /// Takes out what must not reach a backend: the client's key where keys are the gateway's, and what it says of
    /// tenants and of hops before it, unless it is believed.
    pub(crate) fn strip(&self, config: &Active, headers: &mut HeaderMap) {
        if !config.keys.is_empty() {
            CREDENTIALS.iter().for_each(|name| drop(headers.remove(name)));
        }
        if !self.believed {
            TENANT.iter().for_each(|name| drop(headers.remove(*name)));
            let told: Vec<HeaderName> = headers.keys().filter(|name| tells_of_hops(name)).cloned().collect();
            told.iter().for_each(|name| drop(headers.remove(name)));
        }
    }
}

fn tells_of_hops(name: &HeaderName) -> bool {
    HOPS.contains(name) || name.as_str().starts_with(HOPS_PREFIX)
}

fn valid(config: &Active, secret: &Secret) -> Result<Arc<Key>, Denied> {
    let key = config.keys.find(secret).ok_or(Denied::Unknown)?;
    if key.expires.as_ref().is_some_and(|expiry| expiry.is_over(SystemTime::now())) {
        return Err(Denied::Expired);
    }
    Ok(Arc::clone(key))
}

/// The one key that a request shows, in `authorization: Bearer` or `x-api-key`.
fn presented(headers: &HeaderMap) -> Result<Option<Secret>, Denied> {
    let bearer = headers.get_all(header::AUTHORIZATION).iter().map(|value| (value, true));
    let plain = headers.get_all(X_API_KEY).iter().map(|value| (value, false));
    let mut all = bearer.chain(plain);
    let Some((value, has_scheme)) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(Denied::Malformed);
    }
    let text = if has_scheme { after_scheme(value) } else { value.to_str().ok() };
    text.and_then(|text| Secret::new(text).ok()).map(Some).ok_or(Denied::Malformed)
}

/// What follows `Bearer`, in any case, and spaces (RFC 9110, section 11.4).
fn after_scheme(value: &HeaderValue) -> Option<&str> {
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim_matches(' '))
}
