//! Sending spans to a collector, in batches.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Span, otlp};
use crate::config::Trace;
use crate::metrics::Metrics;

/// Spans in one message at most.
const BATCH: usize = 512;
/// The longest that a span waits for others.
const WAIT: Duration = Duration::from_secs(2);
/// For one message.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is read of a collector's answer.
const MAX_ANSWER: usize = 64 << 10;

/// Sends what has ended, for ever.
pub(crate) struct Exporter {
    spans: mpsc::Receiver<Span>,
    endpoint: Uri,
    service: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Exporter {
    pub(super) fn new(settings: &Trace, spans: mpsc::Receiver<Span>) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { spans, endpoint: settings.endpoint.clone(), service: settings.service.clone(), client }
    }

    /// Sends until it is told to stop, and then what is left.
    pub(crate) async fn run(mut self, metrics: Arc<Metrics>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let spans = &mut self.spans;
            tokio::select! {
                biased;
                n = spans.recv_many(&mut batch, BATCH) => if n == 0 { return },
                () = stop.cancelled(), if !spans.is_closed() => {
                    spans.close();
                    continue;
                }
            }
            let until = Instant::now() + WAIT;
            while batch.len() < BATCH && !spans.is_closed() {
                let room = BATCH - batch.len();
                tokio::select! {
                    n = spans.recv_many(&mut batch, room) => if n == 0 { break },
                    () = tokio::time::sleep_until(until) => break,
                    () = stop.cancelled() => break,
                }
            }
            if let Err(problem) = self.send(&batch).await {
                metrics.spans_dropped(batch.len() as u64);
                tracing::warn!(spans = batch.len(), problem, "spans could not be sent and are lost");
            }
            batch.clear();
        }
    }

    async fn send(&self, batch: &[Span]) -> Result<(), String> {
        let body = otlp::message(&self.service, batch).to_string();
        let request = Request::post(self.endpoint.clone()).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Full::from(body)).map_err(|e| e.to_string())?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|e| e.to_string())?;
            let status = response.status();
            // Read, so that the connection can serve the next one.
            let _ = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            if status.is_success() { Ok(()) } else { Err(format!("the collector answers {status}")) }
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err("the collector is silent".to_owned()))
    }
}
