//! Reading OpenAI-shaped requests and answers, only as far as scheduling and measuring need.
//!
//! Bodies are looked at, never rewritten: what a client sent is what the engine gets.

mod depth;
mod piece;
mod raw;
mod reader;

pub use piece::{DONE, Kind, Part, Piece, PieceError, PromptDetails, Usage, read_parts, read_piece};
pub use reader::{Broken, Counts, Reader, Reading, Step};

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

/// What a request says about the work it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The model's name.
    pub model: Option<String>,
    /// What requests of one user or conversation have in common (`prompt_cache_key`, else `user`).
    pub session: Option<String>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Input tokens: exact for a prompt of token ids, else estimated from its length.
    pub input: InputTokens,
    /// The limit on output tokens (`max_tokens`, `max_completion_tokens` or `max_output_tokens`).
    pub max_tokens: Option<u32>,
    /// How many answers there are to be (`n` or `best_of`), each of them with that limit.
    pub choices: u32,
    /// Whether the answer goes on to that limit whatever the model says (`ignore_eos`).
    pub to_the_limit: bool,
}

impl Peek {
    /// Of a request that cannot be looked into.
    #[must_use]
    pub const fn unknown() -> Self {
        Self {
            model: None,
            session: None,
            stream: false,
            input: InputTokens::Estimated(0),
            max_tokens: None,
            choices: 1,
            to_the_limit: false,
        }
    }
}

/// A count of input tokens and how it was come by.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum InputTokens {
    /// The prompt was given as token ids.
    Exact(u32),
    /// One token per four bytes of text, the usual rule of thumb for English.
    Estimated(u32),
}

impl InputTokens {
    /// The count, however it was come by.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::Exact(n) | Self::Estimated(n) => n,
        }
    }
}

/// Why a body cannot be scheduled.
#[derive(Debug, thiserror::Error)]
pub enum PeekError {
    /// Not JSON, or a field of the wrong type.
    #[error("the body is not a valid JSON request: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but not an object.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// Too many arrays and objects within each other.
    #[error("the body is nested more than {} deep", depth::MAX_DEPTH)]
    Deep,
    /// A limit on output tokens that is not a positive number of tokens.
    #[error("{field} must be a whole number from 1 to {max}, not {value}")]
    MaxTokens {
        /// The field that holds it.
        field: &'static str,
        /// What it holds.
        value: f64,
        /// The largest value taken.
        max: u32,
    },
    /// A number of answers that is none.
    #[error("{field} must be a whole number from 1 to {MAX_CHOICES}, not {value}")]
    Choices {
        /// The field that holds it.
        field: &'static str,
        /// What it holds.
        value: f64,
    },
}

/// More answers to one request than any server gives; more are refused as nonsense.
pub const MAX_CHOICES: u32 = 1024;
/// More output tokens than any model gives; larger limits are refused as nonsense.
pub const MAX_OUTPUT_TOKENS: u32 = 16_777_216;

/// Reads the fields of a request body that matter for scheduling.
///
/// # Errors
/// [`PeekError`] if the body is not a JSON object or a limit is out of range.
pub fn peek(body: &[u8]) -> Result<Peek, PeekError> {
    // A derived struct would take an array for its fields in order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(PeekError::NotAnObject);
    }
    // What is not read here is not counted by serde either, and an engine's own reader may overflow on it.
    if depth::is_deeper_than(body, depth::MAX_DEPTH) {
        return Err(PeekError::Deep);
    }
    let raw: RawRequest<'_> = serde_json::from_slice(body)?;
    let limits = [
        ("max_tokens", raw.max_tokens),
        ("max_completion_tokens", raw.max_completion_tokens),
        ("max_output_tokens", raw.max_output_tokens),
    ];
    let mut max_tokens = None;
    for (field, value) in limits {
        let Some(value) = value else { continue };
        if !(1.0..=f64::from(MAX_OUTPUT_TOKENS)).contains(&value) || value.fract() != 0.0 {
            return Err(PeekError::MaxTokens { field, value, max: MAX_OUTPUT_TOKENS });
        }
        max_tokens = Some(value as u32);
    }
    let input =
        [raw.prompt, raw.input, raw.instructions, raw.messages].into_iter().flatten().fold(Size::default(), Size::plus);
    Ok(Peek {
        model: raw.model.map(Text::into_owned),
        session: raw.prompt_cache_key.as_deref().or(raw.user.as_deref()).filter(|s| !s.is_empty()).map(str::to_owned),
        stream: raw.stream.unwrap_or(false),
        input: if input.text_bytes == 0 {
            InputTokens::Exact(clamp(input.tokens))
        } else {
            InputTokens::Estimated(clamp(input.tokens + input.text_bytes.div_ceil(4)))
        },
        max_tokens,
        choices: choices(raw.n, raw.best_of)?,
        to_the_limit: raw.ignore_eos.unwrap_or(false),
    })
}

/// The greater of `n` and `best_of`, 1 without either.
fn choices(n: Option<f64>, best_of: Option<f64>) -> Result<u32, PeekError> {
    let mut choices = 1;
    for (field, value) in [("n", n), ("best_of", best_of)] {
        let Some(value) = value else { continue };
        if !(1.0..=f64::from(MAX_CHOICES)).contains(&value) || value.fract() != 0.0 {
            return Err(PeekError::Choices { field, value });
        }
        choices = choices.max(value as u32);
    }
    Ok(choices)
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[derive(Deserialize)]
struct RawRequest<'a> {
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(borrow, default)]
    prompt_cache_key: raw::Loose<'a>,
    #[serde(borrow, default)]
    user: raw::Loose<'a>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    ignore_eos: Option<bool>,
    #[serde(default)]
    max_tokens: Option<f64>,
    #[serde(default)]
    max_completion_tokens: Option<f64>,
    #[serde(default)]
    max_output_tokens: Option<f64>,
    #[serde(default)]
    n: Option<f64>,
    #[serde(default)]
    best_of: Option<f64>,
    #[serde(default)]
    prompt: Option<Size>,
    #[serde(default)]
    input: Option<Size>,
    #[serde(default)]
    instructions: Option<Size>,
    #[serde(default)]
    messages: Option<Size>,
}

/// Text that borrows from the body unless it holds escapes. (A bare `Option<Cow<str>>` always copies.)
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    fn into_owned(self) -> String {
        self.0.into_owned()
    }
}

/// The size of a prompt in any of its shapes: text, token ids, lists of either, chat messages.
#[derive(Copy, Clone, Debug, Default)]
struct Size {
    tokens: u64,
    text_bytes: u64,
}

impl Size {
    fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens + other.tokens, text_bytes: self.text_bytes + other.text_bytes }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl<'de> Visitor<'de> for SizeVisitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, token ids, or a list of them")
            }
            fn visit_str<E>(self, text: &str) -> Result<Size, E> {
                Ok(Size { tokens: 0, text_bytes: text.len() as u64 })
            }
            fn visit_u64<E>(self, _: u64) -> Result<Size, E> {
                Ok(Size { tokens: 1, text_bytes: 0 })
            }
            fn visit_i64<E>(self, _: i64) -> Result<Size, E> {
                Ok(Size { tokens: 1, text_bytes: 0 })
            }
            fn visit_f64<E>(self, _: f64) -> Result<Size, E> {
                Ok(Size::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<Size, E> {
                Ok(Size::default())
            }
            fn visit_unit<E>(self) -> Result<Size, E> {
                Ok(Size::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Size, A::Error> {
                let mut size = Size::default();
                while let Some(item) = seq.next_element::<Size>()? {
                    size = size.plus(item);
                }
                Ok(size)
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Size, A::Error> {
                let mut size = Size::default();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if matches!(&*key, "content" | "text" | "input") {
                        size = size.plus(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(size)
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ids_are_counted_and_text_is_estimated() {
        let ids = peek(br#"{"model":"m","prompt":[1,2,3],"max_tokens":64,"stream":true}"#).unwrap();
        assert_eq!(
            ids,
            Peek {
                model: Some("m".into()),
                session: None,
                stream: true,
                input: InputTokens::Exact(3),
                max_tokens: Some(64),
                choices: 1,
                to_the_limit: false
            }
        );
        assert!(peek(br#"{"prompt":"x","max_tokens":9,"ignore_eos":true}"#).unwrap().to_the_limit);
        assert_eq!(peek(br#"{"prompt":[[1,2],[3]]}"#).unwrap().input, InputTokens::Exact(3));
        assert_eq!(peek(br#"{"prompt":"12345"}"#).unwrap().input, InputTokens::Estimated(2));
    }

    #[test]
    fn chat_messages_count_their_text_parts_only() {
        let body = br#"{"messages":[{"role":"system","content":"1234"},
            {"role":"user","content":[{"type":"text","text":"5678"},{"type":"image_url","image_url":{"url":"data:..."}}]},
            {"role":"assistant","content":null}]}"#;
        assert_eq!(peek(body).unwrap().input, InputTokens::Estimated(2));
    }

    #[test]
    fn a_session_is_named_by_its_cache_key_or_else_its_user() {
        let session = |body: &str| peek(body.as_bytes()).unwrap().session;
        assert_eq!(session(r#"{"user":"u","prompt_cache_key":"k"}"#).as_deref(), Some("k"));
        assert_eq!(session(r#"{"user":"\u0075"}"#).as_deref(), Some("u"));
        for none in [r"{}", r#"{"user":""}"#, r#"{"user":null}"#, r#"{"user":{"id":1}}"#] {
            assert_eq!(session(none), None, "{none}");
        }
    }

    #[test]
    fn nonsense_limits_are_refused_by_name() {
        for bad in ["-1", "0", "1e309", "9223372036854775808", "1.5"] {
            let error = peek(format!(r#"{{"max_tokens":{bad}}}"#).as_bytes()).unwrap_err().to_string();
            assert!(error.contains("max_tokens") || error.contains("number out of range"), "{bad}: {error}");
        }
        assert!(peek(br#"{"max_tokens":"5"}"#).is_err());
        assert!(peek(b"[]").is_err());
        assert!(peek(b"").is_err());
    }

    #[test]
    fn the_number_of_answers_is_the_greater_of_its_two_fields_and_nonsense_is_refused_by_name() {
        let choices = |more: &str| peek(format!(r#"{{"prompt":"x"{more}}}"#).as_bytes()).map(|p| p.choices);
        assert_eq!(choices("").unwrap(), 1);
        assert_eq!(choices(r#","n":null"#).unwrap(), 1);
        assert_eq!(choices(r#","n":3,"best_of":5"#).unwrap(), 5);
        for bad in ["0", "-1", "1.5", "1025", "1e300"] {
            assert!(choices(&format!(r#","n":{bad}"#)).unwrap_err().to_string().starts_with("n must"), "{bad}");
        }
    }

    #[test]
    fn a_deeply_nested_body_is_refused_without_overflow() {
        let deep = format!(r#"{{"messages":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert!(peek(deep.as_bytes()).is_err());
        let unread = |depth| format!(r#"{{"unread":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(peek(unread(126).as_bytes()).is_ok());
        assert!(matches!(peek(unread(127).as_bytes()), Err(PeekError::Deep)));
    }
}
