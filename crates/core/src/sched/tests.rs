use std::num::NonZeroU32;

use super::*;
use crate::ids::{BackendId, TenantId};

fn tenant(weight: u32, max_permits: Option<u32>) -> TenantPolicy {
    TenantPolicy { weight: NonZeroU32::new(weight).unwrap(), max_permits, ..TenantPolicy::default() }
}

fn offer(tenant: u16) -> Offer {
    Offer { tenant: TenantId(tenant), bytes: 1, ..Offer::default() }
}

/// Requests cost so much for each prompt token, and nothing else.
fn per_prompt_token(ns: u64) -> CostModel {
    let (zero, prefill_per_token) = (Span::ZERO, Span::from_nanos(ns));
    CostModel { overhead: zero, prefill_per_token, first_token_steps: 0, idle_tpot: zero }
}

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

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

#[test]
fn a_clock_that_leaps_centuries_does_not_break_the_release_rate() {
    let mut s = Scheduler::new(&Settings::fcfs(vec![1]));
    let mut held = Vec::new();
    for now in [0, u64::MAX, u64::MAX] {
        for _ in 0..4 {
            s.offer(at(now), offer(0)).unwrap();
        }
        held.extend(grants(&mut s, at(now)));
        s.release(at(now), held.remove(0), How::Finished, Used::default());
        held.extend(grants(&mut s, at(now)));
    }
    assert!(s.rejection(RequestId(0), TenantId(0), RejectReason::QueueFull).retry_after > Some(Span::from_secs(1)));
}

#[test]
fn a_body_whose_size_would_overflow_the_byte_count_is_refused() {
    let settings = Settings { tenants: vec![tenant(1, Some(1)), tenant(1, None)], ..Settings::fcfs(vec![2]) };
    let mut s = Scheduler::new(&settings);
    s.offer(at(0), offer(0)).unwrap();
    let _held = grants(&mut s, at(0));
    s.offer(at(0), offer(0)).unwrap();
    let huge = Offer { bytes: u64::MAX, ..offer(1) };
    assert_eq!(s.offer(at(0), huge).unwrap_err().reason, RejectReason::QueueFull);
    assert_eq!(s.queued_bytes(), 1);
}

#[test]
fn backends_beyond_the_last_number_get_no_work() {
    let mut permits = vec![0; MAX_BACKENDS + 1];
    permits[MAX_BACKENDS] = 1;
    let mut s = Scheduler::new(&Settings::fcfs(permits));
    assert_eq!(s.offer(at(0), offer(0)).unwrap_err().reason, RejectReason::NoBackend);
}

#[test]
fn a_tenant_that_may_hold_nothing_is_refused_and_takes_no_place() {
    let settings = Settings { tenants: vec![tenant(1, Some(0)), tenant(1, None)], ..Settings::fcfs(vec![1]) };
    let mut s = Scheduler::new(&settings);
    assert_eq!(s.offer(at(0), offer(0)).unwrap_err().reason, RejectReason::QueueFull);
    assert_eq!(s.queued(), 0);
}

#[test]
fn a_tenant_saves_no_credit_while_its_cap_holds_it_back() {
    // Tenant 0 is worth three of tenant 1 but held to one of four seats. When a single seat is left,
    // the shares are three to one from the first grant on, whatever was missed before.
    let settings = Settings {
        tenants: vec![tenant(3, Some(1)), tenant(1, None)],
        order: Order::Wfq,
        depth: 10_000,
        ..Settings::fcfs(vec![4])
    };
    let mut s = Scheduler::new(&settings);
    for _ in 0..400 {
        s.offer(at(0), offer(0)).unwrap();
        s.offer(at(0), offer(1)).unwrap();
    }
    let mut held = grants(&mut s, at(0));
    for _ in 0..400 {
        s.release(at(0), held.remove(0), How::Finished, Used::default());
        held.extend(grants(&mut s, at(0)));
    }
    s.set_backend(at(0), BackendId(0), 1, true);
    let mut next = Vec::new();
    while next.len() < 20 {
        s.release(at(0), held.remove(0), How::Finished, Used::default());
        let granted = grants(&mut s, at(0));
        next.extend(granted.iter().map(|t| t.tenant().0));
        held.extend(granted);
    }
    let second = next.iter().filter(|&&t| t == 1).count();
    assert!((4..=6).contains(&second), "{next:?}");
}

#[test]
fn even_the_greatest_weight_is_charged_for_the_smallest_cost() {
    let settings = Settings {
        tenants: vec![tenant(u32::MAX, None), tenant(u32::MAX, None)],
        order: Order::Wfq,
        cost: per_prompt_token(0),
        ..Settings::fcfs(vec![1])
    };
    let mut s = Scheduler::new(&settings);
    for t in [0, 0, 0, 1, 1, 1] {
        s.offer(at(0), offer(t)).unwrap();
    }
    let mut order = Vec::new();
    let mut held = grants(&mut s, at(0));
    while let Some(ticket) = held.pop() {
        order.push(ticket.tenant().0);
        s.release(at(0), ticket, How::Finished, Used::default());
        held.extend(grants(&mut s, at(0)));
    }
    assert_eq!(order, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn what_a_tenant_used_before_everything_was_idle_is_not_held_against_it() {
    let settings =
        Settings { tenants: vec![tenant(1, None), tenant(1, None)], order: Order::Wfq, ..Settings::fcfs(vec![1]) };
    let mut s = Scheduler::new(&settings);
    s.offer(at(0), Offer { output: Some(u32::MAX), ..offer(0) }).unwrap();
    let alone = grants(&mut s, at(0)).remove(0);
    s.release(at(1), alone, How::Finished, Used::default());
    assert!(grants(&mut s, at(1)).is_empty());
    let mut order = Vec::new();
    for t in [1, 0, 1, 0, 1] {
        s.offer(at(2), offer(t)).unwrap();
        if let Some(ticket) = grants(&mut s, at(2)).pop() {
            order.push(ticket);
        }
    }
    let mut tenants = Vec::new();
    while let Some(ticket) = order.pop() {
        tenants.push(ticket.tenant().0);
        s.release(at(3), ticket, How::Finished, Used::default());
        order.extend(grants(&mut s, at(3)));
    }
    assert_eq!(tenants, [1, 0, 1, 0, 1]);
}

#[test]
fn a_request_with_tighter_limits_than_its_tenants_goes_no_earlier_for_them() {
    let ms = Span::from_millis;
    let slo = |ttft| crate::slo::Slo { ttft: Some(ms(ttft)), ..crate::slo::Slo::default() };
    let cost =
        CostModel { overhead: ms(0), prefill_per_token: ms(0), first_token_steps: 1, idle_tpot: Span::from_nanos(1) };
    let predict = Predict { caution: Caution { pad: Span::ZERO, margin_permille: 0 } };
    let first = |tenants: Vec<TenantPolicy>| {
        let settings =
            Settings { tenants, order: Order::LeastSlack, cost, predict: Some(predict), ..Settings::fcfs(vec![1]) };
        let mut s = Scheduler::new(&settings);
        s.offer(at(0), offer(0)).unwrap();
        let held = grants(&mut s, at(0)).remove(0);
        s.offer(at(1), Offer { slo: slo(2_000), ..offer(0) }).unwrap();
        let pushy = s.offer(at(2), Offer { slo: slo(1_000), ..offer(1) }).unwrap();
        s.release(at(3), held, How::Finished, Used::default());
        let next = grants(&mut s, at(3)).remove(0);
        let was_pushy = next.id() == pushy;
        s.release(at(4), next, How::Finished, Used::default());
        was_pushy
    };
    let of = |ttft| TenantPolicy { slo: Some(slo(ttft)), ..TenantPolicy::default() };
    assert!(first(vec![TenantPolicy::default(); 2]), "without limits of the tenants' the tighter one goes first");
    assert!(!first(vec![of(2_000), of(3_000)]));
    assert!(first(vec![of(2_000), of(1_500)]), "its tenant may go before the other");
}

#[test]
fn a_tenant_that_understates_its_answers_gains_at_most_one_of_them() {
    for settled in [true, false] {
        let tenants = vec![tenant(1, None), tenant(1, None)];
        let settings = Settings { tenants, order: Order::Wfq, depth: 1_000, ..Settings::fcfs(vec![1]) };
        let mut s = Scheduler::new(&settings);
        for _ in 0..200 {
            s.offer(at(0), Offer { output: Some(1), ..offer(0) }).unwrap();
            s.offer(at(0), Offer { output: Some(500), ..offer(1) }).unwrap();
        }
        let mut held = grants(&mut s, at(0));
        let (mut lead, mut greatest) = (0, 0);
        for _ in 0..200 {
            let ticket = held.pop().unwrap();
            lead += if ticket.tenant().0 == 0 { 1 } else { -1 };
            greatest = greatest.max(lead);
            let used = Used { output: Some(500).filter(|_| settled), ..Used::default() };
            s.release(at(0), ticket, How::Finished, used);
            held = grants(&mut s, at(0));
        }
        assert_eq!(greatest <= 1, settled, "{greatest} answers ahead, settled: {settled}");
    }
}

#[test]
fn work_whose_deadline_is_lost_is_told_to_be_cut_once_and_holds_its_permit_until_it_is() {
    let ms = |ms: u64| at(ms * 1_000_000);
    let slo = crate::slo::Slo { ttft: Some(Span::from_millis(100)), tpot: None, e2e: Some(Span::from_millis(300)) };
    let abort = TenantPolicy { on_miss: OnMiss::Abort, ..TenantPolicy::default() };
    let tenants = vec![abort, TenantPolicy::default()];
    let mut s = Scheduler::new(&Settings { tenants, ..Settings::fcfs(vec![3]) });
    let [silent, seen] = [0, 0].map(|t| s.offer(ms(0), Offer { slo, ..offer(t) }).unwrap());
    let patient = s.offer(ms(0), Offer { slo, ..offer(1) }).unwrap();
    let mut held = grants(&mut s, ms(0));
    assert_eq!(held.iter().map(Ticket::id).collect::<Vec<_>>(), [silent, seen, patient]);
    s.observe(ms(90), seen, Observation { tokens: 1, gap: None });
    // An answer on the limit is in time.
    assert!(s.poll(ms(100)).is_none());
    assert_eq!(s.next_timer(), Some(at(100_000_001)));
    assert!(matches!(s.poll(at(100_000_001)), Some(Action::Abort(id)) if id == silent));
    assert!(s.poll(ms(110)).is_none() && s.in_use() == 3);
    assert_eq!(s.next_timer(), Some(at(300_000_001)));
    s.release(ms(110), held.remove(0), How::Aborted, Used::default());
    assert_eq!((s.in_use(), s.totals().released[&How::Aborted]), (2, 1));
    assert!(matches!(s.poll(ms(301)), Some(Action::Abort(id)) if id == seen));
    assert!(s.poll(ms(1_000)).is_none() && s.next_timer().is_none());
    s.audit().unwrap();
}

#[test]
fn a_request_may_ask_for_a_later_class_than_its_tenants_and_for_no_earlier_one() {
    let class = |class| TenantPolicy { class, ..TenantPolicy::default() };
    let settings = Settings { order: Order::Priority, tenants: vec![class(0), class(1)], ..Settings::fcfs(vec![1]) };
    let mut s = Scheduler::new(&settings);
    s.offer(at(0), offer(0)).unwrap();
    let mut held = grants(&mut s, at(0));
    let asks = |tenant, class| Offer { class: Some(class), ..offer(tenant) };
    let ids: Vec<RequestId> = [asks(0, 2), asks(1, 0), asks(0, 0), asks(1, 1), offer(0)]
        .into_iter()
        .map(|offer| s.offer(at(1), offer).unwrap())
        .collect();
    let mut order = Vec::new();
    for _ in &ids {
        s.release(at(2), held.remove(0), How::Finished, Used::default());
        held = grants(&mut s, at(2));
        order.push(held[0].id());
    }
    assert_eq!(order, [ids[2], ids[4], ids[1], ids[3], ids[0]]);
}

/// Steps of 10 ms and nothing else, on so many seats.
fn predicting(order: Order, seats: u32, tenants: Vec<TenantPolicy>) -> Settings {
    let (zero, step) = (Span::ZERO, Span::from_millis(10));
    let cost = CostModel { overhead: zero, prefill_per_token: zero, first_token_steps: 1, idle_tpot: step };
    let predict = Some(Predict { caution: Caution { pad: zero, margin_permille: 0 } });
    Settings { order, tenants, cost, predict, depth: 100_000, ..Settings::fcfs(vec![seats]) }
}

fn within(e2e_ms: u64) -> crate::slo::Slo {
    crate::slo::Slo { e2e: Some(Span::from_millis(e2e_ms)), ..crate::slo::Slo::default() }
}

#[test]
fn a_tenant_that_fair_queueing_lets_go_first_is_not_told_to_be_late_for_what_came_before() {
    for (order, starts) in [(Order::Wfq, 1_000), (Order::Fcfs, 6_000)] {
        let mut s = Scheduler::new(&predicting(order, 1, vec![tenant(1, None), tenant(1, None)]));
        for _ in 0..6 {
            s.offer(at(0), Offer { output: Some(100), ..offer(0) }).unwrap();
        }
        let _held = grants(&mut s, at(0));
        // One runs for a second and five wait, all of tenant 0.
        let other = Offer { output: Some(100), slo: within(3_000), ..offer(1) };
        let predicted = s.predict(at(0), &other).unwrap();
        assert_eq!(predicted.start, at(starts * 1_000_000), "{order:?}");
        assert_eq!(s.offer(at(0), other).is_ok(), order == Order::Wfq);
        let again = s.predict(at(0), &Offer { output: Some(100), ..offer(0) }).unwrap();
        let after_all = if order == Order::Wfq { 7_000 } else { 6_000 };
        assert_eq!(again.start, at(after_all * 1_000_000), "{order:?}");
    }
}

/// Every order, with waits that end.
fn bounded(order: Order, tenants: usize) -> Settings {
    Settings { budget: Some(Span::from_secs(60)), ..predicting(order, 1, vec![tenant(1, None); tenants]) }
}

/// Offers what is given while the only seat is taken, and tells the order in which it goes then.
fn turns(settings: &Settings, offers: &[Offer]) -> Vec<usize> {
    let mut s = Scheduler::new(settings);
    s.offer(at(0), offer(0)).unwrap();
    let mut held = grants(&mut s, at(0));
    let ids: Vec<RequestId> = (1..).zip(offers).map(|(now, offer)| s.offer(at(now), *offer).unwrap()).collect();
    let turn = |_| {
        s.release(at(100), held.remove(0), How::Finished, Used::default());
        held = grants(&mut s, at(100));
        ids.iter().position(|id| *id == held[0].id()).unwrap()
    };
    (0..offers.len()).map(turn).collect()
}

const ORDERS: [Order; 6] =
    [Order::Fcfs, Order::Wfq, Order::Priority, Order::LeastSlack, Order::ShortestFirst, Order::Value];

#[test]
fn who_asks_again_goes_behind_those_of_its_tenant_who_ask_for_the_first_time() {
    let again = Offer { again: true, slo: within(30_000), ..offer(0) };
    let first = Offer { slo: within(40_000), output: Some(10), ..offer(0) };
    for order in ORDERS {
        // By length and by slack it would be the next.
        assert_eq!(turns(&bounded(order, 1), &[again, first, again, first]), [1, 3, 0, 2], "{order:?}");
    }
    // Also behind what has no limit at all.
    assert_eq!(turns(&bounded(Order::LeastSlack, 1), &[again, offer(0)]), [1, 0]);
    // Among tenants it has the turn of its own.
    let of_other = Offer { tenant: TenantId(1), ..again };
    for order in [Order::Fcfs, Order::Wfq, Order::LeastSlack, Order::ShortestFirst] {
        assert_eq!(turns(&bounded(order, 2), &[of_other, first])[0], 0, "{order:?}");
    }
}

#[test]
fn where_nothing_ends_the_wait_who_asks_again_has_its_turn() {
    let none = Settings { predict: None, ..predicting(Order::Fcfs, 1, vec![tenant(1, None)]) };
    // The patience of its client is no bound on the wait of others.
    let again = Offer { again: true, slo: within(30_000), budget: Some(Span::from_secs(600)), ..offer(0) };
    assert_eq!(turns(&none, &[again, offer(0)]), [0, 1]);
    let without_limits = Offer { again: true, ..offer(0) };
    assert_eq!(turns(&Settings { budget: None, ..bounded(Order::Fcfs, 1) }, &[without_limits, offer(0)]), [0, 1]);
    assert_eq!(turns(&Settings { budget: None, ..bounded(Order::Fcfs, 1) }, &[again, offer(0)]), [1, 0]);
}

#[test]
fn what_is_asked_again_delays_no_prediction_but_that_of_what_is_asked_again() {
    for order in ORDERS {
        let mut s = Scheduler::new(&predicting(order, 1, vec![tenant(1, None)]));
        let lasting = |again| Offer { again, output: Some(100), slo: within(60_000), ..offer(0) };
        s.offer(at(0), lasting(false)).unwrap();
        let _held = grants(&mut s, at(0));
        // One runs for a second, and three wait of which two ask again.
        for again in [true, false, true] {
            s.offer(at(0), lasting(again)).unwrap();
        }
        let start = |again| s.predict(at(0), &lasting(again)).unwrap().start;
        let seconds = |n: u64| at(n * 1_000_000_000);
        assert_eq!((start(false), start(true)), (seconds(2), seconds(4)), "{order:?}");
    }
}

#[test]
fn a_prediction_says_what_it_goes_by_and_how_likely_it_holds() {
    let mut s = Scheduler::new(&predicting(Order::Value, 4, vec![tenant(1, None)]));
    for length in 1..=400 {
        s.offer(at(0), Offer { output: None, ..offer(0) }).unwrap();
        let ticket = grants(&mut s, at(0)).remove(0);
        s.release(at(0), ticket, How::Finished, Used { output: Some(length), ..Used::default() });
    }
    let said = |s: &Scheduler, output, hint, e2e| {
        let p = s.predict(at(0), &Offer { output, hint, slo: within(e2e), ..offer(0) }).unwrap();
        (p.basis, p.chance_permille)
    };
    // Lengths are 1 to 400, all as often: 100 of them take a second or less.
    let (basis, chance) = said(&s, None, None, 1_000);
    assert!(basis == Basis::Learned && (235..265).contains(&chance), "{chance}");
    assert_eq!(said(&s, Some(100), None, 1_000), (Basis::Declared, 1_000));
    assert_eq!(said(&s, Some(101), Some(64), 1_000), (Basis::Declared, 0));
    assert_eq!(said(&s, None, Some(64), 1_000).0, Basis::Hinted);
    let summary = s.lengths(TenantId(0)).unwrap();
    assert_eq!((summary.finished, summary.cut), (400, 0));
    assert!(summary.p50.abs_diff(200) < 12 && summary.p90.abs_diff(360) < 20, "{summary:?}");
}

#[test]
fn by_value_goes_first_what_loses_most_by_waiting_and_takes_least() {
    let first = |offers: [Offer; 2], weights: [u32; 2]| {
        let mut s = Scheduler::new(&predicting(Order::Value, 2, weights.map(|w| tenant(w, None)).into()));
        for _ in 0..2 {
            s.offer(at(0), Offer { output: Some(10), ..offer(0) }).unwrap();
        }
        let held = grants(&mut s, at(0)).remove(0);
        let [a, _] = offers.map(|offer| s.offer(at(0), offer).unwrap());
        s.release(at(1), held, How::Finished, Used::default());
        grants(&mut s, at(1)).remove(0).id() == a
    };
    let declares = |output, e2e, tenant| Offer { output: Some(output), slo: within(e2e), ..offer(tenant) };
    // Twenty steps are 200 ms: of these two only the first one would be lost, though it takes longer.
    assert!(first([declares(100, 1_150, 0), declares(10, 3_000, 1)], [1, 1]));
    // Both would be lost, and the shorter one takes less.
    assert!(!first([declares(100, 1_150, 0), declares(50, 650, 1)], [1, 1]));
    assert!(first([declares(100, 1_150, 0), declares(50, 650, 1)], [3, 1]), "weights count");
}

#[test]
fn what_waits_is_judged_anew_in_parts_until_all_of_it_goes_by_the_new_pace() {
    let mut s = Scheduler::new(&predicting(Order::LeastSlack, 1, vec![tenant(1, None)]));
    let running = s.offer(at(0), Offer { output: Some(1_000), ..offer(0) }).unwrap();
    let _held = grants(&mut s, at(0));
    for n in 0..1_000 {
        s.offer(at(0), Offer { output: Some(10), slo: within(20_000_000 + n), ..offer(0) }).unwrap();
    }
    let late = |s: &Scheduler| s.next_timer().unwrap();
    // The one with the tightest limit comes first: at 10 ms a token it may start 100 ms before the limit.
    assert_eq!(late(&s), at((20_000_000 - 100) * 1_000_000));
    let mut inputs = 0;
    let slow = Some(Span::from_secs(1));
    s.observe(at(0), running, Observation { tokens: 1, gap: slow });
    let pace = s.live_tpot().unwrap();
    assert!(pace > Span::from_millis(20));
    s.audit().unwrap();
    while s.queue.judged_by(pace, &s.cost) < 1_000 {
        inputs += 1;
        assert!(inputs < 1_000 / 32 + 2, "{} are judged", s.queue.judged_by(pace, &s.cost));
        s.observe(at(0), running, Observation { tokens: 1, gap: Some(pace) });
        s.audit().unwrap();
    }
    assert!(inputs > 10, "{inputs}");
}
