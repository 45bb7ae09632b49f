use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::super::*;
use crate::engine::Profile;
use crate::ids::{BackendId, TenantId};
use crate::rng::{Random, Stream};
use crate::slo::Slo;

const ORDERS: [Order; 6] =
    [Order::Fcfs, Order::Wfq, Order::Priority, Order::LeastSlack, Order::ShortestFirst, Order::Value];
const MS: fn(u64) -> Span = Span::from_millis;

fn profile() -> Profile {
    Profile::built_in("gb10-qwen3-8b-fp8").unwrap()
}

fn ordered(order: Order, weights: &[u32]) -> Settings {
    let tenant = |&w: &u32| TenantPolicy { weight: NonZeroU32::new(w).unwrap(), ..TenantPolicy::default() };
    Settings {
        order,
        tenants: weights.iter().map(tenant).collect(),
        cost: CostModel::from_profile(&profile()),
        predict: order.predicts().then(Predict::default),
        depth: 10_000,
        ..Settings::fcfs(vec![1])
    }
}

fn random_settings(random: &mut Random, tenants: usize) -> Settings {
    let order = ORDERS[random.between(0, 5) as usize];
    let mut settings = ordered(order, &vec![1; tenants]);
    for tenant in &mut settings.tenants {
        tenant.weight = NonZeroU32::new(random.between(1, 9) as u32).unwrap();
        tenant.class = random.between(0, 3) as u32;
        tenant.max_permits = Some(random.between(0, 3) as u32).filter(|_| random.between(0, 2) == 0);
        tenant.max_queued = Some(random.between(0, 5) as u32).filter(|_| random.between(0, 2) == 0);
        tenant.max_queued_bytes = Some(random.between(0, 3_000)).filter(|_| random.between(0, 2) == 0);
        tenant.on_miss = if random.between(0, 2) == 0 { OnMiss::Abort } else { OnMiss::Finish };
        tenant.slo = random_slo(random).filter(|_| random.between(0, 1) == 0);
    }
    if order.predicts() || random.between(0, 1) == 0 {
        settings.predict = Some(Predict { caution: Caution::default() });
        settings.price = [None, Some(0.5)][random.between(0, 1) as usize].map(|mu| Price::from_profile(&profile(), mu));
    }
    settings.budget = Some(MS(random.between(0, 2_000))).filter(|_| random.between(0, 1) == 0);
    settings.guard = MS(random.between(0, 500));
    settings.depth = random.between(0, 40) as usize;
    settings.max_bytes = random.between(0, 20_000);
    settings.backends = vec![random.between(0, 4) as u32, random.between(0, 4) as u32];
    settings
}

fn random_slo(random: &mut Random) -> Option<Slo> {
    let limit = |random: &mut Random, most| Some(MS(random.between(1, most))).filter(|_| random.between(0, 3) > 0);
    Some(Slo { ttft: limit(random, 3_000), tpot: limit(random, 300), e2e: limit(random, 12_000) })
}

fn random_offer(random: &mut Random) -> Offer {
    Offer {
        tenant: TenantId(random.between(0, 9) as u16),
        bytes: random.between(0, 1_000),
        class: Some(random.between(0, 4) as u32).filter(|_| random.between(0, 1) == 0),
        budget: Some(MS(random.between(0, 3_000))).filter(|_| random.between(0, 2) == 0),
        input: random.between(0, 4_000) as u32,
        output: Some(random.between(0, 200) as u32).filter(|_| random.between(0, 2) > 0),
        hint: Some(random.between(0, 5) as u32 * 100).filter(|_| random.between(0, 2) > 0),
        slo: random_slo(random).unwrap_or_default(),
        affinity: None,
        again: random.between(0, 3) == 0,
    }
}

#[test]
fn random_reloads_among_random_operations_break_no_invariant_and_lose_no_request() {
    let (mut kept, mut over) = (0, 0);
    for seed in 0..1_500 {
        let mut random = Random::new(seed, Stream::Test);
        if let Err(error) = operate(&mut random, &mut kept, &mut over) {
            panic!("seed {seed}: {error}");
        }
    }
    assert!(kept > 10_000 && over > 500, "{kept} were kept in the queue, {over} times more than the new bounds");
}

/// Random inputs and reloads, each polled to the end and audited; then all work ends. Counts what reloads found in
/// the queue, and how often that was more than the new depth.
fn operate(random: &mut Random, kept: &mut usize, over: &mut usize) -> Result<(), String> {
    let mut tenants = random.between(1, 3) as usize;
    let mut s = Scheduler::new(&random_settings(random, tenants));
    let mut now = Tick::ZERO;
    let (mut open, mut held): (Vec<RequestId>, Vec<Ticket>) = (Vec::new(), Vec::new());
    for step in 0..=150 {
        now = now + MS(random.between(0, 60));
        let pick = random.next_u64() as usize;
        match random.between(0, 9) {
            _ if step == 150 => s.drain(now),
            0..=3 => open.extend(s.offer(now, random_offer(random))),
            4 if !open.is_empty() => {
                let id = open.swap_remove(pick % open.len());
                if !s.cancel(now, id) {
                    return Err(format!("{id:?} waits and cannot be cancelled"));
                }
            }
            5 if !held.is_empty() => {
                s.release(now, held.swap_remove(pick % held.len()), How::Finished, Used::default());
            }
            6..=7 => {
                // Tenants come, and some are left out of the settings.
                tenants += usize::from(random.between(0, 4) == 0);
                let listed = tenants - usize::from(tenants > 1 && random.between(0, 4) == 0);
                let settings = random_settings(random, listed);
                s.reload(now, &settings);
                if s.queued() != open.len() {
                    return Err(format!("{} waited, {} were left by a reload", open.len(), s.queued()));
                }
                *kept += open.len();
                *over += usize::from(open.len() > settings.depth);
            }
            _ if !held.is_empty() => {
                let gap = Some(MS(random.between(1, 200)));
                let tokens = random.between(0, 5) as u32;
                s.observe(now, held[pick % held.len()].id(), Observation { tokens, gap });
            }
            _ => {}
        }
        while let Some(action) = s.poll(now) {
            let id = match action {
                Action::Grant(ticket) => {
                    let id = ticket.id();
                    held.push(ticket);
                    id
                }
                Action::Abort(id) => {
                    let place = held.iter().position(|t| t.id() == id).ok_or(format!("{id:?} does not run"))?;
                    s.release(now, held.swap_remove(place), How::Aborted, Used::default());
                    continue;
                }
                Action::Strand(id) => return Err(format!("{id:?} did not fail")),
                Action::Expire(rejection) => rejection.id,
            };
            let place = open.iter().position(|o| *o == id).ok_or(format!("{id:?} ended twice"))?;
            open.swap_remove(place);
        }
        s.audit().map_err(|e| format!("step {step}: {e}"))?;
        if s.next_timer().is_some_and(|at| at <= now) {
            return Err("a timer is overdue".into());
        }
    }
    if !open.is_empty() || s.queued() > 0 {
        return Err(format!("{} wait forever", open.len()));
    }
    for ticket in held {
        s.release(now, ticket, How::Finished, Used::default());
    }
    s.audit().map_err(|e| e.to_string())
}

/// Offers random work on one taken seat, then frees it again and again: the numbers in the order of their grants.
/// The settings are `before` while it is offered, and `after` once `reload` says so.
fn granted(before: &Settings, after: &Settings, reload: bool, seed: u64) -> Vec<u64> {
    let mut s = Scheduler::new(before);
    let mut random = Random::new(seed, Stream::Test);
    // A tenant that has nothing else to do, so that what it has had does not count.
    let _ = s.offer(Tick::ZERO, Offer { tenant: TenantId(4), ..Offer::default() });
    let mut seat = match s.poll(Tick::ZERO) {
        Some(Action::Grant(ticket)) => ticket,
        other => panic!("{other:?}"),
    };
    let mut now = Tick::ZERO;
    for _ in 0..60 {
        now = now + MS(random.between(1, 20));
        let slo = Slo { e2e: Some(Span::from_secs(random.between(4_000, 9_000))), ..Slo::default() };
        let tenant = TenantId(random.between(0, 3) as u16);
        let (input, output) = (random.between(1, 4_000) as u32, Some(random.between(1, 300) as u32));
        s.offer(now, Offer { tenant, input, output, slo, ..Offer::default() }).unwrap();
        assert!(s.poll(now).is_none());
    }
    if reload {
        s.reload(now, after);
    }
    let mut order = Vec::new();
    for _ in 0..60 {
        now = now + MS(50);
        s.release(now, seat, How::Finished, Used::default());
        seat = match s.poll(now) {
            Some(Action::Grant(ticket)) => ticket,
            other => panic!("{other:?}"),
        };
        order.push(seat.id().0);
    }
    order
}

fn varied(order: Order) -> Settings {
    let mut settings = ordered(order, &[1, 2, 4, 8, 1]);
    for (class, tenant) in settings.tenants.iter_mut().enumerate() {
        tenant.class = class as u32;
    }
    settings
}

#[test]
fn after_a_reload_what_waits_goes_as_if_the_new_rules_had_always_held() {
    let mut differ = 0;
    for seed in 0..20 {
        for before in ORDERS {
            for after in ORDERS {
                let (before, after) = (varied(before), varied(after));
                let reloaded = granted(&before, &after, true, seed);
                assert_eq!(reloaded, granted(&after, &after, false, seed), "{:?} to {:?}", before.order, after.order);
                differ += usize::from(reloaded != granted(&before, &before, false, seed));
            }
        }
    }
    assert!(differ > 400, "only {differ} of 720 reloads changed anything");
}

/// Keeps both tenants waiting, and counts who gets so many grants.
fn shares(s: &mut Scheduler, now: Tick, seat: &mut Option<Ticket>, grants: usize) -> [usize; 2] {
    let mut got = [0; 2];
    for _ in 0..grants {
        for tenant in [0, 1, 0, 1, 1] {
            let _ = s.offer(now, Offer { tenant: TenantId(tenant), ..Offer::default() });
        }
        if let Some(ticket) = seat.take() {
            s.release(now, ticket, How::Finished, Used::default());
        }
        while let Some(Action::Grant(ticket)) = s.poll(now) {
            got[ticket.tenant().index()] += 1;
            *seat = Some(ticket);
        }
    }
    got
}

#[test]
fn new_weights_share_from_the_next_grant_on() {
    let mut s = Scheduler::new(&ordered(Order::Wfq, &[1, 1]));
    let mut seat = None;
    assert_eq!(shares(&mut s, Tick::ZERO, &mut seat, 100), [50, 50]);
    s.reload(Tick::ZERO, &ordered(Order::Wfq, &[3, 1]));
    let [first, second] = shares(&mut s, Tick::ZERO, &mut seat, 100);
    assert!((74..=76).contains(&first) && first + second == 100, "{first}:{second}");
}

#[test]
fn what_was_shared_out_by_another_rule_is_no_credit_under_fair_queueing() {
    let mut s = Scheduler::new(&ordered(Order::Fcfs, &[1, 1]));
    let mut seat = None;
    let [first, second] = shares(&mut s, Tick::ZERO, &mut seat, 200);
    assert!(second > first + 35, "{first}:{second}");
    s.reload(Tick::ZERO, &ordered(Order::Wfq, &[1, 1]));
    assert_eq!(shares(&mut s, Tick::ZERO, &mut seat, 20), [10, 10]);
}

#[test]
fn a_tenant_whose_cap_is_lifted_has_no_credit_for_what_the_cap_kept_it_from() {
    let capped = |cap| {
        let mut settings = Settings { backends: vec![2], ..ordered(Order::Wfq, &[1, 1]) };
        settings.tenants[0].max_permits = cap;
        settings
    };
    let mut s = Scheduler::new(&capped(Some(1)));
    let grant = |s: &mut Scheduler, tenant| {
        s.offer(Tick::ZERO, Offer { tenant: TenantId(tenant), ..Offer::default() }).unwrap();
        s.poll(Tick::ZERO)
    };
    assert!(matches!(grant(&mut s, 0), Some(Action::Grant(_))));
    let Some(Action::Grant(ticket)) = grant(&mut s, 1) else { panic!("a seat is free") };
    let mut seat = Some(ticket);
    assert_eq!(shares(&mut s, Tick::ZERO, &mut seat, 100), [0, 100]);
    s.reload(Tick::ZERO, &capped(None));
    let [lifted, other] = shares(&mut s, Tick::ZERO, &mut seat, 20);
    assert!(lifted.abs_diff(other) <= 2, "{lifted}:{other}");
}

#[test]
fn a_shorter_budget_holds_for_what_waits_and_a_longer_one_lets_it_live() {
    let with = |ms| Settings { budget: Some(MS(ms)), ..Settings::fcfs(vec![0, 1]) };
    let mut s = Scheduler::new(&with(1_000));
    let _ = s.offer(Tick::ZERO, Offer::default());
    assert!(matches!(s.poll(Tick::ZERO), Some(Action::Grant(_))));
    let own = s.offer(Tick::ZERO, Offer { budget: Some(MS(100)), ..Offer::default() }).unwrap();
    let other = s.offer(Tick::ZERO, Offer::default()).unwrap();
    s.reload(Tick::ZERO, &with(5_000));
    assert_eq!(s.next_timer(), Some(Tick::ZERO + MS(100)), "its own word still holds");
    assert!(matches!(s.poll(Tick::ZERO + MS(101)), Some(Action::Expire(r)) if r.id == own));
    assert!(s.poll(Tick::ZERO + MS(1_001)).is_none());
    s.reload(Tick::ZERO + MS(1_001), &with(300));
    assert!(matches!(s.poll(Tick::ZERO + MS(1_001)), Some(Action::Expire(r)) if r.id == other));
}

#[test]
fn who_asks_again_goes_behind_under_rules_that_bound_the_wait_whenever_it_came() {
    let with = |budget| Settings { budget, ..Settings::fcfs(vec![0, 1]) };
    for (before, after) in [(None, Some(MS(500))), (Some(MS(500)), None)] {
        let mut s = Scheduler::new(&with(before));
        let _ = s.offer(Tick::ZERO, Offer::default());
        let Some(Action::Grant(held)) = s.poll(Tick::ZERO) else { panic!("a seat is free") };
        let again = s.offer(Tick::ZERO, Offer { again: true, ..Offer::default() }).unwrap();
        let first = s.offer(Tick::ZERO, Offer::default()).unwrap();
        s.reload(Tick::ZERO, &with(after));
        s.release(Tick::ZERO, held, How::Finished, Used::default());
        let Some(Action::Grant(next)) = s.poll(Tick::ZERO) else { panic!("the seat is free again") };
        assert_eq!(next.id(), if after.is_some() { first } else { again });
        s.audit().unwrap();
    }
}

#[test]
fn fewer_permits_take_nothing_from_what_runs_and_more_are_granted_at_once() {
    let mut s = Scheduler::new(&Settings::fcfs(vec![3]));
    let mut held = Vec::new();
    for _ in 0..6 {
        s.offer(Tick::ZERO, Offer::default()).unwrap();
    }
    let poll = |s: &mut Scheduler, held: &mut Vec<Ticket>| {
        while let Some(Action::Grant(ticket)) = s.poll(Tick::ZERO) {
            held.push(ticket);
        }
    };
    poll(&mut s, &mut held);
    s.reload(Tick::ZERO, &Settings::fcfs(vec![1]));
    poll(&mut s, &mut held);
    assert_eq!((held.len(), s.permits(BackendId(0))), (3, (3, 1)));
    for left in [2, 1] {
        s.release(Tick::ZERO, held.pop().unwrap(), How::Finished, Used::default());
        poll(&mut s, &mut held);
        assert_eq!(held.len(), left);
    }
    s.reload(Tick::ZERO, &Settings::fcfs(vec![4]));
    poll(&mut s, &mut held);
    assert_eq!((held.len(), s.queued()), (4, 0));
}

#[test]
fn predictions_that_are_switched_on_know_of_all_that_runs() {
    let settings = |predicts: bool| Settings {
        predict: predicts.then(Predict::default),
        backends: vec![4],
        ..ordered(Order::Fcfs, &[1, 1])
    };
    let mut random = Random::new(3, Stream::Test);
    let (mut from_the_start, mut switched) = (Scheduler::new(&settings(true)), Scheduler::new(&settings(false)));
    for _ in 0..4 {
        let tenant = TenantId(random.between(0, 1) as u16);
        let output = Some(random.between(50, 300) as u32).filter(|_| random.between(0, 1) == 0);
        for s in [&mut from_the_start, &mut switched] {
            let id = s.offer(Tick::ZERO, Offer { tenant, input: 500, output, ..Offer::default() }).unwrap();
            assert!(matches!(s.poll(Tick::ZERO), Some(Action::Grant(_))));
            s.observe(Tick::ZERO, id, Observation { tokens: 7, gap: None });
        }
    }
    switched.reload(Tick::ZERO, &settings(true));
    let asked = Offer { input: 300, output: Some(20), ..Offer::default() };
    let (known, learned) = (from_the_start.predict(Tick::ZERO, &asked), switched.predict(Tick::ZERO, &asked));
    assert!(known.is_some_and(|p| p.start > Tick::ZERO + MS(100)), "{known:?}");
    assert_eq!(learned, known);
    let mut held = BTreeMap::new();
    switched.reload(Tick::ZERO, &settings(false));
    assert_eq!(switched.predict(Tick::ZERO, &asked), None);
    switched.offer(Tick::ZERO, asked).unwrap();
    switched.reload(Tick::ZERO, &Settings { backends: vec![5], ..settings(true) });
    while let Some(Action::Grant(ticket)) = switched.poll(Tick::ZERO) {
        held.insert(ticket.id(), ticket);
    }
    assert_eq!(held.len(), 1);
    switched.audit().unwrap();
}
