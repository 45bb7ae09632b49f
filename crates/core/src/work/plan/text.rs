//! A plan as text, and back.

use serde::{Deserialize, Serialize};

use super::super::tenant;
use super::{Arrival, Detail, Plan, PlanError, PlanHeader};

/// A line of a plan's text.
#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    arrival: Arrival,
    #[serde(flatten)]
    detail: Detail,
}

impl Plan {
    /// The plan as text: the header as one line of JSON, then one line for each arrival.
    #[must_use]
    pub fn to_ndjson(&self) -> String {
        let header = serde_json::to_string(&self.header);
        let line = |arrival: &Arrival| {
            let detail = self.detail(arrival).cloned().unwrap_or_default();
            serde_json::to_string(&Line { arrival: *arrival, detail })
        };
        // Serialising numbers and strings to memory cannot fail.
        std::iter::once(header).chain(self.arrivals.iter().map(line)).flatten().map(|line| line + "\n").collect()
    }

    /// Reads a plan back. Texts of a dataset are not part of it: see [`Plan::with_dataset`].
    ///
    /// # Errors
    /// [`PlanError::Line`] names the line and what is wrong with it.
    pub fn from_ndjson(text: &str) -> Result<Self, PlanError> {
        let mut lines = text.lines().enumerate();
        let (_, first) = lines.next().ok_or_else(|| at(0, "the file is empty".into()))?;
        let header: PlanHeader = serde_json::from_str(first).map_err(|e| at(0, e.to_string()))?;
        if let Some(problem) = tenant::problem(&header.tenants) {
            return Err(at(0, problem));
        }
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut details: Vec<Detail> = Vec::new();
        for (number, line) in lines {
            let Line { arrival, detail } = serde_json::from_str(line).map_err(|e| at(number, e.to_string()))?;
            if let Some(problem) = arrival_problem(&header, &arrivals, &arrival) {
                return Err(at(number, problem));
            }
            arrivals.push(arrival);
            details.push(detail);
        }
        if arrivals.len() != header.count as usize {
            let problem = format!("{} arrivals where the header says {}", arrivals.len(), header.count);
            return Err(at(0, problem));
        }
        let plain = details.iter().all(|d| *d == Detail::default());
        let details = if plain { Vec::new() } else { details };
        let plan = Self { header, arrivals, details, dataset: None };
        // The header has the first line, so arrival 0 has the second.
        plan.problem().map_or(Ok(plan), |(index, problem)| Err(at(index as usize + 1, problem)))
    }
}

/// An error in a line counted from 0.
fn at(line: usize, problem: String) -> PlanError {
    PlanError::Line { line: line + 1, problem }
}

/// What is wrong with the arrival that comes after these, if anything.
fn arrival_problem(header: &PlanHeader, before: &[Arrival], arrival: &Arrival) -> Option<String> {
    if arrival.index as usize != before.len() {
        return Some(format!("index {} where {} belongs", arrival.index, before.len()));
    }
    if before.last().is_some_and(|before| before.at > arrival.at) {
        return Some("earlier than the arrival before it".into());
    }
    if usize::from(arrival.tenant) >= header.tenants.len() {
        return Some(format!("tenant {} of {}", arrival.tenant, header.tenants.len()));
    }
    (arrival.input == 0 || arrival.output == 0).then(|| "lengths must be 1 token or more".into())
}
