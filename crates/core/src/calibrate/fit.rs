//! From points to the parameters of an engine, with their uncertainty.
//!
//! A first token of a lone request takes `around + step`, a step what `docs/engine-model.md` says; see [`super::solve`]
//! for the method. A point weighs by its standard error: that of a median, 1.2533 · s / √n with s the spread that points
//! of its kind have in common, and never less than [`FLOOR`] of its value, as no model is exact. Standard errors and
//! intervals of parameters come from resampling the observations of each point (Efron 1979), which needs no assumption
//! on how a busy machine disturbs them.

use super::observe::median_of;
use super::point::{Kind, MAD, Point};
use super::solve::{COLUMNS, Coefficients, Column, Equation, solve};
use crate::rng::{Random, Stream};
use crate::stats::quantile;

/// A fitted number.
#[derive(Copy, Clone, Debug, PartialEq, serde::Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The standard deviation of the resampled fits; none if a point has one observation only.
    pub error: Option<f64>,
    /// The 2.5th and the 97.5th percentile of the resampled fits.
    pub interval: Option<(f64, f64)>,
}

/// The fitted parameters. One that the points say nothing about is `None`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Fitted {
    /// A step that only streams the weights, in ms.
    pub base: Estimate,
    /// By KV token, in ms.
    pub kv: Option<Estimate>,
    /// By sequence that decodes, beside its KV cache, in ms; only where it is there beyond doubt and is not small.
    pub sequence: Option<Estimate>,
    /// What a step with any prefill takes more, in ms; known only from steps that decode beside it.
    pub prefill_step: Option<Estimate>,
    /// By prompt token beyond the roof, in ms.
    pub prefill_token: Option<Estimate>,
    /// Tokens below which a prompt costs nothing more.
    pub roof: Option<Estimate>,
    /// By (1000 prompt tokens)², in ms.
    pub attention: Option<Estimate>,
    /// From the client's send to the engine and from its token back, together, in ms; with what a step with any prefill
    /// takes more if that is not known apart.
    pub around: Estimate,
    /// A lone request's first token less the base and what its prompt costs: `around` and `prefill_step` together, which
    /// is how a client sees them.
    pub first_token: Estimate,
}

/// The part of its value below which no point's error is taken to be.
const FLOOR: f64 = 0.002;
/// The standard error of a normal sample's median, in those of its mean.
const OF_MEDIAN: f64 = 1.2533;
/// Standard errors beyond which a point is far off, if points lie as their errors say.
const FAR: f64 = 2.5;
/// Rounds of finding weights.
const ROUNDS: usize = 5;
/// Resampled fits.
const RESAMPLES: usize = 200;
/// Lengths of prompts that a curve needs to be told from a line.
const CURVE: usize = 6;
/// The longest prompt with which the curve shows, in tokens.
const LONG: u32 = 512;
/// KV tokens that points must lie apart for the slope to show.
const KV_RANGE: f64 = 256.0;
/// Sequences at once from which on their own cost can be told.
const CROWD: u32 = 4;
/// The part of a step that streams weights which the cost of most sequences seen together must be, to be one.
const OF_BASE: f64 = 0.05;

impl Fitted {
    /// Fits the points, whose [`Point::fitted`] is set; `None` if there are no first tokens or no steps.
    #[must_use]
    pub fn of(points: &mut [Point], seed: u64) -> Option<Self> {
        let used = used(points)?;
        let most = points.iter().filter(|p| p.kind == Kind::Decode).map(|p| p.decoding).max().unwrap_or(0);
        if most >= CROWD && used[Column::Kv as usize] {
            let mut with = used;
            with[Column::Sequence as usize] = true;
            let found = Self::of_columns(points, with, seed);
            if found.sequence.is_some_and(|cost| cost.is_felt(OF_BASE * found.base.value / f64::from(most))) {
                return Some(found);
            }
        }
        Some(Self::of_columns(points, used, seed))
    }

    fn of_columns(points: &mut [Point], used: [bool; COLUMNS], seed: u64) -> Self {
        let mut equations = equations(points);
        let knots: Vec<f64> = points.iter().filter(|p| p.kind == Kind::First).map(|p| f64::from(p.prefill)).collect();
        let found = robust(&mut equations, |all| solve(all, used, &knots));
        for (point, equation) in points.iter_mut().zip(&equations) {
            point.fitted = equation.value(&found);
        }
        let resampled = resampled(points, &equations, |drawn| solve(drawn, used, &knots), seed);
        let estimate =
            |of: &dyn Fn(&Coefficients) -> f64| Estimate::new(of(&found), resampled.iter().map(of).collect());
        let column = |column: Column| estimate(&move |c: &Coefficients| c.values[column as usize]);
        let known = |c: Column| used[c as usize].then(|| column(c));
        let roof = estimate(&|c: &Coefficients| c.roof);
        let first = |c: &Coefficients| c.values[Column::Around as usize] + c.values[Column::Prefill as usize];
        Self {
            base: column(Column::Base),
            kv: known(Column::Kv),
            sequence: known(Column::Sequence),
            prefill_step: known(Column::Prefill),
            prefill_token: known(Column::Token),
            roof: used[Column::Token as usize].then_some(roof),
            attention: known(Column::Attention),
            around: column(Column::Around),
            first_token: estimate(&first),
        }
    }
}

/// Solves, makes the errors of points that are far off larger, and solves again.
fn robust(equations: &mut [Equation], solve: impl Fn(&[Equation]) -> Coefficients) -> Coefficients {
    let errors: Vec<f64> = equations.iter().map(|e| e.error).collect();
    let mut found = solve(equations);
    for _ in 0..ROUNDS {
        let off = |e: &Equation, error: f64| (e.measured - e.value(&found)).abs() / error;
        let usual = median_of(equations.iter().zip(&errors).map(|(e, error)| off(e, *error))).unwrap_or(0.0);
        let far = FAR * (MAD * usual).max(1.0);
        let larger: Vec<f64> =
            equations.iter().zip(&errors).map(|(e, error)| error * (off(e, *error) / far).max(1.0).sqrt()).collect();
        for (equation, error) in equations.iter_mut().zip(larger) {
            equation.error = error;
        }
        found = solve(equations);
    }
    found
}

impl Estimate {
    /// Whether it is above `least`, and surely above 0 as far as its interval is known.
    fn is_felt(&self, least: f64) -> bool {
        self.value > least && self.interval.is_none_or(|(low, _)| low > 0.0)
    }

    fn new(value: f64, mut resampled: Vec<f64>) -> Self {
        if resampled.len() < 2 {
            return Self { value, error: None, interval: None };
        }
        let n = resampled.len() as f64;
        let mean = resampled.iter().sum::<f64>() / n;
        let variance = resampled.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
        resampled.sort_by(f64::total_cmp);
        let interval = quantile(&resampled, 0.025).zip(quantile(&resampled, 0.975));
        Self { value, error: Some(variance.sqrt()), interval }
    }
}

/// Which coefficients the points can tell.
fn used(points: &[Point]) -> Option<[bool; COLUMNS]> {
    let of = |kind: Kind| points.iter().filter(move |p| p.kind == kind);
    let lengths = of(Kind::First).count();
    if lengths == 0 || of(Kind::Decode).count() == 0 {
        return None;
    }
    let longest = of(Kind::First).map(|p| p.prefill).max().unwrap_or(0);
    let kvs = || points.iter().filter(|p| p.kind != Kind::First).map(|p| p.kv);
    let range = kvs().fold(0.0, f64::max) - kvs().fold(f64::INFINITY, f64::min);
    let mut used = [true; COLUMNS];
    used[Column::Sequence as usize] = false;
    used[Column::Kv as usize] = range >= KV_RANGE;
    used[Column::Prefill as usize] = of(Kind::Mixed).count() > 0;
    used[Column::Token as usize] = lengths > 2;
    used[Column::Attention as usize] = lengths >= CURVE && longest >= LONG;
    Some(used)
}

fn equations(points: &[Point]) -> Vec<Equation> {
    let spreads = [Kind::First, Kind::Decode, Kind::Mixed].map(|kind| {
        let of_kind = points.iter().filter(|p| p.kind == kind && p.n > 2);
        median_of(of_kind.filter_map(|p| Some(p.spread? / p.ms))).unwrap_or(0.0)
    });
    let equation = |p: &Point| {
        let spread = spreads[p.kind as usize] * p.ms;
        let error = OF_MEDIAN * spread / (p.n as f64).sqrt();
        let error = (error * error + FLOOR * p.ms * FLOOR * p.ms).sqrt().max(f64::MIN_POSITIVE);
        let around = if p.kind == Kind::First { 1.0 } else { 0.0 };
        let prefill = if p.kind == Kind::Decode { 0.0 } else { 1.0 };
        let thousands = f64::from(p.prefill) / 1000.0;
        Equation {
            factors: [around, 1.0, p.kv, f64::from(p.decoding), prefill, 0.0, thousands * thousands],
            bent: (p.kind != Kind::Decode).then(|| f64::from(p.prefill + p.decoding)),
            measured: p.ms,
            error,
        }
    };
    points.iter().map(equation).collect()
}

/// Fits to as many observations of each point, drawn from its own with replacement; none if no point has two.
fn resampled(
    points: &[Point],
    equations: &[Equation],
    solve: impl Fn(&[Equation]) -> Coefficients,
    seed: u64,
) -> Vec<Coefficients> {
    if points.iter().all(|p| p.n < 2) {
        return Vec::new();
    }
    let mut random = Random::new(seed, Stream::Jitter);
    let mut drawn = equations.to_vec();
    let mut fits = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for (point, equation) in points.iter().zip(&mut drawn) {
            let last = point.samples.len().saturating_sub(1) as u64;
            let again = point.samples.iter().map(|_| point.samples[random.between(0, last) as usize]);
            equation.measured = median_of(again).unwrap_or(point.ms);
        }
        fits.push(solve(&drawn));
    }
    fits
}
