//! What was learned, as it is kept over a restart, and as it is shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::curve::{Curve, MEMORY, Samples, bucket, longest};
use super::{Lengths, MAX_HINTS, MAX_TENANTS, Node, Tenant};
use crate::ids::TenantId;

/// The version of [`Learned`] that is written and read.
const VERSION: u32 = 1;

/// The lengths that were learned, by the tenants' names. The same state has the same text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    version: u32,
    all: Kept,
    tenants: BTreeMap<String, KeptTenant>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptTenant {
    lengths: Kept,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    hints: BTreeMap<u32, Kept>,
}

/// Samples: lengths, each the least of its bucket, with how many there are. What has faded counts in part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    finished: Vec<(u32, f64)>,
    cut: Vec<(u32, f64)>,
    /// Finished and cut, in all.
    seen: (u64, u64),
}

/// Why what was kept cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LearnedError {
    /// It was written by another version of this program.
    #[error("version {0} of the learned lengths is not known; this program reads version {VERSION}")]
    Version(u32),
    /// There is more than can have been kept.
    #[error("{what}: {found} are kept; at most {most} can be")]
    TooMany {
        /// Of what.
        what: String,
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// A length that no answer has, or out of order.
    #[error("{0}: lengths must rise and lie between 1 and {most}", most = longest())]
    Length(String),
    /// A count that is none.
    #[error("{0}: counts must be above 0, and {MEMORY} at most together")]
    Count(String),
}

/// What is known of a tenant's lengths.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LengthSummary {
    /// Answers that ended.
    pub finished: u64,
    /// Answers that were cut, of which a length is known.
    pub cut: u64,
    /// The expected length, in tokens.
    pub mean: f64,
    /// Half of the answers are no longer.
    pub p50: u32,
    /// Nine in ten answers are no longer.
    pub p90: u32,
}

impl Lengths {
    /// What is known of a tenant's answers; `None` before one has ended or was cut.
    pub(in crate::sched) fn summary(&self, lane: usize) -> Option<LengthSummary> {
        let samples = &self.tenants.get(&lane)?.node.samples;
        let (finished, cut) = samples.counts;
        let curve = Curve::estimate(samples, &self.all.curve);
        let summary =
            LengthSummary { finished, cut, mean: curve.mean(), p50: curve.quantile(0.5), p90: curve.quantile(0.9) };
        (finished + cut > 0).then_some(summary)
    }

    pub(in crate::sched) fn learned(&self, name: impl Fn(TenantId) -> Option<String>) -> Learned {
        let kept = |(lane, tenant): (&usize, &Tenant)| {
            let hints = tenant.hints.iter().map(|(hint, node)| (*hint, Kept::of(&node.samples)));
            let kept = KeptTenant { lengths: Kept::of(&tenant.node.samples), hints: hints.collect() };
            Some((name(TenantId(u16::try_from(*lane).ok()?))?, kept))
        };
        let tenants = self.tenants.iter().filter_map(kept).collect();
        Learned { version: VERSION, all: Kept::of(&self.all.samples), tenants }
    }

    /// Takes over what was kept, of the tenants that `place` knows. What runs is not among it, so this is for the
    /// start. Nothing is changed if any of it is wrong.
    pub(in crate::sched) fn restore(
        &mut self,
        learned: &Learned,
        place: impl Fn(&str) -> Option<usize>,
    ) -> Result<(), LearnedError> {
        learned.check()?;
        let mut restored = Self::new();
        restored.all.take(learned.all.samples(), 0, &restored.prior);
        for (name, kept) in &learned.tenants {
            let Some(lane) = place(name) else { continue };
            let all = &restored.all;
            let mut node = Node::new(all.curve.clone(), all.version);
            node.take(kept.lengths.samples(), all.version, &all.curve);
            let mut hints = BTreeMap::new();
            for (hint, kept) in &kept.hints {
                let parent = node.curve.up_to(*hint);
                let mut hinted = Node::new(parent.clone(), node.version);
                hinted.take(kept.samples(), node.version, &parent);
                hints.insert(*hint, hinted);
            }
            restored.hints += hints.len();
            restored.tenants.insert(lane, Tenant { node, hints });
        }
        *self = restored;
        Ok(())
    }
}

impl Node {
    fn take(&mut self, samples: Samples, of_parent: u64, parent: &Curve) {
        self.curve = Curve::estimate(&samples, parent);
        self.samples = samples;
        (self.asked, self.version, self.of_parent) = (true, 1, of_parent);
    }
}

impl Kept {
    fn of(samples: &Samples) -> Self {
        let listed = |all: &[f64]| {
            let counted = all.iter().enumerate().filter(|(_, n)| **n > 0.0);
            counted.map(|(b, n)| (super::curve::before(b) + 1, *n)).collect()
        };
        Self { finished: listed(&samples.finished), cut: listed(&samples.cut), seen: samples.counts }
    }

    fn samples(&self) -> Samples {
        let mut samples = Samples { counts: self.seen, ..Samples::default() };
        for (of, kept) in [(&mut samples.finished, &self.finished), (&mut samples.cut, &self.cut)] {
            for (length, count) in kept {
                *super::curve::at(of, bucket(*length)) += count;
                samples.weight += count;
            }
        }
        samples
    }

    fn check(&self, name: &str) -> Result<(), LearnedError> {
        for kept in [&self.finished, &self.cut] {
            let rise = kept.is_sorted_by(|a, b| a.0 < b.0);
            if !rise || kept.iter().any(|(length, _)| !(1..=longest()).contains(length)) {
                return Err(LearnedError::Length(name.to_owned()));
            }
        }
        let mut counts = self.finished.iter().chain(&self.cut).map(|(_, n)| *n);
        let sum: f64 = counts.clone().sum();
        if counts.any(|n| n.is_nan() || n <= 0.0) || sum > MEMORY {
            return Err(LearnedError::Count(name.to_owned()));
        }
        Ok(())
    }
}

impl Learned {
    fn check(&self) -> Result<(), LearnedError> {
        if self.version != VERSION {
            return Err(LearnedError::Version(self.version));
        }
        let bound = |what: String, found: usize, most: usize| {
            if found <= most { Ok(()) } else { Err(LearnedError::TooMany { what, found, most }) }
        };
        bound("tenants".to_owned(), self.tenants.len(), MAX_TENANTS)?;
        self.all.check("all tenants")?;
        for (name, tenant) in &self.tenants {
            bound(format!("hints of tenant '{name}'"), tenant.hints.len(), MAX_HINTS)?;
            tenant.lengths.check(&format!("tenant '{name}'"))?;
            for (hint, kept) in &tenant.hints {
                kept.check(&format!("tenant '{name}', hint {hint}"))?;
            }
        }
        Ok(())
    }
}
