//! What a progress line shows: counters that the run keeps and anybody may read.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;

/// What a run is doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Asking the server until it answers.
    WaitingForServer,
    /// Sending requests that are in no figure.
    WarmingUp,
    /// Sending the plan.
    Running,
    /// Waiting for what is still open.
    Draining,
    /// Done.
    Ended,
}

/// Live counters of a run. Each is correct by itself; two read one after the other may be of
/// different moments.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    planned: AtomicU32,
    offered: AtomicU32,
    in_flight: AtomicU32,
    peak_in_flight: AtomicU32,
    completed: AtomicU32,
    good: AtomicU32,
    refused: AtomicU32,
    other: AtomicU32,
}

impl Progress {
    /// Counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the run is doing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::WaitingForServer,
            1 => Phase::WarmingUp,
            2 => Phase::Running,
            3 => Phase::Draining,
            _ => Phase::Ended,
        }
    }

    /// Arrivals in the plan.
    #[must_use]
    pub fn planned(&self) -> u32 {
        self.planned.load(Ordering::Relaxed)
    }

    /// Arrivals sent so far.
    #[must_use]
    pub fn offered(&self) -> u32 {
        self.offered.load(Ordering::Relaxed)
    }

    /// Sent and not ended.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The most in flight at once.
    #[must_use]
    pub fn peak_in_flight(&self) -> u32 {
        self.peak_in_flight.load(Ordering::Relaxed)
    }

    /// Whole answers.
    #[must_use]
    pub fn completed(&self) -> u32 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Whole answers within every limit of their tenant.
    #[must_use]
    pub fn good(&self) -> u32 {
        self.good.load(Ordering::Relaxed)
    }

    /// Attempts turned away with 429 or 503.
    #[must_use]
    pub fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Attempts that ended in any other way.
    #[must_use]
    pub fn other(&self) -> u32 {
        self.other.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn plan(&self, arrivals: u32) {
        self.planned.store(arrivals, Ordering::Relaxed);
    }

    /// An attempt is sent; the first one, 0, offers its arrival.
    pub(crate) fn sent(&self, attempt: u32) {
        if attempt == 0 {
            self.offered.fetch_add(1, Ordering::Relaxed);
        }
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak_in_flight.fetch_max(now, Ordering::Relaxed);
    }

    /// An arrival found no slot.
    pub(crate) fn turned_away(&self) {
        self.other.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, row: &Row, slo: &Slo) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !row.state.was_sent() && row.attempt == 0 {
            self.offered.fetch_sub(1, Ordering::Relaxed);
        }
        let counter = match row.state {
            Terminal::Completed => &self.completed,
            Terminal::Rejected => &self.refused,
            _ => &self.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if row.is_good(slo) {
            self.good.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_core::time::Tick;

    #[test]
    fn each_end_is_counted_once_and_the_peak_stays() {
        let progress = Progress::new();
        progress.sent(0);
        progress.sent(0);
        let mut row = Row::new(0, "t", Tick::ZERO, 1, 1);
        row.state = Terminal::Completed;
        row.output_tokens = Some(1);
        progress.ended(&row, &Slo::default());
        row.state = Terminal::UnsentClientCap;
        progress.ended(&row, &Slo::default());
        assert_eq!((progress.offered(), progress.in_flight(), progress.peak_in_flight()), (1, 0, 2));
        assert_eq!((progress.completed(), progress.good(), progress.refused(), progress.other()), (1, 1, 0, 1));
    }
}
