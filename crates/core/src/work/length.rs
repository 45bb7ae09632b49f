//! Lengths of prompts and answers, in tokens.

use serde::{Deserialize, Serialize};

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
