//! Answers of the responses interface: whole, or as a stream of typed events.
//!
//! A stream says at once that the response was created and is in progress, which is no content; its
//! item and its part begin with the first token. It ends with `response.completed`, or with
//! `response.incomplete` where the limit on tokens was reached, and has no `[DONE]`.

use bytes::Bytes;
use elasticserve_core::engine::Emission;
use serde_json::{Value, json};

use crate::driver::Finish;
use crate::lane::Lane;
use crate::request::Ask;

/// What stays the same through an answer, and the number of the next event.
#[derive(Debug)]
pub(crate) struct ResponseAnswer {
    id: String,
    item: String,
    created: u64,
    model: String,
    input: u32,
    limit: Option<u32>,
    sequence: u64,
    text: String,
}

impl ResponseAnswer {
    /// The answer to the request with this id; `created` is in seconds since 1970.
    pub(crate) fn new(request_id: &str, created: u64, model: &str, ask: &Ask) -> Self {
        Self {
            id: format!("resp_{request_id}"),
            item: format!("msg_{request_id}"),
            created,
            model: model.to_owned(),
            input: ask.task.input,
            limit: (ask.task.finish == Finish::Length).then_some(ask.task.output),
            sequence: 0,
            text: String::new(),
        }
    }

    /// The whole answer as JSON.
    pub(crate) fn whole(&self, lane: &Lane, text: &str) -> Vec<u8> {
        self.object(Some(lane), Some(text)).to_string().into_bytes()
    }

    /// The events that come before any token.
    pub(crate) fn opening(&mut self, sink: &mut impl FnMut(Bytes)) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.object(None, None);
            self.push(kind, json!({ "response": response }), sink);
        }
    }

    /// The events of a token that the lane has just taken.
    pub(crate) fn token(&mut self, lane: &Lane, token: Emission, word: &str, sink: &mut impl FnMut(Bytes)) {
        let place = |item: &str| json!({ "item_id": item, "output_index": 0, "content_index": 0 });
        if token.index == 1 {
            let item = json!({ "id": self.item, "type": "message", "role": "assistant", "status": "in_progress", "content": [] });
            self.push("response.output_item.added", json!({ "output_index": 0, "item": item }), sink);
            self.push("response.content_part.added", with(place(&self.item), "part", part("")), sink);
        }
        self.text.push_str(word);
        let delta = with(with(place(&self.item), "delta", word.into()), "logprobs", json!([]));
        self.push("response.output_text.delta", delta, sink);
        if let Some(finish) = lane.finish() {
            let text = std::mem::take(&mut self.text);
            self.push("response.output_text.done", with(place(&self.item), "text", text.as_str().into()), sink);
            self.push("response.content_part.done", with(place(&self.item), "part", part(&text)), sink);
            let response = self.object(Some(lane), Some(&text));
            let item = response["output"][0].clone();
            self.push("response.output_item.done", json!({ "output_index": 0, "item": item }), sink);
            let kind = match finish {
                Finish::Stop => "response.completed",
                Finish::Length => "response.incomplete",
            };
            self.push(kind, json!({ "response": response }), sink);
        }
    }

    fn object(&self, lane: Option<&Lane>, text: Option<&str>) -> Value {
        let status = match lane.and_then(Lane::finish) {
            None => "in_progress",
            Some(Finish::Stop) => "completed",
            Some(Finish::Length) => "incomplete",
        };
        let output = text.map(|text| {
            json!({ "id": self.item, "type": "message", "role": "assistant", "status": status, "content": [part(text)] })
        });
        let usage = lane.map(|lane| {
            json!({
                "input_tokens": self.input,
                "input_tokens_details": { "cached_tokens": lane.cached },
                "output_tokens": lane.tokens,
                "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": u64::from(self.input) + u64::from(lane.tokens),
            })
        });
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" })),
            "model": self.model,
            "max_output_tokens": self.limit,
            "output": output.map_or_else(Vec::new, |item| vec![item]),
            "parallel_tool_calls": false,
            "tool_choice": "none",
            "tools": [],
            "usage": usage,
        })
    }

    fn push(&mut self, kind: &str, fields: Value, sink: &mut impl FnMut(Bytes)) {
        let event = with(with(fields, "type", kind.into()), "sequence_number", self.sequence.into());
        self.sequence += 1;
        sink(Bytes::from(format!("event: {kind}\ndata: {event}\n\n")));
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}
