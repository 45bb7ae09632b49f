//! The gateway's monotonic clock, as ticks for the scheduler.

#[cfg(not(all(test, loom_models)))]
use elasticserve_core::time::Span;
use elasticserve_core::time::Tick;
use tokio::time::Instant;

/// Ticks since the gateway started. Built on tokio's clock, so that a paused runtime pauses it too.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[cfg(not(all(test, loom_models)))]
    pub(crate) fn now(self) -> Tick {
        Tick::ZERO + Span::from_std(self.0.elapsed())
    }

    /// The time that the model has set: loom repeats a run exactly, which a real clock would not.
    #[cfg(all(test, loom_models))]
    pub(crate) fn now(self) -> Tick {
        crate::sync::model_time::now()
    }

    /// The instant of a tick, `None` if it is too far in the future to be one.
    pub(crate) fn instant(self, at: Tick) -> Option<Instant> {
        self.0.checked_add(at.since(Tick::ZERO).to_std())
    }
}
