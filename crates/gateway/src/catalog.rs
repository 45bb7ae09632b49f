//! The list of models of several pools: what their backends say of them, put together.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, Full, Limited};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::headers::{OUTCOME, REQUEST_ID};
use crate::live::Active;
use crate::proxy::Shared;
use crate::upstream::Outgoing;

/// A backend without a list for so long is listed by what the configuration says.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of one backend's list.
const MAX_LIST: usize = 1 << 20;

#[derive(Deserialize)]
struct List {
    data: Vec<Value>,
}

impl Shared {
    /// All models that are served, each as its backend describes it or, if none answers, by its name.
    pub(crate) async fn list_models(
        &self,
        config: &Active,
        outgoing: &Outgoing,
        id: &HeaderValue,
    ) -> Response<Full<Bytes>> {
        let mut lists = JoinSet::new();
        for (place, pool) in self.pools.all().iter().enumerate() {
            let Some(endpoint) = pool.open().into_iter().next() else { continue };
            let (upstream, outgoing) = (self.upstream.clone(), outgoing.clone());
            lists.spawn(async move {
                let asking = async {
                    let response = upstream.send(&endpoint.backend, &outgoing).await.ok()?;
                    let body = Limited::new(response.into_body(), MAX_LIST).collect().await.ok()?.to_bytes();
                    serde_json::from_slice::<List>(&body).ok()
                };
                (place, tokio::time::timeout(PATIENCE, asking).await.ok().flatten())
            });
        }
        let mut described: Vec<Vec<Value>> = vec![Vec::new(); config.pools.len()];
        while let Some(joined) = lists.join_next().await {
            if let Ok((place, Some(list))) = joined
                && let Some(of_pool) = described.get_mut(place)
            {
                *of_pool = list.data;
            }
        }
        let mut data = Vec::new();
        for (pool, described) in config.pools.iter().zip(described) {
            for name in pool.models.iter().flatten() {
                let own = described.iter().find(|model| model["id"] == name.as_str());
                let bare = || json!({ "id": name, "object": "model", "created": 0, "owned_by": "elasticserve" });
                data.push(own.cloned().unwrap_or_else(bare));
            }
        }
        let mut response = Response::new(Full::from(json!({ "object": "list", "data": data }).to_string()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(OUTCOME, HeaderValue::from_static("passed_by"));
        headers.insert(REQUEST_ID, id.clone());
        response
    }
}
