//! Observations of the same composition, brought down to their median.

use std::collections::BTreeMap;

use super::observe::{Observations, median_of};
use crate::stats::median;

/// What is measured at a point.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The first token of a lone request, from its send.
    First,
    /// A step that only decodes.
    Decode,
    /// A step that decodes and computes a prompt.
    Mixed,
}

/// A point that parameters are fitted to.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Point {
    /// What is measured.
    pub kind: Kind,
    /// Prompt tokens computed.
    pub prefill: u32,
    /// Sequences that decode.
    pub decoding: u32,
    /// KV tokens read; the median, as their part of the time is in proportion.
    pub kv: f64,
    /// Observations.
    pub n: usize,
    /// Their median, in ms.
    pub ms: f64,
    /// Their standard deviation as the median of absolute deviations tells it (1.4826 times that), in ms; none of one.
    pub spread: Option<f64>,
    /// What the fitted parameters say, in ms.
    pub fitted: f64,
    /// The observations, in ms.
    #[serde(skip)]
    pub samples: Vec<f64>,
}

/// The consistency factor of the median of absolute deviations for normal values, 1 / Φ⁻¹(3/4).
pub(super) const MAD: f64 = 1.4826;
/// Points to a doubling of KV tokens, of steps that decode, and of those with a prompt, of which there are few: there the
/// KV cache is a small part.
const OCTAVE: f64 = 8.0;
const OCTAVE_MIXED: f64 = 1.0;

/// Observations from which on a median holds out against one that is far off.
const FIRM: usize = 3;

/// The kind, prompt tokens, decoding sequences and the place of KV tokens.
type Composition = (Kind, u32, u32, i64);
/// KV tokens and observations.
type Group = (Vec<f64>, Vec<f64>);

impl Point {
    /// What is left after the fit, in ms.
    #[must_use]
    pub fn residual(&self) -> f64 {
        self.ms - self.fitted
    }

    fn new((kind, prefill, decoding, _): Composition, (kvs, samples): Group) -> Option<Self> {
        let ms = median(&samples)?;
        let spread = (samples.len() > 1).then(|| median_of(samples.iter().map(|s| (s - ms).abs()))).flatten();
        let kv = median(&kvs)?;
        let spread = spread.map(|mad| MAD * mad);
        Some(Self { kind, prefill, decoding, kv, n: samples.len(), ms, spread, fitted: f64::NAN, samples })
    }
}

/// The points of all that was seen, in order: first tokens by computed prompt tokens, then steps.
#[must_use]
pub fn points(seen: &Observations) -> Vec<Point> {
    let mut groups: BTreeMap<Composition, Group> = BTreeMap::new();
    for first in &seen.firsts {
        let (kvs, samples) = groups.entry((Kind::First, first.computed, 0, 0)).or_default();
        kvs.push(f64::from(first.input - first.computed.min(first.input)));
        samples.push(first.ms);
    }
    for steps in &seen.steps {
        let (kind, octave) = if steps.prefill > 0 { (Kind::Mixed, OCTAVE_MIXED) } else { (Kind::Decode, OCTAVE) };
        let place = libm::floor(libm::log2(steps.kv.max(1.0)) * octave) as i64;
        let (kvs, samples) = groups.entry((kind, steps.prefill, steps.decoding, place)).or_default();
        kvs.push(steps.kv);
        samples.push(steps.ms);
    }
    let mut points: Vec<Point> = groups.into_iter().filter_map(|(what, group)| Point::new(what, group)).collect();
    // The median of one or two is no guard against a pause: where there are better ones of the kind, those decide.
    for kind in [Kind::Decode, Kind::Mixed] {
        let is_firm = |p: &Point| p.kind != kind || p.n >= FIRM;
        if points.iter().any(|p| p.kind == kind && is_firm(p)) {
            points.retain(is_firm);
        }
    }
    points
}
