//! The slow endpoint of [`elasticserve_core::slow`] as a real HTTP server on loopback.
//!
//! `GET /` is worked on by its rules: the head and one byte when the delay is over, a second byte, and the
//! end. What is turned away gets 503. Everything else is 404.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use elasticserve_core::slow::{Endpoint, Event, Rules, What};
use elasticserve_core::time::{Span, Tick};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most bytes of a request's head.
const MAX_HEAD: usize = 16 << 10;
/// The most connections at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// The most events kept, far above what one run of the experiment has.
const MAX_EVENTS: usize = 100_000;

const FIRST: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\no";
const SECOND: &[u8] = b"k";
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

/// A slow endpoint that serves. Dropping it ends it.
#[derive(Debug)]
pub struct SlowServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Shared {
    /// When the time of the rules starts; before that it stands at 0.
    origin: OnceLock<Instant>,
    state: Mutex<State>,
    /// The state has changed.
    changed: Notify,
    stop: CancellationToken,
}

#[derive(Debug)]
struct State {
    endpoint: Endpoint,
    /// Who waits for what happens to a request: a few messages each.
    waiters: BTreeMap<u32, mpsc::UnboundedSender<What>>,
    log: Vec<Event>,
    /// Requests without a number of their own.
    unnumbered: u32,
}

impl SlowServer {
    /// Serves on a free port of loopback.
    ///
    /// # Errors
    /// An [`io::Error`] if there is none.
    pub async fn bind(rules: Rules) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let endpoint = Endpoint::new(rules);
        let state = State { endpoint, waiters: BTreeMap::new(), log: Vec::new(), unnumbered: 0 };
        let shared = Arc::new(Shared {
            origin: OnceLock::new(),
            state: Mutex::new(state),
            changed: Notify::new(),
            stop: CancellationToken::new(),
        });
        let tasks = TaskTracker::new();
        tasks.spawn(shared.stop.clone().run_until_cancelled_owned(Arc::clone(&shared).drive()));
        tasks.spawn(shared.stop.clone().run_until_cancelled_owned(accept(
            listener,
            Arc::clone(&shared),
            tasks.clone(),
        )));
        Ok(Self { addr, shared, tasks })
    }

    /// Where it serves.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets when the time of the rules starts; only the first call counts.
    pub fn starts_at(&self, origin: Instant) {
        // It is set already: then that is what counts.
        let _ = self.shared.origin.set(origin);
    }

    /// Ends it and gives all that happened, in order of time.
    pub async fn shutdown(&self) -> Vec<Event> {
        self.shared.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        std::mem::take(&mut self.shared.lock().log)
    }
}

impl Drop for SlowServer {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Tick {
        let passed = self.origin.get().map_or(Duration::ZERO, |o| Instant::now().saturating_duration_since(*o));
        Tick::ZERO + Span::from_std(passed)
    }

    /// Tells what happens when it happens.
    async fn drive(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            let wake = {
                let mut state = self.lock();
                state.tell(self.now());
                state.endpoint.next_wake()
            };
            match wake.and_then(|wake| Some(*self.origin.get()? + Duration::from_nanos(wake.as_nanos()))) {
                Some(wake) => tokio::select! {
                    () = tokio::time::sleep_until(wake.into()) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    /// Takes a request in; what happens to it comes through the channel.
    fn arrive(self: &Arc<Self>, number: Option<u32>) -> (Open, mpsc::UnboundedReceiver<What>) {
        let (tell, told) = mpsc::unbounded_channel();
        let mut state = self.lock();
        let number = number.filter(|n| !state.waiters.contains_key(n)).unwrap_or_else(|| state.fresh_number());
        state.waiters.insert(number, tell);
        let now = self.now();
        state.endpoint.arrive(now, number);
        state.tell(now);
        drop(state);
        self.changed.notify_one();
        (Open { shared: Arc::clone(self), number }, told)
    }
}

impl State {
    fn tell(&mut self, now: Tick) {
        while let Some(event) = self.endpoint.poll(now) {
            if self.log.len() < MAX_EVENTS {
                self.log.push(event);
            }
            if let Some(waiter) = self.waiters.get(&event.request) {
                // Its connection may be gone.
                let _ = waiter.send(event.what);
            }
        }
    }

    /// A number from the far end, where plans do not reach.
    fn fresh_number(&mut self) -> u32 {
        self.unnumbered += 1;
        u32::MAX - self.unnumbered
    }
}

/// A request that has not ended; dropped before that, its client has left.
struct Open {
    shared: Arc<Shared>,
    number: u32,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.waiters.remove(&self.number);
        if state.endpoint.holds(self.number) {
            let now = self.shared.now();
            state.endpoint.leave(now, self.number);
            state.tell(now);
            self.shared.changed.notify_one();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, tasks: TaskTracker) {
    let places = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = serve(stream, Arc::clone(&shared));
                let serving = shared.stop.clone().run_until_cancelled_owned(serving);
                tasks.spawn(async move {
                    // How a connection ends concerns its client only.
                    let _ = serving.await;
                    drop(place);
                });
            }
            // Out of descriptors, say: some will be free again.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut bytes).await? {
        if !head.starts_with("GET / ") {
            stream.write_all(NOT_FOUND).await?;
            continue;
        }
        let (open, mut told) = shared.arrive(number(&head));
        loop {
            let what = tokio::select! {
                what = told.recv() => what,
                () = has_left(&stream) => return Ok(()),
            };
            let Some(what) = what else { return Ok(()) };
            match what {
                What::Received | What::Started => {}
                What::FirstByte => stream.write_all(FIRST).await?,
                What::Rejected => {
                    stream.write_all(FULL).await?;
                    break;
                }
                What::Finished => {
                    stream.write_all(SECOND).await?;
                    break;
                }
                What::Left => return Ok(()),
            }
        }
        drop(open);
    }
    Ok(())
}

/// Waits until the client has closed the connection.
async fn has_left(stream: &TcpStream) {
    if let Ok(1..) = stream.peek(&mut [0]).await {
        // It has sent more already, which is read later; whether it leaves is seen then.
        std::future::pending::<()>().await;
    }
}

/// The next request's head; `None` when the client has closed the connection. Requests have no body here.
async fn read_head(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Option<String>> {
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            bytes.drain(..end + 4);
            return Ok(Some(head));
        }
        if bytes.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if stream.read_buf(bytes).await? == 0 {
            return Ok(None);
        }
    }
}

/// The number at the end of the request id: its place in the client's plan.
fn number(head: &str) -> Option<u32> {
    let id = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-request-id").then_some(value)
    })?;
    id.trim().rsplit('-').next()?.parse().ok()
}
