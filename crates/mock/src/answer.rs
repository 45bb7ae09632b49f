//! Answers in OpenAI's shapes: whole, or as a stream of events.
//!
//! Streams look like vLLM's: the head goes out at once, also while the request waits for a seat; a
//! chat's first event holds the role and no text and comes with the first token, not before; then one
//! event a token, the last of them with the finish reason; then, if asked for, an event without choices
//! that holds the counts; then `[DONE]`.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use elasticserve_core::engine::Emission;
use serde::Serialize;

use crate::driver::{Finish, Running};
use crate::reply::{Cut, Refusal};
use crate::request::{Api, Ask};
use crate::tokens::Voice;

/// What stays the same through an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    api: Api,
    id: String,
    created: u64,
    model: String,
    voice: Voice,
    input: u32,
    finish: Finish,
}

impl Answer {
    /// The answer to the request with this id; `created` is in seconds since 1970.
    pub(crate) fn new(api: Api, request_id: &str, created: u64, model: &str, ask: &Ask) -> Self {
        let prefix = match api {
            Api::Completion => "cmpl",
            Api::Chat => "chatcmpl",
        };
        Self {
            api,
            id: format!("{prefix}-{request_id}"),
            created,
            model: model.to_owned(),
            voice: Voice::of(request_id),
            input: ask.task.input,
            finish: ask.task.finish,
        }
    }

    /// Waits for all tokens and gives the whole answer as JSON.
    ///
    /// # Errors
    /// If the engine stops before the end.
    pub(crate) async fn whole(self, mut running: Running) -> Result<Vec<u8>, Refusal> {
        let mut text = String::new();
        loop {
            let token = running.next().await.ok_or_else(Refusal::stopped)?;
            text.push_str(&self.voice.word(token.index));
            if !token.last {
                continue;
            }
            let content = match self.api {
                Api::Completion => Content::Text(&text),
                Api::Chat => Content::Message(Message { role: Some(ASSISTANT), content: &text }),
            };
            let choice = Choice::new(content, Some(self.finish));
            let usage = Some(Some(self.usage(token)));
            return Ok(self.write(self.object(false), &[choice], usage));
        }
    }

    const fn object(&self, streamed: bool) -> &'static str {
        match (self.api, streamed) {
            (Api::Completion, _) => "text_completion",
            (Api::Chat, false) => "chat.completion",
            (Api::Chat, true) => "chat.completion.chunk",
        }
    }

    fn usage(&self, token: Emission) -> Usage {
        Usage {
            prompt_tokens: self.input,
            completion_tokens: token.index,
            total_tokens: u64::from(self.input) + u64::from(token.index),
            prompt_tokens_details: PromptDetails { cached_tokens: token.cached },
        }
    }

    fn write(&self, object: &'static str, choices: &[Choice<'_>], usage: Option<Option<Usage>>) -> Vec<u8> {
        let envelope = Envelope { id: &self.id, object, created: self.created, model: &self.model, choices, usage };
        // Numbers and text always serialise.
        serde_json::to_vec(&envelope).unwrap_or_default()
    }
}

/// An answer as a stream of events, one frame each.
#[derive(Debug)]
pub(crate) struct Events {
    answer: Answer,
    running: Running,
    include_usage: bool,
    continuous_usage: bool,
    /// Events of the token at hand: at most its own, the role's, the counts' and `[DONE]`.
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Events {
    pub(crate) fn new(answer: Answer, running: Running, ask: &Ask) -> Self {
        let Ask { include_usage, continuous_usage, .. } = *ask;
        Self { answer, running, include_usage, continuous_usage, ready: VecDeque::new(), ended: false }
    }

    /// The next event, ready for the wire.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match ready!(self.running.poll_next(cx)) {
                Some(token) => self.push_token(token),
                None => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(Cut)));
                }
            }
        }
    }

    /// Whether all has been given out.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    fn push_token(&mut self, token: Emission) {
        let usage = self.answer.usage(token);
        let word = self.answer.voice.word(token.index);
        if token.index == 1 && self.answer.api == Api::Chat {
            let role = Content::Delta(Message { role: Some(ASSISTANT), content: "" });
            let before = Usage { completion_tokens: 0, total_tokens: u64::from(self.answer.input), ..usage };
            self.push(&[Choice::new(role, None)], self.counts(before));
        }
        let content = match self.answer.api {
            Api::Completion => Content::Text(&word),
            Api::Chat => Content::Delta(Message { role: None, content: &word }),
        };
        let finish = token.last.then_some(self.answer.finish);
        self.push(&[Choice::new(content, finish)], self.counts(usage));
        if token.last {
            if self.include_usage {
                self.push(&[], Some(Some(usage)));
            }
            self.ready.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            self.ended = true;
        }
    }

    /// The counts of an event that has choices: absent, null because the last event has them, or there.
    fn counts(&self, usage: Usage) -> Option<Option<Usage>> {
        self.include_usage.then(|| self.continuous_usage.then_some(usage))
    }

    fn push(&mut self, choices: &[Choice<'_>], usage: Option<Option<Usage>>) {
        let json = self.answer.write(self.answer.object(true), choices, usage);
        self.ready.push_back(Bytes::from([b"data: ".as_slice(), &json, b"\n\n"].concat()));
    }
}

const ASSISTANT: &str = "assistant";

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(flatten)]
    content: Content<'a>,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

impl<'a> Choice<'a> {
    fn new(content: Content<'a>, finish: Option<Finish>) -> Self {
        Self { index: 0, content, logprobs: (), finish_reason: finish.map(Finish::as_str) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Content<'a> {
    Text(&'a str),
    Delta(Message<'a>),
    Message(Message<'a>),
}

#[derive(Serialize)]
struct Message<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    content: &'a str,
}

#[derive(Copy, Clone, Serialize)]
struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
}

#[derive(Copy, Clone, Serialize)]
struct PromptDetails {
    cached_tokens: u32,
}

#[cfg(test)]
mod tests {
    use elasticserve_core::engine::{Engine, Profile};

    use super::*;
    use crate::driver::Driver;
    use crate::request::{Served, read_ask};

    #[tokio::test]
    async fn a_stream_whose_engine_stops_never_ends_as_if_it_were_whole() {
        let driver = Driver::start(Engine::new(&Profile::built_in("gb10-qwen3-8b-fp8").unwrap())).unwrap();
        let served = Served { model: "m".into(), max_model_len: 8192, block_tokens: 16 };
        let ask = read_ask(Api::Completion, br#"{"prompt":"x","max_tokens":8000}"#, &served).unwrap();
        let running = driver.handle().submit(driver.handle().now(), ask.task.clone());
        let answer = Answer::new(Api::Completion, "id", 0, "m", &ask);
        let mut events = Events::new(answer, running, &ask);
        driver.stop();
        loop {
            match std::future::poll_fn(|cx| events.poll_event(cx)).await {
                Some(Ok(event)) => assert_ne!(event, "data: [DONE]\n\n"),
                other => break assert!(matches!(other, Some(Err(Cut)))),
            }
        }
        assert!(events.is_done());
    }
}
