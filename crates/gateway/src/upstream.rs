//! Connections to the backends.

mod exchange;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use elasticserve_core::time::Span;
use http::header::AUTHORIZATION;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use crate::auth::CREDENTIALS;
use crate::config::Backend;
use crate::files;
use crate::live::Live;
use crate::tls::BackendTls;

use exchange::{Counted, exchange};

/// A connection's bytes, in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection being made.
pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// A way to connect to a backend: TCP, or pipes in a test.
pub trait Dial: Send + Sync + 'static {
    /// Connects to a host and port.
    fn dial(&self, authority: &Authority) -> DialFuture;
}

/// TCP with Nagle's algorithm off, so that small events leave at once.
#[derive(Debug)]
pub(crate) struct TcpDial;

impl Dial for TcpDial {
    fn dial(&self, authority: &Authority) -> DialFuture {
        let authority = authority.clone();
        Box::pin(async move { Ok(Box::new(connect(&authority).await?) as Box<dyn Stream>) })
    }
}

async fn connect(authority: &Authority) -> io::Result<TcpStream> {
    let host = authority.host().trim_matches(['[', ']']);
    // An authority without a port is given its scheme's by whoever dials.
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(HTTP_PORT))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Idle connections are dropped after this time: below the 5 s after which vLLM's server closes its
/// side, so that a request does not race with the close.
const IDLE: Duration = Duration::from_millis(3500);
/// Ports that a URL need not name.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// The largest response head that is read.
const MAX_HEAD: usize = 64 << 10;

/// What goes to a backend. The body is whole, so it can be sent once more.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why a backend gave no response head.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// No connection.
    #[error("cannot connect: {}", root(.0))]
    Connect(#[source] ClientError),
    /// No connection in time.
    #[error("no connection within {0}")]
    ConnectTimeout(Span),
    /// No response head in time.
    #[error("no response head within {0}")]
    HeadTimeout(Span),
    /// The connection broke, or what came was not HTTP.
    #[error("no valid response: {}", root(.0))]
    Broken(#[source] ClientError),
    /// It answered in another protocol, which nobody asked it for.
    #[error("no valid response: it switches to another protocol")]
    Switched,
    /// The connection closed when the request was to be written.
    #[error("the connection closed before the request left")]
    Closed,
    /// The request could not be put together.
    #[error("cannot build the request: {0}")]
    Build(#[from] http::Error),
}

/// The innermost cause, which says what happened.
fn root(error: &ClientError) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// A pool of connections to the backends.
#[derive(Clone)]
pub(crate) struct Upstream {
    client: Client<Connector, Full<Bytes>>,
    /// Makes a connection for each request: of those in the pool another one may be closing, too.
    fresh: Client<Connector, Full<Bytes>>,
    live: Arc<Live>,
    proofs: Proofs,
}

impl Upstream {
    pub(crate) fn new(dial: Arc<dyn Dial>, live: Arc<Live>, tasks: &TaskTracker) -> Self {
        let proofs = Proofs::default();
        let connector = Connector { dial, live: Arc::clone(&live), proofs: proofs.clone() };
        let client = |idle| {
            Client::builder(Tracked(tasks.clone()))
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(idle)
                .http1_max_buf_size(MAX_HEAD)
                // Retries are decided here, where it is known what came back.
                .retry_canceled_requests(false)
                .build(connector.clone())
        };
        Self { client: client(usize::MAX), fresh: client(0), live, proofs }
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// It is sent a second time in one case only: the connection had served a request before and broke
    /// without a byte of response, so the backend closed it as idle while the request was on its way or before it
    /// left. The second time goes over a connection of its own.
    pub(crate) async fn send(
        &self,
        backend: &Backend,
        outgoing: &Outgoing,
    ) -> Result<Response<Incoming>, UpstreamError> {
        if let Some(tls) = &backend.tls {
            self.proofs.keep(&backend.authority, tls);
        }
        let limit = self.live.now().timeouts.head;
        let attempts = async {
            match exchange(&self.client, request(backend, outgoing)?).await {
                Err(unanswered) if unanswered.broke_while_idle() => {
                    tracing::debug!(backend = %backend.authority, "idle connection was closed; sending once more");
                    Ok(exchange(&self.fresh, request(backend, outgoing)?).await?)
                }
                other => Ok(other?),
            }
        };
        match tokio::time::timeout(limit.to_std(), attempts).await {
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => Err(UpstreamError::Switched),
            Ok(result) => result,
            Err(_) => Err(UpstreamError::HeadTimeout(limit)),
        }
    }
}

impl UpstreamError {
    /// Whether it says nothing about the backend: the request could not be built, or this process had no file left.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Self::Build(_) => true,
            Self::Connect(error) => files::are_missing(error),
            _ => false,
        }
    }
}

impl From<ClientError> for UpstreamError {
    fn from(error: ClientError) -> Self {
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            if let Some(TimedOut(limit)) = inner.downcast_ref() {
                return Self::ConnectTimeout(*limit);
            }
            source = inner.source();
        }
        if error.is_connect() { Self::Connect(error) } else { Self::Broken(error) }
    }
}

fn request(backend: &Backend, outgoing: &Outgoing) -> Result<Request<Full<Bytes>>, http::Error> {
    let path = if backend.base_path.is_empty() {
        outgoing.path.clone()
    } else {
        PathAndQuery::try_from(format!("{}{}", backend.base_path, outgoing.path))?
    };
    let scheme = if backend.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    let uri = Uri::builder().scheme(scheme).authority(backend.authority.clone()).path_and_query(path).build()?;
    let mut request =
        Request::builder().method(outgoing.method.clone()).uri(uri).body(Full::new(outgoing.body.clone()))?;
    *request.headers_mut() = outgoing.headers.clone();
    if let Some(credential) = &backend.credential {
        CREDENTIALS.iter().for_each(|name| drop(request.headers_mut().remove(name)));
        request.headers_mut().insert(AUTHORIZATION, credential.header.clone());
    }
    Ok(request)
}

/// Makes connections for the pool.
#[derive(Clone)]
struct Connector {
    dial: Arc<dyn Dial>,
    live: Arc<Live>,
    proofs: Proofs,
}

/// A connection took too long to make.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0}")]
struct TimedOut(Span);

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Counted>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let timeout = self.live.now().timeouts.connect;
        let connecting = self.connect(&uri);
        Box::pin(async move {
            match tokio::time::timeout(timeout.to_std(), connecting).await {
                Ok(stream) => Ok(TokioIo::new(Counted::new(stream?))),
                Err(_) => Err(TimedOut(timeout).into()),
            }
        })
    }
}

impl Connector {
    /// A connection to the backend of a URI. Behind `https://` there is no way around the handshake.
    fn connect(&self, uri: &Uri) -> impl Future<Output = io::Result<Box<dyn Stream>>> + Send + use<> {
        let wrong = |problem| io::Error::new(io::ErrorKind::InvalidInput, problem);
        let secure = uri.scheme() == Some(&Scheme::HTTPS);
        let tls = uri.authority().filter(|_| secure).and_then(|authority| self.proofs.of(authority));
        let dialing = uri.authority().map(|authority| self.dial.dial(&with_port(authority, secure)));
        async move {
            let stream = dialing.ok_or_else(|| wrong("no host to connect to"))?;
            match tls {
                Some(tls) => Ok(Box::new(tls.connect(stream.await?).await?) as Box<dyn Stream>),
                None if secure => Err(wrong("nobody knows what this backend has to prove")),
                None => stream.await,
            }
        }
    }
}

/// The most backends whose proofs are kept.
const MAX_PROOFS: usize = 16_384;

/// How the backends behind `https://` prove who they are, by host and port: all that a connection is asked for by.
#[derive(Clone, Default)]
struct Proofs(Arc<RwLock<BTreeMap<String, BackendTls>>>);

impl Proofs {
    fn of(&self, authority: &Authority) -> Option<BackendTls> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(authority.as_str()).cloned()
    }

    fn keep(&self, authority: &Authority, tls: &BackendTls) {
        if self.of(authority).is_some_and(|known| known == *tls) {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Who is asked again is kept again.
        if all.len() >= MAX_PROOFS {
            all.clear();
        }
        all.insert(authority.to_string(), tls.clone());
    }
}

/// An authority that names its port.
fn with_port(authority: &Authority, secure: bool) -> Authority {
    let named = || Authority::try_from(format!("{authority}:{HTTPS_PORT}")).ok();
    let needed = secure && authority.port().is_none();
    needed.then(named).flatten().unwrap_or_else(|| authority.clone())
}

/// Runs the pool's connections as tasks that shutdown knows.
#[derive(Clone, Debug)]
struct Tracked(TaskTracker);

impl<F> Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_to_backends_send_small_writes_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string().parse().unwrap();
        assert!(connect(&authority).await.unwrap().nodelay().unwrap());
    }
}
