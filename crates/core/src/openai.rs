//! Reading OpenAI-shaped requests and answers, only as far as scheduling and measuring need.
//!
//! Bodies are looked at, never rewritten: what a client sent is what the engine gets.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// What a request says about the work it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peek {
    /// The model's name.
    pub model: Option<String>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Input tokens: exact for a prompt of token ids, else estimated from its length.
    pub input: InputTokens,
    /// The limit on output tokens (`max_tokens`, `max_completion_tokens` or `max_output_tokens`).
    pub max_tokens: Option<u32>,
}

impl Peek {
    /// Of a request that cannot be looked into.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { model: None, stream: false, input: InputTokens::Estimated(0), max_tokens: None }
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
}

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
    let input = [raw.prompt, raw.input, raw.messages].into_iter().flatten().fold(Size::default(), Size::plus);
    Ok(Peek {
        model: raw.model.map(Text::into_owned),
        stream: raw.stream.unwrap_or(false),
        input: if input.text_bytes == 0 {
            InputTokens::Exact(clamp(input.tokens))
        } else {
            InputTokens::Estimated(clamp(input.tokens + input.text_bytes.div_ceil(4)))
        },
        max_tokens,
    })
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[derive(Deserialize)]
struct RawRequest<'a> {
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    max_tokens: Option<f64>,
    #[serde(default)]
    max_completion_tokens: Option<f64>,
    #[serde(default)]
    max_output_tokens: Option<f64>,
    #[serde(default)]
    prompt: Option<Size>,
    #[serde(default)]
    input: Option<Size>,
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

    fn len(&self) -> usize {
        self.0.len()
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

/// Token counts that the server reports.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens.
    #[serde(alias = "input_tokens", default)]
    pub prompt_tokens: u32,
    /// Output tokens.
    #[serde(alias = "output_tokens", default)]
    pub completion_tokens: u32,
    /// Input tokens served from the prefix cache, if the server says so.
    #[serde(default, alias = "input_tokens_details")]
    pub prompt_tokens_details: Option<PromptDetails>,
}

/// Details of the input tokens.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptDetails {
    /// Tokens served from the prefix cache.
    #[serde(default)]
    pub cached_tokens: Option<u32>,
}

impl Usage {
    /// Input tokens served from the prefix cache, if the server says so.
    #[must_use]
    pub fn cached_tokens(&self) -> Option<u32> {
        self.prompt_tokens_details.and_then(|d| d.cached_tokens)
    }
}

/// What one event of a stream, or one whole answer, holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of text that a user can read or a program can use, tool calls included.
    pub content: usize,
    /// Bytes of reasoning that comes before the answer.
    pub reasoning: usize,
    /// Choices whose finish reason is given here.
    pub finished: u32,
    /// The server's token counts.
    pub usage: Option<Usage>,
    /// The message of an error object.
    pub error: Option<String>,
}

/// Why an event's data cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("not an OpenAI-shaped event: {0}")]
pub struct PieceError(#[from] serde_json::Error);

/// The data of the event that ends a stream.
pub const DONE: &[u8] = b"[DONE]";

/// Reads the data of one stream event, or the body of an answer that is not streamed: chat and text
/// completions alike.
///
/// # Errors
/// [`PieceError`] if it is not JSON or a known field has the wrong type.
pub fn read_piece(data: &[u8]) -> Result<Piece, PieceError> {
    let raw: RawPiece<'_> = serde_json::from_slice(data)?;
    let mut piece = Piece { usage: raw.usage, ..Piece::default() };
    if let Some(error) = raw.error {
        piece.error = Some(match error {
            RawError::Text(text) => text.into_owned(),
            RawError::Object { message } => message.map_or_else(|| "no message".to_owned(), Text::into_owned),
        });
    }
    for choice in raw.choices.unwrap_or_default() {
        piece.finished += u32::from(choice.finish_reason.is_some());
        piece.content += choice.text.map_or(0, |t| t.len());
        for delta in [choice.delta, choice.message].into_iter().flatten() {
            piece.content += delta.content.map_or(0, |t| t.len()) + delta.tool_calls.map_or(0, |calls| calls.len());
            piece.reasoning +=
                [delta.reasoning, delta.reasoning_content].iter().flatten().map(Text::len).sum::<usize>();
        }
    }
    Ok(piece)
}

#[derive(Deserialize)]
struct RawPiece<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<RawChoice<'a>>>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(borrow, default)]
    error: Option<RawError<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawError<'a> {
    Text(#[serde(borrow)] Text<'a>),
    Object {
        #[serde(borrow, default)]
        message: Option<Text<'a>>,
    },
}

#[derive(Deserialize)]
struct RawChoice<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    delta: Option<RawDelta<'a>>,
    #[serde(borrow, default)]
    message: Option<RawDelta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct RawDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(default)]
    tool_calls: Option<Vec<IgnoredAny>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ids_are_counted_and_text_is_estimated() {
        let ids = peek(br#"{"model":"m","prompt":[1,2,3],"max_tokens":64,"stream":true}"#).unwrap();
        assert_eq!(
            ids,
            Peek { model: Some("m".into()), stream: true, input: InputTokens::Exact(3), max_tokens: Some(64) }
        );
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
    fn a_deeply_nested_body_is_refused_without_overflow() {
        let deep = format!(r#"{{"messages":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert!(peek(deep.as_bytes()).is_err());
    }

    #[test]
    fn a_role_event_is_not_content_and_null_fields_are_absent() {
        let role =
            read_piece(br#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#).unwrap();
        assert_eq!(role, Piece::default());
        let null = read_piece(br#"{"choices":[{"delta":null}],"usage":null}"#).unwrap();
        assert_eq!(null, Piece::default());
    }

    #[test]
    fn reasoning_tool_calls_and_text_are_told_apart() {
        let reasoning = read_piece(br#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#).unwrap();
        assert_eq!((reasoning.content, reasoning.reasoning), (0, 2));
        let tool = read_piece(br#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#).unwrap();
        assert_eq!((tool.content, tool.reasoning), (1, 0));
    }

    #[test]
    fn usage_may_share_an_event_with_the_last_text() {
        let piece = read_piece(
            br#"{"choices":[{"text":"ab","finish_reason":"length"}],
                "usage":{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4}}}"#,
        )
        .unwrap();
        assert_eq!((piece.content, piece.finished), (2, 1));
        let usage = piece.usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens()), (5, 7, Some(4)));
    }

    #[test]
    fn an_error_inside_a_stream_is_seen_in_either_shape() {
        assert_eq!(
            read_piece(br#"{"error":{"message":"out of memory"}}"#).unwrap().error.as_deref(),
            Some("out of memory")
        );
        assert_eq!(read_piece(br#"{"error":"boom"}"#).unwrap().error.as_deref(), Some("boom"));
    }
}
