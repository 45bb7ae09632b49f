//! A backend that answers at once.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

pub(crate) struct Backend {
    addr: SocketAddr,
    _serving: JoinSet<()>,
}

impl Backend {
    /// Serves `/v1/completions`: plain, or a stream of `events`. A request whose prompt is `paced` gets
    /// them `pace` apart, one whose prompt is `open` gets one and then nothing for a long time.
    pub(crate) async fn start(events: usize, pace: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let service = service_fn(move |request| answer(request, events, pace));
                connections.spawn(async move {
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { addr, _serving: serving }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

async fn answer(
    request: Request<Incoming>,
    events: usize,
    pace: Duration,
) -> Result<Response<Either<Full<Bytes>, Events>>, Infallible> {
    let body = request.into_body().collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let has = |needle: &[u8]| body.windows(needle.len()).any(|w| w == needle);
    if !has(b"\"stream\":true") {
        let answer = r#"{"choices":[{"text":"one two three","finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":3}}"#;
        let response = Response::builder().header("content-type", "application/json");
        return Ok(response.body(Either::Left(Full::from(answer))).unwrap());
    }
    let (pace, left) = match (has(b"paced"), has(b"open")) {
        (true, _) => (pace, events),
        (_, true) => (Duration::from_secs(3600), 2),
        _ => (Duration::ZERO, events),
    };
    let body = Events { left, pace, timer: Box::pin(tokio::time::sleep(Duration::ZERO)), due: Instant::now() };
    Ok(Response::builder().header("content-type", "text/event-stream").body(Either::Right(body)).unwrap())
}

/// Events at fixed times after the start.
pub(crate) struct Events {
    left: usize,
    pace: Duration,
    timer: Pin<Box<Sleep>>,
    due: Instant,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if self.due > Instant::now() {
            let due = self.due;
            self.timer.as_mut().reset(due);
            ready!(std::future::Future::poll(self.timer.as_mut(), cx));
        }
        self.left -= 1;
        let next = self.due + self.pace;
        self.due = next;
        let event = match self.left {
            0 => Bytes::from_static(b"data: [DONE]\n\n"),
            _ => Bytes::from_static(
                b"data: {\"id\":\"cmpl-1\",\"choices\":[{\"index\":0,\"text\":\" token\",\"finish_reason\":null}]}\n\n",
            ),
        };
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}
