//! Requests made ahead of their time, on a thread of their own.
//!
//! A prompt of 200,000 tokens takes milliseconds to write. Made here, it delays neither a send nor the
//! sockets; and no more than [`MADE_AHEAD`] wait, so that memory does not grow with the plan.

use std::io;
use std::sync::Arc;
use std::thread;

use elasticserve_core::work::{Arrival, Plan};
use tokio::sync::{mpsc, oneshot};

use crate::request::{Prepared, Requests};

/// Requests made ahead of their time at most.
pub(crate) const MADE_AHEAD: usize = 64;

/// The requests of a plan in its order, as they are made.
pub(crate) struct Maker {
    made: mpsc::Receiver<Prepared>,
    filled: oneshot::Receiver<()>,
}

impl Maker {
    /// Starts to make the requests of those arrivals that `which` names.
    ///
    /// # Errors
    /// An [`io::Error`] if the system gives no thread.
    pub(crate) fn start(
        plan: Arc<Plan>,
        requests: Arc<Requests>,
        which: impl Fn(&Arrival) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, made) = mpsc::channel(MADE_AHEAD);
        let (tell, filled) = oneshot::channel();
        thread::Builder::new().name("load-maker".into()).spawn(move || {
            let mut tell = Some(tell);
            for (arrival, place) in plan.arrivals().iter().filter(|a| which(a)).zip(1..) {
                // It fails when nobody sends any more.
                if queue.blocking_send(requests.prepare(*arrival)).is_err() {
                    return;
                }
                if place == MADE_AHEAD {
                    // Nobody may wait for it any more.
                    tell.take().map(|tell| tell.send(()));
                }
            }
        })?;
        Ok(Self { made, filled })
    }

    /// Waits until as many are made as may be, so that the first arrivals meet no delay, and gives them
    /// out.
    pub(crate) async fn filled(self) -> mpsc::Receiver<Prepared> {
        // The sender is dropped when all are made.
        let _ = self.filled.await;
        self.made
    }
}
