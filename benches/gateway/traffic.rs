//! Clients: an open loop for latency, a closed loop for CPU, streams that stay open for memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

#[derive(Copy, Clone)]
pub(crate) enum Kind {
    Plain,
    Stream,
    PacedStream,
    OpenStream,
}

impl Kind {
    fn request(self) -> Request<Full<Bytes>> {
        let body = match self {
            Self::Plain => r#"{"model":"m","prompt":"p","max_tokens":16}"#,
            Self::Stream => r#"{"model":"m","prompt":"p","max_tokens":16,"stream":true}"#,
            Self::PacedStream => r#"{"model":"m","prompt":"paced","max_tokens":16,"stream":true}"#,
            Self::OpenStream => r#"{"model":"m","prompt":"open","max_tokens":16,"stream":true}"#,
        };
        let request =
            Request::post("/v1/completions").header("host", "bench").header("content-type", "application/json");
        request.body(Full::from(body)).unwrap()
    }
}

/// Times in seconds.
#[derive(Default)]
pub(crate) struct Latencies {
    pub(crate) ttft: Vec<f64>,
    gaps: Vec<f64>,
}

impl Latencies {
    pub(crate) fn extend(&mut self, other: Self) {
        self.ttft.extend(other.ttft);
        self.gaps.extend(other.gaps);
    }

    /// Milliseconds.
    pub(crate) fn ttft(&mut self, p: f64) -> f64 {
        quantile(&mut self.ttft, p) * 1e3
    }

    /// Milliseconds.
    pub(crate) fn gap(&mut self, p: f64) -> f64 {
        quantile(&mut self.gaps, p) * 1e3
    }
}

fn quantile(values: &mut [f64], p: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * p).round() as usize]
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

async fn connect(addr: SocketAddr) -> Connection {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        let _ = connection.await;
    });
    Connection { sender, _driver: driver }
}

/// Sends at a fixed rate over as many connections as it takes, whatever the server does.
pub(crate) async fn open_loop(addr: SocketAddr, rate: u32, time: Duration, kind: Kind) -> Latencies {
    let idle: Arc<Mutex<Vec<Connection>>> = Arc::default();
    let all: Arc<Mutex<Latencies>> = Arc::default();
    let mut tasks = JoinSet::new();
    let start = Instant::now() + Duration::from_millis(20);
    let count = (time.as_secs_f64() * f64::from(rate)) as u32;
    for i in 0..count {
        sleep_until(start + Duration::from_secs_f64(f64::from(i) / f64::from(rate))).await;
        let (idle, all) = (Arc::clone(&idle), Arc::clone(&all));
        tasks.spawn(async move {
            let pooled = idle.lock().await.pop();
            let mut connection = match pooled {
                Some(connection) => connection,
                None => connect(addr).await,
            };
            let sent = Instant::now();
            let mut body = connection.sender.send_request(kind.request()).await.unwrap().into_body();
            let mut times = Vec::new();
            while let Some(frame) = body.frame().await {
                frame.unwrap();
                times.push(Instant::now());
            }
            let mut all = all.lock().await;
            all.ttft.push((times[0] - sent).as_secs_f64());
            all.gaps.extend(times.windows(2).map(|w| (w[1] - w[0]).as_secs_f64()));
            drop(all);
            idle.lock().await.push(connection);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    Arc::into_inner(all).unwrap().into_inner()
}

/// Sends `requests` in all, each client its next one after its last answer; the time it took.
pub(crate) async fn closed_loop(addr: SocketAddr, clients: usize, requests: usize, kind: Kind) -> Duration {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        tasks.spawn(async move {
            let mut connection = connect(addr).await;
            for _ in 0..requests / clients {
                let response = connection.sender.send_request(kind.request()).await.unwrap();
                assert!(response.status().is_success());
                response.into_body().collect().await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    started.elapsed()
}

/// Streams that have had their first event and stay open while the values live.
pub(crate) struct OpenStream {
    _connection: Connection,
    _body: Incoming,
}

pub(crate) async fn open_streams(addr: SocketAddr, count: usize) -> Vec<OpenStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut connection = connect(addr).await;
        let mut body = connection.sender.send_request(Kind::OpenStream.request()).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        streams.push(OpenStream { _connection: connection, _body: body });
    }
    streams
}
