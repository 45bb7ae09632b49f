//! Clients that hardly read, beside others that do (R13).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::failures::read_request;
use crate::support::backend::{Backend, Responding};
use crate::support::client::{Answer, Client, post};
use crate::support::process::Process;
use crate::support::soon;

const SLOW: u64 = 64;
const HEALTHY: usize = 8;
/// What each slow client is sent, in bytes.
const STREAM: usize = 10 << 20;
/// Tokens of each healthy stream in each of two measurements.
const TOKENS: usize = 120;
/// A gap that nobody notices, however much shorter the others are.
const SHORT: Duration = Duration::from_millis(25);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_read_a_byte_a_second_cost_little_memory_hold_nobody_up_and_are_cut_in_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flood = listener.local_addr().unwrap();
    let (mut tasks, sent) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    tasks.spawn(serve(listener, Arc::clone(&sent)));
    let (mut backend, addr) = Backend::on_tcp().await;
    let text = format!(
        "[[pools]]\nname = 'slow'\nmodels = ['slow']\n[[pools]]\nname = 'm'\nmodels = ['m']\n\
         [[backends]]\nurl = 'http://{flood}'\npool = 'slow'\npermits = {SLOW}\n\
         [[backends]]\nurl = 'http://{addr}'\npool = 'm'\npermits = {HEALTHY}\n[timeouts]\nwrite = '12s'\n"
    );
    let gateway = Process::start(&text, &[], &[]).await;
    let mut healthy = Vec::new();
    for _ in 0..HEALTHY {
        healthy.push(begin(&mut backend, gateway.data).await);
    }
    let alone = gaps(&mut healthy).await;

    let before = gateway.resident();
    for _ in 0..SLOW {
        tasks.spawn(read_slowly(gateway.data));
    }
    soon("nobody takes any more of the slow streams", settled(&sent)).await;
    assert!(sent.load(Ordering::Relaxed) < SLOW * STREAM as u64, "a stream went through whole: nobody was slow");
    let each = gateway.resident().saturating_sub(before) / SLOW;
    assert!(each <= 1 << 20, "{each} bytes for each slow stream");

    let beside = gaps(&mut healthy).await;
    let cut = "elasticserve_stalled_clients_total";
    assert_eq!(gateway.metric(cut).await, Some(0.0), "the slow ones were there all the time");
    // At most one gap in a hundred may be longer than twice the longest of ninety-nine in a hundred before.
    let limit = (2 * alone[alone.len() * 99 / 100]).max(SHORT);
    let longer = beside.iter().filter(|gap| **gap > limit).count();
    assert!(longer <= beside.len() / 100, "{longer} of {} gaps are longer than {limit:?}", beside.len());

    gateway.until_metric(cut, SLOW as f64).await;
    gateway.until_metric(&format!("elasticserve_permits_in_use{{pool=\"slow\",backend=\"{flood}\"}}"), 0.0).await;
    for (answer, responding) in &mut healthy {
        responding.event("[DONE]");
        answer.chunk().await.unwrap().unwrap();
    }
}

/// A stream under way, from both ends.
async fn begin(backend: &mut Backend, addr: SocketAddr) -> (Answer, Responding) {
    let request = post("/v1/completions", r#"{"model":"m","prompt":[1],"stream":true}"#);
    let (answer, responding) = tokio::join!(async { Client::tcp(addr).await.send(request).await.unwrap() }, async {
        backend.call().await.stream()
    });
    (answer, responding)
}

/// How long each token takes through the gateway, where the next one is sent when the one before has come; sorted.
async fn gaps(streams: &mut [(Answer, Responding)]) -> Vec<Duration> {
    let mut gaps = Vec::new();
    for token in 0..TOKENS {
        for (answer, responding) in &mut *streams {
            let sent = Instant::now();
            responding.event(&token.to_string());
            let bytes = answer.chunk().await.unwrap().unwrap();
            assert_eq!(bytes, format!("data: {token}\n\n"));
            gaps.push(sent.elapsed());
        }
    }
    gaps.sort_unstable();
    gaps
}

/// Returns once a count has stayed the same for a while.
async fn settled(count: &AtomicU64) {
    let (mut last, mut same) = (0, 0);
    while same < 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = count.load(Ordering::Relaxed);
        same = if now == last && now > 0 { same + 1 } else { 0 };
        last = now;
    }
}

/// Asks for a stream and reads a byte of it each second, with little room in its socket.
async fn read_slowly(addr: SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(addr).await.unwrap();
    let body = r#"{"model":"slow","prompt":"a","stream":true}"#;
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).await.unwrap();
    while stream.read_exact(&mut [0]).await.is_ok() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A backend that sends as much as is taken, and counts it.
async fn serve(listener: TcpListener, sent: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(flood(stream, Arc::clone(&sent)));
    }
}

async fn flood(mut stream: TcpStream, sent: Arc<AtomicU64>) {
    while let Some(request) = read_request(&mut stream).await {
        if request.starts_with("GET ") {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            continue;
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let event = format!("data: {{\"choices\":[{{\"text\":\"{}\"}}]}}\n\n", "x".repeat(4_000));
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        for _ in 0..STREAM / chunk.len() {
            if stream.write_all(chunk.as_bytes()).await.is_err() {
                return;
            }
            sent.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
        let _ = stream.write_all(b"0\r\n\r\n").await;
    }
}
