//! Every terminal state, each against a server that brings it about.

use std::net::TcpListener;

use elasticserve_core::ledger::{CountSource, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Span;
use elasticserve_load::{Endpoint, LoadConfig};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::server::{Act, STREAM, Server, answer, chunk, end, event, finish, head, token, whole};
use super::{at_once, config, ended, states};

/// Runs one request for each script and gives the rows in order.
async fn rows_of(scripts: Vec<Vec<Act>>) -> Vec<Row> {
    let count = scripts.len();
    let server = Server::start(move |request| scripts[request.index()].clone()).await;
    ended(&config(&server), &at_once(count)).await.1
}

fn scripts(cases: &[(Terminal, Vec<Act>)]) -> Vec<Vec<Act>> {
    cases.iter().map(|(_, script)| script.clone()).collect()
}

/// A streamed answer that begins well.
fn begun(rest: Vec<Act>) -> Vec<Act> {
    [vec![head("200 OK", STREAM), token()], rest].concat()
}

#[tokio::test]
async fn each_way_to_break_an_answer_ends_in_a_state_of_its_own() {
    use Terminal::*;
    let done = || event("[DONE]");
    let cases = [
        (Completed, answer()),
        (Completed, begun(vec![done(), end()])),
        (Rejected, whole("429 Too Many Requests", "", "")),
        (Rejected, whole("503 Service Unavailable", "", "busy")),
        (HttpError, whole("500 Internal Server Error", "", "")),
        (HttpError, whole("302 Found", "location: /elsewhere\r\n", "")),
        (StreamError, begun(vec![event(r#"{"error":{"message":"out of memory"}}"#), Act::Close])),
        (StreamError, whole("200 OK", "content-type: application/json\r\n", r#"{"error":"out of memory"}"#)),
        (Truncated, begun(vec![end()])),
        (Truncated, begun(vec![Act::Close])),
        (Truncated, begun(vec![Act::Reset])),
        (Truncated, begun(vec![done(), Act::Close])),
        (Truncated, vec![Act::Reset]),
        (Truncated, vec![Act::Send("HTTP/1.1 200 OK\r\ncontent-ty".into()), Act::Close]),
        (
            NoContent,
            vec![
                head("200 OK", STREAM),
                event(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#),
                done(),
                end(),
            ],
        ),
        (LengthShortfall, begun(finish(1))),
        (ProtocolError, vec![Act::Send("SSH-2.0-OpenSSH_9.6\r\n\r\n".into()), Act::Hang]),
        (ProtocolError, begun(vec![event("<html>"), Act::Hang])),
        (ProtocolError, begun(vec![Act::Send("zz\r\n".into()), Act::Hang])),
        (ProtocolError, vec![Act::Send(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(70_000))), Act::Hang]),
    ];
    let rows = rows_of(scripts(&cases)).await;
    for ((expected, _), row) in cases.iter().zip(&rows) {
        assert_eq!(row.state, *expected, "{row:?}");
        assert!(row.end >= row.send_started && row.send_started.is_some(), "{row:?}");
        assert!(row.error.is_some() || matches!(row.state, Completed | Rejected | NoContent), "{row:?}");
    }
    assert_eq!(rows[6].error.as_deref(), Some("out of memory"));
}

#[tokio::test]
async fn each_limit_on_time_is_told_apart() {
    // One limit is short, all others are an hour.
    let short = Span::from_millis(80);
    let server = Server::start(|_| begun(vec![Act::Hang])).await;
    let silent = Server::start(|_| vec![head("200 OK", STREAM), Act::Hang]).await;
    for (server, state) in
        [(&silent, Terminal::TimeoutTtft), (&server, Terminal::TimeoutIdle), (&server, Terminal::TimeoutTotal)]
    {
        let mut config = config(server);
        match state {
            Terminal::TimeoutTtft => config.timeouts.ttft = short,
            Terminal::TimeoutIdle => config.timeouts.idle = short,
            _ => config.timeouts.total = short,
        }
        let (_, rows) = ended(&config, &at_once(2)).await;
        assert_eq!(states(&rows), [state; 2]);
        // A timeout is a lower bound of the latency, and says so by its end.
        assert!(rows.iter().all(|row| row.end.unwrap().since(row.send_started.unwrap()) >= short));
    }
}

#[tokio::test]
async fn a_server_that_does_not_accept_connections_is_a_connect_timeout() {
    // Its queue of connections is full, and nobody takes one from it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut others = JoinSet::new();
    for _ in 0..64 {
        others.spawn(async move {
            let _held = TcpStream::connect(addr).await;
            std::future::pending::<()>().await;
        });
    }
    tokio::task::yield_now().await;
    let server = Server::start(|_| answer()).await;
    let mut config = LoadConfig { url: format!("http://{addr}").parse().unwrap(), ..config(&server) };
    config.timeouts.connect = Span::from_millis(100);
    let (manifest, rows) = ended(&config, &at_once(2)).await;
    assert_eq!(states(&rows), [Terminal::TimeoutConnect; 2]);
    assert!(rows.iter().all(|row| row.connected.is_none() && row.send_started.is_some()));
    assert_eq!(manifest.end.unwrap().connections, 0);
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_is_refused() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::start(|_| answer()).await;
    let config = LoadConfig { url: format!("http://{addr}").parse().unwrap(), ..config(&server) };
    let (_, rows) = ended(&config, &at_once(5)).await;
    assert_eq!(states(&rows), [Terminal::Refused; 5]);
    assert!(rows.iter().all(|row| row.error.is_some() && row.end.is_some()));
}

#[tokio::test]
async fn every_time_of_a_whole_answer_is_recorded_apart_and_in_order() {
    let extra =
        format!("{STREAM}x-elasticserve-queue-ms: 12.5\r\nx-elasticserve-backend: b1\r\nx-request-id: theirs\r\n");
    let reasoning = event(r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#);
    let role = event(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#);
    let script =
        [vec![head("200 OK", &extra), chunk(": ping\n\n"), role, reasoning, token(), token(), token()], finish(3)];
    let row = rows_of(vec![script.concat()]).await.remove(0);
    assert_eq!(row.state, Terminal::Completed);
    let times = [
        Some(row.planned),
        row.send_started,
        row.connected,
        row.request_written,
        row.first_byte,
        row.head,
        row.first_event,
        row.first_reasoning,
        row.first_content,
        row.last_content,
        row.end,
    ];
    assert!(times.iter().all(Option::is_some), "{row:?}");
    assert!(times.is_sorted(), "{row:?}");
    assert_eq!((row.gaps.len(), row.output_tokens, row.output_tokens_from), (2, Some(3), Some(CountSource::Usage)));
    assert_eq!(row.gaps.iter().copied().sum::<Span>(), row.last_content.unwrap().since(row.first_content.unwrap()));
    assert_eq!((row.queue, row.backend.as_deref()), (Some(Span::from_nanos(12_500_000)), Some("b1")));
    assert_eq!((row.request_id.as_deref(), row.retry_after, row.cached_tokens), (Some("theirs"), None, None));
}

#[tokio::test]
async fn a_rejection_keeps_the_servers_reason_and_advice() {
    let body = r#"{"error":{"message":"try later","type":"overloaded","code":"queue_full"}}"#;
    let rows = rows_of(vec![
        whole("429 Too Many Requests", "retry-after: 2\r\nretry-after-ms: 1500\r\n", body),
        whole("503 Service Unavailable", "x-elasticserve-reason: draining\r\nretry-after: 2\r\n", body),
    ])
    .await;
    assert_eq!((rows[0].reason.as_deref(), rows[0].retry_after), (Some("queue_full"), Some(Span::from_millis(1500))));
    assert_eq!((rows[1].reason.as_deref(), rows[1].retry_after), (Some("draining"), Some(Span::from_secs(2))));
    assert_eq!((rows[0].status, rows[0].error.as_deref(), rows[0].first_content), (Some(429), Some("try later"), None));
}

#[tokio::test]
async fn answers_that_are_not_streamed_and_chats_are_read_too() {
    let body = r#"{"choices":[{"message":{"content":"hi there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    let server = Server::start(|_| whole("200 OK", "content-type: application/json\r\n", body)).await;
    let config = LoadConfig { endpoint: Endpoint::Chat, streaming: false, ..config(&server) };
    let (_, rows) = ended(&config, &at_once(1)).await;
    assert_eq!(states(&rows), [Terminal::Completed]);
    assert_eq!((rows[0].output_tokens, rows[0].input_tokens, rows[0].tpot()), (Some(2), Some(9), None));
    let request = &server.received()[0];
    assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1"));
    assert_eq!((request.json()["stream"].clone(), request.json().get("stream_options")), (false.into(), None));
}
