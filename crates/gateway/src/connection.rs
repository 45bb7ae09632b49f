//! One client connection: HTTP/1 with its bounds.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::ahead::{Ahead, UnderWay};
use crate::metrics::Metrics;
use crate::patient::{Patient, is_stalled};
use crate::proxy::{Peer, Shared};

/// The largest request head, and the buffer that bounds it.
const MAX_HEAD: usize = 64 << 10;
/// Header lines in a request.
const MAX_HEADERS: usize = 100;

/// The two ways in which a gateway ends its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// After the answer under way.
    pub(crate) drain: CancellationToken,
    /// Now.
    pub(crate) cut: CancellationToken,
}

/// How long a client that connects while the gateway drains may take to say what it wants.
const LATE_HEADER_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves a connection until it ends, or until `ending` says so. One that comes during the drain is
/// served too: its requests are refused, and the answers say why.
///
/// A client that closes its side while a request is under way is taken as gone, and everything that
/// was done for it is dropped. That is also so for a client that only half-closes, which is rare.
pub(crate) async fn serve<S>(
    shared: Arc<Shared>,
    stream: S,
    peer: Option<IpAddr>,
    header_timeout: Duration,
    ending: Ending,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let came_late = ending.drain.is_cancelled();
    let header_timeout = if came_late { header_timeout.min(LATE_HEADER_TIMEOUT) } else { header_timeout };
    let metrics = Arc::clone(&shared.metrics);
    let limit = shared.config().timeouts.write;
    let under_way = UnderWay::default();
    let stream = Patient::new(Ahead::new(stream, under_way.clone()), limit.to_std());
    let _panics = Panics(Arc::clone(&metrics));
    let member = shared.crowd.join();
    let serving = Arc::clone(&member);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let busy = serving.work();
        if let Some(peer) = peer {
            request.extensions_mut().insert(Peer(peer));
        }
        under_way.begins();
        request.extensions_mut().insert(under_way.clone());
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.handle(request).await.map(|body| busy.until_the_end_of(body))) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_HEAD)
        .max_header_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let draining = async {
        tokio::select! {
            result = connection.as_mut() => return result,
            () = ending.drain.cancelled(), if !came_late => {}
            () = member.asked_to_leave() => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    };
    let result = tokio::select! {
        result = draining => result,
        () = ending.cut.cancelled() => Ok(()),
    };
    if let Err(error) = result {
        if is_stalled(&error) {
            metrics.client_stalled();
            tracing::warn!(%limit, "a client read nothing of its answer for so long and was cut");
        }
        tracing::debug!(%error, "connection ended");
    }
}

/// Counts what takes a whole connection down.
struct Panics(Arc<Metrics>);

impl Drop for Panics {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.panicked();
        }
    }
}
