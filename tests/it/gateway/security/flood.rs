//! One key that asks for all it can get, and one that leaves whatever it has got (S18, S22).

use std::collections::BTreeMap;

use elasticserve_core::ids::{RequestId, TenantId};
use elasticserve_core::outcome::How;
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::{Action, Offer, Order, Scheduler, Settings, TenantPolicy, Ticket, Used};
use elasticserve_core::time::{Span, Tick};

const SEATS: u32 = 8;
/// What the one that floods may have waiting.
const BOUND: u32 = 32;
const HORIZON: Span = Span::from_secs(60);
/// A refused client of it comes back after this time.
const RETRY: Span = Span::from_secs(1);
/// Requests per second of the other tenant: three tenths of what the seats can do.
const OTHER_RATE: f64 = 24.0;

const FLOOD: TenantId = TenantId(0);
const OTHER: TenantId = TenantId(1);

/// After this time those leave who do not wait for an answer.
const LEAVE: Span = Span::from_millis(10);

enum Event {
    Offer(TenantId),
    End(Ticket),
    /// The client of a request of the one that floods leaves.
    Leave(RequestId),
}

/// Clients of the one that floods.
#[derive(Clone, Copy)]
struct Flood {
    clients: usize,
    /// Whether their tenant has a bound.
    bounded: bool,
    /// Whether they leave, and come again at once.
    leaves: bool,
}

/// What the other tenant had beside the one that floods.
struct Other {
    offered: u64,
    admitted: u64,
    waited: Span,
}

/// Runs the scheduler on virtual time.
fn beside(seed: u64, Flood { clients, bounded, leaves }: Flood) -> Other {
    let max_queued = bounded.then_some(BOUND);
    let tenants = vec![TenantPolicy { max_queued, ..TenantPolicy::default() }, TenantPolicy::default()];
    let settings = Settings { tenants, order: Order::Wfq, depth: 64, ..Settings::fcfs(vec![SEATS]) };
    let mut s = Scheduler::new(&settings);
    let (mut arrivals, mut lengths) = (Random::new(seed, Stream::Test), Random::new(seed + 1_000, Stream::Test));
    let mut events: BTreeMap<(Tick, u64), Event> = BTreeMap::new();
    let mut made = 0;
    let mut add = |events: &mut BTreeMap<(Tick, u64), Event>, at: Tick, event: Event| {
        made += 1;
        events.insert((at, made), event);
    };
    for client in 0..clients {
        add(&mut events, Tick::ZERO + Span::from_nanos(1_000 * client as u64), Event::Offer(FLOOD));
    }
    let mut at = Tick::ZERO;
    while at < Tick::ZERO + HORIZON {
        at = at + Span::from_secs_f64(arrivals.exponential() / OTHER_RATE);
        add(&mut events, at, Event::Offer(OTHER));
    }
    let mut others: BTreeMap<RequestId, Tick> = BTreeMap::new();
    let mut running: BTreeMap<RequestId, Ticket> = BTreeMap::new();
    let mut other = Other { offered: 0, admitted: 0, waited: Span::ZERO };
    while let Some(((now, _), event)) = events.pop_first() {
        if now >= Tick::ZERO + HORIZON {
            break;
        }
        match event {
            Event::Offer(tenant) => {
                let offered = s.offer(now, Offer { tenant, output: Some(10), ..Offer::default() });
                other.offered += u64::from(tenant == OTHER);
                match offered {
                    Ok(id) if tenant == OTHER => drop(others.insert(id, now)),
                    Ok(id) if leaves => add(&mut events, now + LEAVE, Event::Leave(id)),
                    Err(_) if tenant == FLOOD => add(&mut events, now + RETRY, Event::Offer(FLOOD)),
                    _ => {}
                }
            }
            Event::Leave(id) => {
                if let Some(ticket) = running.remove(&id) {
                    s.release(now, ticket, How::ClientGone, Used::default());
                } else {
                    assert!(s.cancel(now, id));
                }
                add(&mut events, now, Event::Offer(FLOOD));
            }
            Event::End(ticket) => {
                if ticket.tenant() == FLOOD {
                    add(&mut events, now, Event::Offer(FLOOD));
                }
                s.release(now, ticket, How::Finished, Used { input: None, output: Some(10) });
            }
        }
        while let Some(action) = s.poll(now) {
            let Action::Grant(ticket) = action else { panic!("nothing expires here") };
            if leaves && ticket.tenant() == FLOOD {
                running.insert(ticket.id(), ticket);
                continue;
            }
            if let Some(offered) = others.remove(&ticket.id()) {
                other.admitted += 1;
                other.waited += now.since(offered);
            }
            add(&mut events, now + Span::from_millis(lengths.between(50, 150)), Event::End(ticket));
        }
    }
    s.audit().unwrap();
    other
}

/// Acceptance and mean wait in ms over all seeds.
fn over_seeds(clients: usize, bounded: bool) -> (f64, f64) {
    over(50, Flood { clients, bounded, leaves: false })
}

fn over(seeds: u64, flood: Flood) -> (f64, f64) {
    let (mut offered, mut admitted, mut waited) = (0, 0, Span::ZERO);
    for seed in 0..seeds {
        let other = beside(seed, flood);
        offered += other.offered;
        admitted += other.admitted;
        waited += other.waited;
    }
    (admitted as f64 / offered as f64, waited.as_millis_f64() / admitted as f64)
}

#[test]
fn a_thousand_clients_of_one_tenant_leave_the_others_what_forty_leave_them() {
    // Forty fill all seats and all that it may have waiting; more of them change nothing for anybody else.
    let (before, after) = (over_seeds((SEATS + BOUND) as usize, true), over_seeds(1_000, true));
    assert!((after.0 / before.0 - 1.0).abs() <= 0.05, "accepted {before:?} {after:?}");
    assert!((after.1 / before.1 - 1.0).abs() <= 0.05, "waited {before:?} {after:?}");
    assert!(before.0 > 0.99, "{before:?}");
    // Without its bound they take the queue.
    let unbounded = over_seeds(1_000, false);
    assert!(unbounded.0 < 0.9, "{unbounded:?}");
}

#[test]
fn clients_that_leave_whatever_they_have_got_take_no_more_from_the_others_than_those_that_stay() {
    let clients = (SEATS + BOUND) as usize;
    let stay = over(20, Flood { clients, bounded: true, leaves: false });
    // They come four thousand times a second.
    let leave = over(20, Flood { clients, bounded: true, leaves: true });
    assert!(stay.0 > 0.99 && leave.0 >= stay.0, "accepted {stay:?} {leave:?}");
    assert!(leave.1 <= stay.1 * 1.05, "waited {stay:?} {leave:?}");
}
