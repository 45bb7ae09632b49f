//! A client that asks on and on, and tells of each request how it ended.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use elasticserve_core::openai::DONE;
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sse::Parser;
use elasticserve_mock::word;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use crate::support::client::{Lasting, post};

/// Longer than anything that the gateway may make of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a request ended, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Saw {
    /// With a whole answer.
    Whole,
    /// With an answer of the gateway's own that is none of an engine's; the code.
    Refused(String),
    /// With an engine's own error.
    Passed(u16),
    /// With an answer that began and never came to its end.
    Broken,
    /// The client left after the first token.
    Left,
    /// Its connection was closed before it was served.
    TurnedAway,
    /// It did not.
    Hung,
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    /// Its `x-request-id`, of which each of its tokens is made.
    pub(super) id: String,
    pub(super) saw: Saw,
    /// What was wrong with its answer.
    pub(super) wrong: Vec<String>,
}

/// What all clients share.
pub(super) struct Clients {
    pub(super) gateway: SocketAddr,
    pub(super) stop: AtomicBool,
    /// Whole answers since the last failure.
    pub(super) whole_in_a_row: AtomicU64,
    pub(super) sent: Mutex<Vec<Sent>>,
}

impl Saw {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Refused(_) => "refused",
            Self::Passed(_) => "passed",
            Self::Broken => "broken",
            Self::Left => "left",
            Self::TurnedAway => "turned away",
            Self::Hung => "hung",
        }
    }
}

/// What a request asks for.
struct Ask {
    id: String,
    tokens: u32,
    stream: bool,
    /// After so many events with text the client leaves.
    leaves_after: Option<u32>,
    tenant: &'static str,
}

impl Ask {
    fn draw(random: &mut Random, id: String) -> Self {
        let stream = random.between(0, 3) > 0;
        let leaves = stream && random.between(0, 9) == 0;
        Self {
            id,
            tokens: random.between(1, 24) as u32,
            stream,
            leaves_after: leaves.then(|| random.between(1, 6) as u32),
            tenant: if random.between(0, 1) == 0 { "gold" } else { "batch" },
        }
    }
}

impl Clients {
    /// Asks until it is told to stop.
    pub(super) async fn ask_on(self: Arc<Self>, number: u64, seed: u64) {
        let mut random = Random::new(seed.wrapping_mul(1000).wrapping_add(number), Stream::Jitter);
        let mut connection = None;
        for count in 0.. {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let ask = Ask::draw(&mut random, format!("n{seed}-{number}-{count}"));
            let mut line = match connection.take().filter(Lasting::is_open) {
                Some(line) => line,
                None => Lasting::tcp(self.gateway).await,
            };
            let ended = tokio::time::timeout(PATIENCE, one(&mut line, &ask)).await;
            let (saw, wrong) = ended.unwrap_or((Saw::Hung, Vec::new()));
            if matches!(saw, Saw::Whole | Saw::Refused(_)) && random.between(0, 3) > 0 {
                connection = Some(line);
            }
            match saw {
                Saw::Whole => _ = self.whole_in_a_row.fetch_add(1, Ordering::Relaxed),
                Saw::Left => {}
                _ => {
                    self.whole_in_a_row.store(0, Ordering::Relaxed);
                    // Who is refused comes back, but not at once.
                    tokio::time::sleep(Duration::from_millis(random.between(20, 120))).await;
                }
            }
            self.sent.lock().unwrap().push(Sent { id: ask.id, saw, wrong });
        }
    }
}

/// One request from its head to its end, and what was wrong with its answer.
async fn one(line: &mut Lasting, ask: &Ask) -> (Saw, Vec<String>) {
    let (tokens, stream) = (ask.tokens, ask.stream);
    let body = format!(r#"{{"model":"m","prompt":[1,2,3],"max_tokens":{tokens},"ignore_eos":true,"stream":{stream}}}"#);
    let mut request = post("/v1/completions", &body);
    request.headers_mut().insert("x-request-id", ask.id.parse().unwrap());
    request.headers_mut().insert("x-elasticserve-tenant", ask.tenant.parse().unwrap());
    let Ok(answer) = line.ask(request).await else { return (Saw::TurnedAway, Vec::new()) };
    let said = |name: &str| answer.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
    if said("x-elasticserve-reason").as_deref() == Some("too_many_connections") {
        return (Saw::TurnedAway, Vec::new());
    }
    let mut wrong = Vec::new();
    if said("x-request-id").as_ref() != Some(&ask.id) {
        wrong.push(format!("the answer to {} says that it is to {:?}", ask.id, said("x-request-id")));
    }
    let admitted = said("x-elasticserve-outcome").as_deref() == Some("admitted");
    let status = answer.status().as_u16();
    let saw = match (admitted, status, stream) {
        (false, _, _) => refused(answer, &mut wrong).await,
        (true, 200, true) => streamed(answer, ask, &mut wrong).await,
        (true, 200, false) => document(answer, ask, &mut wrong).await,
        (true, _, _) => match answer.into_body().collect().await {
            Ok(_) => Saw::Passed(status),
            Err(_) => Saw::Broken,
        },
    };
    (saw, wrong)
}

async fn refused(answer: Response<Incoming>, wrong: &mut Vec<String>) -> Saw {
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let code = serde_json::from_slice::<Value>(&body).ok().and_then(|v| Some(v["error"]["code"].as_str()?.to_owned()));
    if code.is_none() || !(400..600).contains(&status) {
        wrong.push(format!("a refusal with {status} says {:?}", String::from_utf8_lossy(&body)));
    }
    Saw::Refused(code.unwrap_or_default())
}

/// The text of so many tokens of a request.
fn words(id: &str, tokens: u32) -> String {
    (1..=tokens).map(|index| word(id, index)).collect()
}

async fn document(answer: Response<Incoming>, ask: &Ask, wrong: &mut Vec<String>) -> Saw {
    let Ok(body) = answer.into_body().collect().await else { return Saw::Broken };
    let value: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    if value["choices"][0]["text"].as_str() != Some(&words(&ask.id, ask.tokens)) {
        wrong.push(format!("the whole answer to {} is {value}", ask.id));
    }
    Saw::Whole
}

/// What has come of a stream.
#[derive(Default)]
struct Read {
    text: String,
    pieces: u32,
    done: bool,
    /// The code of an error event.
    error: Option<String>,
    strange: Vec<String>,
}

impl Read {
    fn feed(&mut self, parser: &mut Parser, data: &Bytes) {
        parser.feed(data, |event| {
            if self.done || self.error.is_some() {
                self.strange.push(format!("{:?} comes after the end", String::from_utf8_lossy(event.data)));
            }
            if event.data == DONE {
                self.done = true;
                return;
            }
            let value: Value = serde_json::from_slice(event.data).unwrap_or_default();
            match (value["choices"][0]["text"].as_str(), value["error"]["code"].as_str()) {
                (Some(text), None) => {
                    self.text.push_str(text);
                    self.pieces += 1;
                }
                (None, Some(code)) => self.error = Some(code.to_owned()),
                _ => self.strange.push(String::from_utf8_lossy(event.data).into_owned()),
            }
        });
    }
}

async fn streamed(answer: Response<Incoming>, ask: &Ask, wrong: &mut Vec<String>) -> Saw {
    let (mut read, mut parser, mut body) = (Read::default(), Parser::new(), answer.into_body());
    let saw = loop {
        match body.frame().await {
            Some(Ok(frame)) => {
                read.feed(&mut parser, &frame.into_data().unwrap_or_default());
                if ask.leaves_after.is_some_and(|after| read.pieces >= after) {
                    break Saw::Left;
                }
            }
            Some(Err(_)) => break Saw::Broken,
            None => break Saw::Whole,
        }
    };
    let expected = words(&ask.id, ask.tokens);
    let mut tell = |what: &str| wrong.push(format!("{what} {}: {:?} of {expected:?}", ask.id, read.text));
    if !expected.starts_with(&read.text) {
        tell("foreign, lost or doubled tokens in");
    }
    let complete = read.done && read.text == expected;
    match saw {
        Saw::Whole if !complete || read.error.is_some() => tell("a clean end of a broken stream in"),
        // An engine that breaks off after its last event has said all that there is.
        Saw::Broken if read.error.as_deref() != Some("backend_failed") => tell("no word about its break in"),
        Saw::Broken if read.done && !complete => tell("an end that was made up in"),
        _ => {}
    }
    // Half an event that was cut is ended by the gateway's own, and is the only thing that may be strange.
    let cut = usize::from(saw == Saw::Broken);
    if read.strange.len() > cut {
        wrong.push(format!("in {}: {:?}", ask.id, read.strange));
    }
    saw
}
