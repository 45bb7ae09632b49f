//! Reading a request body whole, within its bounds.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use elasticserve_core::time::Span;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::memory::{Held, Memory};
use crate::reply::Refusal;

/// What a body may take.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Bounds {
    /// Bytes of this one.
    pub(crate) bytes: u64,
    /// Bytes of all of them together.
    pub(crate) memory: u64,
    /// Until it is there.
    pub(crate) time: Span,
}

/// Reads the body. What is announced or turns out to be larger than it may is not read on.
///
/// Its part of the memory is taken before it is read, as far as its length is announced, and given back when the last
/// of its bytes is dropped.
pub(crate) async fn read(body: Incoming, bounds: Bounds, memory: &Arc<Memory>) -> Result<Bytes, Refusal> {
    let announced = body.size_hint().lower();
    if announced > bounds.bytes {
        return Err(Refusal::BodyTooLarge { limit: bounds.bytes });
    }
    let full = Refusal::MemoryFull { limit: bounds.memory };
    let held = memory.hold(announced, bounds.memory).ok_or(full)?;
    match tokio::time::timeout(bounds.time.to_std(), collect(body, announced, bounds, held)).await {
        Ok(result) => result,
        Err(_) => Err(Refusal::BodyTooSlow { limit: bounds.time }),
    }
}

async fn collect(mut body: Incoming, announced: u64, bounds: Bounds, mut held: Held) -> Result<Bytes, Refusal> {
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut total = 0u64;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::BodyBroken)?.into_data() else { continue };
        total += data.len() as u64;
        if total > bounds.bytes {
            return Err(Refusal::BodyTooLarge { limit: bounds.bytes });
        }
        if total > held.bytes() && !held.grow(total - held.bytes(), bounds.memory) {
            return Err(Refusal::MemoryFull { limit: bounds.memory });
        }
        // Most bodies come in one piece, which is then not copied.
        match first.take() {
            None if rest.is_empty() => first = Some(data),
            before => {
                if rest.is_empty() {
                    rest.reserve(announced.max(total) as usize);
                }
                // A body of unknown length grows by half, so that it never takes much more than it is held for.
                if rest.capacity() < total as usize {
                    rest.reserve(data.len().max(rest.len() / 2));
                }
                rest.extend_from_slice(&before.unwrap_or_default());
                rest.extend_from_slice(&data);
            }
        }
    }
    let bytes = first.unwrap_or_else(|| rest.freeze());
    Ok(if bytes.is_empty() { bytes } else { Bytes::from_owner(Kept { bytes, _held: held }) })
}

/// A body with its part of the memory.
struct Kept {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
