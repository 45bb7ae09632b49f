use super::*;
use crate::rng::{Random, Stream};

const RULES: GateRules =
    GateRules { probes: 2, failures: 3, open: Span::from_secs(5), slow_start: Span::from_secs(10) };

fn s(n: u64) -> Tick {
    Tick::ZERO + Span::from_secs(n)
}

fn judged(gate: &mut Gate, now: Tick, verdict: Verdict) {
    let pass = gate.enter();
    gate.judge(now, &pass, verdict, false);
    gate.left(pass);
}

fn opened() -> Gate {
    let mut gate = Gate::new(RULES, 20);
    for _ in 0..3 {
        judged(&mut gate, s(0), Verdict::Fails);
    }
    assert_eq!(gate.breaker(s(0)), Breaker::Open);
    gate
}

#[test]
fn failures_in_a_row_open_the_breaker_and_what_says_nothing_neither_counts_nor_forgives() {
    let mut gate = Gate::new(RULES, 20);
    for verdict in [Verdict::Fails, Verdict::Fails, Verdict::Works, Verdict::Fails, Verdict::Neutral, Verdict::Fails] {
        judged(&mut gate, s(0), verdict);
        assert_eq!(gate.breaker(s(0)), Breaker::Closed);
    }
    judged(&mut gate, s(0), Verdict::Neutral);
    judged(&mut gate, s(0), Verdict::Fails);
    assert_eq!(gate.breaker(s(0)), Breaker::Open);
    assert!(!gate.standing(s(4)).up && gate.next_change(s(1)) == Some(s(5)));
}

#[test]
fn one_probe_at_a_time_decides_and_each_that_fails_doubles_the_wait_up_to_the_longest() {
    let mut gate = opened();
    let mut now = s(5);
    for wait in [10, 20, 40, 60, 60] {
        assert_eq!(gate.standing(now), Standing { up: true, permits: 1 });
        judged(&mut gate, now, Verdict::Fails);
        assert_eq!(gate.next_change(now), Some(now + Span::from_secs(wait)));
        now = now + Span::from_secs(wait);
    }
    judged(&mut gate, now, Verdict::Neutral);
    assert_eq!(gate.breaker(now), Breaker::HalfOpen, "a 429 says nothing, and the next one probes");
    judged(&mut gate, now, Verdict::Works);
    assert_eq!(gate.breaker(now), Breaker::Closed);
}

#[test]
fn what_ran_before_the_breaker_opened_neither_closes_it_nor_keeps_the_probe_out() {
    let mut gate = Gate::new(RULES, 20);
    let old: Vec<Pass> = (0..4).map(|_| gate.enter()).collect();
    for _ in 0..3 {
        judged(&mut gate, s(0), Verdict::Fails);
    }
    gate.judge(s(1), &old[0], Verdict::Works, false);
    assert_eq!(gate.breaker(s(1)), Breaker::Open);
    assert_eq!(gate.standing(s(6)), Standing { up: true, permits: 5 }, "four of before, and the probe");
    gate.judge(s(6), &old[1], Verdict::Fails, false);
    gate.judge(s(6), &old[2], Verdict::Works, false);
    assert_eq!(gate.breaker(s(6)), Breaker::HalfOpen);
    let probe = gate.enter();
    old.into_iter().for_each(|pass| gate.left(pass));
    assert_eq!(gate.standing(s(6)).permits, 1, "the probe holds the one");
    gate.judge(s(7), &probe, Verdict::Works, false);
    gate.left(probe);
    assert_eq!(gate.breaker(s(7)), Breaker::Closed);
}

#[test]
fn a_backend_that_comes_back_gets_its_permits_by_and_by_and_all_at_once_if_it_is_alone() {
    let mut gate = Gate::new(RULES, 20);
    gate.probed(s(0), true, false);
    assert_eq!(gate.standing(s(0)).permits, 20, "at the start there is nothing to spare");
    gate.probed(s(1), false, false);
    assert!(gate.standing(s(1)).up, "one failed probe may be chance");
    gate.probed(s(2), false, false);
    assert!(!gate.standing(s(2)).up);
    gate.probed(s(10), true, false);
    let permits = |at| gate.standing(s(at)).permits;
    assert_eq!([10, 11, 12, 15, 19, 20, 30].map(permits), [2, 2, 4, 10, 18, 20, 20]);
    // Every step is announced.
    let (mut at, mut seen) = (s(10), vec![2]);
    while let Some(next) = gate.next_change(at) {
        at = next;
        seen.push(gate.standing(at).permits);
    }
    assert_eq!((seen, at), ((2..=20).collect(), s(20)));

    gate.probed(s(40), false, true);
    gate.probed(s(40), false, true);
    gate.probed(s(41), true, true);
    assert_eq!(gate.standing(s(41)), Standing { up: true, permits: 20 });
}

#[test]
fn the_work_of_others_takes_permits_while_that_is_fresh_and_never_the_last_one() {
    let mut gate = Gate::new(RULES, 20);
    gate.shared_with(s(0), 15, Span::from_secs(5));
    assert_eq!((gate.standing(s(4)).permits, gate.next_change(s(0))), (5, Some(s(5))));
    assert_eq!((gate.standing(s(5)).permits, gate.foreign(s(5))), (20, 0), "stale");
    gate.shared_with(s(6), 500, Span::from_secs(5));
    assert_eq!(gate.standing(s(6)), Standing { up: true, permits: 1 });
}

#[test]
fn random_inputs_never_lock_a_gate_or_let_more_than_the_permits_in() {
    let mut seen = std::collections::BTreeMap::new();
    for seed in 0..2_000 {
        let mut random = Random::new(seed, Stream::Test);
        let permits = random.between(1, 30) as u32;
        let mut gate = Gate::new(RULES, permits);
        let mut out: Vec<Pass> = Vec::new();
        let mut now = Tick::ZERO;
        for _ in 0..200 {
            now = now + Span::from_millis(random.between(0, 3_000));
            let standing = gate.standing(now);
            let verdict =
                [Verdict::Works, Verdict::Fails, Verdict::Fails, Verdict::Neutral][random.between(0, 3) as usize];
            match random.between(0, 5) {
                0 | 1 if standing.up && out.len() < standing.permits as usize => out.push(gate.enter()),
                2 | 3 if !out.is_empty() => {
                    let pass = out.swap_remove(random.next_u64() as usize % out.len());
                    gate.judge(now, &pass, verdict, random.between(0, 1) == 0);
                    gate.left(pass);
                }
                4 => gate.probed(now, random.between(0, 2) > 0, false),
                _ => gate.shared_with(now, random.between(0, 40) as u32, Span::from_secs(2)),
            }
            assert_eq!(gate.current + gate.earlier, out.len() as u32, "seed {seed}");
            let standing = gate.standing(now);
            assert!((1..=permits).contains(&standing.permits), "seed {seed}: {standing:?} of {permits}");
            *seen.entry(gate.breaker(now).name()).or_insert(0) += 1;
            // Between two announced changes nothing changes.
            let before = gate.next_change(now).map_or(Span::from_secs(3_600), |at| at.since(now));
            let later = now + Span::from_nanos(random.between(0, before.as_nanos().saturating_sub(1)));
            assert_eq!(gate.standing(later), standing, "seed {seed}");
        }
        // Whatever happened: good probes and one good answer open it again for all.
        out.drain(..).for_each(|pass| gate.left(pass));
        gate.probed(now, true, false);
        now = now + MAX_OPEN;
        assert!(gate.standing(now).up, "seed {seed}");
        judged(&mut gate, now, Verdict::Works);
        assert_eq!(gate.standing(now + RULES.slow_start), Standing { up: true, permits }, "seed {seed}");
    }
    assert!(seen.len() == 3 && seen.values().all(|n| *n > 5_000), "{seen:?}");
}
