//! Traces in OpenTelemetry's form: one span for each sampled request, sent in batches to a collector.
//!
//! The export is OTLP over HTTP in JSON, written here over the HTTP client that is at hand: what is needed of it is
//! one message, and the SDK for it would nearly double the time of a build. A request never waits for it: a span that
//! finds no room is dropped and counted.

mod context;
mod export;
mod otlp;

use std::time::SystemTime;

use http::header::HeaderMap;
use tokio::sync::mpsc;

use context::Ids;
pub(crate) use context::{Context, TRACEPARENT};
pub(crate) use export::Exporter;

use crate::config::Trace;
use crate::metrics::Metrics;
use crate::record::Record;

/// Spans that may wait to be sent; more are dropped and counted.
const MAX_UNSENT: usize = 2048;

/// Decides what is traced, and takes what has been.
pub(crate) struct Tracer {
    ids: Ids,
    /// Of 2⁶⁴ trace ids, those below this are sampled.
    below: u128,
    spans: mpsc::Sender<Span>,
}

/// A request that is traced.
#[derive(Debug)]
pub(crate) struct Traced {
    /// Its own place in the trace, which is the parent of what the backend does.
    pub(crate) context: Context,
    parent: Option<u64>,
    began: SystemTime,
    operation: &'static str,
    streamed: bool,
}

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct Span {
    traced: Traced,
    record: Record,
}

impl Tracer {
    pub(crate) fn new(settings: &Trace) -> (Self, Exporter) {
        let (spans, ended) = mpsc::channel(MAX_UNSENT);
        let below = (u128::from(settings.sample_ppm) << 64) / 1_000_000;
        (Self { ids: Ids::new(), below, spans }, Exporter::new(settings, ended))
    }

    /// Begins a span if the request is to be traced: as the caller has decided, else by chance.
    pub(crate) fn begin(&self, headers: &HeaderMap, path: &str) -> Option<Traced> {
        let caller = Context::of(headers);
        let trace = caller.map_or_else(|| self.ids.trace(), |caller| caller.trace);
        let sampled = caller.map_or(u128::from(trace as u64) < self.below, |caller| caller.sampled);
        sampled.then(|| Traced {
            context: Context { trace, span: self.ids.span(), sampled: true },
            parent: caller.map(|caller| caller.span),
            began: SystemTime::now(),
            operation: operation(path),
            streamed: false,
        })
    }

    /// Takes a span that has ended.
    pub(crate) fn end(&self, traced: Traced, record: Record, metrics: &Metrics) {
        if self.spans.try_send(Span { traced, record }).is_err() {
            metrics.spans_dropped(1);
        }
    }
}

impl Traced {
    /// It asks for a stream.
    pub(crate) const fn streamed(&mut self, streamed: bool) {
        self.streamed = streamed;
    }
}

/// `gen_ai.operation.name` of a path.
fn operation(path: &str) -> &'static str {
    match path {
        "/v1/chat/completions" | "/v1/responses" | "/v1/messages" => "chat",
        "/v1/embeddings" => "embeddings",
        "/v1/completions" | "/generate" => "text_completion",
        _ => "inference",
    }
}
