//! Figures for Prometheus. Labels come from the configuration or from closed lists, never from a client.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use elasticserve_core::openai::Usage;
use elasticserve_core::outcome::How;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::admit::View;
use crate::clock::Clock;

/// Buckets in seconds for waiting and for first tokens: from 1 ms to about a minute.
const SHORT: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 8.0, 16.0, 60.0];
/// Buckets in seconds for whole answers: from 10 ms to ten minutes.
const LONG: [f64; 15] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Buckets in seconds for the time per output token.
const PER_TOKEN: [f64; 12] = [0.001, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0];
/// Buckets in seconds for the gateway's own time.
const OWN: [f64; 10] = [0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    tenant: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SloLabel {
    tenant: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    tenant: &'static str,
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabel {
    backend: String,
}

/// The tenant of every request while no tenants are configured.
const TENANT: &str = "default";

/// All figures of one gateway.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<OutcomeLabel, Counter>,
    slo_results: Family<SloLabel, Counter>,
    tokens: Family<DirectionLabel, Counter>,
    queue_wait: Histogram,
    ttft: Histogram,
    tpot: Histogram,
    e2e: Histogram,
    own_time: Histogram,
    queue_depth: Gauge,
    queue_bytes: Gauge,
    permits_in_use: Family<BackendLabel, Gauge>,
    permits: Family<BackendLabel, Gauge>,
    backend_up: Family<BackendLabel, Gauge>,
    connections: Gauge,
    refused_connections: Counter<u64, AtomicU64>,
    backends: Vec<BackendLabel>,
}

impl Metrics {
    pub(crate) fn new(backends: impl Iterator<Item = String>) -> Arc<Self> {
        let mut m = Self {
            registry: Registry::with_prefix("elasticserve"),
            requests: Family::default(),
            slo_results: Family::default(),
            tokens: Family::default(),
            queue_wait: Histogram::new(SHORT),
            ttft: Histogram::new(SHORT),
            tpot: Histogram::new(PER_TOKEN),
            e2e: Histogram::new(LONG),
            own_time: Histogram::new(OWN),
            queue_depth: Gauge::default(),
            queue_bytes: Gauge::default(),
            permits_in_use: Family::default(),
            permits: Family::default(),
            backend_up: Family::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            backends: backends.map(|backend| BackendLabel { backend }).collect(),
        };
        m.register();
        Arc::new(m)
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("requests", "Requests by how they ended", self.requests.clone());
        r.register("slo_results", "Scheduled requests by whether their SLO was met", self.slo_results.clone());
        r.register("tokens", "Tokens of answered requests", self.tokens.clone());
        let s = Unit::Seconds;
        r.register_with_unit("queue_wait", "Time from arrival to a permit", s.clone(), self.queue_wait.clone());
        r.register_with_unit("ttft", "Time from arrival to the first content", s.clone(), self.ttft.clone());
        r.register_with_unit("tpot", "Time per output token after the first", s.clone(), self.tpot.clone());
        r.register_with_unit("e2e", "Time from arrival to the end of the answer", s.clone(), self.e2e.clone());
        let own = "The gateway's own time from arrival to the backend's request, without body and queue";
        r.register_with_unit("overhead", own, s, self.own_time.clone());
        r.register("queue_depth", "Requests that wait", self.queue_depth.clone());
        r.register_with_unit("queue_size", "Bodies that wait", Unit::Bytes, self.queue_bytes.clone());
        r.register("permits_in_use", "Permits in use", self.permits_in_use.clone());
        r.register("permits", "Permits in total", self.permits.clone());
        r.register("backend_up", "1 if the backend answers, else 0", self.backend_up.clone());
        r.register("connections", "Open client connections", self.connections.clone());
        r.register("refused_connections", "Connections beyond the limit", self.refused_connections.clone());
    }

    /// All figures as text, with the scheduler's state brought up to date.
    pub(crate) fn encode(&self, view: &View) -> Result<String, std::fmt::Error> {
        self.queue_depth.set(view.queued as i64);
        self.queue_bytes.set(i64::try_from(view.queued_bytes).unwrap_or(i64::MAX));
        for (label, (in_use, total)) in self.backends.iter().zip(&view.permits) {
            self.permits_in_use.get_or_create(label).set(i64::from(*in_use));
            self.permits.get_or_create(label).set(i64::from(*total));
        }
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    pub(crate) fn backend_is(&self, index: usize, up: bool) {
        if let Some(label) = self.backends.get(index) {
            self.backend_up.get_or_create(label).set(i64::from(up));
        }
    }

    pub(crate) fn connections_are(&self, open: usize) {
        self.connections.set(open as i64);
    }

    pub(crate) fn connection_refused(&self) {
        self.refused_connections.inc();
    }

    pub(crate) fn waited(&self, span: Span) {
        self.queue_wait.observe(span.as_secs_f64());
    }

    pub(crate) fn spent_itself(&self, span: Span) {
        self.own_time.observe(span.as_secs_f64());
    }

    /// Counts a request that ended without reaching the scheduler or a backend.
    pub(crate) fn ended(&self, outcome: &'static str) {
        self.requests.get_or_create(&OutcomeLabel { tenant: TENANT, outcome }).inc();
    }

    fn slo(&self, result: &'static str) {
        self.slo_results.get_or_create(&SloLabel { tenant: TENANT, result }).inc();
    }

    fn count_tokens(&self, direction: &'static str, n: u32) {
        self.tokens.get_or_create(&DirectionLabel { tenant: TENANT, direction }).inc_by(u64::from(n));
    }
}

/// The account of one scheduled request. Dropped without an end, it counts the client as gone.
pub(crate) struct Meter {
    metrics: Arc<Metrics>,
    clock: Clock,
    slo: Slo,
    arrived: Tick,
    first_content: Option<Tick>,
    last_content: Option<Tick>,
    content_events: u32,
    usage: Option<Usage>,
    ended: bool,
}

impl Meter {
    pub(crate) fn start(metrics: Arc<Metrics>, clock: Clock, slo: Slo, arrived: Tick) -> Self {
        Self {
            metrics,
            clock,
            slo,
            arrived,
            first_content: None,
            last_content: None,
            content_events: 0,
            usage: None,
            ended: false,
        }
    }

    /// Content came, in so many events; the time since the content before.
    pub(crate) fn content(&mut self, events: u32) -> Option<Span> {
        let now = self.clock.now();
        self.first_content.get_or_insert(now);
        self.content_events += events;
        self.last_content.replace(now).map(|before| now.since(before))
    }

    pub(crate) fn has_content(&self) -> bool {
        self.first_content.is_some()
    }

    pub(crate) fn usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// The request was turned away.
    pub(crate) fn refused(mut self, code: &'static str) {
        self.ended = true;
        self.metrics.ended(code);
        self.metrics.slo("rejected");
    }

    /// The backend gave no answer.
    pub(crate) fn failed(mut self, code: &'static str) {
        self.ended = true;
        self.metrics.ended(code);
        self.metrics.slo("missed");
    }

    /// The answer ended. `success` is false for an answer that is an error of the backend's.
    pub(crate) fn answered(mut self, how: How, success: bool) {
        self.ended = true;
        self.metrics.ended(if how == How::Finished && !success { "backend_error" } else { how.name() });
        if how != How::Finished || !success {
            self.metrics.slo("missed");
            return;
        }
        let output = self.usage.map_or(self.content_events, |u| u.completion_tokens);
        let now = self.clock.now();
        let ttft = self.first_content.map(|t| t.since(self.arrived));
        let content = self.first_content.zip(self.last_content).map(|(a, b)| b.since(a));
        let tpot = content.filter(|_| output > 1).map(|c| Span::from_nanos(c.as_nanos() / u64::from(output - 1)));
        let e2e = now.since(self.arrived);
        for (histogram, span) in
            [(&self.metrics.ttft, ttft), (&self.metrics.tpot, tpot), (&self.metrics.e2e, Some(e2e))]
        {
            if let Some(span) = span {
                histogram.observe(span.as_secs_f64());
            }
        }
        let met = self.slo.is_met(ttft, tpot, Some(e2e), Some(output));
        self.metrics.slo(if met { "met" } else { "missed" });
        self.metrics.count_tokens("output", output);
        if let Some(usage) = self.usage {
            self.metrics.count_tokens("input", usage.prompt_tokens);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.ended(if std::thread::panicking() { How::Abandoned.name() } else { How::ClientGone.name() });
            self.metrics.slo("cancelled");
        }
    }
}
