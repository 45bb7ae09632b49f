//! The scheduler behind one lock.
//!
//! Every entry does the same: lock, put the input in, poll all actions out, unlock, act. Nothing is
//! sent, woken or dropped under the lock, because a permit that is dropped comes back in here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use elasticserve_core::ids::{BackendId, RequestId};
use elasticserve_core::outcome::{How, RejectReason};
use elasticserve_core::sched::{
    Action, AuditError, Observation, Offer, Prediction, Rejection, Scheduler, Settings, Ticket, Totals, Used,
};
use elasticserve_core::time::{Span, Tick};
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::permit::Permit;

type Answer = Result<Permit, Rejection>;
type Waiter = oneshot::Sender<Answer>;

/// The scheduler, those who wait for its answers, and its one timer.
#[derive(Debug)]
pub(crate) struct Admission {
    inner: Mutex<Inner>,
    timer: Notify,
    clock: Clock,
    /// Whether the scheduler learns from running work.
    learns: bool,
}

#[derive(Debug)]
struct Inner {
    scheduler: Scheduler,
    waiters: BTreeMap<RequestId, Waiter>,
    /// What the timer sleeps for.
    armed: Option<Tick>,
}

/// What the scheduler looks like at one moment.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) queued: usize,
    pub(crate) queued_bytes: u64,
    /// Permits in use and in total, for each backend.
    pub(crate) permits: Vec<(u32, u32)>,
    pub(crate) totals: Totals,
    /// The live time per output token, if the scheduler learns.
    pub(crate) live_tpot: Option<Span>,
}

impl Admission {
    pub(crate) fn new(settings: &Settings, clock: Clock) -> Arc<Self> {
        let scheduler = Scheduler::new(settings);
        let learns = scheduler.learns();
        let inner = Inner { scheduler, waiters: BTreeMap::new(), armed: None };
        Arc::new(Self { inner: Mutex::new(inner), timer: Notify::new(), clock, learns })
    }

    /// Offers a request. The returned [`Waiting`] withdraws it when dropped.
    pub(crate) fn offer(self: &Arc<Self>, offer: Offer) -> Result<Waiting, Rejection> {
        let (sender, receiver) = oneshot::channel();
        let id = self.enter(|inner, now| {
            let id = inner.scheduler.offer(now, offer)?;
            inner.waiters.insert(id, sender);
            Ok(id)
        })?;
        Ok(Waiting { id, receiver, admission: Arc::clone(self), answered: false })
    }

    /// What is predicted of an offer, if the scheduler predicts.
    pub(crate) fn predict(&self, offer: &Offer) -> Option<Prediction> {
        let inner = self.lock();
        inner.scheduler.predict(self.clock.now(), offer)
    }

    pub(crate) fn release(self: &Arc<Self>, ticket: Ticket, how: How, used: Used) {
        self.enter(|inner, now| inner.scheduler.release(now, ticket, how, used));
    }

    /// Tells the scheduler what was seen of running work, if it wants to know.
    pub(crate) fn observe(self: &Arc<Self>, id: RequestId, observation: Observation) {
        if self.learns {
            self.enter(|inner, now| inner.scheduler.observe(now, id, observation));
        }
    }

    pub(crate) fn set_backend(self: &Arc<Self>, id: BackendId, up: bool) {
        self.enter(|inner, now| {
            let (_, permits) = inner.scheduler.permits(id);
            inner.scheduler.set_backend(now, id, permits, up);
        });
    }

    pub(crate) fn drain(self: &Arc<Self>) {
        self.enter(|inner, now| inner.scheduler.drain(now));
    }

    pub(crate) fn view(&self, backends: usize) -> View {
        let inner = self.lock();
        let scheduler = &inner.scheduler;
        View {
            queued: scheduler.queued(),
            queued_bytes: scheduler.queued_bytes(),
            permits: (0..backends).map(|i| scheduler.permits(BackendId(i as u16))).collect(),
            totals: scheduler.totals().clone(),
            live_tpot: scheduler.live_tpot(),
        }
    }

    pub(crate) fn audit(&self) -> Result<(), AuditError> {
        self.lock().scheduler.audit()
    }

    /// Runs the scheduler's timer for ever: sleeps until the next expiry, without a ticker.
    pub(crate) async fn run_timer(self: Arc<Self>) {
        loop {
            let next = self.lock().armed;
            match next.map(|at| self.clock.instant(at)) {
                Some(Some(instant)) => tokio::select! {
                    () = tokio::time::sleep_until(instant) => self.enter(|_, _| ()),
                    () = self.timer.notified() => {}
                },
                _ => self.timer.notified().await,
            }
        }
    }

    fn withdraw(self: &Arc<Self>, id: RequestId) {
        self.enter(|inner, now| {
            inner.scheduler.cancel(now, id);
            inner.waiters.remove(&id)
        });
    }

    /// Puts an input in and acts on everything that follows from it.
    fn enter<T>(self: &Arc<Self>, input: impl FnOnce(&mut Inner, Tick) -> T) -> T {
        let mut answers = Vec::new();
        let (result, rearm) = {
            let mut inner = self.lock();
            let now = self.clock.now();
            // What has expired must not count against the input, even if the timer is late.
            if inner.scheduler.next_timer().is_some_and(|at| at < now) {
                self.poll_out(&mut inner, now, &mut answers);
            }
            let result = input(&mut inner, now);
            self.poll_out(&mut inner, now, &mut answers);
            let next = inner.scheduler.next_timer();
            let rearm = next.is_some_and(|at| inner.armed.is_none_or(|armed| at < armed || armed <= now));
            // A timer that is too early wakes once for nothing, which is cheaper than moving it each time.
            if rearm || next.is_none() {
                inner.armed = next;
            }
            (result, rearm)
        };
        if rearm {
            self.timer.notify_one();
        }
        for (waiter, answer) in answers {
            if let Some(waiter) = waiter {
                // A waiter that has gone gets nothing: the permit in the answer is dropped right here.
                let _ = waiter.send(answer);
            }
        }
        result
    }

    fn poll_out(self: &Arc<Self>, inner: &mut Inner, now: Tick, answers: &mut Vec<(Option<Waiter>, Answer)>) {
        while let Some(action) = inner.scheduler.poll(now) {
            let (id, answer) = match action {
                Action::Grant(ticket) => (ticket.id(), Ok(Permit::new(ticket, Arc::clone(self)))),
                Action::Expire(rejection) => (rejection.id, Err(rejection)),
                // All tenants' work goes on to its end: see `Tenant::policy`.
                Action::Abort(_) => continue,
            };
            answers.push((inner.waiters.remove(&id), answer));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The scheduler's state is consistent between its calls, so a panic elsewhere does not spoil it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue. Dropping it leaves the queue at once.
#[derive(Debug)]
pub(crate) struct Waiting {
    id: RequestId,
    receiver: oneshot::Receiver<Answer>,
    admission: Arc<Admission>,
    answered: bool,
}

impl Waiting {
    /// Waits for a permit or a refusal.
    pub(crate) async fn answer(mut self) -> Answer {
        let answer = (&mut self.receiver).await;
        self.answered = true;
        match answer {
            Ok(answer) => answer,
            // The sender is dropped unsent only if the scheduler forgets a request, which is a defect.
            Err(_) => Err(Rejection { id: self.id, reason: RejectReason::Draining, limit: None, retry_after: None }),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A permit that was sent but not taken is dropped with the receiver, after this.
        if !self.answered {
            self.admission.withdraw(self.id);
        }
    }
}
