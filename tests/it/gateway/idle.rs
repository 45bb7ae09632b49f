//! Requests that meet a backend's connection at the moment when the backend closes it as idle (R12).

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use elasticserve_core::rng::{Random, Stream};
use elasticserve_gateway::{Dial, DialFuture, Gateway};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::failures::read_request;
use crate::support::client::{Client, completion};
use crate::support::gateway::{Piped, settings};
use crate::support::{PATIENCE, soon};

/// Requests in all.
const TRIALS: usize = 5_000;
/// After which the backend closes a connection; requests come a tenth earlier to a tenth later.
const IDLE: Duration = Duration::from_millis(40);
/// Gateways, each with a backend of its own and so many clients, which send at the same time.
const LANES: [usize; 16] = [1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 4];

/// What the backends saw, by request id.
#[derive(Default)]
struct Seen {
    /// How often a request was read, and how often it was answered.
    requests: BTreeMap<String, (u32, u32)>,
    /// Requests that had come when their connection was closed, and got no answer.
    missed: u32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_around_the_idle_close_of_their_backend_are_all_answered_and_none_is_done_twice() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let rounds = TRIALS.div_ceil(LANES.iter().sum());
    let mut lanes = JoinSet::new();
    for (lane, clients) in LANES.into_iter().enumerate() {
        lanes.spawn(drive(lane, clients, rounds, Arc::clone(&seen)));
    }
    let mut failed = Vec::new();
    while let Some(lane) = lanes.join_next().await {
        failed.extend(lane.unwrap());
    }
    let seen = seen.lock().unwrap();
    assert!(failed.is_empty(), "{} of {TRIALS} clients saw an error: {:?}", failed.len(), failed.first());
    assert!(seen.requests.len() >= TRIALS);
    for (id, (read, answered)) in &seen.requests {
        assert!(*answered == 1 && *read <= 2, "{id} was read {read} times and answered {answered} times");
    }
    assert!(seen.missed > 0, "no request met a connection that was being closed");
}

/// Sends rounds of requests to a gateway of its own; what went wrong.
async fn drive(lane: usize, clients: usize, rounds: usize, seen: Arc<Mutex<Seen>>) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut raw = settings(&listener.local_addr().unwrap().to_string(), clients as u32);
    raw.health.interval = Some("1h".into());
    let mut backend = JoinSet::new();
    backend.spawn(serve(listener, seen));
    let gateway = Gateway::start(raw.check().unwrap()).await.unwrap();
    let addr = gateway.data_addr();
    let mut random = Random::new(lane as u64, Stream::Test);
    let mut failed = Vec::new();
    for round in 0..rounds {
        let mut asking = JoinSet::new();
        for client in 0..clients {
            let id = format!("{lane}-{round}-{client}");
            let pause = Duration::from_micros(random.between(900, 1_100) * IDLE.as_micros() as u64 / 1_000);
            asking.spawn(async move {
                tokio::time::sleep(pause).await;
                ask(addr, &id).await
            });
        }
        while let Some(asked) = soon("a request ends", asking.join_next()).await {
            failed.extend(asked.unwrap().err());
        }
    }
    gateway.stop().await;
    failed
}

async fn ask(addr: SocketAddr, id: &str) -> Result<(), String> {
    let mut request = completion("");
    request.headers_mut().insert("x-request-id", id.parse().unwrap());
    let mut answer = Client::tcp(addr).await.send(request).await.map_err(|e| format!("{id}: {e}"))?;
    let (bytes, whole) = answer.rest().await;
    let text = String::from_utf8_lossy(&bytes);
    match answer.status.as_u16() {
        200 if whole && text == id => Ok(()),
        status => Err(format!("{id}: {status} {text}")),
    }
}

/// A backend that answers each request with its id.
async fn serve(listener: TcpListener, seen: Arc<Mutex<Seen>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        connections.spawn(answer_all(stream, Arc::clone(&seen)));
    }
}

async fn answer_all(mut stream: TcpStream, seen: Arc<Mutex<Seen>>) {
    for carried in 0.. {
        // As servers do it: who is silent for so long after an answer is closed, whatever may be on its way.
        let idle = if carried == 0 { PATIENCE } else { IDLE };
        if tokio::time::timeout(idle, stream.peek(&mut [0])).await.is_err() {
            // By the system, which knows of bytes before the runtime does.
            let mut closing = stream.into_std().unwrap();
            seen.lock().unwrap().missed += u32::from(closing.read(&mut [0]).is_ok_and(|n| n > 0));
            return;
        }
        let Some(request) = read_request(&mut stream).await else { return };
        let id = request.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap_or_default().to_owned();
        if !id.is_empty() {
            seen.lock().unwrap().requests.entry(id.clone()).or_default().0 += 1;
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{id}", id.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        if !id.is_empty() {
            seen.lock().unwrap().requests.entry(id).or_default().1 += 1;
        }
    }
}

/// Counts connections.
struct Counting {
    dial: Arc<dyn Dial>,
    count: Arc<AtomicUsize>,
}

impl Dial for Counting {
    fn dial(&self, authority: &http::uri::Authority) -> DialFuture {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.dial.dial(authority)
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_time_a_request_goes_over_a_new_connection_though_others_are_idle() {
    let count = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    let (mut gateway, mut backend) = Piped::through(3, |dial| Arc::new(Counting { dial, count: counting }));
    let mut asking: Vec<_> = (0..3).map(|_| gateway.send(completion(""))).collect();
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(backend.call().await);
    }
    calls.into_iter().for_each(|call| call.json("{}"));
    for asked in asking.drain(..) {
        assert!(asked.answer().await.rest().await.1);
    }
    // The clock stands still until there is nothing to do, so the connections are idle then.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = count.load(Ordering::Relaxed);
    let asked = gateway.send(completion(""));
    // It came over one of the three, and is closed without a byte.
    drop(backend.call().await);
    backend.call().await.json("{}");
    assert_eq!(asked.answer().await.status, 200);
    assert_eq!(count.load(Ordering::Relaxed), before + 1);
    // Where the new one breaks too, that is the end.
    let asked = gateway.send(completion(""));
    drop(backend.call().await);
    drop(backend.call().await);
    assert_eq!(asked.answer().await.status, 502);
    assert!(!backend.has_request());
}

#[tokio::test]
async fn a_request_of_which_a_byte_was_answered_is_not_sent_again_over_whatever_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut raw = settings(&listener.local_addr().unwrap().to_string(), 1);
    raw.health.interval = Some("1h".into());
    let (tell, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            connections.spawn(async move {
                let mut answered = 0;
                while let Some(request) = read_request(&mut stream).await {
                    let probe = request.starts_with("GET ");
                    tell.send(probe).unwrap();
                    if answered == 1 && !probe {
                        stream.write_all(b"H").await.unwrap();
                        return;
                    }
                    answered += u32::from(!probe);
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                }
            });
        }
    });
    let gateway = Gateway::start(raw.check().unwrap()).await.unwrap();
    assert_eq!(soon("the probe comes", seen.recv()).await, Some(true));
    for status in [200, 502] {
        let answer = Client::tcp(gateway.data_addr()).await.send(completion("")).await.unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(soon("the backend has seen it", seen.recv()).await, Some(false));
    }
    assert!(seen.try_recv().is_err(), "it was sent twice");
    gateway.stop().await;
}
