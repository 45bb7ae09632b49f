//! The plan of a run: every arrival with its time, tenant and lengths.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{ArrivalProcess, Extent, Lengths};
use crate::engine::Prompt;
use crate::rng::{Random, Stream, mix};
use crate::slo::Slo;
use crate::time::Span;

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

/// A tenant's part in a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanTenant {
    /// The tenant's name.
    pub name: String,
    /// Its share of the arrivals, relative to the others.
    pub share: f64,
    /// What makes an answer useful to it.
    pub slo: Slo,
}

/// A planned arrival.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Its place in the plan, from 0.
    pub index: u32,
    /// When it is to be sent, from the start of the run.
    #[serde(rename = "at_ns")]
    pub at: Span,
    /// The place of its tenant in the header.
    pub tenant: u16,
    /// Prompt tokens.
    pub input: u32,
    /// Answer tokens.
    pub output: u32,
    /// The identity of the prompt's text: equal numbers share their leading tokens.
    pub prompt: u64,
}

/// What a plan says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanHeader {
    /// The format's version.
    pub format: u32,
    /// The load model: `open`.
    pub model: String,
    /// The seed.
    pub seed: u64,
    /// When requests arrive.
    #[serde(flatten)]
    pub process: ArrivalProcess,
    /// The window that goodput divides by.
    #[serde(rename = "window_ns")]
    pub window: Span,
    /// Arrivals in the plan.
    pub count: u32,
    /// The tenants.
    pub tenants: Vec<PlanTenant>,
}

/// A frozen plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    header: PlanHeader,
    arrivals: Vec<Arrival>,
    /// The chunks of each arrival's prompt; empty if no arrival says any.
    blocks: Vec<Arc<[u64]>>,
}

/// A line of a plan's text.
#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    arrival: Arrival,
    /// Hashes of the prompt's chunks of [`Prompt::CHUNK_TOKENS`], where the plan comes from a trace that
    /// says them; else the prompt is what `arrival.prompt` says.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    blocks: Vec<u64>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A parameter out of range.
    #[error("{0}")]
    Spec(String),
    /// A line of a plan file that is not what it should be.
    #[error("plan line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
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
            .or_else(|| tenants_problem(&self.tenants));
        if let Some(problem) = problem {
            return Err(PlanError::Spec(problem));
        }
        let mut lengths = Random::new(self.seed, Stream::Lengths);
        let mut tenants = Random::new(self.seed, Stream::Tenants);
        let total: f64 = self.tenants.iter().map(|t| t.share).sum();
        Ok((0u32..).zip(self.process.times(self.seed, self.extent)).map(move |(index, at)| Arrival {
            index,
            at,
            tenant: pick(&self.tenants, tenants.unit() * total),
            input: self.input.draw(&mut lengths),
            output: self.output.draw(&mut lengths),
            prompt: mix(self.seed, u64::from(index)),
        }))
    }
}

impl Plan {
    /// Draws a plan. The same specification gives the same plan everywhere.
    ///
    /// # Errors
    /// [`PlanError::Spec`] names the parameter that is out of range.
    pub fn generate(spec: &PlanSpec) -> Result<Self, PlanError> {
        let arrivals = spec.arrivals()?.collect();
        let window = spec.process.window(spec.extent);
        Ok(Self::assemble(spec.seed, spec.process.clone(), window, spec.tenants.clone(), arrivals))
    }

    /// A plan of given arrivals, which must be in order of time; their numbers are set anew.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if they are out of order or name a tenant that does not exist.
    pub fn recorded(
        source: &str,
        rate: f64,
        window: Span,
        tenants: Vec<PlanTenant>,
        mut arrivals: Vec<Arrival>,
    ) -> Result<Self, PlanError> {
        for (index, arrival) in arrivals.iter_mut().enumerate() {
            arrival.index = index as u32;
        }
        if !arrivals.is_sorted_by_key(|a| a.at) {
            return Err(PlanError::Spec("arrivals must be in order of time".into()));
        }
        if let Some(a) = arrivals.iter().find(|a| usize::from(a.tenant) >= tenants.len()) {
            return Err(PlanError::Spec(format!(
                "arrival {} names tenant {}, of {}",
                a.index,
                a.tenant,
                tenants.len()
            )));
        }
        let process = ArrivalProcess::Recorded { rate, source: source.to_owned(), unit_times: Vec::new() };
        Ok(Self::assemble(0, process, window, tenants, arrivals))
    }

    fn assemble(
        seed: u64,
        process: ArrivalProcess,
        window: Span,
        tenants: Vec<PlanTenant>,
        arrivals: Vec<Arrival>,
    ) -> Self {
        let count = arrivals.len() as u32;
        let header = PlanHeader { format: 1, model: "open".into(), seed, process, window, count, tenants };
        Self { header, arrivals, blocks: Vec::new() }
    }

    /// What the plan says about itself.
    #[must_use]
    pub const fn header(&self) -> &PlanHeader {
        &self.header
    }

    /// The arrivals, in order of time.
    #[must_use]
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// The tenant of an arrival.
    #[must_use]
    pub fn tenant(&self, arrival: &Arrival) -> &PlanTenant {
        &self.header.tenants[usize::from(arrival.tenant)]
    }

    /// The same plan with the chunks of each arrival's prompt, in the order of the arrivals: hashes of
    /// [`Prompt::CHUNK_TOKENS`] tokens each, and all before them. None for a prompt that shares what
    /// its number says.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if there is not one list for each arrival, or one is longer than its prompt.
    pub fn with_blocks(mut self, blocks: Vec<Arc<[u64]>>) -> Result<Self, PlanError> {
        if blocks.len() != self.arrivals.len() {
            let problem = format!("{} lists of blocks for {} arrivals", blocks.len(), self.arrivals.len());
            return Err(PlanError::Spec(problem));
        }
        if let Some((a, problem)) =
            self.arrivals.iter().zip(&blocks).find_map(|(a, b)| Some((a, blocks_problem(a, b)?)))
        {
            return Err(PlanError::Spec(format!("arrival {}: {problem}", a.index)));
        }
        let any = blocks.iter().any(|b| !b.is_empty());
        self.blocks = if any { blocks } else { Vec::new() };
        Ok(self)
    }

    /// The chunks of an arrival's prompt; empty if the plan does not say them.
    #[must_use]
    pub fn blocks(&self, arrival: &Arrival) -> &[u64] {
        self.blocks.get(arrival.index as usize).map_or(&[], |b| b)
    }

    /// What the engine model knows an arrival's prompt by.
    #[must_use]
    pub fn prompt(&self, arrival: &Arrival) -> Prompt {
        match self.blocks.get(arrival.index as usize) {
            Some(blocks) if !blocks.is_empty() => Prompt::Chunks(Arc::clone(blocks)),
            _ => Prompt::Family(arrival.prompt),
        }
    }

    /// The same plan in time that runs `factor` times faster: arrivals, window and SLOs alike.
    #[must_use]
    pub fn sped_up(&self, factor: f64) -> Self {
        let mut plan = self.clone();
        plan.header.window = plan.header.window.scaled_down(factor);
        match &mut plan.header.process {
            ArrivalProcess::Constant { rate }
            | ArrivalProcess::Poisson { rate }
            | ArrivalProcess::Recorded { rate, .. } => *rate *= factor,
        }
        for tenant in &mut plan.header.tenants {
            tenant.slo = tenant.slo.scaled_down(factor);
        }
        for arrival in &mut plan.arrivals {
            arrival.at = arrival.at.scaled_down(factor);
        }
        plan
    }

    /// The plan as text: the header as one line of JSON, then one line for each arrival.
    #[must_use]
    pub fn to_ndjson(&self) -> String {
        let header = serde_json::to_string(&self.header);
        let line = |arrival: &Arrival| Line { arrival: *arrival, blocks: self.blocks(arrival).to_vec() };
        let arrivals = self.arrivals.iter().map(|arrival| serde_json::to_string(&line(arrival)));
        // Serialising numbers and strings to memory cannot fail.
        std::iter::once(header).chain(arrivals).flatten().map(|line| line + "\n").collect()
    }

    /// Reads a plan back.
    ///
    /// # Errors
    /// [`PlanError::Line`] names the line and what is wrong with it.
    pub fn from_ndjson(text: &str) -> Result<Self, PlanError> {
        let at = |line: usize, problem: String| PlanError::Line { line: line + 1, problem };
        let mut lines = text.lines().enumerate();
        let (_, first) = lines.next().ok_or_else(|| at(0, "the file is empty".into()))?;
        let header: PlanHeader = serde_json::from_str(first).map_err(|e| at(0, e.to_string()))?;
        if let Some(problem) = tenants_problem(&header.tenants) {
            return Err(at(0, problem));
        }
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut all_blocks: Vec<Arc<[u64]>> = Vec::new();
        for (number, line) in lines {
            let Line { arrival, blocks } = serde_json::from_str(line).map_err(|e| at(number, e.to_string()))?;
            if arrival.index as usize != arrivals.len() {
                return Err(at(number, format!("index {} where {} belongs", arrival.index, arrivals.len())));
            }
            if arrivals.last().is_some_and(|before| before.at > arrival.at) {
                return Err(at(number, "earlier than the arrival before it".into()));
            }
            if usize::from(arrival.tenant) >= header.tenants.len() {
                return Err(at(number, format!("tenant {} of {}", arrival.tenant, header.tenants.len())));
            }
            if arrival.input == 0 || arrival.output == 0 {
                return Err(at(number, "lengths must be 1 token or more".into()));
            }
            if let Some(problem) = blocks_problem(&arrival, &blocks) {
                return Err(at(number, problem));
            }
            arrivals.push(arrival);
            all_blocks.push(blocks.into());
        }
        if arrivals.len() != header.count as usize {
            let problem = format!("{} arrivals where the header says {}", arrivals.len(), header.count);
            return Err(at(0, problem));
        }
        Self { header, arrivals, blocks: Vec::new() }.with_blocks(all_blocks)
    }

    /// SHA-256 of the plan's text, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> String {
        Sha256::digest(self.to_ndjson()).iter().map(|b| format!("{b:02x}")).collect()
    }
}

fn blocks_problem(arrival: &Arrival, blocks: &[u64]) -> Option<String> {
    let most = arrival.input.div_ceil(Prompt::CHUNK_TOKENS) as usize;
    let chunk = Prompt::CHUNK_TOKENS;
    (blocks.len() > most).then(|| {
        format!("{} blocks of {chunk} tokens for {} input tokens, which have {most}", blocks.len(), arrival.input)
    })
}

fn tenants_problem(tenants: &[PlanTenant]) -> Option<String> {
    if tenants.is_empty() || tenants.len() > usize::from(u16::MAX) {
        return Some("a plan needs from 1 to 65,535 tenants".into());
    }
    let bad = tenants.iter().find(|t| !(t.share > 0.0 && t.share.is_finite()))?;
    Some(format!("the share of tenant '{}' must be above 0, not {}", bad.name, bad.share))
}

fn pick(tenants: &[PlanTenant], mut point: f64) -> u16 {
    for (i, tenant) in (0u16..).zip(tenants) {
        if point < tenant.share {
            return i;
        }
        point -= tenant.share;
    }
    // Rounding may leave a point just past the last share.
    (tenants.len() - 1) as u16
}

#[cfg(test)]
mod tests;
