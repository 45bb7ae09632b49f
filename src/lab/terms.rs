//! What a run is told besides its plan and its way.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use elasticserve_core::ledger::Tolerances;
use elasticserve_core::time::Span;
use elasticserve_load::{BaseUrl, LoadConfig};

/// How late the generator may be in the 99th percentile, in the time of the plan: a twentieth of a usual limit on
/// the first token.
const MAX_SEND_LAG: Span = Span::from_millis(50);

/// Everything about a run except what is offered, to whom and how.
#[derive(Clone)]
pub(crate) struct Terms {
    /// As for `load`: name, interface, tolerances, timeouts, warm-ups, notes. Its URL, its salt and its time scale
    /// are those of the stand and of [`Terms::salt`]; tolerances and timeouts are in the time of the plan.
    pub(crate) load: LoadConfig,
    /// What makes prompts differ between runs.
    pub(crate) salt: Salt,
    /// So many of the plan's prompts, the first ones, are in the prefix cache when the run begins; `u32::MAX` for
    /// all. On sockets they are sent before the run, for one token each, in the same words as in the run.
    pub(crate) primed: u32,
}

/// Which runs have prompts in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Salt {
    /// None has any with this one: the prefix cache starts cold.
    Fresh,
    /// Those of one plan that name the same word: the cache holds what those before have sent.
    Shared(String),
    /// All of one plan that have no salt.
    None,
}

impl Terms {
    /// A run of streamed completions whose answers are forced to their planned lengths, with a salt of its own, no
    /// warm-ups and the generator's usual limits.
    pub(crate) fn new(name: &str) -> Self {
        // Its place is taken by the target's.
        let nowhere = BaseUrl::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        let mut load = LoadConfig::new(name, nowhere, "");
        load.ignore_eos = true;
        load.tolerances = Tolerances::of_lateness(MAX_SEND_LAG);
        Self { load, salt: Salt::Fresh, primed: 0 }
    }

    /// What the manifest says of the prompts.
    pub(super) fn notes(&self) -> BTreeMap<String, String> {
        let prompts = match &self.salt {
            Salt::Fresh => "of this run alone".to_owned(),
            Salt::Shared(word) => format!("shared by the runs of {word}"),
            Salt::None => "shared by all runs without a salt".to_owned(),
        };
        let mut notes = BTreeMap::from([("prompts".to_owned(), prompts)]);
        let primed = match self.primed {
            0 => return notes,
            u32::MAX => "all".to_owned(),
            count => count.to_string(),
        };
        notes.insert("prompts_cached_before".to_owned(), primed);
        notes
    }
}
