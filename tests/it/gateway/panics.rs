//! A defect in the middle of a request ends that request alone (R27).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use elasticserve_gateway::{Dial, DialFuture};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::task::JoinSet;

use crate::support::backend::Backend;
use crate::support::client::{Client, completion};
use crate::support::gateway::Piped;
use crate::support::until;

const REQUESTS: u32 = 1_000;
/// One request in so many meets a defect, of each of the two kinds.
const EVERY: u32 = 100;

#[tokio::test(start_paused = true)]
async fn a_panic_ends_its_request_alone_and_is_counted() {
    let (mut gateway, mut backend) = Piped::through(2, |dial| Arc::new(Panics { dial, count: AtomicU32::new(0) }));
    // One of the permits is held all the time by a stream that lives through all of it.
    let client = gateway.client().await;
    let (answer, streaming) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
    let mut answer = answer.unwrap();
    let (mut defects, mut closed) = (0, 0);
    for n in 0..REQUESTS {
        let breaks = n % EVERY == EVERY / 2;
        match ask(&gateway, &mut backend, breaks).await {
            None => closed += 1,
            Some(500) => defects += 1,
            Some(status) => assert_eq!(status, 200),
        }
        until("its permit is back", || gateway.in_use() == 1).await;
        streaming.event(&n.to_string());
        assert_eq!(answer.chunk().await.unwrap().unwrap(), format!("data: {n}\n\n").as_bytes());
    }
    assert_eq!((defects, closed), (REQUESTS / EVERY, REQUESTS / EVERY));
    streaming.finish();
    assert!(answer.rest().await.1);
    let metrics = gateway.service.metrics().unwrap();
    let counted = format!("\nelasticserve_panics_total {}\n", defects + closed);
    assert!(metrics.contains(&counted), "{counted} in {metrics}");
    gateway.service.audit().unwrap();
}

/// The status of an answer; `None` if the connection is closed without one. `breaks` is whether writing it panics.
async fn ask(gateway: &Piped, backend: &mut Backend, breaks: bool) -> Option<u16> {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (service, mut serving) = (gateway.service.clone(), JoinSet::new());
    let theirs = Breaks { stream: theirs, breaks };
    serving.spawn(async move { service.serve(theirs).await });
    let mut asking = JoinSet::new();
    asking
        .spawn(async move { Client::over(ours).await.send(completion("")).await.map(|answer| answer.status.as_u16()) });
    let answered = tokio::select! {
        answered = asking.join_next() => answered,
        call = backend.call() => {
            // Each connection serves one request, so that every one is dialled for.
            call.respond(200, &[("connection", "close")]).finish();
            asking.join_next().await
        }
    };
    let served = crate::support::soon("the connection ends", serving.join_next()).await.unwrap();
    assert_eq!(served.is_err(), breaks, "a panic while an answer is written ends the task of its connection");
    answered.unwrap().unwrap().ok()
}

/// Panics at each hundredth connection.
struct Panics {
    dial: Arc<dyn Dial>,
    count: AtomicU32,
}

impl Dial for Panics {
    fn dial(&self, authority: &http::uri::Authority) -> DialFuture {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        assert_ne!(count % EVERY, EVERY - 1, "a defect of the test's making");
        self.dial.dial(authority)
    }
}

/// A client's connection on which writing may panic.
struct Breaks {
    stream: DuplexStream,
    breaks: bool,
}

impl AsyncRead for Breaks {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Breaks {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        assert!(!self.breaks, "a defect of the test's making");
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
