//! Bounds of one tenant's part of the queue, and the time to come back that a tenant is told.

use std::num::NonZeroU32;

use elasticserve_core::ids::TenantId;
use elasticserve_core::outcome::{How, RejectReason};
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::{
    Action, Offer, Order, Rejection, Scheduler, Settings, TenantLimit, TenantPolicy, Ticket, Used,
};
use elasticserve_core::time::{Span, Tick};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Tick {
    Tick::from_nanos(ms * MS)
}

fn offer(tenant: u16, bytes: u64) -> Offer {
    Offer { tenant: TenantId(tenant), bytes, ..Offer::default() }
}

fn bounded(max_queued: Option<u32>, max_queued_bytes: Option<u64>) -> TenantPolicy {
    TenantPolicy { max_queued, max_queued_bytes, ..TenantPolicy::default() }
}

/// Polls everything out; what expires is dropped.
fn grants(s: &mut Scheduler, now: Tick) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    while let Some(action) = s.poll(now) {
        if let Action::Grant(ticket) = action {
            tickets.push(ticket);
        }
    }
    s.audit().unwrap();
    tickets
}

fn limit(answer: Result<elasticserve_core::ids::RequestId, Rejection>) -> Option<TenantLimit> {
    let rejection = answer.unwrap_err();
    assert_eq!(rejection.reason, RejectReason::TenantLimit);
    rejection.limit
}

#[test]
fn a_tenant_at_its_bound_is_refused_by_that_bound_and_another_is_not() {
    let tenants = vec![bounded(Some(2), None), bounded(None, Some(100)), TenantPolicy::default()];
    let mut s = Scheduler::new(&Settings { tenants, ..Settings::fcfs(vec![1]) });
    s.offer(at(0), offer(2, 1)).unwrap();
    let held = grants(&mut s, at(0));
    for _ in 0..2 {
        s.offer(at(0), offer(0, 1)).unwrap();
    }
    assert_eq!(limit(s.offer(at(0), offer(0, 1))), Some(TenantLimit::Queued(2)));
    s.offer(at(0), offer(1, 60)).unwrap();
    assert_eq!(limit(s.offer(at(0), offer(1, 41))), Some(TenantLimit::QueuedBytes(100)));
    s.offer(at(0), offer(1, 40)).unwrap();
    s.offer(at(0), offer(2, 1_000)).unwrap();
    assert_eq!(grants(&mut s, at(0)).len(), 0);
    held.into_iter().for_each(|ticket| s.release(at(1), ticket, How::Finished, Used::default()));
    // One of the first tenant's starts, so that one more may wait.
    let _running = grants(&mut s, at(1));
    s.offer(at(1), offer(0, 1)).unwrap();
    assert_eq!(limit(s.offer(at(1), offer(0, 1))), Some(TenantLimit::Queued(2)));
}

#[test]
fn what_would_start_now_is_never_refused_for_its_tenants_bound() {
    let tenants = vec![bounded(Some(0), Some(0))];
    let mut s = Scheduler::new(&Settings { tenants, ..Settings::fcfs(vec![2]) });
    let mut held = Vec::new();
    for _ in 0..2 {
        s.offer(at(0), offer(0, 10)).unwrap();
        held.extend(grants(&mut s, at(0)));
    }
    assert_eq!(limit(s.offer(at(0), offer(0, 10))), Some(TenantLimit::Queued(0)));
    s.release(at(1), held.remove(0), How::Finished, Used::default());
    assert!(s.poll(at(1)).is_none());
    s.offer(at(1), offer(0, 10)).unwrap();
    assert_eq!(grants(&mut s, at(1)).len(), 1);
}

#[test]
fn what_is_cancelled_or_expires_leaves_its_tenants_part_of_the_queue_at_the_same_tick() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed, Stream::Test);
        let most = random.between(1, 20) as u32;
        let tenants = vec![bounded(Some(most), Some(u64::from(most) * 10)), TenantPolicy::default()];
        let budget = (seed % 2 == 0).then(|| Span::from_millis(5));
        let mut s = Scheduler::new(&Settings { tenants, budget, ..Settings::fcfs(vec![1]) });
        s.offer(at(0), offer(1, 1)).unwrap();
        let _held = grants(&mut s, at(0));
        let fill = |s: &mut Scheduler, now| {
            let ids: Vec<_> = (0..most).map(|_| s.offer(now, offer(0, 10)).unwrap()).collect();
            assert!(limit(s.offer(now, offer(0, 10))).is_some(), "seed {seed}");
            ids
        };
        let ids = fill(&mut s, at(0));
        let now = if budget.is_some() { at(5) } else { at(0) };
        if budget.is_some() {
            assert_eq!(grants(&mut s, now).len(), 0);
        } else {
            assert!(ids.into_iter().all(|id| s.cancel(now, id)), "seed {seed}");
        }
        fill(&mut s, now);
        s.audit().unwrap();
    }
}

/// Answers of 100 ms on `permits` seats: `flood` tells how many requests tenant 0 offers every 10 ms; one of tenant 1's comes
/// every 50 ms. Gives what tenant 1 was granted, of what it offered.
fn share_of_the_other(seed: u64, tenants: &[TenantPolicy], flood: u64) -> (u32, u32) {
    let settings = Settings { tenants: tenants.to_vec(), order: Order::Wfq, depth: 64, ..Settings::fcfs(vec![4]) };
    let mut s = Scheduler::new(&Settings { budget: Some(Span::from_millis(400)), ..settings });
    let mut random = Random::new(seed, Stream::Test);
    let mut running: Vec<(Tick, Ticket)> = Vec::new();
    let (mut granted, mut offered) = (0, 0);
    for ms in 0..4_000 {
        let now = at(ms);
        let due: Vec<usize> = (0..running.len()).rev().filter(|i| running[*i].0 <= now).collect();
        for place in due {
            s.release(now, running.swap_remove(place).1, How::Finished, Used::default());
        }
        for _ in 0..if ms % 10 == 0 { flood } else { 0 } {
            let _ = s.offer(now, offer(0, random.between(1, 1_000)));
        }
        if ms % 50 == 49 {
            offered += 1;
            let _ = s.offer(now, offer(1, random.between(1, 1_000)));
        }
        for ticket in grants(&mut s, now) {
            granted += u32::from(ticket.tenant() == TenantId(1));
            running.push((now + Span::from_millis(random.between(80, 120)), ticket));
        }
    }
    (granted, offered)
}

#[test]
fn a_tenant_that_fills_its_part_of_the_queue_takes_nothing_from_the_others_acceptance() {
    let bounded = [bounded(Some(16), Some(20_000)), TenantPolicy::default()];
    let mut crowded_out = 0;
    for seed in 0..50 {
        let (alone, offered) = share_of_the_other(seed, &bounded, 0);
        let (beside, _) = share_of_the_other(seed, &bounded, 200);
        assert_eq!(alone, offered, "seed {seed}");
        assert!(f64::from(beside) >= 0.95 * f64::from(alone), "seed {seed}: {beside} of {alone}");
        // Without a bound of its own it fills the queue of all.
        let unbounded = [TenantPolicy::default(), TenantPolicy::default()];
        crowded_out += u32::from(f64::from(share_of_the_other(seed, &unbounded, 200).0) < 0.95 * f64::from(alone));
    }
    assert!(crowded_out > 40, "{crowded_out}");
}

#[test]
fn a_tenant_is_told_to_come_back_by_the_rate_at_which_its_own_permits_do() {
    let weight = |w| TenantPolicy { weight: NonZeroU32::new(w).unwrap(), ..bounded(Some(10), None) };
    let tenants = vec![weight(4), weight(1), TenantPolicy::default()];
    let mut s = Scheduler::new(&Settings { tenants, order: Order::Wfq, ..Settings::fcfs(vec![1]) });
    let mut held: Option<Ticket> = None;
    for step in 0..400 {
        if let Some(ticket) = held.take() {
            s.release(at(step * 100), ticket, How::Finished, Used::default());
        }
        while s.offer(at(step * 100), offer(0, 1)).is_ok() {}
        while s.offer(at(step * 100), offer(1, 1)).is_ok() {}
        held = grants(&mut s, at(step * 100)).pop();
    }
    // 100 ms a permit: four of five for one tenant, every fifth for the other, and ten of each wait.
    let told = |s: &mut Scheduler, tenant| s.offer(at(40_000), offer(tenant, 1)).unwrap_err().retry_after.unwrap();
    while s.offer(at(40_000), offer(0, 1)).is_ok() {}
    while s.offer(at(40_000), offer(1, 1)).is_ok() {}
    for (tenant, mean_gap_ms) in [(0, 125.0), (1, 500.0)] {
        let told = told(&mut s, tenant).as_millis_f64();
        let expected = 11.0 * mean_gap_ms;
        assert!((told / expected - 1.0).abs() < 0.15, "tenant {tenant}: {told} ms, not {expected}");
    }
}
