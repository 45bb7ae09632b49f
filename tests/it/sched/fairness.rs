//! Fair queueing: how far the service of two tenants may drift apart.
//!
//! Let `W` be the seat time that a tenant was given in an interval, `w` its weight and `c` the greatest
//! cost of a request of its. If tenant `j` had a request that might start all the time, then for every
//! other tenant `i`, whatever it did:
//!
//! - Counted at the grant, with any number of seats: `W_i / w_i − W_j / w_j ≤ c_i / w_i + c_j / w_j`
//!   (Goyal, Vin and Cheng 1996, lemmas 1 and 2). If both always had one, it holds both ways round, which
//!   is their theorem 1.
//! - Counted at the end, with `D` seats: `D + 1` times that (Jin, Chase and Kaur 2004, theorem 1).
//!
//! Costs may turn out to differ from what was declared, by `e` at most. Counted as charged, declared costs at the
//! grant and the differences at the end, the bound is wider by what `D` seats can hold of such differences at
//! once: `D · (e_i / w_i + e_j / w_j)`.
//!
//! This holds in *every* interval exactly if the difference, followed over time while `j` waits, never
//! rises above its least value by more than the bound. All sums are whole numbers: the inequality times
//! `w_i · w_j`.

use std::num::NonZeroU32;

use elasticserve_core::ids::{BackendId, RequestId, TenantId};
use elasticserve_core::outcome::How;
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::{Action, Offer, Order, Scheduler, Settings, TenantPolicy, Ticket, Used};
use elasticserve_core::time::{Span, Tick};

/// Grants in one trial.
const GRANTS: usize = 80;

#[test]
fn backlogged_tenants_stay_within_the_bound_of_fair_queueing_in_every_interval() {
    let mut widest: f64 = 0.0;
    for seed in 0..5_000 {
        let lead = Trial::new(seed, Order::Wfq, false).run();
        assert!(lead.granted <= 1.0, "seed {seed}: {} of the bound between grants", lead.granted);
        assert!(lead.ended <= 1.0, "seed {seed}: {} of the bound between ends", lead.ended);
        widest = widest.max(lead.granted);
    }
    // The bound is tight: a looser one would let defects pass.
    assert!(widest > 0.9, "{widest}");
}

#[test]
fn the_bound_holds_for_real_costs_where_tenants_misstate_them() {
    let mut widest: f64 = 0.0;
    for seed in 0..5_000 {
        let lead = Trial::new(seed, Order::Wfq, true).run();
        assert!(lead.granted <= 1.0, "seed {seed}: {} of the bound as charged", lead.granted);
        assert!(lead.ended <= 1.0, "seed {seed}: {} of the bound between ends", lead.ended);
        widest = widest.max(lead.granted);
    }
    assert!(widest > 0.7, "{widest}");
}

#[test]
fn first_come_first_served_breaks_the_bound_of_fair_queueing() {
    let over = (0..200).filter(|&seed| Trial::new(seed, Order::Fcfs, false).run().granted > 1.0).count();
    assert!(over > 100, "{over} of 200");
}

/// Tenants that mostly have work waiting, on a server of a few seats.
struct Trial {
    random: Random,
    now: Tick,
    scheduler: Scheduler,
    seats: u32,
    flows: Vec<Flow>,
    pairs: Vec<Pair>,
    running: Vec<(Tick, Ticket, Cost)>,
    misstated: bool,
}

/// What a request is said to cost, and what it does.
#[derive(Copy, Clone)]
struct Cost {
    said: u64,
    real: u64,
}

struct Flow {
    weight: i128,
    max_permits: Option<usize>,
    max_cost: u64,
    waiting: Vec<(RequestId, Cost)>,
    running: usize,
    given: i128,
    ended: i128,
    greatest: i128,
    /// The greatest difference between what a request was said to cost and what it did.
    error: i128,
}

/// A tenant that may get ahead of another, and the other.
struct Pair {
    flows: (usize, usize),
    granted: Lead,
    ended: Lead,
}

/// The least difference since the other tenant began to wait.
#[derive(Default)]
struct Lead {
    least: i128,
}

/// The greatest leads of a trial as parts of their bounds.
#[derive(Default)]
struct Widest {
    granted: f64,
    ended: f64,
}

impl Flow {
    fn may_start(&self) -> bool {
        !self.waiting.is_empty() && self.max_permits.is_none_or(|max| self.running < max)
    }
}

impl Lead {
    fn follow(&mut self, difference: i128, other_waits: bool) -> i128 {
        self.least = if other_waits { self.least.min(difference) } else { difference };
        difference - self.least
    }
}

impl Trial {
    fn new(seed: u64, order: Order, misstated: bool) -> Self {
        let mut random = Random::new(seed, Stream::Test);
        let seats = if seed.is_multiple_of(2) { 1 } else { random.between(2, 8) as u32 };
        let flow = |_| Flow {
            weight: i128::from(random.between(1, 64)),
            // Half of the trials have caps.
            max_permits: (seed % 4 > 1).then(|| random.between(1, u64::from(seats)) as usize),
            max_cost: 1 << random.between(0, 16),
            waiting: Vec::new(),
            running: 0,
            given: 0,
            ended: 0,
            greatest: 0,
            error: 0,
        };
        let flows: Vec<Flow> = (0..2 + seed % 3).map(flow).collect();
        let tenants = flows.iter().map(|f| TenantPolicy {
            weight: NonZeroU32::new(f.weight as u32).unwrap(),
            max_permits: f.max_permits.map(|max| max as u32),
            ..TenantPolicy::default()
        });
        let settings =
            Settings { order, tenants: tenants.collect(), cost: super::by_prompt(), ..Settings::fcfs(vec![seats]) };
        let others = |i| (0..flows.len()).filter(move |&j| j != i).map(move |j| (i, j));
        let pair = |flows| Pair { flows, granted: Lead::default(), ended: Lead::default() };
        let pairs = (0..flows.len()).flat_map(others).map(pair).collect();
        let scheduler = Scheduler::new(&settings);
        Self { random, now: Tick::ZERO, scheduler, seats, flows, pairs, running: Vec::new(), misstated }
    }

    fn run(mut self) -> Widest {
        let mut widest = Widest::default();
        let mut grants = 0;
        while grants < GRANTS {
            self.change_demand(&mut widest);
            self.change_seats();
            grants += self.grant(&mut widest);
            self.end_one(&mut widest);
            grants += self.grant(&mut widest);
        }
        widest
    }

    /// Tenants come, stay and sometimes leave at once.
    fn change_demand(&mut self, widest: &mut Widest) {
        for flow in 0..self.flows.len() {
            let wanted = if self.flows[flow].waiting.is_empty() { self.random.between(0, 6) } else { 1 };
            for _ in 0..wanted {
                let most = self.flows[flow].max_cost;
                let real = self.random.between(1, most);
                let said = if self.misstated { self.random.between(1, most) } else { real };
                let tenant = TenantId(flow as u16);
                let offer = Offer { tenant, bytes: 0, input: said as u32, ..Offer::default() };
                if let Ok(id) = self.scheduler.offer(self.now, offer) {
                    self.flows[flow].waiting.push((id, Cost { said, real }));
                }
                self.grant(widest);
            }
            let leave = if self.random.between(0, 99) == 0 { usize::MAX } else { self.random.between(0, 1) as usize };
            for _ in 0..leave.min(self.flows[flow].waiting.len()) {
                let place = self.random.between(0, self.flows[flow].waiting.len() as u64 - 1) as usize;
                let (id, _) = self.flows[flow].waiting.remove(place);
                assert!(self.scheduler.cancel(self.now, id));
                self.follow(None, widest);
            }
        }
    }

    /// Seats come and go, so that a cap holds a tenant back at one time and not at another.
    fn change_seats(&mut self) {
        if self.random.between(0, 19) == 0 {
            let seats = self.random.between(1, u64::from(self.seats)) as u32;
            self.scheduler.set_backend(self.now, BackendId(0), seats, true);
        }
    }

    fn grant(&mut self, widest: &mut Widest) -> usize {
        let mut grants = 0;
        while let Some(action) = self.scheduler.poll(self.now) {
            let Action::Grant(ticket) = action else { panic!("{action:?} without a budget") };
            let index = ticket.tenant().index();
            let could: Vec<bool> = self.flows.iter().map(Flow::may_start).collect();
            let flow = &mut self.flows[index];
            let place = flow.waiting.iter().position(|(id, _)| *id == ticket.id()).unwrap();
            let (_, cost) = flow.waiting.remove(place);
            flow.running += 1;
            flow.given += i128::from(cost.said);
            flow.greatest = flow.greatest.max(i128::from(cost.said.max(cost.real)));
            flow.error = flow.error.max(i128::from(cost.said.abs_diff(cost.real)));
            self.running.push((self.now + Span::from_nanos(cost.real), ticket, cost));
            self.follow(Some(&could), widest);
            self.follow(None, widest);
            grants += 1;
        }
        self.scheduler.audit().unwrap();
        grants
    }

    /// The request that is done first gives its seat back, its cost being its time.
    fn end_one(&mut self, widest: &mut Widest) {
        let first = (0..self.running.len()).min_by_key(|&i| (self.running[i].0, self.running[i].1.id()));
        let Some(first) = first else { return };
        let (at, ticket, cost) = self.running.swap_remove(first);
        self.now = at;
        let flow = &mut self.flows[ticket.tenant().index()];
        flow.running -= 1;
        flow.ended += i128::from(cost.real);
        flow.given += i128::from(cost.real) - i128::from(cost.said);
        let used = Used { input: Some(cost.real as u32), output: Some(1) };
        self.scheduler.release(at, ticket, How::Finished, used);
        self.follow(None, widest);
    }

    /// Brings all pairs up to date; `could` says who might have started just before a grant, which is
    /// part of the interval that it ends.
    fn follow(&mut self, could: Option<&[bool]>, widest: &mut Widest) {
        let may = |i: usize| could.map_or_else(|| self.flows[i].may_start(), |could| could[i]);
        for pair in &mut self.pairs {
            let (i, j) = pair.flows;
            let (a, b) = (&self.flows[i], &self.flows[j]);
            // Tags are rounded down, by less than one part of all in a trial.
            let errors = i128::from(self.seats) * (a.error * b.weight + b.error * a.weight);
            let bound = (a.greatest * b.weight + b.greatest * a.weight + errors + 1) as f64;
            let granted = pair.granted.follow(a.given * b.weight - b.given * a.weight, may(j));
            let ended = pair.ended.follow(a.ended * b.weight - b.ended * a.weight, may(j));
            widest.granted = widest.granted.max(granted as f64 / bound);
            widest.ended = widest.ended.max(ended as f64 / (bound * f64::from(self.seats + 1)));
        }
    }
}
