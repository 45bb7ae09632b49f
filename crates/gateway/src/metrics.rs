//! Figures for Prometheus. Labels come from the configuration or from closed lists, never from a client.

mod backends;
mod meter;
mod reloads;

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use elasticserve_core::ids::TenantId;
use elasticserve_core::limit::Limited;
use elasticserve_core::sched::{Counts, LengthSummary};
use elasticserve_core::time::Span;
use http::uri::Authority;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::auth::Denied;
use crate::config::Config;
use crate::pool::PoolView;

use backends::Backends;
pub(crate) use meter::{Account, Draft, Meter};
pub(crate) use reloads::Reloads;

/// Buckets in seconds for waiting and for first tokens: from 1 ms to about a minute.
const SHORT: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 8.0, 16.0, 60.0];
/// Buckets in seconds for whole answers: from 10 ms to ten minutes.
const LONG: [f64; 15] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Buckets in seconds for the time per output token.
const PER_TOKEN: [f64; 12] = [0.001, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0];
/// Buckets in seconds for the gateway's own time.
const OWN: [f64; 10] = [0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25];
/// What becomes of a scheduled request.
const RESULTS: [&str; 4] = ["met", "missed", "rejected", "cancelled"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabel {
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    tenant: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    tenant: String,
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SloLabel {
    tenant: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShadowLabel {
    pool: String,
    tenant: String,
    live: &'static str,
    shadow: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LearnedLabel {
    pool: String,
    tenant: String,
    of: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    result: &'static str,
}

/// What became of the state file at the start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It was read.
    Restored,
    /// There was none.
    Fresh,
    /// It could not be used, and was put aside.
    Rejected,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    tenant: String,
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

/// A histogram for each tenant.
type ByTenant = Family<TenantLabel, Histogram, fn() -> Histogram>;

/// What is measured of one tenant's requests without a look-up.
struct TenantFigures {
    name: String,
    queue_wait: Histogram,
    ttft: Histogram,
    tpot: Histogram,
    e2e: Histogram,
}

/// All figures of one gateway.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<OutcomeLabel, Counter>,
    unauthorized: Family<ReasonLabel, Counter>,
    rate_limited: Family<LimitLabel, Counter>,
    body_memory: Gauge,
    slo_results: Family<SloLabel, Counter>,
    retries: Family<SloLabel, Counter>,
    tokens: Family<DirectionLabel, Counter>,
    queue_wait: ByTenant,
    ttft: ByTenant,
    tpot: ByTenant,
    e2e: ByTenant,
    own_time: Histogram,
    queue_depth: Family<PoolLabel, Gauge>,
    queue_bytes: Family<PoolLabel, Gauge>,
    connections: Gauge,
    refused_connections: Counter<u64, AtomicU64>,
    evicted_connections: Counter<u64, AtomicU64>,
    failed_handshakes: Counter<u64, AtomicU64>,
    live_tpot: Family<PoolLabel, Gauge<f64, AtomicU64>>,
    dropped_decisions: Counter<u64, AtomicU64>,
    shadow: Family<ShadowLabel, Counter<u64, AtomicU64>>,
    learned_tokens: Family<LearnedLabel, Gauge<f64, AtomicU64>>,
    learned_samples: Family<LearnedLabel, Gauge>,
    state: Family<StateLabel, Gauge>,
    state_failures: Counter<u64, AtomicU64>,
    dropped_spans: Counter,
    panics: Counter,
    stalled_clients: Counter,
    tasks: Gauge,
    /// By their numbers; a reload adds some.
    tenants: RwLock<Vec<Arc<TenantFigures>>>,
    default_tenant: AtomicU16,
    reloads: Reloads,
    backends: Backends,
    /// Held while the figures are put together.
    turn: Mutex<()>,
}

impl Metrics {
    pub(crate) fn new(config: &Config) -> Arc<Self> {
        let mut m = Self {
            registry: Registry::with_prefix("elasticserve"),
            requests: Family::default(),
            unauthorized: Family::default(),
            rate_limited: Family::default(),
            body_memory: Gauge::default(),
            slo_results: Family::default(),
            retries: Family::default(),
            tokens: Family::default(),
            queue_wait: ByTenant::new_with_constructor(|| Histogram::new(SHORT)),
            ttft: ByTenant::new_with_constructor(|| Histogram::new(SHORT)),
            tpot: ByTenant::new_with_constructor(|| Histogram::new(PER_TOKEN)),
            e2e: ByTenant::new_with_constructor(|| Histogram::new(LONG)),
            own_time: Histogram::new(OWN),
            queue_depth: Family::default(),
            queue_bytes: Family::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            evicted_connections: Counter::default(),
            failed_handshakes: Counter::default(),
            live_tpot: Family::default(),
            dropped_decisions: Counter::default(),
            shadow: Family::default(),
            learned_tokens: Family::default(),
            learned_samples: Family::default(),
            state: Family::default(),
            state_failures: Counter::default(),
            dropped_spans: Counter::default(),
            panics: Counter::default(),
            stalled_clients: Counter::default(),
            tasks: Gauge::default(),
            tenants: RwLock::default(),
            default_tenant: AtomicU16::default(),
            reloads: Reloads::default(),
            backends: Backends::default(),
            turn: Mutex::default(),
        };
        m.reload(config);
        m.register();
        m.reloads.register(&mut m.registry);
        m.backends.register(&mut m.registry);
        if config.tls.is_some() {
            let failed = "Connections of clients without a TLS handshake";
            m.registry.register("failed_handshakes", failed, m.failed_handshakes.clone());
        }
        if config.fixed.state.is_some() {
            m.registry.register("state", "1 for what became of the state file at the start", m.state.clone());
            let failed = "Times that the state could not be written";
            m.registry.register("state_write_failures", failed, m.state_failures.clone());
        }
        if config.fixed.decisions.is_some() {
            let dropped = "Lines of the decision log that were not written";
            m.registry.register("dropped_decisions", dropped, m.dropped_decisions.clone());
        }
        Arc::new(m)
    }

    /// Another configuration is in effect: figures for the tenants that it adds.
    pub(crate) fn reload(&self, config: &Config) {
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        let added = config.tenants.iter().skip(tenants.len()).map(|t| Arc::new(self.figures(&t.name)));
        tenants.extend(added.collect::<Vec<_>>());
        self.default_tenant.store(config.default_tenant.0, Ordering::Relaxed);
    }

    /// What is known of reloads.
    pub(crate) const fn reloads(&self) -> &Reloads {
        &self.reloads
    }

    fn figures(&self, name: &str) -> TenantFigures {
        let label = TenantLabel { tenant: name.to_owned() };
        // They are subtracted from what was offered, so they must be there before anything was asked again.
        for result in RESULTS {
            drop(self.retries.get_or_create(&SloLabel { tenant: name.to_owned(), result }));
        }
        let of = |family: &ByTenant| family.get_or_create(&label).clone();
        TenantFigures {
            name: name.to_owned(),
            queue_wait: of(&self.queue_wait),
            ttft: of(&self.ttft),
            tpot: of(&self.tpot),
            e2e: of(&self.e2e),
        }
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("requests", "Requests by how they ended", self.requests.clone());
        r.register("unauthorized", "Requests without a valid key", self.unauthorized.clone());
        let over = "Requests beyond a limit per minute of their tenant or key";
        r.register("rate_limited", over, self.rate_limited.clone());
        r.register("slo_results", "Scheduled requests by whether their SLO was met", self.slo_results.clone());
        let again = "Those of the scheduled requests that were asked again after a first attempt";
        r.register("retries", again, self.retries.clone());
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
        r.register_with_unit("body_memory", "Bodies of requests in memory", Unit::Bytes, self.body_memory.clone());
        r.register("connections", "Open client connections", self.connections.clone());
        let tokens = "Output tokens of a tenant's answers, as they are learned";
        r.register("learned_output_tokens", tokens, self.learned_tokens.clone());
        let samples = "Answers from which that is learned, those of before a restart among them";
        r.register("learned_samples", samples, self.learned_samples.clone());
        r.register("refused_connections", "Connections beyond the limit", self.refused_connections.clone());
        let evicted = "Idle connections that were closed to make room";
        r.register("evicted_connections", evicted, self.evicted_connections.clone());
        r.register("dropped_spans", "Spans that did not reach the collector", self.dropped_spans.clone());
        r.register("panics", "Requests that ended in a defect of the gateway", self.panics.clone());
        let stalled = "Clients that were cut because they read nothing of their answers";
        r.register("stalled_clients", stalled, self.stalled_clients.clone());
        r.register("tasks", "Tasks of the gateway that have not ended", self.tasks.clone());
        let tpot = "The time per output token that predictions go by";
        r.register_with_unit("live_tpot", tpot, Unit::Seconds, self.live_tpot.clone());
        let shadow = "Requests by what the policy and the shadow policy decided";
        r.register("shadow_decisions", shadow, self.shadow.clone());
    }

    /// All figures as text, with the state of the pools brought up to date.
    pub(crate) fn encode(&self, pools: &[PoolView]) -> Result<String, std::fmt::Error> {
        // Whoever asks at the same time has to wait: what is shown is put together here.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.backends.show(pools);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tasks.set(i64::try_from(runtime.metrics().num_alive_tasks()).unwrap_or(i64::MAX));
        }
        for pool in pools {
            self.show_pool(pool);
        }
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn show_pool(&self, pool: &PoolView) {
        let label = PoolLabel { pool: pool.name.clone() };
        self.queue_depth.get_or_create(&label).set(pool.view.queued as i64);
        let bytes = i64::try_from(pool.view.queued_bytes).unwrap_or(i64::MAX);
        self.queue_bytes.get_or_create(&label).set(bytes);
        match pool.view.live_tpot {
            Some(tpot) => _ = self.live_tpot.get_or_create(&label).set(tpot.as_secs_f64()),
            None => _ = self.live_tpot.remove(&label),
        }
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (tenant, summary) in tenants.iter().zip(&pool.lengths) {
            if let Some(summary) = summary {
                self.show_lengths(&pool.name, &tenant.name, summary);
            }
        }
        for (tenant, counts) in tenants.iter().zip(&pool.view.shadow) {
            self.show_shadow(&pool.name, &tenant.name, *counts);
        }
    }

    fn show_lengths(&self, pool: &str, tenant: &str, summary: &LengthSummary) {
        let label = |of| LearnedLabel { pool: pool.to_owned(), tenant: tenant.to_owned(), of };
        let (p50, p90) = (f64::from(summary.p50), f64::from(summary.p90));
        for (of, tokens) in [("mean", summary.mean), ("p50", p50), ("p90", p90)] {
            self.learned_tokens.get_or_create(&label(of)).set(tokens);
        }
        for (of, count) in [("finished", summary.finished), ("cut", summary.cut)] {
            self.learned_samples.get_or_create(&label(of)).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn state_is(&self, kept: Kept) {
        for (of, result) in [(Kept::Restored, "restored"), (Kept::Fresh, "fresh"), (Kept::Rejected, "rejected")] {
            self.state.get_or_create(&StateLabel { result }).set(i64::from(of == kept));
        }
    }

    pub(crate) fn state_not_written(&self) {
        self.state_failures.inc();
    }

    fn show_shadow(&self, pool: &str, tenant: &str, counts: Counts) {
        let all = [
            ("admitted", "admitted", counts.both_admit),
            ("refused", "refused", counts.both_refuse),
            ("admitted", "refused", counts.only_live),
            ("refused", "admitted", counts.only_shadow),
        ];
        for (live, shadow, count) in all {
            let label = ShadowLabel { pool: pool.to_owned(), tenant: tenant.to_owned(), live, shadow };
            // The shadow's counts are the truth; they never fall.
            self.shadow.get_or_create(&label).inner().store(count, Ordering::Relaxed);
        }
    }

    /// The addresses of a name that is written down could not be looked up.
    pub(crate) fn look_up_failed(&self, name: &Authority) {
        self.backends.look_up_failed(name);
    }

    /// A request's backend failed before it answered; whether another one took it.
    pub(crate) fn failed_over(&self, pool: &str, moved: bool) {
        self.backends.failed_over(pool, moved);
    }

    pub(crate) fn rate_limited(&self, tenant: TenantId, limited: Limited) {
        self.rate_limited.get_or_create(&LimitLabel { tenant: self.name(tenant), limit: limited.name() }).inc();
    }

    pub(crate) fn body_memory_is(&self, bytes: u64) {
        self.body_memory.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn denied(&self, why: Denied) {
        self.unauthorized.get_or_create(&ReasonLabel { reason: why.name() }).inc();
    }

    pub(crate) fn connections_are(&self, open: usize) {
        self.connections.set(open as i64);
    }

    pub(crate) fn spans_dropped(&self, count: u64) {
        self.dropped_spans.inc_by(count);
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    pub(crate) fn client_stalled(&self) {
        self.stalled_clients.inc();
    }

    pub(crate) fn connection_refused(&self) {
        self.refused_connections.inc();
    }

    pub(crate) fn connection_evicted(&self) {
        self.evicted_connections.inc();
    }

    pub(crate) fn handshake_failed(&self) {
        self.failed_handshakes.inc();
    }

    pub(crate) fn waited(&self, tenant: TenantId, span: Span) {
        if let Some(figures) = self.of(tenant) {
            figures.queue_wait.observe(span.as_secs_f64());
        }
    }

    pub(crate) fn spent_itself(&self, span: Span) {
        self.own_time.observe(span.as_secs_f64());
    }

    pub(crate) fn decision_dropped(&self) {
        self.dropped_decisions.inc();
    }

    /// Counts a request that ended without reaching the scheduler or a backend.
    pub(crate) fn ended(&self, outcome: &'static str) {
        self.ended_of(TenantId(self.default_tenant.load(Ordering::Relaxed)), outcome);
    }

    fn ended_of(&self, tenant: TenantId, outcome: &'static str) {
        self.requests.get_or_create(&OutcomeLabel { tenant: self.name(tenant), outcome }).inc();
    }

    fn slo(&self, tenant: TenantId, result: &'static str, again: bool) {
        let label = SloLabel { tenant: self.name(tenant), result };
        if again {
            self.retries.get_or_create(&label).inc();
        }
        self.slo_results.get_or_create(&label).inc();
    }

    fn count_tokens(&self, tenant: TenantId, direction: &'static str, n: u32) {
        self.tokens.get_or_create(&DirectionLabel { tenant: self.name(tenant), direction }).inc_by(u64::from(n));
    }

    pub(crate) fn name(&self, tenant: TenantId) -> String {
        self.of(tenant).map(|t| t.name.clone()).unwrap_or_default()
    }

    fn of(&self, tenant: TenantId) -> Option<Arc<TenantFigures>> {
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        tenants.get(tenant.index()).cloned()
    }
}
