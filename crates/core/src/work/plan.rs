//! The plan of a run: every arrival with its time, tenant and lengths.

mod build;
mod text;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::detail::{self, Detail};
use super::{ArrivalProcess, Dataset, DatasetInfo, LoadModel, PlanSpec, PlanTenant, Prefix, TextRef, Turn};
use crate::engine::Prompt;
use crate::time::Span;

/// A planned arrival.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Its place in the plan, from 0.
    pub index: u32,
    /// When it is to be sent, from the start of the run; see [`LoadModel`] for what is not open.
    #[serde(rename = "at_ns")]
    pub at: Span,
    /// The place of its tenant in the header.
    pub tenant: u16,
    /// Prompt tokens. A turn that carries a history has that on top.
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
    /// Who sends.
    pub model: LoadModel,
    /// The seed.
    pub seed: u64,
    /// When requests arrive; under [`LoadModel::Sessions`], when users come.
    #[serde(flatten)]
    pub process: ArrivalProcess,
    /// The window that goodput divides by. None where the plan does not fix one: then it is what the run took
    /// until its last request ended.
    #[serde(rename = "window_ns", skip_serializing_if = "Option::is_none", default)]
    pub window: Option<Span>,
    /// Arrivals in the plan.
    pub count: u32,
    /// The tenants.
    pub tenants: Vec<PlanTenant>,
    /// Where the texts of prompts come from, if they are not made from numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dataset: Option<DatasetInfo>,
}

/// A frozen plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    header: PlanHeader,
    arrivals: Vec<Arrival>,
    /// What is said of each arrival besides; empty if nothing is said of any.
    details: Vec<Detail>,
    /// The texts that arrivals refer to.
    dataset: Option<Arc<Dataset>>,
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

impl Plan {
    /// Draws a plan. The same specification gives the same plan everywhere.
    ///
    /// # Errors
    /// [`PlanError::Spec`] names the parameter that is out of range.
    pub fn generate(spec: &PlanSpec) -> Result<Self, PlanError> {
        let arrivals = spec.arrivals()?.collect();
        let window = spec.process.window(spec.extent);
        Ok(Self::assemble(spec.seed, spec.process.clone(), Some(window), spec.tenants.clone(), arrivals))
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
        arrivals: Vec<Arrival>,
    ) -> Result<Self, PlanError> {
        let process = ArrivalProcess::Recorded { rate, source: source.to_owned(), unit_times: Vec::new() };
        Self::of_arrivals(0, process, Some(window), tenants, arrivals)
    }

    /// A plan of given arrivals that came about as `process` says. They must be in order of time; their numbers
    /// are set anew.
    ///
    /// # Errors
    /// [`PlanError::Spec`] if they are out of order or name a tenant that does not exist.
    pub(super) fn of_arrivals(
        seed: u64,
        process: ArrivalProcess,
        window: Option<Span>,
        tenants: Vec<PlanTenant>,
        mut arrivals: Vec<Arrival>,
    ) -> Result<Self, PlanError> {
        for (index, arrival) in (0u32..).zip(&mut arrivals) {
            arrival.index = index;
        }
        if !arrivals.is_sorted_by_key(|a| a.at) {
            return Err(PlanError::Spec("arrivals must be in order of time".into()));
        }
        if let Some(a) = arrivals.iter().find(|a| usize::from(a.tenant) >= tenants.len()) {
            let (index, tenant, count) = (a.index, a.tenant, tenants.len());
            return Err(PlanError::Spec(format!("arrival {index} names tenant {tenant}, of {count}")));
        }
        Ok(Self::assemble(seed, process, window, tenants, arrivals))
    }

    fn assemble(
        seed: u64,
        process: ArrivalProcess,
        window: Option<Span>,
        tenants: Vec<PlanTenant>,
        arrivals: Vec<Arrival>,
    ) -> Self {
        let (count, model) = (arrivals.len() as u32, LoadModel::Open);
        let header = PlanHeader { format: 1, model, seed, process, window, count, tenants, dataset: None };
        Self { header, arrivals, details: Vec::new(), dataset: None }
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

    /// The chunks of an arrival's prompt; empty if the plan does not say them.
    #[must_use]
    pub fn blocks(&self, arrival: &Arrival) -> &[u64] {
        self.detail(arrival).map_or(&[], |d| &d.blocks)
    }

    /// The place of an arrival in a conversation; every arrival has one if the model is [`LoadModel::Sessions`],
    /// else none.
    #[must_use]
    pub fn turn(&self, arrival: &Arrival) -> Option<Turn> {
        self.detail(arrival)?.turn
    }

    /// The leading tokens that an arrival's prompt shares with others, if the plan says any.
    #[must_use]
    pub fn prefix(&self, arrival: &Arrival) -> Option<Prefix> {
        self.detail(arrival)?.prefix
    }

    /// Which text of the dataset an arrival's prompt is, if it is one.
    #[must_use]
    pub fn text_ref(&self, arrival: &Arrival) -> Option<TextRef> {
        self.detail(arrival)?.text
    }

    /// The text of an arrival's prompt, if it is one of the dataset and the dataset is here.
    #[must_use]
    pub fn text(&self, arrival: &Arrival) -> Option<&str> {
        self.dataset.as_ref()?.text(self.text_ref(arrival)?)
    }

    /// Whether the plan refers to texts that are not here yet: see [`Plan::with_dataset`].
    #[must_use]
    pub const fn lacks_dataset(&self) -> bool {
        self.header.dataset.is_some() && self.dataset.is_none()
    }

    fn detail(&self, arrival: &Arrival) -> Option<&Detail> {
        self.details.get(arrival.index as usize)
    }

    /// What the engine model knows an arrival's prompt by.
    #[must_use]
    pub fn prompt(&self, arrival: &Arrival) -> Prompt {
        match self.detail(arrival) {
            Some(detail) if !detail.blocks.is_empty() => Prompt::Chunks(Arc::clone(&detail.blocks)),
            Some(Detail { prefix: Some(Prefix { family, tokens }), .. }) => {
                Prompt::Prefixed { family: *family, tokens: *tokens, own: arrival.prompt }
            }
            _ => Prompt::Family(arrival.prompt),
        }
    }

    /// The first arrival whose details are not right, and why.
    fn problem(&self) -> Option<(u32, String)> {
        let has_dataset = self.header.dataset.is_some();
        let wrong = |(a, d): (&Arrival, &Detail)| Some((a.index, d.problem(a, has_dataset)?));
        let wrong = self.arrivals.iter().zip(&self.details).find_map(wrong);
        wrong.or_else(|| detail::turns_problem(self.header.model, self.arrivals.iter().map(|a| (a, self.turn(a)))))
    }

    /// The same plan in time that runs `factor` times faster: arrivals, think times, window and SLOs alike.
    #[must_use]
    pub fn sped_up(&self, factor: f64) -> Self {
        let mut plan = self.clone();
        plan.header.window = plan.header.window.map(|window| window.scaled_down(factor));
        plan.header.process = plan.header.process.sped_up(factor);
        for tenant in &mut plan.header.tenants {
            tenant.slo = tenant.slo.scaled_down(factor);
            tenant.arrivals = tenant.arrivals.take().map(|process| process.sped_up(factor));
        }
        for arrival in &mut plan.arrivals {
            arrival.at = arrival.at.scaled_down(factor);
        }
        for turn in plan.details.iter_mut().filter_map(|d| d.turn.as_mut()) {
            turn.think = turn.think.scaled_down(factor);
        }
        plan
    }

    /// SHA-256 of the plan's text, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> String {
        Sha256::digest(self.to_ndjson()).iter().map(|b| format!("{b:02x}")).collect()
    }
}

#[cfg(test)]
mod tests;
