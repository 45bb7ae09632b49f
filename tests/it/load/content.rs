//! What requests and answers hold: conversations and interfaces.

use std::num::NonZeroU32;

use elasticserve_core::work::Turn;
use elasticserve_load::Endpoint;
use serde_json::{Value, json};

use super::server::{STREAM, event, finish, head, token, whole};
use super::*;

/// A conversation of so many turns; with a history its prompts carry it.
fn conversation(turns: u32, history: bool) -> Plan {
    let turn = |place| Turn { session: 0, place, think: Span::ZERO };
    let plan = at_once(turns as usize);
    let plan = plan.with_turns(NonZeroU32::MIN, history, (0..turns).map(turn).collect()).unwrap();
    // Without a window every turn is an arrival of the run.
    Plan::from_ndjson(&plan.to_ndjson().replacen(r#""window_ns":1000000,"#, "", 1)).unwrap()
}

fn chat(content: &str) -> String {
    json!({ "choices": [{ "message": { "content": content }, "finish_reason": "stop" }] }).to_string()
}

fn texts(messages: &Value) -> Vec<String> {
    messages.as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_later_turn_carries_the_turns_before_it_and_what_the_server_said_to_them() {
    let server = Server::start(|request| {
        let answer = format!("answer \"{}\"\n€", request.index());
        whole("200 OK", "content-type: application/json\r\n", &chat(&answer))
    })
    .await;
    let config = LoadConfig { endpoint: Endpoint::Chat, streaming: false, ignore_eos: false, ..config(&server) };
    let (_, rows) = ended(&config, &conversation(3, true)).await;
    assert_eq!(states(&rows), [Terminal::Completed; 3]);
    let received = server.received();
    let last = received[2].json()["messages"].clone();
    let roles: Vec<&Value> = last.as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    let (first, second, third) =
        (texts(&received[0].json()["messages"]), texts(&received[1].json()["messages"]), texts(&last));
    assert_eq!((first.len(), second[..1] == first[..], third[..3] == second[..]), (1, true, true));
    assert_eq!((third[1].as_str(), third[3].as_str()), ("answer \"0\"\n€", "answer \"1\"\n€"));

    let before = server.received().len();
    ended(&config, &conversation(2, false)).await;
    assert!(server.received()[before..].iter().all(|r| r.json()["messages"].as_array().unwrap().len() == 1));
}

#[tokio::test]
async fn streamed_texts_are_what_a_later_turn_carries_in_their_order() {
    let server = Server::start(|request| {
        let text = json!({ "choices": [{ "text": format!(" answer {}", request.index()), "finish_reason": null }] });
        [vec![head("200 OK", STREAM), event(&text.to_string()), token()], finish(2)].concat()
    })
    .await;
    let (_, rows) = ended(&config(&server), &conversation(3, true)).await;
    assert_eq!(states(&rows), [Terminal::Completed; 3]);
    let prompt = |i: usize| server.received()[i].json()["prompt"].as_str().unwrap().to_owned();
    for before in [0, 1] {
        let start = format!("{}\n answer {before} hi\n", prompt(before));
        assert!(prompt(before + 1).starts_with(&start), "{}", prompt(before + 1));
    }
}

#[tokio::test]
async fn responses_are_read_whole_and_streamed() {
    let usage = json!({ "input_tokens": 9, "output_tokens": 2, "input_tokens_details": { "cached_tokens": 4 } });
    let output = json!([{ "type": "message", "content": [{ "type": "output_text", "text": "hi there" }] }]);
    let body = json!({ "object": "response", "status": "incomplete", "output": output, "usage": usage });
    let text = body.to_string();
    let server = Server::start(move |request| match request.json()["stream"].as_bool() {
        Some(false) => whole("200 OK", "content-type: application/json\r\n", &text),
        _ => vec![
            head("200 OK", STREAM),
            event(r#"{"type":"response.created","response":{"status":"in_progress","usage":null}}"#),
            event(r#"{"type":"response.output_text.delta","delta":"hi"}"#),
            event(r#"{"type":"response.output_text.delta","delta":" there"}"#),
            event(r#"{"type":"response.output_text.done","text":"hi there"}"#),
            event(&json!({ "type": "response.incomplete", "response": body }).to_string()),
            super::server::end(),
        ],
    })
    .await;
    for streaming in [true, false] {
        let config = LoadConfig { endpoint: Endpoint::Responses, streaming, ..config(&server) };
        let (manifest, rows) = ended(&config, &at_once(1)).await;
        assert_eq!((manifest.target.endpoint.as_str(), rows[0].state), ("/v1/responses", Terminal::Completed));
        assert_eq!((rows[0].input_tokens, rows[0].output_tokens, rows[0].cached_tokens), (Some(9), Some(2), Some(4)));
        assert_eq!(rows[0].gaps.len(), usize::from(streaming));
        assert!(rows[0].first_event <= rows[0].first_content && rows[0].first_content.is_some());
    }
    assert!(server.received()[0].head.starts_with("POST /v1/responses HTTP/1.1"));
    assert_eq!(server.received()[0].json()["max_output_tokens"], 2);
}

#[tokio::test]
async fn a_whole_answer_that_a_validator_does_not_accept_is_invalid_and_says_why() {
    let server = Server::start(|request| {
        let text = if request.index() == 1 { "maybe" } else { "yes" };
        whole("200 OK", "content-type: application/json\r\n", &chat(text))
    })
    .await;
    let mut config = LoadConfig { endpoint: Endpoint::Chat, streaming: false, ignore_eos: false, ..config(&server) };
    config.validators = vec!["regex:^(yes|no)$".parse().unwrap(), "command:! grep -q maybe".parse().unwrap()];
    let (manifest, rows) = ended(&config, &at_once(3)).await;
    assert_eq!(states(&rows), [Terminal::Completed, Terminal::InvalidAnswer, Terminal::Completed]);
    assert_eq!(rows[1].error.as_deref(), Some("regex:^(yes|no)$: no match"));
    assert!(rows[1].end.is_some() && rows[1].first_content.is_some());
    assert_eq!(manifest.metadata["validators"], "regex:^(yes|no)$; command:! grep -q maybe");
}

#[tokio::test]
async fn each_kind_of_validator_alone_makes_an_answer_invalid() {
    // Two tokens are planned for each.
    let server = Server::start(|request| {
        let (text, tokens) = if request.index() == 0 { ("{}", 2) } else { ("[]", 3) };
        let choice = json!({ "message": { "content": text }, "finish_reason": "stop" });
        let body = json!({ "choices": [choice], "usage": { "prompt_tokens": 4, "completion_tokens": tokens } });
        whole("200 OK", "content-type: application/json\r\n", &body.to_string())
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    std::fs::write(&schema, r#"{"type":"object"}"#).unwrap();
    let schema = format!("json-schema:{}", schema.display());
    for rule in ["regex:^[{]", &schema, "length:exact", "command:grep -q {"] {
        let mut config =
            LoadConfig { endpoint: Endpoint::Chat, streaming: false, ignore_eos: false, ..config(&server) };
        config.validators = vec![rule.parse().unwrap()];
        let (_, rows) = ended(&config, &at_once(2)).await;
        assert_eq!(states(&rows), [Terminal::Completed, Terminal::InvalidAnswer], "{rule}");
        let why = rows[1].error.as_deref().unwrap();
        assert!(why.starts_with(rule), "{why}");
    }
}

#[tokio::test]
async fn a_streamed_text_is_judged_whole_and_only_if_the_answer_is() {
    let server = Server::start(|request| match request.index() {
        0 => answer(),
        _ => whole("429 Too Many Requests", "", "{}"),
    })
    .await;
    for (rule, state) in [("regex:^ hi hi$", Terminal::Completed), ("regex:never", Terminal::InvalidAnswer)] {
        let config = LoadConfig { validators: vec![rule.parse().unwrap()], ..config(&server) };
        let (_, rows) = ended(&config, &at_once(2)).await;
        assert_eq!(states(&rows), [state, Terminal::Rejected]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_validator_delays_no_send_and_is_in_no_latency() {
    let server = Server::start(|_| answer()).await;
    let mut config = config(&server);
    config.validators = vec!["command:sleep 0.3".parse().unwrap()];
    let (_, rows) = ended(&config, &at_once(8)).await;
    assert_eq!(states(&rows), vec![Terminal::Completed; 8]);
    // Four are judged at a time, so the last ones were judged after 0.6 s; none of that is theirs.
    let ends: Vec<Span> = rows.iter().map(|row| row.e2e().unwrap()).collect();
    assert!(ends.iter().filter(|e2e| **e2e >= Span::from_millis(600)).count() < 4, "{ends:?}");
}
