//! Reading an answer: its head, its events or its body, with the times at which they came.

use std::collections::BTreeMap;

use elasticserve_core::ledger::{CountSource, Row};
use elasticserve_core::openai::{Broken, Kind, Piece, Reader, Step, read_parts};
use elasticserve_core::sse::Parser;
use elasticserve_core::time::{Span, Tick};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};
use serde_json::Value;

use crate::judge::Facts;

/// The most bytes of an answer that is not streamed.
const MAX_BODY: usize = Parser::MAX_EVENT;
/// The most bytes read of an answer that is not a success.
const MAX_ERROR_BODY: usize = 64 << 10;
/// The most content events of one answer, far above what any model gives.
const MAX_CONTENT_EVENTS: usize = 1 << 20;
/// The most characters of a text of the server's that go into the ledger.
const MAX_TEXT: usize = 300;

/// The texts of a successful answer for the user, by choice.
pub(crate) type Texts = BTreeMap<u32, String>;

/// An answer as far as it has come. The times go into the row.
pub(crate) struct Answer {
    form: Form,
    facts: Facts,
    keeps_text: bool,
    whole: Whole,
    content_events: u32,
    /// Whether every byte of a success is content.
    plain: bool,
}

enum Form {
    /// No head yet.
    Unknown,
    Events(Box<Reader>),
    Whole(Vec<u8>),
    Error(Vec<u8>),
    /// Bytes that stand for nothing else.
    Plain,
}

/// What was in an answer that was not streamed.
#[derive(Default)]
struct Whole {
    piece: Piece,
    texts: Texts,
}

/// Why an answer is read no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It is not what it should be.
    Garbage(String),
    /// All that is wanted has been read.
    Enough,
}

impl Answer {
    /// An answer of which nothing has come.
    pub(crate) fn new(forced: Option<u32>, keeps_text: bool) -> Self {
        let facts = Facts { forced, ..Facts::default() };
        Self { form: Form::Unknown, facts, keeps_text, whole: Whole::default(), content_events: 0, plain: false }
    }

    /// An answer whose every byte is content.
    pub(crate) fn plain() -> Self {
        Self { plain: true, ..Self::new(None, false) }
    }

    /// Takes the head.
    pub(crate) fn head(&mut self, at: Tick, status: u16, headers: &HeaderMap, streaming: bool, row: &mut Row) {
        row.head = Some(at);
        row.status = Some(status);
        self.facts.status = Some(status);
        read_headers(headers, row);
        let kind = text(headers, &CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
        self.form = if !(200..300).contains(&status) {
            Form::Error(Vec::new())
        } else if self.plain {
            Form::Plain
        } else if kind.contains("event-stream") || (streaming && !kind.contains("json")) {
            Form::Events(Box::new(if self.keeps_text { Reader::keeping_text() } else { Reader::new() }))
        } else {
            Form::Whole(Vec::new())
        };
    }

    /// Takes bytes of the body.
    pub(crate) fn bytes(&mut self, at: Tick, chunk: &[u8], row: &mut Row) -> Result<(), Halt> {
        match &mut self.form {
            Form::Unknown => Ok(()),
            Form::Plain => {
                note_bytes(at, chunk, row);
                Ok(())
            }
            Form::Error(body) => append(body, chunk, MAX_ERROR_BODY).map_err(|()| Halt::Enough),
            Form::Whole(body) => append(body, chunk, MAX_BODY)
                .map_err(|()| Halt::Garbage(format!("the answer is longer than {MAX_BODY} bytes"))),
            Form::Events(_) => self.read(at, row, |reader, sink| reader.feed(chunk, sink)),
        }
    }

    /// Takes the end of the body.
    pub(crate) fn end(&mut self, at: Tick, row: &mut Row) -> Result<(), Halt> {
        match &mut self.form {
            Form::Unknown | Form::Error(_) => Ok(()),
            Form::Plain => {
                self.facts.finished = true;
                Ok(())
            }
            Form::Events(_) => self.read(at, row, |reader, sink| reader.finish(sink)),
            Form::Whole(body) => {
                let body = std::mem::take(body);
                let Whole { piece, texts } = self.take_whole(&body).map_err(Halt::Garbage)?;
                if piece.is_usable() {
                    // Content is usable once the body is whole. How it was spread within is not known,
                    // so there is no last content to divide by.
                    row.first_content = Some(at);
                }
                self.whole = Whole { piece, texts };
                Ok(())
            }
        }
    }

    /// Writes what is known at the end into the row, and gives what a judgement needs and the texts, if
    /// they were to be kept.
    pub(crate) fn close(self, row: &mut Row) -> (Facts, Texts) {
        let Self { form, mut facts, whole, content_events, .. } = self;
        let (mut texts, mut usage) = (Texts::new(), None);
        match form {
            Form::Whole(_) => {
                let Whole { piece, texts: kept } = whole;
                (facts.finished, facts.stream_error) = (piece.finished > 0, piece.error);
                (texts, usage) = (kept, piece.usage.map(Into::into));
            }
            Form::Events(reader) => {
                row.keep_alives = Some(clamp(reader.counts().comments)).filter(|n| *n > 0);
                let reading = reader.into_reading();
                (facts.finished, facts.stream_error, usage) = (reading.finished, reading.error, reading.usage);
                texts = reading.content;
            }
            Form::Error(body) => {
                let told = read_error(&body);
                if row.reason.is_none() && matches!(facts.status, Some(429 | 503)) {
                    row.reason = told.code;
                }
                row.error = told.message;
            }
            Form::Unknown | Form::Plain => {}
        }
        facts.stream_error = facts.stream_error.as_deref().map(shortened);
        if let Some(usage) = usage {
            (row.input_tokens, row.cached_tokens) = (usage.input, usage.cached);
            facts.usage_tokens = usage.output;
        }
        let counted = Some(content_events).filter(|n| *n > 0);
        row.output_tokens = facts.usage_tokens.or(counted);
        let source = if facts.usage_tokens.is_some() { CountSource::Usage } else { CountSource::Events };
        row.output_tokens_from = row.output_tokens.map(|_| source);
        facts.has_content = row.first_content.is_some();
        (facts, texts)
    }

    fn take_whole(&self, body: &[u8]) -> Result<Whole, String> {
        let mut texts = Texts::new();
        let piece = read_parts(body, &mut |part| {
            if self.keeps_text && part.kind == Kind::Content {
                texts.entry(part.choice).or_default().push_str(part.text);
            }
        });
        Ok(Whole { piece: piece.map_err(|error| error.to_string())?, texts })
    }

    fn read(
        &mut self,
        at: Tick,
        row: &mut Row,
        read: impl FnOnce(&mut Reader, &mut dyn FnMut(&Step)) -> Result<(), Broken>,
    ) -> Result<(), Halt> {
        let Form::Events(reader) = &mut self.form else { return Ok(()) };
        let content_events = &mut self.content_events;
        let read = read(reader, &mut |step| note(at, &step.piece, row, content_events));
        read.map_err(|broken| Halt::Garbage(broken.to_string()))?;
        if row.gaps.len() >= MAX_CONTENT_EVENTS {
            return Err(Halt::Garbage(format!("more than {MAX_CONTENT_EVENTS} content events")));
        }
        Ok(())
    }
}

/// Notes the times of what an event held.
fn note(at: Tick, piece: &Piece, row: &mut Row, content_events: &mut u32) {
    row.first_event.get_or_insert(at);
    if piece.reasoning > 0 {
        row.first_reasoning.get_or_insert(at);
    }
    if piece.tool > 0 {
        row.first_tool_call.get_or_insert(at);
    }
    if piece.is_usable() {
        row.first_content.get_or_insert(at);
        // A single chunk holds at most so many events as it has bytes, so this stays near its bound.
        if let Some(before) = row.last_content.replace(at) {
            row.gaps.push(at.since(before));
        }
        *content_events += 1;
    }
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The times of content in an answer whose every byte is content.
fn note_bytes(at: Tick, chunk: &[u8], row: &mut Row) {
    if !chunk.is_empty() {
        row.first_content.get_or_insert(at);
        row.last_content = Some(at);
    }
}

/// Appends as much as fits; an error if that is not all.
fn append(body: &mut Vec<u8>, chunk: &[u8], limit: usize) -> Result<(), ()> {
    let room = limit - body.len();
    body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    if chunk.len() > room { Err(()) } else { Ok(()) }
}

fn read_headers(headers: &HeaderMap, row: &mut Row) {
    let named = |name: &'static str| text(headers, &HeaderName::from_static(name));
    row.reason = named("x-elasticserve-reason").map(shortened);
    row.backend = named("x-elasticserve-backend").map(shortened);
    row.request_id = named("x-request-id").map(shortened);
    row.queue = named("x-elasticserve-queue-ms").and_then(millis);
    row.should_retry = named("x-should-retry").and_then(|told| told.parse().ok());
    row.retry_after = named("retry-after-ms").and_then(millis).or_else(|| {
        // The other form of this header is a date, which would need the server's wall clock.
        named("retry-after").and_then(seconds)
    });
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn millis(text: &str) -> Option<Span> {
    number(text).map(Span::from_millis_f64)
}

fn seconds(text: &str) -> Option<Span> {
    number(text).map(Span::from_secs_f64)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0)
}

#[derive(Default)]
struct Told {
    code: Option<String>,
    message: Option<String>,
}

/// The code (else the type) and the message of an error body, in any of its usual shapes.
fn read_error(body: &[u8]) -> Told {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        let text = String::from_utf8_lossy(body);
        return Told { code: None, message: Some(shortened(text.trim())).filter(|t| !t.is_empty()) };
    };
    let error = value.get("error").unwrap_or(&value);
    let field = |name: &str| match error.get(name) {
        Some(Value::String(text)) => Some(shortened(text)),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let message = field("message").or_else(|| error.as_str().map(shortened));
    Told { code: field("code").or_else(|| field("type")), message }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn started(status: u16, pairs: &[(&'static str, &'static str)]) -> (Answer, Row) {
        let mut row = Row::new(0, "t", at(0), 4, 2);
        let mut answer = Answer::new(None, false);
        answer.head(at(1), status, &headers(pairs), true, &mut row);
        (answer, row)
    }

    const SSE: (&str, &str) = ("content-type", "text/event-stream");

    #[test]
    fn role_reasoning_and_content_are_told_apart_and_gaps_lie_between_contents() {
        let (mut answer, mut row) = started(200, &[SSE]);
        let event = |delta: &str| format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
        for (ms, delta) in [
            (10, r#"{"role":"assistant","content":""}"#),
            (20, r#"{"reasoning":"hm"}"#),
            (30, r#"{"content":"a"}"#),
            (35, r#"{"content":""}"#),
            (50, r#"{"content":"b"}"#),
        ] {
            answer.bytes(at(ms), event(delta).as_bytes(), &mut row).unwrap();
        }
        answer.bytes(at(60), b": ping\n\ndata: [DONE]\n\n", &mut row).unwrap();
        answer.end(at(61), &mut row).unwrap();
        let (facts, _) = answer.close(&mut row);
        assert_eq!(row.first_event, Some(at(10)));
        assert_eq!(
            (row.first_reasoning, row.first_content, row.last_content),
            (Some(at(20)), Some(at(30)), Some(at(50)))
        );
        assert_eq!(row.gaps, [Span::from_millis(20)]);
        assert_eq!((row.output_tokens, row.output_tokens_from), (Some(2), Some(CountSource::Events)));
        assert!(facts.finished && facts.has_content);
    }

    #[test]
    fn usage_counts_before_events_do() {
        let (mut answer, mut row) = started(200, &[SSE]);
        let stream = b"data: {\"choices\":[{\"text\":\"abc\",\"finish_reason\":\"length\"}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":3,\
            \"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n";
        answer.bytes(at(5), stream, &mut row).unwrap();
        let (facts, _) = answer.close(&mut row);
        assert_eq!((row.output_tokens, row.output_tokens_from), (Some(3), Some(CountSource::Usage)));
        assert_eq!((row.input_tokens, row.cached_tokens), (Some(4), Some(0)));
        assert_eq!(facts.usage_tokens, Some(3));
    }

    #[test]
    fn an_answer_that_is_not_streamed_has_a_first_content_and_no_token_gaps() {
        let (mut answer, mut row) = started(200, &[("content-type", "application/json; charset=utf-8")]);
        answer.bytes(at(5), br#"{"choices":[{"text":"abc","fini"#, &mut row).unwrap();
        answer.bytes(at(6), br#"sh_reason":"stop"}],"usage":{"completion_tokens":3}}"#, &mut row).unwrap();
        answer.end(at(7), &mut row).unwrap();
        let (facts, _) = answer.close(&mut row);
        assert!(facts.finished && facts.has_content);
        assert_eq!((row.first_content, row.last_content, row.first_event, row.tpot()), (Some(at(7)), None, None, None));
    }

    #[test]
    fn each_byte_of_a_plain_answer_is_content_and_its_end_makes_it_whole() {
        let mut row = Row::new(0, "t", at(0), 1, 1);
        let mut answer = Answer::plain();
        answer.head(at(1), 200, &HeaderMap::new(), true, &mut row);
        answer.bytes(at(40), b"a", &mut row).unwrap();
        answer.bytes(at(50), b"b", &mut row).unwrap();
        assert_eq!((row.first_content, row.last_content), (Some(at(40)), Some(at(50))));
        answer.end(at(50), &mut row).unwrap();
        let (facts, _) = answer.close(&mut row);
        assert!(facts.finished && facts.has_content);
    }

    #[test]
    fn what_is_not_json_halts_the_reading() {
        let (mut answer, mut row) = started(200, &[SSE]);
        assert!(matches!(answer.bytes(at(5), b"data: <html>\n\n", &mut row), Err(Halt::Garbage(_))));
    }

    #[test]
    fn the_reason_is_the_header_else_the_code_else_the_type() {
        let body = br#"{"error":{"message":"try later","type":"overloaded","code":"queue_full"}}"#;
        for (pairs, body, reason) in [
            (&[("x-elasticserve-reason", "queue_expired")][..], &body[..], Some("queue_expired")),
            (&[], &body[..], Some("queue_full")),
            (&[], br#"{"error":{"type":"overloaded","code":null}}"#, Some("overloaded")),
            (&[], br#"{"message":"x","code":429}"#, Some("429")),
            (&[], b"busy", None),
        ] {
            let (mut answer, mut row) = started(429, pairs);
            answer.bytes(at(5), body, &mut row).unwrap();
            answer.close(&mut row);
            assert_eq!(row.reason.as_deref(), reason);
        }
    }

    #[test]
    fn headers_that_are_absent_or_nonsense_leave_the_field_absent() {
        let (_, row) =
            started(200, &[("x-elasticserve-queue-ms", "12.5"), ("retry-after-ms", "250"), ("retry-after", "1")]);
        assert_eq!((row.queue, row.retry_after), (Some(Span::from_nanos(12_500_000)), Some(Span::from_millis(250))));
        let (_, row) = started(429, &[("x-elasticserve-queue-ms", "-1"), ("retry-after", "2")]);
        assert_eq!((row.queue, row.retry_after), (None, Some(Span::from_secs(2))));
        let (_, row) =
            started(429, &[("x-elasticserve-queue-ms", "NaN"), ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")]);
        assert_eq!((row.queue, row.retry_after, row.backend), (None, None, None));
    }

    #[test]
    fn an_endless_error_body_is_read_up_to_its_bound() {
        let (mut answer, mut row) = started(500, &[]);
        let chunk = vec![b'x'; 40 << 10];
        assert_eq!(answer.bytes(at(5), &chunk, &mut row), Ok(()));
        assert_eq!(answer.bytes(at(6), &chunk, &mut row), Err(Halt::Enough));
        answer.close(&mut row);
        assert!(row.error.unwrap().chars().count() <= MAX_TEXT + 1);
    }
}
