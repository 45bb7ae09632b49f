//! What a client sees when a backend fails, and that nothing is held afterwards.

use std::time::Duration;

use elasticserve_core::outcome::How;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::backend::header;
use crate::support::client::{Client, completion};
use crate::support::gateway::{Piped, nowhere, on_sockets, settings};
use crate::support::{soon, until};

#[tokio::test]
async fn a_backend_that_cannot_be_reached_is_a_502() {
    let raw = settings(&nowhere().await.to_string(), 1);
    let gateway = elasticserve_gateway::Gateway::start(raw.check().unwrap()).await.unwrap();
    let mut answer = Client::tcp(gateway.data_addr()).await.send(completion("")).await.unwrap();
    // The prober may have found out before this request did.
    assert!(answer.status == 502 || answer.status == 503, "{}", answer.status);
    let code = answer.json().await["error"]["code"].as_str().unwrap().to_owned();
    assert!(code == "backend_failed" || code == "no_backend", "{code}");
    until("the permit is back", || gateway.service().load().1 == [(0, 1)]).await;
    gateway.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_without_a_head_in_time_is_a_504() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| raw.timeouts.head = Some("5s".into()));
    let client = gateway.client().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { client.send(completion("")).await.unwrap() });
    let mut call = backend.call().await;
    let asked = tokio::time::Instant::now();
    let mut answer = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(answer.status, 504);
    let waited = asked.elapsed().as_millis();
    assert!((5_000..5_010).contains(&waited), "{waited} ms");
    assert_eq!(header(&answer.headers, "x-elasticserve-backend"), Some("0"));
    assert_eq!(answer.json().await["error"]["code"], "backend_timeout");
    call.abandoned().await;
    until("the permit is back", || gateway.in_use() == 0).await;
    assert_eq!(gateway.service.totals().released[&How::BackendFailed], 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_ends_with_an_error_event_and_is_never_ended_cleanly() {
    for (before, expected_start) in [
        (&b"data: {\"choices\":[]}\n\n"[..], "data: {\"choices\":[]}\n\ndata: {\"error\":"),
        (b"data: {\"choices\":[]}\n\ndata: {\"cho", "data: {\"choices\":[]}\n\ndata: {\"cho\n\ndata: {\"error\":"),
    ] {
        let (mut gateway, mut backend) = Piped::start(1, |_| {});
        let client = gateway.client().await;
        let (answer, responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
        let mut answer = answer.unwrap();
        responding.chunk(before);
        let mut bytes = answer.chunk().await.unwrap().unwrap().to_vec();
        responding.break_off();
        let (rest, ended) = answer.rest().await;
        bytes.extend(rest);
        let text = String::from_utf8(bytes).unwrap();
        assert!(!ended, "a broken stream must not end cleanly: {text}");
        assert!(text.starts_with(expected_start), "{text}");
        assert!(!text.contains("[DONE]"), "{text}");
        until("the permit is back", || gateway.in_use() == 0).await;
        assert_eq!(gateway.service.totals().released[&How::BackendFailed], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_falls_silent_within_an_answer_is_given_up_after_the_idle_time() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| raw.timeouts.idle = Some("10s".into()));
    let client = gateway.client().await;
    let (answer, mut responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
    let mut answer = answer.unwrap();
    for _ in 0..3 {
        // Gaps below the limit add up to more than it.
        tokio::time::sleep(Duration::from_secs(9)).await;
        responding.event(r#"{"choices":[{"text":"a"}]}"#);
        answer.chunk().await.unwrap().unwrap();
    }
    let silent_since = tokio::time::Instant::now();
    let (bytes, ended) = answer.rest().await;
    assert!(!ended && String::from_utf8(bytes).unwrap().contains("silent for 10 s"));
    let waited = silent_since.elapsed();
    assert!((10_000..10_010).contains(&waited.as_millis()), "{waited:?}");
    responding.abandoned().await;
    until("the permit is back", || gateway.in_use() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_backends_own_error_passes_through_with_its_status_and_body() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    for status in [400, 404, 429, 500, 503] {
        let client = gateway.client().await;
        let (answer, ()) = tokio::join!(client.send(completion("")), async {
            let call = backend.call().await;
            let responding = call.respond(status, &[("content-type", "application/json"), ("retry-after", "7")]);
            responding.chunk(br#"{"error":{"message":"from the engine"}}"#);
            responding.finish();
        });
        let mut answer = answer.unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(header(&answer.headers, "retry-after"), Some("7"));
        assert_eq!(answer.json().await["error"]["message"], "from the engine");
        until("the permit is back", || gateway.in_use() == 0).await;
    }
}

/// Reads one request to the end of its body, which has a `content-length`.
pub(super) async fn read_request(stream: &mut tokio::net::TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            if body.len() >= length {
                return Some(text);
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}";

#[tokio::test]
async fn a_request_that_meets_a_closing_idle_connection_is_sent_once_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let raw = settings(&listener.local_addr().unwrap().to_string(), 4);
    let gateway = elasticserve_gateway::Gateway::start(raw.check().unwrap()).await.unwrap();
    // Answers one completion on each connection, then takes the next request and closes without a word.
    let (tell, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            connections.spawn(async move {
                let mut answered = 0;
                while let Some(request) = read_request(&mut stream).await {
                    if request.starts_with("GET /health") {
                        stream.write_all(ANSWER).await.unwrap();
                        continue;
                    }
                    tell.send(()).unwrap();
                    if answered == 1 {
                        return;
                    }
                    answered += 1;
                    stream.write_all(ANSWER).await.unwrap();
                }
            });
        }
    });
    let mut sent = 0;
    for _ in 0..100 {
        let mut answer = Client::tcp(gateway.data_addr()).await.send(completion("")).await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.rest().await.1);
        sent += 1;
    }
    let mut received = 0;
    while seen.try_recv().is_ok() {
        received += 1;
    }
    // The backend saw more than was sent: some were dropped and sent again, each at most once.
    assert!(received > sent && received <= 2 * sent, "{sent} sent, {received} received");
    gateway.stop().await;
}

#[tokio::test]
async fn a_fresh_connection_that_breaks_is_not_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let raw = settings(&listener.local_addr().unwrap().to_string(), 4);
    let gateway = elasticserve_gateway::Gateway::start(raw.check().unwrap()).await.unwrap();
    let mut server = JoinSet::new();
    let (tell, mut seen) = tokio::sync::mpsc::unbounded_channel();
    server.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if let Some(request) = read_request(&mut stream).await
                && !request.starts_with("GET /health")
            {
                tell.send(()).unwrap();
            }
        }
    });
    let answer = Client::tcp(gateway.data_addr()).await.send(completion("")).await.unwrap();
    assert_eq!(answer.status, 502);
    soon("the backend has seen the request", seen.recv()).await;
    assert!(seen.try_recv().is_err(), "it was sent twice");
    gateway.stop().await;
}

#[tokio::test]
async fn a_backend_that_is_down_makes_the_gateway_unready_and_refuses_with_503() {
    let (gateway, backend) = on_sockets(1, |_| {}).await;
    drop(backend);
    let admin = gateway.admin_addr();
    soon("the prober notices", async {
        loop {
            let answer = Client::tcp(admin).await.send(crate::support::client::get("/readyz")).await.unwrap();
            let mut refused = Client::tcp(gateway.data_addr()).await.send(completion("")).await.unwrap();
            if answer.status == 503 && refused.status == 503 {
                assert_eq!(refused.json().await["error"]["code"], "no_backend");
                assert!(refused.headers.contains_key("retry-after"));
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    gateway.stop().await;
}
