//! The invariants of the scheduler, checked from the outside of its logic.

use super::Scheduler;

/// A broken invariant.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// Permits in use are not the permits of what runs, less what has failed over and waits for another.
    #[error("{in_use} permits are in use, but {running} requests run")]
    PermitsLost {
        /// Permits counted as in use over all backends.
        in_use: u32,
        /// Requests that were granted and have not ended.
        running: usize,
    },
    /// More waits than may.
    #[error("{queued} requests wait, the bound is {depth}")]
    QueueOverDepth {
        /// Requests that wait.
        queued: usize,
        /// The bound.
        depth: usize,
    },
    /// More bytes wait than may.
    #[error("{bytes} bytes wait, the bound is {max}")]
    BytesOverBound {
        /// Bytes that wait.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// A backend's permits or work are not those of what runs on it.
    #[error("a backend's permits or work disagree with what runs on it")]
    BackendsDisagree,
    /// A permit is free and a request that may use it waits.
    #[error("a permit is free while a request that may use it waits")]
    NotWorkConserving,
    /// A deadline is that of nothing that runs, or is missing.
    #[error("the deadlines disagree with what runs")]
    DeadlinesDisagree,
    /// Every offer must be waiting, running or ended exactly once.
    #[error("{offers} offers, but {accounted} are accounted for")]
    OffersLost {
        /// Requests offered.
        offers: u64,
        /// Requests that wait, run or have ended.
        accounted: u64,
    },
    /// An index names what does not exist or misses what does.
    #[error("the queue's indexes disagree with what waits")]
    IndexesDisagree,
}

impl Scheduler {
    /// Checks every invariant, in time that grows with what waits. Valid after `poll` has returned `None`.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn audit(&self) -> Result<(), AuditError> {
        self.audit_counts()?;
        if !self.running.audit() {
            return Err(AuditError::DeadlinesDisagree);
        }
        if !self.backends.agree_with(self.running.placed()) {
            return Err(AuditError::BackendsDisagree);
        }
        self.queue.audit()
    }

    /// Checks the invariants that counters tell, whatever waits at the same cost. Valid after `poll` has
    /// returned `None`.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn audit_counts(&self) -> Result<(), AuditError> {
        let running = self.running.len();
        let (in_use, moving) = (self.in_use(), self.running.moving().count());
        if in_use as usize + moving != running || self.queue.in_use() as usize != running {
            return Err(AuditError::PermitsLost { in_use, running });
        }
        if self.queue.len() > self.depth.max(self.over.queued) {
            return Err(AuditError::QueueOverDepth { queued: self.queue.len(), depth: self.depth });
        }
        if self.queue.bytes() > self.max_bytes.max(self.over.bytes) {
            return Err(AuditError::BytesOverBound { bytes: self.queue.bytes(), max: self.max_bytes });
        }
        let idle = self.queue.has_eligible() && self.backends.any_free();
        if idle || self.running.moving().any(|(_, work)| self.backends.any_free_but(work.backend)) {
            return Err(AuditError::NotWorkConserving);
        }
        let t = &self.totals;
        let turned_away: u64 = t.rejected.values().chain(t.expired.values()).sum();
        let released: u64 = t.released.values().sum();
        let accounted = turned_away + t.cancelled + released + running as u64 + self.queue.len() as u64;
        if accounted != t.offers || t.granted != released + running as u64 {
            return Err(AuditError::OffersLost { offers: t.offers, accounted });
        }
        Ok(())
    }
}
