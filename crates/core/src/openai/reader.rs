//! Reading a streamed answer from its bytes: every event told apart by what it holds.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::piece::{DONE, Kind, Piece, Usage, read_parts};
use crate::sse::{Event, Parser};

/// Choices that are told apart at most; of further ones nothing but the number of events is kept.
const MAX_CHOICES: usize = 1024;
/// The most bytes of text that are kept of an answer.
const MAX_KEPT: usize = 16 << 20;

/// Reads a stream chunk by chunk, whatever the chunks' sizes.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    parser: Parser,
    keeps_text: bool,
    kept: usize,
    reading: Reading,
    seen: BTreeSet<u32>,
    ended: BTreeSet<u32>,
}

/// What one event was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What it held; nothing for `[DONE]` and for an event without data.
    pub piece: Piece,
    /// Whether it was `[DONE]`.
    pub done: bool,
}

/// What has been read so far. Texts are by choice, and empty unless they are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Text for the user.
    pub content: BTreeMap<u32, String>,
    /// Reasoning before it.
    pub reasoning: BTreeMap<u32, String>,
    /// Tool calls: each name and its arguments, one after the other.
    pub tool_calls: BTreeMap<u32, String>,
    /// Events that hold text or tool calls.
    pub content_events: u64,
    /// Events that hold reasoning.
    pub reasoning_events: u64,
    /// The place among all events, from 0, of the first one that holds text or a tool call.
    pub first_content_event: Option<u64>,
    /// Whether every choice that was seen got its finish reason, or `[DONE]` came.
    pub finished: bool,
    /// Whether `[DONE]` came.
    pub done: bool,
    /// The server's last counts.
    pub usage: Option<Counts>,
    /// The message of the first error event.
    pub error: Option<String>,
}

/// Token counts in a reading.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Input tokens.
    pub input: Option<u32>,
    /// Output tokens.
    pub output: Option<u32>,
    /// Input tokens from the prefix cache.
    pub cached: Option<u32>,
}

impl From<Usage> for Counts {
    fn from(usage: Usage) -> Self {
        Self { input: usage.prompt_tokens, output: usage.completion_tokens, cached: usage.cached_tokens() }
    }
}

/// Why a stream can be read no further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The data of an event is not an answer.
    #[error("{0}")]
    Data(String),
    /// An event is too long.
    #[error("an event is longer than {} bytes", Parser::MAX_EVENT)]
    TooLong,
}

impl Reader {
    /// A reader at the start of a stream that counts and keeps no text.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, but keeps the texts, up to 16 MiB of them in all.
    #[must_use]
    pub fn keeping_text() -> Self {
        Self { keeps_text: true, ..Self::default() }
    }

    /// Reads a chunk and hands over what each event was that it completes.
    ///
    /// # Errors
    /// [`Broken`]; what follows in the chunk is not read.
    pub fn feed(&mut self, chunk: &[u8], sink: impl FnMut(&Step)) -> Result<(), Broken> {
        self.drive(sink, |parser, take| parser.feed(chunk, take))
    }

    /// Ends the stream: a last event without its blank line is read too.
    ///
    /// # Errors
    /// [`Broken`], as [`Reader::feed`].
    pub fn finish(&mut self, sink: impl FnMut(&Step)) -> Result<(), Broken> {
        self.drive(sink, |parser, take| parser.finish(take))
    }

    /// What has been read so far.
    #[must_use]
    pub const fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The same, with its texts, without the reader.
    #[must_use]
    pub fn into_reading(self) -> Reading {
        self.reading
    }

    /// Events and comments so far.
    #[must_use]
    pub const fn counts(&self) -> crate::sse::Counts {
        self.parser.counts()
    }

    fn drive(
        &mut self,
        mut sink: impl FnMut(&Step),
        read: impl FnOnce(&mut Parser, &mut dyn FnMut(Event<'_>)),
    ) -> Result<(), Broken> {
        let mut parser = std::mem::take(&mut self.parser);
        let before = parser.counts();
        let (mut result, mut place) = (Ok(()), before.events);
        read(&mut parser, &mut |event| {
            if result.is_ok() {
                result = self.event(place, event).map(|step| sink(&step));
            }
            place += 1;
        });
        if result.is_ok() && parser.counts().oversized > before.oversized {
            result = Err(Broken::TooLong);
        }
        self.parser = parser;
        result
    }

    fn event(&mut self, place: u64, event: Event<'_>) -> Result<Step, Broken> {
        let data = event.data.trim_ascii();
        if data == DONE {
            (self.reading.done, self.reading.finished) = (true, true);
            return Ok(Step { done: true, ..Step::default() });
        }
        let says_error = event.kind == b"error";
        let piece = match self.read(data) {
            // Some servers keep a connection open with events that hold nothing.
            _ if data.is_empty() => Piece::default(),
            Ok(piece) if says_error && piece.error.is_none() => Piece { error: Some(lossy(data)), ..piece },
            Ok(piece) => piece,
            Err(_) if says_error => Piece { error: Some(lossy(data)), ..Piece::default() },
            Err(why) => return Err(Broken::Data(why)),
        };
        self.note(place, &piece);
        Ok(Step { piece, done: false })
    }

    fn read(&mut self, data: &[u8]) -> Result<Piece, String> {
        let Self { keeps_text, kept, reading, seen, ended, .. } = self;
        let mut take = |part: super::Part<'_>| {
            if seen.len() < MAX_CHOICES {
                seen.insert(part.choice);
            }
            let texts = match part.kind {
                Kind::Content => &mut reading.content,
                Kind::Reasoning => &mut reading.reasoning,
                Kind::Tool => &mut reading.tool_calls,
                Kind::Finish => {
                    if seen.contains(&part.choice) {
                        ended.insert(part.choice);
                    }
                    return;
                }
            };
            if *keeps_text && seen.contains(&part.choice) && *kept + part.text.len() <= MAX_KEPT {
                *kept += part.text.len();
                texts.entry(part.choice).or_default().push_str(part.text);
            }
        };
        read_parts(data, &mut take).map_err(|error| error.to_string())
    }

    fn note(&mut self, place: u64, piece: &Piece) {
        let reading = &mut self.reading;
        if piece.is_usable() {
            reading.content_events += 1;
            reading.first_content_event.get_or_insert(place);
        }
        reading.reasoning_events += u64::from(piece.reasoning > 0);
        reading.usage = piece.usage.map(Counts::from).or(reading.usage);
        reading.finished = reading.done || (!self.ended.is_empty() && self.ended.len() == self.seen.len());
        if let Some(message) = &piece.error {
            reading.error.get_or_insert_with(|| message.clone());
        }
    }
}

fn lossy(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &str) -> Reading {
        let mut reader = Reader::keeping_text();
        reader.feed(stream.as_bytes(), |_| {}).unwrap();
        reader.finish(|_| {}).unwrap();
        reader.into_reading()
    }

    #[test]
    fn an_answer_is_finished_once_every_choice_that_was_seen_is() {
        let a = "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n";
        let b = "data: {\"choices\":[{\"index\":1,\"text\":\"b\"}]}\n\n";
        assert!(read(a).finished);
        assert!(!read(&format!("{b}{a}")).finished);
        assert!(read(&format!("{b}{a}data: [DONE]\n\n")).finished);
        assert!(!read(b).finished && !read("").finished);
    }

    #[test]
    fn texts_are_kept_only_when_asked_for() {
        let mut reader = Reader::new();
        reader.feed(b"data: {\"choices\":[{\"text\":\"a\"}]}\n\n", |_| {}).unwrap();
        let reading = reader.into_reading();
        assert_eq!((reading.content.len(), reading.content_events), (0, 1));
    }

    #[test]
    fn nothing_is_read_behind_data_that_is_no_answer() {
        let mut reader = Reader::new();
        let broken = reader.feed(b"data: <html>\n\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\n", |_| {});
        assert!(matches!(broken, Err(Broken::Data(_))));
        assert_eq!(reader.reading().content_events, 0);
    }
}
