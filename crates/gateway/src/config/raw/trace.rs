//! `[trace]`: spans for a collector of OpenTelemetry.

use serde::{Deserialize, Serialize};

/// Traces as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTrace {
    /// The collector's base URL for OTLP over HTTP, such as `http://127.0.0.1:4318`.
    pub endpoint: Option<String>,
    /// The part of requests that is traced where the caller does not say, from 0 to 1.
    pub sample: Option<f64>,
    /// The name of this service.
    pub service: Option<String>,
}
