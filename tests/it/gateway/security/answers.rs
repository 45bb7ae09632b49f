//! Answers that two readers may read in two ways, and clients that leave in the middle of more than they asked.

use elasticserve_gateway::Gateway;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::with;
use crate::support::backend::{Backend, header};
use crate::support::client::{Client, completion, get, post};
use crate::support::gateway::{Piped, on_sockets, settings};
use crate::support::raw::RawBackend;
use crate::support::{soon, until};

/// A gateway in front of a backend that answers every request with the same bytes.
async fn answered(answer: &'static [u8]) -> (Gateway, RawBackend) {
    let backend = RawBackend::start(move |_| answer.to_vec()).await;
    let raw = settings(&backend.addr.to_string(), 4);
    (Gateway::start(raw.check().unwrap()).await.unwrap(), backend)
}

#[tokio::test]
async fn what_a_backend_sends_beyond_its_answer_is_nobodys_answer() {
    let twice = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
    let garbage = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}poison";
    for answer in [&twice[..], chunked, garbage] {
        let (gateway, backend) = answered(answer).await;
        for _ in 0..50 {
            let mut answer = Client::tcp(gateway.data_addr()).await.send(completion("")).await.unwrap();
            assert_eq!((answer.status.as_u16(), &answer.rest().await.0[..]), (200, &b"{}"[..]));
        }
        assert_eq!(backend.got().len(), 50);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn an_answer_has_one_framing_whatever_the_backends_says() {
    let cases: [(&[u8], u16, &[u8]); 6] = [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n", 200, b"hello world"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 300\r\n\r\nb\r\nhello world\r\n0\r\n\r\n", 200, b"hello world"),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b""),
        // Nobody asked for another protocol.
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", 502, b""),
        (b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 200, b"{}"),
    ];
    for (told, status, body) in cases {
        let (gateway, _backend) = answered(told).await;
        for request in [completion(""), get("/version")] {
            let mut answer = Client::tcp(gateway.data_addr()).await.send(request).await.unwrap();
            let shown = String::from_utf8_lossy(told);
            assert_eq!(answer.status, status, "{shown}");
            assert!(!answer.headers.contains_key("upgrade"), "{shown}");
            let length = header(&answer.headers, "content-length").map(str::to_owned);
            let (got, whole) = answer.rest().await;
            if status == 502 {
                continue;
            }
            assert_eq!((&got[..], whole), (body, true), "{shown}");
            assert!(length.is_none_or(|length| length == body.len().to_string()), "{shown}");
        }
        gateway.stop().await;
    }
}

const HEAD: &str = "POST /v1/completions HTTP/1.1\r\nhost: g\r\n";
const BODY: &str = r#"{"prompt":[1],"max_tokens":1,"stream":true}"#;

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_noticed_though_it_has_begun_to_ask_for_more() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let asking = format!("{HEAD}content-length: {}\r\n\r\n{BODY}", BODY.len());
    for (begins, surplus) in [(false, 1), (true, 1), (true, 30_000), (false, 60_000)] {
        // One holds the permit, and one waits.
        let mut running = gateway.connect();
        running.write_all(format!("{asking}{}", "P".repeat(surplus)).as_bytes()).await.unwrap();
        let mut call = backend.call().await;
        let mut waiting = gateway.connect();
        waiting.write_all(format!("{asking}{}", "P".repeat(surplus)).as_bytes()).await.unwrap();
        until("one waits", || gateway.queued() == 1).await;
        drop(waiting);
        until("nobody waits", || gateway.queued() == 0).await;
        if begins {
            let mut responding = call.stream();
            responding.event("1");
            let mut piece = [0; 16];
            running.read_exact(&mut piece).await.unwrap();
            drop(running);
            soon("the stream is given up", responding.abandoned()).await;
        } else {
            drop(running);
            soon("the request is given up", call.abandoned()).await;
        }
        until("the permit is back", || gateway.in_use() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_behind_a_request_that_is_under_way_is_kept_up_to_a_bound_and_answered_in_turn() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let second = r#"{"prompt":"X"}"#.replace('X', &"y".repeat(60_000));
    let asking = format!("{HEAD}content-length: {}\r\n\r\n{BODY}", BODY.len());
    let next = format!("{HEAD}connection: close\r\ncontent-length: {}\r\n\r\n{second}", second.len());
    let mut client = gateway.connect();
    client.write_all(format!("{asking}{}", &next[..100]).as_bytes()).await.unwrap();
    let first = backend.call().await;
    client.write_all(&next.as_bytes()[100..]).await.unwrap();
    first.json("{}");
    let call = backend.call().await;
    assert_eq!(call.body.len(), second.len());
    call.json("{}");
    let mut answers = Vec::new();
    soon("both are answered", client.read_to_end(&mut answers)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answers).matches("HTTP/1.1 200 OK").count(), 2);
    // Without a bound one client could fill the memory with what it will ask for one day.
    let mut client = gateway.connect();
    client.write_all(asking.as_bytes()).await.unwrap();
    let mut call = backend.call().await;
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut sent = 0_usize;
        while sent < 1 << 20 && client.write_all(&[b'P'; 1000]).await.is_ok() {
            sent += 1000;
        }
        sent
    });
    let sent = soon("the connection is closed", serving.join_next()).await.unwrap().unwrap();
    assert!((64 << 10..400 << 10).contains(&sent), "{sent}");
    soon("the request is given up", call.abandoned()).await;
}

#[tokio::test]
async fn what_a_client_makes_up_is_kept_and_told_back_shortened() {
    let (mut collector, at) = Backend::on_tcp().await;
    let (gateway, mut backend) = on_sockets(1, |raw| raw.trace.endpoint = Some(format!("http://{at}"))).await;
    let long = "x".repeat(1 << 20);
    let body = format!(r#"{{"model":"{long}","prompt":"canary"}}"#);
    let asking = with(post("/v1/completions", &body), &[("authorization", "Bearer canary"), ("x-other", "canary")]);
    let (answer, ()) = tokio::join!(Client::tcp(gateway.data_addr()).await.send(asking), async {
        let call = backend.call().await;
        assert_eq!(call.body.len(), body.len());
        call.json(r#"{"choices":[{"text":"canary"}]}"#);
    });
    assert_eq!(answer.unwrap().status, 200);
    let message = collector.call().await;
    assert!(message.body.len() < 4096, "{}", message.body.len());
    assert!(!String::from_utf8_lossy(&message.body).contains("canary"));
    message.json("{}");
    let odd = &long[..50_000];
    for (request, status) in [
        (with(completion(""), &[("content-encoding", odd)]), 415),
        (post("/v1/completions", &format!(r#"{{"prompt":[1],"max_tokens":"{long}"}}"#)), 400),
        (post("/v1/completions", &format!(r#"{{"prompt":[1],"stream":"{long}"}}"#)), 400),
    ] {
        let mut answer = Client::tcp(gateway.data_addr()).await.send(request).await.unwrap();
        let (told, _) = answer.rest().await;
        assert_eq!(answer.status, status);
        assert!(told.len() < 4096, "{status}: {} bytes", told.len());
    }
    gateway.stop().await;
}
