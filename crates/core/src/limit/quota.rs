//! Requests and tokens per minute of one owner.

use std::fmt;
use std::num::NonZeroU64;

use super::bucket::{Bucket, Level};
use crate::time::{Span, Tick};

/// What may be taken in a minute; `None` for as much as there is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests.
    pub requests: Option<NonZeroU64>,
    /// Tokens, of prompts and answers together.
    pub tokens: Option<NonZeroU64>,
}

impl Limits {
    /// Whether there is no limit at all.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.requests.is_none() && self.tokens.is_none()
    }
}

/// Which limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limited {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
}

impl Limited {
    /// Its name, as in headers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
        }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A limit that does not leave enough now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which of the two; the one to wait for longest.
    pub limited: Limited,
    /// How it stands.
    pub level: Level,
    /// What was asked for.
    pub asked: u64,
    /// The time after which the same would be given, if nothing else is taken.
    pub wait: Span,
}

/// What was taken for one request, to be settled once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "what is reserved has to be settled or given back"]
pub struct Reserved {
    tokens: u64,
}

/// What one owner has left of its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

impl Quota {
    /// A full quota.
    #[must_use]
    pub fn new(limits: Limits, now: Tick) -> Self {
        let full = |limit: Option<NonZeroU64>| limit.map(|limit| Bucket::new(limit, now));
        Self { requests: full(limits.requests), tokens: full(limits.tokens) }
    }

    /// Other limits from now on. What was taken stays taken; a limit that is new is full.
    pub fn set_limits(&mut self, now: Tick, limits: Limits) {
        for (bucket, limit) in [(&mut self.requests, limits.requests), (&mut self.tokens, limits.tokens)] {
            match (bucket.as_mut(), limit) {
                (Some(bucket), Some(limit)) => bucket.set_limit(now, limit),
                (None, Some(limit)) => *bucket = Some(Bucket::new(limit, now)),
                (_, None) => *bucket = None,
            }
        }
    }

    /// Takes one request and its expected tokens, or nothing at all. Of tokens it takes a whole bucket at most.
    ///
    /// # Errors
    /// [`Exceeded`] names the limit to wait for.
    pub fn reserve(&mut self, now: Tick, tokens: u64) -> Result<Reserved, Exceeded> {
        let check = |bucket: &Option<Bucket>, limited, asked| {
            let bucket = bucket.as_ref()?;
            let wait = bucket.wait(now, asked);
            (wait > Span::ZERO).then(|| Exceeded { limited, level: bucket.level(now), asked, wait })
        };
        let requests = check(&self.requests, Limited::Requests, 1);
        let of_tokens = check(&self.tokens, Limited::Tokens, tokens);
        if let Some(exceeded) = requests.into_iter().chain(of_tokens).max_by_key(|e| e.wait) {
            return Err(exceeded);
        }
        if let Some(bucket) = &mut self.requests {
            bucket.take(now, 1);
        }
        let taken = self.tokens.as_ref().map_or(0, |bucket| bucket.share(tokens));
        if let Some(bucket) = &mut self.tokens {
            bucket.take(now, taken);
        }
        Ok(Reserved { tokens: taken })
    }

    /// Replaces the tokens that were expected by those that were used.
    #[expect(clippy::needless_pass_by_value, reason = "what is reserved is settled once")]
    pub fn settle(&mut self, now: Tick, reserved: Reserved, used: u64) {
        if let Some(bucket) = &mut self.tokens {
            if used > reserved.tokens {
                bucket.take(now, used - reserved.tokens);
            } else {
                bucket.give_back(now, reserved.tokens - used);
            }
        }
    }

    /// Gives back all that a request took, itself included.
    pub fn cancel(&mut self, now: Tick, reserved: Reserved) {
        if let Some(bucket) = &mut self.requests {
            bucket.give_back(now, 1);
        }
        self.settle(now, reserved, 0);
    }

    /// How a limit stands, if there is one.
    #[must_use]
    pub fn level(&self, now: Tick, of: Limited) -> Option<Level> {
        let bucket = match of {
            Limited::Requests => &self.requests,
            Limited::Tokens => &self.tokens,
        };
        bucket.as_ref().map(|bucket| bucket.level(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Random, Stream};

    fn limits(requests: u64, tokens: u64) -> Limits {
        Limits { requests: NonZeroU64::new(requests), tokens: NonZeroU64::new(tokens) }
    }

    fn quota(requests: u64, tokens: u64) -> Quota {
        Quota::new(limits(requests, tokens), Tick::ZERO)
    }

    fn left(quota: &Quota, now: Tick) -> (u64, u64) {
        let of = |limited| quota.level(now, limited).map_or(u64::MAX, |level| level.remaining);
        (of(Limited::Requests), of(Limited::Tokens))
    }

    #[test]
    fn what_one_limit_refuses_takes_nothing_from_the_other() {
        let mut q = quota(10, 100);
        let _kept = q.reserve(Tick::ZERO, 90).unwrap();
        let exceeded = q.reserve(Tick::ZERO, 20).unwrap_err();
        assert_eq!((exceeded.limited, exceeded.asked, exceeded.level.remaining), (Limited::Tokens, 20, 10));
        assert_eq!(exceeded.wait, Span::from_secs(6), "ten more at 100 a minute");
        assert_eq!(left(&q, Tick::ZERO), (9, 10));
        let mut few = quota(1, 100);
        let _kept = few.reserve(Tick::ZERO, 1).unwrap();
        assert_eq!(few.reserve(Tick::ZERO, 1).unwrap_err().limited, Limited::Requests);
        assert_eq!(left(&few, Tick::ZERO), (0, 99));
    }

    #[test]
    fn the_limit_that_is_named_is_the_one_to_wait_for_longest() {
        let mut q = quota(1, 100);
        let _kept = q.reserve(Tick::ZERO, 100).unwrap();
        let exceeded = q.reserve(Tick::ZERO, 10).unwrap_err();
        assert_eq!((exceeded.limited, exceeded.wait), (Limited::Requests, Span::from_secs(60)));
        assert!(q.reserve(Tick::ZERO + exceeded.wait, 10).is_ok());
    }

    #[test]
    fn a_request_that_is_cancelled_has_cost_nothing_and_one_that_is_settled_what_it_used() {
        let mut q = quota(10, 100);
        let reserved = q.reserve(Tick::ZERO, 60).unwrap();
        q.cancel(Tick::ZERO, reserved);
        assert_eq!(left(&q, Tick::ZERO), (10, 100));
        let reserved = q.reserve(Tick::ZERO, 60).unwrap();
        q.settle(Tick::ZERO, reserved, 25);
        assert_eq!(left(&q, Tick::ZERO), (9, 75));
        let understated = q.reserve(Tick::ZERO, 1).unwrap();
        q.settle(Tick::ZERO, understated, 500);
        assert_eq!(left(&q, Tick::ZERO), (8, 0));
        // 525 used of 100 a minute: 425 to make good before anything more is had.
        assert_eq!(q.reserve(Tick::ZERO, 1).unwrap_err().wait, Span::from_millis(60_000 * 426 / 100));
    }

    #[test]
    fn understating_lengths_gains_one_request_beyond_the_limit_at_most() {
        let mut random = Random::new(17, Stream::Test);
        for trial in 0..10_000 {
            let per_minute = random.between(100, 100_000);
            let largest = random.between(1, per_minute * 3);
            let mut q = Quota::new(limits(0, per_minute), Tick::ZERO);
            let (mut now, mut used) = (Tick::ZERO, 0_u128);
            for _ in 0..20 {
                now = now + Span::from_nanos(random.between(0, 30_000_000_000));
                // It says one token each time, and takes as many as it can get.
                if let Ok(reserved) = q.reserve(now, 1) {
                    let really = random.between(1, largest);
                    q.settle(now, reserved, really);
                    used += u128::from(really);
                }
                let earned = u128::from(per_minute) * u128::from(now.as_nanos()) / 60_000_000_000;
                let most = u128::from(per_minute) + earned + u128::from(largest);
                assert!(used <= most, "trial {trial}: {used} of {most}");
            }
        }
    }

    #[test]
    fn a_limit_that_is_taken_away_or_added_changes_what_is_asked_from_then_on() {
        let mut q = quota(1, 100);
        let first = q.reserve(Tick::ZERO, 100).unwrap();
        q.set_limits(Tick::ZERO, limits(0, 200));
        assert_eq!(left(&q, Tick::ZERO), (u64::MAX, 100));
        q.set_limits(Tick::ZERO, limits(5, 0));
        assert_eq!(left(&q, Tick::ZERO), (5, u64::MAX));
        q.settle(Tick::ZERO, first, 1_000);
        assert_eq!(left(&q, Tick::ZERO), (5, u64::MAX));
        assert!(Quota::new(Limits::default(), Tick::ZERO).reserve(Tick::ZERO, u64::MAX).is_ok());
    }
}
