//! The gateway's monotonic clock, as ticks for the scheduler.

use elasticserve_core::time::{Span, Tick};
use tokio::time::Instant;

/// Ticks since the gateway started. Built on tokio's clock, so that a paused runtime pauses it too.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Tick {
        Tick::ZERO + Span::from_std(self.0.elapsed())
    }

    /// The instant of a tick, `None` if it is too far in the future to be one.
    pub(crate) fn instant(self, at: Tick) -> Option<Instant> {
        self.0.checked_add(at.since(Tick::ZERO).to_std())
    }
}
