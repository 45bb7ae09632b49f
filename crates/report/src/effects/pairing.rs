//! Which runs make a pair.

use std::collections::BTreeMap;

use super::Measured;
use super::measured::made;

/// Pairs of runs, without the change and with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paired {
    /// The pairs in the order in which they ran, or where that is not known in the order of their names.
    pub pairs: Vec<(Measured, Measured)>,
    /// Runs without a partner.
    pub alone: Vec<String>,
}

/// Why runs cannot be paired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// A name that no run has.
    #[error("--pairs: no run is called '{name}' on that side; there are: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A run that is in two pairs.
    #[error("--pairs: '{0}' is in two pairs; a run has one partner")]
    Twice(String),
}

/// Pairs runs of one plan: by its hash, and several of one plan in the order in which they ran. With `given`, names
/// of the one side and the other, by these alone.
///
/// # Errors
/// [`PairError`] for a name that is not there or is there twice.
pub fn pair(base: Vec<Measured>, changed: Vec<Measured>, given: &[(String, String)]) -> Result<Paired, PairError> {
    let mut paired = if given.is_empty() { by_plan(base, changed) } else { by_name(base, changed, given)? };
    paired.pairs.sort_by_cached_key(|(a, b)| {
        let earlier = [made(a), made(b)].into_iter().flatten().min();
        let earlier = earlier.map(|(started, place)| (started.map(str::to_owned), place));
        (earlier, a.manifest.plan.seed, a.name.clone())
    });
    Ok(paired)
}

fn by_plan(base: Vec<Measured>, changed: Vec<Measured>) -> Paired {
    let mut plans: BTreeMap<String, [Vec<Measured>; 2]> = BTreeMap::new();
    for (side, runs) in [base, changed].into_iter().enumerate() {
        for run in runs {
            plans.entry(run.manifest.plan_hash.clone()).or_default()[side].push(run);
        }
    }
    let mut paired = Paired::default();
    for [mut base, mut changed] in plans.into_values() {
        for side in [&mut base, &mut changed] {
            side.sort_by_cached_key(|run| (run.manifest.started.clone(), run.place, run.name.clone()));
        }
        let both = base.len().min(changed.len());
        paired.alone.extend(base.drain(both..).chain(changed.drain(both..)).map(|run| run.name));
        paired.pairs.extend(base.into_iter().zip(changed));
    }
    paired
}

fn by_name(base: Vec<Measured>, changed: Vec<Measured>, given: &[(String, String)]) -> Result<Paired, PairError> {
    let named = |runs: Vec<Measured>| runs.into_iter().map(|r| (r.name.clone(), r)).collect::<BTreeMap<_, _>>();
    let mut sides = [named(base), named(changed)];
    let known = [0, 1].map(|side: usize| sides[side].keys().cloned().collect::<Vec<_>>());
    let mut take = |side: usize, name: &String| {
        sides[side].remove(name).ok_or_else(|| {
            if known[side].contains(name) {
                PairError::Twice(name.clone())
            } else {
                PairError::Unknown { name: name.clone(), known: known[side].join(", ") }
            }
        })
    };
    let mut paired = Paired::default();
    for (a, b) in given {
        let pair = (take(0, a)?, take(1, b)?);
        paired.pairs.push(pair);
    }
    paired.alone = sides.into_iter().flat_map(BTreeMap::into_keys).collect();
    Ok(paired)
}
