//! Conversations of others, whose messages become prompts.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::TextRef;

/// What a plan says of the dataset that its prompts come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetInfo {
    /// The file, as it was named when the plan was made.
    pub source: String,
    /// SHA-256 of the file, in hexadecimal: a replay needs the same one.
    pub sha256: String,
    /// How tokens were counted, such as `bytes / 4`: a plan has no tokenizer, so lengths are about right only.
    pub counts: String,
}

/// Conversations between a user and a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    info: DatasetInfo,
    conversations: Vec<Conversation>,
}

/// A conversation: messages of the user, each with the answer to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// Message and answer in turn.
    pub turns: Vec<(String, String)>,
}

/// Why a dataset cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// Not JSON of that shape.
    #[error(
        "not a list of conversations as ShareGPT has them: {0}; each is an object with `conversations`, a list of \
         objects with `from` (human or gpt) and `value`"
    )]
    Json(String),
    /// Nothing in it can be a prompt.
    #[error("none of its {0} conversations starts with a message of the user and an answer")]
    Empty(usize),
}

/// A conversation in the file.
#[derive(Deserialize)]
struct Raw {
    #[serde(alias = "conversation", alias = "messages")]
    conversations: Vec<RawMessage>,
}

#[derive(Deserialize)]
struct RawMessage {
    #[serde(alias = "role")]
    from: String,
    #[serde(alias = "content")]
    value: String,
}

impl Dataset {
    /// How [`Dataset::tokens`] counts.
    pub const COUNTS: &str = "bytes / 4";

    /// Reads a list of conversations in the form of ShareGPT's dumps: `from` is `human` or `gpt`, or `role` is
    /// `user` or `assistant`. Messages before the first one of the user are left out, and so is all from the
    /// first message on that is out of turn. Conversations without a message and its answer count as empty.
    ///
    /// # Errors
    /// [`DatasetError`] says what is wrong and what would be right.
    pub fn from_json(text: &str, source: &str) -> Result<Self, DatasetError> {
        let raw: Vec<Raw> = serde_json::from_str(text).map_err(|e| DatasetError::Json(e.to_string()))?;
        let conversations: Vec<Conversation> = raw.into_iter().map(Conversation::from_raw).collect();
        if conversations.iter().all(|c| c.turns.is_empty()) {
            return Err(DatasetError::Empty(conversations.len()));
        }
        let sha256 = Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect();
        let info = DatasetInfo { source: source.to_owned(), sha256, counts: Self::COUNTS.to_owned() };
        Ok(Self { info, conversations })
    }

    /// What a plan says of it.
    #[must_use]
    pub const fn info(&self) -> &DatasetInfo {
        &self.info
    }

    /// The conversations in the order of the file; some may be empty.
    #[must_use]
    pub fn conversations(&self) -> &[Conversation] {
        &self.conversations
    }

    /// The message of the user that is referred to.
    #[must_use]
    pub fn text(&self, text: TextRef) -> Option<&str> {
        self.turn(text).map(|(message, _)| message)
    }

    /// That message and the answer to it.
    pub(super) fn turn(&self, text: TextRef) -> Option<(&str, &str)> {
        let turn = self.conversations.get(text.conversation as usize)?.turns.get(text.message as usize)?;
        Some((&turn.0, &turn.1))
    }

    /// About how many tokens a text has: a quarter of its bytes, at least 1.
    #[must_use]
    pub fn tokens(text: &str) -> u32 {
        u32::try_from(text.len().div_ceil(4)).unwrap_or(u32::MAX).max(1)
    }
}

impl Conversation {
    fn from_raw(raw: Raw) -> Self {
        let is_user = |m: &RawMessage| matches!(m.from.as_str(), "human" | "user");
        let is_answer = |m: &RawMessage| matches!(m.from.as_str(), "gpt" | "assistant" | "chatgpt" | "bing" | "bard");
        let mut messages = raw.conversations.into_iter().skip_while(|m| !is_user(m));
        let mut turns = Vec::new();
        while let (Some(user), Some(answer)) = (messages.next(), messages.next()) {
            if !is_user(&user) || !is_answer(&answer) || user.value.is_empty() {
                break;
            }
            turns.push((user.value, answer.value));
        }
        Self { turns }
    }
}
