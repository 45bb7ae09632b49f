use super::*;
use crate::work::{Lengths, Plan, PlanSpec, PlanTenant};

/// 0.999 quantile of Kolmogorov's distribution (`scipy.stats.kstwobign.ppf`), to be divided by √n.
const KS: f64 = 1.949_474_6;
/// 0.999 quantile of chi-square with 19 degrees of freedom (`scipy.stats.chi2.ppf`).
const CHI2_19: f64 = 43.820_196;
/// 0.0005 and 0.9995 quantiles of chi-square with 1999 degrees of freedom.
const CHI2_1999: (f64, f64) = (1_797.469_4, 2_213.632);

fn times(process: ArrivalProcess, extent: Extent, seed: u64) -> Vec<f64> {
    let (input, output) = (Lengths::fixed(1), Lengths::fixed(1));
    let tenants = vec![PlanTenant::new("a", 1.0, crate::slo::Slo::default())];
    let plan = Plan::generate(&PlanSpec { seed, process, extent, input, output, tenants }).unwrap();
    plan.arrivals().iter().map(|a| a.at.as_secs_f64()).collect()
}

fn lasting(seconds: f64) -> Extent {
    Extent::Duration(Span::from_secs_f64(seconds))
}

/// The gaps, the one before the first arrival among them.
fn gaps(times: &[f64]) -> Vec<f64> {
    std::iter::once(&0.0).chain(times).zip(times).map(|(before, at)| at - before).collect()
}

/// The largest distance between the sample's distribution and `cdf`, times √n.
fn kolmogorov(mut sample: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let distance = sample.iter().enumerate().map(|(i, x)| {
        let p = cdf(*x);
        (p - i as f64 / n).max((i + 1) as f64 / n - p)
    });
    distance.fold(0.0, f64::max) * n.sqrt()
}

/// Σ (count − mean)² / mean over equal parts of the time: chi-square of one degree less than parts for a Poisson
/// process.
fn dispersion(times: &[f64], parts: usize, window: f64) -> f64 {
    let mut counts = vec![0.0; parts];
    for at in times {
        counts[((at / window * parts as f64) as usize).min(parts - 1)] += 1.0;
    }
    let mean = times.len() as f64 / parts as f64;
    counts.iter().map(|n| (n - mean) * (n - mean) / mean).sum()
}

#[test]
fn poisson_arrivals_pass_kolmogorov_and_dispersion_tests_at_low_and_high_rates() {
    for rate in [10.0, 1000.0] {
        // 20,000 arrivals are expected, in 2,000 parts.
        let window = 20_000.0 / rate;
        let times = times(ArrivalProcess::Poisson { rate }, lasting(window), 7);
        let d = kolmogorov(gaps(&times), |gap| 1.0 - libm::exp(-gap * rate));
        assert!(d < KS, "rate {rate}: {d}");
        let uniform = kolmogorov(times.clone(), |at| at / window);
        assert!(uniform < KS, "rate {rate}: {uniform}");
        let spread = dispersion(&times, 2000, window);
        assert!((CHI2_1999.0..CHI2_1999.1).contains(&spread), "rate {rate}: {spread}");
    }
}

#[test]
fn gamma_gaps_have_the_distribution_of_their_shape_at_low_and_high_rates() {
    // P(k, kx) in closed form: erf √y for k = ½, 1 − e^−y Σ y^i / i! for whole k.
    let half = |y: f64| libm::erf(y.sqrt());
    let two = |y: f64| 1.0 - libm::exp(-y) * (1.0 + y);
    let four = |y: f64| 1.0 - libm::exp(-y) * (1.0 + y + y * y / 2.0 + y * y * y / 6.0);
    let shapes: [(f64, &dyn Fn(f64) -> f64); 3] = [(0.5, &half), (2.0, &two), (4.0, &four)];
    for rate in [10.0, 1000.0] {
        for (burstiness, cdf) in shapes {
            let times = times(ArrivalProcess::Gamma { rate, burstiness }, lasting(20_000.0 / rate), 11);
            let d = kolmogorov(gaps(&times), |gap| cdf(gap * rate * burstiness));
            assert!(d < KS, "rate {rate}, shape {burstiness}: {d}");
        }
    }
}

/// Quantiles of gaps at a rate of 1, at 5 %, 10 % … 95 %: `scipy.stats.gamma.ppf(q, shape) / shape`, SciPy 1.17.1.
const GAMMA_QUANTILES: [(f64, [f64; 19]); 2] = [
    (
        0.25,
        [
            1.687_430_168e-5,
            0.000_270_002_495,
            0.001_367_187_59,
            0.004_323_542_923,
            0.010_568_708_42,
            0.021_965_209_9,
            0.040_846_794_29,
            0.070_089_549_56,
            0.113_234_956_7,
            0.174_695_209_4,
            0.260_092_209,
            0.376_823_494_2,
            0.535_036_536,
            0.749_392_913_5,
            1.042_504_008,
            1.452_341_012,
            2.050_746_053,
            3.001_571_489,
            4.840_464_55,
        ],
    ),
    (
        3.7,
        [
            0.322_953_411_2,
            0.417_935_357_4,
            0.492_404_046_8,
            0.557_943_788_9,
            0.618_852_083,
            0.677_358_417_2,
            0.734_880_662_4,
            0.792_476_675_6,
            0.851_054_376_8,
            0.911_496_760_3,
            0.974_761_094_1,
            1.041_985_395,
            1.114_634_487,
            1.194_737_351,
            1.285_325_159,
            1.391_345_997,
            1.521_891_676,
            1.697_006_033,
            1.979_326_331,
        ],
    ),
];

#[test]
fn gamma_gaps_fall_between_the_reference_quantiles_equally_often() {
    for (burstiness, quantiles) in GAMMA_QUANTILES {
        let times = times(ArrivalProcess::Gamma { rate: 10.0, burstiness }, lasting(4000.0), 5);
        let mut counts = [0.0; 20];
        for gap in gaps(&times) {
            counts[quantiles.partition_point(|q| *q <= gap * 10.0)] += 1.0;
        }
        let expected = times.len() as f64 / 20.0;
        let chi2: f64 = counts.iter().map(|n| (n - expected) * (n - expected) / expected).sum();
        assert!(chi2 < CHI2_19, "shape {burstiness}: {chi2}");
    }
}

#[test]
fn burstiness_spreads_counts_as_the_inverse_of_the_shape() {
    for burstiness in [0.25, 4.0] {
        // 500 parts of 400 arrivals: the variance of a renewal count is mean / shape (Cox 1962, section 4.2).
        let times = times(ArrivalProcess::Gamma { rate: 100.0, burstiness }, lasting(2000.0), 3);
        let index = dispersion(&times, 500, 2000.0) / 499.0;
        // Four standard errors of a variance of 500 values.
        let error = 4.0 * (2.0f64 / 499.0).sqrt();
        assert!((index * burstiness - 1.0).abs() < error, "shape {burstiness}: {index}");
    }
}

#[test]
fn a_counted_gamma_plan_ends_at_count_over_rate() {
    let times = times(ArrivalProcess::Gamma { rate: 16.0, burstiness: 0.3 }, Extent::Count(200), 7);
    assert_eq!((times.len(), times[199]), (200, 12.5));
}

/// Σ (count − expected)² / expected over pieces of the time, against a chi-square's mean and four of its deviations.
fn expect_counts(times: &[f64], pieces: &[(f64, f64, f64)]) {
    let count = |from: f64, to: f64| times.iter().filter(|t| (from..to).contains(*t)).count() as f64;
    let chi2: f64 = pieces.iter().map(|(from, to, n)| (count(*from, *to) - n) * (count(*from, *to) - n) / n).sum();
    let degrees = pieces.len() as f64;
    assert!(chi2 < degrees + 4.0 * (2.0 * degrees).sqrt(), "{chi2}");
}

#[test]
fn a_ramp_has_at_each_time_the_rate_that_lies_between_its_ends() {
    for (from, to, window) in [(2.0, 38.0, 1000.0), (1500.0, 500.0, 20.0), (0.0, 40.0, 1000.0), (30.0, 0.0, 1000.0)] {
        let times = times(ArrivalProcess::Ramp { from, to }, lasting(window), 23);
        // ∫ (from + (to − from) t / window) dt
        let expected = |t: f64| from * t + (to - from) * t * t / (2.0 * window);
        let d = kolmogorov(times.clone(), |t| expected(t) / expected(window));
        assert!(d < KS, "{from} to {to}: {d}");
        let edge = |i: u32| window * f64::from(i) / 10.0;
        let piece = |i: u32| (edge(i), edge(i + 1), expected(edge(i + 1)) - expected(edge(i)));
        expect_counts(&times, &(0..10).map(piece).collect::<Vec<_>>());
    }
}

#[test]
fn steps_hold_each_rate_for_its_time_and_pause_where_it_is_0() {
    let step = |rate, seconds| Step { rate, length: Span::from_secs(seconds) };
    let steps = vec![step(10.0, 200), step(0.0, 100), step(50.0, 100), step(5.0, 100)];
    let process = ArrivalProcess::Steps { steps };
    assert_eq!(process.rate(), Some(15.0));
    // The last rate goes on.
    let times = times(process, lasting(700.0), 5);
    expect_counts(&times, &[(0.0, 200.0, 2000.0), (300.0, 400.0, 5000.0), (400.0, 700.0, 1500.0)]);
    assert_eq!(times.iter().filter(|t| (200.0..300.0).contains(*t)).count(), 0);
    let d = kolmogorov(times.into_iter().filter(|t| (300.0..400.0).contains(t)).collect(), |t| (t - 300.0) / 100.0);
    assert!(d < KS, "{d}");
}

#[test]
fn counted_ramps_and_steps_end_where_as_many_are_expected() {
    let step = |rate, seconds| Step { rate, length: Span::from_secs(seconds) };
    let steps = ArrivalProcess::Steps { steps: vec![step(10.0, 10), step(20.0, 10)] };
    assert_eq!(times(steps.clone(), Extent::Count(200), 1).last(), Some(&15.0));
    assert_eq!(steps.window(Extent::Count(400)), Span::from_secs(25));
    let ramp = ArrivalProcess::Ramp { from: 0.0, to: 20.0 };
    assert_eq!(ramp.window(Extent::Count(100)), Span::from_secs(10));
    assert_eq!(times(ramp, Extent::Count(100), 1).last(), Some(&10.0));
}

#[test]
fn bursts_come_all_at_once_from_the_start() {
    let bursts = ArrivalProcess::Bursts { size: 3, every: Span::from_secs(10) };
    assert_eq!(times(bursts.clone(), Extent::Count(7), 1), [0.0, 0.0, 0.0, 10.0, 10.0, 10.0, 20.0]);
    assert_eq!(times(bursts.clone(), lasting(20.0), 1), [0.0, 0.0, 0.0, 10.0, 10.0, 10.0]);
    assert_eq!((bursts.rate(), bursts.window(Extent::Count(6))), (Some(0.3), Span::from_secs(20)));
}

#[test]
fn faster_time_keeps_the_arrivals_of_every_process_in_proportion() {
    let step = |rate, seconds| Step { rate, length: Span::from_secs(seconds) };
    for process in [
        ArrivalProcess::Constant { rate: 4.0 },
        ArrivalProcess::Gamma { rate: 4.0, burstiness: 0.5 },
        ArrivalProcess::Steps { steps: vec![step(1.0, 40), step(7.0, 40)] },
        ArrivalProcess::Ramp { from: 1.0, to: 7.0 },
        ArrivalProcess::Bursts { size: 5, every: Span::from_secs(2) },
    ] {
        let slow = times(process.clone(), lasting(80.0), 9);
        let fast = times(process.clone().sped_up(8.0), lasting(10.0), 9);
        assert_eq!(slow.len(), fast.len(), "{process}");
        assert!(slow.iter().zip(&fast).all(|(s, f)| (s / 8.0 - f).abs() < 1e-6), "{process}");
    }
}

#[test]
fn a_plan_is_the_same_on_every_thread() {
    let processes = || {
        [
            ArrivalProcess::Gamma { rate: 1000.0, burstiness: 0.25 },
            ArrivalProcess::Ramp { from: 10.0, to: 1000.0 },
            ArrivalProcess::Poisson { rate: 1000.0 },
        ]
    };
    let draw = move || processes().map(|p| times(p, lasting(5.0), 42));
    let here = draw();
    let elsewhere: Vec<_> = (0..8).map(|_| std::thread::spawn(draw)).collect();
    assert!(elsewhere.into_iter().all(|thread| thread.join().unwrap() == here));
}

#[test]
fn parameters_out_of_range_are_refused_with_what_would_be_right() {
    let step = |rate, seconds| Step { rate, length: Span::from_secs(seconds) };
    for (process, says) in [
        (ArrivalProcess::Gamma { rate: 1.0, burstiness: 0.0 }, "burstiness must be 0.01 or more"),
        (ArrivalProcess::Gamma { rate: 1.0, burstiness: f64::INFINITY }, "burstiness must be"),
        (ArrivalProcess::Gamma { rate: -1.0, burstiness: 1.0 }, "rate must be above 0"),
        (ArrivalProcess::Steps { steps: vec![] }, "last step needs a rate above 0"),
        (ArrivalProcess::Steps { steps: vec![step(1.0, 1), step(0.0, 1)] }, "last step needs a rate above 0"),
        (ArrivalProcess::Steps { steps: vec![step(1.0, 0)] }, "a length above 0"),
        (ArrivalProcess::Ramp { from: 0.0, to: 0.0 }, "not both 0"),
        (ArrivalProcess::Ramp { from: -1.0, to: 5.0 }, "not -1 to 5"),
        (ArrivalProcess::Bursts { size: 0, every: Span::from_secs(1) }, "bursts need 1 request"),
        (ArrivalProcess::Bursts { size: 1, every: Span::ZERO }, "a time between them"),
    ] {
        let problem = process.problem().unwrap_or_default();
        assert!(problem.contains(says), "{process:?}: {problem}");
    }
}
