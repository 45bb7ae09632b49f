//! What stands in answers.

use std::time::Instant;

use elasticserve_mock::{Limits, Server, Truth, TruthRow, word};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use super::client::{Client, post};
use super::{ANY_PORT, MODEL, config, server};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

fn hello() -> Value {
    json!([{ "role": "user", "content": "hello" }])
}

/// What a request with the id of the tests is answered.
fn words(count: u32) -> String {
    (1..=count).map(|i| word("test-id", i)).collect()
}

#[tokio::test]
async fn a_streamed_completion_has_the_text_of_the_whole_one_and_an_event_for_each_token() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let mut body = json!({ "model": MODEL, "prompt": "hello", "max_tokens": 5 });
    let whole = client.post(COMPLETIONS, &body).await;
    assert_eq!(whole.headers["x-request-id"], "test-id");
    let whole = whole.json();
    assert_eq!((&whole["object"], &whole["id"]), (&json!("text_completion"), &json!("cmpl-test-id")));
    assert_eq!((&whole["model"], &whole["choices"][0]["finish_reason"]), (&json!(MODEL), &json!("length")));
    assert_eq!(whole["choices"][0]["text"], words(5));
    let usage = &whole["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(2), &json!(5)));
    assert_eq!(usage["total_tokens"], 7);

    body["stream"] = json!(true);
    let events = client.stream(COMPLETIONS, &body).await.rest().await;
    let texts: Vec<&str> = events.iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, (1..=5).map(|i| word("test-id", i)).collect::<Vec<_>>());
    let ends: Vec<&Value> = events.iter().map(|e| &e["choices"][0]["finish_reason"]).collect();
    assert_eq!(ends, [&Value::Null, &Value::Null, &Value::Null, &Value::Null, &json!("length")]);
    assert!(events.iter().all(|e| e.get("usage").is_none() && e["id"] == "cmpl-test-id"));
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn a_chat_begins_with_its_role_and_ends_by_itself_where_no_limit_is_set() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let mut body = json!({ "model": MODEL, "messages": hello() });
    let whole = client.post(CHAT, &body).await.json();
    let choice = &whole["choices"][0];
    assert_eq!((&whole["object"], &choice["message"]["role"]), (&json!("chat.completion"), &json!("assistant")));
    assert_eq!(choice["finish_reason"], "stop");
    let length = whole["usage"]["completion_tokens"].as_u64().unwrap() as u32;
    assert_eq!(choice["message"]["content"], words(length));

    body["stream"] = json!(true);
    let events = client.stream(CHAT, &body).await.rest().await;
    assert_eq!(events.len(), length as usize + 1);
    assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let text: String = events.iter().map(|e| e["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, words(length));
    let last = &events[length as usize];
    assert_eq!(
        (&last["object"], &last["choices"][0]["finish_reason"]),
        (&json!("chat.completion.chunk"), &json!("stop"))
    );

    body["max_completion_tokens"] = json!(3);
    let events = client.stream(CHAT, &body).await.rest().await;
    assert_eq!((events.len(), &events[3]["choices"][0]["finish_reason"]), (4, &json!("length")));
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn a_response_is_a_whole_object_or_typed_events_that_end_with_it() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let mut body = json!({ "model": MODEL, "instructions": "be short", "input": "hello", "max_output_tokens": 3 });
    let whole = client.post(RESPONSES, &body).await.json();
    assert_eq!((&whole["object"], &whole["id"]), (&json!("response"), &json!("resp_test-id")));
    assert_eq!(whole["output"][0]["content"][0]["text"], words(3));
    assert_eq!(
        (&whole["status"], &whole["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    // "system\nbe short\nuser\nhello\nassistant\n" is 37 bytes.
    assert_eq!((&whole["usage"]["input_tokens"], &whole["usage"]["output_tokens"]), (&json!(10), &json!(3)));

    body["stream"] = json!(true);
    body["input"] = json!([{ "role": "user", "content": [{ "type": "input_text", "text": "hello" }] }]);
    let mut stream = client.stream(RESPONSES, &body).await;
    let mut events: Vec<Value> = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        events.push(serde_json::from_str(&event).unwrap());
    }
    let kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    let delta = "response.output_text.delta";
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            delta,
            delta,
            delta,
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete"
        ]
    );
    assert!((0..).zip(&events).all(|(i, e)| e["sequence_number"] == i));
    let text: String = events[4..7].iter().map(|e| e["delta"].as_str().unwrap()).collect();
    assert_eq!((&text, &events[7]["text"]), (&words(3), &json!(words(3))));
    assert_eq!(events[10]["response"]["usage"]["input_tokens"], 10);
    let without = |mut response: Value| {
        response["created_at"] = Value::Null;
        response["usage"]["input_tokens_details"] = Value::Null;
        response
    };
    assert_eq!(without(events[10]["response"].clone()), without(whole));

    let chat = client.post(RESPONSES, &json!({ "input": "hello" })).await.json();
    assert_eq!((&chat["status"], &chat["incomplete_details"]), (&json!("completed"), &Value::Null));
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn several_choices_have_texts_of_their_own_and_share_the_counts() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let options = json!({ "include_usage": true });
    let mut body = json!({ "prompt": "hello", "max_tokens": 4, "n": 3, "stream_options": options });
    let whole = client.post(COMPLETIONS, &body).await.json();
    let texts: Vec<String> =
        whole["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap().to_owned()).collect();
    let expected = |id: &str| (1..=4).map(|i| word(id, i)).collect::<String>();
    assert_eq!(texts, [expected("test-id"), expected("test-id/1"), expected("test-id/2")]);
    assert_eq!((&whole["usage"]["prompt_tokens"], &whole["usage"]["completion_tokens"]), (&json!(2), &json!(12)));

    body["stream"] = json!(true);
    let events = client.stream(COMPLETIONS, &body).await.rest().await;
    assert_eq!(events.len(), 13);
    let mut streamed = vec![String::new(); 3];
    for choice in events.iter().filter_map(|e| e["choices"].get(0)) {
        streamed[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
    }
    assert_eq!(streamed, texts);
    let finished = events.iter().filter(|e| e["choices"][0]["finish_reason"] == "length").count();
    assert_eq!((finished, &events[12]["usage"]["completion_tokens"]), (3, &json!(12)));
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn a_stop_text_ends_the_answer_before_it_and_an_echo_comes_in_front() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let mut body = json!({ "prompt": "hello ", "max_tokens": 9, "stop": [".3", "never"], "echo": true });
    let whole = client.post(COMPLETIONS, &body).await.json();
    let all = words(3);
    let text = format!("hello {}", &all[..all.len() - 2]);
    assert_eq!((&whole["choices"][0]["text"], &whole["choices"][0]["finish_reason"]), (&json!(text), &json!("stop")));
    assert_eq!(whole["usage"]["completion_tokens"], 3);
    body["stream"] = json!(true);
    let events = client.stream(COMPLETIONS, &body).await.rest().await;
    assert_eq!(events.iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect::<String>(), text);
    assert_eq!(server.watch().borrow().finished.stop, 2);
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn the_truth_holds_the_times_of_each_token_in_the_order_of_the_clock() {
    let (truth, rows) = Truth::channel(8);
    let server = Server::bind_observed(config(4), Limits::default(), Some(truth), ANY_PORT).await.unwrap();
    let mut client = Client::connect(server.addr()).await;
    let before = Instant::now();
    let mut stream = client.stream(CHAT, &json!({ "messages": hello(), "max_tokens": 20, "stream": true })).await;
    let mut read = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        if event.contains("\"content\":\"") && !event.contains("\"role\"") {
            read.push(before.elapsed().as_nanos() as u64);
        }
    }
    drop(stream);
    client.post(RESPONSES, &json!({ "input": "x", "max_output_tokens": 2 })).await;
    drop(client);
    server.shutdown().await;
    let rows: Vec<TruthRow> = rows.iter().collect();
    let [chat, response] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((chat.id.as_str(), chat.path.as_str(), chat.stream, chat.whole), ("test-id", CHAT, true, true));
    assert_eq!((chat.due_ns.len(), chat.written_ns.len(), read.len()), (20, 20, 20));
    assert!(chat.written_ns.is_sorted() && chat.body_ns <= chat.due_ns[0]);
    for ((due, written), read) in chat.due_ns.iter().zip(&chat.written_ns).zip(&read) {
        // The client's clock began before the request was sent, so it must show more.
        assert!(due <= written && written < read, "{due} {written} {read}");
    }
    assert_eq!((response.path.as_str(), response.stream, response.written_ns.len()), (RESPONSES, false, 2));
    assert_eq!(response.written_ns[0], response.written_ns[1]);
}

#[tokio::test]
async fn counts_come_in_a_last_event_without_choices_or_in_every_event() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let options = json!({ "include_usage": true });
    let mut body = json!({ "prompt": [1, 2, 3], "max_tokens": 2, "stream": true, "stream_options": options });
    let events = client.stream(COMPLETIONS, &body).await.rest().await;
    assert_eq!(events.len(), 3);
    assert!(events[..2].iter().all(|e| e.get("usage") == Some(&Value::Null)));
    assert_eq!(events[2]["choices"], json!([]));
    let details = json!({ "cached_tokens": 0 });
    let total =
        json!({ "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": details });
    assert_eq!(events[2]["usage"], total);

    body["stream_options"]["continuous_usage_stats"] = json!(true);
    body["messages"] = hello();
    let events = client.stream(CHAT, &body).await.rest().await;
    let counts: Vec<&Value> = events.iter().map(|e| &e["usage"]["completion_tokens"]).collect();
    assert_eq!(counts, [0, 1, 2, 2]);
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn a_prompt_seen_before_is_cached_until_the_cache_is_reset() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let prompt: Vec<u32> = (0..100).collect();
    let body = json!({ "prompt": prompt, "max_tokens": 1 });
    let mut cached = Vec::new();
    for step in 0..4 {
        if step == 2 {
            let reset = client.post("/reset_prefix_cache", &json!({})).await;
            assert_eq!((reset.status, reset.text()), (StatusCode::OK, ""));
        }
        let usage = client.post(COMPLETIONS, &body).await.json()["usage"].clone();
        cached.push(usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap());
    }
    // Of 100 tokens, 6 blocks of 16 are whole.
    assert_eq!(cached, [0, 96, 0, 96]);
    let stats = server.stats();
    assert_eq!((stats.cache_queries, stats.cache_hits), (400, 192));
    server.reset_prefix_cache();
    let usage = client.post(COMPLETIONS, &body).await.json()["usage"].clone();
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn the_head_of_a_stream_comes_while_its_request_still_waits() {
    let server = server(1).await;
    let mut holder = Client::connect(server.addr()).await;
    let body = json!({ "prompt": "x", "max_tokens": 8000, "stream": true });
    let mut held = holder.stream(COMPLETIONS, &body).await;
    held.next().await.unwrap();
    let mut client = Client::connect(server.addr()).await;
    let chat = json!({ "messages": hello(), "max_tokens": 1, "stream": true });
    let stream = client.stream(CHAT, &chat).await;
    let now = *server.watch().wait_for(|s| s.engine.waiting == 1 || s.finished.length > 0).await.unwrap();
    assert_eq!((now.engine.waiting, now.finished.length), (1, 0));
    drop((holder, held));
    assert_eq!(stream.rest().await.len(), 2);
    server.shutdown().await;
}

#[tokio::test]
async fn every_refusal_has_the_shape_of_openai_and_names_the_field() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    for (path, body, status, param, code) in [
        (COMPLETIONS, json!({ "model": "gpt", "prompt": "x" }), 404, json!("model"), json!("model_not_found")),
        (CHAT, json!({ "model": "gpt", "messages": hello() }), 404, json!("model"), json!("model_not_found")),
        (COMPLETIONS, json!({ "prompt": ["a", "b"] }), 400, json!("prompt"), Value::Null),
        (COMPLETIONS, json!({ "prompt": "a", "n": 0 }), 400, json!("n"), Value::Null),
        (COMPLETIONS, json!({ "prompt": "a", "max_tokens": "5" }), 400, json!("max_tokens"), Value::Null),
        (CHAT, json!({ "messages": [] }), 400, json!("messages"), Value::Null),
        ("/tokenize", json!({ "messages": [] }), 400, json!("messages"), Value::Null),
        ("/v1/nothing", json!({}), 404, Value::Null, Value::Null),
        ("/health", json!({}), 405, Value::Null, Value::Null),
    ] {
        let answer = client.post(path, &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status.as_u16(), &error["param"], &error["code"]), (status, &param, &code), "{error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().is_some_and(|m| m.len() > 10), "{error}");
    }
    let answer = client.get(COMPLETIONS).await;
    assert_eq!((answer.status, &answer.headers["allow"]), (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap()));

    let too_long = client.post(COMPLETIONS, &json!({ "prompt": [1, 2, 3], "max_tokens": 8190 })).await;
    let error = too_long.json()["error"].clone();
    assert_eq!((&error["param"], &error["code"]), (&json!("max_tokens"), &json!("context_length_exceeded")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("8192") && message.contains("8190"), "{message}");
    // Nothing of this reached the engine.
    assert_eq!(server.stats().prompt_tokens, 0);
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn the_endpoints_beside_inference_answer_as_an_engine_server_does() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let models = client.get("/v1/models").await.json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!(MODEL)));
    assert_eq!(models["data"][0]["max_model_len"], 8192);
    let health = client.get("/health").await;
    assert_eq!((health.status, health.text()), (StatusCode::OK, ""));
    assert!(client.get("/version").await.json()["version"].as_str().unwrap().contains("elasticserve"));
    let tokens = client.post("/tokenize", &json!({ "model": MODEL, "prompt": "abcde" })).await.json();
    assert_eq!(tokens, json!({ "count": 2, "max_model_len": 8192, "tokens": [0x6463_6261, 0x65], "token_strs": null }));
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn a_request_id_that_could_not_stand_in_a_log_is_replaced() {
    let server = server(4).await;
    let mut client = Client::connect(server.addr()).await;
    let long = "x".repeat(65);
    let mut seen = std::collections::BTreeSet::new();
    for bad in ["", "a b", "a/b", &long] {
        let mut request: Request<Full<_>> = post("/tokenize", &json!({ "prompt": "x" }));
        request.headers_mut().insert("x-request-id", bad.parse().unwrap());
        let id = client.call(request).await.headers["x-request-id"].to_str().unwrap().to_owned();
        assert!(id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert!(seen.insert(id));
    }
    drop(client);
    server.shutdown().await;
}
