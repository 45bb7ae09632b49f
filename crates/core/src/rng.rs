//! Seeded random numbers with documented streams.
//!
//! The generator is ChaCha with 8 rounds. A stream number separates the uses of one seed, so that
//! drawing more lengths never moves the arrivals. Logarithms come from `libm`, not from the
//! platform, so that a seed gives the same plan everywhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The uses of a seed, each a stream of its own.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Gaps between arrivals.
    Arrivals,
    /// Input and output lengths.
    Lengths,
    /// The choice of tenant.
    Tenants,
    /// The contents of prompts.
    Prompts,
    /// Spread of retry times.
    Jitter,
    /// Choices made by tests and fault plans.
    Test,
    /// Turns of conversations and the time between them.
    Turns,
    /// Which prefix or text of several a prompt has.
    Texts,
    /// Which observations a resample of a bootstrap holds.
    Resamples,
}

/// A seeded source of random numbers.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The numbers of `stream` under `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: Stream) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream as u64);
        Self(rng)
    }

    /// A uniform integer over all values.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number in [0, 1) with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform integer in `low..=high`; `low` if the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let Some(width) = high.checked_sub(low) else { return low };
        let Some(count) = width.checked_add(1) else { return self.0.next_u64() };
        // Multiply-shift (Lemire 2019, without the rejection step: the bias is below count / 2^64).
        low + ((u128::from(self.0.next_u64()) * u128::from(count)) >> 64) as u64
    }

    /// An exponential number with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }

    /// A normal number with mean 0 and variance 1 (Marsaglia's polar method, 1964).
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * libm::log(square) / square).sqrt();
            }
        }
    }

    /// A gamma number of this shape, above 0, and scale 1: mean and variance are the shape (Marsaglia and Tsang
    /// 2000, "A simple method for generating gamma variables").
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let whole = self.gamma(shape + 1.0);
            return whole * libm::pow(1.0 - self.unit(), 1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            if libm::log(1.0 - self.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }
}

/// One 64-bit value mixed from two, for keys that must differ when either does (SplitMix64's finaliser).
#[must_use]
pub const fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_add(b.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |stream| {
            let mut r = Random::new(7, stream);
            [r.next_u64(), r.next_u64()]
        };
        assert_eq!(draw(Stream::Arrivals), draw(Stream::Arrivals));
        assert_ne!(draw(Stream::Arrivals), draw(Stream::Lengths));
    }

    #[test]
    fn exponential_numbers_have_mean_and_variance_of_one() {
        let mut r = Random::new(1, Stream::Test);
        let n = 200_000;
        let xs: Vec<f64> = (0..n).map(|_| r.exponential()).collect();
        let mean = xs.iter().sum::<f64>() / f64::from(n);
        let var = xs.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(n);
        // Four standard errors: of the mean 1/sqrt(n), of the variance sqrt(8/n).
        assert!((mean - 1.0).abs() < 4.0 * (1.0 / f64::from(n)).sqrt(), "{mean}");
        assert!((var - 1.0).abs() < 4.0 * (8.0 / f64::from(n)).sqrt(), "{var}");
    }

    #[test]
    fn gamma_and_normal_numbers_have_their_moments() {
        let n = 200_000u32;
        let moments = |mut draw: Box<dyn FnMut() -> f64>| {
            let xs: Vec<f64> = (0..n).map(|_| draw()).collect();
            let mean = xs.iter().sum::<f64>() / f64::from(n);
            (mean, xs.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(n))
        };
        let mut r = Random::new(1, Stream::Test);
        let (mean, var) = moments(Box::new(move || r.normal()));
        assert!(mean.abs() < 4.0 / f64::from(n).sqrt() && (var - 1.0).abs() < 4.0 * (2.0 / f64::from(n)).sqrt());
        for shape in [0.1, 0.5, 1.0, 2.5, 50.0] {
            let mut r = Random::new(2, Stream::Test);
            let (mean, var) = moments(Box::new(move || r.gamma(shape)));
            // Four standard errors; the fourth central moment of a gamma is 3 k² + 6 k.
            let error = (shape / f64::from(n)).sqrt();
            assert!((mean - shape).abs() < 4.0 * error, "{shape}: {mean}");
            let error = ((2.0 * shape * shape + 6.0 * shape) / f64::from(n)).sqrt();
            assert!((var - shape).abs() < 4.0 * error, "{shape}: {var}");
        }
    }

    #[test]
    fn a_range_includes_both_ends() {
        let mut r = Random::new(3, Stream::Test);
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| r.between(4, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [4, 5, 6]);
        assert_eq!(r.between(9, 2), 9);
    }
}
