//! How small an effect so many pairs can show, and how many pairs an effect takes.
//!
//! An effect counts as shown where [`median_interval`](super::paired::median_interval) lies on one side of 0.
//! For normal differences of a known deviation the chance of that is exact here; the deviation that is put in is
//! an estimate, and of few pairs a poor one.

use super::paired::Place;
use super::special::{binomial_cdf, crossing, normal_cdf, normal_density};

/// The chance that is asked for where nothing else is said.
pub const POWER: f64 = 0.8;
/// The most pairs that [`pairs_to_show`] and [`pairs_to_bound`] look for.
pub const MAX_PAIRS: u32 = 1_000;

/// The chance that the interval of `n` normal differences lies above 0 where their median is `effect` standard
/// deviations above it. 0 for fewer than two pairs.
///
/// Fewer than `rank` differences below 0 put the whole interval above it. With exactly `rank` below, it hangs on
/// the two values next to 0, between which the bound is interpolated; they are independent given their number, the
/// lesser one the largest of the negative values and the greater one the smallest of the positive.
#[must_use]
pub fn power(n: u32, effect: f64, confidence: f64) -> f64 {
    if n < 2 || effect.is_nan() {
        return 0.0;
    }
    let Place { rank, part, .. } = Place::of(u64::from(n), confidence);
    let (below, n) = (normal_cdf(-effect), u64::from(n));
    // Beyond this there is no chance of a value on the other side.
    if below <= 0.0 || below >= 1.0 {
        return f64::from(u8::from(below <= 0.0));
    }
    let whole = binomial_cdf(rank - 1, n, below);
    if part <= 0.0 {
        return whole;
    }
    let exactly = binomial_cdf(rank, n, below) - whole;
    whole + exactly * chance_above(rank as f64, (n - rank) as f64, effect, part)
}

/// P(outer + part · (inner − outer) > 0) where `outer` is the largest of `k` normal values below 0 and `inner` the
/// smallest of `m` above 0, by Simpson's rule over the distance of `outer` from 0.
fn chance_above(k: f64, m: f64, effect: f64, part: f64) -> f64 {
    const STEPS: u32 = 400;
    let (below, above) = (normal_cdf(-effect), normal_cdf(effect));
    let stretch = (1.0 - part) / part;
    let density = |t: f64| {
        let left = normal_cdf(-t - effect) / below;
        k * libm::pow(left, k - 1.0) * normal_density(t + effect) / below
    };
    let farther = |t: f64| libm::pow(normal_cdf(effect - t) / above, m);
    let at = |t: f64| density(t) * farther(stretch * t);
    // The density falls off as the k-th power: where it is 1e-12 of its start the rest does not matter.
    let end = crossing(0.0, 12.0, |t| k * libm::log(normal_cdf(-t - effect) / below) < -28.0);
    let width = end / f64::from(STEPS);
    let weight = |i: u32| if i == 0 || i == STEPS { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
    (0..=STEPS).map(|i| weight(i) * at(f64::from(i) * width)).sum::<f64>() * width / 3.0
}

/// The smallest effect, in the unit of `deviation`, that `n` pairs show with the given chance at the given
/// confidence: the minimum detectable effect. `None` for fewer than two pairs.
#[must_use]
pub fn detectable(n: u32, deviation: f64, confidence: f64, chance: f64) -> Option<f64> {
    (n >= 2).then(|| deviation * crossing(0.0, 60.0, |effect| power(n, effect, confidence) >= chance))
}

/// The number of pairs, at least `from`, of which the interval lies on one side of 0 with the given chance, if the
/// differences have this median and deviation; `None` beyond [`MAX_PAIRS`].
#[must_use]
pub fn pairs_to_show(effect: f64, deviation: f64, confidence: f64, chance: f64, from: u32) -> Option<u32> {
    let effect = effect.abs() / deviation;
    // No spread and no effect: 0/0 shows nothing with any number.
    smallest(from.max(2), |n| power(n, effect, confidence) >= chance)
}

/// The number of pairs, at least `from`, of which the whole interval lies within ±`margin` with the given
/// chance, if the differences have this median and deviation; `None` beyond [`MAX_PAIRS`], as always where the
/// median is not within the margin.
///
/// Each bound misses with half of the chance that is left, so that both together miss with less than all of it.
#[must_use]
pub fn pairs_to_bound(
    effect: f64,
    margin: f64,
    deviation: f64,
    confidence: f64,
    chance: f64,
    from: u32,
) -> Option<u32> {
    let room = (margin - effect.abs()) / deviation;
    smallest(from.max(2), |n| power(n, room, confidence) >= (1.0 + chance) / 2.0)
}

/// The smallest number up to [`MAX_PAIRS`] for which a condition holds that, once true, about stays true.
fn smallest(from: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (from, from);
    while !holds(high) {
        if high >= MAX_PAIRS {
            return None;
        }
        low = high + 1;
        high = high.saturating_mul(2).min(MAX_PAIRS);
    }
    while low < high {
        let middle = u32::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Random, Stream};
    use crate::stats::paired::median_interval;
    use crate::stats::vectors::{Vectors, near};

    #[test]
    fn power_is_the_share_of_simulated_studies_that_show_the_effect() {
        let mut random = Random::new(11, Stream::Test);
        for (n, effect) in [(5, 1.0), (5, 2.0), (6, 1.2), (8, 0.0), (9, 1.0), (12, 0.8), (20, 0.6), (31, 0.4)] {
            let shown = (0..4000).filter(|_| {
                let sample: Vec<f64> = (0..n).map(|_| effect + random.normal()).collect();
                median_interval(&sample, 0.95).unwrap().low > 0.0
            });
            let share = shown.count() as f64 / 4000.0;
            let expected = power(n, effect, 0.95);
            // Four standard errors.
            let error = (expected * (1.0 - expected) / 4000.0).sqrt();
            assert!((share - expected).abs() <= 4.0 * error, "n {n}, effect {effect}: {share}, formula {expected}");
        }
    }

    /// Of five pairs the interval is their range: it lies above 0 where all five do.
    #[test]
    fn the_smallest_effect_of_five_pairs_is_that_of_five_alike() {
        for [n, share, effect] in Vectors::read("distributions").rows("all_alike") {
            near(detectable(n as u32, 1.0, 0.95, share).unwrap(), effect, 1e-9);
        }
        assert_eq!(detectable(5, 0.0, 0.95, 0.8), Some(0.0));
        assert_eq!(detectable(1, 1.0, 0.95, 0.8), None);
    }

    #[test]
    fn an_effect_takes_the_pairs_at_which_it_is_the_smallest_that_they_show() {
        for n in [6, 10, 25, 60] {
            let effect = detectable(n, 3.0, 0.95, POWER).unwrap();
            assert_eq!(pairs_to_show(effect * 1.000_001, 3.0, 0.95, POWER, 5), Some(n));
            assert_eq!(pairs_to_show(-effect * 1.000_001, 3.0, 0.95, POWER, 5), Some(n));
        }
        // 2.8 deviations / √n of a mean, times the root of π/2 for a median.
        let large = pairs_to_show(0.15, 1.0, 0.95, POWER, 5).unwrap();
        let expected = (2.801_585 / 0.15_f64).powi(2) * std::f64::consts::FRAC_PI_2;
        assert!((f64::from(large) / expected - 1.0).abs() < 0.02, "{large} where about {expected} is right");
    }

    #[test]
    fn what_no_number_of_pairs_would_show_takes_none() {
        assert_eq!(pairs_to_show(0.0, 1.0, 0.95, POWER, 5), None);
        assert_eq!(pairs_to_show(0.0, 0.0, 0.95, POWER, 5), None);
        assert_eq!(pairs_to_bound(2.0, 1.0, 1.0, 0.95, POWER, 5), None);
        assert_eq!(pairs_to_show(1.0, 0.0, 0.95, POWER, 5), Some(5));
    }

    #[test]
    fn intervals_of_the_number_that_bounds_an_effect_lie_within_the_margin() {
        let margin = 1.0;
        let mut random = Random::new(12, Stream::Test);
        // Without an effect both bounds are as likely to lie outside.
        for effect in [0.2, 0.0] {
            let n = pairs_to_bound(effect, margin, 1.0, 0.95, POWER, 5).unwrap();
            let mut share = |n: u32| {
                let within = (0..2000).filter(|_| {
                    let sample: Vec<f64> = (0..n).map(|_| effect + random.normal()).collect();
                    let i = median_interval(&sample, 0.95).unwrap();
                    i.low > -margin && i.high < margin
                });
                within.count() as f64 / 2000.0
            };
            assert!(share(n) >= 0.8 - 0.035, "{n} pairs");
            assert!(share(n / 2) < 0.8, "half of {n} pairs");
        }
    }
}
