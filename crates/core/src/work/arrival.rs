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

    /// The planned times, ascending, drawn as they are asked for.
    pub(super) fn times(&self, seed: u64, extent: Extent) -> Box<dyn Iterator<Item = Span> + '_> {
        match (self, extent) {
            (Self::Constant { rate }, Extent::Count(n)) => Box::new((1..=n).map(move |i| at(f64::from(i) / rate))),
            (Self::Constant { rate }, Extent::Duration(window)) => {
                let n = libm::floor(window.as_secs_f64() * rate + 1e-9) as u32;
                Box::new((1..=n).map(move |i| at(f64::from(i) / rate)))
            }
            (Self::Poisson { rate }, Extent::Count(n)) => {
                // Drawn twice instead of kept: the last one decides the scale of all.
                let times = move || exponential_sums(seed).take(n as usize);
                let (last, end) = (times().last().unwrap_or(1.0), f64::from(n) / rate);
                Box::new(times().map(move |t| at(t / last * end)))
            }
            (Self::Poisson { rate }, Extent::Duration(window)) => {
                Box::new(exponential_sums(seed).map(move |t| at(t / rate)).take_while(move |t| *t < window))
            }
            (Self::Recorded { rate, unit_times, .. }, extent) => {
                let times = unit_times.iter().map(move |t| at(t / rate));
                match extent {
                    Extent::Count(n) => Box::new(times.take(n as usize)),
                    Extent::Duration(window) => Box::new(times.take_while(move |t| *t < window)),
                }
            }
        }
    }

    /// The time that the arrivals belong to.
    pub(super) fn window(&self, extent: Extent) -> Span {
        match extent {
            Extent::Count(n) => at(f64::from(n) / self.rate()),
            Extent::Duration(window) => window,
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
