//! A simulated run: the same rows as a real one.

use std::collections::{BTreeMap, VecDeque};

use super::declares::Declares;
use super::record::{Ending, Gaps, GapsFrom, Record};
use crate::engine::{Emission, Engine, Profile, Prompt, SeqId, Work};
use crate::ids::{RequestId, TenantId};
use crate::ledger::Row;
use crate::outcome::{How, RejectReason};
use crate::sched::{Action, AuditError, Observation, Offer, OnMiss, Scheduler, Settings, Ticket, Used};
use crate::slo::Slo;
use crate::time::{Span, Tick};
use crate::work::{Arrival, Plan, PlanTenant};

/// What the plan runs against.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The engines. Without a gateway the first one takes everything.
    pub engines: Vec<Profile>,
    /// The gateway in front of them, if there is one.
    pub gateway: Option<GatewaySetup>,
    /// Prompts that the engines have seen before the run, with their lengths.
    pub warm: Vec<(Prompt, u32)>,
}

/// A gateway: the scheduler's settings and the time that the gateway itself takes.
#[derive(Clone, Debug)]
pub struct GatewaySetup {
    /// What the scheduler is built from; one entry of permits for each engine.
    pub scheduler: Settings,
    /// From the client's send to the scheduler.
    pub overhead_in: Span,
    /// From the gateway to the client.
    pub overhead_out: Span,
    /// From the end of a stream to the next waiter's release.
    pub release_delay: Span,
    /// What requests say of the length of their answers.
    pub declares: Declares,
}

impl GatewaySetup {
    /// A gateway that takes no time of its own.
    #[must_use]
    pub fn instant(scheduler: Settings) -> Self {
        let zero = Span::ZERO;
        let (overhead_in, overhead_out, release_delay) = (zero, zero, zero);
        Self { scheduler, overhead_in, overhead_out, release_delay, declares: Declares::All }
    }
}

/// Runs the plan to its end and hands over each arrival's row as it ends.
///
/// # Errors
/// An [`AuditError`] if the scheduler's invariants break: a defect of this program.
pub fn run(plan: &Plan, setup: &Setup, mut sink: impl FnMut(Row)) -> Result<(), AuditError> {
    let arrivals = plan.arrivals().iter().map(|a| (*a, plan.prompt(a)));
    run_arrivals(&plan.header().tenants, arrivals, setup, |record| sink(record.to_row()))
}

/// Runs arrivals as they come, in order of time, and hands over each one's record as it ends. Memory is
/// taken for what is in flight, not for what has ended or is to come.
///
/// # Errors
/// An [`AuditError`] if the scheduler's invariants break: a defect of this program.
pub fn run_arrivals(
    tenants: &[PlanTenant],
    arrivals: impl IntoIterator<Item = (Arrival, Prompt)>,
    setup: &Setup,
    sink: impl FnMut(&Record<'_>),
) -> Result<(), AuditError> {
    World::new(tenants, arrivals.into_iter(), setup, sink).run()
}

struct World<'a, A, F> {
    tenants: &'a [PlanTenant],
    arrivals: A,
    next_arrival: Option<(Arrival, Prompt)>,
    engines: Vec<Engine>,
    gateway: Option<Gateway<'a>>,
    flights: Flights,
    sink: F,
}

struct Gateway<'a> {
    setup: &'a GatewaySetup,
    scheduler: Scheduler,
    waiting: Waiting,
    returning: VecDeque<Returning>,
    /// What runs and may be cut.
    running: BTreeMap<RequestId, u32>,
    /// Wake-ups since the whole queue was audited.
    unaudited: usize,
}

/// A ticket on its way back.
struct Returning {
    at: Tick,
    ticket: Ticket,
    how: How,
    used: Used,
}

impl<'a, A: Iterator<Item = (Arrival, Prompt)>, F: FnMut(&Record<'_>)> World<'a, A, F> {
    fn new(tenants: &'a [PlanTenant], mut arrivals: A, setup: &'a Setup, sink: F) -> Self {
        let gateway = setup.gateway.as_ref().map(|g| Gateway {
            setup: g,
            scheduler: Scheduler::new(&g.scheduler),
            waiting: Waiting::default(),
            returning: VecDeque::new(),
            running: BTreeMap::new(),
            unaudited: 0,
        });
        // Tokens between the ends are made only for a scheduler that wants to see them.
        let learns = gateway.as_ref().is_some_and(|g| g.scheduler.learns());
        let engine = |profile| if learns { Engine::new(profile) } else { Engine::new(profile).with_ends_only() };
        let mut engines: Vec<Engine> = setup.engines.iter().map(engine).collect();
        for engine in &mut engines {
            for (prompt, tokens) in &setup.warm {
                engine.warm(prompt, *tokens);
            }
        }
        let next_arrival = arrivals.next();
        Self { tenants, arrivals, next_arrival, engines, gateway, flights: Flights::default(), sink }
    }

    fn run(mut self) -> Result<(), AuditError> {
        while let Some(now) = self.next_wake() {
            self.take_tokens(now);
            self.take_releases(now);
            self.take_arrivals(now);
            self.poll_scheduler(now);
            if let Some(gateway) = &mut self.gateway {
                gateway.audit()?;
            }
        }
        self.gateway.map_or(Ok(()), |gateway| gateway.scheduler.audit())
    }

    fn next_wake(&self) -> Option<Tick> {
        let arrival = self.next_arrival.as_ref().map(|(a, _)| self.offered_at(a));
        let gateway = self.gateway.as_ref();
        let release = gateway.and_then(|g| g.returning.front()).map(|r| r.at);
        let timer = gateway.and_then(|g| g.scheduler.next_timer());
        let engine = self.engines.iter().filter_map(Engine::next_output).min();
        [arrival, release, timer, engine].into_iter().flatten().min()
    }

    /// When the arrival reaches the scheduler, or the engine's network without a gateway.
    fn offered_at(&self, arrival: &Arrival) -> Tick {
        let overhead = self.gateway.as_ref().map_or(Span::ZERO, |g| g.setup.overhead_in);
        Tick::ZERO + arrival.at + overhead
    }

    fn take_arrivals(&mut self, now: Tick) {
        while self.next_arrival.as_ref().is_some_and(|(a, _)| self.offered_at(a) <= now) {
            let Some((arrival, prompt)) = std::mem::replace(&mut self.next_arrival, self.arrivals.next()) else {
                return;
            };
            let flight = self.flights.start(arrival, prompt);
            let Some(gateway) = &mut self.gateway else {
                self.submit(now, flight, 0);
                continue;
            };
            let offer = Offer {
                tenant: TenantId(arrival.tenant),
                bytes: u64::from(arrival.input) * 6,
                class: None,
                budget: None,
                input: arrival.input,
                output: gateway.setup.declares.length(&arrival),
                hint: gateway.setup.declares.hint(&arrival),
                slo: self.tenants.get(usize::from(arrival.tenant)).map_or(Slo::default(), |t| t.slo),
                affinity: None,
                again: false,
            };
            match gateway.scheduler.offer(now, offer) {
                Ok(id) => gateway.waiting.insert(id, flight),
                Err(rejection) => self.reject(now, flight, rejection.reason),
            }
            self.poll_scheduler(now);
        }
    }

    fn poll_scheduler(&mut self, now: Tick) {
        while let Some(gateway) = &mut self.gateway {
            match gateway.scheduler.poll(now) {
                None => return,
                Some(Action::Expire(rejection)) => {
                    if let Some(flight) = gateway.waiting.remove(rejection.id) {
                        self.reject(now, flight, rejection.reason);
                    }
                }
                Some(Action::Abort(id)) => {
                    if let Some(flight) = gateway.running.remove(&id) {
                        self.cut(now, flight);
                    }
                }
                // No backend fails here.
                Some(Action::Strand(_)) => {}
                Some(Action::Grant(ticket)) => {
                    let Some(flight) = gateway.waiting.remove(ticket.id()) else { continue };
                    let backend = ticket.backend().index();
                    if gateway.setup.may_cut(ticket.tenant()) {
                        gateway.running.insert(ticket.id(), flight);
                    }
                    self.flights.get(flight).ticket = Some(ticket);
                    self.submit(now, flight, backend);
                }
            }
        }
    }

    fn submit(&mut self, now: Tick, flight: u32, engine: usize) {
        let Flight { arrival, prompt, .. } = self.flights.get(flight);
        let work =
            Work { tag: u64::from(flight), prompt: prompt.clone(), input: arrival.input, output: arrival.output };
        match self.engines[engine].submit(now, work) {
            Ok(seq) => self.flights.get(flight).seq = Some(seq),
            Err(why) => {
                let at = now + self.overhead_out();
                self.turn_away(now, flight, Ending::TooLong { at, why });
            }
        }
    }

    /// The gateway cuts what runs.
    fn cut(&mut self, now: Tick, number: u32) {
        let at = now + self.overhead_out();
        let flight = self.flights.get(number);
        let (engine, seq) = (flight.ticket.as_ref().map_or(0, |t| t.backend().index()), flight.seq);
        if let Some(seq) = seq {
            self.engines[engine].abort(now, seq);
        }
        let tokens = flight.tokens;
        let content = (tokens > 0).then_some((flight.first, flight.last));
        (self.sink)(&flight.record(self.tenants, Ending::Cut { at, content, tokens }));
        let used = Used { input: Some(flight.arrival.input), output: Some(tokens) };
        self.land(now, number, How::Aborted, used);
    }

    fn take_tokens(&mut self, now: Tick) {
        for engine in 0..self.engines.len() {
            while let Some(token) = self.engines[engine].poll(now) {
                self.take_token(engine, token);
            }
        }
    }

    fn take_token(&mut self, engine: usize, token: Emission) {
        let seen = token.at + self.overhead_out();
        // The tag is the flight's number.
        let flight = self.flights.get(token.tag as u32);
        if token.index == 1 {
            flight.first = seen;
        } else if !self.engines[engine].ends_only() {
            flight.gaps.push(seen.since(flight.last));
        }
        flight.tokens = token.index;
        let gap = (token.index > 1).then(|| seen.since(flight.last));
        flight.last = seen;
        if let (Some(gateway), Some(ticket)) = (&mut self.gateway, &flight.ticket)
            && gateway.scheduler.learns()
        {
            gateway.scheduler.observe(token.at, ticket.id(), Observation { tokens: 1, gap });
        }
        if token.last {
            self.complete(engine, token);
        }
    }

    fn complete(&mut self, engine: usize, token: Emission) {
        let Emission { tag, at, index: tokens, cached, .. } = token;
        let number = tag as u32;
        let Self { engines, flights, tenants, sink, .. } = self;
        let flight = flights.get(number);
        let engine = &engines[engine];
        let gaps =
            if engine.ends_only() { GapsFrom::Steps { engine, at, tokens } } else { GapsFrom::Kept(&flight.gaps) };
        let ending = Ending::Completed { first: flight.first, last: flight.last, cached, gaps: Gaps(gaps) };
        sink(&flight.record(tenants, ending));
        let used = Used { input: Some(flight.arrival.input), output: Some(tokens) };
        self.land(at, number, How::Finished, used);
    }

    fn take_releases(&mut self, now: Tick) {
        while let Some(gateway) = &mut self.gateway {
            if gateway.returning.front().is_none_or(|r| r.at > now) {
                return;
            }
            let Some(Returning { at, ticket, how, used }) = gateway.returning.pop_front() else { return };
            gateway.scheduler.release(at, ticket, how, used);
            self.poll_scheduler(now);
        }
    }

    fn reject(&mut self, now: Tick, flight: u32, reason: RejectReason) {
        let at = now + self.overhead_out();
        self.turn_away(now, flight, Ending::Rejected { at, reason });
    }

    fn turn_away(&mut self, now: Tick, number: u32, ending: Ending<'_>) {
        (self.sink)(&self.flights.get(number).record(self.tenants, ending));
        self.land(now, number, How::Finished, Used::default());
    }

    /// Ends a flight whose record was handed over. Its ticket, if it has one, goes back.
    fn land(&mut self, now: Tick, number: u32, how: How, used: Used) {
        let ticket = self.flights.end(number);
        if let (Some(gateway), Some(ticket)) = (&mut self.gateway, ticket) {
            gateway.running.remove(&ticket.id());
            gateway.returning.push_back(Returning { at: now + gateway.setup.release_delay, ticket, how, used });
        }
    }

    fn overhead_out(&self) -> Span {
        self.gateway.as_ref().map_or(Span::ZERO, |g| g.setup.overhead_out)
    }
}

impl GatewaySetup {
    fn may_cut(&self, tenant: TenantId) -> bool {
        let last = self.scheduler.tenants.len().saturating_sub(1);
        let policy = self.scheduler.tenants.get(tenant.index().min(last));
        policy.is_some_and(|p| p.on_miss == OnMiss::Abort)
    }
}

impl Gateway<'_> {
    /// The least number of wake-ups between two audits of the whole queue.
    const AUDIT_EVERY: usize = 4096;

    /// Checks the scheduler. The counts cost the same whatever waits. All that waits is gone over
    /// only now and then, so that this too is constant on average; in debug builds always.
    fn audit(&mut self) -> Result<(), AuditError> {
        self.unaudited += 1;
        if !cfg!(debug_assertions) && self.unaudited < Self::AUDIT_EVERY.max(self.scheduler.queued()) {
            return self.scheduler.audit_counts();
        }
        self.unaudited = 0;
        self.scheduler.audit()
    }
}

/// An arrival between its offer and its end.
struct Flight {
    arrival: Arrival,
    prompt: Prompt,
    ticket: Option<Ticket>,
    /// Its name in the engine.
    seq: Option<SeqId>,
    first: Tick,
    last: Tick,
    /// Tokens that came.
    tokens: u32,
    /// Between its tokens, where the engine hands out all of them.
    gaps: Vec<Span>,
}

impl Flight {
    fn record<'a>(&self, tenants: &'a [PlanTenant], ending: Ending<'a>) -> Record<'a> {
        let tenant = tenants.get(usize::from(self.arrival.tenant)).map_or("", |t| &t.name);
        let ticket = self.ticket.as_ref();
        let (queue, backend) = (ticket.map(Ticket::waited), ticket.map(|t| t.backend().0));
        Record { arrival: self.arrival, tenant, queue, backend, ending }
    }
}

/// Flights by number; numbers and memory are used again.
#[derive(Default)]
struct Flights {
    all: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    fn start(&mut self, arrival: Arrival, prompt: Prompt) -> u32 {
        if let Some(number) = self.free.pop() {
            let flight = self.get(number);
            (flight.arrival, flight.prompt, flight.seq, flight.tokens) = (arrival, prompt, None, 0);
            flight.gaps.clear();
            return number;
        }
        let (first, last) = (Tick::ZERO, Tick::ZERO);
        let (ticket, seq, gaps) = (None, None, Vec::new());
        self.all.push(Flight { arrival, prompt, ticket, seq, first, last, tokens: 0, gaps });
        (self.all.len() - 1) as u32
    }

    /// A flight that has started and not ended.
    fn get(&mut self, number: u32) -> &mut Flight {
        &mut self.all[number as usize]
    }

    fn end(&mut self, number: u32) -> Option<Ticket> {
        self.free.push(number);
        self.get(number).ticket.take()
    }
}

/// Flights by the scheduler's number. The scheduler counts offers up, so what waits lies close together.
#[derive(Default)]
struct Waiting {
    /// The number of the first place.
    base: u64,
    flights: VecDeque<Option<u32>>,
}

impl Waiting {
    fn insert(&mut self, id: RequestId, flight: u32) {
        if self.flights.is_empty() {
            self.base = id.0;
        }
        let place = (id.0 - self.base) as usize;
        // Those between were turned away at once.
        self.flights.resize(place, None);
        self.flights.push_back(Some(flight));
    }

    fn remove(&mut self, id: RequestId) -> Option<u32> {
        let place = id.0.checked_sub(self.base)? as usize;
        let flight = self.flights.get_mut(place)?.take();
        while self.flights.front().is_some_and(Option::is_none) {
            self.flights.pop_front();
            self.base += 1;
        }
        flight
    }
}
