//! Holding a target against what was measured.

use elasticserve_core::stats::deviations;
use elasticserve_core::stats::proportion::{design_effect, dispersion, quantile_ranks, wilson};
use serde::Serialize;

use super::cohort::Cohort;
use super::target::{Metric, Quantile, Target};
use crate::fmt;
use crate::quantile::quantile;

/// The most requests that are asked for: beyond it more of them decide nothing in practice.
pub const MAX_MORE: u64 = 10_000_000;

/// What a measurement says about a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The target as text.
    pub target: String,
    /// The tenant it is about; `None` for all arrivals.
    pub tenant: Option<String>,
    /// The figure's name.
    pub figure: String,
    /// The bound: a share, good answers per second, or milliseconds.
    pub limit: f64,
    /// What it says.
    pub outcome: Outcome,
    /// The figure, where n supports it; `None` also for a quantile that lies among what was never answered.
    pub value: Option<f64>,
    /// The interval's lower end; `None` if the sample has none.
    pub low: Option<f64>,
    /// The interval's upper end; `None` if the sample has none, or it lies among what was never answered.
    pub high: Option<f64>,
    /// Arrivals that the figure is over.
    pub n: u64,
    /// As how many independent ones they count.
    pub counts_as: f64,
    /// The figure in each repeat.
    pub repeats: Vec<Option<f64>>,
    /// How many more requests like these would decide it, if the figure stays what it is; `None` if it is decided, or
    /// if no number up to [`MAX_MORE`] would.
    pub more: Option<u64>,
    /// The figure and its interval as text.
    pub shown: String,
    /// How the interval was made.
    pub method: &'static str,
    #[serde(skip)]
    pub(crate) of: Target,
}

/// Whether a target holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval is on the right side of it.
    Met,
    /// The interval straddles it, or there is none.
    Open,
    /// The whole interval is on the wrong side.
    Missed,
}

impl Outcome {
    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Open => "open",
            Self::Missed => "missed",
        }
    }
}

pub(crate) const WILSON: &str = "Wilson score interval";
pub(crate) const ORDER: &str = "order statistics, distribution-free";

/// What repeats say about a target, together.
pub(crate) fn evaluate(target: &Target, confidence: f64, repeats: &[Cohort]) -> Finding {
    let hits: Vec<Vec<bool>> = repeats.iter().map(|c| c.hits_of(target)).collect();
    let counts: Vec<(u64, u64)> = hits.iter().map(|h| (count(h), h.len() as u64)).collect();
    let n: u64 = counts.iter().map(|c| c.1).sum();
    let independent: f64 = hits.iter().filter(|h| !h.is_empty()).map(|h| h.len() as f64 / design_effect(h)).sum();
    let counts_as = independent.min(n as f64 / dispersion(&counts));
    let sample = Sample { target, confidence, repeats, counts: &counts, n, counts_as };
    match &target.metric {
        Metric::Quantile(q) => sample.quantile(q),
        Metric::Share(_) | Metric::Goodput => sample.share(),
    }
}

fn count(hits: &[bool]) -> u64 {
    hits.iter().filter(|h| **h).count() as u64
}

impl Cohort {
    fn hits_of(&self, target: &Target) -> Vec<bool> {
        self.hits(&target.metric, target.limit)
    }
}

/// Pooled repeats and what they count as.
struct Sample<'a> {
    target: &'a Target,
    confidence: f64,
    repeats: &'a [Cohort],
    /// In each repeat, how many of how many count towards the target.
    counts: &'a [(u64, u64)],
    n: u64,
    counts_as: f64,
}

impl Sample<'_> {
    fn share_of_all(&self) -> f64 {
        self.counts.iter().map(|c| c.0).sum::<u64>() as f64 / self.n.max(1) as f64
    }

    /// The arrivals of a second of the window, by which a share becomes a rate; 1 for a share.
    fn per_share(&self) -> f64 {
        let window: f64 = self.repeats.iter().map(|c| c.window_s).sum();
        if self.target.metric == Metric::Goodput { self.n as f64 / window } else { 1.0 }
    }

    fn share(&self) -> Finding {
        let (share, scale, z) = (self.share_of_all(), self.per_share(), deviations(self.confidence));
        if self.n == 0 || !scale.is_finite() {
            return self.unmeasured(WILSON);
        }
        let limit = self.target.limit / scale;
        let side = |ends: [f64; 2]| sided(ends, limit, self.target.is_floor());
        let ends = wilson(share, self.counts_as, z);
        let outcome = side(ends);
        let per_independent = self.n as f64 / self.counts_as;
        let decided = |n: u64| side(wilson(share, n as f64 / per_independent, z)) != Outcome::Open;
        let scaled = |(k, n): &(u64, u64), c: &Cohort| {
            let rate = if self.target.metric == Metric::Goodput { *n as f64 / c.window_s } else { 1.0 };
            (*n > 0).then(|| *k as f64 / *n as f64 * rate)
        };
        Finding {
            value: Some(share * scale),
            low: Some(ends[0] * scale),
            high: Some(ends[1] * scale),
            repeats: self.counts.iter().zip(self.repeats).map(|(k, c)| scaled(k, c)).collect(),
            more: if outcome == Outcome::Open { self.more(decided) } else { None },
            shown: self.shown(Some(share * scale), [Some(ends[0] * scale), Some(ends[1] * scale)]),
            outcome,
            ..self.unmeasured(WILSON)
        }
    }

    fn quantile(&self, q: &Quantile) -> Finding {
        let mut sorted: Vec<f64> = self.repeats.iter().flat_map(|c| c.values(q)).collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() || sorted.iter().all(|v| v.is_infinite()) {
            return self.unmeasured(ORDER);
        }
        let within = self.share_of_all();
        let outcome_of = |n: f64| {
            let independent = n.floor() as u64;
            let hits = (within * independent as f64 + 1e-9).floor() as u64;
            match quantile_ranks(independent, q.p, self.confidence) {
                [_, Some(high)] if high <= hits => Outcome::Met,
                [Some(low), _] if low > hits => Outcome::Missed,
                _ => Outcome::Open,
            }
        };
        let outcome = outcome_of(self.counts_as);
        let per_independent = self.n as f64 / self.counts_as;
        let decided = |n: u64| outcome_of(n as f64 / per_independent) != Outcome::Open;
        let ends = self.order_ends(&sorted, q.p);
        let value = supported(&sorted, q.p);
        let each = self.repeats.iter().map(|c| {
            let mut values = c.values(q);
            values.sort_by(f64::total_cmp);
            supported(&values, q.p).filter(|v| v.is_finite())
        });
        let finite = |v: Option<f64>| v.filter(|v| v.is_finite());
        Finding {
            value: finite(value),
            low: finite(ends[0]),
            high: finite(ends[1]),
            repeats: each.collect(),
            more: if outcome == Outcome::Open { self.more(decided) } else { None },
            shown: self.shown(value, ends),
            outcome,
            ..self.unmeasured(ORDER)
        }
    }

    /// The order statistics around a quantile. A sample that counts as fewer gives ranks among those, which are
    /// stretched to the whole.
    fn order_ends(&self, sorted: &[f64], p: f64) -> [Option<f64>; 2] {
        let independent = self.counts_as.floor() as u64;
        let stretch = sorted.len() as f64 / independent.max(1) as f64;
        let [low, high] = quantile_ranks(independent, p, self.confidence);
        let low = low.map(|l| ((l - 1) as f64 * stretch).floor() as usize);
        let high = high.map(|u| (u as f64 * stretch).ceil() as usize - 1);
        [low, high].map(|rank| rank.map(|r| sorted[r.min(sorted.len() - 1)]))
    }

    /// How many requests more than there are it takes until a condition holds, which larger samples keep.
    fn more(&self, decided: impl Fn(u64) -> bool) -> Option<u64> {
        let (mut low, mut high) = (self.n, self.n.max(8) * 2);
        while !decided(high) {
            low = high;
            high = high.checked_mul(2).filter(|h| h - self.n <= MAX_MORE)?;
        }
        while low + 1 < high {
            let middle = u64::midpoint(low, high);
            if decided(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(high - self.n)
    }

    fn shown(&self, value: Option<f64>, ends: [Option<f64>; 2]) -> String {
        if ends[0].is_some_and(f64::is_infinite) {
            return "never".to_owned();
        }
        let unit = self.target.unit();
        let known: Vec<f64> = [value, ends[0], ends[1]].into_iter().flatten().collect();
        let decimals = unit.decimals(&known);
        let text = |v: Option<f64>, none: &str| match v {
            None => none.to_owned(),
            Some(v) if v.is_infinite() => "never".to_owned(),
            Some(v) => unit.rounded(v, decimals),
        };
        format!("{} ({} to {})", text(value, fmt::MISSING), text(ends[0], "unbounded"), text(ends[1], "unbounded"))
    }

    /// What is said where there is nothing to measure.
    fn unmeasured(&self, method: &'static str) -> Finding {
        Finding {
            target: self.target.to_string(),
            tenant: self.target.tenant.clone(),
            figure: self.target.metric.name(),
            limit: self.target.limit,
            outcome: Outcome::Open,
            value: None,
            low: None,
            high: None,
            n: self.n,
            counts_as: if self.n == 0 { 0.0 } else { self.counts_as },
            repeats: self.repeats.iter().map(|_| None).collect(),
            more: None,
            shown: "not measured".to_owned(),
            method,
            of: self.target.clone(),
        }
    }
}

fn sided(ends: [f64; 2], limit: f64, floor: bool) -> Outcome {
    match ends {
        [low, _] if floor && low >= limit => Outcome::Met,
        [_, high] if floor && high < limit => Outcome::Missed,
        [_, high] if !floor && high <= limit => Outcome::Met,
        [low, _] if !floor && low > limit => Outcome::Missed,
        _ => Outcome::Open,
    }
}

/// The quantile `p` where the sample supports it: n · (1 − p) ≥ 1. Infinite where it reaches into what is.
fn supported(sorted: &[f64], p: f64) -> Option<f64> {
    // A tolerance of rounding: 100 · (1 − 0.99) is a little less than 1.
    if (sorted.len() as f64) * (1.0 - p) < 1.0 - 1e-9 {
        return None;
    }
    let finite = sorted.partition_point(|v| v.is_finite());
    let place = (sorted.len() - 1) as f64 * p;
    if place.ceil() as usize >= finite {
        return Some(f64::INFINITY);
    }
    quantile(sorted, p)
}

#[cfg(test)]
mod tests;
