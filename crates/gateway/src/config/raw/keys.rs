//! `[[tenants.keys]]`: the keys by which a tenant's clients are known.

use serde::{Deserialize, Serialize};

/// A key as it is written: its digest, never the key itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawKey {
    /// A name for it, which may be shown.
    pub id: String,
    /// The SHA-256 of the key, in hexadecimal.
    pub sha256: String,
    /// When it ends, such as `"2027-01-31"` or `"2027-01-31T12:00:00Z"`.
    pub expires: Option<String>,
    /// The models that it may use, a `*` at the end standing for anything; all if there are none here.
    pub models: Option<Vec<String>>,
    /// Requests of it in a minute, beside the tenant's.
    pub requests_per_minute: Option<u64>,
    /// Tokens of it in a minute, beside the tenant's.
    pub tokens_per_minute: Option<u64>,
}
