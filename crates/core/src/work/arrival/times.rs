//! The planned times of each process.

use super::{ArrivalProcess, Extent, Step};
use crate::rng::{Random, Stream};
use crate::time::Span;

type Times<'a> = Box<dyn Iterator<Item = Span> + 'a>;

impl ArrivalProcess {
    /// The planned times, ascending, drawn as they are asked for. [`Self::Mixed`] and [`Self::OnDemand`] have none.
    pub(in crate::work) fn times(&self, seed: u64, extent: Extent) -> Times<'_> {
        match self {
            Self::Constant { rate } => {
                let n = match extent {
                    Extent::Count(n) => n,
                    Extent::Duration(window) => libm::floor(window.as_secs_f64() * rate + 1e-9) as u32,
                };
                Box::new((1..=n).map(move |i| at(f64::from(i) / rate)))
            }
            Self::Poisson { rate } => at_rate(move || exponential_sums(seed), *rate, extent),
            Self::Gamma { rate, burstiness } => at_rate(move || gamma_sums(seed, *burstiness), *rate, extent),
            // A Poisson process of rate 1, in whose time the rates below are even (Çinlar 1975, chapter 4.7).
            Self::Steps { steps } => warped(move || exponential_sums(seed), move |s| steps_inverse(steps, s), extent),
            Self::Ramp { from, to } => {
                let (from, slope) = (*from, (to - from) / self.window(extent).as_secs_f64());
                warped(move || exponential_sums(seed), move |s| ramp_inverse(from, slope, s), extent)
            }
            Self::Bursts { size, every } => {
                let bursts = (0u64..).flat_map(move |k| std::iter::repeat_n(*every * k, *size as usize));
                limited(bursts, extent)
            }
            Self::Recorded { rate, unit_times, .. } => limited(unit_times.iter().map(move |t| at(t / rate)), extent),
            Self::Mixed { .. } | Self::OnDemand => Box::new(std::iter::empty()),
        }
    }

    /// The time that the arrivals belong to.
    pub(in crate::work) fn window(&self, extent: Extent) -> Span {
        match (self, extent) {
            (_, Extent::Duration(window)) => window,
            (Self::Steps { steps }, Extent::Count(n)) => at(steps_inverse(steps, f64::from(n))),
            (_, Extent::Count(n)) => self.rate().map_or(Span::ZERO, |rate| at(f64::from(n) / rate)),
        }
    }
}

fn at(seconds: f64) -> Span {
    Span::from_secs_f64(seconds)
}

fn limited<'a>(times: impl Iterator<Item = Span> + 'a, extent: Extent) -> Times<'a> {
    match extent {
        Extent::Count(n) => Box::new(times.take(n as usize)),
        Extent::Duration(window) => Box::new(times.take_while(move |t| *t < window)),
    }
}

/// The events of a process of rate 1 at another rate.
fn at_rate<'a, S: Iterator<Item = f64> + 'a>(sums: impl Fn() -> S + 'a, rate: f64, extent: Extent) -> Times<'a> {
    match extent {
        Extent::Count(n) => Box::new(ending_at(sums, n, f64::from(n) / rate).map(at)),
        Extent::Duration(_) => limited(sums().map(move |s| at(s / rate)), extent),
    }
}

/// The events of a process of rate 1 in a time that does not run evenly.
fn warped<'a, S: Iterator<Item = f64> + 'a>(
    sums: impl Fn() -> S + 'a,
    warp: impl Fn(f64) -> f64 + 'a,
    extent: Extent,
) -> Times<'a> {
    match extent {
        Extent::Count(n) => Box::new(ending_at(sums, n, f64::from(n)).map(move |s| at(warp(s)))),
        Extent::Duration(_) => limited(sums().map(move |s| at(warp(s))), extent),
    }
}

/// So many events, rescaled so that the last one is at `end`.
fn ending_at<S: Iterator<Item = f64>, F: Fn() -> S>(
    sums: F,
    n: u32,
    end: f64,
) -> impl Iterator<Item = f64> + use<S, F> {
    // Drawn twice instead of kept: the last one decides the scale of all.
    let last = sums().take(n as usize).last().filter(|last| *last > 0.0).unwrap_or(1.0);
    sums().take(n as usize).map(move |s| s / last * end)
}

fn exponential_sums(seed: u64) -> impl Iterator<Item = f64> {
    sums(seed, Random::exponential)
}

/// Gaps of mean 1.
fn gamma_sums(seed: u64, shape: f64) -> impl Iterator<Item = f64> {
    sums(seed, move |random| random.gamma(shape) / shape)
}

fn sums(seed: u64, mut gap: impl FnMut(&mut Random) -> f64) -> impl Iterator<Item = f64> {
    let mut random = Random::new(seed, Stream::Arrivals);
    let mut time = 0.0;
    std::iter::from_fn(move || {
        time += gap(&mut random);
        Some(time)
    })
}

/// When as many arrivals are expected.
fn steps_inverse(steps: &[Step], mut expected: f64) -> f64 {
    let mut start = 0.0;
    let Some((last, before)) = steps.split_last() else { return start };
    for step in before {
        let length = step.length.as_secs_f64();
        let within = step.rate * length;
        if expected < within {
            return start + expected / step.rate;
        }
        (start, expected) = (start + length, expected - within);
    }
    start + expected / last.rate
}

/// When as many arrivals are expected of a rate that starts at `from` and grows by `slope` a second: the root of
/// from · t + slope · t² / 2 = expected, in the form that does not cancel.
fn ramp_inverse(from: f64, slope: f64, expected: f64) -> f64 {
    // Past the peak of a falling ramp no more are expected; rounding may ask for a little more.
    let root = (from * from + 2.0 * slope * expected).max(0.0).sqrt();
    if from + root > 0.0 { 2.0 * expected / (from + root) } else { 0.0 }
}
