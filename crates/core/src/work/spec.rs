//! What a plan of one process and one distribution of lengths is drawn from.

use super::{Arrival, ArrivalProcess, Extent, Lengths, PlanError, PlanTenant, tenant};
use crate::rng::{Random, Stream, mix};

/// What a plan is generated from.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSpec {
    /// The seed of every random choice.
    pub seed: u64,
    /// When requests arrive.
    pub process: ArrivalProcess,
    /// How many.
    pub extent: Extent,
    /// Prompt lengths.
    pub input: Lengths,
    /// Answer lengths.
    pub output: Lengths,
    /// Whose requests they are, at least one.
    pub tenants: Vec<PlanTenant>,
}

impl PlanSpec {
    /// The arrivals of the plan, drawn as they are asked for: for runs whose plan does not fit in memory.
    ///
    /// # Errors
    /// [`PlanError::Spec`] names the parameter that is out of range.
    pub fn arrivals(&self) -> Result<impl Iterator<Item = Arrival>, PlanError> {
        let problem = self
            .process
            .problem()
            .or_else(|| self.input.problem("input"))
            .or_else(|| self.output.problem("output"))
            .or_else(|| tenant::problem(&self.tenants));
        if let Some(problem) = problem {
            return Err(PlanError::Spec(problem));
        }
        let mut lengths = Random::new(self.seed, Stream::Lengths);
        let mut tenants = Random::new(self.seed, Stream::Tenants);
        let shares: Vec<f64> = self.tenants.iter().map(|t| t.share).collect();
        let total: f64 = shares.iter().sum();
        Ok((0u32..).zip(self.process.times(self.seed, self.extent)).map(move |(index, at)| Arrival {
            index,
            at,
            tenant: tenant::pick(&shares, tenants.unit() * total),
            input: self.input.draw(&mut lengths),
            output: self.output.draw(&mut lengths),
            prompt: mix(self.seed, u64::from(index)),
        }))
    }
}
