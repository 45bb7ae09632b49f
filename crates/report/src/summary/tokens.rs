//! Tokens: how many, counted by whom, and how many of the prompts' came from a cache.

use elasticserve_core::ledger::CountSource;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Span;
use serde::Serialize;

use super::per_second;
use crate::account::{Account, Arrival};

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
    pub(super) fn of(run: &Account, makespan: Option<Span>) -> Self {
        let mut out = Self::default();
        for answer in run.arrivals().filter(|a| a.state == Terminal::Completed) {
            if let Some(tokens) = answer.output_tokens {
                *out.tokens.get_or_insert(0) += u64::from(tokens);
            }
            let counted = match answer.output_tokens_from {
                Some(CountSource::Usage) => &mut out.from_usage,
                Some(CountSource::Events) => &mut out.from_events,
                None => &mut out.unknown,
            };
            *counted += 1;
        }
        out.per_s = out.tokens.zip(makespan).and_then(|(t, m)| per_second(t, m));
        out
    }
}

impl CachedTokens {
    pub(super) fn of(run: &Account) -> Option<Self> {
        // The server's count has what a plan does not know, such as the history of a conversation.
        let prompt = |a: &Arrival| a.input_tokens.unwrap_or(a.input_planned);
        let mut out = Self { n: 0, hits: 0, tokens: 0, input_tokens: 0 };
        for (cached, input) in run.arrivals().filter_map(|a| Some((a.cached_tokens?, prompt(&a)))) {
            out.n += 1;
            out.hits += u32::from(cached > 0);
            out.tokens += u64::from(cached);
            out.input_tokens += u64::from(input);
        }
        (out.n > 0).then_some(out)
    }
}
