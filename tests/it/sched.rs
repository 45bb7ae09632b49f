//! The scheduler under random sequences of operations.

#![cfg(test)]

mod fairness;
mod limits;
mod model;
pub(crate) mod overload;
mod random;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use elasticserve_core::ids::TenantId;
use elasticserve_core::outcome::{How, RejectReason};
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::{CostModel, Offer, OnMiss, Order, Settings, TenantPolicy, Used};
use elasticserve_core::time::Span;

use model::{Books, Ending, Op};

use crate::support::trials;

fn tenant(random: &mut Random) -> TenantPolicy {
    let weight = NonZeroU32::MIN.saturating_add(random.between(0, 9) as u32);
    let max_permits = match random.between(0, 9) {
        0..6 => None,
        6 => Some(0),
        _ => Some(random.between(1, 3) as u32),
    };
    let max_queued = (random.between(0, 3) == 0).then(|| random.between(0, 6) as u32);
    let max_queued_bytes = (random.between(0, 3) == 0).then(|| random.between(0, 400));
    let on_miss = [OnMiss::Finish, OnMiss::Abort][random.between(0, 1) as usize];
    TenantPolicy { weight, max_permits, max_queued, max_queued_bytes, on_miss, ..TenantPolicy::default() }
}

#[test]
fn any_sequence_of_operations_keeps_the_books_and_ends_every_request_once() {
    let mut endings = BTreeMap::new();
    // All of them take about six minutes of one core.
    for seed in 0..trials(10_000, 1_000_000) {
        let mut random = Random::new(seed, Stream::Test);
        let settings = random::settings(&mut random);
        let ops: Vec<Op> = (0..random.between(1, 200)).map(|_| random::op(&mut random)).collect();
        let totals = model::check(seed, &settings, &ops);
        for (name, count) in totals.rejected.iter().map(|(reason, n)| (format!("rejected: {reason}"), n)) {
            *endings.entry(name).or_insert(0) += count;
        }
        for (name, count) in totals.expired.iter().map(|(reason, n)| (format!("expired: {reason}"), n)) {
            *endings.entry(name).or_insert(0) += count;
        }
        for (name, count) in totals.released.iter().map(|(how, n)| (format!("released: {how}"), n)) {
            *endings.entry(name).or_insert(0) += count;
        }
        *endings.entry("cancelled".into()).or_insert(0) += totals.cancelled;
    }
    // Six reasons at arrival, three while waiting, a cancel and five ways to end work.
    assert_eq!(endings.len(), 15, "{endings:?}");
    assert!(endings.values().all(|count| *count > 500), "{endings:?}");
}

/// What happens to a waiting request at the tick at which its budget ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Event {
    Permit,
    Timer,
    Cancel,
}

#[test]
fn a_grant_an_expiry_and_a_cancel_at_one_tick_end_a_request_once_in_every_order() {
    use Event::{Cancel, Permit, Timer};
    let orders = [
        [Permit, Timer, Cancel],
        [Permit, Cancel, Timer],
        [Timer, Permit, Cancel],
        [Timer, Cancel, Permit],
        [Cancel, Permit, Timer],
        [Cancel, Timer, Permit],
    ];
    for seed in 0..10_000 {
        for events in orders {
            let mut random = Random::new(seed, Stream::Test);
            if let Err(error) = same_tick(&mut random, events) {
                panic!("seed {seed}, {events:?}: {error}");
            }
        }
    }
}

fn same_tick(random: &mut Random, events: [Event; 3]) -> Result<(), String> {
    let seats = random.between(1, 3);
    let budget = Span::from_nanos(random.between(0, 3) * random.between(1, 1_000_000));
    let settings = Settings { order: order(random), ..Settings::fcfs(vec![seats as u32]) };
    // Whether the caller polls after each of the three, or only when its timer fires and at the end.
    let eager = random.between(0, 1) == 0;
    let offer = |budget| Offer { tenant: TenantId(0), bytes: 1, input: 5, budget, ..Offer::default() };

    let mut books = Books::new(&settings);
    for _ in 0..seats {
        books.apply(&Op::Offer(offer(None)))?;
    }
    let id = books.offer(offer(Some(budget)))?;
    // With a budget of nothing, all three meet the arrival at its own tick.
    if budget > Span::ZERO {
        books.settle()?;
    }
    for _ in 0..random.between(0, 2) {
        books.offer(offer(Some(budget)))?;
        if budget > Span::ZERO {
            books.settle()?;
        }
    }
    books.forward(budget);
    for event in events {
        match event {
            Event::Permit => books.release(random.next_u64(), How::Finished, Used::default())?,
            Event::Cancel => books.cancel(id)?,
            Event::Timer => books.settle()?,
        }
        if eager {
            books.settle()?;
        }
    }
    books.settle()?;
    let place = |event| events.iter().position(|e| *e == event);
    let first = if eager {
        events[0]
    } else if place(Event::Cancel) < place(Event::Timer) {
        Event::Cancel
    } else {
        events[0]
    };
    let expected = match first {
        Event::Permit => None,
        Event::Timer => Some(Ending::Expired(RejectReason::QueueExpired)),
        Event::Cancel => Some(Ending::Cancelled),
    };
    if books.ending(id) != expected {
        return Err(format!("{:?}, not {expected:?}, polled after each: {eager}", books.ending(id)));
    }
    books.close().map(drop)
}

#[test]
fn a_queue_whose_requests_were_all_cancelled_takes_as_many_again_at_that_tick() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed, Stream::Test);
        let depth = random.between(1, 40) as usize;
        // Either of the two bounds may be the one that is met.
        let max_bytes = random.between(1, 60) * 10;
        let room = depth.min(max_bytes as usize / 10);
        let tenants = vec![TenantPolicy::default(); 2];
        let settings = Settings { order: order(&mut random), depth, max_bytes, tenants, ..Settings::fcfs(vec![1]) };
        let mut books = Books::new(&settings);
        books.apply(&Op::Offer(small_offer(&mut random))).unwrap();
        for _ in 0..2 {
            let mut ids: Vec<_> = (0..room).map(|_| books.offer(small_offer(&mut random)).unwrap()).collect();
            let refused = books.offer(small_offer(&mut random)).unwrap();
            assert!(ids.iter().all(|id| books.ending(*id).is_none()), "seed {seed}: refused with room for it");
            assert_eq!(books.ending(refused), Some(Ending::Rejected(RejectReason::QueueFull)), "seed {seed}");
            while !ids.is_empty() {
                let id = ids.swap_remove(random.between(0, ids.len() as u64 - 1) as usize);
                books.cancel(id).unwrap();
            }
        }
        books.settle().unwrap();
        books.close().unwrap();
    }
}

fn small_offer(random: &mut Random) -> Offer {
    let budget = [None, Some(Span::from_secs(1))][random.between(0, 1) as usize];
    let tenant = TenantId(random.between(0, 1) as u16);
    Offer { tenant, bytes: 10, input: random.between(1, 9) as u32, budget, ..Offer::default() }
}

fn order(random: &mut Random) -> Order {
    [Order::Fcfs, Order::Wfq][random.between(0, 1) as usize]
}

/// A request costs one nanosecond for each prompt token.
fn by_prompt() -> CostModel {
    let (zero, prefill_per_token) = (Span::ZERO, Span::from_nanos(1));
    CostModel { overhead: zero, prefill_per_token, first_token_steps: 0, idle_tpot: zero }
}
