//! The closed model: so many workers, each of which sends the next request after its last answer.
//!
//! The plan is a supply without times. An arrival is planned for the moment at which its worker became
//! free, so a slow server is asked less often: that is what closed means, and why no rate is claimed.

use std::num::NonZeroU32;
use std::sync::Arc;

use elasticserve_core::time::Tick;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::field::Field;
use crate::request::Prepared;

/// Workers on one supply.
pub(crate) struct Workers {
    drawn: CancellationToken,
}

struct Supply {
    made: Mutex<mpsc::Receiver<Prepared>>,
    /// Cancelled once nothing is left.
    drawn: CancellationToken,
    count: u32,
}

impl Workers {
    /// Starts the workers, which begin with the run's clock.
    pub(crate) fn start(
        workers: NonZeroU32,
        made: mpsc::Receiver<Prepared>,
        field: &Arc<Field>,
        open: &TaskTracker,
    ) -> Self {
        let drawn = CancellationToken::new();
        let count = field.plan.header().count;
        let supply = Arc::new(Supply { made: Mutex::new(made), drawn: drawn.clone(), count });
        for _ in 0..workers.get() {
            open.spawn(work(Arc::clone(field), Arc::clone(&supply)));
        }
        Self { drawn }
    }

    /// Cancelled once the last of the supply has been drawn.
    pub(crate) fn all_drawn(&self) -> CancellationToken {
        self.drawn.clone()
    }
}

async fn work(field: Arc<Field>, supply: Arc<Supply>) {
    let mut due = Tick::ZERO;
    if !field.pause_until(due).await {
        return;
    }
    loop {
        let is_over = field.plan.header().window.is_some_and(|window| due >= Tick::ZERO + window);
        if is_over || field.stopping.is_cancelled() {
            return;
        }
        let Some(prepared) = supply.next().await else { return };
        field.came_due();
        let outcome = match field.slots.take() {
            Some(slot) => field.serve(&prepared, due, slot).await,
            None => field.turn_away(&prepared.arrival, due, 0).await,
        };
        due = outcome.end.max(due);
        if outcome.was_unsent() {
            // A worker that never waits for anything must still let the others run.
            tokio::task::yield_now().await;
        }
    }
}

impl Supply {
    async fn next(&self) -> Option<Prepared> {
        let next = self.made.lock().await.recv().await;
        if next.as_ref().is_none_or(|prepared| prepared.arrival.index + 1 == self.count) {
            self.drawn.cancel();
        }
        next
    }
}
