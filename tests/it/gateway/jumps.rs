//! Gates and limits under a clock that jumps (R25).

use std::num::NonZeroU64;

use elasticserve_core::gate::{Gate, GateRules, Verdict};
use elasticserve_core::limit::{Limited, Limits, Quota};
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::time::{Span, Tick};

const TRIALS: u64 = 1_000;

/// A clock that mostly goes on and sometimes jumps, in either direction, to either end of time too.
fn jumping(random: &mut Random, now: Tick) -> Tick {
    let by = Span::from_nanos(random.between(0, 100_000_000_000));
    match random.between(0, 11) {
        0 => now.before(by),
        1 => now + by * 1_000,
        2 => Tick::from_nanos(random.next_u64()),
        3 => [Tick::ZERO, Tick::MAX][random.between(0, 1) as usize],
        _ => now + Span::from_nanos(random.between(0, 5_000_000_000)),
    }
}

#[test]
fn a_clock_that_jumps_takes_no_gate_beyond_its_permits_and_no_bucket_beyond_its_limit() {
    let mut changes = 0;
    for seed in 0..TRIALS {
        let mut random = Random::new(seed, Stream::Test);
        changes += gate_under_jumps(&mut random);
        quota_under_jumps(&mut random);
    }
    assert!(changes > 5_000, "{changes}");
}

#[test]
fn a_clock_that_goes_back_again_and_again_fills_no_bucket_twice() {
    const PER_MINUTE: u64 = 10;
    /// The clock shows no more than this.
    const MINUTES: u64 = 5;
    let mut all = 0;
    for seed in 0..TRIALS {
        let mut random = Random::new(seed, Stream::Test);
        let limits = Limits { requests: NonZeroU64::new(PER_MINUTE), tokens: None };
        let (mut quota, mut given) = (Quota::new(limits, Tick::ZERO), 0);
        for _ in 0..400 {
            let now = Tick::ZERO + Span::from_nanos(random.between(0, MINUTES * 60_000_000_000));
            given += u64::from(quota.reserve(now, 1).is_ok());
        }
        assert!(given <= PER_MINUTE * (1 + MINUTES), "seed {seed}: {given}");
        all += given;
    }
    assert!(all > TRIALS * PER_MINUTE, "no time was made good: {all}");
}

/// How often its standing was another one than before.
fn gate_under_jumps(random: &mut Random) -> u32 {
    let rules = GateRules { probes: 1, failures: random.between(1, 3) as u32, ..GateRules::default() };
    let permits = random.between(1, 40) as u32;
    let mut gate = Gate::new(rules, permits);
    let (mut now, mut passes, mut changes) = (Tick::ZERO, Vec::new(), 0);
    let mut before = gate.standing(now);
    for _ in 0..80 {
        now = jumping(random, now);
        let alone = random.between(0, 1) == 0;
        match random.between(0, 5) {
            0 => gate.probed(now, random.between(0, 3) > 0, alone),
            1 => gate.shared_with(now, random.between(0, 60) as u32, Span::from_nanos(random.next_u64() >> 24)),
            2 | 3 => passes.push(gate.enter()),
            _ if !passes.is_empty() => {
                let pass = passes.swap_remove(random.between(0, passes.len() as u64 - 1) as usize);
                let verdict = [Verdict::Works, Verdict::Fails, Verdict::Neutral][random.between(0, 2) as usize];
                gate.judge(now, &pass, verdict, alone);
                gate.left(pass);
            }
            _ => {}
        }
        let standing = gate.standing(now);
        assert!((1..=permits).contains(&standing.permits), "{standing:?} of {permits} at {now:?}");
        assert!(gate.next_change(now).is_none_or(|at| at > now), "{:?} at {now:?}", gate.next_change(now));
        changes += u32::from(standing != before);
        before = standing;
    }
    changes
}

fn quota_under_jumps(random: &mut Random) {
    let limit = |random: &mut Random| NonZeroU64::new(random.next_u64() >> random.between(1, 63));
    let limits = Limits { requests: limit(random), tokens: limit(random) };
    let mut quota = Quota::new(limits, Tick::ZERO);
    let (mut now, mut held) = (Tick::ZERO, Vec::new());
    for _ in 0..80 {
        now = jumping(random, now);
        let tokens = random.next_u64() >> random.between(0, 63);
        match random.between(0, 3) {
            0 | 1 => match quota.reserve(now, tokens) {
                Ok(reserved) => held.push(reserved),
                Err(exceeded) => assert!(exceeded.wait > Span::ZERO, "{exceeded:?}"),
            },
            2 if !held.is_empty() => quota.settle(now, held.remove(0), tokens),
            3 if !held.is_empty() => quota.cancel(now, held.remove(0)),
            _ => {}
        }
        for (of, limit) in [(Limited::Requests, limits.requests), (Limited::Tokens, limits.tokens)] {
            let level = quota.level(now, of);
            assert_eq!(level.map(|l| l.limit), limit.map(NonZeroU64::get));
            assert!(level.is_none_or(|l| l.remaining <= l.limit), "{level:?}");
        }
    }
}
