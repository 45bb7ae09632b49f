//! Request bodies: what they may hold, and the work they mean.

use std::fmt;

use elasticserve_core::rng::mix;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, SeqAccess, Unexpected, Visitor};

use crate::driver::{Finish, Task};
use crate::reply::Refusal;
use crate::tokens::{digest, identity, tokenize, untokenize};

/// Output tokens of a text completion that sets no limit, as in OpenAI's interface.
const DEFAULT_COMPLETION: u32 = 16;
/// Output tokens of a chat that sets no limit: at least this many, and up to 255 more.
const SHORTEST_CHAT: u32 = 16;

/// Choices of one answer at most.
const MAX_CHOICES: u32 = 128;
/// Stop texts of one request at most, and bytes of each.
const MAX_STOPS: usize = 16;
const MAX_STOP_BYTES: usize = 1024;

/// The inference interfaces.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Completion,
    Chat,
    Response,
}

impl Api {
    /// The path it is served at.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Completion => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
            Self::Response => "/v1/responses",
        }
    }
}

/// What the server is, as far as requests must fit it.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) model: String,
    /// Prompt and answer together, in tokens.
    pub(crate) max_model_len: u32,
    pub(crate) block_tokens: u32,
}

/// A request for an answer.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The work of each choice, as far as its text does not end it.
    pub(crate) task: Task,
    pub(crate) choices: u32,
    /// Texts that end a choice.
    pub(crate) stops: Vec<String>,
    /// The prompt's text, where it is to stand in front of the answer.
    pub(crate) echo: Option<String>,
    pub(crate) stream: bool,
    /// A last event with the counts.
    pub(crate) include_usage: bool,
    /// Counts in every event.
    pub(crate) continuous_usage: bool,
}

/// Reads a request for an answer.
///
/// # Errors
/// A refusal that names the field.
pub(crate) fn read_ask(api: Api, body: &[u8], served: &Served) -> Result<Ask, Refusal> {
    let raw: RawAsk = parse(body)?;
    check_model(raw.model.as_deref(), served)?;
    let choices = choices(api, &raw)?;
    let stops = stops(raw.stop.clone())?;
    let echoes = api == Api::Completion && raw.echo.unwrap_or(false);
    let (field, tokens, echo) = match api {
        Api::Completion => {
            let prompt = text_prompt(raw.prompt.clone())?;
            if echoes && !prompt.is_text {
                return Err(Refusal::field("echo", "echo needs a prompt of text: token ids have none"));
            }
            let echo = echoes.then(|| untokenize(&prompt.tokens));
            ("prompt", prompt.tokens, echo)
        }
        Api::Chat => ("messages", chat_prompt("messages", raw.messages.as_deref())?, None),
        Api::Response => ("input", response_prompt(&raw)?, None),
    };
    let input = input_len(field, &tokens, served)?;
    let (output, finish) = output_len(api, &raw, input, &tokens, served)?;
    let options = raw.stream_options.unwrap_or_default();
    let include_usage = options.include_usage.unwrap_or(false);
    Ok(Ask {
        task: Task { prompt: identity(&tokens, served.block_tokens), input, output, finish },
        choices,
        stops,
        echo,
        stream: raw.stream.unwrap_or(false),
        include_usage,
        continuous_usage: include_usage && options.continuous_usage_stats.unwrap_or(false),
    })
}

/// Reads a request for the tokens of a prompt.
///
/// # Errors
/// A refusal that names the field.
pub(crate) fn read_tokenize(body: &[u8], served: &Served) -> Result<Vec<u32>, Refusal> {
    let raw: RawTokenize = parse(body)?;
    check_model(raw.model.as_deref(), served)?;
    match (raw.prompt, raw.messages) {
        (Some(_), Some(_)) => Err(Refusal::field("prompt", "prompt and messages cannot both be given")),
        (None, messages) => chat_prompt("messages", messages.as_deref()),
        (Some(prompt), None) => Ok(tokenize(&prompt)),
    }
}

/// JSON into a struct; what is wrong is named by its path.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // A derived struct would take an array for its fields in order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Refusal::body("the body must be a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let cause = error.inner();
        if cause.is_data() && path != "." {
            Refusal::field(path.clone(), format!("{path}: {cause}"))
        } else {
            Refusal::body(format!("the body is not a JSON request: {cause}"))
        }
    })?;
    json.end().map_err(|error| Refusal::body(format!("the body goes on after its JSON: {error}")))?;
    Ok(value)
}

fn check_model(asked: Option<&str>, served: &Served) -> Result<(), Refusal> {
    match asked {
        Some(asked) if asked != served.model => Err(Refusal::model(asked, &served.model)),
        _ => Ok(()),
    }
}

fn choices(api: Api, raw: &RawAsk) -> Result<u32, Refusal> {
    if raw.best_of.is_some_and(|best_of| best_of != 1) {
        return Err(Refusal::field("best_of", "best_of must be 1: there is no best among made-up texts"));
    }
    let most = if api == Api::Response { 1 } else { MAX_CHOICES };
    let choices = raw.n.unwrap_or(1);
    if !(1..=most).contains(&choices) {
        return Err(Refusal::field("n", format!("n must be from 1 to {most}, not {choices}")));
    }
    Ok(choices)
}

fn stops(raw: Option<RawStop>) -> Result<Vec<String>, Refusal> {
    let stops = match raw {
        None => Vec::new(),
        Some(RawStop::One(stop)) => vec![stop],
        Some(RawStop::Several(stops)) => stops,
    };
    if stops.len() > MAX_STOPS {
        return Err(Refusal::field(
            "stop",
            format!("stop holds {} texts; at most {MAX_STOPS} are served", stops.len()),
        ));
    }
    if stops.iter().any(|stop| stop.is_empty() || stop.len() > MAX_STOP_BYTES) {
        return Err(Refusal::field("stop", format!("a stop text must have from 1 to {MAX_STOP_BYTES} bytes")));
    }
    Ok(stops)
}

/// The instructions as a system message, then the input: text from the user, or a list of messages.
fn response_prompt(raw: &RawAsk) -> Result<Vec<u32>, Refusal> {
    let say = |role: &str, text: String| RawMessage { role: role.to_owned(), content: Some(RawContent::Text(text)) };
    let mut messages: Vec<RawMessage> = raw.instructions.clone().map(|text| say("system", text)).into_iter().collect();
    match raw.input.clone() {
        None => return Err(Refusal::field("input", "input is missing")),
        Some(RawInput::Text(text)) => messages.push(say("user", text)),
        Some(RawInput::Messages(input)) if input.is_empty() => {
            return Err(Refusal::field("input", "input must hold at least one message"));
        }
        Some(RawInput::Messages(input)) => messages.extend(input),
    }
    chat_prompt("input", Some(&messages))
}

fn text_prompt(prompt: Option<RawPrompt>) -> Result<RawPrompt, Refusal> {
    let Some(prompt) = prompt else { return Err(Refusal::field("prompt", "prompt is missing")) };
    if prompt.count > 1 {
        return Err(Refusal::field("prompt", format!("prompt holds {} prompts; one is served", prompt.count)));
    }
    Ok(prompt)
}

fn chat_prompt(field: &str, messages: Option<&[RawMessage]>) -> Result<Vec<u32>, Refusal> {
    let messages = messages.unwrap_or_default();
    if messages.is_empty() {
        return Err(Refusal::field(field, format!("{field} must hold at least one message")));
    }
    let mut text = String::new();
    for (index, message) in messages.iter().enumerate() {
        text.push_str(&message.role);
        text.push('\n');
        match &message.content {
            None => {}
            Some(RawContent::Text(content)) => text.push_str(content),
            Some(RawContent::Parts(parts)) => {
                for part in parts {
                    let Some(content) = part.text.as_deref().filter(|_| part.is_text()) else {
                        let message = format!("only parts of type text are served, not '{}'", part.kind);
                        return Err(Refusal::field(format!("{field}[{index}].content"), message));
                    };
                    text.push_str(content);
                }
            }
        }
        text.push('\n');
    }
    text.push_str("assistant\n");
    Ok(tokenize(&text))
}

/// The prompt's length; at least one token of the context must be left for the answer.
fn input_len(field: &'static str, tokens: &[u32], served: &Served) -> Result<u32, Refusal> {
    if tokens.is_empty() {
        return Err(Refusal::field(field, format!("{field} is empty")));
    }
    let fits = u32::try_from(tokens.len()).ok().filter(|&input| input < served.max_model_len);
    fits.ok_or_else(|| {
        let message = format!(
            "the prompt has {} tokens, but the context holds {}, the answer included",
            tokens.len(),
            served.max_model_len
        );
        Refusal::context(field, message)
    })
}

/// How long the answer is and how it ends.
fn output_len(api: Api, raw: &RawAsk, input: u32, tokens: &[u32], served: &Served) -> Result<(u32, Finish), Refusal> {
    let room = served.max_model_len - input;
    let least = raw.min_tokens.unwrap_or(0);
    let limit = match (api, raw.max_completion_tokens, raw.max_output_tokens) {
        (Api::Chat, Some(max), _) => Some(("max_completion_tokens", max)),
        (Api::Response, _, max) => max.map(|max| ("max_output_tokens", max)),
        _ => raw.max_tokens.map(|max| ("max_tokens", max)),
    };
    if let Some((field, max)) = limit {
        if max == 0 {
            return Err(Refusal::field(field, format!("{field} must be at least 1")));
        }
        if max > room {
            let whole = served.max_model_len;
            let message =
                format!("the context holds {whole} tokens, but the prompt has {input} and {field} asks for {max} more");
            return Err(Refusal::context(field, message));
        }
    }
    let most = limit.map_or(room, |(_, max)| max);
    if least > most {
        let message = format!("min_tokens is {least}, but at most {most} tokens can be generated");
        return Err(Refusal::field("min_tokens", message));
    }
    Ok(match (api, limit) {
        (_, Some((_, max))) => (max, Finish::Length),
        (Api::Completion, None) => (DEFAULT_COMPLETION.max(least).min(room), Finish::Length),
        (Api::Chat | Api::Response, None) if raw.ignore_eos.unwrap_or(false) => (room, Finish::Length),
        (Api::Chat | Api::Response, None) => {
            let own = SHORTEST_CHAT + (mix(digest(0, tokens), 0) % 256) as u32;
            let own = own.max(least);
            if own <= room { (own, Finish::Stop) } else { (room, Finish::Length) }
        }
    })
}

/// Fields that change nothing are not listed: they are read past.
#[derive(Deserialize)]
struct RawAsk {
    model: Option<String>,
    prompt: Option<RawPrompt>,
    messages: Option<Vec<RawMessage>>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    max_output_tokens: Option<u32>,
    min_tokens: Option<u32>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<RawStreamOptions>,
    n: Option<u32>,
    best_of: Option<u32>,
    stop: Option<RawStop>,
    echo: Option<bool>,
    input: Option<RawInput>,
    instructions: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "stop must be text or a list of texts")]
enum RawStop {
    One(String),
    Several(Vec<String>),
}

#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "input must be text or a list of messages with a role and content")]
enum RawInput {
    Text(String),
    Messages(Vec<RawMessage>),
}

#[derive(Deserialize)]
struct RawTokenize {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<RawMessage>>,
}

#[derive(Default, Deserialize)]
struct RawStreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

#[derive(Clone, Deserialize)]
struct RawMessage {
    role: String,
    content: Option<RawContent>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "content must be text or a list of parts with a type")]
enum RawContent {
    Text(String),
    Parts(Vec<RawPart>),
}

#[derive(Clone, Deserialize)]
struct RawPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl RawPart {
    fn is_text(&self) -> bool {
        matches!(self.kind.as_str(), "text" | "input_text" | "output_text")
    }
}

/// A prompt in any of its four shapes: text, token ids, or a list of either. Of several prompts only
/// the first is kept.
#[derive(Clone, Default)]
struct RawPrompt {
    count: usize,
    tokens: Vec<u32>,
    is_text: bool,
}

impl<'de> Deserialize<'de> for RawPrompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PromptVisitor;
        impl<'de> Visitor<'de> for PromptVisitor {
            type Value = RawPrompt;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, token ids, or a list of one of them")
            }
            fn visit_str<E>(self, text: &str) -> Result<RawPrompt, E> {
                Ok(RawPrompt { count: 1, tokens: tokenize(text), is_text: true })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawPrompt, A::Error> {
                let mut prompt = RawPrompt::default();
                let mut ids = false;
                while let Some(item) = seq.next_element::<Item>()? {
                    match item {
                        Item::Id(id) if prompt.count == 0 || ids => {
                            ids = true;
                            prompt.count = 1;
                            prompt.tokens.push(id);
                        }
                        Item::Prompt(tokens, is_text) if !ids => {
                            prompt.count += 1;
                            if prompt.count == 1 {
                                (prompt.tokens, prompt.is_text) = (tokens, is_text);
                            }
                        }
                        _ => return Err(A::Error::custom("token ids and prompts are mixed in one list")),
                    }
                }
                Ok(prompt)
            }
        }
        deserializer.deserialize_any(PromptVisitor)
    }
}

enum Item {
    Id(u32),
    /// Tokens, and whether they are of text.
    Prompt(Vec<u32>, bool),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token id, text, or a list of token ids")
            }
            fn visit_u64<E: Error>(self, id: u64) -> Result<Item, E> {
                let id = u32::try_from(id).map_err(|_| E::invalid_value(Unexpected::Unsigned(id), &self))?;
                Ok(Item::Id(id))
            }
            fn visit_str<E>(self, text: &str) -> Result<Item, E> {
                Ok(Item::Prompt(tokenize(text), true))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
                let mut tokens = Vec::new();
                while let Some(id) = seq.next_element()? {
                    tokens.push(id);
                }
                Ok(Item::Prompt(tokens, false))
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

#[cfg(test)]
mod tests;
