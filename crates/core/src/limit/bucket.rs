//! One token bucket.

use std::num::NonZeroU64;

use crate::time::{Span, Tick};

/// The time in which a bucket fills.
const PERIOD: Span = Span::from_secs(60);

/// A bucket that holds a minute's worth, full at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    limit: NonZeroU64,
    /// What has been taken and not yet been made good, in parts: unit · nanosecond of the period. It is above
    /// `full()` while more has been used than was to be had.
    debt: u128,
    /// When the debt was as it is.
    at: Tick,
}

/// What is left in a bucket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Units of a minute.
    pub limit: u64,
    /// Whole units that can be had now.
    pub remaining: u64,
    /// The time until the bucket is full, if nothing more is taken.
    pub reset: Span,
}

impl Bucket {
    /// A full bucket of `limit` units a minute.
    #[must_use]
    pub const fn new(limit: NonZeroU64, now: Tick) -> Self {
        Self { limit, debt: 0, at: now }
    }

    /// What a request for `units` takes: a whole bucket at most, so that every request can be served once.
    #[must_use]
    pub fn share(&self, units: u64) -> u64 {
        units.min(self.limit.get())
    }

    /// The time until `share(units)` can be taken, if nothing else is.
    #[must_use]
    pub fn wait(&self, now: Tick, units: u64) -> Span {
        let wanted = self.debt_at(now).saturating_add(parts(self.share(units)));
        self.paid_in(wanted.saturating_sub(self.full()))
    }

    /// Takes `units`, whether they are there or not.
    pub fn take(&mut self, now: Tick, units: u64) {
        self.advance(now);
        self.debt = self.debt.saturating_add(parts(units));
    }

    /// Gives `units` back. What time has made good meanwhile is not given twice.
    pub fn give_back(&mut self, now: Tick, units: u64) {
        self.advance(now);
        self.debt = self.debt.saturating_sub(parts(units));
    }

    /// Another limit from now on. What was taken stays taken.
    pub fn set_limit(&mut self, now: Tick, limit: NonZeroU64) {
        self.advance(now);
        self.limit = limit;
    }

    /// What is left.
    #[must_use]
    pub fn level(&self, now: Tick) -> Level {
        let debt = self.debt_at(now);
        let left = self.full().saturating_sub(debt) / parts(1);
        Level { limit: self.limit.get(), remaining: u64::try_from(left).unwrap_or(u64::MAX), reset: self.paid_in(debt) }
    }

    fn full(&self) -> u128 {
        parts(self.limit.get())
    }

    /// The time that pays off so many parts.
    fn paid_in(&self, parts: u128) -> Span {
        Span::from_nanos(u64::try_from(parts.div_ceil(u128::from(self.limit.get()))).unwrap_or(u64::MAX))
    }

    fn debt_at(&self, now: Tick) -> u128 {
        let paid = u128::from(now.since(self.at).as_nanos()) * u128::from(self.limit.get());
        self.debt.saturating_sub(paid)
    }

    fn advance(&mut self, now: Tick) {
        self.debt = self.debt_at(now);
        self.at = self.at.max(now);
    }
}

fn parts(units: u64) -> u128 {
    u128::from(units) * u128::from(PERIOD.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Random, Stream};

    fn bucket(limit: u64) -> Bucket {
        Bucket::new(NonZeroU64::new(limit).unwrap(), Tick::ZERO)
    }

    fn at(ns: u64) -> Tick {
        Tick::from_nanos(ns)
    }

    #[test]
    fn a_bucket_gives_a_minutes_worth_at_once_and_then_one_unit_each_time_it_is_due() {
        let mut b = bucket(60);
        for _ in 0..60 {
            assert_eq!(b.wait(Tick::ZERO, 1), Span::ZERO);
            b.take(Tick::ZERO, 1);
        }
        assert_eq!(b.wait(Tick::ZERO, 1), Span::from_secs(1));
        assert_eq!(b.wait(at(999_999_999), 1), Span::from_nanos(1));
        assert_eq!(b.wait(at(1_000_000_000), 1), Span::ZERO);
        assert_eq!(b.level(at(500_000_000)), Level { limit: 60, remaining: 0, reset: Span::from_millis(59_500) });
    }

    #[test]
    fn a_rate_that_does_not_divide_the_minute_is_not_rounded() {
        // Seven a minute for a day, each taken when it is due: exactly 7 · 1440 beyond the first minute's worth.
        let mut b = bucket(7);
        b.take(Tick::ZERO, 7);
        let (day, mut now, mut taken) = (Span::from_secs(86_400).as_nanos(), 0, 0_u64);
        while now <= day {
            now += b.wait(at(now), 1).as_nanos();
            if now > day {
                break;
            }
            b.take(at(now), 1);
            taken += 1;
        }
        // One nanosecond of rounding up for each seventh of a minute could cost one unit at the very end.
        assert!((7 * 1440 - 1..=7 * 1440).contains(&taken), "{taken}");
    }

    #[test]
    fn what_asks_for_more_than_a_minutes_worth_gets_a_whole_bucket_and_owes_the_rest() {
        let mut b = bucket(100);
        assert_eq!((b.share(1000), b.wait(Tick::ZERO, 1000)), (100, Span::ZERO));
        b.take(Tick::ZERO, 1000);
        assert_eq!(b.level(Tick::ZERO).remaining, 0);
        // 900 beyond a bucket, at 100 a minute, and one more unit.
        assert_eq!(b.wait(Tick::ZERO, 1), Span::from_millis(9 * 60_000 + 600));
        assert_eq!(b.level(Tick::ZERO).reset, Span::from_secs(600));
    }

    #[test]
    fn no_sequence_of_takes_refunds_and_new_limits_gives_more_than_a_bucket_and_the_rate() {
        let mut random = Random::new(5, Stream::Test);
        for trial in 0..500 {
            let limit = random.between(1, 1_000_000);
            let mut b = bucket(limit);
            let (mut now, mut used, mut open) = (0_u64, 0_u128, Vec::new());
            for _ in 0..200 {
                now += random.between(0, 2_000_000_000);
                match random.between(0, 2) {
                    0 | 1 => {
                        let units = b.share(random.between(1, limit * 2));
                        if b.wait(at(now), units) == Span::ZERO {
                            b.take(at(now), units);
                            used += u128::from(units);
                            open.push(units);
                        } else {
                            // The wait that is told is the least that is enough.
                            let due = now + b.wait(at(now), units).as_nanos();
                            assert_eq!(b.wait(at(due), units), Span::ZERO);
                            assert!(b.wait(at(due - 1), units) > Span::ZERO);
                        }
                    }
                    _ => {
                        if let Some(units) = open.pop() {
                            let back = random.between(0, units);
                            b.give_back(at(now), back);
                            used -= u128::from(back);
                        }
                    }
                }
                let level = b.level(at(now));
                assert!(level.remaining <= limit && level.reset <= PERIOD, "trial {trial}: {level:?}");
                let most = u128::from(limit) + u128::from(limit) * u128::from(now) / u128::from(PERIOD.as_nanos());
                assert!(used <= most, "trial {trial}: {used} of {most} at {now}");
            }
        }
    }

    #[test]
    fn a_new_limit_gives_nothing_back_and_a_clock_that_goes_back_pays_nothing() {
        let mut b = bucket(10);
        b.take(at(5), 10);
        b.set_limit(at(5), NonZeroU64::new(20).unwrap());
        assert_eq!(b.level(at(5)).remaining, 10, "ten are taken, of twenty now");
        b.set_limit(at(5), NonZeroU64::new(4).unwrap());
        assert_eq!((b.level(at(5)).remaining, b.wait(at(5), 1)), (0, Span::from_secs(7 * 15)));
        let before = b.clone();
        b.take(at(0), 0);
        assert_eq!(b, before);
    }

    #[test]
    fn the_largest_numbers_saturate() {
        let mut b = bucket(u64::MAX);
        for _ in 0..3 {
            b.take(Tick::ZERO, u64::MAX);
        }
        assert_eq!(b.level(Tick::ZERO).remaining, 0);
        assert_eq!(b.level(Tick::MAX).remaining, u64::MAX);
        let mut slow = bucket(1);
        slow.take(Tick::ZERO, u64::MAX);
        assert_eq!(slow.wait(Tick::ZERO, 1), Span::MAX);
    }
}
