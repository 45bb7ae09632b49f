//! Connections: made here one by one, kept in a small pool, and stamped where the socket moves bytes.
//!
//! An exchange drives its own connection, so nothing runs between the socket and the clock but the
//! exchange itself. A connection in the pool is driven by nobody; it is looked at before it is used
//! again, and one that the server has closed is dropped then.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use elasticserve_core::time::Tick;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::clock::Clock;
use crate::request::RequestBody;
use crate::tls::Tls;

/// The longest that a connection waits for its next request. Common servers close after 5 s.
const MAX_IDLE: Duration = Duration::from_secs(4);
/// The most bytes of an answer's head.
const MAX_HEAD: usize = 64 << 10;

type Driver = http1::Connection<TokioIo<Stamped>, RequestBody>;

/// The way to one server.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) addresses: Vec<SocketAddr>,
    /// What an encrypted connection needs.
    pub(crate) tls: Option<Tls>,
}

/// Makes connections to one server and keeps those that can be used again.
pub(crate) struct Dialer {
    route: Route,
    clock: Clock,
    /// The last used comes first, so few are kept busy and the others grow old. At most as many as
    /// were in flight at once.
    idle: Mutex<Vec<(Instant, Connection)>>,
    opened: AtomicU32,
}

impl Dialer {
    /// A dialer to the first of the addresses that answers.
    pub(crate) const fn new(route: Route, clock: Clock) -> Self {
        Self { route, clock, idle: Mutex::new(Vec::new()), opened: AtomicU32::new(0) }
    }

    /// Connections opened so far.
    pub(crate) fn opened(&self) -> u32 {
        self.opened.load(Ordering::Relaxed)
    }

    /// The last used connection that is still open.
    pub(crate) async fn idle(&self) -> Option<Connection> {
        loop {
            let mut connection = self.pop()?;
            if connection.is_open().await {
                connection.reused = true;
                connection.stamps.reset();
                return Some(connection);
            }
        }
    }

    fn pop(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, connection) = idle.pop()?;
        if since.elapsed() < MAX_IDLE {
            return Some(connection);
        }
        // The others have been idle for longer.
        idle.clear();
        None
    }

    /// Opens a connection; an encrypted one is open once hands are shaken.
    pub(crate) async fn dial(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(&self.route.addresses[..]).await?;
        stream.set_nodelay(true)?;
        let stamps = Arc::new(Stamps::default());
        let stream = match &self.route.tls {
            Some(tls) => Transport::Tls(Box::new(tls.handshake(stream).await?)),
            None => Transport::Plain(stream),
        };
        self.opened.fetch_add(1, Ordering::Relaxed);
        let io = TokioIo::new(Stamped { stream, stamps: Arc::clone(&stamps), clock: self.clock, unflushed: false });
        let (sender, driver) =
            http1::Builder::new().max_header_size(MAX_HEAD).handshake(io).await.map_err(io::Error::other)?;
        Ok(Connection { sender, driver: Some(Box::new(driver)), stamps, reused: false })
    }

    /// Keeps a connection whose answer has been read to its end, if it can be used again.
    pub(crate) async fn keep(&self, mut connection: Connection) {
        if !connection.is_open().await || !connection.sender.is_ready() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = idle.partition_point(|(since, _)| since.elapsed() >= MAX_IDLE);
        idle.drain(..fresh);
        idle.push((Instant::now(), connection));
    }
}

/// A connection that carries one exchange at a time.
pub(crate) struct Connection {
    sender: http1::SendRequest<RequestBody>,
    /// Absent once the connection has ended.
    driver: Option<Box<Driver>>,
    stamps: Arc<Stamps>,
    /// Whether it carried an exchange before this one.
    pub(crate) reused: bool,
}

impl Connection {
    /// When its socket moved bytes in this exchange.
    pub(crate) fn stamps(&self) -> &Arc<Stamps> {
        &self.stamps
    }

    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn send(&mut self, request: Request<RequestBody>) -> hyper::Result<Response<Incoming>> {
        drive(&mut self.driver, self.sender.send_request(request)).await
    }

    /// The next bytes of the answer's body; `None` at its proper end. Trailers are left out.
    pub(crate) async fn read(&mut self, body: &mut Incoming) -> Option<hyper::Result<Bytes>> {
        loop {
            match drive(&mut self.driver, body.frame()).await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Whether it is open, by one look.
    async fn is_open(&mut self) -> bool {
        drive(&mut self.driver, std::future::ready(())).await;
        self.driver.is_some() && !self.sender.is_closed()
    }
}

/// Runs a connection until `future` is ready.
async fn drive<F: Future>(driver: &mut Option<Box<Driver>>, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        // How the connection ended reaches the future as well.
        if driver.as_mut().is_some_and(|d| Pin::new(&mut **d).poll(cx).is_ready()) {
            *driver = None;
        }
        future.as_mut().poll(cx)
    })
    .await
}

/// When a socket moved bytes.
#[derive(Debug)]
pub(crate) struct Stamps {
    last_write: AtomicU64,
    written: AtomicU64,
    first_read: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Default for Stamps {
    fn default() -> Self {
        Self { last_write: AtomicU64::new(NEVER), written: AtomicU64::new(NEVER), first_read: AtomicU64::new(NEVER) }
    }
}

impl Stamps {
    /// When the socket had taken the last byte of the request.
    pub(crate) fn written(&self) -> Option<Tick> {
        seen(&self.written)
    }

    /// When the socket gave the first byte.
    pub(crate) fn first_read(&self) -> Option<Tick> {
        seen(&self.first_read)
    }

    fn reset(&self) {
        for stamp in [&self.last_write, &self.written, &self.first_read] {
            stamp.store(NEVER, Ordering::Relaxed);
        }
    }

    /// All that was to be written has been: a flush comes after the last byte of a request, not between.
    fn flushed(&self) {
        self.written.store(self.last_write.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn wrote(&self, at: Tick) {
        self.last_write.store(at.as_nanos(), Ordering::Relaxed);
    }

    fn read(&self, at: Tick) {
        let _ = self.first_read.compare_exchange(NEVER, at.as_nanos(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn seen(stamp: &AtomicU64) -> Option<Tick> {
    Some(stamp.load(Ordering::Relaxed)).filter(|ns| *ns != NEVER).map(Tick::from_nanos)
}

/// A socket, encrypted or not.
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A socket that notes when it moves bytes. Of an encrypted one it notes the bytes of HTTP, not those of
/// the handshake; they count as written when the encrypted ones have been.
struct Stamped {
    stream: Transport,
    stamps: Arc<Stamps>,
    clock: Clock,
    unflushed: bool,
}

impl Stamped {
    fn note_write(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = result {
            self.stamps.wrote(self.clock.now());
            self.unflushed = true;
        }
        result
    }

    fn note_flush(&mut self) {
        if std::mem::take(&mut self.unflushed) && matches!(self.stream, Transport::Tls(_)) {
            self.stamps.wrote(self.clock.now());
        }
        self.stamps.flushed();
    }
}

/// Calls a method on the stream, whichever it is.
macro_rules! on_stream {
    ($self:ident, $method:ident $(, $argument:expr)*) => {
        match &mut $self.stream {
            Transport::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Transport::Tls(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stamped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = on_stream!(self, poll_read, cx, buf);
        if buf.filled().len() > before {
            self.stamps.read(self.clock.now());
        }
        result
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = on_stream!(self, poll_write, cx, buf);
        self.note_write(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = on_stream!(self, poll_write_vectored, cx, bufs);
        self.note_write(result)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = on_stream!(self, poll_flush, cx);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.note_flush();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, poll_shutdown, cx)
    }
}
