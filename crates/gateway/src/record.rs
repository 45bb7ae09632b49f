//! What is known of a request once it has ended: a line of the access log, and a span.

use std::sync::Arc;

use elasticserve_core::time::Span;

use crate::metrics::Metrics;
use crate::trace::{Traced, Tracer};

/// A request that has ended. Nothing of what it or its answer says is in it.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) tenant: String,
    /// As the request names it.
    pub(crate) model: Option<String>,
    /// As in the metrics.
    pub(crate) outcome: &'static str,
    /// `met`, `missed`, `rejected` or `cancelled`; empty for what was not scheduled.
    pub(crate) result: &'static str,
    /// Of the answer, if there was one.
    pub(crate) status: Option<u16>,
    pub(crate) backend: Option<u32>,
    pub(crate) waited: Option<Span>,
    pub(crate) ttft: Option<Span>,
    pub(crate) e2e: Span,
    pub(crate) input: Option<u32>,
    pub(crate) output: Option<u32>,
    pub(crate) trace: Option<u128>,
}

/// A request that is followed to its end.
pub(crate) struct Follow {
    pub(crate) record: Record,
    /// Whether it gets a line in the access log.
    pub(crate) access: bool,
    pub(crate) traced: Option<(Arc<Tracer>, Traced)>,
}

impl Follow {
    /// It has ended, and its record is complete.
    pub(crate) fn end(self, metrics: &Metrics) {
        if self.access {
            self.record.log();
        }
        if let Some((tracer, traced)) = self.traced {
            tracer.end(traced, self.record, metrics);
        }
    }
}

impl Record {
    /// Whether the answer came whole, or was none that could be broken off.
    pub(crate) fn whole(&self) -> bool {
        !matches!(self.outcome, "backend_failed" | "backend_timeout" | "client_gone" | "aborted" | "abandoned")
    }

    /// Writes the line of the access log.
    pub(crate) fn log(&self) {
        let ms = |span: Option<Span>| span.map(Span::as_millis_f64);
        tracing::info!(
            target: "elasticserve::access",
            request_id = self.id,
            tenant = self.tenant,
            model = self.model.as_deref(),
            outcome = self.outcome,
            slo = self.result,
            status = self.status,
            backend = self.backend,
            queue_ms = ms(self.waited),
            ttft_ms = ms(self.ttft),
            e2e_ms = self.e2e.as_millis_f64(),
            input_tokens = self.input,
            output_tokens = self.output,
            trace_id = self.trace.map(|id| format!("{id:032x}")),
            "request"
        );
    }
}
