//! Request bodies: what they may hold, and the work they mean.

use std::fmt;

use elasticserve_core::rng::mix;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, SeqAccess, Unexpected, Visitor};

use crate::driver::{Finish, Task};
use crate::reply::Refusal;
use crate::tokens::{digest, identity, tokenize};

/// Output tokens of a text completion that sets no limit, as in OpenAI's interface.
const DEFAULT_COMPLETION: u32 = 16;
/// Output tokens of a chat that sets no limit: at least this many, and up to 255 more.
const SHORTEST_CHAT: u32 = 16;

/// The two inference interfaces.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Completion,
    Chat,
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
    pub(crate) task: Task,
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
    for (field, value) in [("n", raw.n), ("best_of", raw.best_of)] {
        if value.is_some_and(|n| n != 1) {
            return Err(Refusal::field(field, format!("{field} must be 1: one answer a request is served")));
        }
    }
    let (field, tokens) = match api {
        Api::Completion => ("prompt", text_prompt(raw.prompt.clone())?),
        Api::Chat => ("messages", chat_prompt(raw.messages.as_deref())?),
    };
    let input = input_len(field, &tokens, served)?;
    let (output, finish) = output_len(api, &raw, input, &tokens, served)?;
    let options = raw.stream_options.unwrap_or_default();
    let include_usage = options.include_usage.unwrap_or(false);
    Ok(Ask {
        task: Task { prompt: identity(&tokens, served.block_tokens), input, output, finish },
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
        (None, messages) => chat_prompt(messages.as_deref()),
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

fn text_prompt(prompt: Option<RawPrompt>) -> Result<Vec<u32>, Refusal> {
    let Some(prompt) = prompt else { return Err(Refusal::field("prompt", "prompt is missing")) };
    if prompt.count > 1 {
        return Err(Refusal::field("prompt", format!("prompt holds {} prompts; one is served", prompt.count)));
    }
    Ok(prompt.tokens)
}

fn chat_prompt(messages: Option<&[RawMessage]>) -> Result<Vec<u32>, Refusal> {
    let messages = messages.unwrap_or_default();
    if messages.is_empty() {
        return Err(Refusal::field("messages", "messages must hold at least one message"));
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
                    let Some(content) = part.text.as_deref().filter(|_| part.kind == "text") else {
                        let message = format!("only parts of type text are served, not '{}'", part.kind);
                        return Err(Refusal::field(format!("messages[{index}].content"), message));
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
    let limit = match (api, raw.max_completion_tokens) {
        (Api::Chat, Some(max)) => Some(("max_completion_tokens", max)),
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
        (Api::Chat, None) if raw.ignore_eos.unwrap_or(false) => (room, Finish::Length),
        (Api::Chat, None) => {
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
    min_tokens: Option<u32>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<RawStreamOptions>,
    n: Option<u32>,
    best_of: Option<u32>,
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

#[derive(Deserialize)]
struct RawMessage {
    role: String,
    content: Option<RawContent>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "content must be text or a list of parts with a type")]
enum RawContent {
    Text(String),
    Parts(Vec<RawPart>),
}

#[derive(Deserialize)]
struct RawPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// A prompt in any of its four shapes: text, token ids, or a list of either. Of several prompts only
/// the first is kept.
#[derive(Clone, Default)]
struct RawPrompt {
    count: usize,
    tokens: Vec<u32>,
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
                Ok(RawPrompt { count: 1, tokens: tokenize(text) })
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
                        Item::Prompt(tokens) if !ids => {
                            prompt.count += 1;
                            if prompt.count == 1 {
                                prompt.tokens = tokens;
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
    Prompt(Vec<u32>),
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
                Ok(Item::Prompt(tokenize(text)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Item, A::Error> {
                let mut tokens = Vec::new();
                while let Some(id) = seq.next_element()? {
                    tokens.push(id);
                }
                Ok(Item::Prompt(tokens))
            }
        }
        deserializer.deserialize_any(ItemVisitor)
    }
}

#[cfg(test)]
mod tests;
