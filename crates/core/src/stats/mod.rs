//! The statistics that figures and decisions are made of.
//!
//! Pure functions of their arguments: a bootstrap draws from a seed, and logarithms come from `libm`, so that a
//! sample gives the same digits on every machine. Agreement with NumPy, SciPy and statsmodels is tested on the
//! vectors that `scripts/stats_vectors.py` writes.
//!
//! | module | what it holds |
//! |---|---|
//! | here | quantiles, mean and spread, Jain's index |
//! | [`proportion`] | intervals of a share and of a quantile of one sample |
//! | [`resample`] | the percentile bootstrap of a median or a mean |
//! | [`paired`] | intervals and tests of paired differences |
//! | [`power`] | the smallest effect that so many pairs show, and how many pairs an effect takes |

pub mod paired;
pub mod power;
pub mod proportion;
pub mod resample;
mod special;
#[cfg(test)]
mod vectors;

pub use special::deviations;

/// The quantile `p` of an ascending sample by linear interpolation between order statistics: NumPy's
/// default, type 7 of Hyndman and Fan (1996), at the place (n − 1) · p. `None` for an empty sample.
#[must_use]
pub fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = last as f64 * p.clamp(0.0, 1.0);
    let below = (libm::floor(place) as usize).min(last);
    let above = (below + 1).min(last);
    let part = place - below as f64;
    Some(sorted[below] + (sorted[above] - sorted[below]) * part)
}

/// The median: the middle value, or the mean of the two in the middle. `None` for an empty sample.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(&ascending(values), 0.5)
}

/// The arithmetic mean; `None` of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of a sample, with n − 1; `None` for fewer than two values.
#[must_use]
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() >= 2)?;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    Some(libm::sqrt(squares / (values.len() - 1) as f64))
}

/// The distance between the quartiles, both by [`quantile`]; `None` for fewer than two values.
#[must_use]
pub fn quartile_range(values: &[f64]) -> Option<f64> {
    let sorted = ascending(values);
    let range = quantile(&sorted, 0.75)? - quantile(&sorted, 0.25)?;
    (values.len() >= 2).then_some(range)
}

/// The same values in ascending order.
fn ascending(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Jain's index (Σx)² / (n · Σx²): 1 when all are equal, 1/n when one has everything (Jain, Chiu and Hawe 1984).
///
/// `None` for fewer than two values, where there is nothing to compare, and where all are 0, where it is 0/0.
#[must_use]
pub fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|x| x * x).sum();
    (values.len() >= 2 && squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// The root of the mean square; `None` of nothing.
#[must_use]
pub fn root_mean_square(values: &[f64]) -> Option<f64> {
    let squares: f64 = values.iter().map(|x| x * x).sum();
    (!values.is_empty()).then(|| libm::sqrt(squares / values.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::vectors::{Vectors, near, number, numbers};
    use super::*;

    #[test]
    fn figures_of_a_sample_are_those_of_numpy() {
        for case in Vectors::read("samples").cases("samples") {
            let sample = numbers(&case["sample"]);
            for (p, expected) in case["quantiles"].as_object().unwrap() {
                let got = quantile(&ascending(&sample), p.parse().unwrap()).unwrap();
                near(got, expected.as_f64().unwrap(), 1e-9);
            }
            for (name, got) in [
                ("mean", mean(&sample)),
                ("median", median(&sample)),
                ("deviation", deviation(&sample)),
                ("quartile_range", quartile_range(&sample)),
                ("jain", jain(&sample)),
            ] {
                near(got.unwrap(), number(case, name), 1e-9);
            }
        }
        assert_eq!((median(&[]), mean(&[]), deviation(&[1.0]), quartile_range(&[1.0])), (None, None, None, None));
    }

    #[test]
    fn a_quantile_lies_between_its_neighbours_in_proportion() {
        let sorted = [1.0, 2.0, 4.0, 8.0];
        // 0.95 · 3 = 2.85: 4 + 0.85 · (8 − 4)
        assert!((quantile(&sorted, 0.95).unwrap() - 7.4).abs() < 1e-12);
        assert_eq!((quantile(&sorted, 0.0), quantile(&sorted, 1.0), quantile(&[], 0.5)), (Some(1.0), Some(8.0), None));
    }

    #[test]
    fn jains_index_is_one_for_equals_and_absent_where_nobody_is_served() {
        assert_eq!(jain(&[0.5, 0.5]), Some(1.0));
        assert_eq!(jain(&[0.5, 0.0]), Some(0.5));
        assert_eq!((jain(&[0.5]), jain(&[0.0, 0.0])), (None, None));
    }

    #[test]
    fn the_root_of_the_mean_square_counts_both_signs() {
        assert_eq!(root_mean_square(&[3.0, -3.0]), Some(3.0));
        assert_eq!(root_mean_square(&[]), None);
    }
}
