//! Whether backends are up: a probe every so often, and what requests find out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use elasticserve_core::ids::BackendId;
use http::Method;
use http::header::HeaderMap;
use http::uri::PathAndQuery;

use crate::proxy::Shared;
use crate::upstream::Outgoing;

/// Between two probes of a backend.
const INTERVAL: Duration = Duration::from_secs(2);
/// A probe without an answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Failed probes in a row after which a backend counts as down. One alone may be chance: an engine
/// that is busy with a long step answers late.
const FAILURES: u32 = 2;

/// What is known of the backends.
#[derive(Debug)]
pub(crate) struct Health(Vec<AtomicU8>);

const UNKNOWN: u8 = 0;
const UP: u8 = 1;
const DOWN: u8 = 2;

impl Health {
    /// Nothing is known of so many backends.
    pub(crate) fn unknown(backends: usize) -> Self {
        Self((0..backends).map(|_| AtomicU8::new(UNKNOWN)).collect())
    }

    /// Whether any backend has answered its last probe.
    pub(crate) fn any_up(&self) -> bool {
        self.0.iter().any(|state| state.load(Ordering::Relaxed) == UP)
    }

    /// The first backend that is up, or else the first that is not known to be down.
    pub(crate) fn first_open(&self) -> Option<BackendId> {
        let find = |wanted| self.0.iter().position(|state| state.load(Ordering::Relaxed) == wanted);
        find(UP).or_else(|| find(UNKNOWN)).map(|i| BackendId(i as u16))
    }

    fn set(&self, id: BackendId, up: bool) {
        self.0[id.index()].store(if up { UP } else { DOWN }, Ordering::Relaxed);
    }
}

/// Probes one backend for ever.
///
/// Any answer below 500 counts as up: a server without `/health` answers 404.
pub(crate) async fn watch(shared: Arc<Shared>, id: BackendId) {
    let probe = Outgoing {
        method: Method::GET,
        path: PathAndQuery::from_static("/health"),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let mut failures = 0;
    let mut known = None;
    loop {
        let backend = shared.config().backends[id.index()].clone();
        let answer = shared.upstream.send(&backend, &probe);
        let healthy = match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(response)) => response.status().as_u16() < 500,
            Ok(Err(_)) | Err(_) => false,
        };
        failures = if healthy { 0 } else { failures + 1 };
        if known != Some(healthy) && (healthy || failures >= FAILURES) {
            known = Some(healthy);
            set(&shared, id, healthy);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn set(shared: &Shared, id: BackendId, up: bool) {
    let config = shared.config();
    let backend = &config.backends[id.index()].authority;
    if up {
        tracing::info!(%backend, "backend is up");
    } else {
        tracing::warn!(%backend, "backend is down");
    }
    shared.health.set(id, up);
    shared.metrics.backend_is(id.index(), up);
    shared.admission.set_backend(id, up);
}
