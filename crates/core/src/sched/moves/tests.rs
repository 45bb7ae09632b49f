use super::*;
use crate::ids::{BackendId, TenantId};
use crate::sched::{Caution, CostModel, Observation, Offer, Predict, Settings};
use crate::slo::Slo;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn offer(tenant: u16) -> Offer {
    Offer { tenant: TenantId(tenant), bytes: 1, ..Offer::default() }
}

/// Requests cost so much for each prompt token, and nothing else.
fn per_prompt_token(ns: u64) -> CostModel {
    let (zero, prefill_per_token) = (Span::ZERO, Span::from_nanos(ns));
    CostModel { overhead: zero, prefill_per_token, first_token_steps: 0, idle_tpot: zero }
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

/// Two requests of 10 ns run on two backends of two seats; each has a key.
fn two_backends(slack: u64) -> (Scheduler, Vec<Ticket>) {
    let settings =
        Settings { cost: per_prompt_token(1), affinity_slack: Span::from_nanos(slack), ..Settings::fcfs(vec![2, 2]) };
    let mut s = Scheduler::new(&settings);
    for _ in 0..2 {
        s.offer(at(0), Offer { input: 10, ..offer(0) }).unwrap();
    }
    let held = grants(&mut s, at(0));
    assert_eq!(held.iter().map(|t| t.backend().0).collect::<Vec<_>>(), [0, 1]);
    (s, held)
}

#[test]
fn what_fails_over_goes_before_all_that_waits_to_another_backend_and_is_charged_once() {
    let (mut s, mut held) = two_backends(0);
    for _ in 0..4 {
        s.offer(at(1), Offer { input: 10, ..offer(0) }).unwrap();
    }
    held.extend(grants(&mut s, at(1)));
    let failed = held.remove(0);
    let id = failed.id();
    assert!(s.fail_over(at(2), failed).is_ok());
    // The seat that it left is taken by what waits; its own turn is the next seat of the other backend.
    let next = grants(&mut s, at(2));
    assert_eq!(next.iter().map(|t| (t.backend().0, t.has_moved())).collect::<Vec<_>>(), [(0, false)]);
    let other = held.iter().position(|t| t.backend().0 == 1).unwrap();
    s.release(at(3), held.remove(other), How::Finished, Used::default());
    let moved = grants(&mut s, at(3)).remove(0);
    assert_eq!((moved.id(), moved.backend().0, moved.has_moved(), moved.waited()), (id, 1, true, Span::from_nanos(3)));
    s.release(at(9), moved, How::Finished, Used::default());
    let t = s.totals();
    assert_eq!((t.granted, t.moved, t.released[&How::Finished]), (5, 1, 2));
}

#[test]
fn what_fails_over_is_stranded_when_no_other_backend_is_left_and_can_be_withdrawn() {
    for withdrawn in [false, true] {
        let (mut s, mut held) = two_backends(0);
        for _ in 0..2 {
            s.offer(at(1), offer(0)).unwrap();
        }
        held.extend(grants(&mut s, at(1)));
        let failed = held.remove(0);
        let id = failed.id();
        s.fail_over(at(2), failed).unwrap();
        assert!(s.poll(at(2)).is_none());
        if withdrawn {
            assert!(s.cancel(at(3), id) && !s.cancel(at(3), id));
        } else {
            s.set_backend(at(3), BackendId(1), 2, false);
            assert!(matches!(s.poll(at(3)), Some(Action::Strand(stranded)) if stranded == id));
        }
        let how = if withdrawn { How::ClientGone } else { How::BackendFailed };
        assert_eq!(s.totals().released[&how], 1);
        s.audit().unwrap();
    }
    let mut alone = Scheduler::new(&Settings::fcfs(vec![1, 0]));
    alone.offer(at(0), offer(0)).unwrap();
    let ticket = grants(&mut alone, at(0)).remove(0);
    let back = alone.fail_over(at(1), ticket).unwrap_err();
    alone.release(at(1), back, How::BackendFailed, Used::default());
    alone.audit().unwrap();
}

#[test]
fn tokens_that_were_seen_are_no_work_that_is_left() {
    let cost = CostModel { idle_tpot: Span::from_nanos(10), ..per_prompt_token(1) };
    let mut s = Scheduler::new(&Settings { cost, ..Settings::fcfs(vec![4, 4]) });
    for output in [5, 4] {
        s.offer(at(0), Offer { input: 20, output: Some(output), ..offer(0) }).unwrap();
    }
    let held = grants(&mut s, at(0));
    assert_eq!([0, 1].map(|b| s.work_on(BackendId(b)).as_nanos()), [20 + 40, 20 + 30]);
    s.observe(at(1), held[0].id(), Observation { tokens: 3, gap: None });
    assert_eq!(s.work_on(BackendId(0)).as_nanos(), 2 * 10);
    s.offer(at(1), offer(0)).unwrap();
    assert_eq!(grants(&mut s, at(1))[0].backend(), BackendId(0), "less is left there now");
    s.observe(at(2), held[0].id(), Observation { tokens: 90, gap: None });
    assert_eq!(s.work_on(BackendId(0)).as_nanos(), 10 + 1, "what gives more than expected is at its last token");
}

#[test]
fn affinity_gives_way_to_a_limit_that_leaves_no_room_for_its_slack() {
    let of_key = |slo: Option<u64>| {
        let settings = Settings {
            cost: per_prompt_token(1),
            predict: Some(Predict { caution: Caution { pad: Span::ZERO, margin_permille: 0 } }),
            affinity_slack: Span::from_nanos(100),
            ..Settings::fcfs(vec![4, 4])
        };
        (0..64).filter(move |key| {
            let mut s = Scheduler::new(&settings);
            // Something runs on the first.
            s.offer(at(0), Offer { input: 10, ..offer(0) }).unwrap();
            let _held = grants(&mut s, at(0));
            let slo = Slo { e2e: slo.map(Span::from_nanos), ..Slo::default() };
            s.offer(at(0), Offer { input: 10, affinity: Some(*key), slo, ..offer(0) }).unwrap();
            grants(&mut s, at(0))[0].backend() == BackendId(0)
        })
    };
    // About half of the keys belong to the busier one.
    assert!((20..44).contains(&of_key(None).count()));
    assert!((20..44).contains(&of_key(Some(110)).count()), "a limit with room for it");
    assert_eq!(of_key(Some(109)).count(), 0);
}
