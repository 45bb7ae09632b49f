//! Tokens: how many, counted by whom, and how many of the prompts' came from a cache.

use elasticserve_core::ledger::{CountSource, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Span;
use serde::Serialize;

use super::per_second;

/// Tokens of completed answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OutputTokens {
    /// All of them; `None` if no answer's are known.
    pub tokens: Option<u64>,
    /// Divided by the time of the last completion.
    pub per_s: Option<f64>,
    /// Answers counted by the server's `usage`.
    pub from_usage: u32,
    /// Answers counted by their content events, which a server may have merged or split.
    pub from_events: u32,
    /// Completed answers without a count.
    pub unknown: u32,
}

/// Prompt tokens that were served from the prefix cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CachedTokens {
    /// Answers that reported them.
    pub n: u32,
    /// Answers that reported more than none.
    pub hits: u32,
    /// The tokens.
    pub tokens: u64,
    /// Prompt tokens, as planned, of the answers that reported.
    pub input_tokens: u64,
}

impl OutputTokens {
    pub(super) fn of(outcomes: &[&Row], makespan: Option<Span>) -> Self {
        let completed = || outcomes.iter().filter(|r| r.state == Terminal::Completed);
        let from = |source| completed().filter(|r| r.output_tokens_from == source).count() as u32;
        let known: Vec<u64> = completed().filter_map(|r| r.output_tokens.map(u64::from)).collect();
        let tokens = (!known.is_empty()).then(|| known.iter().sum());
        Self {
            tokens,
            per_s: tokens.zip(makespan).and_then(|(t, m)| per_second(t, m)),
            from_usage: from(Some(CountSource::Usage)),
            from_events: from(Some(CountSource::Events)),
            unknown: from(None),
        }
    }
}

impl CachedTokens {
    pub(super) fn of(outcomes: &[&Row]) -> Option<Self> {
        // The server's count has what a plan does not know, such as the history of a conversation.
        let prompt = |r: &Row| r.input_tokens.unwrap_or(r.input_planned);
        let reported: Vec<(u32, u32)> = outcomes.iter().filter_map(|r| Some((r.cached_tokens?, prompt(r)))).collect();
        (!reported.is_empty()).then(|| Self {
            n: reported.len() as u32,
            hits: reported.iter().filter(|(cached, _)| *cached > 0).count() as u32,
            tokens: reported.iter().map(|(cached, _)| u64::from(*cached)).sum(),
            input_tokens: reported.iter().map(|(_, input)| u64::from(*input)).sum(),
        })
    }
}
