use std::num::NonZeroU32;

use super::*;
use crate::rng::{Random, Stream};
use crate::sched::{Order, Predict, TenantPolicy};
use crate::slo::Slo;

const COST: CostModel = CostModel {
    overhead: Span::from_millis(3),
    prefill_per_token: Span::from_nanos(50_000),
    first_token_steps: 2,
    idle_tpot: Span::from_millis(10),
};

/// An engine whose answers take what the cost model says, or with `wavers` more or less.
struct World {
    live: Scheduler,
    shadow: Shadow,
    running: Vec<(Tick, Ticket)>,
    needs: BTreeMap<RequestId, Need>,
    /// Granted or not, by tenant; in order of the offers.
    verdicts: BTreeMap<RequestId, (usize, bool)>,
    wavers: Option<Random>,
}

impl World {
    fn new(live: &Settings, shadow: &Settings, wavers: Option<Random>) -> Self {
        let (live, shadow) = (Scheduler::new(live), Shadow::new(shadow));
        Self { live, shadow, running: Vec::new(), needs: BTreeMap::new(), verdicts: BTreeMap::new(), wavers }
    }

    /// Lets everything happen that is due before `until`.
    fn run(&mut self, until: Tick) {
        loop {
            let end = self.running.iter().map(|(at, _)| *at).min();
            let next = [end, self.live.next_timer()].into_iter().flatten().min();
            let Some(now) = next.filter(|at| *at < until) else { return };
            let due = (0..self.running.len()).filter(|i| self.running[*i].0 <= now).min_by_key(|i| self.running[*i].0);
            if let Some(place) = due {
                let (_, ticket) = self.running.remove(place);
                let id = ticket.id();
                let used = Used { input: None, output: Some(self.needs[&id].output) };
                self.live.release(now, ticket, How::Finished, used);
                self.shadow.ended(now, id, How::Finished, used);
            }
            self.poll(now);
        }
    }

    fn offer(&mut self, now: Tick, offer: &Offer) {
        self.run(now);
        let answer = self.live.offer(now, *offer);
        let id = answer.as_ref().map_or_else(|r| r.id, |id| *id);
        self.needs.insert(id, Need { input: offer.input, output: offer.output.unwrap(), slo: offer.slo });
        self.verdicts.insert(id, (offer.tenant.index(), false));
        self.shadow.offered(now, id, offer, answer.is_ok());
        self.poll(now);
        if let Some(random) = &mut self.wavers
            && !self.running.is_empty()
        {
            let (_, ticket) = &self.running[random.between(0, self.running.len() as u64 - 1) as usize];
            let gap = Some(Span::from_millis(random.between(8, 16)));
            let observation = Observation { tokens: random.between(0, 3) as u32, gap };
            self.live.observe(now, ticket.id(), observation);
            self.shadow.observe(now, ticket.id(), observation);
            self.poll(now);
        }
    }

    fn poll(&mut self, now: Tick) {
        while let Some(action) = self.live.poll(now) {
            match action {
                Action::Grant(ticket) => {
                    self.verdicts.get_mut(&ticket.id()).unwrap().1 = true;
                    self.shadow.granted(now, ticket.id());
                    let mut service = COST.e2e(&self.needs[&ticket.id()], COST.idle_tpot);
                    if let Some(random) = &mut self.wavers {
                        service = Span::from_nanos(service.as_nanos() * random.between(60, 180) / 100);
                    }
                    self.running.push((now + service, ticket));
                }
                Action::Expire(rejection) => {
                    self.shadow.refused(now, rejection.id);
                }
                Action::Abort(_) | Action::Strand(_) => unreachable!("nothing is cut or fails"),
            }
        }
    }
}

const TENANTS: u16 = 3;

fn settings(order: Order, budget: Option<u64>, predict: bool) -> Settings {
    let tenant = |w| TenantPolicy { weight: NonZeroU32::new(w).unwrap(), class: w, ..TenantPolicy::default() };
    Settings {
        tenants: [4, 2, 1].map(tenant).to_vec(),
        order,
        depth: 12,
        budget: budget.map(Span::from_millis),
        cost: COST,
        predict: predict.then_some(Predict::default()),
        guard: Span::from_millis(200),
        ..Settings::fcfs(vec![2, 2])
    }
}

fn policies() -> Vec<Settings> {
    vec![
        settings(Order::Fcfs, Some(300), false),
        settings(Order::Wfq, Some(300), false),
        settings(Order::Priority, None, false),
        settings(Order::LeastSlack, None, true),
        settings(Order::ShortestFirst, None, true),
    ]
}

/// Offers of 200 ms to 1.3 s on four seats, for more than they can take.
fn offers(seed: u64) -> Vec<(Tick, Offer)> {
    let mut random = Random::new(seed, Stream::Test);
    let mut at = Tick::ZERO;
    let mut next = || {
        at = at + Span::from_nanos(random.between(1, 250_000_000));
        let slo = Slo { ttft: None, tpot: None, e2e: Some(Span::from_millis(random.between(500, 3_000))) };
        let (input, output) = (random.between(1, 500) as u32, random.between(20, 120) as u32);
        let tenant = TenantId(random.between(0, 2) as u16);
        let offer = Offer { tenant, input, output: Some(output), slo, ..Offer::default() };
        (at, offer)
    };
    (0..300).map(|_| next()).collect()
}

const END: Tick = Tick::from_nanos(10_000_000_000_000);

fn ran(live: &Settings, shadow: &Settings, seed: u64, wavers: bool) -> World {
    let mut world = World::new(live, shadow, wavers.then(|| Random::new(seed + 1_000, Stream::Test)));
    for (at, offer) in offers(seed) {
        world.offer(at, &offer);
        // What waits and runs on either side, and no more.
        assert!(world.shadow.held() <= 2 * (12 + 4), "{}", world.shadow.held());
    }
    world.run(END);
    world.shadow.advance(END);
    assert_eq!((world.shadow.held(), world.shadow.live.len(), world.shadow.ends.len()), (0, 0, 0));
    world.shadow.scheduler.audit().unwrap();
    world
}

#[test]
fn a_shadow_of_the_same_policy_never_disagrees_whatever_the_engine_does() {
    let mut decided = Counts::default();
    for seed in 0..40 {
        let policy = &policies()[seed as usize % 5];
        let world = ran(policy, policy, seed, true);
        for tenant in 0..TENANTS {
            let counts = world.shadow.counts(TenantId(tenant));
            let granted = world.verdicts.values().filter(|v| **v == (usize::from(tenant), true)).count() as u64;
            let refused = world.verdicts.values().filter(|v| **v == (usize::from(tenant), false)).count() as u64;
            let expected = Counts { both_admit: granted, both_refuse: refused, ..Counts::default() };
            assert_eq!(counts, expected, "seed {seed}, tenant {tenant}");
            decided.both_admit += granted;
            decided.both_refuse += refused;
        }
    }
    assert!(decided.both_admit > 1_000 && decided.both_refuse > 1_000, "{decided:?}");
}

#[test]
fn where_answers_take_what_is_predicted_a_shadow_decides_as_its_policy_would_alone() {
    let mut disagreed = 0;
    for seed in 0..40 {
        let policies = policies();
        let (live, other) = (&policies[seed as usize % 5], &policies[(seed as usize / 5 + 1 + seed as usize) % 5]);
        let world = ran(live, other, seed, false);
        let alone = ran(other, other, seed, false);
        let mut expected = [Counts::default(); TENANTS as usize];
        for ((tenant, live), (_, shadow)) in world.verdicts.values().zip(alone.verdicts.values()) {
            let counts = &mut expected[*tenant];
            *match (live, shadow) {
                (true, true) => &mut counts.both_admit,
                (false, false) => &mut counts.both_refuse,
                (true, false) => &mut counts.only_live,
                (false, true) => &mut counts.only_shadow,
            } += 1;
        }
        for (tenant, expected) in expected.iter().enumerate() {
            assert_eq!(world.shadow.counts(TenantId(tenant as u16)), *expected, "seed {seed}, tenant {tenant}");
            disagreed += expected.only_live + expected.only_shadow;
        }
    }
    assert!(disagreed > 500, "{disagreed}");
}

#[test]
fn the_pace_is_that_of_the_real_engine_whoever_runs_there() {
    let open = Settings { backends: vec![2], ..settings(Order::Fcfs, None, false) };
    let predicts = Settings { backends: vec![1], ..settings(Order::Fcfs, None, true) };
    let (mut shadow, mut alone) = (Shadow::new(&predicts), LiveTpot::new(COST.idle_tpot));
    let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
    let offer = Offer { output: Some(50), ..Offer::default() };
    let mut live = Scheduler::new(&open);
    let mut tickets = Vec::new();
    for ms in 0..2 {
        let id = live.offer(at(ms), offer).unwrap();
        shadow.offered(at(ms), id, &offer, true);
        if let Some(Action::Grant(ticket)) = live.poll(at(ms)) {
            shadow.granted(at(ms), id);
            tickets.push(ticket);
        }
    }
    // One of the two runs in the shadow; the gaps of both count, as if both did.
    for step in 2..200 {
        let gap = Span::from_millis(20 + step % 2 * 10);
        let id = tickets[step as usize % 2].id();
        shadow.observe(at(step * 10), id, Observation { tokens: 1, gap: Some(gap) });
        alone.observe(gap, 2);
        assert_eq!(shadow.scheduler.live_tpot(), Some(alone.get()));
    }
    assert!(alone.get() > Span::from_millis(20));
    // What the live one refuses takes a virtual seat for as long as it would take at that pace; first the
    // other one does, for as long as it really ran.
    let end = at(3_000);
    let ran: Vec<Span> = tickets.iter().map(|t| end.since(t.granted())).collect();
    let refused = RequestId(99);
    shadow.offered(at(2_500), refused, &offer, false);
    let need = Need { input: 1, output: 50, slo: Slo::default() };
    for ticket in tickets.into_iter().rev() {
        shadow.ended(end, ticket.id(), How::Finished, Used::default());
    }
    assert_eq!(shadow.scheduler.live_tpot(), Some(COST.idle_tpot), "nothing runs any more");
    let second = shadow.flights[&RequestId(1)].ends.unwrap();
    assert_eq!(second, end + ran[1]);
    shadow.offered(end, RequestId(100), &offer, true);
    shadow.granted(end, RequestId(100));
    shadow.observe(end, RequestId(100), Observation { tokens: 1, gap: Some(Span::from_secs(1)) });
    shadow.observe(second, RequestId(100), Observation { tokens: 1, gap: Some(Span::from_secs(1)) });
    let pace_then = shadow.pace.get();
    let third = shadow.flights[&refused].ends.unwrap();
    assert!(third > second && third <= second + COST.e2e(&need, pace_then), "{third:?}");
    assert!(third > second + COST.e2e(&need, COST.idle_tpot), "{third:?}");
}

#[test]
fn a_shadow_in_which_nothing_runs_keeps_the_pace_of_what_really_does() {
    let predicts = Settings { backends: vec![1], depth: 0, ..settings(Order::Fcfs, None, true) };
    let mut shadow = Shadow::new(&predicts);
    let at = Tick::from_nanos;
    for id in [RequestId(0), RequestId(1)] {
        shadow.offered(at(0), id, &Offer { output: Some(50), ..Offer::default() }, true);
        shadow.granted(at(0), id);
    }
    shadow.observe(at(1), RequestId(1), Observation { tokens: 1, gap: Some(Span::from_secs(1)) });
    let pace = shadow.scheduler.live_tpot();
    assert!(pace > Some(COST.idle_tpot));
    shadow.ended(at(2), RequestId(0), How::Finished, Used::default());
    assert_eq!((shadow.scheduler.in_use(), shadow.scheduler.live_tpot()), (0, pace));
}

#[test]
fn what_leaves_the_real_queue_leaves_the_shadows_too_and_is_not_counted() {
    let policy = settings(Order::Fcfs, None, false);
    let mut shadow = Shadow::new(&Settings { backends: vec![1], ..policy });
    let offer = Offer { output: Some(10), ..Offer::default() };
    let at = Tick::from_nanos;
    assert_eq!(shadow.offered(at(0), RequestId(0), &offer, true), Word::Granted(Span::ZERO));
    shadow.granted(at(0), RequestId(0));
    assert_eq!(shadow.offered(at(1), RequestId(1), &offer, true), Word::Waits);
    assert_eq!(shadow.withdrawn(at(2), RequestId(1)), Some(Word::Waits));
    assert_eq!(shadow.scheduler.queued(), 0);
    // The live one lets a second run at once; its client leaves before the shadow has come to it.
    assert_eq!(shadow.offered(at(3), RequestId(2), &offer, true), Word::Waits);
    shadow.granted(at(3), RequestId(2));
    assert_eq!(shadow.ended(at(4), RequestId(2), How::ClientGone, Used::default()), Some(Word::Waits));
    assert_eq!((shadow.scheduler.queued(), shadow.held()), (0, 1));
    // A seat is held until the real end.
    assert_eq!(shadow.offered(at(5), RequestId(3), &offer, false), Word::Waits);
    shadow.advance(at(1 << 40));
    assert_eq!(shadow.scheduler.in_use(), 1);
    let word = shadow.ended(at(1 << 40), RequestId(0), How::Finished, Used::default());
    assert_eq!(word, Some(Word::Granted(Span::ZERO)));
    assert_eq!(shadow.counts(TenantId(0)), Counts { both_admit: 1, only_shadow: 1, ..Counts::default() });
    // And by who never really ran for as long as predicted.
    shadow.advance(at((1 << 40) + COST.seat_time(1, 10).as_nanos() + 1));
    assert_eq!((shadow.scheduler.in_use(), shadow.held()), (0, 0));
}
