//! Whether prompts are found in a prefix cache: what the engine does, and whether it spoiled the measurement.

use serde::Serialize;

use super::observe::{First, Observations, median_of};
use super::seen::{REPEATED, Seen, Trial};

/// What repeated prompts show.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Cache {
    /// Whether a repeated prompt is found; `None` where prompts cost too little to tell.
    pub works: Option<bool>,
    /// Tokens in a block, if the server counts what it found.
    pub block: Option<u32>,
    /// The length of the repeated prompts, in tokens.
    pub length: u32,
    /// The first token of a prompt that was never sent before, in ms; the median.
    pub fresh: f64,
    /// The same of one that was.
    pub repeated: f64,
}

/// A prompt's cost must be this part of its first token's time for a cache to show.
const SHOWS: f64 = 0.03;
/// The part of a prompt's cost that a repetition saves if a cache works. It saves all but a block.
const SAVED: f64 = 0.5;

impl Cache {
    /// What trials of repeated prompts show. `cost` is what the fit says that a prompt of some length costs, in ms.
    #[must_use]
    pub fn of(trials: &[Trial], cost: impl Fn(u32) -> f64) -> Option<Self> {
        let seen = || trials.iter().filter(|t| t.repeats()).flat_map(|t| &t.seen);
        let length = seen().map(|s| s.input).max()?;
        let of = |first: bool| {
            let these = seen().filter(|s| (s.index % REPEATED == 0) == first);
            median_of(these.map(|s| s.ttft().as_millis_f64()))
        };
        let (fresh, repeated) = (of(true)?, of(false)?);
        let found: Vec<u32> =
            seen().filter(|s| s.index % REPEATED != 0).filter_map(|s| s.cached).filter(|c| *c > 0).collect();
        let cost = cost(length);
        let works = match found.is_empty() {
            false => Some(true),
            true if cost < SHOWS * fresh => None,
            true => Some(fresh - repeated > SAVED * cost),
        };
        let block = found.into_iter().reduce(common_divisor).filter(|block| block.is_power_of_two());
        Some(Self { works, block, length, fresh, repeated })
    }
}

const fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// That prompts which should have been new were known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// By the server's own count.
    Counted {
        /// Prompts with cached tokens.
        prompts: u32,
        /// Of so many.
        of: u32,
        /// The part of all prompt tokens that was cached.
        share: f64,
    },
    /// By time: prompts of the grid took less than new ones of the same length.
    Timed {
        /// The length, in tokens.
        length: u32,
        /// The first token in the grid, in ms.
        grid: f64,
        /// The first token of a new prompt, in ms.
        fresh: f64,
    },
}

/// The part of all prompt tokens that may be known: a chat template is the same in every prompt.
const HARMLESS: f64 = 0.02;
/// A first token in the grid may take so much less of what a new prompt costs.
const SPOILED: f64 = 0.7;

impl Shared {
    /// Whether prompts of the grid were known to the engine.
    #[must_use]
    pub fn of(trials: &[Trial], seen: &Observations, cache: Option<&Cache>) -> Option<Self> {
        let grid = || trials.iter().filter(|t| !t.repeats()).flat_map(|t| &t.seen);
        let cached = |s: &&Seen| s.cached.is_some_and(|c| c > 0);
        let (prompts, of) = (grid().filter(cached).count() as u32, grid().count() as u32);
        if prompts > 0 {
            let found: u64 = grid().map(|s| u64::from(s.cached.unwrap_or(0))).sum();
            let share = found as f64 / grid().map(|s| u64::from(s.input)).sum::<u64>().max(1) as f64;
            return (share > HARMLESS).then_some(Self::Counted { prompts, of, share });
        }
        // A server that counts what it finds has found nothing.
        let counts = trials.iter().flat_map(|t| &t.seen).any(|s| s.cached.is_some());
        if counts { None } else { Self::timed(&seen.firsts, cache?) }
    }

    fn timed(firsts: &[First], cache: &Cache) -> Option<Self> {
        let at = |wanted: &dyn Fn(u32) -> bool| median_of(firsts.iter().filter(|f| wanted(f.input)).map(|f| f.ms));
        let shortest = firsts.iter().map(|f| f.input).min()?;
        // The repeated prompts' own first tokens are among the firsts: at their length the grid has the others.
        let longest = firsts.iter().map(|f| f.input).filter(|i| *i < cache.length).max()?;
        let (floor, grid) = (at(&|i| i == shortest)?, at(&|i| i == longest)?);
        let fresh = floor + (cache.fresh - floor) * f64::from(longest) / f64::from(cache.length);
        let cost = fresh - floor;
        (cost > SHOWS * fresh && grid - floor < SPOILED * cost).then_some(Self::Timed { length: longest, grid, fresh })
    }
}
