//! Replays published measurements, row by row, with one parameter file.
//!
//! ```text
//! measurements + conditions ─ Published::sequences ─> Case ─┬─ Scenario ─ replay ─> Figures ─┐
//!                                                           └─ measured ─────────────────────┴─> Report
//! ```
//!
//! A simulation sees the conditions of a row and the parameters of the engine, never a measured value.

mod cases;
mod column;
mod effects;
mod pairs;
mod published;
mod report;
mod scenario;
mod traces;

pub use cases::{Case, Sequence};
pub use column::{Column, Rule};
pub use pairs::{PairRow, PairTable, PublishedEffect};
pub use published::{GatewayTimes, Published, PublishedError};
pub use report::{Cell, Report};
pub use scenario::{Deployment, Scenario};
pub use traces::{mixed_lengths, vllm_bench};

use crate::engine::Profile;
use crate::sched::AuditError;
use crate::sim::Figures;

/// Replays runs that share a prefix cache, in their order.
///
/// # Errors
/// An [`AuditError`] if the scheduler's invariants break: a defect of this program.
pub fn replay(sequence: &[Case], deployment: &Deployment) -> Result<Vec<Figures>, AuditError> {
    let mut seen: Vec<u32> = Vec::new();
    let mut all = Vec::new();
    for case in sequence {
        let figures = case.scenario.run(deployment, &seen)?;
        seen.extend_from_slice(figures.completed_indices());
        all.push(figures);
    }
    Ok(all)
}

/// A rule of the engine model that can be left out, to see what it is worth.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ablation {
    /// Each step is formed when the one before it has ended.
    Sync,
    /// Every prompt is computed in full.
    NoCache,
    /// Every prompt token costs time, none is hidden under the weight stream.
    NoRoof,
}

impl Ablation {
    /// Every ablation.
    pub const ALL: [Self; 3] = [Self::Sync, Self::NoCache, Self::NoRoof];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::NoCache => "no-cache",
            Self::NoRoof => "no-roof",
        }
    }

    /// The same engine without the rule.
    #[must_use]
    pub fn apply(self, profile: &Profile) -> Profile {
        let profile = profile.clone();
        match self {
            Self::Sync => Profile { pipeline_depth: 1, ..profile },
            Self::NoCache => Profile { prefix_cache: false, ..profile },
            Self::NoRoof => Profile { roof_tokens: 0.0, ..profile },
        }
    }
}
