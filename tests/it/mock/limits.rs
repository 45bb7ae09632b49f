//! Bounds on what clients can hold, and the server's end.

use std::time::Duration;

use elasticserve_core::time::Span;
use elasticserve_mock::{Limits, Server};
use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Client, post};
use super::{ANY_PORT, config, server};

async fn limited(limits: Limits) -> Server {
    Server::bind_with(config(4), limits, ANY_PORT).await.unwrap()
}

/// What the server answers to these bytes until it closes the connection.
async fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // Far longer than any limit here, so that a test of one that is not kept ends too.
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_its_length_is_declared_or_not() {
    let server = limited(Limits { body_bytes: 100, ..Limits::default() }).await;
    let mut client = Client::connect(server.addr()).await;
    let fits = client.post("/tokenize", &json!({ "prompt": "x" })).await;
    assert_eq!(fits.status, StatusCode::OK);
    let declared = client.post("/tokenize", &json!({ "prompt": "x".repeat(100) })).await;
    assert_eq!(declared.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(declared.json()["error"]["message"].as_str().unwrap().contains("100 bytes"));

    let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
    let head = "POST /tokenize HTTP/1.1\r\nhost: mock\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = raw(&server, format!("{head}{chunk}{chunk}").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    drop(client);
    server.shutdown().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for_forever() {
    let server = limited(Limits { body_time: Span::from_millis(20), ..Limits::default() }).await;
    let head = "POST /tokenize HTTP/1.1\r\nhost: mock\r\ncontent-length: 5\r\n\r\n{";
    let answer = raw(&server, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    server.shutdown().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_so_is_one_whose_head_does_not_end() {
    let server = limited(Limits { keep_alive: Span::from_millis(300), ..Limits::default() }).await;
    let answer = raw(&server, b"GET /health HTTP/1.1\r\nhost: mock\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = raw(&server, b"GET /health HTTP/1.1\r\nhost: ").await;
    assert!(!answer.contains("200"), "{answer}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_head_over_the_limit_is_refused() {
    let server = server(4).await;
    let head = format!("GET /health HTTP/1.1\r\nhost: mock\r\nx: {}", "y".repeat(70_000));
    let answer = raw(&server, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_connection_over_the_limit_waits_until_another_one_closes() {
    let server = limited(Limits { connections: 1, ..Limits::default() }).await;
    let mut first = Client::connect(server.addr()).await;
    assert_eq!(first.get("/health").await.status, StatusCode::OK);
    let mut second = Client::connect(server.addr()).await;
    {
        let mut answer = std::pin::pin!(second.get("/health"));
        for _ in 0..20 {
            tokio::select! {
                biased;
                _ = &mut answer => panic!("two connections are served"),
                other = first.get("/health") => assert_eq!(other.status, StatusCode::OK),
            }
        }
        drop(first);
        assert_eq!(answer.await.status, StatusCode::OK);
    }
    drop(second);
    server.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_cuts_every_connection_and_frees_the_port() {
    let server = server(4).await;
    let addr = server.addr();
    let mut idle = Client::connect(addr).await;
    assert_eq!(idle.get("/health").await.status, StatusCode::OK);
    let mut client = Client::connect(addr).await;
    let body = json!({ "prompt": "x", "max_tokens": 8000, "stream": true });
    let mut stream = client.stream("/v1/completions", &body).await;
    stream.next().await.unwrap().unwrap();
    server.shutdown().await;
    assert!(idle.open(post("/tokenize", &json!({ "prompt": "x" }))).await.is_err());
    // Never a clean end: that would be taken for a whole answer.
    let end = loop {
        match stream.next().await {
            Ok(Some(event)) => assert_ne!(event, "[DONE]"),
            other => break other,
        }
    };
    assert!(end.is_err());
    let again = Server::bind(config(4), addr).await.unwrap();
    again.shutdown().await;
}
