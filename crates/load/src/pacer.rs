//! The open model: each arrival is sent at its planned time, whatever has become of the others.
//!
//! A thread outside the runtime sleeps until each planned time on the run's clock and hands the request
//! over. It waits for no answer. An arrival that is late is sent at once and the next one keeps its own
//! time, so lateness does not add up; how late each was stands in its row.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use elasticserve_core::time::Tick;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::request::Prepared;

/// A pacer at work. Dropping it stops it.
pub(crate) struct Pacer {
    stop: Arc<AtomicBool>,
    thread: Thread,
    done: oneshot::Receiver<u32>,
}

impl Pacer {
    /// Starts to send what `made` gives, in order of time: `send` is called for each arrival at its time,
    /// from a thread of the pacer's, and must not block.
    ///
    /// # Errors
    /// An [`io::Error`] if the system gives no thread.
    pub(crate) fn start(
        mut made: mpsc::Receiver<Prepared>,
        clock: Clock,
        send: impl FnMut(Prepared) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, done) = oneshot::channel();
        let stopped = Arc::clone(&stop);
        let pacer = thread::Builder::new().name("load-pacer".into()).spawn(move || {
            // Nobody may wait for it any more.
            let _ = tell.send(pace(&mut made, clock, &stopped, send));
        })?;
        Ok(Self { stop, thread: pacer.thread().clone(), done })
    }

    /// Sends nothing more.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits until the last arrival has been sent, or until it has stopped, and gives the number that
    /// came due; `None` if its thread failed. Cancel safe; to be awaited to its end once.
    pub(crate) async fn done(&mut self) -> Option<u32> {
        (&mut self.done).await.ok()
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn pace(made: &mut mpsc::Receiver<Prepared>, clock: Clock, stop: &AtomicBool, mut send: impl FnMut(Prepared)) -> u32 {
    let mut sent = 0;
    while let Some(prepared) = made.blocking_recv() {
        let due = clock.instant(Tick::ZERO + prepared.arrival.at);
        if !sleep_until(due, stop) {
            break;
        }
        send(prepared);
        sent += 1;
    }
    sent
}

/// Sleeps until `due`; false if it was stopped before.
fn sleep_until(due: Instant, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Acquire) {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left == Duration::ZERO {
            return true;
        }
        // A thread may wake early for no reason, so the time is looked at again. The system wakes it up to
        // some 60 us late; spinning would win that back, but takes the time from a server on the same cores.
        thread::park_timeout(left);
    }
}
