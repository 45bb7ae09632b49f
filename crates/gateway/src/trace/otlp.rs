//! Spans as OTLP's JSON has them. Names are those of OpenTelemetry's conventions for generative AI; what these have
//! no name for begins with `elasticserve.`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elasticserve_core::time::Span as Length;
use serde_json::{Value, json};

use super::Span;

/// `SPAN_KIND_SERVER`.
const SERVER: u32 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: u32 = 2;

/// One message with all of the spans.
pub(super) fn message(service: &str, spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource = vec![text("service.name", service), text("service.version", version)];
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "elasticserve", "version": version }, "spans": spans }],
    }]})
}

fn span(span: &Span) -> Value {
    let Span { traced, record } = span;
    let context = traced.context;
    let name = match &record.model {
        Some(model) => format!("{} {model}", traced.operation),
        None => traced.operation.to_owned(),
    };
    let after = |length: Length| nanos(traced.began, length.to_std());
    let events = [("elasticserve.granted", record.waited), ("elasticserve.first_content", record.ttft)];
    let events = events.iter().filter_map(|(name, at)| at.map(|at| json!({ "timeUnixNano": after(at), "name": name })));
    let failed = record.status.is_none_or(|status| status >= 400) || !record.whole();
    let mut out = json!({
        "traceId": format!("{:032x}", context.trace),
        "spanId": format!("{:016x}", context.span),
        "name": name,
        "kind": SERVER,
        "startTimeUnixNano": nanos(traced.began, Duration::ZERO),
        "endTimeUnixNano": after(record.e2e),
        "attributes": attributes(span, failed),
        "events": events.collect::<Vec<_>>(),
    });
    if let Some(parent) = traced.parent {
        out["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    if failed {
        out["status"] = json!({ "code": ERROR, "message": record.outcome });
    }
    out
}

fn attributes(span: &Span, failed: bool) -> Vec<Value> {
    let Span { traced, record } = span;
    let seconds = |length: Length| length.as_secs_f64();
    let some = [
        record.model.as_ref().map(|model| text("gen_ai.request.model", model)),
        record.ttft.map(|ttft| float("gen_ai.response.time_to_first_chunk", seconds(ttft))),
        record.input.map(|n| int("gen_ai.usage.input_tokens", n.into())),
        record.output.map(|n| int("gen_ai.usage.output_tokens", n.into())),
        record.status.map(|status| int("http.response.status_code", status.into())),
        failed.then(|| text("error.type", record.outcome)),
        record.waited.map(|waited| float("elasticserve.queue_wait", seconds(waited))),
        record.backend.map(|backend| int("elasticserve.backend", backend.into())),
    ];
    let always = [
        text("gen_ai.operation.name", traced.operation),
        json!({ "key": "gen_ai.request.stream", "value": { "boolValue": traced.streamed } }),
        text("elasticserve.tenant", &record.tenant),
        text("elasticserve.outcome", record.outcome),
        text("elasticserve.slo_result", record.result),
        text("elasticserve.request_id", &record.id),
    ];
    always.into_iter().chain(some.into_iter().flatten()).collect()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// 64-bit integers are texts in the JSON of protocol buffers.
fn int(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn float(key: &str, value: f64) -> Value {
    json!({ "key": key, "value": { "doubleValue": value } })
}

fn nanos(began: SystemTime, after: Duration) -> String {
    let at = began.duration_since(UNIX_EPOCH).unwrap_or_default() + after;
    at.as_nanos().to_string()
}
