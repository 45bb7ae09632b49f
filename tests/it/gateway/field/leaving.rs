//! Clients that leave: what was done for them ends, up to the engine's seat.

use std::net::Ipv4Addr;
use std::time::Duration;

use elasticserve_gateway::Gateway;
use elasticserve_mock::{MockConfig, Server};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::support::backend::header;
use crate::support::client::{Client, completion, post};
use crate::support::gateway::{Piped, on_sockets, settings};
use crate::support::{soon, until};

/// A request for an answer in one piece.
fn whole() -> http::Request<http_body_util::Full<bytes::Bytes>> {
    post("/v1/completions", r#"{"model":"m","prompt":[1,2,3],"max_tokens":8}"#)
}

#[tokio::test]
async fn a_client_that_waits_for_a_whole_answer_and_leaves_closes_the_backends_connection() {
    let (gateway, mut backend) = on_sockets(1, |_| {}).await;
    let service = gateway.service().clone();
    for trial in 0..50 {
        let client = Client::tcp(gateway.data_addr()).await;
        let mut asking = JoinSet::new();
        asking.spawn(client.send(whole()));
        let mut call = backend.call().await;
        if trial % 2 == 0 {
            asking.shutdown().await;
            call.abandoned().await;
        } else {
            // Half of the answer has come, and nothing is written that could find the client gone.
            let mut responding = call.respond(200, &[("content-type", "application/json"), ("content-length", "1000")]);
            responding.chunk(br#"{"choices":[{"text":""#);
            let mut answer = asking.join_next().await.unwrap().unwrap().unwrap();
            answer.chunk().await.unwrap().unwrap();
            drop(answer);
            responding.abandoned().await;
        }
        until("the permit is back", || service.load() == (0, vec![(0, 1)])).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn the_engines_seat_is_free_once_its_client_has_left() {
    let profile = elasticserve_core::engine::Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    let config = MockConfig { profile, speed: 1.0, model: None, max_model_len: 8192 };
    let mock = Server::bind(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let gateway = Gateway::start(settings(&mock.addr().to_string(), 1).check().unwrap()).await.unwrap();
    for (aborted, stream) in [(1, true), (2, false)] {
        // 4,000 tokens would take minutes.
        let body = format!(r#"{{"prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":{stream}}}"#);
        let client = Client::tcp(gateway.data_addr()).await;
        let mut asking = JoinSet::new();
        asking.spawn(async move { client.send(post("/v1/completions", &body)).await });
        soon("the engine works on it", mock.watch().wait_for(|seen| seen.engine.running == 1)).await.unwrap();
        asking.shutdown().await;
        let left = |seen: &elasticserve_mock::Snapshot| seen.engine.running == 0 && seen.finished.abort == aborted;
        soon("the seat is free", mock.watch().wait_for(left)).await.unwrap();
    }
    gateway.stop().await;
    mock.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_tasks_that_worked_for_clients_end_when_those_have_left() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let tasks = || Handle::current().metrics().num_alive_tasks();
    // Once it runs, with nobody there.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = tasks();
    for _ in 0..100 {
        // One holds the seat with half a stream, one waits for it; the next one never gets an answer's head.
        let streaming = gateway.send(completion(""));
        let responding = backend.call().await.stream();
        let mut answer = streaming.answer().await;
        responding.event("{}");
        answer.chunk().await.unwrap().unwrap();
        let waiting = gateway.send(completion(""));
        until("it waits", || gateway.queued() == 1).await;
        drop(waiting);
        until("it has left", || gateway.queued() == 0).await;
        drop(answer);
        let asking = gateway.send(completion(""));
        let mut call = backend.call().await;
        drop(asking);
        call.abandoned().await;
        until("the seat is free", || gateway.in_use() == 0).await;
    }
    // Idle connections to the backend live for some seconds.
    tokio::time::sleep(Duration::from_secs(10)).await;
    until("all tasks have ended", || tasks() <= before).await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_carry_the_same_id_are_two_requests() {
    let (mut gateway, mut backend) = Piped::start(2, |_| {});
    let named = || {
        let mut request = completion("");
        request.headers_mut().insert("x-request-id", "same".parse().unwrap());
        request
    };
    let first = gateway.send(named());
    let mut one = backend.call().await.stream();
    let second = gateway.send(named());
    let other = backend.call().await.stream();
    let (leaves, mut stays) = (first.answer().await, second.answer().await);
    one.event("\"of the first\"");
    other.event("\"of the second\"");
    assert_eq!(stays.chunk().await.unwrap().unwrap(), "data: \"of the second\"\n\n");
    // The first one's end is its own alone.
    drop(leaves);
    one.abandoned().await;
    until("one permit is back", || gateway.in_use() == 1).await;
    other.event("[DONE]");
    other.finish();
    assert_eq!(stays.rest().await, (b"data: [DONE]\n\n".to_vec(), true));
    assert_eq!(header(&stays.headers, "x-request-id"), Some("same"));
    gateway.service.audit().unwrap();
}
