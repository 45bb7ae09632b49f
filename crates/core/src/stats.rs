//! The few statistics that figures are made of.

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
    use super::*;

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
