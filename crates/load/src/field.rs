//! What every arrival of a run goes through, from its slot to its last row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{Arrival, Plan};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::answer::Texts;
use crate::exchange::Exchanges;
use crate::progress::Progress;
use crate::request::{Prepared, Requests};
use crate::retry::Retries;
use crate::slots::{Slot, Slots};
use crate::validate::Validators;

/// What all arrivals of a run share. The ledger ends when the last of its owners is gone.
pub(crate) struct Field {
    pub(crate) exchanges: Arc<Exchanges>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) slots: Slots,
    pub(crate) retries: Retries,
    pub(crate) validators: Validators,
    pub(crate) rows: mpsc::Sender<Row>,
    /// Cancelled when nothing more is to be sent.
    pub(crate) stopping: CancellationToken,
    /// Arrivals that came due so far, where that follows from the answers.
    pub(crate) due: AtomicU32,
}

/// How an arrival came to its end, for what follows from it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) state: Terminal,
    /// When it ended.
    pub(crate) end: Tick,
    /// What the server said, if that is needed.
    pub(crate) answer: String,
}

impl Outcome {
    /// Whether nothing was sent.
    pub(crate) const fn was_unsent(&self) -> bool {
        !self.state.was_sent()
    }
}

impl Field {
    /// Counts an arrival that came due.
    pub(crate) fn came_due(&self) {
        self.due.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends an arrival that was planned for `planned`, again if need be, up to its last row.
    pub(crate) async fn serve(&self, prepared: &Prepared, planned: Tick, slot: Slot) -> Outcome {
        let tenant = self.plan.tenant(&prepared.arrival);
        let (mut slot, mut attempt) = (slot, 0);
        loop {
            self.progress.sent(attempt);
            let (mut row, mut texts) = self.exchanges.run(prepared, &tenant.name, planned, attempt).await;
            drop(slot);
            self.validate(&mut row, &texts).await;
            let end = row.end.unwrap_or_else(|| self.exchanges.clock.now());
            let outcome = Outcome { state: row.state, end, answer: texts.remove(&0).unwrap_or_default() };
            let wait = self.retries.wait_after(&row).filter(|_| !self.is_ending());
            self.progress.ended(&row, &tenant.slo);
            self.write(row).await;
            let Some(wait) = wait else { return outcome };
            if !self.pause(wait).await {
                return outcome;
            }
            attempt += 1;
            let Some(free) = self.slots.take() else {
                return self.turn_away(&prepared.arrival, planned, attempt).await;
            };
            slot = free;
        }
    }

    /// Lets a completed answer be judged. One that is not judged before the run is cut counts as not valid.
    async fn validate(&self, row: &mut Row, texts: &Texts) {
        if row.state != Terminal::Completed {
            return;
        }
        let problem = tokio::select! {
            biased;
            problem = self.validators.problem(row, texts) => problem,
            () = self.exchanges.cut.cancelled() => Some("the run was cut before it was judged".to_owned()),
        };
        if problem.is_some() {
            (row.state, row.error) = (Terminal::InvalidAnswer, problem);
        }
    }

    /// Writes the row of an attempt that found no slot.
    pub(crate) async fn turn_away(&self, arrival: &Arrival, planned: Tick, attempt: u32) -> Outcome {
        let mut row = self.unsent(arrival, planned);
        row.attempt = attempt;
        row.state = Terminal::UnsentClientCap;
        row.error = Some("every slot of the declared cap was in use".to_owned());
        self.progress.turned_away();
        self.write(row).await;
        Outcome { state: Terminal::UnsentClientCap, end: planned, answer: String::new() }
    }

    /// The row of an arrival that was never sent because the run or its session ended.
    pub(crate) fn unsent(&self, arrival: &Arrival, planned: Tick) -> Row {
        let tenant = &self.plan.tenant(arrival).name;
        Row::new(arrival.index, tenant, planned, arrival.input, arrival.output)
    }

    /// Hands a row to the ledger. It fails only when the ledger has, which ends the run.
    pub(crate) async fn write(&self, row: Row) {
        let _ = self.rows.send(row).await;
    }

    /// Waits; false if nothing more is to be sent before that.
    pub(crate) async fn pause(&self, wait: Span) -> bool {
        self.pause_until(self.exchanges.clock.now() + wait).await
    }

    /// Waits for a time of the run; false if nothing more is to be sent before that.
    pub(crate) async fn pause_until(&self, due: Tick) -> bool {
        let due = self.exchanges.clock.instant(due);
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => false,
            () = self.exchanges.cut.cancelled() => false,
            () = tokio::time::sleep_until(due.into()) => true,
        }
    }

    fn is_ending(&self) -> bool {
        self.stopping.is_cancelled() || self.exchanges.cut.is_cancelled()
    }
}
