//! The load model: what users a plan stands for.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// How the arrivals of a plan come about. It is a statement about the users, not about the server.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LoadModel {
    /// Users who know nothing of each other: each arrival is due at its planned time, whatever the server does.
    #[default]
    Open,
    /// So many workers, each of which takes the next arrival when its last one has ended.
    ///
    /// The plan is a supply and no schedule: every [`Arrival::at`](super::Arrival::at) is 0. The run ends when
    /// the supply has been drawn, or with [`PlanHeader::window`](super::PlanHeader::window) if there is one;
    /// what has not been drawn by then is no arrival of the run.
    Closed {
        /// Workers.
        workers: NonZeroU32,
    },
    /// Users who each hold one conversation: every arrival has a [`Turn`].
    ///
    /// A first turn is due at its planned time. A later one is due its think time after the answer to the turn
    /// before it has ended; its [`Arrival::at`](super::Arrival::at) is that of the first turn, before which it
    /// cannot be due. With a [`PlanHeader::window`](super::PlanHeader::window), a turn that comes due after the
    /// window is no arrival of the run.
    Sessions {
        /// Users, and so conversations.
        users: NonZeroU32,
        /// Whether a turn's prompt carries the turns before it and the server's own answers to them. Without it
        /// the turns of a user share nothing but their order and the time between them.
        history: bool,
    },
}

/// The place of an arrival in a conversation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The conversation, from 0.
    pub session: u32,
    /// The turn in it, from 0.
    pub place: u32,
    /// From the end of the answer before to this turn; 0 for the first.
    #[serde(rename = "think_ns")]
    pub think: Span,
}

impl LoadModel {
    /// Whether each arrival is due at its planned time, whatever the server does.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open)
    }
}

/// The name alone: `open`, `closed` or `sessions`.
impl fmt::Display for LoadModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Closed { .. } => "closed",
            Self::Sessions { .. } => "sessions",
        })
    }
}
