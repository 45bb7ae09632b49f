//! Answers of the completions and chat interfaces: whole, or as a stream of events.
//!
//! Streams look like vLLM's: the head goes out at once, also while the request waits for a seat; a
//! chat's first event holds the role and no text and comes with the first token, not before; then one
//! event a token, the last of them with the finish reason; then, if asked for, an event without choices
//! that holds the counts; then `[DONE]`. The events of several choices come as their tokens do.

use bytes::Bytes;
use elasticserve_core::engine::Emission;
use serde::Serialize;

use crate::driver::Finish;
use crate::lane::Lane;
use crate::request::{Api, Ask};

/// What stays the same through an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    api: Api,
    id: String,
    created: u64,
    model: String,
    input: u32,
    echo: Option<String>,
    include_usage: bool,
    continuous_usage: bool,
}

impl Answer {
    /// The answer to the request with this id; `created` is in seconds since 1970.
    pub(crate) fn new(api: Api, request_id: &str, created: u64, model: &str, ask: &Ask) -> Self {
        let prefix = if api == Api::Chat { "chatcmpl" } else { "cmpl" };
        Self {
            api,
            id: format!("{prefix}-{request_id}"),
            created,
            model: model.to_owned(),
            input: ask.task.input,
            echo: ask.echo.clone(),
            include_usage: ask.include_usage,
            continuous_usage: ask.continuous_usage,
        }
    }

    /// The whole answer as JSON, once the lanes have ended with these texts.
    pub(crate) fn whole(&self, lanes: &[Lane], texts: &[String]) -> Vec<u8> {
        let echo = self.echo.as_deref().unwrap_or_default();
        let texts: Vec<String> = texts.iter().map(|text| format!("{echo}{text}")).collect();
        let choice = |(index, (lane, text)): (u32, (&Lane, &String))| {
            let content = match self.api {
                Api::Chat => Content::Message(Message { role: Some(ASSISTANT), content: text.clone() }),
                _ => Content::Text(text.clone()),
            };
            Choice::new(index, content, lane.finish())
        };
        let choices: Vec<Choice> = (0..).zip(lanes.iter().zip(&texts)).map(choice).collect();
        self.write(self.object(false), &choices, Some(Some(self.usage(lanes))))
    }

    /// The events of a token that the lane at `index` has just taken.
    pub(crate) fn token(
        &self,
        lanes: &[Lane],
        index: u32,
        token: Emission,
        word: String,
        sink: &mut impl FnMut(Bytes),
    ) {
        let usage = self.usage(lanes);
        let lane = &lanes[index as usize];
        let content = match self.api {
            Api::Chat => {
                if token.index == 1 {
                    let role = Content::Delta(Message { role: Some(ASSISTANT), content: String::new() });
                    let before = usage.without_one();
                    self.push(&[Choice::new(index, role, None)], self.counts(before), sink);
                }
                Content::Delta(Message { role: None, content: word })
            }
            _ if token.index == 1 => Content::Text(self.echo.clone().unwrap_or_default() + &word),
            _ => Content::Text(word),
        };
        self.push(&[Choice::new(index, content, lane.finish())], self.counts(usage), sink);
        if lanes.iter().all(|lane| lane.done) {
            if self.include_usage {
                self.push(&[], Some(Some(usage)), sink);
            }
            sink(Bytes::from_static(b"data: [DONE]\n\n"));
        }
    }

    /// Whether an event without text comes before the first token's.
    pub(crate) fn announces(&self) -> bool {
        self.api == Api::Chat
    }

    const fn object(&self, streamed: bool) -> &'static str {
        match (self.api, streamed) {
            (Api::Chat, false) => "chat.completion",
            (Api::Chat, true) => "chat.completion.chunk",
            _ => "text_completion",
        }
    }

    fn usage(&self, lanes: &[Lane]) -> Usage {
        let completion_tokens: u32 = lanes.iter().map(|lane| lane.tokens).sum();
        Usage {
            prompt_tokens: self.input,
            completion_tokens,
            total_tokens: u64::from(self.input) + u64::from(completion_tokens),
            prompt_tokens_details: PromptDetails { cached_tokens: lanes.first().map_or(0, |lane| lane.cached) },
        }
    }

    /// The counts of an event that has choices: absent, null because the last event has them, or there.
    fn counts(&self, usage: Usage) -> Option<Option<Usage>> {
        self.include_usage.then(|| self.continuous_usage.then_some(usage))
    }

    fn push(&self, choices: &[Choice], usage: Option<Option<Usage>>, sink: &mut impl FnMut(Bytes)) {
        let json = self.write(self.object(true), choices, usage);
        sink(Bytes::from([b"data: ".as_slice(), &json, b"\n\n"].concat()));
    }

    fn write(&self, object: &'static str, choices: &[Choice], usage: Option<Option<Usage>>) -> Vec<u8> {
        let envelope = Envelope { id: &self.id, object, created: self.created, model: &self.model, choices, usage };
        // Numbers and text always serialise.
        serde_json::to_vec(&envelope).unwrap_or_default()
    }
}

const ASSISTANT: &str = "assistant";

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [Choice],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct Choice {
    index: u32,
    #[serde(flatten)]
    content: Content,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

impl Choice {
    fn new(index: u32, content: Content, finish: Option<Finish>) -> Self {
        Self { index, content, logprobs: (), finish_reason: finish.map(Finish::as_str) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Content {
    Text(String),
    Delta(Message),
    Message(Message),
}

#[derive(Serialize)]
struct Message {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    content: String,
}

#[derive(Copy, Clone, Serialize)]
struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
}

impl Usage {
    /// Before its last token.
    const fn without_one(mut self) -> Self {
        self.completion_tokens -= 1;
        self.total_tokens -= 1;
        self
    }
}

#[derive(Copy, Clone, Serialize)]
struct PromptDetails {
    cached_tokens: u32,
}
