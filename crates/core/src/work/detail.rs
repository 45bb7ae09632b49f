//! What an arrival's prompt holds, where a plan says more of it than its length.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Arrival, LoadModel, Turn};
use crate::engine::Prompt;

/// Leading tokens that prompts share.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    /// The identity of the text: prompts of one family start with the same tokens.
    pub family: u64,
    /// How many of the prompt's tokens it is; the rest is the prompt's own.
    pub tokens: u32,
}

/// A text of a [`Dataset`](super::Dataset).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextRef {
    /// The conversation, from 0 in the order of the file.
    pub conversation: u32,
    /// The user's message in it, from 0.
    pub message: u32,
}

/// What a plan may say of an arrival besides its time and lengths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Detail {
    /// Hashes of the prompt's chunks of [`Prompt::CHUNK_TOKENS`], where the plan comes from a trace that
    /// says them; else the prompt is what [`Arrival::prompt`] says.
    #[serde(skip_serializing_if = "is_empty", with = "chunks", default)]
    pub(super) blocks: Arc<[u64]>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) turn: Option<Turn>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) prefix: Option<Prefix>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) text: Option<TextRef>,
}

impl Detail {
    /// What is wrong with it for this arrival, if anything.
    pub(super) fn problem(&self, arrival: &Arrival, has_dataset: bool) -> Option<String> {
        let most = arrival.input.div_ceil(Prompt::CHUNK_TOKENS) as usize;
        let (chunk, input, blocks) = (Prompt::CHUNK_TOKENS, arrival.input, self.blocks.len());
        if blocks > most {
            return Some(format!("{blocks} blocks of {chunk} tokens for {input} input tokens, which have {most}"));
        }
        if let Some(prefix) = self.prefix.filter(|p| p.tokens > input) {
            return Some(format!("a prefix of {} tokens for {input} input tokens", prefix.tokens));
        }
        if self.text.is_some() && !has_dataset {
            return Some("a text of a dataset, but the header names none".into());
        }
        let kinds = [blocks > 0, self.prefix.is_some(), self.text.is_some()];
        (kinds.into_iter().filter(|is| *is).count() > 1)
            .then(|| "its prompt must be one of blocks, a prefix and a text, not several".into())
    }
}

/// Checks that arrivals have turns where the model wants them, that conversations are whole, in order, and start
/// when planned.
pub(super) fn turns_problem<'a>(
    model: LoadModel,
    arrivals: impl Iterator<Item = (&'a Arrival, Option<Turn>)>,
) -> Option<(u32, String)> {
    let LoadModel::Sessions { users, .. } = model else {
        return arrivals
            .filter(|(_, turn)| turn.is_some())
            .map(|(a, _)| a.index)
            .next()
            .map(|index| (index, format!("a turn of a session, but the load model is {model}")));
    };
    // By session: the turn that comes next, and what it must agree with.
    let mut sessions: Vec<Option<(u32, &Arrival)>> = Vec::new();
    for (arrival, turn) in arrivals {
        let index = arrival.index;
        let Some(turn) = turn else { return Some((index, "no turn, but the load model is sessions".into())) };
        let Turn { session, place, .. } = turn;
        if session >= users.get() {
            return Some((index, format!("session {session} of {users} users")));
        }
        if sessions.len() <= session as usize {
            sessions.resize(session as usize + 1, None);
        }
        let state = &mut sessions[session as usize];
        let expected = state.map_or(0, |(next, _)| next);
        if place != expected {
            return Some((index, format!("turn {place} of session {session} where turn {expected} belongs")));
        }
        let first = state.map_or(arrival, |(_, first)| first);
        if (arrival.at, arrival.tenant) != (first.at, first.tenant) {
            return Some((index, format!("session {session} has another time or tenant in its first turn")));
        }
        *state = Some((place + 1, first));
    }
    None
}

fn is_empty(blocks: &Arc<[u64]>) -> bool {
    blocks.is_empty()
}

/// A list of numbers as itself.
mod chunks {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(blocks: &Arc<[u64]>, serializer: S) -> Result<S::Ok, S::Error> {
        blocks.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u64]>, D::Error> {
        Vec::deserialize(deserializer).map(Into::into)
    }
}
