use super::*;
use crate::rng::Stream;

fn draw(length: &Length, n: usize) -> Vec<f64> {
    let mut random = Random::new(4, Stream::Lengths);
    (0..n).map(|_| f64::from(length.draw(&mut random))).collect()
}

const WIDE: Lengths = Lengths { low: 1, high: 1_000_000 };

/// Deciles of a log-normal of median 256 and σ 0.8: `scipy.stats.lognorm.ppf(q, 0.8, scale=256)`, SciPy 1.17.1.
const DECILES: [f64; 9] =
    [91.829_738, 130.566_21, 168.284_674, 209.034_595, 256.0, 313.517_483, 389.435_344, 501.936_908, 713.668_591];

#[test]
fn log_normal_lengths_fall_between_the_reference_deciles_equally_often() {
    let lengths = draw(&Length::LogNormal { median: 256.0, sigma: 0.8, bounds: WIDE }, 20_000);
    let mut counts = [0.0; 10];
    for length in lengths {
        counts[DECILES.partition_point(|d| *d <= length)] += 1.0;
    }
    // Rounding to whole tokens moves up to half a token's share, about 1 in 200 of a bin, over an edge.
    let chi2: f64 = counts.iter().map(|n| (n - 2000.0) * (n - 2000.0) / 2000.0).sum();
    // scipy.stats.chi2.ppf(0.999, 9)
    assert!(chi2 < 27.877, "{chi2} {counts:?}");
}

#[test]
fn lengths_outside_the_bounds_are_put_on_the_nearer_one() {
    let n = 40_000;
    let bounds = Lengths { low: 16, high: 1024 };
    let lengths = draw(&Length::LogNormal { median: 256.0, sigma: 0.8, bounds }, n);
    assert!(lengths.iter().all(|l| (16.0..=1024.0).contains(l)));
    // Mean, deviation and share at the upper bound of the clipped, rounded distribution, by SciPy's cdf.
    let mean = lengths.iter().sum::<f64>() / n as f64;
    assert!((mean - 333.2505).abs() < 4.0 * 250.6686 / (n as f64).sqrt(), "{mean}");
    let top = lengths.iter().filter(|l| **l == 1024.0).count() as f64 / n as f64;
    let share: f64 = 0.041_613_867;
    assert!((top - share).abs() < 4.0 * (share * (1.0 - share) / n as f64).sqrt(), "{top}");
}

#[test]
fn a_mean_and_a_deviation_give_the_log_normal_that_has_them() {
    let Length::LogNormal { median, sigma, .. } = Length::log_normal_of_mean(500.0, 400.0, WIDE) else { panic!() };
    // NumPy: exp(ln(500) − s²/2) and s with s² = log1p(0.8²).
    assert!((median - 390.434_404_721).abs() < 1e-6 && (sigma - 0.703_346_459).abs() < 1e-8, "{median} {sigma}");
    let n = 200_000;
    let mean = draw(&Length::log_normal_of_mean(500.0, 400.0, WIDE), n).iter().sum::<f64>() / n as f64;
    assert!((mean - 500.0).abs() < 4.0 * 400.0 / (n as f64).sqrt(), "{mean}");
}

#[test]
fn measured_pairs_stay_together_and_come_equally_often() {
    let pairs = Pairs::from_csv("input_tokens,output_tokens\n10,1\n20,2\n30,3\n", "a test").unwrap();
    let sizes = Sizes::Empirical(Arc::new(pairs));
    let mut random = Random::new(4, Stream::Lengths);
    let mut counts = [0u32; 3];
    for _ in 0..30_000 {
        let (input, output) = sizes.draw(&mut random);
        assert_eq!(input, output * 10);
        counts[output as usize - 1] += 1;
    }
    // Four standard errors of a binomial of 30,000 and 1/3.
    assert!(counts.iter().all(|n| n.abs_diff(10_000) < 327), "{counts:?}");
}

#[test]
fn a_file_of_pairs_that_is_not_right_is_refused_with_its_line() {
    for (text, says) in [
        ("10,1\n", "line 1: the header is '10,1', but must be 'input_tokens,output_tokens'"),
        ("input_tokens,output_tokens\n", "no rows"),
        ("input_tokens,output_tokens\n10,0\n", "line 2: output_tokens is 0"),
        ("input_tokens,output_tokens\n10,1\n10\n", "line 3: 1 fields, but 2 belong there"),
        ("input_tokens,output_tokens\nten,1\n", "line 2: input_tokens is 'ten'"),
    ] {
        let error = Pairs::from_csv(text, "a test").unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn distributions_out_of_range_are_refused() {
    let log_normal = |median, sigma, bounds| Length::LogNormal { median, sigma, bounds };
    for (length, says) in [
        (log_normal(0.0, 0.5, WIDE), "median above 0"),
        (log_normal(f64::NAN, 0.5, WIDE), "median above 0"),
        (log_normal(10.0, -0.5, WIDE), "a spread of 0 or more"),
        (log_normal(10.0, 0.5, Lengths { low: 0, high: 9 }), "1 token or more"),
        (Length::Uniform(Lengths { low: 9, high: 3 }), "the low end first, not 9 to 3"),
    ] {
        let problem = length.problem("input").unwrap_or_default();
        assert!(problem.contains(says) && problem.contains("input"), "{length:?}: {problem}");
    }
}
