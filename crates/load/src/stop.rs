//! How a run is stopped early.

use std::sync::Arc;

use tokio::sync::watch;

/// A handle that stops a run: pressed once, nothing more is sent and what is open may end within the
/// drain; pressed again, what is open is cut. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<u8>>);

impl Stop {
    /// A handle that has not been pressed.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// Presses once, as Ctrl-C does.
    pub fn press(&self) {
        self.0.send_modify(|presses| *presses = presses.saturating_add(1));
    }

    /// Whether it has been pressed.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until it has been pressed `times` times or more. Cancel safe.
    pub async fn pressed(&self, times: u8) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.0.subscribe().wait_for(|presses| *presses >= times).await;
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}
