//! Where a curve of shares over rates falls below a target.

use libm::{exp, log};

/// The knee of a sweep: the highest rate up to which, at every rate that was tried, the share is at least `target`.
/// `None` if it is missed at the lowest rate already. The points are (rate, share), in any order.
#[must_use]
pub fn knee(points: impl IntoIterator<Item = (f64, f64)>, target: f64) -> Option<f64> {
    let points = sorted(points);
    points.into_iter().take_while(|(_, share)| *share >= target).last().map(|(rate, _)| rate)
}

/// The rate at which the shares cross the target, by the curve that falls with the rate and fits them best (least
/// squares by pooling adjacent violators, Ayer et al. 1955), straight over the rate's logarithm between two rates.
/// `None` unless the curve reaches the target and falls below it. The points are (rate, share, weight).
#[must_use]
pub fn crossing(points: &[(f64, f64, f64)], target: f64) -> Option<f64> {
    let fitted = falling(points);
    let below = fitted.iter().position(|(_, share)| *share < target)?;
    let (under, share_under) = fitted[below];
    let (over, share_over) = *fitted.get(below.checked_sub(1)?)?;
    let part = (share_over - target) / (share_over - share_under);
    Some(exp(log(over) + part * (log(under) - log(over))))
}

fn sorted(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = points.into_iter().collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// The fitted share at each rate, by rate.
fn falling(points: &[(f64, f64, f64)]) -> Vec<(f64, f64)> {
    struct Block {
        share: f64,
        weight: f64,
        rates: Vec<f64>,
    }
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut blocks: Vec<Block> = Vec::new();
    for (rate, share, weight) in points {
        let mut block = Block { share, weight, rates: vec![rate] };
        while let Some(last) = blocks.pop_if(|last| last.share < block.share) {
            let weight = last.weight + block.weight;
            let share = (last.share * last.weight + block.share * block.weight) / weight;
            block = Block { share, weight, rates: [last.rates, block.rates].concat() };
        }
        blocks.push(block);
    }
    blocks.into_iter().flat_map(|block| block.rates.into_iter().map(move |rate| (rate, block.share))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_last_rate_before_the_target_is_first_missed() {
        let points = [(4.0, 1.0), (12.0, 0.5), (8.0, 0.96), (16.0, 0.97)];
        assert_eq!((knee(points, 0.95), knee(points, 0.99), knee(points, 1.1)), (Some(8.0), Some(4.0), None));
    }

    #[test]
    fn the_crossing_lies_between_the_rates_in_proportion_to_their_logarithms() {
        // Half way down between 4 and 16: at their geometric mean.
        let at = crossing(&[(4.0, 1.0, 1.0), (16.0, 0.9, 1.0)], 0.95).unwrap();
        assert!((at - 8.0).abs() < 1e-9, "{at}");
        assert_eq!(crossing(&[(4.0, 1.0, 1.0), (16.0, 0.96, 1.0)], 0.95), None);
        assert_eq!(crossing(&[(4.0, 0.9, 1.0)], 0.95), None);
    }

    #[test]
    fn shares_that_rise_with_the_rate_are_pooled_by_weight() {
        // 8 and 9 pool to (0.90 · 1 + 0.94 · 3) / 4 = 0.93.
        assert_eq!(
            falling(&[(9.0, 0.94, 3.0), (4.0, 1.0, 1.0), (8.0, 0.90, 1.0)])
                .into_iter()
                .map(|(rate, share)| (rate, (share * 1e6).round() / 1e6))
                .collect::<Vec<_>>(),
            [(4.0, 1.0), (8.0, 0.93), (9.0, 0.93)]
        );
    }
}
