//! What one event of a stream, or one whole answer, holds.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::raw::{Delta, Error, Output, Raw, Response};

/// Token counts that the server reports. A count that it does not give is absent.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens.
    #[serde(alias = "input_tokens", default)]
    pub prompt_tokens: Option<u32>,
    /// Output tokens.
    #[serde(alias = "output_tokens", default)]
    pub completion_tokens: Option<u32>,
    /// Details of the input tokens, if the server says any.
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
    /// Bytes of text that a user can read.
    pub content: usize,
    /// Bytes of reasoning that comes before the answer.
    pub reasoning: usize,
    /// Bytes of tool calls: names and arguments, at least 1 for each call that is there at all.
    pub tool: usize,
    /// Choices whose finish reason is given here.
    pub finished: u32,
    /// The server's token counts.
    pub usage: Option<Usage>,
    /// The message of an error object.
    pub error: Option<String>,
}

impl Piece {
    /// Whether it holds something that a user can read or a program can use.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.content + self.tool > 0
    }
}

/// A text within a piece.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The choice's number; for the responses interface always 0.
    pub choice: u32,
    /// What it is.
    pub kind: Kind,
    /// The text; of a tool call its name or its arguments. Empty where a choice only finishes.
    pub text: &'a str,
}

/// What a text within a piece is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text for the user.
    Content,
    /// Reasoning before the answer.
    Reasoning,
    /// A call of a tool.
    Tool,
    /// The choice ends here.
    Finish,
}

/// Why an event's data cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("not an OpenAI-shaped event: {0}")]
pub struct PieceError(#[from] serde_json::Error);

/// The data of the event that ends a stream.
pub const DONE: &[u8] = b"[DONE]";

/// Reads the data of one stream event, or the body of an answer that is not streamed: text completions,
/// chats and responses alike.
///
/// # Errors
/// [`PieceError`] if it is not JSON or a known field has the wrong type.
pub fn read_piece(data: &[u8]) -> Result<Piece, PieceError> {
    read_parts(data, &mut |_| {})
}

/// The same, and hands each text to `sink`.
///
/// Bytes that are not UTF-8 and escapes of half a character become U+FFFD, as the standard of event streams
/// has it for the former.
///
/// # Errors
/// As [`read_piece`].
pub fn read_parts(data: &[u8], sink: &mut dyn FnMut(Part<'_>)) -> Result<Piece, PieceError> {
    match serde_json::from_slice::<Raw<'_>>(data) {
        Ok(raw) => Ok(Taker { piece: Piece::default(), sink }.take(raw)),
        Err(error) => {
            let Some(mended) = mended(data) else { return Err(error.into()) };
            let raw = serde_json::from_slice(mended.as_bytes())?;
            Ok(Taker { piece: Piece::default(), sink }.take(raw))
        }
    }
}

/// The data as JSON that can be text, if it was not.
fn mended(data: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(data);
    let whole = without_half_characters(&text);
    match (text, whole) {
        (_, Some(whole)) => Some(whole),
        (Cow::Owned(text), None) => Some(text),
        (Cow::Borrowed(_), None) => None,
    }
}

/// Replaces escapes of surrogates that are not a pair (RFC 8259, section 8.2); nothing if there are none.
fn without_half_characters(text: &str) -> Option<String> {
    const REPLACEMENT: &str = "\\ufffd";
    let unit = |at: usize| -> Option<u16> {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut mended = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &text.as_bytes()[at..]) {
        at += found;
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                mended.push_str(&text[copied..at]);
                mended.push_str(REPLACEMENT);
                at += 6;
                copied = at;
            }
            Some(_) => at += 6,
            // An escaped character, which may be a backslash itself.
            None => at = text.len().min(at + 2),
        }
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    (copied > 0).then(|| mended + &text[copied..])
}

struct Taker<'s> {
    piece: Piece,
    sink: &'s mut dyn FnMut(Part<'_>),
}

impl Taker<'_> {
    fn take(mut self, raw: Raw<'_>) -> Piece {
        self.piece.usage = raw.usage;
        let says_error = [raw.object.as_deref(), raw.kind.as_deref()].contains(&Some("error"));
        if raw.error.is_some() || says_error {
            self.piece.error = Some(message(raw.error, raw.message.as_deref()));
        }
        for choice in raw.choices.unwrap_or_default() {
            let index = choice.index.unwrap_or(0);
            self.part(index, Kind::Content, choice.text.as_deref());
            for delta in [choice.delta, choice.message].into_iter().flatten() {
                self.delta(index, &delta);
            }
            if choice.finish_reason.is_some() {
                self.finish(index);
            }
        }
        if raw.object.as_deref() == Some("response") {
            let response = Response { status: raw.status, error: None, usage: None };
            self.status(&response);
            raw.output.unwrap_or_default().iter().for_each(|item| self.output(item));
        } else if let Some(kind) = raw.kind.as_deref().and_then(|kind| kind.strip_prefix("response.")) {
            self.event(kind, raw.delta.as_deref(), raw.response);
        }
        self.piece
    }

    fn delta(&mut self, choice: u32, delta: &Delta<'_>) {
        self.part(choice, Kind::Content, delta.content.as_deref());
        self.part(choice, Kind::Content, delta.refusal.as_deref());
        // Some servers give both names at once, with one text.
        let reasoning = delta.reasoning.as_deref().filter(|text| !text.is_empty());
        self.part(choice, Kind::Reasoning, reasoning.or(delta.reasoning_content.as_deref()));
        let calls = delta.tool_calls.iter().flatten().map(|call| call.function.as_ref());
        for function in calls.chain(delta.function_call.as_ref().map(Some)) {
            let (name, arguments) = function.map_or((None, None), |f| (f.name.as_deref(), f.arguments.as_deref()));
            self.call(choice, name, arguments);
        }
    }

    /// An event of the responses interface, by what follows `response.` in its type.
    fn event(&mut self, kind: &str, delta: Option<&str>, response: Option<Response<'_>>) {
        match kind {
            "output_text.delta" | "refusal.delta" => self.part(0, Kind::Content, delta),
            "reasoning_text.delta" | "reasoning_summary_text.delta" | "reasoning.delta" => {
                self.part(0, Kind::Reasoning, delta);
            }
            "function_call_arguments.delta" | "custom_tool_call_input.delta" | "mcp_call_arguments.delta" => {
                self.call(0, None, delta);
            }
            "completed" | "incomplete" | "failed" => {
                let Some(mut response) = response else { return };
                self.piece.usage = response.usage.or(self.piece.usage);
                if response.error.is_some() || kind == "failed" {
                    self.piece.error = Some(message(response.error.take(), None));
                }
                if kind != "failed" {
                    self.finish(0);
                }
            }
            _ => {}
        }
    }

    fn status(&mut self, response: &Response<'_>) {
        match response.status.as_deref() {
            Some("completed" | "incomplete") => self.finish(0),
            Some("failed") => drop(self.piece.error.get_or_insert_with(|| NO_MESSAGE.to_owned())),
            _ => {}
        }
    }

    fn output(&mut self, item: &Output<'_>) {
        let parts = || item.content.iter().chain(&item.summary).flatten();
        let texts = parts().filter_map(|part| part.text.as_deref().or(part.refusal.as_deref()));
        match item.kind.as_deref() {
            Some("message") => texts.for_each(|text| self.part(0, Kind::Content, Some(text))),
            Some("reasoning") => texts.for_each(|text| self.part(0, Kind::Reasoning, Some(text))),
            Some("function_call") => self.call(0, item.name.as_deref(), item.arguments.as_deref()),
            _ => {}
        }
    }

    fn call(&mut self, choice: u32, name: Option<&str>, arguments: Option<&str>) {
        let before = self.piece.tool;
        self.part(choice, Kind::Tool, name);
        self.part(choice, Kind::Tool, arguments);
        self.piece.tool = self.piece.tool.max(before + 1);
    }

    fn finish(&mut self, choice: u32) {
        self.piece.finished += 1;
        (self.sink)(Part { choice, kind: Kind::Finish, text: "" });
    }

    fn part(&mut self, choice: u32, kind: Kind, text: Option<&str>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        match kind {
            Kind::Content => self.piece.content += text.len(),
            Kind::Reasoning => self.piece.reasoning += text.len(),
            Kind::Tool => self.piece.tool += text.len(),
            Kind::Finish => {}
        }
        (self.sink)(Part { choice, kind, text });
    }
}

const NO_MESSAGE: &str = "no message";

fn message(error: Option<Error<'_>>, beside: Option<&str>) -> String {
    let inside = match error {
        Some(Error::Text(text)) => Some(text.into_owned()),
        Some(Error::Object { message }) => message.map(|m| m.into_owned()),
        Some(Error::Other(value)) => Some(value.to_string()),
        None => None,
    };
    inside.or_else(|| beside.map(str::to_owned)).unwrap_or_else(|| NO_MESSAGE.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_event_is_not_content_and_null_fields_are_absent() {
        let role =
            read_piece(br#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#).unwrap();
        assert_eq!(role, Piece::default());
        let null = read_piece(br#"{"choices":[{"delta":null}],"usage":null}"#).unwrap();
        assert_eq!(null, Piece::default());
        assert_eq!(read_piece(br#"{"choices":null,"error":null}"#).unwrap(), Piece::default());
    }

    #[test]
    fn reasoning_tool_calls_and_text_are_told_apart() {
        let reasoning = read_piece(br#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#).unwrap();
        assert_eq!((reasoning.content, reasoning.reasoning, reasoning.tool), (0, 2, 0));
        let both = read_piece(br#"{"choices":[{"delta":{"reasoning":"hm","reasoning_content":"hm"}}]}"#).unwrap();
        assert_eq!(both.reasoning, 2);
        let tool = read_piece(br#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#).unwrap();
        assert_eq!((tool.content, tool.reasoning, tool.tool), (0, 0, 1));
        let tool = br#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}"#;
        assert_eq!(read_piece(tool).unwrap().tool, 3);
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
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens()), (Some(5), Some(7), Some(4)));
    }

    #[test]
    fn a_count_that_is_not_given_is_absent() {
        let usage = read_piece(br#"{"usage":{"prompt_tokens":5,"completion_tokens":null}}"#).unwrap().usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens()), (Some(5), None, None));
    }

    #[test]
    fn an_error_inside_a_stream_is_seen_in_every_shape() {
        for (data, message) in [
            (r#"{"error":{"message":"out of memory"}}"#, "out of memory"),
            (r#"{"error":"boom"}"#, "boom"),
            (r#"{"error":{}}"#, "no message"),
            (r#"{"error":true}"#, "true"),
            (r#"{"object":"error","message":"old form","code":400}"#, "old form"),
            (r#"{"type":"error","code":"x","message":"typed"}"#, "typed"),
            (r#"{"type":"response.failed","response":{"error":{"message":"late"}}}"#, "late"),
            (r#"{"object":"response","status":"failed","error":{"message":"whole"}}"#, "whole"),
        ] {
            assert_eq!(read_piece(data.as_bytes()).unwrap().error.as_deref(), Some(message), "{data}");
        }
    }

    #[test]
    fn texts_are_handed_out_by_choice() {
        let mut seen = Vec::new();
        let data =
            br#"{"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"text":"a","finish_reason":"stop"}]}"#;
        read_parts(data, &mut |part| seen.push((part.choice, part.kind, part.text.to_owned()))).unwrap();
        let of = |choice, kind, text: &str| (choice, kind, text.to_owned());
        assert_eq!(seen, [of(1, Kind::Content, "b"), of(0, Kind::Content, "a"), of(0, Kind::Finish, "")]);
    }

    #[test]
    fn a_whole_response_holds_its_items() {
        let data = br#"{"object":"response","status":"incomplete","error":null,"output":[
            {"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],"content":null},
            {"type":"message","content":[{"type":"output_text","text":"abc"},{"type":"refusal","refusal":"no"}]},
            {"type":"function_call","name":"f","arguments":"{}"}],"usage":{"input_tokens":1,"output_tokens":2}}"#;
        let piece = read_piece(data).unwrap();
        assert_eq!((piece.content, piece.reasoning, piece.tool, piece.finished), (5, 2, 3, 1));
        assert_eq!((piece.usage.unwrap().completion_tokens, piece.error), (Some(2), None));
    }

    #[test]
    fn half_characters_become_replacement_characters_and_nothing_else_does() {
        let text = |data: &[u8]| {
            let mut text = String::new();
            read_parts(data, &mut |part| text.push_str(part.text)).map(|_| text)
        };
        assert_eq!(text(br#"{"choices":[{"text":"a\ud83d"}]}"#).unwrap(), "a\u{fffd}");
        assert_eq!(text(br#"{"choices":[{"text":"\ude00\ud83d\ude00\\ud83d"}]}"#).unwrap(), "\u{fffd}\u{1f600}\\ud83d");
        assert_eq!(text(b"{\"choices\":[{\"text\":\"a\xe2\x82\"}]}").unwrap(), "a\u{fffd}");
        assert!(text(br#"{"choices":[{"text":"\ud83d"}"#).is_err());
    }
}
