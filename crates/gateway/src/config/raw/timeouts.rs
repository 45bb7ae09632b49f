//! `[timeouts]`: when to give up.

use serde::{Deserialize, Serialize};

/// Timeouts as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// How long a stream of events may be silent before its client gets a comment; never unless set.
    pub keep_alive: Option<String>,
    /// For a client that reads nothing of what there is for it.
    pub write: Option<String>,
    /// For what runs when the gateway is told to stop.
    pub drain: Option<String>,
    /// How long it goes on as before once it has been told, for others to notice.
    pub drain_delay: Option<String>,
}
