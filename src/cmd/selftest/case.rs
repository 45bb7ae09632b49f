//! A case of the corpus, and the ways to split its stream.

use elasticserve_core::rng::{Random, Stream};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::BadConfig;
use super::parser::read_chunks;

/// Streams up to this length are split in every place.
const SPLIT_EVERYWHERE: usize = 4096;
/// Random splits of each stream.
const RANDOM_SPLITS: u64 = 16;

/// A stream and its right reading.
pub(super) struct Case {
    /// The file and the case, such as `chat/role first`.
    pub(super) name: String,
    /// What it shows.
    pub(super) why: String,
    pub(super) bytes: Vec<u8>,
    events: Value,
    comments: u64,
    answer: Option<Value>,
}

/// A case as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    why: String,
    bytes: Bytes,
    events: Vec<RawEvent>,
    #[serde(default)]
    comments: u64,
    #[serde(default)]
    answer: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEvent {
    #[serde(default)]
    event: String,
    data: Bytes,
}

/// Text, or a list of texts, repeated texts, and bytes in hexadecimal.
#[derive(Deserialize)]
#[serde(untagged)]
enum Bytes {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Part {
    Text(String),
    Repeat { repeat: String, times: usize },
    Hex { hex: String },
}

impl Bytes {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Parts(parts) => parts.iter().map(Part::bytes).collect::<Result<Vec<_>, _>>().map(|p| p.concat()),
        }
    }

    fn text(&self) -> Result<String, String> {
        String::from_utf8(self.bytes()?).map_err(|_| "expected data must be text".to_owned())
    }
}

impl Part {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Repeat { repeat, times } => Ok(repeat.repeat(*times).into_bytes()),
            Self::Hex { hex } => {
                let digits = |at: usize| hex.get(at..at + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
                let bytes = (0..hex.len()).step_by(2).map(digits);
                bytes.collect::<Option<_>>().ok_or_else(|| format!("'{hex}' is not hexadecimal"))
            }
        }
    }
}

impl Case {
    /// The cases of a file.
    pub(super) fn read(file: &str, text: &str) -> Result<Vec<Self>, BadConfig> {
        let raw: Vec<Raw> = serde_json::from_str(text).map_err(|e| BadConfig(format!("corpus {file}: {e}")))?;
        raw.into_iter().map(|raw| Self::new(file, raw)).collect()
    }

    fn new(file: &str, raw: Raw) -> Result<Self, BadConfig> {
        let name = format!("{file}/{}", raw.name);
        let bad = |problem: String| BadConfig(format!("corpus {name}: {problem}"));
        let event = |e: &RawEvent| Ok(json!({ "event": kind(&e.event), "data": e.data.text()? }));
        let events = raw.events.iter().map(event).collect::<Result<Value, String>>().map_err(bad)?;
        let bytes = raw.bytes.bytes().map_err(bad)?;
        let answer = raw.answer.map(whole_answer).transpose().map_err(bad)?;
        Ok(Self { name, why: raw.why, bytes, events, comments: raw.comments, answer })
    }

    /// What is wrong with a reading, if anything. Only what it says is compared, but it must say the events.
    pub(super) fn problem(&self, reading: &Value) -> Option<String> {
        let Some(events) = reading["events"].as_array() else {
            return Some("the reading has no list `events`".to_owned());
        };
        let plain = |e: &Value| json!({ "event": kind(e["event"].as_str().unwrap_or_default()), "data": e["data"] });
        let events: Value = events.iter().map(plain).collect();
        if events != self.events {
            return Some(differ("events", &self.events, &events));
        }
        if let Some(comments) = reading.get("comments").filter(|c| **c != self.comments) {
            return Some(differ("comments", &self.comments.into(), comments));
        }
        let (expected, answer) = (self.answer.as_ref()?, reading.get("answer")?.as_object()?);
        let wrong = answer.iter().find(|(field, value)| expected.get(*field) != Some(*value));
        wrong.map(|(field, value)| differ(&format!("answer.{field}"), &expected[field], value))
    }

    /// Holds our own reader to it, however the stream is split.
    pub(super) fn check_own_reader(&self) -> Option<String> {
        let check = |chunks: &[&[u8]]| {
            let problem = self.problem(&read_chunks(chunks))?;
            let sizes: Vec<usize> = chunks.iter().take(8).map(|c| c.len()).collect();
            Some(format!("{problem}\nin {} pieces, of {sizes:?} and so on", chunks.len()))
        };
        let bytes = &self.bytes[..];
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        let everywhere = if bytes.len() <= SPLIT_EVERYWHERE { 0..bytes.len() } else { 0..0 };
        let twice = everywhere.map(|at| vec![&bytes[..at], &bytes[at..]]);
        let random = (0..RANDOM_SPLITS).map(|seed| split(bytes, seed));
        let all = [vec![bytes], single].into_iter().chain(twice).chain(random);
        all.into_iter().find_map(|chunks| check(&chunks))
    }
}

/// Random pieces, short ones more often than long ones.
fn split(mut rest: &[u8], seed: u64) -> Vec<&[u8]> {
    let mut random = Random::new(seed, Stream::Test);
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let most = 1 << random.between(0, 12);
        let at = random.between(1, most).min(rest.len() as u64) as usize;
        let (chunk, after) = rest.split_at(at);
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

/// The kind `message` is what an event without one has.
fn kind(kind: &str) -> &str {
    if kind == "message" { "" } else { kind }
}

/// An expected answer with what it leaves out: nothing was read.
fn whole_answer(said: Map<String, Value>) -> Result<Value, String> {
    let mut answer = json!({
        "content": {}, "reasoning": {}, "tool_calls": {}, "content_events": 0, "reasoning_events": 0,
        "first_content_event": null, "finished": false, "done": false, "usage": null, "error": null,
        "unreadable": false,
    });
    for (field, value) in said {
        let place = answer.get_mut(&field).ok_or_else(|| format!("an answer has no field '{field}'"))?;
        *place = match value {
            Value::Object(texts) if matches!(field.as_str(), "content" | "reasoning" | "tool_calls") => {
                texts.into_iter().map(written_out).collect::<Result<Map<_, _>, String>>()?.into()
            }
            other => other,
        };
    }
    // Of a stream that cannot be read to its end, how far a reader gets is its own affair.
    Ok(if answer["unreadable"] == true { json!({ "unreadable": true }) } else { answer })
}

/// A text by choice, put together from its parts.
fn written_out((choice, text): (String, Value)) -> Result<(String, Value), String> {
    let text: Bytes = serde_json::from_value(text).map_err(|error| error.to_string())?;
    Ok((choice, text.text()?.into()))
}

fn differ(what: &str, expected: &Value, read: &Value) -> String {
    format!("{what} should be {}\nbut was read as {}", shortened(expected), shortened(read))
}

fn shortened(value: &Value) -> String {
    const MOST: usize = 300;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}
