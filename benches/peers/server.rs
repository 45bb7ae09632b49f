//! A chat server that answers at once.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use crate::shape::{Gaps, Shape};

/// What routers ask a server about itself before they send it work.
const ABOUT: &str = r#"{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"bench"}],
"status":"ok","model_path":"m","is_generation":true}"#;
const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,
"message":{"role":"assistant","content":"a b c d e f g h i j k l m n o p"},"finish_reason":"stop"}],
"usage":{"prompt_tokens":250,"completion_tokens":16,"total_tokens":266}}"#;
const ROLE: &str = r#"{"role":"assistant","content":""},"finish_reason":null"#;
const TOKEN: &str = r#"{"content":" token"},"finish_reason":null"#;
const END: &str = r#"{},"finish_reason":"stop""#;
/// Longer than any benchmark.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Starts to serve; ends with the returned set.
pub(crate) async fn start() -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            connections.spawn(async move {
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
            while connections.try_join_next().is_some() {}
        }
    });
    (addr, serving)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Either<Full<Bytes>, Events>>, Infallible> {
    let is_question = request.method() == Method::GET;
    let body = request.into_body().collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let json = |text: &'static str| {
        let response = Response::builder().header("content-type", "application/json");
        Ok(response.body(Either::Left(Full::from(text))).unwrap())
    };
    match Shape::of_request(&body) {
        _ if is_question => json(ABOUT),
        Shape::Plain => json(ANSWER),
        Shape::Stream(events, gaps) => {
            let response = Response::builder().header("content-type", "text/event-stream");
            Ok(response.body(Either::Right(Events::new(events, gaps))).unwrap())
        }
    }
}

/// The body of a stream.
pub(crate) struct Events {
    events: usize,
    sent: usize,
    gaps: Gaps,
    /// The next event may not go into the write of the one before.
    apart: bool,
    due: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Events {
    fn new(events: usize, gaps: Gaps) -> Self {
        let due = Instant::now();
        Self { events, sent: 0, gaps, apart: false, due, timer: Box::pin(tokio::time::sleep_until(due)) }
    }

    fn event(&self) -> Bytes {
        let delta = match self.sent {
            0 => ROLE,
            n if n + 1 == self.events => return Bytes::from_static(b"data: [DONE]\n\n"),
            n if n + 2 == self.events => END,
            _ => TOKEN,
        };
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
             \"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"
        )
        .into()
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent == self.events {
            return Poll::Ready(None);
        }
        if std::mem::take(&mut self.apart) {
            // hyper writes what it has when a body has nothing more for now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.due > Instant::now() {
            let due = self.due;
            self.timer.as_mut().reset(due);
            ready!(Future::poll(self.timer.as_mut(), cx));
        }
        let event = self.event();
        self.sent += 1;
        match self.gaps {
            Gaps::Burst => {}
            Gaps::Single => self.apart = true,
            Gaps::Paced(gap) => self.due += gap,
            Gaps::Held => self.due += FOR_EVER,
        }
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}
