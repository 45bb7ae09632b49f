//! Lengths of prompts and answers, in tokens.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::trace::{TraceError, csv, tokens_field};
use crate::rng::Random;

/// A uniform distribution of whole numbers of tokens, both ends included; equal ends are a fixed length.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// The shortest.
    pub low: u32,
    /// The longest.
    pub high: u32,
}

impl Lengths {
    /// Always the same length.
    #[must_use]
    pub const fn fixed(tokens: u32) -> Self {
        Self { low: tokens, high: tokens }
    }

    /// Within a ratio of a length, as `--random-range-ratio` of `vllm bench serve` means it:
    /// from `tokens · (1 − ratio)` to `tokens · (1 + ratio)`, at least 1.
    #[must_use]
    pub fn around(tokens: u32, ratio: f64) -> Self {
        let tokens = f64::from(tokens);
        Self {
            low: (libm::floor(tokens * (1.0 - ratio)) as u32).max(1),
            high: (libm::ceil(tokens * (1.0 + ratio)) as u32).max(1),
        }
    }

    pub(super) fn problem(&self, what: &str) -> Option<String> {
        if self.low == 0 || self.high < self.low {
            return Some(format!(
                "{what} lengths must be 1 token or more, the low end first, not {} to {}",
                self.low, self.high
            ));
        }
        None
    }

    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        // The result lies between two u32 values.
        random.between(u64::from(self.low), u64::from(self.high)) as u32
    }
}

/// The same for both ends, or from one to the other.
impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, high } = self;
        if low == high { write!(f, "{low}") } else { write!(f, "{low} to {high}") }
    }
}

/// A distribution of lengths in whole tokens.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Length {
    /// Uniform, or fixed.
    Uniform(Lengths),
    /// Log-normal, rounded; what falls outside the bounds is put on the nearer one.
    LogNormal {
        /// The median before it is clipped, above 0.
        median: f64,
        /// The standard deviation of the logarithm, 0 or more.
        sigma: f64,
        /// The shortest and the longest.
        bounds: Lengths,
    },
}

impl Length {
    /// A log-normal distribution of this mean and standard deviation, before it is clipped: σ² = ln(1 + (sd / mean)²)
    /// and median = mean / exp(σ² / 2).
    #[must_use]
    pub fn log_normal_of_mean(mean: f64, sd: f64, bounds: Lengths) -> Self {
        let variance = libm::log1p((sd / mean) * (sd / mean));
        Self::LogNormal { median: mean / libm::exp(variance / 2.0), sigma: variance.sqrt(), bounds }
    }

    pub(super) fn problem(&self, what: &str) -> Option<String> {
        match self {
            Self::Uniform(lengths) => lengths.problem(what),
            Self::LogNormal { median, sigma, bounds } => {
                let good = *median > 0.0 && median.is_finite() && *sigma >= 0.0 && sigma.is_finite();
                let bad = || format!("{what} lengths need a median above 0 and a spread of 0 or more");
                if good { bounds.problem(what) } else { Some(bad()) }
            }
        }
    }

    pub(super) fn draw(&self, random: &mut Random) -> u32 {
        match self {
            Self::Uniform(lengths) => lengths.draw(random),
            Self::LogNormal { median, sigma, bounds } => {
                let tokens = libm::round(median * libm::exp(sigma * random.normal()));
                // Between two u32 values after this.
                tokens.clamp(f64::from(bounds.low), f64::from(bounds.high)) as u32
            }
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform(lengths) => lengths.fmt(f),
            Self::LogNormal { median, sigma, bounds } => {
                write!(f, "log-normal, median {median:.0}, sigma {sigma:.2}, {bounds}")
            }
        }
    }
}

/// How long prompts and answers are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Each for itself.
    Independent {
        /// Prompts.
        input: Length,
        /// Answers.
        output: Length,
    },
    /// Measured pairs, drawn with replacement, so that a long prompt keeps its own answer.
    Empirical(Arc<Pairs>),
}

/// Measured lengths: prompt and answer of one request each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    source: String,
    pairs: Vec<(u32, u32)>,
}

impl Pairs {
    /// The first line of a file of pairs.
    pub const HEADER: &str = "input_tokens,output_tokens";

    /// Reads a CSV file of two columns: [`Self::HEADER`], then one line a request. `source` names it.
    ///
    /// # Errors
    /// [`TraceError`] says which line, what is wrong with it and what would be right.
    pub fn from_csv(text: &str, source: &str) -> Result<Self, TraceError> {
        let pair = |row: Result<(usize, [&str; 2]), TraceError>| {
            let (line, [input, output]) = row?;
            Ok((tokens_field(line, "input_tokens", input)?, tokens_field(line, "output_tokens", output)?))
        };
        let pairs: Vec<(u32, u32)> = csv(text, Self::HEADER)?.map(pair).collect::<Result<_, TraceError>>()?;
        if pairs.is_empty() {
            return Err(TraceError::Whole("it has no rows".into()));
        }
        Ok(Self { source: source.to_owned(), pairs })
    }
}

impl Sizes {
    pub(super) fn problem(&self, whose: &str) -> Option<String> {
        let Self::Independent { input, output } = self else { return None };
        input.problem(&format!("{whose}input")).or_else(|| output.problem(&format!("{whose}output")))
    }

    /// Prompt and answer of one request.
    pub(super) fn draw(&self, random: &mut Random) -> (u32, u32) {
        match self {
            Self::Independent { input, output } => {
                let input = input.draw(random);
                (input, output.draw(random))
            }
            // Read from a file with at least one row.
            Self::Empirical(all) => all.pairs[random.between(0, all.pairs.len() as u64 - 1) as usize],
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Independent { input, output } => write!(f, "input {input}; output {output}"),
            Self::Empirical(all) => write!(f, "pairs of {} ({} rows)", all.source, all.pairs.len()),
        }
    }
}

#[cfg(test)]
mod tests;
