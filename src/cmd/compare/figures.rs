//! Pairs as bare figures in a file: what a paper or another tool says of its runs.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use elasticserve_core::config::from_toml;
use elasticserve_report::effects::{Figure, MAX_PAIRS, Pair, Side, Values};
use serde::Deserialize;

use crate::cmd::BadConfig;

/// What a file holds.
pub(super) struct Figures {
    pub(super) base: String,
    pub(super) changed: String,
    pub(super) pairs: Vec<Pair>,
}

/// As it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// What the side without the change is called.
    base: String,
    /// What the side with it is called.
    changed: String,
    /// In the order in which they ran.
    pairs: Vec<RawPair>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPair {
    name: Option<String>,
    first: Option<RawSide>,
    base: BTreeMap<String, f64>,
    changed: BTreeMap<String, f64>,
}

#[derive(Copy, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawSide {
    Base,
    Changed,
}

/// Reads and checks a file.
///
/// # Errors
/// A file that cannot be read; a [`BadConfig`] that names the key that is wrong.
pub(super) fn read(file: &Path) -> anyhow::Result<Figures> {
    let wrong = |problem: String| BadConfig(format!("{}: {}", file.display(), problem.trim_end()));
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let raw: Raw = from_toml(&text).map_err(wrong)?;
    if raw.pairs.is_empty() || raw.pairs.len() > MAX_PAIRS {
        return Err(wrong(format!("pairs: {} where 1 to {MAX_PAIRS} can be compared", raw.pairs.len())).into());
    }
    let one = |(place, raw): (usize, RawPair)| {
        let side = |name: &str, values: BTreeMap<String, f64>| {
            values_of(values).map_err(|e| wrong(format!("pairs[{place}].{name}: {e}")))
        };
        Ok(Pair {
            name: raw.name.unwrap_or_else(|| format!("pair {}", place + 1)),
            base: side("base", raw.base)?,
            changed: side("changed", raw.changed)?,
            first: raw.first.map(|side| match side {
                RawSide::Base => Side::Base,
                RawSide::Changed => Side::Changed,
            }),
        })
    };
    let pairs = raw.pairs.into_iter().enumerate().map(one).collect::<Result<_, BadConfig>>()?;
    Ok(Figures { base: raw.base, changed: raw.changed, pairs })
}

fn values_of(raw: BTreeMap<String, f64>) -> Result<Values, String> {
    let one = |(name, value): (String, f64)| {
        let figure: Figure = name.parse().map_err(|e| format!("{e}"))?;
        if !value.is_finite() {
            return Err(format!("{name} is {value}: leave out what was not measured"));
        }
        Ok((figure, value))
    };
    raw.into_iter().map(one).collect()
}
