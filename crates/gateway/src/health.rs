//! Whether backends are up: a probe every so often. What requests find out, the gate of each backend keeps.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::HeaderMap;
use tokio::task::JoinSet;

use crate::endpoint::Endpoint;
use crate::engine;
use crate::pool::Pool;
use crate::proxy::Shared;
use crate::upstream::Outgoing;

/// Watches every backend from when it is added until it is removed, for ever.
pub(crate) async fn supervise(shared: Arc<Shared>) {
    let mut watching = JoinSet::new();
    let mut watched = BTreeSet::new();
    loop {
        let mut living = BTreeSet::new();
        for pool in shared.pools.all() {
            for endpoint in pool.living() {
                living.insert(endpoint.number);
                if watched.insert(endpoint.number) {
                    let gone = endpoint.gone.clone();
                    let probing = probe(Arc::clone(&shared), Arc::clone(pool), Arc::clone(&endpoint));
                    let reading = engine::watch(Arc::clone(&shared), Arc::clone(pool), endpoint);
                    watching.spawn(async move {
                        gone.run_until_cancelled(async { tokio::join!(probing, reading) }).await;
                    });
                }
            }
        }
        watched.retain(|number| living.contains(number));
        tokio::select! {
            () = shared.pools.added.notified() => {}
            Some(_) = watching.join_next() => {}
        }
    }
}

/// Probes one backend for ever.
///
/// Any answer below 500 counts as up: a server without `/health` answers 404.
async fn probe(shared: Arc<Shared>, pool: Arc<Pool>, endpoint: Arc<Endpoint>) {
    loop {
        let config = shared.config();
        let outgoing = Outgoing {
            method: Method::GET,
            path: config.watch.path.clone(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let answer = shared.upstream.send(&endpoint.backend, &outgoing);
        let well = match tokio::time::timeout(config.watch.timeout.to_std(), answer).await {
            Ok(Ok(response)) => Some(response.status().as_u16() < 500),
            // It could not be asked.
            Ok(Err(error)) if error.is_own() => None,
            Ok(Err(_)) | Err(_) => Some(false),
        };
        if let Some(well) = well {
            let alone = pool.is_alone(&endpoint);
            pool.change(&endpoint, |gate, now| gate.probed(now, well, alone));
        }
        tokio::time::sleep(config.watch.interval.to_std()).await;
    }
}
