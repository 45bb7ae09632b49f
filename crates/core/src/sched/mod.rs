//! The scheduler: which request goes to which backend when, and which is turned away.
//!
//! It is a state machine without a clock. Inputs are method calls that carry `now`; outputs are
//! polled:
//!
//! ```text
//! offer ─┬─> rejected at once
//!        └─> queued ──poll──┬─> Grant(Ticket) ─┬─────────────> release: a permit is free again
//!                 cancel ───┤                  ├─poll─> Abort ─┘
//!                           └─> Expire         └─fail_over──poll──┬─> Grant(another Ticket)
//!                                                                 └─> Strand
//! ```
//!
//! **Contract.** After every input ([`Scheduler::offer`], [`Scheduler::cancel`],
//! [`Scheduler::release`], [`Scheduler::fail_over`], [`Scheduler::set_backend`], [`Scheduler::add_backend`],
//! [`Scheduler::remove_backend`], [`Scheduler::reload`], [`Scheduler::drain`]) and whenever
//! [`Scheduler::next_timer`] has passed, call [`Scheduler::poll`] until it returns `None`. After that no
//! free permit coexists with a request that may use it.
//!
//! **Ownership.** A queued request ends in exactly one of: a grant, an expiry, a successful cancel. A
//! [`Ticket`] is made only by `poll`, cannot be copied, and must go back through `release` or `fail_over`. What
//! failed over ends in exactly one of: a further grant, a strand, a successful cancel.
//!
//! **Backends** come and go. The work of one that was removed keeps its permit, which vanishes when it ends; only
//! then is the backend's number given to another one. So a ticket's number means the same backend for its life.

mod audit;
mod backends;
mod estimate;
mod lengths;
mod moves;
mod order;
mod predict;
mod price;
#[cfg(test)]
mod properties;
mod queue;
mod rate;
mod reload;
mod rules;
mod running;
mod shadow;
#[cfg(test)]
mod tests;
mod types;

pub use audit::AuditError;
pub use estimate::{Caution, CostModel};
pub use lengths::{Learned, LearnedError, LengthSummary};
pub use order::Order;
pub use predict::{Basis, Observation, Predict, Prediction};
pub use price::{Price, Quote, Stall};
pub use rules::{Admission, Rules, RulesError};
pub use shadow::{Counts, Shadow, Word};
pub use types::{
    Action, BackendPolicy, MAX_BACKENDS, Offer, OnMiss, Rejection, Settings, TenantLimit, TenantLoad, TenantPolicy,
    Ticket, Totals, Used,
};

use crate::ids::{RequestId, TenantId};
use crate::outcome::{How, RejectReason};
use crate::time::{Span, Tick};
use backends::{Backends, Wanted};
use estimate::Need;
use lengths::Lengths;
use order::Charge;
use predict::Forecast;
use queue::{Asked, Queue, Waiting};
use rate::ReleaseRate;
use running::Running;

/// The chance to end in time that a request must have if there is a hint at its length. Without one, every chance
/// is worth a try: it is always small for the tenants with the tightest limits.
const LEAST_CHANCE: f64 = 0.4;

/// The state of all queues and permits.
#[derive(Debug)]
pub struct Scheduler {
    backends: Backends,
    queue: Queue,
    running: Running,
    lengths: Lengths,
    cost: CostModel,
    /// Whether work is ever cut.
    aborts: bool,
    forecast: Option<Forecast>,
    depth: usize,
    max_bytes: u64,
    /// What was more than these when they were lowered.
    over: queue::Over,
    budget: Option<Span>,
    draining: bool,
    next_id: u64,
    affinity_slack: Span,
    releases: ReleaseRate,
    totals: Totals,
}

impl Scheduler {
    /// A scheduler with empty queues and all backends up.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            backends: Backends::new(&settings.backends),
            queue: Queue::new(settings.order, settings.guard, &settings.tenants),
            running: Running::default(),
            lengths: Lengths::new(),
            cost: settings.cost,
            aborts: settings.tenants.iter().any(|t| t.on_miss == OnMiss::Abort),
            forecast: settings.predict.map(|predict| Forecast::new(settings.cost, predict, settings.price)),
            depth: settings.depth,
            max_bytes: settings.max_bytes,
            over: queue::Over::default(),
            budget: settings.budget,
            draining: false,
            next_id: 0,
            affinity_slack: settings.affinity_slack,
            releases: ReleaseRate::default(),
            totals: Totals::default(),
        }
    }

    /// Offers a request: it is queued under the returned id, or turned away at once.
    ///
    /// A request that a free permit could serve now is never turned away for the queue's size or its tenant's
    /// part of it.
    ///
    /// # Errors
    /// The [`Rejection`] if it is turned away.
    pub fn offer(&mut self, now: Tick, offer: Offer) -> Result<RequestId, Rejection> {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.totals.offers += 1;
        if let Some((reason, limit)) = self.refusal(&offer) {
            *self.totals.rejected.entry(reason).or_default() += 1;
            return Err(Rejection { limit, ..self.rejection(id, offer.tenant, reason) });
        }
        if offer.output.is_none() {
            self.lengths.ask(self.queue.lane_of(offer.tenant), offer.hint);
        }
        let mut waiting = self.waiting(now, id, &offer);
        let free = self.free();
        if let Some(forecast) = &mut self.forecast {
            waiting.rank = forecast.rank(&waiting);
            match forecast.judge(now, &waiting, &self.queue, free) {
                Ok(latest) => waiting.latest = Some(latest),
                Err(reason) => {
                    *self.totals.rejected.entry(reason).or_default() += 1;
                    return Err(self.rejection(id, offer.tenant, reason));
                }
            }
        }
        self.queue.push(waiting);
        Ok(id)
    }

    /// What is predicted of an offer at this moment; `None` without [`Settings::predict`].
    #[must_use]
    pub fn predict(&self, now: Tick, offer: &Offer) -> Option<Prediction> {
        let waiting = self.waiting(now, RequestId(self.next_id), offer);
        let length = self.lengths.of(self.queue.lane_of(offer.tenant), waiting.declared, waiting.hint);
        Some(self.forecast.as_ref()?.predict(now, &waiting, &self.queue, self.free(), &length))
    }

    /// Learns from running work; without effect unless [`Scheduler::learns`].
    pub fn observe(&mut self, now: Tick, id: RequestId, observation: Observation) {
        let (backends, cost) = (&mut self.backends, self.cost);
        let pace = |backend| backends.cost(backend, cost).idle_tpot;
        if let Some((backend, before, left)) = self.running.observe(id, observation.tokens, &mut self.lengths, pace) {
            backends.progressed(backend, before, left);
        }
        if let Some(forecast) = &mut self.forecast {
            forecast.observe(now, id, observation, &mut self.queue, &self.lengths);
        }
    }

    /// From here on goes by a pace that is measured elsewhere.
    fn follow(&mut self, pace: Span) {
        if let Some(forecast) = &mut self.forecast {
            forecast.follow(pace, &mut self.queue);
        }
    }

    /// Whether observations are of use: to predict, to cut, or to choose between backends.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.forecast.is_some() || self.aborts || self.backends.are_several()
    }

    /// The live time per output token, if the scheduler predicts.
    #[must_use]
    pub fn live_tpot(&self) -> Option<Span> {
        self.forecast.as_ref().map(Forecast::tpot)
    }

    /// What is known of the lengths of a tenant's answers; `None` before one has ended or was cut.
    #[must_use]
    pub fn lengths(&self, tenant: TenantId) -> Option<LengthSummary> {
        self.lengths.summary(self.queue.lane_of(tenant))
    }

    /// The lengths that were learned, to be kept over a restart, of the tenants that have a name.
    #[must_use]
    pub fn learned(&self, name: impl Fn(TenantId) -> Option<String>) -> Learned {
        self.lengths.learned(name)
    }

    /// Takes over the lengths that were kept, of the tenants that are still there; meant for the start, before the
    /// first offer.
    ///
    /// # Errors
    /// A [`LearnedError`] that says what is wrong with them; nothing is changed then.
    pub fn restore(
        &mut self,
        learned: &Learned,
        tenant: impl Fn(&str) -> Option<TenantId>,
    ) -> Result<(), LearnedError> {
        let queue = &self.queue;
        self.lengths.restore(learned, |name| tenant(name).map(|t| queue.lane_of(t)))
    }

    /// Withdraws a waiting request, also one that has failed over and has no other backend yet; false if it waits no
    /// longer. Its place is free at once.
    pub fn cancel(&mut self, now: Tick, id: RequestId) -> bool {
        if self.running.is_moving(id) {
            self.end(now, id, How::ClientGone, Used::default());
            return true;
        }
        let found = self.queue.remove(id).is_some();
        self.totals.cancelled += u64::from(found);
        found
    }

    /// Takes a ticket back and says how its work ended and what it took. Where that is not known, what was
    /// observed of it counts, and else what it was taken for.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket that went back must not be used again")]
    pub fn release(&mut self, now: Tick, ticket: Ticket, how: How, used: Used) {
        self.end(now, ticket.id, how, used);
    }

    /// Refuses all that waits and all that comes from here on; what runs may finish.
    pub fn drain(&mut self, _now: Tick) {
        self.draining = true;
    }

    /// The next thing to do, `None` when there is nothing until another input or
    /// [`Scheduler::next_timer`].
    ///
    /// At one tick a grant comes before an expiry: who waited exactly its budget is still served.
    pub fn poll(&mut self, now: Tick) -> Option<Action> {
        self.over.fell(0, self.queue.len(), self.queue.bytes());
        if let Some(reason) = self.refuse_all()
            && let Some(waiting) = self.queue.pop_any()
        {
            return Some(self.expire(&waiting, reason));
        }
        if self.queue.next_expiry().is_some_and(|at| at < now) {
            return self.expire_first();
        }
        if let Some(id) = self.running.pop_lost(now) {
            if self.running.is_moving(id) {
                self.end(now, id, How::Aborted, Used::default());
                return Some(Action::Strand(id));
            }
            return Some(Action::Abort(id));
        }
        if let Some(action) = self.find_another(now) {
            return Some(action);
        }
        let forecast = self.forecast.as_ref();
        let value = |w: &Waiting, lane, weight, on_miss| {
            let length = self.lengths.of(lane, w.declared, w.hint);
            forecast.map_or(0, |forecast| forecast.value(now, w, &length, weight, on_miss))
        };
        if self.backends.any_free()
            && let Some((waiting, charge)) = self.queue.pop(value)
        {
            return self.grant(now, &waiting, charge).map(Action::Grant);
        }
        if self.queue.next_expiry().is_some_and(|at| at <= now) {
            return self.expire_first();
        }
        None
    }

    /// When `poll` must be called again although no input came.
    #[must_use]
    pub fn next_timer(&self) -> Option<Tick> {
        [self.queue.next_expiry(), self.running.next_lost()].into_iter().flatten().min()
    }

    /// Counters since the start.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Requests that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of bodies that wait.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// What a tenant has waiting and running.
    #[must_use]
    pub fn tenant_load(&self, tenant: TenantId) -> TenantLoad {
        self.queue.load(tenant)
    }

    /// Permits in use, over all backends.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.backends.in_use()
    }

    /// A request that arrived at `now`, as the settings of this moment see it.
    fn waiting(&self, now: Tick, id: RequestId, offer: &Offer) -> Waiting {
        let budget = match (self.budget, offer.budget) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let declared = offer.output.map(|n| n.max(1));
        let lane = self.queue.lane_of(offer.tenant);
        let length = self.lengths.of(lane, declared, offer.hint);
        let (output, few) = (length.mean().max(1), length.few_after(0));
        Waiting {
            id,
            // Its lane from here on, whatever tenants are added.
            tenant: TenantId(lane as u16),
            asked: Asked { class: offer.class, budget: offer.budget, again: offer.again },
            bytes: offer.bytes,
            cost: self.cost.seat_time(offer.input, output),
            class: self.queue.class(offer.tenant, offer.class),
            arrived: now,
            budget_ends: budget.map(|b| now + b),
            need: Need { input: offer.input, output, slo: offer.slo },
            declared,
            hint: offer.hint,
            reach: length.quantile(if offer.hint.is_some() { LEAST_CHANCE } else { 0.0 }),
            few,
            brief: self.cost.seat_time(offer.input, few),
            latest: None,
            ranked_by: self.queue.ranked_by(offer.tenant, &offer.slo),
            rank: None,
            affinity: offer.affinity,
            behind: offer.again && self.bounds_the_wait_of(offer),
        }
    }

    /// Whether a wait ends by itself soon after it has become useless. That its client gives up some day is not enough.
    fn bounds_the_wait_of(&self, offer: &Offer) -> bool {
        let has_limit = offer.slo.ttft.is_some() || offer.slo.e2e.is_some();
        self.budget.is_some() || (self.forecast.is_some() && has_limit)
    }

    fn free(&self) -> u32 {
        self.backends.free()
    }

    fn refuse_all(&self) -> Option<RejectReason> {
        if self.draining {
            Some(RejectReason::Draining)
        } else if !self.backends.any_open() {
            Some(RejectReason::NoBackend)
        } else {
            None
        }
    }

    fn refusal(&self, offer: &Offer) -> Option<(RejectReason, Option<TenantLimit>)> {
        if let Some(reason) = self.refuse_all() {
            return Some((reason, None));
        }
        let full = Some((RejectReason::QueueFull, None));
        // The body of what starts now is counted too, until `poll` grants it.
        let Some(bytes) = self.queue.bytes().checked_add(offer.bytes) else { return full };
        if self.queue.would_be_next(offer.tenant) && self.backends.any_free() {
            return None;
        }
        // Its own bound is what a tenant can do something about, so that goes first.
        if let Some(limit) = self.queue.limit_reached(offer.tenant, offer.bytes) {
            return Some((RejectReason::TenantLimit, Some(limit)));
        }
        let fits = self.queue.len() < self.depth && bytes <= self.max_bytes && self.queue.may_ever_start(offer.tenant);
        if fits { None } else { full }
    }

    fn rejection(&self, id: RequestId, tenant: TenantId, reason: RejectReason) -> Rejection {
        let of_the_pool = || self.releases.time_for(self.queue.len() as u64 + 1);
        let retry_after = self.queue.time_for_one_more(tenant).or_else(of_the_pool);
        Rejection { id, reason, limit: None, retry_after }
    }

    fn expire(&mut self, waiting: &Waiting, reason: RejectReason) -> Action {
        *self.totals.expired.entry(reason).or_default() += 1;
        Action::Expire(self.rejection(waiting.id, waiting.tenant, reason))
    }

    fn expire_first(&mut self) -> Option<Action> {
        let waiting = self.queue.pop_expired()?;
        Some(self.expire(&waiting, RejectReason::QueueExpired))
    }

    fn grant(&mut self, now: Tick, waiting: &Waiting, charge: Charge) -> Option<Ticket> {
        let Need { input, output, .. } = waiting.need;
        let slack = self.affinity_slack;
        // A limit leaves room for a busier backend, or there is no affinity.
        let has_room = waiting.latest.is_none_or(|latest| now + slack <= latest);
        let wanted = Wanted { input, output, affinity: waiting.affinity.filter(|_| has_room), slack };
        let id = self.backends.pick(&wanted, self.cost, None)?;
        let left = self.backends.cost(id, self.cost).seat_time(input, output);
        self.backends.started(id, left);
        self.totals.granted += 1;
        let lane = self.queue.lane_of(waiting.tenant);
        let tracked = self.lengths.started(lane, waiting.hint);
        self.running.start(waiting, id, left, charge, self.queue.on_miss(waiting.tenant), tracked);
        if let Some(forecast) = &mut self.forecast {
            forecast.started(now, waiting, lane);
        }
        let waited = now.since(waiting.arrived);
        Some(Ticket { id: waiting.id, backend: id, tenant: waiting.tenant, granted: now, waited, moved: false })
    }

    /// Work has ended; its permit is free, if it held one.
    fn end(&mut self, now: Tick, id: RequestId, how: How, used: Used) {
        // The only place that makes tickets also fills `running`, so the entry exists.
        let Some(work) = self.running.end(id) else { return };
        if !work.moving {
            self.backends.ended(work.backend, work.left);
        }
        let output = used.output.or(Some(work.seen).filter(|seen| *seen > 0));
        self.lengths.ended(&work.tracked, output.unwrap_or(0), how == How::Finished);
        if let Some(output) = output {
            let cost = self.cost.seat_time(used.input.unwrap_or(work.need.input), output);
            self.queue.settle(work.tenant, work.charge, cost);
        }
        self.queue.permit_returned(now, work.tenant);
        self.releases.record(now, !self.queue.is_empty());
        if let Some(forecast) = &mut self.forecast {
            forecast.ended(id, &mut self.queue);
        }
        *self.totals.released.entry(how).or_default() += 1;
    }
}
