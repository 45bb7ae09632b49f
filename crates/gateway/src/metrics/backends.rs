//! Figures of backends, which come and go.

use std::sync::atomic::AtomicU64;

use elasticserve_core::gate::{Breaker, Health};
use http::uri::Authority;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::endpoint::EndpointView;
use crate::pool::PoolView;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailoverLabel {
    pool: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabel {
    pool: String,
    backend: String,
}

/// Figures of the backends of all pools.
#[derive(Default)]
pub(super) struct Backends {
    permits_in_use: Family<BackendLabel, Gauge>,
    permits: Family<BackendLabel, Gauge>,
    up: Family<BackendLabel, Gauge>,
    breaker: Family<BackendLabel, Gauge>,
    foreign: Family<BackendLabel, Gauge>,
    metrics_age: Family<BackendLabel, Gauge<f64, AtomicU64>>,
    failovers: Family<FailoverLabel, Counter>,
    failed_look_ups: Family<NameLabel, Counter>,
}

impl Backends {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("permits_in_use", "Permits in use", self.permits_in_use.clone());
        r.register("permits", "Permits in total", self.permits.clone());
        r.register("backend_up", "1 if the backend answers its probes, else 0", self.up.clone());
        let breaker = "The backend's circuit breaker: 0 closed, 1 half-open, 2 open";
        r.register("backend_breaker", breaker, self.breaker.clone());
        let foreign = "Requests of others that the backend's own metrics show";
        r.register("backend_foreign_requests", foreign, self.foreign.clone());
        let age = "Time since the backend's own metrics were read";
        r.register_with_unit("backend_metrics_age", age, Unit::Seconds, self.metrics_age.clone());
        let failovers = "Requests whose backend failed before it answered, by whether another one took them";
        r.register("failovers", failovers, self.failovers.clone());
        let failed = "Look-ups of a backend's name that failed or found nothing";
        r.register("discovery_failures", failed, self.failed_look_ups.clone());
    }

    /// Shows the backends of this moment, and none that was removed. One caller at a time.
    pub(super) fn show(&self, pools: &[PoolView]) {
        for family in [&self.permits_in_use, &self.permits, &self.up, &self.breaker, &self.foreign] {
            family.clear();
        }
        self.metrics_age.clear();
        for pool in pools {
            pool.backends.iter().for_each(|backend| self.show_one(&pool.name, backend));
        }
    }

    fn show_one(&self, pool: &str, backend: &EndpointView) {
        let label = BackendLabel { pool: pool.to_owned(), backend: backend.name.clone() };
        let (in_use, total) = backend.permits;
        let breaker = match backend.breaker {
            Breaker::Closed => 0,
            Breaker::HalfOpen => 1,
            Breaker::Open => 2,
        };
        // Two backends may have one name; their permits are shown together.
        self.permits_in_use.get_or_create(&label).inc_by(i64::from(in_use));
        self.permits.get_or_create(&label).inc_by(i64::from(total));
        self.up.get_or_create(&label).set(i64::from(backend.health == Health::Up));
        self.breaker.get_or_create(&label).set(breaker);
        if let Some(age) = backend.metrics_age {
            self.foreign.get_or_create(&label).set(i64::from(backend.foreign));
            self.metrics_age.get_or_create(&label).set(age.as_secs_f64());
        }
    }

    pub(super) fn failed_over(&self, pool: &str, moved: bool) {
        let result = if moved { "moved" } else { "stranded" };
        self.failovers.get_or_create(&FailoverLabel { pool: pool.to_owned(), result }).inc();
    }

    pub(super) fn look_up_failed(&self, name: &Authority) {
        self.failed_look_ups.get_or_create(&NameLabel { name: name.to_string() }).inc();
    }
}
