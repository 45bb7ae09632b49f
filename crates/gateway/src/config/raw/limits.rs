//! `[limits]`: bounds on what clients may send.

use serde::{Deserialize, Serialize};

/// Bounds as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// Connections from clients.
    pub connections: Option<u32>,
    /// Bytes of one request body.
    pub body_bytes: Option<u64>,
    /// Bytes of all request bodies that are in memory.
    pub body_memory: Option<u64>,
}
