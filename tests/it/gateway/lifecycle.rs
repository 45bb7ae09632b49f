//! Drain and stop.

use std::time::Duration;

use elasticserve_gateway::Drained;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::backend::{Backend, header};
use crate::support::client::{Client, completion, get};
use crate::support::gateway::on_sockets;
use crate::support::process::Process;
use crate::support::{soon, until};

#[tokio::test]
async fn a_drain_lets_streams_finish_and_refuses_what_waits_and_what_comes() {
    let (gateway, mut backend) = on_sockets(1, |_| {}).await;
    let addr = gateway.data_addr();
    let service = gateway.service().clone();
    let mut running = JoinSet::new();
    running.spawn(async move { Client::tcp(addr).await.send(completion("")).await.unwrap().rest().await });
    let responding = backend.call().await.stream();
    responding.event(r#"{"choices":[{"text":"a"}]}"#);
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { Client::tcp(addr).await.send(completion("")).await.unwrap() });
    until("one request waits", || service.load().0 == 1).await;

    let mut stopping = JoinSet::new();
    stopping.spawn(gateway.stop());
    for refused in
        [waiting.join_next().await.unwrap().unwrap(), Client::tcp(addr).await.send(completion("")).await.unwrap()]
    {
        let mut refused = refused;
        assert_eq!(refused.status, 503);
        assert_eq!(header(&refused.headers, "connection"), Some("close"));
        assert_eq!(refused.json().await["error"]["code"], "draining");
    }
    for _ in 0..50 {
        responding.event(r#"{"choices":[{"text":"b"}]}"#);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    responding.finish();
    let (bytes, ended) = running.join_next().await.unwrap().unwrap();
    assert!(ended && bytes.windows(5).filter(|w| w == b"data:").count() == 51);
    assert_eq!(stopping.join_next().await.unwrap().unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn a_drain_that_takes_too_long_cuts_what_is_left() {
    let (gateway, mut backend) = on_sockets(1, |raw| raw.timeouts.drain = Some("100ms".into())).await;
    let addr = gateway.data_addr();
    let mut running = JoinSet::new();
    running.spawn(async move { Client::tcp(addr).await.send(completion("")).await.unwrap().rest().await });
    let mut responding = backend.call().await.stream();
    responding.event("{}");
    let service = gateway.service().clone();
    assert_eq!(gateway.stop().await, Drained { cut: 1 });
    assert!(!running.join_next().await.unwrap().unwrap().1);
    responding.abandoned().await;
    until("the permit is back", || service.load().1 == [(0, 1)]).await;
}

/// R14, on a process, 20 times: 50 live streams and 20 that wait.
#[tokio::test]
async fn a_signal_ends_a_process_with_every_stream_whole_and_everything_else_told() {
    for _ in 0..20 {
        let (mut backend, addr) = Backend::on_tcp().await;
        let text = format!("[[backends]]\nurl = 'http://{addr}'\npermits = 50\n");
        let gateway = Process::start(&text, &[], &[]).await;
        let (data, mut running, mut streams) = (gateway.data, JoinSet::new(), Vec::new());
        for _ in 0..50 {
            running.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
            streams.push(backend.call().await.stream());
        }
        let mut waiting = JoinSet::new();
        for _ in 0..20 {
            waiting.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().status });
        }
        gateway.until_metric("elasticserve_queue_depth{pool=\"default\"}", 20.0).await;
        gateway.signal("TERM").await;
        while let Some(refused) = soon("what waits is refused", waiting.join_next()).await {
            assert_eq!(refused.unwrap(), 503);
        }
        assert_eq!(gateway.get("/readyz").await, (503, "draining\n".to_owned()));
        let mut late = Client::tcp(data).await.send(completion("")).await.unwrap();
        assert_eq!((late.status.as_u16(), header(&late.headers, "connection")), (503, Some("close")));
        assert_eq!(late.json().await["error"]["code"], "draining");
        for stream in streams {
            (0..5).for_each(|i| stream.event(&i.to_string()));
            stream.finish();
        }
        while let Some(whole) = soon("a stream ends", running.join_next()).await {
            let (bytes, ended) = whole.unwrap();
            assert!(ended && bytes.ends_with(b"data: 4\n\n"));
        }
        assert!(gateway.ended().await.0.success());
    }
}

#[tokio::test]
async fn a_second_signal_ends_a_process_at_once() {
    let (mut backend, addr) = Backend::on_tcp().await;
    let gateway = Process::start(&format!("[[backends]]\nurl = 'http://{addr}'\n"), &[], &[]).await;
    let data = gateway.data;
    let mut running = JoinSet::new();
    running.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
    let streaming = backend.call().await.stream();
    streaming.event("{}");
    gateway.signal("TERM").await;
    soon("it drains", async { while gateway.get("/readyz").await.0 != 503 {} }).await;
    gateway.signal("INT").await;
    // The drain alone would take 30 s, which is longer than a test waits.
    assert!(gateway.ended().await.0.success());
    assert!(!soon("the stream is cut", running.join_next()).await.unwrap().unwrap().1);
}

#[tokio::test]
async fn before_a_delayed_drain_it_is_not_ready_but_refuses_nothing() {
    let (gateway, mut backend) = on_sockets(1, |raw| raw.timeouts.drain_delay = Some("1h".into())).await;
    let (data, admin) = (gateway.data_addr(), gateway.admin_addr());
    let mut stopping = JoinSet::new();
    stopping.spawn(gateway.stop());
    let ready = async || Client::tcp(admin).await.send(get("/readyz")).await.unwrap().status;
    soon("it says that it goes", async { while ready().await != 503 {} }).await;
    let mut asking = JoinSet::new();
    asking.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().status });
    backend.call().await.json("{}");
    assert_eq!(soon("it is answered", asking.join_next()).await.unwrap().unwrap(), 200);
}

/// R13 in small: what is left of 64 clients that read nothing beside one that does.
#[tokio::test]
async fn clients_that_read_nothing_are_cut_after_a_time_and_their_seats_are_free_again() {
    const STALLED: usize = 8;
    let (gateway, mut backend) = on_sockets(STALLED as u32 + 1, |raw| raw.timeouts.write = Some("200ms".into())).await;
    let data = gateway.data_addr();
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        stalled.push((unread(data).await, backend.call().await.stream()));
    }
    let mut healthy = JoinSet::new();
    healthy.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
    let streaming = backend.call().await.stream();
    let piece = vec![b'x'; 1 << 20];
    for (_, responding) in &stalled {
        // More than any socket's buffer holds.
        (0..16).for_each(|_| responding.chunk(&piece));
    }
    let service = gateway.service().clone();
    until("the seats of those that read nothing are free", || {
        streaming.event("{}");
        service.load().1 == [(1, STALLED as u32 + 1)]
    })
    .await;
    streaming.finish();
    assert!(soon("the healthy stream ends", healthy.join_next()).await.unwrap().unwrap().1);
    let mut metrics = Client::tcp(gateway.admin_addr()).await.send(get("/metrics")).await.unwrap();
    let text = String::from_utf8(metrics.rest().await.0).unwrap();
    assert!(text.contains(&format!("elasticserve_stalled_clients_total {STALLED}\n")), "{text}");
}

/// A connection over which a request goes out and nothing is read.
async fn unread(addr: std::net::SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let body = r#"{"prompt":"a","stream":true}"#;
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).await.unwrap();
    stream
}
