//! What became of an arrival, in five words.

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;

use crate::account::Arrival;

/// The classes that tables and pictures count by. Every arrival is in exactly one.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A whole answer within every limit.
    Good,
    /// A whole answer past a limit.
    Late,
    /// Sent, and neither answered in full nor rejected.
    Failed,
    /// Turned away with 429 or 503.
    Rejected,
    /// Never sent.
    Unsent,
}

impl Class {
    /// Every class, in the order in which pictures stack them.
    pub const ALL: [Self; 5] = [Self::Good, Self::Late, Self::Failed, Self::Rejected, Self::Unsent];

    /// The class of an arrival.
    #[must_use]
    pub fn of(arrival: &Arrival, slo: &Slo) -> Self {
        match arrival.state {
            Terminal::Completed if arrival.is_good(slo) => Self::Good,
            Terminal::Completed => Self::Late,
            Terminal::Rejected => Self::Rejected,
            state if state.was_sent() => Self::Failed,
            _ => Self::Unsent,
        }
    }

    /// The class in tables, legends and style names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Unsent => "unsent",
        }
    }

    /// What the class means, for a legend.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Good => "answered within every limit",
            Self::Late => "answered, but past a limit",
            Self::Failed => "sent, no whole answer",
            Self::Rejected => "turned away with 429 or 503",
            Self::Unsent => "never sent",
        }
    }
}

/// Whether the server took the request on: the head of its answer said success.
///
/// A gateway that queues sends no head before it admits. Of a request that ended before any head it is not
/// known whether it had been admitted, and it is not counted.
#[must_use]
pub fn was_admitted(row: &Row) -> bool {
    row.state == Terminal::Completed || row.status.is_some_and(|s| (200..300).contains(&s))
}
