//! One request over a connection of the pool: its answer, or why there is none.

use std::future::{Future, pending};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{Connected, Connection, capture_connection};
use hyper_util::client::legacy::{Client, Error as ClientError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::{Connector, Stream, UpstreamError};

/// How long an answer, or the reason why there is none, may lag behind the end of its connection.
const LAG: Duration = Duration::from_millis(100);

/// Why a connection gave no response.
pub(super) enum Unanswered {
    Failed(ClientError),
    /// It has ended, and nothing is said of the request that was given to it.
    Lost(Traffic),
}

impl Unanswered {
    /// Whether a used connection broke before it gave back a byte.
    pub(super) fn broke_while_idle(&self) -> bool {
        match self {
            Self::Lost(traffic) => traffic.is_reused(),
            Self::Failed(error) => error
                .connect_info()
                .and_then(Traffic::of)
                .is_some_and(|traffic| traffic.is_reused() && (never_left(error) || traffic.is_silent())),
        }
    }
}

impl From<Unanswered> for UpstreamError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Failed(error) => error.into(),
            Unanswered::Lost(_) => Self::Closed,
        }
    }
}

/// Sends a request and waits for the head of the response, or for the end of its connection.
///
/// Where a connection closes at the moment when it is given a request, hyper may keep the request for as long as the
/// sender lives and say nothing (hyperium/hyper#4122). It was not written then.
pub(super) async fn exchange(
    client: &Client<Connector, Full<Bytes>>,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Unanswered> {
    let mut captured = capture_connection(&mut request);
    let over = async move {
        let traffic = captured.wait_for_connection_metadata().await.as_ref().and_then(Traffic::of);
        let Some(traffic) = traffic else { return pending().await };
        traffic.0.ended.cancelled().await;
        traffic
    };
    unless_over(client.request(request), over).await
}

/// An answer, unless what it is to come over has been over for so long that it never will.
async fn unless_over<T>(
    answer: impl Future<Output = Result<T, ClientError>>,
    over: impl Future<Output = Traffic>,
) -> Result<T, Unanswered> {
    let mut answer = pin!(answer);
    let traffic = tokio::select! {
        biased;
        answered = &mut answer => return answered.map_err(Unanswered::Failed),
        traffic = over => traffic,
    };
    match tokio::time::timeout(LAG, answer).await {
        Ok(answered) => answered.map_err(Unanswered::Failed),
        Err(_) => Err(Unanswered::Lost(traffic)),
    }
}

/// Whether the connection had closed when the request was to be written: nothing of it is out.
fn never_left(error: &ClientError) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What has gone over a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic(Arc<TrafficCounts>);

#[derive(Debug, Default)]
struct TrafficCounts {
    /// Bytes read over the connection's life.
    read: AtomicU64,
    /// `read` as it was at the last write, which is the last request's: a backend that answers while
    /// the request is still being written is taken for silent if its connection then breaks.
    read_before_write: AtomicU64,
    /// Whether it is closed.
    ended: CancellationToken,
}

impl Traffic {
    fn of(connected: &Connected) -> Option<Self> {
        let mut extensions = http::Extensions::new();
        connected.get_extras(&mut extensions);
        extensions.remove()
    }

    fn is_reused(&self) -> bool {
        self.0.read.load(Ordering::Acquire) > 0
    }

    /// Whether nothing has come since the last write.
    fn is_silent(&self) -> bool {
        self.0.read.load(Ordering::Acquire) == self.0.read_before_write.load(Ordering::Acquire)
    }
}

/// A connection that counts what goes over it.
pub(super) struct Counted {
    stream: Box<dyn Stream>,
    traffic: Traffic,
}

impl Counted {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, traffic: Traffic::default() }
    }

    fn wrote(&self) {
        let counts = &self.traffic.0;
        counts.read_before_write.store(counts.read.load(Ordering::Acquire), Ordering::Release);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.traffic.0.ended.cancel();
    }
}

impl Connection for Counted {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.traffic.clone())
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.traffic.0.read.fetch_add((buf.filled().len() - before) as u64, Ordering::AcqRel);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.wrote();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wrote();
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_awaited_a_while_after_the_end_of_its_connection_and_no_longer() {
        let over = || std::future::ready(Traffic::default());
        let late = async {
            tokio::task::yield_now().await;
            Ok("late")
        };
        assert!(matches!(unless_over(late, over()).await, Ok("late")));
        let never = unless_over(pending::<Result<(), ClientError>>(), over()).await.unwrap_err();
        // A connection that never carried anything was not idle.
        assert!(matches!(&never, Unanswered::Lost(_)) && !never.broke_while_idle());
        let used = Traffic::default();
        used.0.read.store(1, Ordering::Relaxed);
        let lost = unless_over(pending::<Result<(), ClientError>>(), std::future::ready(used)).await.unwrap_err();
        assert!(lost.broke_while_idle());
        assert!(UpstreamError::from(lost).to_string().contains("before the request left"));
    }
}
