//! A server whose knee is known exactly, to hold the search against.

use super::{Series, Trial};
use crate::rng::{Random, Stream, mix};

/// What answers a probe.
#[derive(Copy, Clone, Debug)]
pub(super) enum Server {
    /// One queue in its steady state, M/M/1: of λ arrivals a second, each served in 1 / μ s on average, a share of
    /// 1 − exp(−(μ − λ) · limit) is answered within the limit, and neighbours share their fate.
    Queue { service: f64, limit: f64 },
    /// Arrivals that know nothing of each other: the share is 1 / (1 + (λ / half)^steep).
    Independent { half: f64, steep: f64 },
}

impl Server {
    /// The exact share of arrivals that are served as they should.
    pub(super) fn share(self, rate: f64) -> f64 {
        match self {
            Self::Queue { service, limit } => 1.0 - libm::exp(-(service - rate) * limit).min(1.0),
            Self::Independent { half, steep } => 1.0 / (1.0 + libm::pow(rate / half, steep)),
        }
    }

    /// The rate at which the share is the target.
    pub(super) fn knee(self, target: f64) -> f64 {
        match self {
            Self::Queue { service, limit } => service + libm::log(1.0 - target) / limit,
            Self::Independent { half, steep } => half * libm::pow(1.0 / target - 1.0, 1.0 / steep),
        }
    }

    /// A probe of `n` arrivals.
    pub(super) fn probe(self, rate: f64, n: u32, seed: u64) -> Trial {
        let mut random = Random::new(mix(seed, rate.to_bits()), Stream::Test);
        let mut series = Series::default();
        match self {
            Self::Independent { .. } => {
                let share = self.share(rate);
                (0..n).for_each(|_| {
                    let draw = random.unit();
                    series.push(draw < share, draw);
                });
            }
            // An overloaded queue has no steady state: it starts empty and grows.
            Self::Queue { service, limit } => {
                let mut time = if rate < service { random.exponential() / (service - rate) } else { 0.0 };
                for _ in 0..n {
                    series.push(time <= limit, time / limit);
                    time = (time - random.exponential() / rate).max(0.0) + random.exponential() / service;
                }
            }
        }
        series.trial().unwrap()
    }
}
