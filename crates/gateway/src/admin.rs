//! Probes, metrics and what operators may change, on a listener of their own.

mod api;
mod state;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::patient::Patient;
use crate::proxy::Shared;

/// Connections to the admin listener; a scraper and a few probes need no more.
const MAX_CONNECTIONS: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// For the body of a request, and for a client that reads nothing of its answer: nobody may keep the probes out.
const PATIENCE: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Prometheus' text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves the admin listener until it is aborted.
pub(crate) async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    connections: TaskTracker,
    cut: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(answer(&shared, request).await) }
        });
        let cut = cut.clone();
        connections.spawn(async move {
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(Patient::new(stream, PATIENCE)), service);
            if let Some(Err(error)) = cut.run_until_cancelled(serving).await {
                tracing::debug!(%error, "admin connection ended");
            }
            drop(slot);
        });
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    if shared.config().fixed.admin_api && request.uri().path().starts_with(api::PREFIX) {
        return api::answer(shared, request).await;
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "this path takes GET\n");
    }
    match request.uri().path() {
        "/livez" => text(StatusCode::OK, "alive\n"),
        "/readyz" => readiness(shared),
        "/metrics" => metrics(shared),
        _ => text(StatusCode::NOT_FOUND, "there are /livez, /readyz, /metrics and /admin/state\n"),
    }
}

fn readiness(shared: &Shared) -> Response<Full<Bytes>> {
    if shared.leaving.load(Ordering::Relaxed) {
        text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if shared.pools.any_up() {
        let down = shared.pools.down();
        match down.is_empty() {
            true => text(StatusCode::OK, "ready\n"),
            false => text(StatusCode::OK, format!("ready, but no backend is up in: {}\n", down.join(", "))),
        }
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "no backend is up\n")
    }
}

/// All figures as of now, in Prometheus' text format.
pub(crate) fn figures(shared: &Shared) -> Result<String, std::fmt::Error> {
    shared.metrics.body_memory_is(shared.memory.used());
    shared.metrics.encode(&shared.pools.views(shared.config().tenants.len()))
}

fn metrics(shared: &Shared) -> Response<Full<Bytes>> {
    match figures(shared) {
        Ok(body) => with_type(text(StatusCode::OK, body), TEXT_FORMAT),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "cannot write the metrics\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    with_type(response, "text/plain; charset=utf-8")
}

/// An answer in JSON, on one line.
fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_string(body) {
        Ok(body) => with_type(text(status, body + "\n"), "application/json"),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "cannot write the answer\n"),
    }
}

fn with_type(mut response: Response<Full<Bytes>>, kind: &'static str) -> Response<Full<Bytes>> {
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
