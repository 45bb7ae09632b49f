//! A budget for the bytes of request bodies that are in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of bodies that are in memory, or are to be as soon as they have come.
#[derive(Debug, Default)]
pub(crate) struct Memory(AtomicU64);

/// A part of the budget. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping it gives it back"]
pub(crate) struct Held {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    /// Bytes that are held.
    pub(crate) fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A part of the budget of `limit` bytes; `None` if less is left.
    pub(crate) fn hold(self: &Arc<Self>, bytes: u64, limit: u64) -> Option<Held> {
        let mut held = Held { memory: Arc::clone(self), bytes: 0 };
        held.grow(bytes, limit).then_some(held)
    }
}

impl Held {
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `more` bytes of the budget too, or none of them.
    pub(crate) fn grow(&mut self, more: u64, limit: u64) -> bool {
        let with = |used: u64| used.checked_add(more).filter(|sum| *sum <= limit);
        let grown = self.memory.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok();
        if grown {
            self.bytes += more;
        }
        grown
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_held_than_the_budget_and_all_of_it_comes_back() {
        let memory = Arc::new(Memory::default());
        let mut first = memory.hold(60, 100).unwrap();
        assert!(memory.hold(41, 100).is_none());
        assert!(first.grow(40, 100) && !first.grow(1, 100));
        assert_eq!((first.bytes(), memory.used()), (100, 100));
        assert!(memory.hold(u64::MAX, 100).is_none());
        drop(first);
        assert_eq!(memory.used(), 0);
        assert!(memory.hold(100, 100).is_some());
    }
}
