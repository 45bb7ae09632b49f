//! What an engine's own metrics say: how much work others have sent there.
//!
//! Capacity is the gateway's own permits. Where an engine shows more requests than the gateway has there, the rest is
//! work of others, and as many permits are held back. What was sent since the metrics were read is known to the
//! gateway and needs no correction. Metrics that are old, or cannot be read, hold nothing back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};

use crate::config::RawEngine;
use crate::endpoint::Endpoint;
use crate::pool::Pool;
use crate::proxy::Shared;
use crate::upstream::Outgoing;

/// Metrics that do not come for so long cannot be read.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of them.
const MAX_BYTES: usize = 4 << 20;
/// Metrics are believed for so many intervals between two looks.
const FRESH: u64 = 5;

/// Reads the metrics of one backend for ever, if it is to have any.
pub(crate) async fn watch(shared: Arc<Shared>, pool: Arc<Pool>, endpoint: Arc<Endpoint>) {
    let Some((_, names)) = &endpoint.backend.engine else { return };
    let mut before = 0;
    loop {
        let interval = shared.config().watch.metrics_interval;
        // What ends or starts meanwhile may be shown or not; it must not be taken for the work of others.
        let own = pool.admission.permits(endpoint.seat).0;
        let reading = read(&shared, &endpoint, names);
        if let Ok(Some(shown)) = tokio::time::timeout(PATIENCE, reading).await {
            let own = own.max(pool.admission.permits(endpoint.seat).0);
            let foreign = shown.saturating_sub(own);
            // An engine shows a request for a moment after its answer has ended; work of others is there twice.
            let lasting = foreign.min(std::mem::replace(&mut before, foreign));
            pool.change(&endpoint, |gate, now| gate.shared_with(now, lasting, interval * FRESH));
            endpoint.metrics_read(shared.clock.now());
        }
        tokio::time::sleep(interval.to_std()).await;
    }
}

/// The requests that an engine shows, running and waiting; `None` if it shows none of the names.
async fn read(shared: &Shared, endpoint: &Endpoint, names: &RawEngine) -> Option<u32> {
    let outgoing = Outgoing {
        method: Method::GET,
        path: PathAndQuery::from_static("/metrics"),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let response = shared.upstream.send(&endpoint.backend, &outgoing).await.ok()?;
    if response.status() != StatusCode::OK {
        return None;
    }
    let body = Limited::new(response.into_body(), MAX_BYTES).collect().await.ok()?.to_bytes();
    requests(&String::from_utf8_lossy(&body), names)
}

/// The sum of both gauges over all their labels, in Prometheus' text format. The number that runs is needed.
fn requests(text: &str, names: &RawEngine) -> Option<u32> {
    let running = sum(text, &names.running)?;
    let all = running + sum(text, &names.waiting).unwrap_or(0.0);
    // Above what counts as a number of requests the cast gives the most there is.
    (all >= 0.0).then_some(all as u32)
}

fn sum(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let rest = match rest.as_bytes().first()? {
            // Braces within labels come before the last one.
            b'{' => &rest[rest.rfind('}')? + 1..],
            b' ' | b'\t' => rest,
            _ => return None,
        };
        rest.split_ascii_whitespace().next()?.parse::<f64>().ok().filter(|n| n.is_finite())
    };
    text.lines().filter_map(value).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As vLLM and SGLang write them.
    const TEXT: &str = "# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine=\"0\",model_name=\"a } 9\"} 3.0
vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 4.0
vllm:num_requests_running_total{engine=\"1\"} 400.0
vllm:num_requests_waiting{engine=\"0\"} 2.0 1700000000000
sglang:num_running_reqs 5
bad:gauge NaN
";

    fn names(running: &str, waiting: &str) -> RawEngine {
        RawEngine { running: running.to_owned(), waiting: waiting.to_owned() }
    }

    #[test]
    fn requests_are_summed_over_labels_and_only_gauges_of_that_very_name_count() {
        let of = |running, waiting| requests(TEXT, &names(running, waiting));
        assert_eq!(of("vllm:num_requests_running", "vllm:num_requests_waiting"), Some(9));
        assert_eq!(of("sglang:num_running_reqs", "sglang:num_queue_reqs"), Some(5));
        assert_eq!(of("nothing", "vllm:num_requests_waiting"), None);
        assert_eq!(of("bad:gauge", "sglang:num_running_reqs"), None);
        assert_eq!(requests("", &names("a", "b")), None);
        assert_eq!(requests("a -1", &names("a", "b")), None);
        assert_eq!(requests("a 1e300", &names("a", "b")), Some(u32::MAX));
    }
}
