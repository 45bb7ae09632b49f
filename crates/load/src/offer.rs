//! Offering a plan: from the first made request to the last row, under any load model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use elasticserve_core::ledger::{Manifest, RunEnd};
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{Arrival, LoadModel, Plan};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Clock, rfc3339};
use crate::closed::Workers;
use crate::field::Field;
use crate::health::{Monitor, cpu_time};
use crate::maker::Maker;
use crate::pacer::Pacer;
use crate::progress::{Phase, Progress};
use crate::record::{Folder, FolderError, Ledger};
use crate::request::Prepared;
use crate::retry::Retries;
use crate::run::{LoadError, Ready};
use crate::sessions::{Sessions, give_up, turns_of};
use crate::slots::Slots;
use crate::stop::Stop;
use crate::tally::{Sums, Tally};

/// From the last preparation to the origin of the run's clock, so that the first arrival is not late.
pub(crate) const LEAD: Duration = Duration::from_millis(50);

/// Offers the plan of `ready` and writes a row for each arrival that comes due, and the manifest's end.
pub(crate) async fn offer(
    ready: Ready,
    plan: Arc<Plan>,
    folder: &Folder,
    progress: Arc<Progress>,
    stop: &Stop,
) -> Result<Manifest, LoadError> {
    let Ready { connections, requests, validators, mut manifest, on_start } = ready;
    let failed = |e: std::io::Error| LoadError::Thread(e.to_string());
    let first = Arc::clone(&plan);
    // A later turn is made when it is due: it holds the answers before it.
    let which = move |arrival: &_| first.turn(arrival).is_none_or(|turn| turn.place == 0);
    let made = Maker::start(Arc::clone(&plan), Arc::clone(&requests), which).map_err(failed)?;
    let made = tokio::select! {
        made = made.filled() => made,
        () = stop.pressed(1) => return Err(LoadError::StoppedEarly),
    };
    manifest.started = Some(rfc3339(SystemTime::now() + LEAD));
    folder.write_manifest(&manifest)?;
    let (rows, ledger) = folder.start_ledger(plan.header().count)?;
    let monitor = Monitor::start().map_err(failed)?;
    let cpu_before = cpu_time();
    let clock = Clock::starting_in(LEAD);
    if let Some(told) = on_start {
        told(clock.origin());
    }
    let exchanges = Arc::new(connections.at(clock));
    let _cut_if_dropped = exchanges.cut.clone().drop_guard();
    let field = Arc::new(Field {
        exchanges: Arc::clone(&exchanges),
        plan: Arc::clone(&plan),
        requests,
        progress: Arc::clone(&progress),
        slots: Slots::new(manifest.max_in_flight),
        retries: Retries { most: manifest.retries, seed: plan.header().seed },
        validators,
        rows,
        stopping: CancellationToken::new(),
        due: AtomicU32::new(0),
    });
    let mut running = Running { plan: &plan, clock, open: TaskTracker::new(), ledger, stop };
    progress.enter(Phase::Running);
    let came = running.send(&field, made).await?;
    progress.enter(Phase::Draining);
    let cut = running.drain(&field, &came).await?;
    let (tally, due) = running.settle(field, &came).await?;
    let is_open = plan.header().model.is_open();
    check_sums(&tally, if is_open { plan.header().count } else { due })?;
    let mut health = monitor.end().await;
    (health.send_lag, health.peak_sends_per_s, health.reused) = (tally.send_lag(), tally.peak_sends(), tally.reused());
    manifest.end = Some(RunEnd {
        at: clock.now(),
        interrupted: cut || came.stopped,
        peak_in_flight: progress.peak_in_flight(),
        connections: exchanges.dialer.opened(),
        cpu: cpu_time().zip(cpu_before).map(|(after, before)| after.saturating_sub(before)),
        drawn: (!is_open).then_some(due),
        health: Some(health),
    });
    folder.write_manifest(&manifest)?;
    Ok(manifest)
}

/// A run while rows come.
struct Running<'a> {
    plan: &'a Arc<Plan>,
    clock: Clock,
    open: TaskTracker,
    ledger: Ledger,
    stop: &'a Stop,
}

/// How the sending ended.
struct Came {
    /// Whether it was stopped before its time.
    stopped: bool,
    /// What a pacer sent of what it had, if there is a pacer: all later ones were not.
    paced: Option<u32>,
}

impl Running<'_> {
    /// Sends until nothing more comes due.
    async fn send(
        &mut self,
        field: &Arc<Field>,
        made: tokio::sync::mpsc::Receiver<Prepared>,
    ) -> Result<Came, LoadError> {
        match self.plan.header().model {
            LoadModel::Open => self.pace(made, single(field, &self.open)).await,
            LoadModel::Closed { workers } => {
                let workers = Workers::start(workers, made, field, &self.open);
                self.until_drawn(field, workers.all_drawn()).await
            }
            LoadModel::Sessions { .. } => {
                let sessions = Sessions::new(field, &self.open);
                let all_sent = sessions.all_sent();
                let paced = self.pace(made, sessions.starter()).await?;
                if paced.stopped {
                    return Ok(paced);
                }
                let ended = self.until_drawn(field, all_sent).await?;
                Ok(Came { paced: paced.paced, ..ended })
            }
        }
    }

    /// Sends at the planned times.
    async fn pace(
        &mut self,
        made: tokio::sync::mpsc::Receiver<Prepared>,
        send: impl FnMut(Prepared) + Send + 'static,
    ) -> Result<Came, LoadError> {
        let mut pacer = Pacer::start(made, self.clock, send).map_err(|e| LoadError::Thread(e.to_string()))?;
        let (sent, stopped) = tokio::select! {
            sent = pacer.done() => (sent, false),
            () = self.stop.pressed(1) => {
                pacer.stop();
                (pacer.done().await, true)
            }
            failed = self.ledger.done() => return Err(ledger_ended(failed)),
        };
        let sent = sent.ok_or_else(|| LoadError::Thread("the pacer's thread ended before its time".to_owned()))?;
        Ok(Came { stopped, paced: Some(sent) })
    }

    /// Waits until the users have drawn all there is, or their window has passed.
    async fn until_drawn(&mut self, field: &Field, drawn: CancellationToken) -> Result<Came, LoadError> {
        let stopped = tokio::select! {
            () = drawn.cancelled() => false,
            () = sleep_until(self.plan.header().window.map(|w| self.clock.instant(Tick::ZERO + w))) => false,
            () = self.stop.pressed(1) => true,
            failed = self.ledger.done() => return Err(ledger_ended(failed)),
        };
        if stopped {
            field.stopping.cancel();
        }
        Ok(Came { stopped, paced: None })
    }

    /// Waits for what is open, and cuts it when the drain ends. True if the user cut it.
    async fn drain(&mut self, field: &Field, came: &Came) -> Result<bool, LoadError> {
        if came.stopped {
            field.stopping.cancel();
        }
        let header = self.plan.header();
        let last = self.plan.arrivals().last().map_or(Span::ZERO, |a| a.at);
        let from = match header.window {
            _ if came.stopped => self.clock.now(),
            Some(window) => Tick::ZERO + last.max(window),
            None => self.clock.now().max(Tick::ZERO + last),
        };
        let deadline = self.clock.instant(from + field.exchanges.timeouts.drain);
        self.open.close();
        let wait = async {
            tokio::select! {
                () = sleep_until(Some(deadline)) => false,
                () = self.stop.pressed(2) => true,
            }
        };
        let stop_sending = async {
            self.stop.pressed(1).await;
            field.stopping.cancel();
            std::future::pending::<()>().await;
        };
        let by_user = tokio::select! {
            () = self.open.wait() => return Ok(false),
            by_user = wait => by_user,
            () = stop_sending => false,
            failed = self.ledger.done() => return Err(ledger_ended(failed)),
        };
        field.exchanges.cut.cancel();
        self.open.wait().await;
        Ok(by_user)
    }

    /// Writes the rows of what a pacer did not send and waits for the last row to be on disk.
    async fn settle(mut self, field: Arc<Field>, came: &Came) -> Result<(Tally, u32), LoadError> {
        let sent = came.paced.map_or(self.plan.arrivals().len(), |sent| sent as usize);
        if self.plan.header().model.is_open() {
            for arrival in self.plan.arrivals().iter().skip(sent) {
                field.write(field.unsent(arrival, Tick::ZERO + arrival.at)).await;
            }
        } else {
            write_unstarted(&field, sent).await;
        }
        let due = field.due.load(Ordering::Relaxed);
        drop(field);
        Ok((self.ledger.done().await?, due))
    }
}

/// What the pacer of an open plan does with an arrival whose time has come: a task of its own, up to its
/// last row.
pub(crate) fn single(field: &Arc<Field>, open: &TaskTracker) -> impl FnMut(Prepared) + Send + use<> {
    let (field, open, runtime) = (Arc::clone(field), open.clone(), Handle::current());
    move |prepared| {
        let planned = Tick::ZERO + prepared.arrival.at;
        // The slot is taken here and not in the task, so that slots go in the order of the plan.
        let slot = field.slots.take();
        let field = Arc::clone(&field);
        let task = async move {
            match slot {
                Some(slot) => field.serve(&prepared, planned, slot).await,
                None => field.turn_away(&prepared.arrival, planned, 0).await,
            };
        };
        open.spawn_on(task, &runtime);
    }
}

/// Writes the rows of the conversations whose first turn was not sent, all but the first `started`.
async fn write_unstarted(field: &Field, started: usize) {
    let turns = turns_of(&field.plan);
    let first = |a: &&Arrival| field.plan.turn(a).is_some_and(|turn| turn.place == 0);
    for arrival in field.plan.arrivals().iter().filter(first).skip(started) {
        let session = field.plan.turn(arrival).map_or(0, |turn| turn.session);
        let turns = turns.get(&session).map_or(&[][..], Vec::as_slice);
        give_up(field, turns, Tick::ZERO + arrival.at, "the run was stopped before it was due").await;
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

fn check_sums(tally: &Tally, due: u32) -> Result<(), LoadError> {
    let Sums { sent, unsent, surplus } = tally.sums();
    if surplus > 0 || sent + unsent != due {
        return Err(LoadError::Unreconciled { due, sent, unsent, surplus });
    }
    Ok(())
}

/// The ledger ended while rows were still to come.
fn ledger_ended(result: Result<Tally, FolderError>) -> LoadError {
    match result {
        Err(error) => error.into(),
        Ok(tally) => {
            let Sums { sent, unsent, surplus } = tally.sums();
            LoadError::Unreconciled { due: sent + unsent + 1, sent, unsent, surplus }
        }
    }
}
