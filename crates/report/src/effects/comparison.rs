//! Pairs of runs held against each other: whether they may be, and what the change did.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::manifests::{Difference, differences, drift};
use super::measured::made;
use super::{Effects, Measured, Pair, Paired, Question, Side};
use crate::doc::Table;
use crate::fmt::{counted, one_line, percent};

/// The change of the cached share of prompt tokens between the sides of a pair from which its cache state is said
/// to differ.
const CACHE_CHANGE: f64 = 0.1;
/// What `--allow` takes for runs that are not valid.
const VALID: &str = "valid";

/// What a change did, from pairs of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The effects, with what is to be known before they are used.
    #[serde(flatten)]
    pub effects: Effects,
    /// The pairs with what they say of the figure in question.
    #[serde(skip)]
    pub pairs: Table,
    /// In what the sides differ, one entry for each field and pair of values.
    pub differences: Vec<Difference>,
    /// Runs without a partner, in no figure.
    pub alone: Vec<String>,
    /// Which share of the arrivals could have been served in time at all; empty without a profile.
    pub ceilings: Vec<CeilingOfPairs>,
}

/// Which share of the arrivals an idle engine could have served within their limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CeilingOfPairs {
    /// Of which tenant; `None` for all arrivals.
    pub tenant: Option<String>,
    /// Arrivals of all pairs, each counted once.
    pub planned: u32,
    /// Those whose limits an idle engine keeps.
    pub feasible: u32,
    /// The lowest and the highest share of a pair.
    pub range: [f64; 2],
}

/// Runs that must not be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", told(problems))]
pub struct Refused {
    /// What stands against it: a key that `--allow` takes, and what is wrong.
    pub problems: Vec<(String, String)>,
}

fn told(problems: &[(String, String)]) -> String {
    let lines: Vec<&str> = problems.iter().map(|(_, what)| what.as_str()).collect();
    let keys: BTreeSet<&str> = problems.iter().map(|(key, _)| key.as_str()).collect();
    let allow: Vec<String> = keys.into_iter().map(|key| format!("--allow {key}")).collect();
    format!("these runs are not compared:\n  {}\nIf that is meant, say so: {}", lines.join("\n  "), allow.join(" "))
}

impl Comparison {
    /// What the change did. `base` and `changed` are what the sides are called; `allow` names the fields of the
    /// manifest that may differ, and `valid` for runs that are not valid.
    ///
    /// # Errors
    /// [`Refused`] names each field that differs with both its values, and each run that is not valid.
    pub fn of(
        base: &str,
        changed: &str,
        paired: &Paired,
        allow: &[String],
        question: &Question,
    ) -> Result<Self, Refused> {
        let found = all_differences(&paired.pairs);
        let allowed = |key: &str| allow.iter().any(|a| a == key);
        let mut problems: Vec<(String, String)> = found
            .iter()
            .filter(|d| d.matters && !allowed(&d.key))
            .map(|d| (d.key.clone(), format!("{}: {} against {}", d.key, d.base, d.changed)))
            .collect();
        problems.extend(drifts(&paired.pairs).into_iter().filter(|(key, _)| !allowed(key)));
        if !allowed(VALID) {
            problems.extend(invalid(&paired.pairs).into_iter().map(|what| (VALID.to_owned(), what)));
        }
        if !problems.is_empty() {
            problems.dedup();
            return Err(Refused { problems });
        }
        let pairs = pairs(&paired.pairs);
        let mut effects = Effects::of(base, changed, &pairs, question);
        effects.warnings.extend(cache(&paired.pairs));
        effects.warnings.extend(
            found
                .iter()
                .filter(|d| d.matters)
                .map(|d| format!("{} differs, as allowed: {} against {}.", d.key, d.base, d.changed)),
        );
        if allowed(VALID) {
            effects.warnings.extend(invalid(&paired.pairs).into_iter().map(|what| format!("{what}, as allowed.")));
        }
        let ceilings = ceilings(&paired.pairs);
        effects.warnings.extend(beyond(&paired.pairs));
        let table = effects.pair_table(&pairs);
        Ok(Self { effects, pairs: table, differences: found, alone: paired.alone.clone(), ceilings })
    }
}

/// The fields in which the sides of any pair differ, each pair of values once.
fn all_differences(pairs: &[(Measured, Measured)]) -> Vec<Difference> {
    let each = pairs.iter().flat_map(|(a, b)| differences(&a.manifest, &b.manifest));
    each.collect::<BTreeSet<Difference>>().into_iter().collect()
}

/// The fields in which the pairs differ among each other on the side without the change: what was measured moved
/// from pair to pair.
fn drifts(pairs: &[(Measured, Measured)]) -> Vec<(String, String)> {
    let Some((first, _)) = pairs.first() else { return Vec::new() };
    let each = pairs.iter().flat_map(|(run, _)| {
        let told = |d: Difference| {
            let what = format!("{}: {} in {}, {} in {}", d.key, d.base, first.name, d.changed, run.name);
            (d.key, what)
        };
        drift(&first.manifest, &run.manifest).into_iter().map(told)
    });
    each.collect::<BTreeMap<_, _>>().into_iter().collect()
}

fn invalid(pairs: &[(Measured, Measured)]) -> Vec<String> {
    let runs = pairs.iter().flat_map(|(a, b)| [a, b]);
    let bad = runs.filter_map(|run| Some((run, run.invalid.first()?)));
    bad.map(|(run, why)| {
        format!("{} ({}) is not valid: {why}", one_line(&run.name, 40), one_line(&run.manifest.name, 40))
    })
    .collect()
}

/// The pairs' figures, named by their seeds where those tell them apart.
fn pairs(of: &[(Measured, Measured)]) -> Vec<Pair> {
    let seeds: BTreeSet<u64> = of.iter().map(|(a, _)| a.manifest.plan.seed).collect();
    let by_seed = seeds.len() == of.len();
    let one = |(a, b): &(Measured, Measured)| Pair {
        name: if by_seed { format!("seed {}", a.manifest.plan.seed) } else { a.name.clone() },
        base: a.values.clone(),
        changed: b.values.clone(),
        first: first(a, b),
    };
    of.iter().map(one).collect()
}

/// Which run was made first.
fn first(a: &Measured, b: &Measured) -> Option<Side> {
    let (a, b) = (made(a)?, made(b)?);
    match a.cmp(&b) {
        Ordering::Less => Some(Side::Base),
        Ordering::Greater => Some(Side::Changed),
        Ordering::Equal => None,
    }
}

/// What may have made the prefix cache differ between the sides.
fn cache(pairs: &[(Measured, Measured)]) -> Vec<String> {
    let mut said = Vec::new();
    let count = |which: &dyn Fn(&Measured, &Measured) -> bool| {
        counted(pairs.iter().filter(|(a, b)| which(a, b)).count() as u32, "pair")
    };
    let unsalted = |a: &Measured, b: &Measured| !a.manifest.prompts_salted && !b.manifest.prompts_salted;
    if pairs.iter().any(|(a, b)| unsalted(a, b)) {
        said.push(format!(
            "Prompts are not salted in {}: the run that came second may have found the first one's prompts in the prefix cache, and the effect is then that of the order as well.",
            count(&unsalted)
        ));
    }
    let salt = |m: &Measured| m.manifest.metadata.get("salt").filter(|_| m.manifest.prompts_salted).cloned();
    let shared = |a: &Measured, b: &Measured| salt(a).is_some() && salt(a) == salt(b);
    if pairs.iter().any(|(a, b)| shared(a, b)) {
        said.push(format!(
            "Both sides have the same salt in {}: their prompts are the same, and the run that came second found them in the prefix cache.",
            count(&shared)
        ));
    }
    for (a, b) in pairs {
        if let Some((x, y)) = a.cached.zip(b.cached).filter(|(x, y)| (x - y).abs() > CACHE_CHANGE) {
            said.push(format!(
                "The prefix cache gave {} of the prompt tokens of {} and {} of {}: the sides of this pair did not have the same cache.",
                percent(Some(x)),
                one_line(&a.name, 40),
                percent(Some(y)),
                one_line(&b.name, 40)
            ));
        }
    }
    said
}

fn ceilings(pairs: &[(Measured, Measured)]) -> Vec<CeilingOfPairs> {
    let Some((first, _)) = pairs.first() else { return Vec::new() };
    let of = |tenant: &Option<String>| {
        let each = pairs.iter().flat_map(|(a, _)| a.ceilings.iter().filter(|c| c.tenant == *tenant));
        let each: Vec<_> = each.filter(|c| c.planned > 0).collect();
        let shares = each.iter().map(|c| f64::from(c.feasible) / f64::from(c.planned));
        let range = shares.fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], s| [l.min(s), h.max(s)]);
        (!each.is_empty()).then(|| CeilingOfPairs {
            tenant: tenant.clone(),
            planned: each.iter().map(|c| c.planned).sum(),
            feasible: each.iter().map(|c| c.feasible).sum(),
            range,
        })
    };
    first.ceilings.iter().filter_map(|c| of(&c.tenant)).collect()
}

/// Whether the profile is slower than the engine was.
fn beyond(pairs: &[(Measured, Measured)]) -> Option<String> {
    let runs = pairs.iter().flat_map(|(a, b)| [a, b]);
    let n: u32 = runs.filter_map(|run| Some(run.ceilings.first()?.good_beyond)).sum();
    (n > 0).then(|| {
        format!(
            "{} kept limits that the profile says no engine of its kind can keep: it is slower than the engine was, and the ceilings are too low.",
            counted(n, "answer")
        )
    })
}

#[cfg(test)]
mod tests;
