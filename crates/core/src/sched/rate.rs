//! How fast permits come back: all of them, or a tenant's.

use crate::time::{Span, Tick};

/// The mean time between releases while requests wait: the queue's drain rate.
#[derive(Debug, Default)]
pub(super) struct ReleaseRate {
    last: Option<Tick>,
    mean_gap: Option<Span>,
}

impl ReleaseRate {
    /// A new gap counts for one part in this many.
    const MEMORY: u64 = 16;

    pub(super) fn record(&mut self, now: Tick, busy: bool) {
        if !busy {
            // An idle server's gaps say how fast requests come, not how fast they could be served.
            self.last = None;
            return;
        }
        if let Some(last) = self.last.replace(now) {
            let gap = now.since(last);
            self.mean_gap = Some(self.mean_gap.map_or(gap, |mean| {
                let sum = u128::from(mean.as_nanos()) * u128::from(Self::MEMORY - 1) + u128::from(gap.as_nanos());
                // A mean of two u64 values is one.
                Span::from_nanos((sum / u128::from(Self::MEMORY)) as u64)
            }));
        }
    }

    /// Nothing of what is measured runs or waits any more: the time until the next release says nothing.
    pub(super) fn interrupt(&mut self) {
        self.last = None;
    }

    pub(super) fn time_for(&self, releases: u64) -> Option<Span> {
        self.mean_gap.map(|gap| gap * releases)
    }
}
