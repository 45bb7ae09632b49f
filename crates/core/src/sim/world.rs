//! A simulated run: the same rows as a real one.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::{Emission, Engine, Profile, Prompt, Work};
use crate::ids::{RequestId, TenantId};
use crate::ledger::{CountSource, Row};
use crate::outcome::{How, RejectReason, Terminal};
use crate::sched::{Action, AuditError, Offer, Scheduler, Settings, Ticket};
use crate::time::{Span, Tick};
use crate::work::{Arrival, Plan};

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
}

impl GatewaySetup {
    /// A gateway that takes no time of its own.
    #[must_use]
    pub fn instant(scheduler: Settings) -> Self {
        Self { scheduler, overhead_in: Span::ZERO, overhead_out: Span::ZERO, release_delay: Span::ZERO }
    }
}

/// Runs the plan to its end and hands over each arrival's row as it ends.
///
/// # Errors
/// An [`AuditError`] if the scheduler's invariants break: a defect of this program.
pub fn run(plan: &Plan, setup: &Setup, sink: impl FnMut(Row)) -> Result<(), AuditError> {
    World::new(plan, setup, sink).run()
}

struct World<'a, F> {
    plan: &'a Plan,
    engines: Vec<Engine>,
    gateway: Option<Gateway<'a>>,
    next_arrival: usize,
    in_flight: BTreeMap<u32, Flight>,
    sink: F,
}

struct Gateway<'a> {
    setup: &'a GatewaySetup,
    scheduler: Scheduler,
    waiting: BTreeMap<RequestId, u32>,
    returning: VecDeque<(Tick, Ticket)>,
}

/// An arrival between its offer and its end.
struct Flight {
    row: Row,
    ticket: Option<Ticket>,
}

impl<'a, F: FnMut(Row)> World<'a, F> {
    fn new(plan: &'a Plan, setup: &'a Setup, sink: F) -> Self {
        let mut engines: Vec<Engine> = setup.engines.iter().map(Engine::new).collect();
        for engine in &mut engines {
            for (prompt, tokens) in &setup.warm {
                engine.warm(prompt, *tokens);
            }
        }
        let gateway = setup.gateway.as_ref().map(|g| Gateway {
            setup: g,
            scheduler: Scheduler::new(&g.scheduler),
            waiting: BTreeMap::new(),
            returning: VecDeque::new(),
        });
        Self { plan, engines, gateway, next_arrival: 0, in_flight: BTreeMap::new(), sink }
    }

    fn run(mut self) -> Result<(), AuditError> {
        while let Some(now) = self.next_wake() {
            self.take_tokens(now);
            self.take_releases(now);
            self.take_arrivals(now);
            self.poll_scheduler(now);
            if let Some(gateway) = &self.gateway {
                gateway.scheduler.audit()?;
            }
        }
        Ok(())
    }

    fn next_wake(&self) -> Option<Tick> {
        let arrival = self.plan.arrivals().get(self.next_arrival).map(|a| self.offered_at(a));
        let gateway = self.gateway.as_ref();
        let release = gateway.and_then(|g| g.returning.front()).map(|(at, _)| *at);
        let timer = gateway.and_then(|g| g.scheduler.next_timer());
        let engine = self.engines.iter().filter_map(Engine::next_wake).min();
        [arrival, release, timer, engine].into_iter().flatten().min()
    }

    /// When the arrival reaches the scheduler, or the engine's network without a gateway.
    fn offered_at(&self, arrival: &Arrival) -> Tick {
        let overhead = self.gateway.as_ref().map_or(Span::ZERO, |g| g.setup.overhead_in);
        Tick::ZERO + arrival.at + overhead
    }

    fn take_arrivals(&mut self, now: Tick) {
        while let Some(&arrival) = self.plan.arrivals().get(self.next_arrival) {
            if self.offered_at(&arrival) > now {
                return;
            }
            self.next_arrival += 1;
            let planned = Tick::ZERO + arrival.at;
            let tenant = &self.plan.tenant(&arrival).name;
            let mut row = Row::new(arrival.index, tenant, planned, arrival.input, arrival.output);
            row.send_started = Some(planned);
            self.in_flight.insert(arrival.index, Flight { row, ticket: None });
            let Some(gateway) = &mut self.gateway else {
                self.submit(now, arrival.index, 0);
                continue;
            };
            let offer = Offer {
                tenant: TenantId(arrival.tenant),
                bytes: u64::from(arrival.input) * 6,
                cost: seat_time(self.engines[0].profile(), &arrival),
                budget: None,
            };
            match gateway.scheduler.offer(now, offer) {
                Ok(id) => {
                    gateway.waiting.insert(id, arrival.index);
                }
                Err(rejection) => self.reject(now, arrival.index, rejection.reason),
            }
            self.poll_scheduler(now);
        }
    }

    fn poll_scheduler(&mut self, now: Tick) {
        while let Some(gateway) = &mut self.gateway {
            match gateway.scheduler.poll(now) {
                None => return,
                Some(Action::Expire(rejection)) => {
                    if let Some(index) = gateway.waiting.remove(&rejection.id) {
                        self.reject(now, index, rejection.reason);
                    }
                }
                Some(Action::Grant(ticket)) => {
                    let Some(index) = gateway.waiting.remove(&ticket.id()) else { continue };
                    let backend = ticket.backend().index();
                    if let Some(flight) = self.in_flight.get_mut(&index) {
                        flight.row.queue = Some(ticket.waited());
                        flight.row.backend = Some(backend.to_string());
                        flight.ticket = Some(ticket);
                    }
                    self.submit(now, index, backend);
                }
            }
        }
    }

    fn submit(&mut self, now: Tick, index: u32, engine: usize) {
        let arrival = self.plan.arrivals()[index as usize];
        let work = Work {
            tag: u64::from(index),
            prompt: Prompt::Family(arrival.prompt),
            input: arrival.input,
            output: arrival.output,
        };
        self.engines[engine].submit(now, work);
    }

    fn take_tokens(&mut self, now: Tick) {
        for engine in 0..self.engines.len() {
            while let Some(token) = self.engines[engine].poll(now) {
                self.take_token(token);
            }
        }
    }

    fn take_token(&mut self, token: Emission) {
        let index = token.tag as u32;
        let overhead = self.gateway.as_ref().map_or(Span::ZERO, |g| g.setup.overhead_out);
        let at = token.at + overhead;
        let Some(flight) = self.in_flight.get_mut(&index) else { return };
        let row = &mut flight.row;
        if let Some(before) = row.last_content.replace(at) {
            row.gaps.push(at.since(before));
        } else {
            (row.head, row.first_event, row.first_content) = (Some(at), Some(at), Some(at));
            row.status = Some(200);
            row.cached_tokens = Some(token.cached);
        }
        if !token.last {
            return;
        }
        let Some(Flight { mut row, ticket }) = self.in_flight.remove(&index) else { return };
        row.state = Terminal::Completed;
        row.end = Some(at);
        row.input_tokens = Some(row.input_planned);
        row.output_tokens = Some(token.index);
        row.output_tokens_from = Some(CountSource::Usage);
        (self.sink)(row);
        if let (Some(gateway), Some(ticket)) = (&mut self.gateway, ticket) {
            gateway.returning.push_back((token.at + gateway.setup.release_delay, ticket));
        }
    }

    fn take_releases(&mut self, now: Tick) {
        while let Some(gateway) = &mut self.gateway {
            if gateway.returning.front().is_none_or(|(at, _)| *at > now) {
                return;
            }
            let Some((at, ticket)) = gateway.returning.pop_front() else { return };
            gateway.scheduler.release(at, ticket, How::Finished);
            self.poll_scheduler(now);
        }
    }

    fn reject(&mut self, now: Tick, index: u32, reason: RejectReason) {
        let Some(Flight { mut row, .. }) = self.in_flight.remove(&index) else { return };
        let overhead = self.gateway.as_ref().map_or(Span::ZERO, |g| g.setup.overhead_out);
        row.state = Terminal::Rejected;
        row.status = Some(match reason {
            RejectReason::QueueFull | RejectReason::QueueExpired => 429,
            RejectReason::NoBackend | RejectReason::Draining => 503,
        });
        row.reason = Some(reason.name().to_owned());
        row.head = Some(now + overhead);
        row.end = Some(now + overhead);
        (self.sink)(row);
    }
}

/// The time that a request is expected to hold a seat: its own prefill, and a decode step for every
/// further token.
fn seat_time(profile: &Profile, arrival: &Arrival) -> Span {
    let prefill = profile.step(0, arrival.input, 0);
    let decode = profile.step(u64::from(arrival.input), 0, 1);
    prefill + decode * u64::from(arrival.output.saturating_sub(1))
}
