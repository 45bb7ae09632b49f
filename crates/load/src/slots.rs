//! The cap on requests in flight.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slots for requests in flight; without a cap there is always one.
pub(crate) struct Slots(Option<Arc<Semaphore>>);

/// A slot, held from before the connection until the answer has ended or its connection is closed.
pub(crate) struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Slots {
    /// So many slots, or no cap.
    pub(crate) fn new(cap: Option<u32>) -> Self {
        Self(cap.map(|slots| Arc::new(Semaphore::new(slots as usize))))
    }

    /// A slot if one is free now. Nobody waits for one: an open load has no queue of its own.
    pub(crate) fn take(&self) -> Option<Slot> {
        match &self.0 {
            None => Some(Slot { _permit: None }),
            Some(slots) => Arc::clone(slots).try_acquire_owned().ok().map(|permit| Slot { _permit: Some(permit) }),
        }
    }
}
