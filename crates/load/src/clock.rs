//! The run's one clock.

use std::time::{Duration, Instant};

use elasticserve_core::time::{Span, Tick};

/// A monotonic clock that counts from the start of the run. Before the start it stands at zero.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts to count in `lead` from now.
    pub(crate) fn starting_in(lead: Duration) -> Self {
        Self { origin: Instant::now() + lead }
    }

    /// The time of the run.
    pub(crate) fn now(self) -> Tick {
        Tick::ZERO + Span::from_std(Instant::now().saturating_duration_since(self.origin))
    }

    /// A time of the run on the machine's clock; far in the future if it cannot be represented.
    pub(crate) fn instant(self, tick: Tick) -> Instant {
        const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
        self.origin + Duration::from_nanos(tick.as_nanos()).min(FAR)
    }
}
