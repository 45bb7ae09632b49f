//! Reading a request body whole, within its bounds.

use bytes::{Bytes, BytesMut};
use elasticserve_core::time::Span;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::reply::Refusal;

/// Reads the body. What is announced or turns out to be larger than `limit` is not read on.
pub(crate) async fn read(body: Incoming, limit: u64, timeout: Span) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > limit {
        return Err(Refusal::BodyTooLarge { limit });
    }
    match tokio::time::timeout(timeout.to_std(), collect(body, limit)).await {
        Ok(result) => result,
        Err(_) => Err(Refusal::BodyTooSlow { limit: timeout }),
    }
}

async fn collect(mut body: Incoming, limit: u64) -> Result<Bytes, Refusal> {
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut total = 0u64;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::BodyBroken)?.into_data() else { continue };
        total += data.len() as u64;
        if total > limit {
            return Err(Refusal::BodyTooLarge { limit });
        }
        // Most bodies come in one piece, which is then not copied.
        match first.take() {
            None if rest.is_empty() => first = Some(data),
            before => {
                rest.extend_from_slice(&before.unwrap_or_default());
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| rest.freeze()))
}
