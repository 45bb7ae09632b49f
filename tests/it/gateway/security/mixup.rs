//! Whose answer an answer is (S24).

use std::collections::BTreeSet;

use elasticserve_core::rng::{Random, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::backend::{Backend, Call, header};
use crate::support::gateway::on_sockets;
use crate::support::{soon, until};

const CONNECTIONS: u64 = 100;
const EACH: u64 = 20;

/// What every piece of an answer to this request says.
fn mark(nonce: &str) -> String {
    format!("<{nonce}>")
}

/// Answers in one of the ways there are, each piece with the marks of the id and of the body.
async fn answer(call: Call, way: u64) {
    let id = header(&call.head.headers, "x-request-id").unwrap().to_owned();
    let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
    let marks = format!("{}{}", mark(&id), mark(body["prompt"].as_str().unwrap()));
    if way < 3 {
        return call.json(&format!("{{\"a\":\"{marks}\"}}"));
    }
    let responding = call.stream();
    for n in 0..way {
        responding.event(&marks);
        if n % 2 == 0 {
            tokio::task::yield_now().await;
        }
    }
    if way == 9 { responding.break_off() } else { responding.finish() }
}

async fn answer_all(mut backend: Backend) {
    let (mut random, mut answering) = (Random::new(24, Stream::Test), JoinSet::new());
    while let Some(call) = backend.next_call().await {
        let way = random.between(0, 9);
        answering.spawn(answer(call, way));
        while answering.try_join_next().is_some() {}
    }
}

/// Sends requests all at once over one connection and reads up to `most` bytes of what comes.
async fn ask(addr: std::net::SocketAddr, connection: u64, most: u64) -> String {
    let mut bytes = String::new();
    for n in 0..EACH {
        let nonce = format!("n-{connection}-{n}");
        let body = format!("{{\"prompt\":\"{nonce}\",\"stream\":true}}");
        let last = if n + 1 == EACH { "connection: close\r\n" } else { "" };
        let length = body.len();
        bytes += &format!(
            "POST /v1/completions HTTP/1.1\r\nhost: g\r\n{last}x-request-id: {nonce}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
    }
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let (reading, mut writing) = stream.split();
    let mut answers = Vec::new();
    let mut reading = reading.take(most);
    let read = async { soon("it is answered, or broken off", reading.read_to_end(&mut answers)).await };
    let write = async { writing.write_all(bytes.as_bytes()).await };
    let _ = tokio::join!(read, write);
    // What is dropped here with more to come is a client that leaves.
    String::from_utf8_lossy(&answers).into_owned()
}

/// The nonces in the heads and in the marks, in the order in which they came.
fn nonces(answers: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (start, end) in [("x-request-id: ", '\r'), ("<", '>')] {
        let starts = answers.match_indices(start).map(|(at, _)| at + start.len());
        found.extend(starts.filter_map(|at| Some((at, &answers[at..at + answers[at..].find(end)?]))));
    }
    found.sort_unstable();
    found.into_iter().map(|(_, nonce)| nonce).collect()
}

#[tokio::test]
async fn no_answer_holds_anything_of_another_request_over_pipelined_and_reused_connections() {
    let (gateway, backend) = on_sockets(8, |raw| raw.queue.depth = Some(10_000)).await;
    let mut answering = JoinSet::new();
    answering.spawn(answer_all(backend));
    let mut random = Random::new(2_424, Stream::Test);
    let mut asking = JoinSet::new();
    for connection in 0..CONNECTIONS {
        // A third of them leave in the middle of something.
        let most = if connection % 3 == 0 { random.between(1, 8_000) } else { u64::MAX };
        let addr = gateway.data_addr();
        asking.spawn(async move { (connection, ask(addr, connection, most).await) });
    }
    let mut seen = BTreeSet::new();
    for (connection, answers) in asking.join_all().await {
        // Each request's nonces come together, in the order of the requests, from the first on.
        let mut groups = nonces(&answers);
        groups.dedup();
        let expected: Vec<String> = (0..groups.len()).map(|n| format!("n-{connection}-{n}")).collect();
        assert_eq!(groups, expected, "connection {connection}");
        seen.extend(expected);
    }
    assert!(seen.len() > 300, "{} of {}", seen.len(), CONNECTIONS * EACH);
    let service = gateway.service().clone();
    until("all is back", || service.load() == (0, vec![(0, 8)])).await;
    service.audit().unwrap();
    gateway.stop().await;
}
