//! Arrival processes: the planned times of an open load.

use serde::{Deserialize, Serialize};

use crate::rng::{Random, Stream};
use crate::time::Span;

/// When requests arrive, whatever the server does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "process", rename_all = "kebab-case")]
pub enum ArrivalProcess {
    /// Evenly spaced, the first one gap after the start.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// Independent arrivals: exponential gaps.
    ///
    /// With a fixed number of requests the times are rescaled so that the last one is at exactly
    /// count / rate, as `vllm bench serve` does: a Poisson process given its count, whose offered
    /// rate is the rate that was asked for.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Recorded arrival times in seconds at one request per second, divided by the rate.
    Recorded {
        /// Requests per second.
        rate: f64,
        /// Where the times come from.
        source: String,
        /// The times, ascending.
        #[serde(skip)]
        unit_times: Vec<f64>,
    },
}

/// How many requests are planned.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// So many requests.
    Count(u32),
    /// All that arrive in so much time.
    Duration(Span),
}

impl ArrivalProcess {
    /// Requests per second.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        match self {
            Self::Constant { rate } | Self::Poisson { rate } | Self::Recorded { rate, .. } => *rate,
        }
    }

    /// What is wrong with the parameters, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        let rate = self.rate();
        if !(rate > 0.0 && rate.is_finite()) {
            return Some(format!("the request rate must be above 0 requests/s, not {rate}"));
        }
        None
    }

    /// The planned times, ascending, and the window that they belong to.
    pub(super) fn times(&self, seed: u64, extent: Extent) -> (Vec<Span>, Span) {
        match (self, extent) {
            (Self::Constant { rate }, Extent::Count(n)) => {
                ((1..=n).map(|i| at(f64::from(i) / rate)).collect(), at(f64::from(n) / rate))
            }
            (Self::Constant { rate }, Extent::Duration(window)) => {
                let n = libm::floor(window.as_secs_f64() * rate + 1e-9) as u32;
                ((1..=n).map(|i| at(f64::from(i) / rate)).collect(), window)
            }
            (Self::Poisson { rate }, Extent::Count(n)) => {
                let times: Vec<f64> = exponential_sums(seed).take(n as usize).collect();
                let last = times.last().copied().unwrap_or(1.0);
                let end = f64::from(n) / rate;
                (times.iter().map(|t| at(t / last * end)).collect(), at(end))
            }
            (Self::Poisson { rate }, Extent::Duration(window)) => {
                let times = exponential_sums(seed).map(|t| at(t / rate));
                (times.take_while(|t| *t < window).collect(), window)
            }
            (Self::Recorded { rate, unit_times, .. }, extent) => {
                let times = unit_times.iter().map(|t| at(t / rate));
                match extent {
                    Extent::Count(n) => (times.take(n as usize).collect(), at(f64::from(n) / rate)),
                    Extent::Duration(window) => (times.take_while(|t| *t < window).collect(), window),
                }
            }
        }
    }
}

fn at(seconds: f64) -> Span {
    Span::from_secs_f64(seconds)
}

fn exponential_sums(seed: u64) -> impl Iterator<Item = f64> {
    let mut random = Random::new(seed, Stream::Arrivals);
    let mut time = 0.0;
    std::iter::from_fn(move || {
        time += random.exponential();
        Some(time)
    })
}
