//! A second opinion on the scheduler: simple books, kept apart from it, that say after every call what
//! must be true.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use elasticserve_core::ids::{BackendId, RequestId, TenantId};
use elasticserve_core::outcome::{How, RejectReason};
use elasticserve_core::sched::{
    Action, BackendPolicy, Observation, Offer, OnMiss, Order, Rejection, Scheduler, Settings, Ticket, Totals, Used,
};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};

/// An input to the scheduler. Picks are taken modulo what there is, so any sequence is valid.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Offer(Offer),
    CancelWaiting(u64),
    CancelAny(u64),
    Release(u64, How, Used),
    /// Tokens of running work came, so long after the ones before.
    Observe(u64, u32, Option<Span>),
    Forward(Span),
    /// Time passes and the timer fires late: nothing is polled until the next input.
    Late(Span),
    Back(Span),
    SetBackend(u16, u32, bool),
    AddBackend(u32),
    RemoveBackend(u16),
    /// The backend of running work has failed.
    FailOver(u64),
    Drain,
}

/// Books on a scheduler. Every method makes a call, polls until nothing is left and checks everything.
pub(super) struct Books<'a> {
    settings: &'a Settings,
    scheduler: Scheduler,
    now: Tick,
    backends: Vec<Seats>,
    held_by: Vec<u32>,
    waiting: BTreeMap<RequestId, Waiter>,
    running: Vec<Work>,
    /// What has failed over and has no other backend yet, and how often something found one.
    moving: BTreeMap<RequestId, Work>,
    moved: u64,
    endings: BTreeMap<RequestId, Ending>,
    draining: bool,
    offers: u64,
}

#[derive(Copy, Clone, Debug)]
struct Seats {
    permits: u32,
    up: bool,
    gone: bool,
    in_use: u32,
}

impl Seats {
    fn are_open(&self) -> bool {
        self.up && !self.gone && self.permits > 0
    }

    fn any_free(&self) -> bool {
        self.are_open() && self.in_use < self.permits
    }
}

struct Waiter {
    lane: usize,
    bytes: u64,
    arrived: Tick,
    /// When its budget ends. Under prediction it may expire earlier.
    expires: Option<Tick>,
    slo: Slo,
    /// Whether it goes after its tenant's others.
    behind: bool,
}

struct Work {
    id: RequestId,
    tenant: TenantId,
    backend: BackendId,
    /// While it runs.
    ticket: Option<Ticket>,
    arrived: Tick,
    /// Its limits, if it is to be cut when it loses them and was not told to be yet.
    limits: Option<Slo>,
    seen: bool,
}

impl Work {
    /// The first moment at which its deadline is lost.
    fn lost(&self) -> Option<Tick> {
        let slo = self.limits?;
        let first = slo.ttft.filter(|_| !self.seen);
        let limit = [first, slo.e2e].into_iter().flatten().min()?;
        Some(self.arrived + limit + Span::from_nanos(1))
    }
}

/// The one way in which a request ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Rejected(RejectReason),
    Expired(RejectReason),
    Cancelled,
    Released(How),
}

macro_rules! ensure {
    ($ok:expr, $($say:tt)+) => { if !$ok { return Err(format!($($say)+)); } };
}

/// Runs a sequence to its end and gives its sums. A sequence that fails is cut down to the inputs that
/// it takes.
pub(super) fn check(seed: u64, settings: &Settings, ops: &[Op]) -> Totals {
    let mut error = match attempt(settings, ops) {
        Ok(totals) => return totals,
        Err(error) => error,
    };
    let mut ops = ops.to_vec();
    for index in (0..ops.len()).rev() {
        let removed = ops.remove(index);
        match attempt(settings, &ops) {
            Err(still) => error = still,
            Ok(_) => ops.insert(index, removed),
        }
    }
    panic!("seed {seed}: {error}\n{settings:?}\n{ops:#?}");
}

fn attempt(settings: &Settings, ops: &[Op]) -> Result<Totals, String> {
    let run = || {
        let mut books = Books::new(settings);
        for op in ops {
            books.apply(op)?;
        }
        books.close()
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("the scheduler panicked".into()))
}

impl<'a> Books<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            scheduler: Scheduler::new(settings),
            now: Tick::ZERO,
            backends: settings
                .backends
                .iter()
                .map(|&permits| Seats { permits, up: true, gone: false, in_use: 0 })
                .collect(),
            held_by: vec![0; settings.tenants.len()],
            waiting: BTreeMap::new(),
            running: Vec::new(),
            moving: BTreeMap::new(),
            moved: 0,
            endings: BTreeMap::new(),
            draining: false,
            offers: 0,
        }
    }

    pub(super) fn ending(&self, id: RequestId) -> Option<Ending> {
        self.endings.get(&id).copied()
    }

    /// Lets time pass without a poll.
    pub(super) fn forward(&mut self, span: Span) {
        self.now = self.now + span;
    }

    pub(super) fn apply(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Offer(offer) => {
                self.offer(offer)?;
            }
            Op::CancelWaiting(pick) => {
                let place = pick.checked_rem(self.waiting.len() as u64).unwrap_or(0);
                let id = self.waiting.keys().nth(place as usize).copied();
                self.cancel(id.unwrap_or(RequestId(pick)))?;
            }
            Op::CancelAny(pick) => self.cancel(RequestId(pick % (self.offers + 1)))?,
            Op::Release(pick, how, used) => self.release(pick, how, used)?,
            Op::Observe(pick, tokens, gap) => self.observe(pick, tokens, gap),
            Op::Forward(span) => self.forward(span),
            Op::Late(span) => {
                self.forward(span);
                return Ok(());
            }
            Op::Back(span) => self.now = self.now.before(span),
            Op::SetBackend(index, permits, up) => {
                let id = BackendId(index % self.backends.len() as u16);
                let books = &mut self.backends[id.index()];
                if !books.gone {
                    (books.permits, books.up) = (permits, up);
                }
                self.scheduler.set_backend(self.now, id, permits, up);
            }
            Op::AddBackend(permits) => self.add_backend(permits)?,
            Op::RemoveBackend(index) => {
                let id = BackendId(index % self.backends.len() as u16);
                let books = &mut self.backends[id.index()];
                (books.permits, books.gone) = (0, true);
                self.scheduler.remove_backend(self.now, id);
            }
            Op::FailOver(pick) => self.fail_over(pick)?,
            Op::Drain => {
                self.draining = true;
                self.scheduler.drain(self.now);
            }
        }
        self.settle()
    }

    pub(super) fn offer(&mut self, offer: Offer) -> Result<RequestId, String> {
        let expected = self.refusal(&offer);
        let answer = self.scheduler.offer(self.now, offer);
        let id = RequestId(self.offers);
        self.offers += 1;
        match answer {
            Ok(given) => {
                ensure!(given == id && expected.is_none(), "{given:?} accepted where {expected:?} for {id:?} was due");
                let budget = match (self.settings.budget, offer.budget) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                let (lane, expires) = (self.lane(offer.tenant), budget.map(|b| self.now + b));
                let limited = self.settings.predict.is_some() && (offer.slo.ttft.is_some() || offer.slo.e2e.is_some());
                let behind = offer.again && (self.settings.budget.is_some() || limited);
                let waiter = Waiter { lane, bytes: offer.bytes, arrived: self.now, expires, slo: offer.slo, behind };
                self.waiting.insert(id, waiter);
            }
            Err(rejection) => {
                let predicted = self.settings.predict.is_some()
                    && matches!(rejection.reason, RejectReason::SloInfeasible | RejectReason::PredictedLate);
                let due = expected == Some(rejection.reason) || expected.is_none() && predicted;
                ensure!(due && rejection.id == id, "{rejection:?} where {expected:?} for {id:?} was due");
                self.end(id, Ending::Rejected(rejection.reason))?;
            }
        }
        Ok(id)
    }

    pub(super) fn cancel(&mut self, id: RequestId) -> Result<(), String> {
        let waits = self.waiting.remove(&id).is_some();
        let moving = self.moving.remove(&id);
        let found = self.scheduler.cancel(self.now, id);
        ensure!(found == (waits || moving.is_some()), "cancel of {id:?} says {found}, it waits: {waits}");
        match moving {
            Some(work) => {
                let lane = self.lane(work.tenant);
                self.held_by[lane] -= 1;
                self.end(id, Ending::Released(How::ClientGone))
            }
            None if found => self.end(id, Ending::Cancelled),
            None => Ok(()),
        }
    }

    fn add_backend(&mut self, permits: u32) -> Result<(), String> {
        let vacant = self.backends.iter().position(|b| b.gone && b.in_use == 0);
        let expected = BackendId(vacant.unwrap_or(self.backends.len()) as u16);
        let given = self.scheduler.add_backend(self.now, BackendPolicy::new(permits, 7));
        ensure!(given == Some(expected), "{given:?} is the number of a new backend, not {expected:?}");
        let seats = Seats { permits, up: true, gone: false, in_use: 0 };
        match self.backends.get_mut(expected.index()) {
            Some(old) => *old = seats,
            None => self.backends.push(seats),
        }
        Ok(())
    }

    fn fail_over(&mut self, pick: u64) -> Result<(), String> {
        let Some(place) = pick.checked_rem(self.running.len() as u64) else { return Ok(()) };
        let mut work = self.running.swap_remove(place as usize);
        let Some(ticket) = work.ticket.take() else { return Err("what runs has no ticket".into()) };
        let (id, backend) = (ticket.id(), ticket.backend());
        let other = self.other_open(backend);
        match self.scheduler.fail_over(self.now, ticket) {
            Ok(()) => {
                ensure!(other, "{id:?} failed over to nowhere");
                self.backends[backend.index()].in_use -= 1;
                self.moving.insert(id, work);
            }
            Err(ticket) => {
                ensure!(!other, "{id:?} could have failed over");
                work.ticket = Some(ticket);
                self.running.push(work);
            }
        }
        Ok(())
    }

    fn other_open(&self, backend: BackendId) -> bool {
        self.backends.iter().enumerate().any(|(place, b)| place != backend.index() && b.are_open())
    }

    pub(super) fn release(&mut self, pick: u64, how: How, used: Used) -> Result<(), String> {
        if self.running.is_empty() {
            return Ok(());
        }
        let work = self.running.swap_remove((pick % self.running.len() as u64) as usize);
        let Some(ticket) = work.ticket else { return Err("what runs has no ticket".into()) };
        self.backends[ticket.backend().index()].in_use -= 1;
        let lane = self.lane(ticket.tenant());
        self.held_by[lane] -= 1;
        self.end(ticket.id(), Ending::Released(how))?;
        self.scheduler.release(self.now, ticket, how, used);
        Ok(())
    }

    fn observe(&mut self, pick: u64, tokens: u32, gap: Option<Span>) {
        let count = self.running.len() as u64;
        let Some(work) = pick.checked_rem(count).and_then(|place| self.running.get_mut(place as usize)) else { return };
        work.seen |= tokens > 0;
        self.scheduler.observe(self.now, work.id, Observation { tokens, gap });
    }

    fn must_cut(&mut self, id: RequestId) -> Result<(), String> {
        let work = self.running.iter_mut().find(|w| w.id == id);
        let Some(work) = work else { return Err(format!("{id:?} is to be cut, it does not run")) };
        let lost = work.lost();
        ensure!(lost.is_some_and(|at| at <= self.now), "{id:?} is to be cut at {:?}, not {lost:?}", self.now);
        work.limits = None;
        Ok(())
    }

    /// Polls until nothing is left to do and compares the books.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        while let Some(action) = self.scheduler.poll(self.now) {
            match action {
                Action::Grant(ticket) if ticket.has_moved() => self.found_another(ticket)?,
                Action::Grant(ticket) => self.granted(ticket)?,
                Action::Strand(id) => self.stranded(id)?,
                Action::Expire(rejection) => self.expired(&rejection)?,
                Action::Abort(id) => self.must_cut(id)?,
            }
        }
        self.scheduler.audit().map_err(|e| e.to_string())?;
        for (index, books) in (0u16..).zip(&self.backends) {
            let permits = self.scheduler.permits(BackendId(index));
            ensure!(permits == (books.in_use, books.permits), "backend {index} has {permits:?}, not {books:?}");
        }
        let bytes: u64 = self.waiting.values().map(|w| w.bytes).sum();
        let queue = (self.scheduler.queued(), self.scheduler.queued_bytes());
        ensure!(queue == (self.waiting.len(), bytes), "{queue:?} queued, not {:?}", (self.waiting.len(), bytes));
        ensure!(queue.0 <= self.settings.depth && bytes <= self.settings.max_bytes, "{queue:?} is over the bound");
        let expiries = self.waiting.values().filter_map(|w| w.expires);
        let lost = self.running.iter().chain(self.moving.values()).filter_map(Work::lost);
        let (timer, due) = (self.scheduler.next_timer(), expiries.chain(lost).min());
        // What is predicted may expire before its budget ends.
        let earlier = self.settings.predict.is_some() && timer.is_some_and(|t| due.is_none_or(|due| t <= due));
        ensure!(timer == due || earlier, "the timer is {timer:?}, the first to do {due:?}");
        ensure!(timer.is_none_or(|at| at > self.now), "the timer {timer:?} is over at {:?}", self.now);
        ensure!(due.is_none_or(|at| at > self.now), "{due:?} is over at {:?}", self.now);
        ensure!(!(self.any_free() && self.any_eligible()), "a permit is free while an eligible request waits");
        let free_but = |but: BackendId| (0u16..).zip(&self.backends).any(|(i, b)| i != but.0 && b.any_free());
        ensure!(!self.moving.values().any(|w| free_but(w.backend)), "a permit is free while a request moves");
        ensure!(self.moving.values().all(|w| self.other_open(w.backend)), "a request moves although nothing is open");
        Ok(())
    }

    /// Gives all tickets back; after that nothing may be left and all sums must agree.
    pub(super) fn close(mut self) -> Result<Totals, String> {
        while !self.running.is_empty() {
            self.release(0, How::Finished, Used::default())?;
            self.settle()?;
        }
        ensure!(self.waiting.is_empty(), "{} wait forever", self.waiting.len());
        ensure!(self.moving.is_empty(), "{} move forever", self.moving.len());
        ensure!(self.scheduler.in_use() == 0, "{} permits are in use at rest", self.scheduler.in_use());
        ensure!(self.endings.len() as u64 == self.offers, "{} of {} ended", self.endings.len(), self.offers);
        let mut sums = Totals { offers: self.offers, moved: self.moved, ..Totals::default() };
        for ending in self.endings.values() {
            match *ending {
                Ending::Rejected(reason) => *sums.rejected.entry(reason).or_default() += 1,
                Ending::Expired(reason) => *sums.expired.entry(reason).or_default() += 1,
                Ending::Cancelled => sums.cancelled += 1,
                Ending::Released(how) => *sums.released.entry(how).or_default() += 1,
            }
        }
        sums.granted = sums.released.values().sum();
        ensure!(*self.scheduler.totals() == sums, "{:?}, not {sums:?}", self.scheduler.totals());
        Ok(sums)
    }

    fn granted(&mut self, ticket: Ticket) -> Result<(), String> {
        let id = ticket.id();
        let Some(waiter) = self.waiting.remove(&id) else { return Err(format!("{id:?} granted, it does not wait")) };
        let lane = waiter.lane;
        ensure!(!self.draining, "{id:?} granted while draining");
        ensure!(self.under_cap(lane), "{id:?} granted over the cap of tenant {lane}");
        ensure!(waiter.expires.is_none_or(|at| at >= self.now), "{id:?} granted after its budget");
        ensure!(ticket.waited() == self.now.since(waiter.arrived), "{id:?} waited {}", ticket.waited());
        ensure!(!self.passes(id, &waiter), "{id:?} went before its turn");
        self.take_seat(&ticket)?;
        self.held_by[lane] += 1;
        let aborts = self.settings.tenants[lane].on_miss == OnMiss::Abort;
        let limits = Some(waiter.slo).filter(|_| aborts);
        let (backend, tenant) = (ticket.backend(), ticket.tenant());
        let arrived = waiter.arrived;
        self.running.push(Work { id, tenant, backend, ticket: Some(ticket), arrived, limits, seen: false });
        Ok(())
    }

    /// Whether a request that goes now passes one whose turn it is.
    fn passes(&self, id: RequestId, waiter: &Waiter) -> bool {
        let order = self.settings.order;
        let first_of = |lane: usize| {
            let own = self.waiting.iter().filter(|(_, w)| w.lane == lane);
            own.map(|(id, w)| (w.behind, *id)).min()
        };
        let (behind, first) = first_of(waiter.lane).unwrap_or((true, RequestId(u64::MAX)));
        let others = || (0..self.settings.tenants.len()).filter(|lane| *lane != waiter.lane && self.under_cap(*lane));
        waiter.behind && !behind
            || matches!(order, Order::Fcfs | Order::Wfq) && (behind, first) < (waiter.behind, id)
            || order == Order::Fcfs && others().filter_map(first_of).any(|(_, other)| other < id)
    }

    fn found_another(&mut self, ticket: Ticket) -> Result<(), String> {
        let id = ticket.id();
        let Some(mut work) = self.moving.remove(&id) else { return Err(format!("{id:?} granted, it does not move")) };
        ensure!(ticket.backend() != work.backend, "{id:?} granted on the backend that failed");
        ensure!(ticket.tenant() == work.tenant && ticket.waited() == self.now.since(work.arrived), "{ticket:?}");
        self.take_seat(&ticket)?;
        work.backend = ticket.backend();
        work.ticket = Some(ticket);
        self.running.push(work);
        self.moved += 1;
        Ok(())
    }

    fn take_seat(&mut self, ticket: &Ticket) -> Result<(), String> {
        let seats = &mut self.backends[ticket.backend().index()];
        ensure!(seats.any_free(), "{:?} granted on a backend with {seats:?}", ticket.id());
        seats.in_use += 1;
        Ok(())
    }

    fn stranded(&mut self, id: RequestId) -> Result<(), String> {
        let Some(work) = self.moving.remove(&id) else { return Err(format!("{id:?} stranded, it does not move")) };
        let lost = work.lost().is_some_and(|at| at <= self.now);
        ensure!(lost || !self.other_open(work.backend), "{id:?} stranded although a backend is open");
        let lane = self.lane(work.tenant);
        self.held_by[lane] -= 1;
        self.end(id, Ending::Released(if lost { How::Aborted } else { How::BackendFailed }))
    }

    fn expired(&mut self, rejection: &Rejection) -> Result<(), String> {
        let id = rejection.id;
        ensure!(self.waiting.contains_key(&id), "{id:?} expired, it does not wait");
        let (reason, over) = (self.refuse_all(), self.waiting[&id].expires);
        if rejection.reason == RejectReason::QueueExpired && self.settings.predict.is_some() {
            ensure!(reason.is_none(), "{id:?} expired where {reason:?} was due");
        } else if rejection.reason == RejectReason::QueueExpired {
            ensure!(reason.is_none() && over.is_some_and(|at| at <= self.now), "{id:?} expired before {over:?}");
            let could_go = over == Some(self.now) && self.any_free() && self.any_eligible();
            ensure!(!could_go, "{id:?} expired at the tick at which a permit was free");
        } else {
            ensure!(reason == Some(rejection.reason), "{rejection:?} where {reason:?} was due");
        }
        self.waiting.remove(&id);
        self.end(id, Ending::Expired(rejection.reason))
    }

    fn end(&mut self, id: RequestId, ending: Ending) -> Result<(), String> {
        match self.endings.insert(id, ending) {
            Some(before) => Err(format!("{id:?} ended twice: {before:?}, {ending:?}")),
            None => Ok(()),
        }
    }

    fn refuse_all(&self) -> Option<RejectReason> {
        let usable = self.backends.iter().any(Seats::are_open);
        if self.draining { Some(RejectReason::Draining) } else { (!usable).then_some(RejectReason::NoBackend) }
    }

    fn refusal(&self, offer: &Offer) -> Option<RejectReason> {
        let bytes = self.waiting.values().map(|w| u128::from(w.bytes)).sum::<u128>() + u128::from(offer.bytes);
        let lane = self.lane(offer.tenant);
        let room = self.waiting.len() < self.settings.depth && bytes <= u128::from(self.settings.max_bytes);
        let starts = self.any_free() && self.under_cap(lane) && bytes <= u128::from(u64::MAX);
        let tenant = &self.settings.tenants[lane];
        let queues = room && tenant.max_permits != Some(0);
        let own = || self.waiting.values().filter(|w| w.lane == lane);
        let own_bytes = own().map(|w| u128::from(w.bytes)).sum::<u128>() + u128::from(offer.bytes);
        let limited = tenant.max_queued.is_some_and(|max| own().count() >= max as usize)
            || tenant.max_queued_bytes.is_some_and(|max| own_bytes > u128::from(max));
        let reason = match () {
            () if starts => None,
            () if bytes > u128::from(u64::MAX) => Some(RejectReason::QueueFull),
            () if limited => Some(RejectReason::TenantLimit),
            () => (!queues).then_some(RejectReason::QueueFull),
        };
        self.refuse_all().or(reason)
    }

    fn lane(&self, tenant: TenantId) -> usize {
        tenant.index().min(self.held_by.len() - 1)
    }

    fn under_cap(&self, lane: usize) -> bool {
        self.settings.tenants[lane].max_permits.is_none_or(|max| self.held_by[lane] < max)
    }

    fn any_free(&self) -> bool {
        self.backends.iter().any(Seats::any_free)
    }

    fn any_eligible(&self) -> bool {
        self.waiting.values().any(|w| self.under_cap(w.lane))
    }
}
