//! Whole worlds on virtual time: the scheduler with requests that take time, and simulated runs.

#![cfg(test)]

mod engine;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use elasticserve_core::engine::{Profile, Prompt};
use elasticserve_core::ids::{BackendId, RequestId, TenantId};
use elasticserve_core::outcome::{How, RejectReason, Terminal};
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::{Action, Offer, Order, Scheduler, Settings, TenantPolicy, Ticket, Used};
use elasticserve_core::sim::{self, Declares, GatewaySetup, Setup};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant};
use sha2::{Digest, Sha256};

/// Requests offered in one world.
const REQUESTS: usize = 300;

#[test]
fn no_permit_is_free_while_a_request_may_use_it_and_all_ends_in_bounded_time() {
    let (mut granted, mut turned_away) = (0, 0);
    for seed in 0..1_000 {
        let world = World::new(seed).run();
        granted += world.granted;
        turned_away += world.turned_away;
    }
    // The worlds are overloaded now and then, but not all the time.
    assert!(granted > 50_000 && turned_away > 50_000, "{granted} granted, {turned_away} turned away");
}

/// Requests with service times on backends that come and go.
struct World {
    seed: u64,
    random: Random,
    settings: Settings,
    scheduler: Scheduler,
    now: Tick,
    arrivals: Vec<Tick>,
    changes: Vec<Tick>,
    backends: Vec<(u32, bool)>,
    waiting: Vec<BTreeSet<RequestId>>,
    held_by: Vec<u32>,
    running: BTreeMap<(Tick, RequestId), Ticket>,
    longest: Span,
    granted: u32,
    turned_away: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, Stream::Test);
        let backends: Vec<u32> = (0..random.between(1, 3)).map(|_| random.between(1, 8) as u32).collect();
        let tenants: Vec<TenantPolicy> = (0..random.between(1, 4)).map(|_| tenant(&mut random)).collect();
        let settings = Settings {
            backends: backends.clone(),
            order: [Order::Fcfs, Order::Wfq][random.between(0, 1) as usize],
            depth: random.between(0, 60) as usize,
            budget: [None, Some(Span::from_nanos(random.between(0, 5_000)))][random.between(0, 1) as usize],
            tenants,
            ..Settings::fcfs(Vec::new())
        };
        // Latest first, so that the next one is popped; many fall on one tick.
        let times = |random: &mut Random, n: usize| {
            let mut times: Vec<Tick> = (0..n).map(|_| Tick::from_nanos(random.between(0, 3_000) * 10)).collect();
            times.sort_by(|a, b| b.cmp(a));
            times
        };
        let lanes = settings.tenants.len();
        Self {
            seed,
            scheduler: Scheduler::new(&settings),
            now: Tick::ZERO,
            arrivals: times(&mut random, REQUESTS),
            changes: times(&mut random, 10),
            backends: backends.iter().map(|&permits| (permits, true)).collect(),
            waiting: vec![BTreeSet::new(); lanes],
            held_by: vec![0; lanes],
            running: BTreeMap::new(),
            longest: Span::from_nanos(random.between(1, 2_000)),
            granted: 0,
            turned_away: 0,
            random,
            settings,
        }
    }

    fn run(mut self) -> Self {
        let seed = self.seed;
        while !self.arrivals.is_empty() || !self.changes.is_empty() {
            self.step();
        }
        // From here on nothing new comes, and the backends stay as they are.
        let quiet = self.now;
        let running: BTreeSet<RequestId> = self.running.keys().map(|(_, id)| *id).collect();
        let left = self.queued() as u64 + self.running.len() as u64;
        while self.queued() > 0 || !self.running.is_empty() {
            self.step();
            let old = self.running.keys().any(|(_, id)| running.contains(id));
            assert!(!old || self.now < quiet + self.longest, "seed {seed}: what ran takes longer than it may");
            if let Some(budget) = self.settings.budget {
                assert!(self.queued() == 0 || self.now < quiet + budget, "seed {seed}: waits for more than its budget");
                let end = quiet + budget + self.longest;
                assert!(self.now <= end, "seed {seed}: still busy at {:?}, after {end:?}", self.now);
            }
            // One seat at least is busy all the time.
            assert!(self.now <= quiet + self.longest * left, "seed {seed}: seats stand idle");
        }
        assert_eq!(self.scheduler.in_use(), 0, "seed {seed}");
        assert_eq!(self.granted + self.turned_away, REQUESTS as u32, "seed {seed}");
        self
    }

    /// Goes to the next thing that happens, which must change something.
    fn step(&mut self) {
        let end = self.running.keys().next().map(|(at, _)| *at);
        let timer = self.scheduler.next_timer();
        let next =
            [self.arrivals.last().copied(), self.changes.last().copied(), end, timer].into_iter().flatten().min();
        let Some(now) = next else { panic!("seed {}: {} wait and nothing will happen", self.seed, self.queued()) };
        self.now = now;
        let mut inputs = 0;
        while self.changes.pop_if(|at| *at == now).is_some() {
            self.change_backend();
            inputs += 1 + self.settle();
        }
        while let Some(entry) = self.running.first_entry().filter(|e| e.key().0 == now) {
            let ticket = entry.remove();
            self.held_by[ticket.tenant().index()] -= 1;
            self.scheduler.release(now, ticket, How::Finished, Used::default());
            inputs += 1 + self.settle();
        }
        while self.arrivals.pop_if(|at| *at == now).is_some() {
            self.arrive();
            inputs += 1 + self.settle();
        }
        inputs += self.settle();
        assert!(inputs > 0, "seed {}: the timer at {now:?} changes nothing", self.seed);
    }

    fn arrive(&mut self) {
        let tenant = self.random.between(0, self.waiting.len() as u64 - 1) as u16;
        let input = self.random.between(0, 2_000) as u32;
        let budget = (self.random.between(0, 9) == 0).then(|| Span::from_nanos(self.random.between(0, 1_000)));
        match self
            .scheduler
            .offer(self.now, Offer { tenant: TenantId(tenant), bytes: 9, input, budget, ..Offer::default() })
        {
            Ok(id) => drop(self.waiting[usize::from(tenant)].insert(id)),
            Err(_) => self.turned_away += 1,
        }
    }

    fn change_backend(&mut self) {
        let place = self.random.between(0, self.backends.len() as u64 - 1) as usize;
        let last = self.changes.is_empty();
        // The last change brings a backend that works, so that the end can be reached.
        let permits = self.random.between(u64::from(last), 8) as u32;
        let up = last || self.random.between(0, 2) > 0;
        self.backends[place] = (permits, up);
        self.scheduler.set_backend(self.now, BackendId(place as u16), permits, up);
    }

    /// Polls until nothing is left and looks for a permit that stands idle.
    fn settle(&mut self) -> usize {
        let mut actions = 0;
        while let Some(action) = self.scheduler.poll(self.now) {
            actions += 1;
            assert!(actions <= 2 * REQUESTS, "seed {}: polls without end", self.seed);
            match action {
                Action::Grant(ticket) => {
                    let lane = ticket.tenant().index();
                    assert!(self.waiting[lane].remove(&ticket.id()), "seed {}", self.seed);
                    self.held_by[lane] += 1;
                    self.granted += 1;
                    let service = Span::from_nanos(self.random.between(1, self.longest.as_nanos()));
                    self.running.insert((self.now + service, ticket.id()), ticket);
                }
                Action::Abort(id) | Action::Strand(id) => panic!("{id:?} is to be cut, which nobody asked for"),
                Action::Expire(rejection) => {
                    let waited = self.waiting.iter_mut().any(|lane| lane.remove(&rejection.id));
                    assert!(waited, "seed {}", self.seed);
                    self.turned_away += 1;
                }
            }
        }
        self.scheduler.audit().unwrap();
        let idle = (0u16..).zip(&self.backends).any(|(index, &(permits, up))| {
            let (in_use, total) = self.scheduler.permits(BackendId(index));
            assert_eq!(total, permits, "seed {}", self.seed);
            up && in_use < permits
        });
        let under_cap = |(lane, policy): (usize, &TenantPolicy)| {
            !self.waiting[lane].is_empty() && policy.max_permits.is_none_or(|max| self.held_by[lane] < max)
        };
        let eligible = self.settings.tenants.iter().enumerate().any(under_cap);
        assert!(!(idle && eligible), "seed {}: a permit stands idle at {:?}", self.seed, self.now);
        actions
    }

    fn queued(&self) -> usize {
        self.waiting.iter().map(BTreeSet::len).sum()
    }
}

fn tenant(random: &mut Random) -> TenantPolicy {
    let weight = NonZeroU32::MIN.saturating_add(random.between(0, 9) as u32);
    let max_permits = (random.between(0, 2) == 0).then(|| random.between(1, 6) as u32);
    TenantPolicy { weight, max_permits, ..TenantPolicy::default() }
}

#[test]
fn a_seed_gives_the_same_ledger_byte_for_byte_and_every_arrival_one_row() {
    let mut hashes = BTreeSet::new();
    let mut states = BTreeMap::new();
    for seed in 0..1_000 {
        let ledger = ledger(seed, &mut states);
        assert_eq!(ledger, self::ledger(seed, &mut BTreeMap::new()), "seed {seed}");
        hashes.insert(ledger);
    }
    assert_eq!(hashes.len(), 1_000, "other seeds give other ledgers");
    let [completed, rejected] = [Terminal::Completed, Terminal::Rejected].map(|s| states.get(&s).copied().unwrap_or(0));
    assert!(completed > 5_000 && rejected > 2_000 && states.len() == 2, "{states:?}");
}

/// SHA-256 of the ledger of a small world of random engines, gateway, tenants and load.
fn ledger(seed: u64, states: &mut BTreeMap<Terminal, u32>) -> [u8; 32] {
    let mut random = Random::new(seed, Stream::Test);
    let plan = plan(seed, &mut random);
    let setup = setup(&plan, &mut random);
    let mut hash = Sha256::new();
    let mut seen = BTreeSet::new();
    sim::run(&plan, &setup, |row| {
        assert!(seen.insert(row.index), "seed {seed}: arrival {} has two rows", row.index);
        *states.entry(row.state).or_default() += 1;
        if row.state == Terminal::Completed {
            assert_eq!(
                (row.output_tokens, row.gaps.len()),
                (Some(row.output_planned), row.output_planned as usize - 1)
            );
            assert!(row.ttft() <= row.e2e() && row.tpot() <= row.e2e(), "seed {seed}: {row:?}");
        } else {
            let unavailable = row.reason.as_deref() == Some(RejectReason::NoBackend.name());
            assert_eq!(row.status, Some(if unavailable { 503 } else { 429 }), "seed {seed}");
        }
        hash.update(serde_json::to_vec(&row).unwrap());
        hash.update(b"\n");
    })
    .unwrap();
    assert_eq!(seen.len(), plan.arrivals().len(), "seed {seed}: arrivals without a row");
    hash.finalize().into()
}

fn plan(seed: u64, random: &mut Random) -> Plan {
    let tenants =
        (0..random.between(1, 3)).map(|i| PlanTenant::new(format!("t{i}"), 0.1 + random.unit(), Slo::default()));
    let tenants = tenants.collect();
    let rate = random.between(1, 40) as f64;
    let process = match random.between(0, 1) {
        0 => ArrivalProcess::Constant { rate },
        _ => ArrivalProcess::Poisson { rate },
    };
    let extent = Extent::Count(random.between(5, 30) as u32);
    let lengths = |random: &mut Random, high| {
        let low = random.between(1, high) as u32;
        Lengths { low, high: random.between(u64::from(low), high) as u32 }
    };
    let (input, output) = (lengths(random, 600), lengths(random, 12));
    Plan::generate(&PlanSpec { seed, process, extent, input, output, tenants }).unwrap()
}

fn setup(plan: &Plan, random: &mut Random) -> Setup {
    let engines: Vec<Profile> = (0..random.between(1, 3)).map(|_| engine::profile(random)).collect();
    let some_time = |random: &mut Random| Span::from_nanos(random.between(0, 1) * random.between(0, 3_000_000));
    let gateway = (random.between(0, 4) > 0).then(|| GatewaySetup {
        scheduler: Settings {
            backends: engines.iter().map(|_| random.between(0, 6) as u32).collect(),
            tenants: plan.header().tenants.iter().map(|_| tenant(random)).collect(),
            order: [Order::Fcfs, Order::Wfq][random.between(0, 1) as usize],
            depth: random.between(0, 20) as usize,
            max_bytes: random.between(0, 50_000),
            budget: (random.between(0, 1) == 0).then(|| Span::from_millis(random.between(0, 900))),
            ..Settings::fcfs(Vec::new())
        },
        overhead_in: some_time(random),
        overhead_out: some_time(random),
        release_delay: some_time(random),
        declares: [Declares::All, Declares::Half, Declares::Hint, Declares::None][random.between(0, 3) as usize],
    });
    let warm = plan.arrivals().iter().filter(|a| a.index % 3 == 0).map(|a| (Prompt::Family(a.prompt), a.input));
    Setup { engines, gateway, warm: warm.collect() }
}
