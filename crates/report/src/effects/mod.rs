//! What a change did, from pairs of runs of the same arrivals.
//!
//! ```text
//! run, run ─ Measured of each ─ pair ─ Comparison::of ─> Pair ─┐   refuses what must not be compared
//! bare figures ────────────────────────────────────────> Pair ─┴─ Effects::of ─> an Effect for each figure, a verdict
//! ```
//!
//! A pair is two runs of one plan, without and with the change. [`Effects::of`] is a pure function of the pairs'
//! figures: it needs no ledger, so that figures which others published go through the same statistics.
//!
//! ```
//! use elasticserve_report::effects::{Effects, Figure, Kind, Pair, Question, Verdict};
//!
//! let goodput = |seed: u32, without: f64, with: f64| {
//!     let mut pair = Pair::new(format!("seed {seed}"));
//!     pair.base.insert(Figure::all(Kind::Goodput), without);
//!     pair.changed.insert(Figure::all(Kind::Goodput), with);
//!     pair
//! };
//! let pairs = [goodput(11, 1.37, 10.23), goodput(23, 1.70, 8.09), goodput(37, 1.43, 9.68)];
//! let effects = Effects::of("none", "750 ms", &pairs, &Question::of(Figure::all(Kind::Goodput)));
//! // Three pairs decide nothing, however far apart they are.
//! assert_eq!(effects.verdict, Verdict::Undecided);
//! ```

mod comparison;
mod effect;
mod figure;
mod manifests;
mod measured;
mod output;
mod pairing;
mod published;
mod sentence;
mod tables;

use std::collections::BTreeSet;

use serde::Serialize;

pub use comparison::{CeilingOfPairs, Comparison, Refused};
pub use effect::{Effect, Finding, Interval, Level, MIN_PAIRS, Mean, More, Order, Resampled, Test};
pub use figure::{Direction, Figure, FigureError, Kind, Margin, Unit, Values};

pub use manifests::{Difference, differences};
pub use measured::{Ceiling, Measured, values};
pub use pairing::{PairError, Paired, pair};
pub use published::{Agreement, Recomputed, Study, Told, studies_doc};

/// The most pairs that effects are told of.
pub const MAX_PAIRS: usize = 1_000;
/// The chance below which an effect is said to go with the order of the runs.
pub const ORDER_P: f64 = 0.05;

/// The figures of two runs of the same arrivals.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// What tells the pair from others, such as its seed.
    pub name: String,
    /// Without the change.
    pub base: Values,
    /// With it.
    pub changed: Values,
    /// Which side ran first, where that is known.
    pub first: Option<Side>,
}

impl Pair {
    /// A pair without any figures yet.
    #[must_use]
    pub const fn new(name: String) -> Self {
        Self { name, base: Values::new(), changed: Values::new(), first: None }
    }
}

/// A side of a pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The run without the change.
    Base,
    /// The run with it.
    Changed,
}

/// What is asked of the pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The figure that the verdict is about.
    pub figure: Figure,
    /// Which difference of it is too small to matter; that of its kind if absent.
    pub margin: Option<Margin>,
    /// The two-sided confidence of every interval, between 0 and 1.
    pub confidence: f64,
    /// Resamples of the bootstrap.
    pub resamples: u32,
    /// Its seed.
    pub seed: u64,
}

impl Question {
    /// About a figure, at 95 %, with 20,000 resamples.
    #[must_use]
    pub const fn of(figure: Figure) -> Self {
        Self { figure, margin: None, confidence: 0.95, resamples: 20_000, seed: 1 }
    }
}

/// What pairs say of the figure in question.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The change is for the better.
    Better,
    /// It is for the worse.
    Worse,
    /// There is no difference that matters.
    NoDifference,
    /// It cannot be told yet.
    Undecided,
}

impl Verdict {
    /// In words.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoDifference => "no difference shown",
            Self::Undecided => "undecided",
        }
    }
}

/// The effects of a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effects {
    /// The format's version, 1.
    pub format: u32,
    /// What the side without the change is called.
    pub base: String,
    /// What the side with it is called.
    pub changed: String,
    /// The names of the pairs, in the order in which they ran.
    pub pairs: Vec<String>,
    /// Which side of each pair ran first, where that is known.
    pub first: Vec<Option<Side>>,
    /// The confidence that was asked for.
    pub confidence: f64,
    /// Resamples of the bootstrap.
    pub resamples: u32,
    /// Its seed.
    pub seed: u64,
    /// The figure that the verdict is about.
    pub figure: Figure,
    /// What the pairs say of it.
    pub verdict: Verdict,
    /// Why, in a sentence or two.
    pub sentence: String,
    /// The effect on every figure that a pair has on both sides and that is not 0 everywhere: of all arrivals first,
    /// then by tenant.
    pub effects: Vec<Effect>,
    /// What is to be known before the effects are used.
    pub warnings: Vec<String>,
}

impl Effects {
    /// The effects of a change over pairs, which stand in the order in which they ran. `base` and `changed` are
    /// what the sides are called.
    ///
    /// Each figure is told over the pairs that have it on both sides. The figure in question is told in any case.
    #[must_use]
    pub fn of(base: &str, changed: &str, pairs: &[Pair], question: &Question) -> Self {
        let pairs = &pairs[..pairs.len().min(MAX_PAIRS)];
        // What is 0 in every run, such as a share of failures that there are none of, tells nothing.
        let nothing = |p: &Pair, f: &Figure| p.base.get(f) == Some(&0.0) && p.changed.get(f) == Some(&0.0);
        let shared = pairs.iter().flat_map(|p| p.base.keys().filter(|f| p.changed.contains_key(f) && !nothing(p, f)));
        let figures: BTreeSet<&Figure> = shared.chain([&question.figure]).collect();
        let margin = |f: &Figure| question.margin.filter(|_| *f == question.figure);
        let effects: Vec<Effect> = figures.into_iter().map(|f| Effect::of(f, margin(f), pairs, question)).collect();
        let mut all = Self {
            format: 1,
            base: base.to_owned(),
            changed: changed.to_owned(),
            pairs: pairs.iter().map(|p| p.name.clone()).collect(),
            first: pairs.iter().map(|p| p.first).collect(),
            confidence: question.confidence,
            resamples: question.resamples,
            seed: question.seed,
            figure: question.figure.clone(),
            verdict: Verdict::Undecided,
            sentence: String::new(),
            effects,
            warnings: Vec::new(),
        };
        if let Some(effect) = all.effect(&question.figure) {
            let verdict = match effect.finding {
                Finding::Better => Verdict::Better,
                Finding::Worse => Verdict::Worse,
                Finding::NoDifference => Verdict::NoDifference,
                // A figure that is neither better nor worse decides nothing, whichever way it went.
                Finding::Higher | Finding::Lower | Finding::Undecided => Verdict::Undecided,
            };
            let (said, warnings) = (sentence::sentence(&all, effect), sentence::order(&all, effect));
            (all.verdict, all.sentence, all.warnings) = (verdict, said, warnings);
        }
        all
    }

    /// The effect on a figure.
    #[must_use]
    pub fn effect(&self, figure: &Figure) -> Option<&Effect> {
        self.effects.iter().find(|e| e.figure == *figure)
    }
}

#[cfg(test)]
mod tests;
