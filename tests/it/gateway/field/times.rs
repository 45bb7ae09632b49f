//! What the gateway says of times is what a user sees, and its own part of them is small.

use std::time::Duration;

use elasticserve_gateway::Gateway;
use tokio::task::JoinSet;

use crate::support::backend::Backend;
use crate::support::client::{Client, completion, get, post};
use crate::support::gateway::{Piped, settings};
use crate::support::until;

/// A series of `/metrics`.
async fn metric(gateway: &Gateway, series: &str) -> f64 {
    let mut answer = Client::tcp(gateway.admin_addr()).await.send(get("/metrics")).await.unwrap();
    let text = String::from_utf8(answer.rest().await.0).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn the_first_token_is_the_first_content_reasoning_or_tool_call_and_neither_the_role_nor_the_end() {
    const BEFORE: Duration = Duration::from_millis(100);
    const AFTER: Duration = Duration::from_millis(300);
    let (mut backend, addr) = Backend::on_tcp().await;
    for first in [
        r#"{"content":"a"}"#,
        r#"{"reasoning_content":"a"}"#,
        r#"{"reasoning":"a"}"#,
        r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}"#,
    ] {
        let gateway = Gateway::start(settings(&addr.to_string(), 1).check().unwrap()).await.unwrap();
        let request = post("/v1/chat/completions", r#"{"messages":[],"stream":true}"#);
        let client = Client::tcp(gateway.data_addr()).await;
        let mut asking = JoinSet::new();
        asking.spawn(async move { client.send(request).await.unwrap() });
        let responding = backend.call().await.stream();
        let mut answer = asking.join_next().await.unwrap().unwrap();
        let event = |delta: &str, end: &str| {
            responding.event(&format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":{end}}}]}}"#));
        };
        event(r#"{"role":"assistant","content":""}"#, "null");
        tokio::time::sleep(BEFORE).await;
        event(first, "null");
        // The gateway has seen it before the client has.
        for _ in 0..2 {
            answer.chunk().await.unwrap().unwrap();
        }
        tokio::time::sleep(AFTER).await;
        event("{}", "\"stop\"");
        responding.event("[DONE]");
        responding.finish();
        assert!(answer.rest().await.1);
        let service = gateway.service().clone();
        until("it is counted", || service.load().1 == [(0, 1)]).await;
        let of = |name: &str| format!("elasticserve_{name}_seconds_sum{{tenant=\"default\"}}");
        let (ttft, e2e) = (metric(&gateway, &of("ttft")).await, metric(&gateway, &of("e2e")).await);
        assert!(ttft >= BEFORE.as_secs_f64(), "{first}: {ttft}");
        assert!(e2e - ttft >= AFTER.as_secs_f64(), "{first}: {ttft} of {e2e}");
        gateway.stop().await;
    }
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_prompt_of_220_kb_costs_the_gateway_little_before_it_is_sent_on() {
    let turn = |n: usize| format!(r#"{{"role":"user","content":"turn {n}: \"quoted\" \u00e9 and more of it\n"}}"#);
    let turns: Vec<String> = (0..4000).map(turn).collect();
    let body = format!(r#"{{"model":"m","messages":[{}],"max_tokens":8,"stream":true}}"#, turns.join(","));
    assert!(body.len() > 220_000, "{}", body.len());
    // Everything of it runs on this thread.
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let mut spent = Vec::new();
    for _ in 0..7 {
        let request = post("/v1/chat/completions", &body);
        let before = cpu_time();
        let sending = gateway.send(request);
        let call = backend.call().await;
        spent.push(cpu_time() - before);
        assert_eq!(call.body.len(), body.len());
        call.stream().finish();
        assert_eq!(sending.answer().await.status, 200);
    }
    spent.sort();
    // Both ends of the pipes are in it, in a build without optimisation.
    assert!(spent[3] <= Duration::from_millis(60), "{spent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_gets_comments_between_its_events_and_ends_at_its_limit_all_the_same() {
    const COMMENT: &str = ": keep-alive\n\n";
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        raw.timeouts.idle = Some("60s".into());
        raw.timeouts.keep_alive = Some("15s".into());
    });
    let sending = gateway.send(completion(""));
    let mut responding = backend.call().await.stream();
    let mut answer = sending.answer().await;
    let started = tokio::time::Instant::now();
    let mut seen = Vec::new();
    // The first token takes 50 s.
    tokio::time::sleep(Duration::from_secs(50)).await;
    responding.event("1");
    for _ in 0..4 {
        seen.push(answer.chunk().await.unwrap().unwrap());
    }
    assert_eq!(seen, [COMMENT, COMMENT, COMMENT, "data: 1\n\n"]);
    assert_eq!(started.elapsed(), Duration::from_secs(50));
    // Half an event is not broken up, however long the rest of it takes.
    responding.chunk(b"data: 2");
    tokio::time::sleep(Duration::from_secs(50)).await;
    responding.chunk(b"\n\n");
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "data: 2");
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "\n\n");
    // What the gateway says itself is no sign of life of the backend.
    let silent_since = tokio::time::Instant::now();
    let (bytes, whole) = answer.rest().await;
    let text = String::from_utf8(bytes).unwrap();
    assert!(!whole && text.starts_with(&COMMENT.repeat(3)) && text.contains("silent for 60 s"), "{text}");
    assert_eq!((text.matches(COMMENT).count(), silent_since.elapsed().as_secs()), (3, 60), "{text}");
    responding.abandoned().await;
    until("the permit is back", || gateway.in_use() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_plain_stream_of_events_gets_no_comments() {
    let stream = ("content-type", "text/event-stream");
    for headers in [
        vec![("content-type", "application/json")],
        vec![stream, ("content-length", "9")],
        vec![stream, ("content-encoding", "gzip")],
    ] {
        let (mut gateway, mut backend) = Piped::start(1, |raw| raw.timeouts.keep_alive = Some("1s".into()));
        let sending = gateway.send(completion(""));
        let responding = backend.call().await.respond(200, &headers);
        let mut answer = sending.answer().await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        responding.chunk(b"data: 1\n\n");
        responding.finish();
        assert_eq!(answer.rest().await, (b"data: 1\n\n".to_vec(), true), "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_all_there_is_passed_on_without_a_pause() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let started = tokio::time::Instant::now();
    let sending = gateway.send(completion(""));
    let responding = backend.call().await.stream();
    (0..1000).for_each(|n| responding.event(&format!(r#"{{"choices":[{{"text":"{n}"}}]}}"#)));
    responding.event("[DONE]");
    responding.finish();
    let (bytes, whole) = sending.answer().await.rest().await;
    assert!(whole && bytes.ends_with(b"\"999\"}]}\n\ndata: [DONE]\n\n"));
    // On a paused clock any timer in between would show in full.
    assert_eq!(started.elapsed(), Duration::ZERO);
}
