//! Intervals and tests of paired differences.
//!
//! The sample is one number for each pair: what changed between two runs of the same arrivals.

use super::special::{student_deviations, student_tails};
use super::{ascending, deviation, mean};

/// An interval, and the confidence that it has by its construction.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Interval {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// How often such an interval holds what it is about. Below what was asked for where no wider interval can be
    /// made of so few values: 0.9375 of five.
    pub confidence: f64,
}

/// The interval of the median that the sign test gives: between the d-th smallest and the d-th largest value lies
/// the median of any continuous distribution with probability 1 − 2 P(B < d), B binomial of n and ½ (Conover,
/// *Practical Nonparametric Statistics*, 3.2).
///
/// The bounds of the two d's next to the confidence are interpolated as Hettmansperger and Sheather do
/// ("Confidence intervals based on interpolated order statistics", *Statistics & Probability Letters* 4, 1986), so
/// that the confidence does not jump with n. Fewer than six values reach 95 % with no d: then it is the whole
/// range with its own confidence, 93.75 % of five values, 87.5 % of four, 75 % of three, 50 % of two. `None` for fewer.
#[must_use]
pub fn median_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let n = values.len();
    if n < 2 {
        return None;
    }
    let sorted = ascending(values);
    let Place { rank, part, confidence } = Place::of(n as u64, confidence);
    let (inner, outer) = (rank as usize, rank as usize - 1);
    let between = |outer: f64, inner: f64| if part > 0.0 { outer + part * (inner - outer) } else { outer };
    Some(Interval {
        low: between(sorted[outer], sorted[inner.min(n - 1)]),
        high: between(sorted[n - 1 - outer], sorted[(n - 1).saturating_sub(inner)]),
        confidence,
    })
}

/// Where the bounds of [`median_interval`] lie in a sample of n.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// The lower bound is at the value of this rank, counted from 1, or above it.
    pub(super) rank: u64,
    /// How far towards the value of the next rank.
    pub(super) part: f64,
    /// The confidence that is reached.
    pub(super) confidence: f64,
}

impl Place {
    pub(super) fn of(n: u64, confidence: f64) -> Self {
        // The chance of rank − 1 values or fewer below the median, from one rank to the next.
        let mut at_most = chance_of_heads(0, n);
        let mut reached = 1.0 - 2.0 * at_most;
        if reached <= confidence {
            return Self { rank: 1, part: 0.0, confidence: reached };
        }
        for rank in 1..n / 2 {
            at_most += chance_of_heads(rank, n);
            let next = 1.0 - 2.0 * at_most;
            if next <= confidence {
                let within = (reached - confidence) / (reached - next);
                let (d, n) = (rank as f64, n as f64);
                let part = (n - d) * within / (d + (n - 2.0 * d) * within);
                return Self { rank, part, confidence };
            }
            reached = next;
        }
        Self { rank: (n / 2).max(1), part: 0.0, confidence: reached }
    }
}

/// The interval of the mean by Student's t (Student 1908): right for normal differences of any number from two,
/// and about right for differences that are not too skewed. `None` for fewer than two values.
#[must_use]
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let (mean, deviation) = (mean(values)?, deviation(values)?);
    let n = values.len() as f64;
    let half = student_deviations(confidence, n - 1.0) * deviation / libm::sqrt(n);
    Some(Interval { low: mean - half, high: mean + half, confidence })
}

/// The chance of as many differences of one sign, or more, if both signs were equally likely: the two-sided sign
/// test (Conover, 3.4). Differences of 0 say nothing and are left out; `None` if no other is there.
///
/// Five pairs of one sign have 0.0625: fewer than six cannot go below 0.05.
#[must_use]
pub fn sign_test(differences: &[f64]) -> Option<f64> {
    let above = differences.iter().filter(|d| **d > 0.0).count() as u64;
    let below = differences.iter().filter(|d| **d < 0.0).count() as u64;
    let n = above + below;
    let at_most: f64 = (0..=above.min(below)).map(|k| chance_of_heads(k, n)).sum();
    (n > 0).then(|| (2.0 * at_most).min(1.0))
}

/// The chance of exactly `k` heads in `n` tosses: C(n, k) / 2ⁿ, by logarithms so that no n is too large.
fn chance_of_heads(k: u64, n: u64) -> f64 {
    let log_factorial = |n: u64| libm::lgamma(n as f64 + 1.0);
    let ways = log_factorial(n) - log_factorial(k) - log_factorial(n - k);
    libm::exp(ways - n as f64 * std::f64::consts::LN_2)
}

/// A difference or a slope, and how likely chance alone gives one as large.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Tested {
    /// The difference or the slope.
    pub value: f64,
    /// Its two-sided p-value by Student's t.
    pub p: f64,
}

/// By how much the mean of `b` exceeds that of `a`, with Student's two-sample test of equal variances; `None`
/// for fewer than three values in all, for an empty side, or if no two values of a side differ.
#[must_use]
pub fn between(a: &[f64], b: &[f64]) -> Option<Tested> {
    let value = mean(b)? - mean(a)?;
    let squares = |values: &[f64]| deviation(values).map_or(0.0, |d| d * d * (values.len() - 1) as f64);
    let freedom = (a.len() + b.len()).checked_sub(2).filter(|f| *f > 0)? as f64;
    let variance = (squares(a) + squares(b)) / freedom;
    let error = libm::sqrt(variance * (1.0 / a.len() as f64 + 1.0 / b.len() as f64));
    (error > 0.0).then(|| Tested { value, p: student_tails(value / error, freedom) })
}

/// The least-squares slope of values over their places 0, 1, 2, …, with its t test; `None` for fewer than three
/// values or where they lie on a line exactly, on which there is no error to hold it against.
#[must_use]
pub fn trend(values: &[f64]) -> Option<Tested> {
    let n = values.len();
    let freedom = n.checked_sub(2).filter(|f| *f > 0)? as f64;
    let (middle, mean) = ((n - 1) as f64 / 2.0, mean(values)?);
    let places = || (0..n).map(|i| i as f64 - middle);
    let along: f64 = places().zip(values).map(|(x, y)| x * (y - mean)).sum();
    let across: f64 = places().map(|x| x * x).sum();
    let value = along / across;
    let rest: f64 = places().zip(values).map(|(x, y)| y - mean - value * x).map(|r| r * r).sum();
    let error = libm::sqrt(rest / freedom / across);
    (error > 0.0).then(|| Tested { value, p: student_tails(value / error, freedom) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Random, Stream};
    use crate::stats::resample::{Bootstrap, Statistic};
    use crate::stats::vectors::{Vectors, near, number, numbers};

    #[test]
    fn means_intervals_and_tests_are_those_of_scipy() {
        let v = Vectors::read("tests");
        for case in v.cases("mean_interval") {
            let got = mean_interval(&numbers(&case["sample"]), number(case, "confidence")).unwrap();
            near(got.low, number(case, "low"), 1e-9);
            near(got.high, number(case, "high"), 1e-9);
        }
        for case in v.cases("sign") {
            near(sign_test(&numbers(&case["sample"])).unwrap(), number(case, "p"), 1e-12);
        }
        for case in v.cases("between") {
            let got = between(&numbers(&case["a"]), &numbers(&case["b"])).unwrap();
            near(got.value, number(case, "difference"), 1e-12);
            near(got.p, number(case, "p"), 1e-10);
        }
        for case in v.cases("trend") {
            let got = trend(&numbers(&case["sample"])).unwrap();
            near(got.value, number(case, "slope"), 1e-12);
            near(got.p, number(case, "p"), 1e-10);
        }
    }

    #[test]
    fn medians_intervals_are_those_of_the_formula_worked_in_python() {
        for case in Vectors::read("tests").cases("median_interval") {
            let got = median_interval(&numbers(&case["sample"]), 0.95).unwrap();
            near(got.low, number(case, "low"), 1e-9);
            near(got.high, number(case, "high"), 1e-9);
            near(got.confidence, number(case, "confidence"), 1e-12);
        }
    }

    #[test]
    fn where_there_is_nothing_to_test_no_test_is_made() {
        assert_eq!((sign_test(&[0.0, 0.0]), sign_test(&[])), (None, None));
        assert_eq!((between(&[1.0], &[2.0]), between(&[], &[1.0, 2.0, 3.0])), (None, None));
        assert_eq!(between(&[1.0, 1.0], &[2.0, 2.0]), None);
        assert_eq!((trend(&[1.0, 2.0]), trend(&[1.0, 2.0, 3.0])), (None, None));
        assert_eq!((median_interval(&[1.0], 0.95), mean_interval(&[1.0], 0.95)), (None, None));
    }

    /// Ten times the thousand that the claim is about, so that the figure is that of the interval and not of the draw.
    const REPEATS: u32 = 10_000;

    /// The percentage of intervals of samples of `n` that hold `truth`.
    fn covered(n: usize, truth: f64, mut draw: impl FnMut() -> f64, of: impl Fn(&[f64]) -> [f64; 2]) -> f64 {
        let one = |_| {
            let sample: Vec<f64> = (0..n).map(|_| draw()).collect();
            let [low, high] = of(&sample);
            u32::from(low <= truth && truth <= high)
        };
        f64::from((0..REPEATS).map(one).sum::<u32>()) / f64::from(REPEATS) * 100.0
    }

    /// A name, the median, and numbers that have it.
    type Shape = (&'static str, f64, Box<dyn FnMut() -> f64>);

    /// Differences with a known median: none and half a deviation, of normal, skewed and heavy-tailed shape.
    fn shapes(seed: u64) -> Vec<Shape> {
        let random = |k| Random::new(seed * 10 + k, Stream::Test);
        let (mut a, mut b, mut c, mut d) = (random(1), random(2), random(3), random(4));
        vec![
            ("normal, no effect", 0.0, Box::new(move || a.normal())),
            ("normal, half a deviation", 0.5, Box::new(move || 0.5 + b.normal())),
            // The median of an exponential variable is ln 2.
            ("skewed", std::f64::consts::LN_2, Box::new(move || c.exponential())),
            // Student's t with 2 degrees of freedom: a normal number over the root of an exponential one.
            ("heavy tails", 0.0, Box::new(move || d.normal() / d.exponential().sqrt())),
        ]
    }

    #[test]
    fn the_interval_of_the_median_covers_92_to_97_percent_from_five_pairs_on() {
        for n in [5, 6, 7, 8, 9, 10, 12, 13, 15, 20, 23, 30] {
            for (shape, truth, draw) in shapes(n as u64) {
                let of = |sample: &[f64]| median_interval(sample, 0.95).map(|i| [i.low, i.high]).unwrap();
                let percent = covered(n, truth, draw, of);
                assert!((92.0..=97.0).contains(&percent), "n {n}, {shape}: {percent} %");
            }
        }
    }

    #[test]
    fn the_interval_of_the_mean_covers_92_to_97_percent_of_normal_differences() {
        for n in [2, 3, 5, 10, 20] {
            for (shape, truth, draw) in shapes(n as u64).into_iter().take(2) {
                let of = |sample: &[f64]| mean_interval(sample, 0.95).map(|i| [i.low, i.high]).unwrap();
                let percent = covered(n, truth, draw, of);
                assert!((92.0..=97.0).contains(&percent), "n {n}, {shape}: {percent} %");
            }
        }
    }

    /// The percentile bootstrap of the median of an odd number lies between two order statistics, so what it
    /// covers is known: 75 % of three, 93.75 % of five, 87.5 % of seven.
    #[test]
    fn the_bootstrap_of_the_median_covers_what_its_order_statistics_do() {
        for (n, percent) in [(3, 75.0_f64), (5, 93.75), (7, 87.5)] {
            for (shape, truth, draw) in shapes(n as u64) {
                let bootstrap = Bootstrap::default();
                let of = |sample: &[f64]| {
                    bootstrap.percentile(sample, Statistic::Median, 0.95).map(|i| [i.low, i.high]).unwrap()
                };
                let got = covered(n, truth, draw, of);
                // Four standard errors.
                let error = (percent * (100.0 - percent) / f64::from(REPEATS)).sqrt();
                assert!((got - percent).abs() < 4.0 * error, "n {n}, {shape}: {got} %");
            }
        }
    }
}
