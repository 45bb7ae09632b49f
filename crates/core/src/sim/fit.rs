//! Least squares: the engine parameters that come closest to measurements.
//!
//! The loss is the sum of squares of residuals, each the error of one measured cell in units of its
//! tolerance. It is lowered with the method of Levenberg (1944) and Marquardt (1963). Three things are
//! adapted to a simulation, whose figures move in small jumps: derivatives are central differences over
//! steps of a percent, far above the jumps; of several damping factors the best is taken; and as the jumps
//! leave valleys that are not the deepest, the search starts again from the best found so far with all
//! parameters shaken.
//!
//! Each parameter has a residual of its own too: its change from the start, in halves of its size there. So
//! parameters that the measurements say little about stay near where a user put them.

mod file;

pub use file::{KeyNotFound, rewrite};

use crate::engine::Profile;
use crate::rng::{Random, Stream};
use crate::time::Span;

/// A parameter that is fitted.
pub struct Parameter {
    /// The table of the profile's file that it stands in.
    pub table: &'static str,
    /// Its key there.
    pub key: &'static str,
    get: fn(&Profile) -> f64,
    set: fn(&mut Profile, f64),
    /// The size at which it begins to matter; changes are relative to the larger of this and its value.
    unit: f64,
}

impl Parameter {
    /// Its value in a profile.
    #[must_use]
    pub fn get(&self, profile: &Profile) -> f64 {
        (self.get)(profile)
    }

    fn scale(&self, profile: &Profile) -> f64 {
        self.get(profile).abs().max(self.unit)
    }
}

/// What is fitted: everything that is a time, and the roof. What a server is configured with is known.
pub const PARAMETERS: [Parameter; 8] = [
    Parameter { table: "step", key: "base_ms", get: |p| p.base_ms, set: |p, v| p.base_ms = v.max(1e-3), unit: 10.0 },
    Parameter {
        table: "step",
        key: "kv_ms_per_token",
        get: |p| p.kv_ms_per_token,
        set: |p, v| p.kv_ms_per_token = v.max(0.0),
        unit: 1e-4,
    },
    Parameter {
        table: "step",
        key: "prefill_step_ms",
        get: |p| p.prefill_step_ms,
        set: |p, v| p.prefill_step_ms = v.max(0.0),
        unit: 1.0,
    },
    Parameter {
        table: "step",
        key: "prefill_ms_per_token",
        get: |p| p.prefill_ms_per_token,
        set: |p, v| p.prefill_ms_per_token = v.max(0.0),
        unit: 0.02,
    },
    Parameter {
        table: "step",
        key: "roof_tokens",
        get: |p| p.roof_tokens,
        set: |p, v| p.roof_tokens = v.max(0.0),
        unit: 30.0,
    },
    Parameter {
        table: "step",
        key: "attention_ms",
        get: |p| p.attention_ms,
        set: |p, v| p.attention_ms = v.max(0.0),
        unit: 3.0,
    },
    Parameter {
        table: "overhead",
        key: "in_ms",
        get: |p| p.overhead_in.as_millis_f64(),
        set: |p, v| p.overhead_in = Span::from_millis_f64(v),
        unit: 3.0,
    },
    Parameter {
        table: "overhead",
        key: "out_ms",
        get: |p| p.overhead_out.as_millis_f64(),
        set: |p, v| p.overhead_out = Span::from_millis_f64(v),
        unit: 3.0,
    },
];

const N: usize = PARAMETERS.len();

/// What was found.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The profile with the fitted parameters.
    pub profile: Profile,
    /// The loss at the start.
    pub before: f64,
    /// The loss of the profile found, with what its distance from the start counts.
    pub after: f64,
    /// Rounds that lowered the loss.
    pub rounds: u32,
}

/// The shares of a parameter that derivatives are taken over, one after the other when no step helps.
const STEPS: [f64; 3] = [0.02, 0.01, 0.004];
/// Damping factors that are tried in each round.
const DAMPING: [f64; 8] = [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];
/// The largest change of a parameter in one round, in its scale.
const MAX_CHANGE: f64 = 0.5;
/// A round that lowers the loss by a smaller share than this counts as no help.
const ENOUGH: f64 = 1e-3;

/// How much is tried.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// The most rounds after a start.
    pub rounds: u32,
    /// How often the search starts again.
    pub restarts: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { rounds: 40, restarts: 16 }
    }
}

/// A change of a parameter by so much of its size at the start counts like a cell at the end of its tolerance.
const LEEWAY: f64 = 0.5;
/// The largest shake of a parameter at a new start, in its scale; it shrinks towards the last one.
const SHAKE: f64 = 0.4;

/// Lowers the loss from `start`.
///
/// `evaluate` gives the residuals of each of the profiles it is handed: 16 and 8 in turn, so that they can
/// be simulated at once. The same start, effort and residuals give the same fit.
///
/// # Errors
/// What `evaluate` fails with.
pub fn fit<E>(
    start: &Profile,
    effort: Effort,
    mut evaluate: impl FnMut(&[Profile]) -> Result<Vec<Vec<f64>>, E>,
) -> Result<Fit, E> {
    let held = start.clone();
    let mut evaluate = |profiles: &[Profile]| {
        let mut all = evaluate(profiles)?;
        for (residuals, profile) in all.iter_mut().zip(profiles) {
            residuals.extend(PARAMETERS.iter().map(|p| (p.get(profile) - p.get(&held)) / (LEEWAY * p.scale(&held))));
        }
        Ok(all)
    };
    let mut best = descend(start, effort.rounds, &mut evaluate)?;
    let before = best.before;
    let mut random = Random::new(0, Stream::Test);
    for restart in 0..effort.restarts {
        let size = SHAKE * f64::from(effort.restarts - restart) / f64::from(effort.restarts);
        let shaken = shaken(&best.profile, size, &mut random);
        let found = descend(&shaken, effort.rounds, &mut evaluate)?;
        best.rounds += found.rounds;
        if found.after < best.after {
            best = Fit { before, rounds: best.rounds, ..found };
        }
    }
    Ok(best)
}

/// The profile with each parameter changed by up to `size` of its scale.
fn shaken(profile: &Profile, size: f64, random: &mut Random) -> Profile {
    let scales = PARAMETERS.each_ref().map(|p| p.scale(profile));
    moved(profile, &scales, &std::array::from_fn(|_| size * (2.0 * random.unit() - 1.0)))
}

/// Goes down from `start` until no step helps, in at most `max_rounds` rounds.
fn descend<E>(
    start: &Profile,
    max_rounds: u32,
    evaluate: &mut impl FnMut(&[Profile]) -> Result<Vec<Vec<f64>>, E>,
) -> Result<Fit, E> {
    let mut best = start.clone();
    let mut residuals = evaluate(std::slice::from_ref(start))?.into_iter().next().unwrap_or_default();
    let before = loss(&residuals);
    let (mut after, mut rounds, mut steps) = (before, 0, STEPS.iter());
    let mut step = steps.next();
    while let Some(&size) = step.filter(|_| rounds < max_rounds) {
        let scales = PARAMETERS.each_ref().map(|p| p.scale(&best));
        let jacobian = jacobian(&best, &scales, size, evaluate)?;
        let tries: Vec<Profile> = DAMPING
            .iter()
            .filter_map(|damping| direction(&jacobian, &residuals, *damping))
            .map(|change| moved(&best, &scales, &change))
            .collect();
        let all = evaluate(&tries)?;
        let found = tries.into_iter().zip(all).min_by(|(_, a), (_, b)| loss(a).total_cmp(&loss(b)));
        match found {
            Some((profile, found)) if loss(&found) < after * (1.0 - ENOUGH) => {
                (best, after, residuals) = (profile, loss(&found), found);
                rounds += 1;
            }
            _ => step = steps.next(),
        }
    }
    Ok(Fit { profile: best, before, after, rounds })
}

fn loss(residuals: &[f64]) -> f64 {
    residuals.iter().map(|r| r * r).sum()
}

/// The profile with its parameters moved by so much of their scales.
fn moved(profile: &Profile, scales: &[f64; N], change: &[f64; N]) -> Profile {
    let mut moved = profile.clone();
    for ((parameter, scale), change) in PARAMETERS.iter().zip(scales).zip(change) {
        let change = change.clamp(-MAX_CHANGE, MAX_CHANGE);
        if change != 0.0 {
            (parameter.set)(&mut moved, parameter.get(profile) + change * scale);
        }
    }
    moved
}

/// Central differences of the residuals, a row for each parameter. Where a bound stops a parameter on one
/// side, the difference is divided by the distance that is left.
fn jacobian<E>(
    at: &Profile,
    scales: &[f64; N],
    size: f64,
    evaluate: &mut impl FnMut(&[Profile]) -> Result<Vec<Vec<f64>>, E>,
) -> Result<Vec<Vec<f64>>, E> {
    let side = |i: usize, sign: f64| {
        let mut change = [0.0; N];
        change[i] = sign * size;
        moved(at, scales, &change)
    };
    let points: Vec<Profile> = (0..N).flat_map(|i| [side(i, 1.0), side(i, -1.0)]).collect();
    let all = evaluate(&points)?;
    let rows = all.chunks(2).zip(points.chunks(2)).enumerate().map(|(i, (residuals, points))| {
        let (up, down) = (&residuals[0], &residuals[1]);
        let width = (PARAMETERS[i].get(&points[0]) - PARAMETERS[i].get(&points[1])) / scales[i];
        up.iter().zip(down).map(|(u, d)| if width > 0.0 { (u - d) / width } else { 0.0 }).collect()
    });
    Ok(rows.collect())
}

/// The step that solves (JᵀJ + damping · diag(JᵀJ)) · step = −Jᵀr; `None` if it has no solution.
fn direction(jacobian: &[Vec<f64>], residuals: &[f64], damping: f64) -> Option<[f64; N]> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let mut matrix = [[0.0; N]; N];
    let mut right = [0.0; N];
    for i in 0..N {
        for j in 0..N {
            matrix[i][j] = dot(&jacobian[i], &jacobian[j]);
        }
        right[i] = -dot(&jacobian[i], residuals);
    }
    let largest = (0..N).map(|i| matrix[i][i]).fold(0.0, f64::max);
    for (i, row) in matrix.iter_mut().enumerate() {
        // A parameter without influence gets a share of the largest, so that it stays.
        row[i] += damping * row[i].max(1e-6 * largest);
    }
    solve(matrix, right)
}

/// Gauss's elimination with pivots.
fn solve(mut matrix: [[f64; N]; N], mut right: [f64; N]) -> Option<[f64; N]> {
    for column in 0..N {
        let pivot = (column..N).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let head = matrix[column];
        if head[column].abs() < 1e-12 {
            return None;
        }
        for row in column + 1..N {
            let factor = matrix[row][column] / head[column];
            for (cell, above) in matrix[row].iter_mut().zip(&head) {
                *cell -= factor * above;
            }
            right[row] -= factor * right[column];
        }
    }
    let mut solution = [0.0; N];
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|k| matrix[row][k] * solution[k]).sum();
        solution[row] = (right[row] - known) / matrix[row][row];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../../../../config/engines/gb10-qwen3-8b-fp8.toml");

    fn known() -> Profile {
        Profile::from_toml(FILE).unwrap()
    }

    /// Residuals that are 0 at the known parameters and mix neighbours, so that no parameter is on its own.
    fn residuals(profile: &Profile) -> Vec<f64> {
        let off: Vec<f64> = PARAMETERS.iter().map(|p| p.get(profile) / p.get(&known()) - 1.0).collect();
        let mixed = (0..N).map(|i| 1e3 * (off[i] + 0.5 * off[(i + 1) % N] + off[i] * off[i]));
        mixed.chain(off.iter().map(|o| 300.0 * o)).collect()
    }

    #[test]
    fn parameters_are_found_again_from_a_perturbed_start() {
        let mut start = known();
        for (i, parameter) in PARAMETERS.iter().enumerate() {
            let factor = [1.3, 0.7, 0.8][i % 3];
            (parameter.set)(&mut start, parameter.get(&known()) * factor);
        }
        let evaluate = |all: &[Profile]| Ok::<_, ()>(all.iter().map(residuals).collect());
        let found = fit(&start, Effort { rounds: 40, restarts: 0 }, evaluate).unwrap();
        assert!(found.before > 1e3 * found.after, "{} to {}", found.before, found.after);
        for parameter in &PARAMETERS {
            let off = parameter.get(&found.profile) / parameter.get(&known()) - 1.0;
            assert!(off.abs() < 1e-3, "{}: {off}", parameter.key);
        }
    }

    #[test]
    fn a_parameter_that_the_measurements_say_nothing_about_stays() {
        let mut start = known();
        start.base_ms = 50.0;
        // With a ripple, so that one of the new starts ends a little lower than the first.
        let only_base = |p: &Profile| vec![100.0 * (p.base_ms - 40.0), 0.3 * (p.base_ms * 977.0).sin()];
        let effort = Effort { rounds: 20, restarts: 8 };
        let found = fit(&start, effort, |all: &[Profile]| Ok::<_, ()>(all.iter().map(only_base).collect())).unwrap();
        assert!((found.profile.base_ms - 40.0).abs() < 0.01);
        for p in &PARAMETERS[1..] {
            let off = p.get(&found.profile) / p.get(&start) - 1.0;
            assert!(off.abs() < 0.02, "{}: {off}", p.key);
        }
    }

    #[test]
    fn a_fit_never_ends_worse_than_it_began() {
        let rugged = |p: &Profile| vec![1.0 + (p.base_ms * 977.0).sin()];
        let found = fit(&known(), Effort { rounds: 5, restarts: 3 }, |all: &[Profile]| {
            Ok::<_, ()>(all.iter().map(rugged).collect())
        })
        .unwrap();
        assert!(found.after <= found.before);
    }
}
