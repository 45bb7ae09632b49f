//! A backend under the test's control: every request becomes a [`Call`], answered step by step.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use elasticserve_gateway::{Dial, DialFuture, Stream};
use http::uri::Authority;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;

/// A backend's side of the calls.
pub(crate) struct Backend {
    calls: mpsc::UnboundedReceiver<Call>,
    _tasks: Tasks,
}

/// A request that reached the backend.
pub(crate) struct Call {
    pub(crate) head: http::request::Parts,
    pub(crate) body: Bytes,
    respond: oneshot::Sender<Response<ScriptedBody>>,
    gone: watch::Receiver<bool>,
}

/// A response under way.
pub(crate) struct Responding {
    chunks: mpsc::UnboundedSender<io::Result<Bytes>>,
    gone: watch::Receiver<bool>,
}

/// Ends the backend's tasks when dropped.
struct Tasks(tokio_util::sync::CancellationToken);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Backend {
    /// A backend on a TCP port, and its address.
    pub(crate) async fn on_tcp() -> (Self, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (backend, calls, tasks, stop) = Self::new();
        let tracker = tasks.clone();
        tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tracker.spawn(stop.clone().run_until_cancelled_owned(serve(stream, calls.clone())));
            }
        }));
        (backend, addr)
    }

    /// A backend at the other end of in-memory pipes.
    pub(crate) fn on_pipes() -> (Self, Arc<PipeDial>) {
        let (backend, calls, tasks, stop) = Self::new();
        (backend, Arc::new(PipeDial { calls, tasks, stop }))
    }

    /// Backends at the other ends of in-memory pipes, by the names that they are dialled by.
    pub(crate) fn by_name(names: &[&str]) -> (Vec<Self>, Arc<NamedDial>) {
        let (mut backends, mut dials) = (Vec::new(), BTreeMap::new());
        for name in names {
            let (backend, dial) = Self::on_pipes();
            backends.push(backend);
            dials.insert((*name).to_owned(), (dial, AtomicBool::new(false)));
        }
        (backends, Arc::new(NamedDial { dials }))
    }

    fn new() -> (Self, mpsc::UnboundedSender<Call>, TaskTracker, tokio_util::sync::CancellationToken) {
        let (sender, calls) = mpsc::unbounded_channel();
        let (tasks, stop) = (TaskTracker::new(), tokio_util::sync::CancellationToken::new());
        (Self { calls, _tasks: Tasks(stop.clone()) }, sender, tasks, stop)
    }

    /// The next request that is not a health probe.
    pub(crate) async fn call(&mut self) -> Call {
        super::soon("a request reaches the backend", self.next_call()).await.unwrap()
    }

    /// The same, however long it takes.
    pub(crate) async fn next_call(&mut self) -> Option<Call> {
        self.calls.recv().await
    }

    /// Whether a request has come that was not taken yet and is no health probe.
    pub(crate) fn has_request(&mut self) -> bool {
        while let Ok(call) = self.calls.try_recv() {
            if call.head.uri.path() != "/health" {
                return true;
            }
            call.respond(200, &[]).finish();
        }
        false
    }

    /// Whether a request has come that was not taken yet.
    pub(crate) fn has_call(&self) -> bool {
        !self.calls.is_empty()
    }
}

/// Connects by making a pipe and serving its other end.
pub(crate) struct PipeDial {
    calls: mpsc::UnboundedSender<Call>,
    tasks: TaskTracker,
    stop: tokio_util::sync::CancellationToken,
}

impl Dial for PipeDial {
    fn dial(&self, _: &Authority) -> DialFuture {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let serving = serve(theirs, self.calls.clone());
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(serving));
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Stream>) })
    }
}

/// Connects to backends by their names.
pub(crate) struct NamedDial {
    dials: BTreeMap<String, (Arc<PipeDial>, AtomicBool)>,
}

impl NamedDial {
    /// From here on connections to a backend are refused, or are not.
    pub(crate) fn refuse(&self, name: &str, refuse: bool) {
        self.dials[name].1.store(refuse, Ordering::Relaxed);
    }
}

impl Dial for NamedDial {
    fn dial(&self, authority: &Authority) -> DialFuture {
        match self.dials.get(authority.as_str()) {
            Some((dial, refuse)) if !refuse.load(Ordering::Relaxed) => dial.dial(authority),
            _ => Box::pin(async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) }),
        }
    }
}

async fn serve(stream: impl Stream, calls: mpsc::UnboundedSender<Call>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let calls = calls.clone();
        async move {
            let (head, body) = request.into_parts();
            // Probes come at their own times and are no calls of the test's.
            if head.uri.path() == "/health" {
                let (_, chunks) = mpsc::unbounded_channel();
                return Ok(Response::new(ScriptedBody { chunks, guard: None }));
            }
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            let (tell, gone) = watch::channel(false);
            let guard = Guard(tell);
            let (respond, response) = oneshot::channel();
            let _ = calls.send(Call { head, body, respond, gone });
            let mut response = response.await.map_err(io::Error::other)?;
            response.body_mut().guard = Some(guard);
            Ok::<_, io::Error>(response)
        }
    });
    let _ = http1::Builder::new().half_close(false).serve_connection(TokioIo::new(stream), service).await;
}

/// Tells that the exchange is over for this side: finished, or the other side has gone.
struct Guard(watch::Sender<bool>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(true);
    }
}

pub(crate) struct ScriptedBody {
    chunks: mpsc::UnboundedReceiver<io::Result<Bytes>>,
    guard: Option<Guard>,
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.chunks.poll_recv(cx).map(|chunk| chunk.map(|c| c.map(Frame::data)))
    }
}

impl Call {
    /// Sends the response's head.
    pub(crate) fn respond(self, status: u16, headers: &[(&str, &str)]) -> Responding {
        let (chunks, receiver) = mpsc::unbounded_channel();
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let body = ScriptedBody { chunks: receiver, guard: None };
        let _ = self.respond.send(response.body(body).unwrap());
        Responding { chunks, gone: self.gone }
    }

    /// Sends the head of an event stream.
    pub(crate) fn stream(self) -> Responding {
        self.respond(200, &[("content-type", "text/event-stream")])
    }

    /// Sends a whole JSON answer.
    pub(crate) fn json(self, body: &str) {
        let length = body.len().to_string();
        let responding = self.respond(200, &[("content-type", "application/json"), ("content-length", &length)]);
        responding.chunk(body.as_bytes());
        responding.finish();
    }

    /// Returns once the gateway has given up this request.
    pub(crate) async fn abandoned(&mut self) {
        super::soon("the gateway gives up the request", self.gone.wait_for(|gone| *gone)).await.ok();
    }
}

impl Responding {
    pub(crate) fn chunk(&self, bytes: &[u8]) {
        let _ = self.chunks.send(Ok(Bytes::copy_from_slice(bytes)));
    }

    pub(crate) fn event(&self, data: &str) {
        self.chunk(format!("data: {data}\n\n").as_bytes());
    }

    /// Ends the body properly.
    pub(crate) fn finish(self) {}

    /// Breaks the connection off.
    pub(crate) fn break_off(self) {
        let _ = self.chunks.send(Err(io::Error::other("broken off by the test")));
    }

    /// Ends when the exchange is over for the gateway, at its end or before.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gone = self.gone.clone();
        async move {
            // An error means that the exchange is over, too.
            let _ = gone.wait_for(|gone| *gone).await;
        }
    }

    /// Returns once the gateway has given up this response.
    pub(crate) async fn abandoned(&mut self) {
        super::soon("the gateway gives up the response", self.gone.wait_for(|gone| *gone)).await.ok();
    }
}

/// A header's value as text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|v| v.to_str().unwrap())
}
