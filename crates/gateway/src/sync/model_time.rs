//! The time of a model, which the model sets.

use elasticserve_core::time::{Span, Tick};
use loom::sync::atomic::{AtomicU64, Ordering};

loom::lazy_static! {
    // One of loom's, so that setting the time before and after a look at it are two orders.
    static ref NANOS: AtomicU64 = AtomicU64::new(0);
}

pub(crate) fn now() -> Tick {
    Tick::ZERO + Span::from_nanos(NANOS.load(Ordering::SeqCst))
}

/// Sets the time, as so much since the start.
pub(crate) fn set(since: Span) {
    NANOS.store(since.as_nanos(), Ordering::SeqCst);
}
