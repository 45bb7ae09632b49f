//! How arrivals ended that were not answered in full, by what was said.

use std::collections::BTreeMap;

use elasticserve_core::outcome::Terminal;
use serde::Serialize;

use crate::account::Account;

/// The most kinds of ending that a summary tells apart; rarer ones are added up in the last.
pub const MAX_ENDINGS: usize = 24;
/// The most characters of a server's or client's words that a summary keeps.
pub const MAX_DETAIL: usize = 120;

/// One kind of ending and how often it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ending {
    /// The terminal state; `None` for the rest beyond [`MAX_ENDINGS`].
    pub state: Option<Terminal>,
    /// The HTTP status, if a head came.
    pub status: Option<u16>,
    /// The server's reason, else the client's error.
    pub detail: Option<String>,
    /// How many arrivals.
    pub n: u32,
}

/// The kinds of ending, most frequent first.
pub(super) fn endings(run: &Account) -> Vec<Ending> {
    type Kind = (Terminal, u32);
    let mut counts: BTreeMap<Kind, (crate::account::Arrival, u32)> = BTreeMap::new();
    for arrival in run.arrivals() {
        if let Some(ending) = arrival.ending {
            counts.entry((arrival.state, ending)).or_insert((arrival, 0)).1 += 1;
        }
    }
    let told = |((state, _), (arrival, n)): (Kind, _)| {
        let (status, detail) = run.words(&arrival).cloned().unwrap_or_default();
        ((state, status, detail), n)
    };
    let counts: BTreeMap<(Terminal, Option<u16>, Option<String>), u32> = counts.into_iter().map(told).collect();
    let mut endings: Vec<Ending> = counts
        .into_iter()
        .map(|((state, status, detail), n)| Ending { state: Some(state), status, detail, n })
        .collect();
    endings.sort_by_key(|e| std::cmp::Reverse(e.n));
    if endings.len() > MAX_ENDINGS {
        let rest = endings.split_off(MAX_ENDINGS - 1).iter().map(|e| e.n).sum();
        endings.push(Ending { state: None, status: None, detail: None, n: rest });
    }
    endings
}
