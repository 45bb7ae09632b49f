//! Calibration: from answers of a server to the profile that the engine model needs.
//!
//! ```text
//! Campaign ── Probe (a plan) ──> a server, or `play` on virtual time ──> Trial (answers with the times of their tokens)
//!    ^                                                                      │
//!    └──────────── observe ─────────────────────────────────────────────────┤
//!                                                                           v
//! Profile <── file ── Calibration <── fit, seats, cache <── points <── Observations
//! ```
//!
//! Everything here is pure: [`Campaign`] says what to offer next, whoever has a server or an engine offers it, and
//! [`Calibration::of`] turns what came into parameters with their uncertainty. From outside a server shows sums only: the
//! way in and the way out, for instance, are known together. What had to be assumed is listed beside what was fitted.

mod cache;
mod campaign;
mod file;
mod fit;
mod observe;
mod plans;
mod play;
mod point;
mod seats;
mod seen;
mod solve;
mod warn;

use serde::Serialize;

pub use cache::{Cache, Shared};
pub use campaign::{Campaign, Probe, Settings, SettingsError};
pub use file::{Parameter, Standing, profile_text};
pub use fit::{Estimate, Fitted};
pub use observe::{First, Observations, Steps, Waited};
pub use play::Bench;
pub use point::{Kind, Point, points};
pub use seats::{Crowd, Knee, NEAR, Seats};
pub use seen::{REPEATED, REPEATS, Seen, Trial};
pub use warn::PUBLISHED_CASE;

use crate::engine::Profile;
use crate::time::Span;
use observe::median_of;

/// Values for what cannot be seen from outside.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumed {
    /// Tokens in one step.
    pub token_budget: u32,
    /// Tokens in a block of the prefix cache, where the server does not count what it found.
    pub block_tokens: u32,
    /// Steps fixed at once, where no request came into a running batch.
    pub pipeline_depth: u32,
    /// The part of what lies around the engine that is the way in.
    pub way_in: f64,
}

impl Default for Assumed {
    /// As vLLM is started, and both ways the same.
    fn default() -> Self {
        Self { token_budget: 8192, block_tokens: 16, pipeline_depth: 2, way_in: 0.5 }
    }
}

/// A server, as its answers show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The fitted parameters.
    pub fitted: Fitted,
    /// The points that they were fitted to, with what they say of each.
    pub points: Vec<Point>,
    /// First tokens as a straight line over the lengths of prompts: what a cost model in two numbers would be. Of lone
    /// requests, by all tokens of the prompt, cached or not.
    pub line: Option<Line>,
    /// How many sequences run at once.
    pub seats: Option<Seats>,
    /// What loads of several requests at once showed.
    pub crowds: Vec<Crowd>,
    /// The highest useful permits.
    pub knee: Option<Knee>,
    /// Steps that are fixed at once, as most requests showed that came into a running batch.
    pub pipeline_depth: Option<Depth>,
    /// What repeated prompts show of a prefix cache.
    pub cache: Option<Cache>,
    /// That prompts which should have been new were known: the cost of a prompt comes out too small then, unless the
    /// server counts what it found.
    pub shared: Option<Shared>,
    /// Answers that all this is made of.
    pub answers: usize,
    /// Requests that had none.
    pub failed: u32,
}

/// A straight line.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Of an empty prompt, in ms.
    pub intercept: f64,
    /// By prompt token, in ms.
    pub slope: f64,
}

/// A number of steps, and how many requests showed it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Depth {
    /// Steps.
    pub steps: u32,
    /// Requests that showed so many.
    pub votes: usize,
    /// Of so many.
    pub of: usize,
}

/// Why there is no calibration.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLittle {
    /// No first token of a lone request.
    #[error("no request was alone with the server until its first token, so what a first token takes is not known")]
    Firsts,
    /// No steps.
    #[error(
        "no step could be told apart: answers need two tokens or more, each in an event of its own (of {answers} answers \
         {by_token} were like that)"
    )]
    Steps {
        /// Answers.
        answers: usize,
        /// Those with one event for each token.
        by_token: usize,
    },
}

impl Calibration {
    /// What trials say. `seed` is that of the resampling.
    ///
    /// # Errors
    /// [`TooLittle`] if they hold no lone first token, or no steps.
    pub fn of(trials: &[Trial], seed: u64) -> Result<Self, TooLittle> {
        let mut seen = Observations::default();
        for trial in trials {
            seen.add(trial);
        }
        let answers = || trials.iter().flat_map(|t| &t.seen);
        if seen.firsts.is_empty() {
            return Err(TooLittle::Firsts);
        }
        let mut points = points(&seen);
        let by_token = answers().filter(|s| s.is_by_token()).count();
        let too_little = TooLittle::Steps { answers: answers().count(), by_token };
        let fitted = Fitted::of(&mut points, seed).ok_or(too_little)?;
        let crowds: Vec<Crowd> = trials.iter().filter_map(Crowd::of).collect();
        let seats = seats::seats(&crowds);
        let cache = Cache::of(trials, |tokens| fitted.prompt_cost(tokens));
        Ok(Self {
            line: Line::through(&seen.firsts),
            seats,
            knee: seats.and_then(|seats| seats::knee(&crowds, seats, alone(&seen))),
            pipeline_depth: depth(&seen, &fitted),
            shared: Shared::of(trials, &seen, cache.as_ref()),
            cache,
            crowds,
            answers: answers().count(),
            failed: trials.iter().map(|t| t.failed).sum(),
            points,
            fitted,
        })
    }

    /// The profile, with `assumed` for what is not known.
    #[must_use]
    pub fn profile(&self, name: &str, model: &str, assumed: &Assumed) -> Profile {
        let of = |estimate: Option<Estimate>| estimate.map_or(0.0, |e| e.value);
        let fitted = &self.fitted;
        let around = fitted.around.value.max(0.0);
        let max_seqs = self.seats.map_or(1, Seats::count).max(1);
        Profile {
            name: name.to_owned(),
            model: model.to_owned(),
            // A profile's step takes some time, whatever the noise of an instant server says.
            base_ms: fitted.base.value.max(1e-6),
            kv_ms_per_token: of(fitted.kv),
            sequence_ms: of(fitted.sequence),
            prefill_step_ms: of(fitted.prefill_step),
            prefill_ms_per_token: of(fitted.prefill_token),
            roof_tokens: of(fitted.roof),
            attention_ms: of(fitted.attention),
            overhead_in: Span::from_millis_f64(around * assumed.way_in),
            overhead_out: Span::from_millis_f64(around * (1.0 - assumed.way_in)),
            max_seqs,
            block_tokens: self.cache.and_then(|c| c.block).unwrap_or(assumed.block_tokens),
            token_budget: assumed.token_budget.max(max_seqs + 1),
            pipeline_depth: self.pipeline_depth.map_or(assumed.pipeline_depth, |d| d.steps),
            prefix_cache: self.cache.and_then(|c| c.works).unwrap_or(false),
            kv_blocks: None,
            cache_blocks: None,
        }
    }

    /// The root of the mean square of what the fit leaves, as a part of each point's value, and the point with the most.
    #[must_use]
    pub fn misfit(&self) -> Option<(f64, &Point)> {
        let part = |p: &Point| p.residual() / p.ms;
        let parts: Vec<f64> = self.points.iter().map(part).collect();
        let worst = self.points.iter().max_by(|a, b| part(a).abs().total_cmp(&part(b).abs()))?;
        Some((crate::stats::root_mean_square(&parts)?, worst))
    }
}

impl Fitted {
    /// What computing a prompt of so many tokens takes, beyond what any prompt does, in ms.
    #[must_use]
    pub fn prompt_cost(&self, tokens: u32) -> f64 {
        let of = |estimate: Option<Estimate>| estimate.map_or(0.0, |e| e.value);
        let thousands = f64::from(tokens) / 1000.0;
        of(self.prefill_token) * (f64::from(tokens) - of(self.roof)).max(0.0)
            + of(self.attention) * thousands * thousands
    }
}

impl Line {
    /// The line of least squares through the medians of first tokens; `None` of fewer than two lengths.
    fn through(firsts: &[First]) -> Option<Self> {
        let mut lengths: Vec<u32> = firsts.iter().map(|f| f.input).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let at = |length: u32| median_of(firsts.iter().filter(|f| f.input == length).map(|f| f.ms));
        let points: Vec<(f64, f64)> = lengths.iter().filter_map(|l| Some((f64::from(*l), at(*l)?))).collect();
        let n = points.len() as f64;
        let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
        let squares: f64 = points.iter().map(|p| (p.0 - x) * (p.0 - x)).sum();
        let products: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
        (squares > 0.0).then(|| Self { intercept: y - products / squares * x, slope: products / squares })
    }
}

/// Answer tokens by second of one request at a time with a short prompt.
fn alone(seen: &Observations) -> Option<f64> {
    let steps = seen.steps.iter().filter(|s| s.prefill == 0 && s.decoding == 1);
    median_of(steps.map(|s| 1000.0 / s.ms))
}

/// How many steps end between the moment at which a request reaches the engine and its first token: one more than are
/// fixed at once, as that which runs and all that are fixed have to end before its own.
fn depth(seen: &Observations, fitted: &Fitted) -> Option<Depth> {
    // A step's end and a request's arrival are both shifted by the way out, as the client sees them.
    let around = fitted.around.value;
    let votes =
        seen.waited.iter().filter_map(|ends| (ends.iter().filter(|end| **end > around).count() as u32).checked_sub(1));
    let votes: Vec<u32> = votes.filter(|steps| *steps > 0).collect();
    let count = |steps: u32| votes.iter().filter(|v| **v == steps).count();
    let steps = votes.iter().copied().max_by_key(|steps| (count(*steps), std::cmp::Reverse(*steps)))?;
    Some(Depth { steps, votes: count(steps), of: votes.len() })
}

#[cfg(test)]
mod tests;
