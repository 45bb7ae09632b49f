//! `[[backends]]`: the servers behind the gateway.

use serde::{Deserialize, Serialize};

/// A backend as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawBackend {
    /// Its base URL, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// The requests that it may work on at once.
    pub permits: Option<u32>,
}
