//! Distribution functions and their inverses.

use std::f64::consts::{PI, SQRT_2};

/// How far an interval of a normal variable reaches to each side, in standard deviations, for a two-sided
/// confidence strictly between 0 and 1. 1.96 for 0.95.
#[must_use]
pub fn deviations(confidence: f64) -> f64 {
    // P(|Z| > z) = erfc(z / √2) falls from 1 to 0.
    crossing(0.0, 40.0, |z| libm::erfc(z / SQRT_2) <= 1.0 - confidence)
}

/// P(Z ≤ z) of a standard normal variable.
pub(super) fn normal_cdf(z: f64) -> f64 {
    0.5 * libm::erfc(-z / SQRT_2)
}

/// The density of a standard normal variable.
pub(super) fn normal_density(z: f64) -> f64 {
    libm::exp(-0.5 * z * z) / libm::sqrt(2.0 * PI)
}

/// P(|T| ≥ |t|) of Student's t with `freedom` degrees of freedom, above 0 (Abramowitz and Stegun 26.7.1, 26.5.27).
pub(super) fn student_tails(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// How far an interval of Student's t reaches to each side for a two-sided confidence strictly between 0 and 1.
pub(super) fn student_deviations(confidence: f64, freedom: f64) -> f64 {
    let mut most = 1.0;
    while student_tails(most, freedom) > 1.0 - confidence && most < 1e12 {
        most *= 2.0;
    }
    crossing(0.0, most, |t| student_tails(t, freedom) <= 1.0 - confidence)
}

/// P(B ≤ k) for B binomial of `n` and `p`, strictly between 0 and 1.
pub(super) fn binomial_cdf(k: u64, n: u64, p: f64) -> f64 {
    if k >= n { 1.0 } else { incomplete_beta((n - k) as f64, (k + 1) as f64, 1.0 - p) }
}

/// The `p` quantile of the beta distribution of `a` and `b`, both above 0.
pub(super) fn beta_quantile(p: f64, a: f64, b: f64) -> f64 {
    crossing(0.0, 1.0, |x| incomplete_beta(a, b, x) >= p)
}

/// The regularised incomplete beta function by its continued fraction, evaluated as Lentz does (Abramowitz and
/// Stegun 26.5.8).
pub(super) fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast only below the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * libm::log(x) + b * libm::log1p(-x);
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..MAX_TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            change = d * c;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    libm::exp(front) * fraction / a
}

/// Terms of the continued fraction; it needs about √max(a, b).
const MAX_TERMS: u32 = 20_000;

/// Where a condition that does not hold at `low` and, once true, stays true begins to hold, to within what a
/// float can tell; `high` if it never does.
pub(super) fn crossing(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::vectors::{Vectors, near};

    #[test]
    fn distributions_and_their_inverses_are_those_of_scipy() {
        let v = Vectors::read("distributions");
        for [confidence, z] in v.rows("deviations") {
            near(deviations(confidence), z, 1e-12);
        }
        for [z, cdf] in v.rows("normal_cdf") {
            near(normal_cdf(z), cdf, 1e-14);
        }
        for [t, freedom, tails] in v.rows("student_tails") {
            near(student_tails(t, freedom), tails, 1e-12);
        }
        for [confidence, freedom, t] in v.rows("student_deviations") {
            near(student_deviations(confidence, freedom) / t, 1.0, 1e-10);
        }
        for [a, b, x, value] in v.rows("incomplete_beta") {
            near(incomplete_beta(a, b, x), value, 1e-9);
        }
        for [k, n, p, cdf] in v.rows("binomial_cdf") {
            near(binomial_cdf(k as u64, n as u64, p), cdf, 1e-10);
        }
    }

    #[test]
    fn a_density_is_the_slope_of_its_distribution() {
        for z in [-2.5, -0.3, 0.0, 1.7] {
            let slope = (normal_cdf(z + 1e-6) - normal_cdf(z - 1e-6)) / 2e-6;
            near(normal_density(z), slope, 1e-9);
        }
    }
}
