//! Closed lists of how a request can end, as the client sees it and as the scheduler does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The terminal state of a planned arrival. Every arrival ends in exactly one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Terminal {
    /// A whole answer with content, a finish reason or `[DONE]`, and the asked length.
    Completed,
    /// Turned away with 429 or 503.
    Rejected,
    /// Any other answer that is not a success, such as 400 or 502.
    HttpError,
    /// No connection could be made.
    Refused,
    /// No connection within the connect timeout.
    TimeoutConnect,
    /// No usable content within the TTFT timeout.
    TimeoutTtft,
    /// Silence within the answer for longer than the idle timeout.
    TimeoutIdle,
    /// Not finished within the total timeout.
    TimeoutTotal,
    /// An error event inside a successful answer.
    StreamError,
    /// Ended without a finish reason or `[DONE]`, or cut off.
    Truncated,
    /// Ended properly but held nothing usable.
    NoContent,
    /// Complete, but shorter than the length that was forced.
    LengthShortfall,
    /// The bytes were not a valid answer.
    ProtocolError,
    /// Complete, but failed the quality validator.
    InvalidAnswer,
    /// Given up by the client on purpose.
    Cancelled,
    /// Still open when the drain ended; its latency is a lower bound.
    Censored,
    /// Never sent: every client slot was in use.
    UnsentClientCap,
    /// Never sent: the run was stopped before its time came.
    UnsentAbort,
}

impl Terminal {
    /// Every state, in the order in which reports list them.
    pub const ALL: [Self; 18] = [
        Self::Completed,
        Self::Rejected,
        Self::HttpError,
        Self::Refused,
        Self::TimeoutConnect,
        Self::TimeoutTtft,
        Self::TimeoutIdle,
        Self::TimeoutTotal,
        Self::StreamError,
        Self::Truncated,
        Self::NoContent,
        Self::LengthShortfall,
        Self::ProtocolError,
        Self::InvalidAnswer,
        Self::Cancelled,
        Self::Censored,
        Self::UnsentClientCap,
        Self::UnsentAbort,
    ];

    /// The name in the ledger.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Rejected => "rejected",
            Self::HttpError => "http_error",
            Self::Refused => "refused",
            Self::TimeoutConnect => "timeout_connect",
            Self::TimeoutTtft => "timeout_ttft",
            Self::TimeoutIdle => "timeout_idle",
            Self::TimeoutTotal => "timeout_total",
            Self::StreamError => "stream_error",
            Self::Truncated => "truncated",
            Self::NoContent => "no_content",
            Self::LengthShortfall => "length_shortfall",
            Self::ProtocolError => "protocol_error",
            Self::InvalidAnswer => "invalid_answer",
            Self::Cancelled => "cancelled",
            Self::Censored => "censored",
            Self::UnsentClientCap => "unsent_client_cap",
            Self::UnsentAbort => "unsent_abort",
        }
    }

    /// Whether the request left the generator at all.
    #[must_use]
    pub const fn was_sent(self) -> bool {
        !matches!(self, Self::UnsentClientCap | Self::UnsentAbort)
    }
}

impl fmt::Display for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why the scheduler turned a request away, at arrival or while it waited.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectReason {
    /// Its limits cannot be met even by an engine with nothing else to do.
    SloInfeasible,
    /// Its limits cannot be met at the pace of now, or behind what is ahead of it.
    PredictedLate,
    /// The queue holds as many requests or bytes as it may.
    QueueFull,
    /// As many requests or bytes of its tenant wait as may.
    TenantLimit,
    /// It waited as long as its budget allows.
    QueueExpired,
    /// No backend is up.
    NoBackend,
    /// The gateway is shutting down.
    Draining,
}

impl RejectReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::SloInfeasible,
        Self::PredictedLate,
        Self::QueueFull,
        Self::TenantLimit,
        Self::QueueExpired,
        Self::NoBackend,
        Self::Draining,
    ];

    /// The name in headers, bodies and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SloInfeasible => "slo_infeasible",
            Self::PredictedLate => "predicted_late",
            Self::QueueFull => "queue_full",
            Self::TenantLimit => "tenant_limit",
            Self::QueueExpired => "queue_expired",
            Self::NoBackend => "no_backend",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the work behind a ticket ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The answer was passed on to its end.
    Finished,
    /// The backend failed: no connection, a broken answer or a timeout.
    BackendFailed,
    /// The client left before the end.
    ClientGone,
    /// Cut because its deadline was lost, as its tenant wants it.
    Aborted,
    /// The owner of the ticket was dropped without saying how the work ended.
    Abandoned,
}

impl How {
    /// Every way to end.
    pub const ALL: [Self; 5] = [Self::Finished, Self::BackendFailed, Self::ClientGone, Self::Aborted, Self::Abandoned];

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::BackendFailed => "backend_failed",
            Self::ClientGone => "client_gone",
            Self::Aborted => "aborted",
            Self::Abandoned => "abandoned",
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_names_are_the_serialised_names() {
        for state in Terminal::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
        for reason in RejectReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
        for how in How::ALL {
            assert_eq!(serde_json::to_value(how).unwrap(), how.name());
        }
    }
}
