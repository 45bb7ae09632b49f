//! The scheduler behind one lock.
//!
//! Every entry does the same: lock, put the input in, poll all actions out, unlock, act. Nothing is
//! sent, woken or dropped under the lock, because a permit that is dropped comes back in here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use elasticserve_core::ids::{BackendId, RequestId, TenantId};
use elasticserve_core::outcome::{How, RejectReason};
use elasticserve_core::sched::{
    Action, AuditError, BackendPolicy, Counts, Learned, LearnedError, LengthSummary, Observation, Offer, OnMiss,
    Prediction, Rejection, Scheduler, Settings, Shadow, TenantLoad, Ticket, Totals, Used, Word,
};
use elasticserve_core::time::{Span, Tick};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::permit::Permit;
use crate::sync::{Mutex, MutexGuard, oneshot};

#[cfg(all(test, loom_models))]
mod loom_models;

type Answer = Result<Permit, Refused>;
type Waiter = oneshot::Sender<Answer>;

/// The scheduler, those who wait for its answers, and its one timer.
#[derive(Debug)]
pub(crate) struct Admission {
    inner: Mutex<Inner>,
    timer: Notify,
    clock: Clock,
    /// Whether something learns from running work.
    learns: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    scheduler: Scheduler,
    /// What another policy would have decided.
    shadow: Option<Shadow>,
    /// Those who run what may be cut.
    cutters: BTreeMap<RequestId, oneshot::Sender<()>>,
    waiters: BTreeMap<RequestId, Waiter>,
    /// What the timer sleeps for.
    armed: Option<Tick>,
    /// Whether a tenant's work is cut when its deadline is lost.
    cuts: Vec<bool>,
}

/// A refusal, and what the shadow policy had decided by then.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) rejection: Rejection,
    pub(crate) shadow: Option<Word>,
}

/// What follows from an input, to be done once the lock is gone.
#[derive(Default)]
struct Outcome {
    answers: Vec<(Option<Waiter>, Answer)>,
    cut: Vec<oneshot::Sender<()>>,
}

/// What the scheduler looks like at one moment.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) queued: usize,
    pub(crate) queued_bytes: u64,
    /// The live time per output token, if the scheduler learns.
    pub(crate) live_tpot: Option<Span>,
    /// What the shadow policy decided, for each tenant; empty without one.
    pub(crate) shadow: Vec<Counts>,
}

impl Admission {
    /// A scheduler, and one beside it whose decisions are only counted.
    pub(crate) fn new(settings: &Settings, shadow: Option<&Settings>, clock: Clock) -> Arc<Self> {
        let scheduler = Scheduler::new(settings);
        let learns = scheduler.learns() || shadow.is_some();
        let shadow = shadow.map(Shadow::new);
        let (cutters, waiters) = (BTreeMap::new(), BTreeMap::new());
        let inner = Inner { scheduler, shadow, cutters, waiters, armed: None, cuts: cuts(settings) };
        let learns = AtomicBool::new(learns);
        Arc::new(Self { inner: Mutex::new(inner), timer: Notify::new(), clock, learns })
    }

    /// Goes by other settings from the next decision on; what waits and runs stays. The shadow starts afresh.
    pub(crate) fn reload(self: &Arc<Self>, settings: &Settings, shadow: Option<&Settings>) {
        self.enter(|inner, now| {
            inner.scheduler.reload(now, settings);
            inner.cuts = cuts(settings);
            let before = inner.shadow.take();
            inner.shadow = shadow.map(|shadow| Shadow::beside(&inner.scheduler, shadow, before));
            self.learns.store(inner.scheduler.learns() || inner.shadow.is_some(), Ordering::Relaxed);
        });
    }

    /// Offers a request. The returned [`Waiting`] withdraws it when dropped.
    pub(crate) fn offer(self: &Arc<Self>, offer: Offer) -> Result<Waiting, Refused> {
        let (sender, receiver) = oneshot::channel();
        let id = self.enter(|inner, now| {
            let answer = inner.scheduler.offer(now, offer);
            let (Ok(id) | Err(Rejection { id, .. })) = answer;
            let shadow = inner.shadow.as_mut().map(|shadow| shadow.offered(now, id, &offer, answer.is_ok()));
            let id = answer.map_err(|rejection| Refused { rejection, shadow })?;
            inner.waiters.insert(id, sender);
            Ok(id)
        })?;
        Ok(Waiting { id, receiver, admission: Arc::clone(self), answered: false, ran: false })
    }

    /// What is predicted of an offer, if the scheduler predicts.
    pub(crate) fn predict(&self, offer: &Offer) -> Option<Prediction> {
        let inner = self.lock();
        inner.scheduler.predict(self.clock.now(), offer)
    }

    /// Takes a permit back, and tells what the shadow policy had decided by then.
    pub(crate) fn release(self: &Arc<Self>, ticket: Ticket, how: How, used: Used) -> Option<Word> {
        self.enter(|inner, now| {
            let id = ticket.id();
            inner.cutters.remove(&id);
            inner.scheduler.release(now, ticket, how, used);
            inner.shadow.as_mut().and_then(|shadow| shadow.ended(now, id, how, used))
        })
    }

    /// Tells the scheduler what was seen of running work, if it wants to know.
    pub(crate) fn observe(self: &Arc<Self>, id: RequestId, observation: Observation) {
        if self.learns.load(Ordering::Relaxed) {
            self.enter(|inner, now| {
                inner.scheduler.observe(now, id, observation);
                if let Some(shadow) = &mut inner.shadow {
                    shadow.observe(now, id, observation);
                }
            });
        }
    }

    /// Takes a permit back whose backend failed before anything of the answer came, and waits for one of another
    /// backend.
    ///
    /// # Errors
    /// The ticket, if no other backend takes work.
    pub(crate) fn fail_over(self: &Arc<Self>, ticket: Ticket) -> Result<Waiting, Ticket> {
        let (sender, receiver) = oneshot::channel();
        let id = ticket.id();
        self.enter(|inner, now| {
            inner.scheduler.fail_over(now, ticket)?;
            inner.cutters.remove(&id);
            inner.waiters.insert(id, sender);
            Ok(())
        })?;
        Ok(Waiting { id, receiver, admission: Arc::clone(self), answered: false, ran: true })
    }

    /// Adds a backend.
    pub(crate) fn add_backend(self: &Arc<Self>, policy: BackendPolicy) -> Option<BackendId> {
        self.enter(|inner, now| {
            let id = inner.scheduler.add_backend(now, policy)?;
            if let Some(shadow) = &mut inner.shadow {
                shadow.add_backend(now, id, policy);
            }
            // Between several backends is a choice, for which it counts how far their work is.
            self.learns.fetch_or(inner.scheduler.learns(), Ordering::Relaxed);
            Some(id)
        })
    }

    /// Removes a backend; what runs there may end.
    pub(crate) fn remove_backend(self: &Arc<Self>, id: BackendId) {
        self.enter(|inner, now| {
            inner.scheduler.remove_backend(now, id);
            if let Some(shadow) = &mut inner.shadow {
                shadow.remove_backend(now, id);
            }
        });
    }

    /// Changes how a backend is compared with the others.
    pub(crate) fn change_backend(self: &Arc<Self>, id: BackendId, policy: BackendPolicy) {
        self.enter(|inner, now| {
            inner.scheduler.change_backend(now, id, policy);
            if let Some(shadow) = &mut inner.shadow {
                shadow.change_backend(now, id, policy);
            }
        });
    }

    /// Sets what a backend may take now.
    pub(crate) fn set_permits(self: &Arc<Self>, id: BackendId, permits: u32, up: bool) {
        self.enter(|inner, now| {
            inner.scheduler.set_backend(now, id, permits, up);
            if let Some(shadow) = &mut inner.shadow {
                shadow.set_backend(now, id, permits, up);
            }
        });
    }

    pub(crate) fn drain(self: &Arc<Self>) {
        self.enter(|inner, now| {
            inner.scheduler.drain(now);
            if let Some(shadow) = &mut inner.shadow {
                shadow.drain(now);
            }
        });
    }

    pub(crate) fn view(&self) -> View {
        let mut inner = self.lock();
        let tenants = inner.cuts.len();
        let shadow = inner.shadow.as_mut().map_or_else(Vec::new, |shadow| {
            shadow.advance(self.clock.now());
            (0..tenants).map(|tenant| shadow.counts(TenantId(tenant as u16))).collect()
        });
        let scheduler = &inner.scheduler;
        View {
            queued: scheduler.queued(),
            queued_bytes: scheduler.queued_bytes(),
            live_tpot: scheduler.live_tpot(),
            shadow,
        }
    }

    /// Permits in use and in total, of a backend.
    pub(crate) fn permits(&self, id: BackendId) -> (u32, u32) {
        self.lock().scheduler.permits(id)
    }

    /// The scheduler's counters.
    pub(crate) fn totals(&self) -> Totals {
        self.lock().scheduler.totals().clone()
    }

    /// What a tenant has waiting and running.
    pub(crate) fn tenant_load(&self, tenant: TenantId) -> TenantLoad {
        self.lock().scheduler.tenant_load(tenant)
    }

    /// What was learned of the lengths of answers.
    pub(crate) fn learned(&self, name: impl Fn(TenantId) -> Option<String>) -> Learned {
        self.lock().scheduler.learned(name)
    }

    /// Takes over what was learned before, at the start; the shadow's scheduler learns the same.
    pub(crate) fn restore(
        &self,
        learned: &Learned,
        place: impl Fn(&str) -> Option<TenantId>,
    ) -> Result<(), LearnedError> {
        let mut inner = self.lock();
        inner.scheduler.restore(learned, &place)?;
        match &mut inner.shadow {
            Some(shadow) => shadow.restore(learned, place),
            None => Ok(()),
        }
    }

    /// What is known of the lengths of a tenant's answers.
    pub(crate) fn lengths(&self, tenant: TenantId) -> Option<LengthSummary> {
        self.lock().scheduler.lengths(tenant)
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

    /// `ran` is whether it had a permit before.
    fn withdraw(self: &Arc<Self>, id: RequestId, ran: bool) {
        self.enter(|inner, now| {
            if inner.scheduler.cancel(now, id)
                && let Some(shadow) = &mut inner.shadow
            {
                if ran {
                    shadow.ended(now, id, How::ClientGone, Used::default());
                } else {
                    shadow.withdrawn(now, id);
                }
            }
            inner.waiters.remove(&id)
        });
    }

    /// Puts an input in and acts on everything that follows from it.
    fn enter<T>(self: &Arc<Self>, input: impl FnOnce(&mut Inner, Tick) -> T) -> T {
        let mut outcome = Outcome::default();
        let (result, rearm) = {
            let mut inner = self.lock();
            let now = self.clock.now();
            // What has expired must not count against the input, even if the timer is late.
            if inner.scheduler.next_timer().is_some_and(|at| at < now) {
                self.poll_out(&mut inner, now, &mut outcome);
            }
            let result = input(&mut inner, now);
            self.poll_out(&mut inner, now, &mut outcome);
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
        for cut in outcome.cut {
            // Whoever has ended meanwhile needs no cut.
            let _ = cut.send(());
        }
        for (waiter, answer) in outcome.answers {
            if let Some(waiter) = waiter {
                // A waiter that has gone gets nothing: the permit in the answer is dropped right here.
                let _ = waiter.send(answer);
            }
        }
        result
    }

    fn poll_out(self: &Arc<Self>, inner: &mut Inner, now: Tick, outcome: &mut Outcome) {
        while let Some(action) = inner.scheduler.poll(now) {
            let (id, answer) = match action {
                Action::Grant(ticket) => {
                    let id = ticket.id();
                    if let Some(shadow) = inner.shadow.as_mut().filter(|_| !ticket.has_moved()) {
                        shadow.granted(now, id);
                    }
                    let lost = inner.may_be_cut(ticket.tenant()).then(|| {
                        let (cutter, lost) = oneshot::channel();
                        inner.cutters.insert(id, cutter);
                        lost
                    });
                    (id, Ok(Permit::new(ticket, lost, Arc::clone(self))))
                }
                Action::Expire(rejection) => {
                    let shadow = inner.shadow.as_mut().and_then(|shadow| shadow.refused(now, rejection.id));
                    (rejection.id, Err(Refused { rejection, shadow }))
                }
                Action::Abort(id) => {
                    outcome.cut.extend(inner.cutters.remove(&id));
                    continue;
                }
                Action::Strand(id) => {
                    inner.cutters.remove(&id);
                    let shadow = inner.shadow.as_mut();
                    let shadow = shadow.and_then(|s| s.ended(now, id, How::BackendFailed, Used::default()));
                    let reason = RejectReason::NoBackend;
                    (id, Err(Refused { rejection: Rejection { id, reason, limit: None, retry_after: None }, shadow }))
                }
            };
            outcome.answers.push((inner.waiters.remove(&id), answer));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The scheduler's state is consistent between its calls, so a panic elsewhere does not spoil it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn may_be_cut(&self, tenant: TenantId) -> bool {
        self.cuts.get(tenant.index()).copied().unwrap_or(false)
    }
}

fn cuts(settings: &Settings) -> Vec<bool> {
    settings.tenants.iter().map(|t| t.on_miss == OnMiss::Abort).collect()
}

/// A place in the queue. Dropping it leaves the queue at once.
#[derive(Debug)]
pub(crate) struct Waiting {
    id: RequestId,
    receiver: oneshot::Receiver<Answer>,
    admission: Arc<Admission>,
    answered: bool,
    /// Whether it had a permit before, whose backend failed.
    ran: bool,
}

impl Waiting {
    /// Waits for a permit or a refusal.
    pub(crate) async fn answer(mut self) -> Answer {
        let answer = (&mut self.receiver).await;
        self.answered = true;
        match answer {
            Ok(answer) => answer,
            // The sender is dropped unsent only if the scheduler forgets a request, which is a defect.
            Err(_) => {
                let rejection =
                    Rejection { id: self.id, reason: RejectReason::Draining, limit: None, retry_after: None };
                Err(Refused { rejection, shadow: None })
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A permit that was sent but not taken is dropped with the receiver, after this.
        if !self.answered {
            self.admission.withdraw(self.id, self.ran);
        }
    }
}
