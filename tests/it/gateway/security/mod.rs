//! What nobody gets by trying. `docs/bars.md` says which of these tests stands for which bar.

mod answers;
mod bodies;
mod encodings;
mod flood;
mod headers;
mod heads;
mod keys;
mod labels;
mod mixup;
mod operators;
mod outside;
mod reloads;
mod slow;
mod smuggling;
mod storm;
mod supply;
mod tls;

use bytes::Bytes;
use elasticserve_gateway::config::{RawConfig, RawKey, RawTenant};
use elasticserve_gateway::secret::Secret;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;

/// The keys of the tenants of [`with_keys`].
pub(crate) const GOLD: &str = "esk-gold-0123456789abcdef";
pub(crate) const BATCH: &str = "esk-batch-0123456789abcdef";
pub(crate) const EXPIRED: &str = "esk-expired-0123456789abcdef";

/// A key's entry.
pub(crate) fn key(id: &str, text: &str) -> RawKey {
    RawKey { id: id.into(), sha256: Secret::new(text).unwrap().digest().to_string(), ..RawKey::default() }
}

/// Two tenants with keys, and a key that has ended.
pub(crate) fn with_keys(raw: &mut RawConfig) {
    let expired = RawKey { expires: Some("2020-01-01".into()), ..key("gold-old", EXPIRED) };
    let tenant = |name: &str, keys| RawTenant { name: name.into(), keys: Some(keys), ..RawTenant::default() };
    raw.tenants =
        Some(vec![tenant("gold", vec![key("gold-1", GOLD), expired]), tenant("batch", vec![key("batch-1", BATCH)])]);
    raw.default_tenant = Some("batch".into());
}

/// A request with more headers.
pub(crate) fn with(mut request: Request<Full<Bytes>>, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).unwrap();
        request.headers_mut().append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    request
}

/// The header that shows a key.
pub(crate) fn bearer(key: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {key}"))
}
