//! What the gateway looks like at one moment, as JSON.

use std::sync::atomic::Ordering;

use elasticserve_core::ids::TenantId;
use elasticserve_core::sched::{Admission, Rules, TenantLoad};
use serde::Serialize;

use crate::config::Config;
use crate::endpoint::EndpointView;
use crate::live::ReloadError;
use crate::pool::PoolView;
use crate::proxy::Shared;

/// The answer of `GET /admin/state`.
#[derive(Serialize)]
pub(super) struct State {
    version: &'static str,
    draining: bool,
    config: Loaded,
    /// As `queue.shadow` would be written.
    policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<String>,
    queue: Waiting,
    tenants: Vec<TenantState>,
    pools: Vec<PoolState>,
}

#[derive(Serialize)]
struct Loaded {
    hash: String,
    last_reload: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    needs_restart: Vec<&'static str>,
    /// What was changed by hand, which the next reload loses.
    changed: Vec<String>,
}

#[derive(Serialize)]
struct Waiting {
    requests: usize,
    bytes: u64,
    /// The bounds of each pool.
    max_requests: u32,
    max_bytes: u64,
}

#[derive(Serialize)]
struct TenantState {
    name: String,
    weight: u32,
    queued: usize,
    queued_bytes: u64,
    permits_in_use: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_permits: Option<u32>,
    /// Gone from the configuration, but something of it still waits or runs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    retired: bool,
}

#[derive(Serialize)]
struct PoolState {
    name: String,
    queued: usize,
    queued_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    live_tpot_ms: Option<f64>,
    backends: Vec<BackendState>,
}

#[derive(Serialize)]
struct BackendState {
    name: String,
    health: String,
    breaker: &'static str,
    permits: u32,
    permits_in_use: u32,
}

pub(super) fn of(shared: &Shared) -> State {
    let config = shared.config();
    let last = shared.reloader.last();
    let views = shared.pools.views(0);
    let tenants = config.tenants.iter().enumerate().filter_map(|(i, tenant)| {
        let loads = shared.pools.all().iter().map(|pool| pool.admission.tenant_load(TenantId(i as u16)));
        let load = loads.fold(TenantLoad::default(), |sum, load| TenantLoad {
            queued: sum.queued + load.queued,
            queued_bytes: sum.queued_bytes + load.queued_bytes,
            in_use: sum.in_use + load.in_use,
        });
        let state = TenantState {
            name: tenant.name.clone(),
            weight: tenant.weight.get(),
            queued: load.queued,
            queued_bytes: load.queued_bytes,
            permits_in_use: load.in_use,
            max_permits: tenant.max_permits,
            retired: tenant.retired,
        };
        (!tenant.retired || load.queued > 0 || load.in_use > 0).then_some(state)
    });
    State {
        version: env!("CARGO_PKG_VERSION"),
        draining: shared.leaving.load(Ordering::Relaxed),
        config: Loaded {
            hash: config.hash().to_owned(),
            last_reload: if last.error.is_some() { "refused" } else { "ok" },
            needs_restart: match &last.error {
                Some(ReloadError::NeedsRestart(keys)) => keys.clone(),
                _ => Vec::new(),
            },
            error: last.error.map(|e| e.to_string()),
            changed: last.changed,
        },
        policy: policy(&config).to_string(),
        shadow: config.shadow.map(|shadow| shadow.rules.to_string()),
        queue: Waiting {
            requests: views.iter().map(|pool| pool.view.queued).sum(),
            bytes: views.iter().map(|pool| pool.view.queued_bytes).sum(),
            max_requests: config.queue_depth,
            max_bytes: config.queue_bytes,
        },
        tenants: tenants.collect(),
        pools: views.into_iter().map(pool).collect(),
    }
}

fn pool(pool: PoolView) -> PoolState {
    let backend = |b: EndpointView| BackendState {
        name: b.name,
        health: format!("{:?}", b.health).to_lowercase(),
        breaker: b.breaker.name(),
        permits: b.permits.1,
        permits_in_use: b.permits.0,
    };
    PoolState {
        name: pool.name,
        queued: pool.view.queued,
        queued_bytes: pool.view.queued_bytes,
        live_tpot_ms: pool.view.live_tpot.map(|tpot| tpot.as_millis_f64()),
        backends: pool.backends.into_iter().map(backend).collect(),
    }
}

/// Who goes next and who is turned away, in a word.
pub(super) fn policy(config: &Config) -> Rules {
    let admission = match (config.price, config.predict, config.queue_budget) {
        (Some(price), ..) => Admission::Price(price.mu),
        (None, Some(_), _) => Admission::Predict,
        (None, None, Some(budget)) => Admission::Budget(budget),
        (None, None, None) => Admission::None,
    };
    Rules { order: config.order, admission }
}
