//! More connections than may be (R17).

use std::net::SocketAddr;

use elasticserve_gateway::Gateway;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::backend::{Backend, Responding};
use crate::support::client::{Answer, Client, completion};
use crate::support::gateway::on_sockets;
use crate::support::{soon, until};

const TRIALS: usize = 20;
/// Connections that may be.
const LIMIT: usize = 8;
/// Those that come beyond.
const EXTRA: usize = 20;

async fn start(header_timeout: &str) -> (Gateway, Backend) {
    on_sockets(LIMIT as u32, |raw| {
        raw.limits.connections = Some(LIMIT as u32);
        raw.timeouts.header = Some(header_timeout.into());
    })
    .await
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_and_each_makes_room_by_the_one_that_was_idle_for_longest() {
    let mut trials = JoinSet::new();
    for _ in 0..TRIALS {
        trials.spawn(crowded());
    }
    while let Some(done) = trials.join_next().await {
        done.unwrap();
    }
}

async fn crowded() {
    let (gateway, mut backend) = start("1h").await;
    let (addr, service) = (gateway.data_addr(), gateway.service());
    let mut streams = Vec::new();
    for _ in 0..LIMIT {
        streams.push(raw_stream(addr, &mut backend).await);
    }
    // All of them work, so that nobody has to go.
    refused(addr, EXTRA).await;
    for (stream, responding) in &mut streams {
        beats(stream, responding).await;
    }
    counted(&gateway, EXTRA, 0).await;

    // All but one are done, one after the other, and kept by their clients.
    let (mut working, responding) = streams.remove(0);
    let mut idle = Vec::new();
    for (mut stream, responding) in streams {
        responding.finish();
        read_to(&mut stream, "0\r\n\r\n").await;
        idle.push(stream);
    }
    // What comes is refused, the first of the idle ones goes, and what comes then takes its place, idle itself.
    for evicted in 1..LIMIT {
        refused(addr, 1).await;
        let mut first = idle.remove(0);
        assert_eq!(soon("it is closed", first.read(&mut [0])).await.unwrap(), 0, "nothing more is said");
        until("there is room", || service.connections() == LIMIT - 1).await;
        idle.push(TcpStream::connect(addr).await.unwrap());
        until("it is taken", || service.connections() == LIMIT).await;
        beats(&mut working, &responding).await;
        counted(&gateway, EXTRA + evicted, evicted).await;
    }
    // Nor does one stay over which nothing was ever said.
    refused(addr, 1).await;
    assert_eq!(soon("it is closed", idle.remove(0).read(&mut [0])).await.unwrap(), 0);
    until("there is room", || service.connections() == LIMIT - 1).await;
    let (mut another, second) = raw_stream(addr, &mut backend).await;
    for (stream, responding) in [(&mut working, responding), (&mut another, second)] {
        beats(stream, &responding).await;
        responding.finish();
        read_to(stream, "0\r\n\r\n").await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_over_which_nothing_is_said_is_closed_in_time_and_one_that_works_is_not() {
    let (gateway, mut backend) = start("300ms").await;
    let addr = gateway.data_addr();
    let mut streams = Vec::new();
    for _ in 0..LIMIT / 2 {
        streams.push(stream(addr, &mut backend).await);
    }
    let mut silent = Vec::new();
    for _ in 0..LIMIT / 2 {
        silent.push(TcpStream::connect(addr).await.unwrap());
    }
    for mut stream in silent {
        let mut said = Vec::new();
        soon("a silent connection is closed", stream.read_to_end(&mut said)).await.unwrap();
    }
    // By now the others were open for longer.
    for (mut answer, responding) in streams {
        responding.event("{}");
        assert_eq!(answer.chunk().await.unwrap().unwrap(), b"data: {}\n\n"[..]);
        responding.finish();
        assert!(answer.rest().await.1);
    }
    gateway.stop().await;
}

async fn stream(addr: SocketAddr, backend: &mut Backend) -> (Answer, Responding) {
    let client = Client::tcp(addr).await;
    let (answer, responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
    (answer.unwrap(), responding)
}

/// A stream over a connection that is the test's own.
async fn raw_stream(addr: SocketAddr, backend: &mut Backend) -> (TcpStream, Responding) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let body = r#"{"prompt":"a","stream":true}"#;
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let responding = backend.call().await.stream();
    read_to(&mut stream, "\r\n\r\n").await;
    (stream, responding)
}

/// Reads until what came ends so.
async fn read_to(stream: &mut TcpStream, end: &str) {
    let mut said = Vec::new();
    while !said.ends_with(end.as_bytes()) {
        let read = soon("the answer goes on", stream.read_buf(&mut said)).await.unwrap();
        assert!(read > 0, "the answer ends early: {}", String::from_utf8_lossy(&said));
    }
}

/// A token passes.
async fn beats(stream: &mut TcpStream, responding: &Responding) {
    responding.event("{}");
    read_to(stream, "data: {}\n\n\r\n").await;
}

/// Connections beyond the limit are refused with the reason, and closed.
async fn refused(addr: SocketAddr, count: usize) {
    let mut extra = JoinSet::new();
    for _ in 0..count {
        extra.spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            // It may be closed before this is written, or with it unread, and then ends in a reset behind the answer.
            let _ = stream.write_all(b"GET /nowhere HTTP/1.1\r\nhost: g\r\n\r\n").await;
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said).await;
            String::from_utf8(said).unwrap()
        });
    }
    while let Some(said) = soon("what is too much is refused", extra.join_next()).await {
        let said = said.unwrap();
        assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("too_many_connections"), "{said}");
        assert!(said.contains("\r\nconnection: close\r\n") && said.contains("\r\nretry-after: 1\r\n"), "{said}");
    }
}

async fn counted(gateway: &Gateway, refused: usize, evicted: usize) {
    let lines = [("refused", refused), ("evicted", evicted)]
        .map(|(what, count)| format!("\nelasticserve_{what}_connections_total {count}\n"));
    until("they are counted", || {
        let metrics = gateway.service().metrics().unwrap();
        lines.iter().all(|line| metrics.contains(line))
    })
    .await;
}
