//! Intervals that say what a sample supports.
//!
//! - Of a share: Wilson's score interval (Wilson 1927; recommended by Brown, Cai and DasGupta 2001), or Clopper and
//!   Pearson's, which never covers less than it says.
//! - Of a quantile: between two order statistics, whatever the distribution (David and Nagaraja, *Order
//!   Statistics*, 3rd ed., 7.1).
//!
//! Requests beside each other share their fate: a queue that is long for one is long for the next. Where the
//! outcomes in order of arrival are correlated beyond chance, the sample counts as fewer independent
//! requests, see [`design_effect`]; where repeats differ by more than chance, see [`dispersion`].

use super::special::{beta_quantile, binomial_cdf};

/// Wilson's score interval of a share seen in a sample that counts as `n` independent ones, for `z` standard
/// deviations; the whole of 0 to 1 for n = 0.
#[must_use]
pub fn wilson(share: f64, n: f64, z: f64) -> [f64; 2] {
    if n <= 0.0 {
        return [0.0, 1.0];
    }
    let z2 = z * z;
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    // At 0 and 1 the bound is exact; rounding must not move it.
    let low = if share <= 0.0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if share >= 1.0 { 1.0 } else { (middle + half).min(1.0) };
    [low, high]
}

/// Clopper and Pearson's interval (1934) of the share behind `hits` of `n`: at least the confidence, whatever the
/// share; the whole of 0 to 1 for n = 0.
#[must_use]
pub fn clopper_pearson(hits: u64, n: u64, confidence: f64) -> [f64; 2] {
    let tail = (1.0 - confidence) / 2.0;
    let (k, rest) = (hits as f64, n.saturating_sub(hits) as f64);
    let low = if hits == 0 { 0.0 } else { beta_quantile(tail, k, rest + 1.0) };
    let high = if hits >= n { 1.0 } else { beta_quantile(1.0 - tail, k + 1.0, rest) };
    [low, high]
}

/// The order statistics, counted from 1, between which the quantile `p` lies with the given confidence at least,
/// in a sample of `n`. `None` on a side where no value of the sample is far enough out: of 367 values none bounds
/// the 99th percentile from above at 95 %.
#[must_use]
pub fn quantile_ranks(n: u64, p: f64, confidence: f64) -> [Option<u64>; 2] {
    let tail = (1.0 - confidence) / 2.0;
    // X(l) lies above the quantile only if fewer than l values are below it: l is the largest with
    // P(B ≤ l − 1) ≤ tail, for B binomial of n and p.
    let low = smallest(n, |k| binomial_cdf(k, n, p) >= tail).filter(|l| *l >= 1);
    // X(u) lies below it only if u values or more are: u is the smallest with P(B ≥ u) ≤ tail.
    let high = smallest(n, |k| binomial_cdf(k, n, p) >= 1.0 - tail).map(|k| k + 1).filter(|u| *u <= n);
    [low, high]
}

/// By how much correlation along a sequence of outcomes widens the variance of their mean:
/// (1 + ρ) / (1 − ρ), ρ the correlation of each outcome with the next, exact for a two-state Markov chain
/// (Klotz 1973). 1 unless ρ exceeds 1.96 / √n, which independent outcomes stay below 97.5 % of the time. At most n.
#[must_use]
pub fn design_effect(outcomes: &[bool]) -> f64 {
    let n = outcomes.len() as f64;
    let mean = outcomes.iter().filter(|x| **x).count() as f64 / n;
    let off = |x: &bool| f64::from(u8::from(*x)) - mean;
    let variance: f64 = outcomes.iter().map(|x| off(x) * off(x)).sum();
    let along: f64 = outcomes.windows(2).map(|w| off(&w[0]) * off(&w[1])).sum();
    let rho = along / variance;
    // Also where all are alike, and so nothing is known of their correlation: NaN compares as false.
    if rho > 1.96 / n.sqrt() { ((1.0 + rho) / (1.0 - rho)).min(n) } else { 1.0 }
}

/// Pearson's dispersion of the shares of repeats about their common share: Σ (k − n·p)² / (n·p·(1 − p)) / (R − 1)
/// (McCullagh and Nelder, *Generalized Linear Models*, 2nd ed., 4.5). Chance alone gives about 1; never less
/// than 1 here. Each repeat is how many of how many.
#[must_use]
pub fn dispersion(repeats: &[(u64, u64)]) -> f64 {
    let (hits, all) = repeats.iter().fold((0, 0), |(k, n), r| (k + r.0, n + r.1));
    let share = hits as f64 / all as f64;
    let variance = share * (1.0 - share);
    if repeats.len() < 2 || variance.is_nan() || variance <= 0.0 {
        return 1.0;
    }
    let squares = repeats.iter().filter(|r| r.1 > 0).map(|(k, n)| {
        let off = *k as f64 - *n as f64 * share;
        off * off / (*n as f64 * variance)
    });
    (squares.sum::<f64>() / (repeats.len() - 1) as f64).max(1.0)
}

/// The smallest k from 0 to n for which a condition holds that, once true, stays true.
fn smallest(n: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = u64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    holds(low).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::deviations;
    use crate::stats::vectors::{Vectors, near};

    #[test]
    fn intervals_of_a_share_are_those_of_statsmodels_and_scipy() {
        let v = Vectors::read("shares");
        for [k, n, confidence, low, high] in v.rows("wilson") {
            let got = wilson(k / n, n, deviations(confidence));
            near(got[0], low, 1e-12);
            near(got[1], high, 1e-12);
        }
        for [k, n, confidence, low, high] in v.rows("clopper_pearson") {
            let got = clopper_pearson(k as u64, n as u64, confidence);
            near(got[0], low, 1e-10);
            near(got[1], high, 1e-10);
        }
        assert_eq!((wilson(0.5, 0.0, 1.96), clopper_pearson(0, 0, 0.95)), ([0.0, 1.0], [0.0, 1.0]));
    }

    /// SciPy 1.18.1: `l = binom.ppf(.025, n, p)`, `u = binom.ppf(.975, n, p) + 1`; beyond 1 and n there is none.
    #[test]
    fn ranks_of_a_quantile_are_those_of_scipys_binomial() {
        for (n, p, low, high) in [
            (200, 0.5, Some(86), Some(115)),
            (200, 0.95, Some(184), Some(197)),
            (200, 0.99, Some(195), None),
            (1000, 0.99, Some(983), Some(997)),
            (368, 0.99, Some(360), Some(368)),
            (367, 0.99, Some(359), None),
            (5000, 0.999, Some(4990), Some(5000)),
            (20, 0.95, Some(17), None),
            (72, 0.95, Some(64), Some(72)),
            (59, 0.95, Some(52), None),
            (1, 0.5, None, None),
            (0, 0.5, None, None),
        ] {
            assert_eq!(quantile_ranks(n, p, 0.95), [low, high], "n {n}, p {p}");
        }
    }

    #[test]
    fn outcomes_in_runs_count_as_fewer_independent_ones() {
        // Ten good then ten bad, ten times over: of 199 neighbours 180 are alike. With mean ½ every deviation is ½
        // in size, so ρ = (180 − 19) · ¼ / (200 · ¼) = 0.805, and (1 + ρ) / (1 − ρ) = 1.805 / 0.195.
        let blocks: Vec<bool> = (0..200).map(|i| i / 10 % 2 == 0).collect();
        near(design_effect(&blocks), 1.805 / 0.195, 1e-9);
        // Outcomes that alternate, or are all alike, are no reason to narrow or widen anything.
        assert_eq!(design_effect(&(0..200).map(|i| i % 2 == 0).collect::<Vec<_>>()), 1.0);
        assert_eq!((design_effect(&[true; 50]), design_effect(&[true]), design_effect(&[])), (1.0, 1.0, 1.0));
        // The most it can say is that they are one.
        assert!(design_effect(&[true, true, true, true, false, false, false, false]) <= 8.0);
    }

    #[test]
    fn repeats_that_differ_by_more_than_chance_are_overdispersed() {
        // p = 0.75, each n·p·(1 − p) = 18.75: (90 − 75)² · 2 / 18.75 / 1 = 24.
        near(dispersion(&[(90, 100), (60, 100)]), 24.0, 1e-12);
        assert_eq!(dispersion(&[(75, 100), (75, 100), (76, 100)]), 1.0);
        assert_eq!((dispersion(&[(9, 10)]), dispersion(&[(10, 10), (10, 10)]), dispersion(&[])), (1.0, 1.0, 1.0));
    }
}
