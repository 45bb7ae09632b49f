//! Exact quantiles, and the rule that says when a sample is large enough for one.

pub use elasticserve_core::stats::quantile;
use elasticserve_core::time::Span;
use serde::Serialize;

/// A sample's size and what it supports, in milliseconds.
///
/// A quantile p is given only where n · (1 − p) ≥ 1, so that at least one value lies beyond it: p50 from
/// n = 2, p95 from n = 20, p99 from n = 100. A figure that the sample does not support is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// How many values there are.
    pub n: usize,
    /// The median, from n = 2.
    pub p50: Option<f64>,
    /// The 95th percentile, from n = 20.
    pub p95: Option<f64>,
    /// The 99th percentile, from n = 100.
    pub p99: Option<f64>,
    /// The arithmetic mean, from n = 1.
    pub mean: Option<f64>,
    /// The largest value, from n = 1.
    pub max: Option<f64>,
}

impl Distribution {
    /// What a sample of lengths of time supports.
    ///
    /// Exact: quantiles are interpolated between the order statistics of all values, and the mean is that of their
    /// sum in nanoseconds.
    #[must_use]
    pub fn of(spans: impl IntoIterator<Item = Span>) -> Self {
        let mut nanos: Vec<u64> = spans.into_iter().map(Span::as_nanos).collect();
        let n = nanos.len();
        let sum: u128 = nanos.iter().map(|v| u128::from(*v)).sum();
        let max = nanos.iter().copied().max();
        Self {
            n,
            p50: supported(&mut nanos, 500),
            p95: supported(&mut nanos, 950),
            p99: supported(&mut nanos, 990),
            mean: (n > 0).then(|| sum as f64 / n as f64 / 1e6),
            max: max.map(|v| Span::from_nanos(v).as_millis_f64()),
        }
    }

    /// The size alone, for a run that is not whole and so has no distribution.
    #[must_use]
    pub fn only_n(n: usize) -> Self {
        Self { n, ..Self::default() }
    }
}

/// The quantile `permille / 1000`, in ms, if the sample supports it. Only the two order statistics that it lies between
/// are put in place.
fn supported(nanos: &mut [u64], permille: usize) -> Option<f64> {
    let n = nanos.len();
    if n * (1000 - permille) < 1000 {
        return None;
    }
    let rank = (n - 1) as f64 * (permille as f64 / 1000.0);
    let low = rank.floor() as usize;
    let (_, at, above) = nanos.select_nth_unstable(low);
    let next = above.iter().copied().min().unwrap_or(*at);
    let ends = [*at, next].map(|v| Span::from_nanos(v).as_millis_f64());
    // The same interpolation as between the values of a sorted sample.
    quantile(&ends, rank - low as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with NumPy 2.4.6:
    ///
    /// ```text
    /// import numpy as np
    /// x = np.random.default_rng(7).lognormal(6, 1, 23).round(3)
    /// print(list(map(float, x)))
    /// print([float(np.quantile(x, p)) for p in (0, .05, .25, .5, .75, .9, .95, .99, 1)], float(x.mean()))
    /// ```
    const VALUES: [f64; 23] = [
        403.925, 543.889, 306.698, 165.572, 256.039, 149.658, 428.437, 1541.044, 246.606, 216.919, 658.419, 576.449,
        448.278, 159.1, 391.799, 808.599, 105.192, 255.286, 60.267, 111.104, 63.96, 318.91, 113.585,
    ];
    const QUANTILES: [(f64, f64); 9] = [
        (0.0, 60.267),
        (0.05, 68.0832),
        (0.25, 154.379),
        (0.5, 256.039),
        (0.75, 438.3575),
        (0.9, 642.0250000000001),
        (0.95, 793.5809999999998),
        (0.99, 1379.9061000000008),
        (1.0, 1541.044),
    ];
    const MEAN: f64 = 362.16239130434775;

    fn sorted() -> Vec<f64> {
        let mut values = VALUES.to_vec();
        values.sort_by(f64::total_cmp);
        values
    }

    #[test]
    fn quantiles_are_those_of_numpy() {
        for (p, expected) in QUANTILES {
            let got = quantile(&sorted(), p).unwrap();
            assert!((got - expected).abs() < 1e-9, "p {p}: {got} where NumPy gives {expected}");
        }
    }

    #[test]
    fn a_distribution_has_the_quantiles_and_the_mean_of_numpy() {
        let d = Distribution::of(VALUES.map(Span::from_millis_f64));
        let near = |got: Option<f64>, expected: f64| (got.unwrap() - expected).abs() < 1e-6;
        assert_eq!(d.n, 23);
        assert!(near(d.p50, QUANTILES[3].1) && near(d.p95, QUANTILES[6].1) && near(d.max, QUANTILES[8].1), "{d:?}");
        assert!(near(d.mean, MEAN), "{d:?}");
    }

    #[test]
    fn a_quantile_that_n_cannot_support_is_absent() {
        let of = |n: u64| Distribution::of((0..n).map(Span::from_millis));
        let has = |n| [of(n).p50.is_some(), of(n).p95.is_some(), of(n).p99.is_some(), of(n).max.is_some()];
        assert_eq!(has(0), [false, false, false, false]);
        assert_eq!(has(1), [false, false, false, true]);
        assert_eq!(has(2), [true, false, false, true]);
        assert_eq!(has(19), [true, false, false, true]);
        assert_eq!(has(20), [true, true, false, true]);
        assert_eq!(has(99), [true, true, false, true]);
        assert_eq!(has(100), [true, true, true, true]);
    }

    #[test]
    fn a_missing_figure_is_null_never_zero() {
        let json = serde_json::to_value(Distribution::of([])).unwrap();
        assert_eq!(json, serde_json::json!({"n": 0, "p50": null, "p95": null, "p99": null, "mean": null, "max": null}));
    }
}
