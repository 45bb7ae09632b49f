//! Recorded workloads of others, read into a [`Plan`].
//!
//! | format | a line | what it says |
//! |---|---|---|
//! | [`TraceFormat::Mooncake`] | JSON: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` | prompts share the 512-token blocks whose ids agree |
//! | [`TraceFormat::Azure`] | CSV: `TIMESTAMP,ContextTokens,GeneratedTokens` | date and time of day; prompts share nothing |
//! | [`TraceFormat::Tenants`] | CSV: `i,arrival_s,tenant,input_tokens,output_tokens` | seconds from the start of the run; prompts share nothing |
//!
//! Reading is strict: a field too many, too few or out of range is an error that names the line. Nothing
//! is guessed and no row is left out.

mod azure;
mod mooncake;
mod tenants;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use super::{Arrival, Plan, PlanTenant};
use crate::slo::Slo;
use crate::time::Span;

/// A format of traces.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Mooncake's conversation and tool traces (Qin et al. 2025).
    Mooncake,
    /// Azure's LLM inference traces (Patel et al. 2024, github.com/Azure/AzurePublicDataset).
    Azure,
    /// Arrivals of several tenants, as in `reference/traces/m3_*.csv`.
    Tenants,
}

/// What to make of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// Arrivals come this many times faster than recorded; SLOs and lengths stay.
    pub speed_up: f64,
    /// Only so many rows from the start.
    pub limit: Option<NonZeroU32>,
    /// The tenants. A format that names none gives all rows to the first. If empty: one tenant
    /// `default`, or those that the trace names in order of appearance, all without limits.
    pub tenants: Vec<PlanTenant>,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self { speed_up: 1.0, limit: None, tenants: Vec::new() }
    }
}

/// Why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// A line that is not what it should be.
    #[error("trace line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The trace as a whole, or an option.
    #[error("trace: {0}")]
    Whole(String),
}

impl TraceFormat {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Mooncake, Self::Azure, Self::Tenants];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake",
            Self::Azure => "azure",
            Self::Tenants => "tenants",
        }
    }

    /// The format of a text, by its first line.
    ///
    /// # Errors
    /// [`TraceError::Line`] if it is none of them.
    pub fn detect(text: &str) -> Result<Self, TraceError> {
        let first = text.lines().next().unwrap_or_default();
        match first {
            azure::HEADER => Ok(Self::Azure),
            tenants::HEADER => Ok(Self::Tenants),
            _ if first.starts_with('{') => Ok(Self::Mooncake),
            _ => {
                let (azure, tenants) = (azure::HEADER, tenants::HEADER);
                Err(line(0, format!("neither a JSON object nor the header '{azure}' or '{tenants}'")))
            }
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TraceFormat {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            TraceError::Whole(format!("no format is called '{text}'; there are: {names}"))
        })
    }
}

/// Reads a trace. `source` names it in the plan, such as its file's name.
///
/// The plan's window ends with the last arrival.
///
/// # Errors
/// [`TraceError`] says which line, what is wrong with it and what would be right.
pub fn read_trace(format: TraceFormat, text: &str, source: &str, options: &TraceOptions) -> Result<Plan, TraceError> {
    if !(options.speed_up > 0.0 && options.speed_up.is_finite()) {
        return Err(TraceError::Whole(format!("the speed-up must be above 0, not {}", options.speed_up)));
    }
    let limit = options.limit.map_or(usize::MAX, |limit| limit.get() as usize);
    let rows = match format {
        TraceFormat::Mooncake => mooncake::read(text, limit)?,
        TraceFormat::Azure => azure::read(text, limit)?,
        TraceFormat::Tenants => tenants::read(text, limit)?,
    };
    plan(rows, source, options)
}

/// A row of any format.
#[derive(Debug)]
struct TraceRow {
    /// Its line, from 0.
    line: usize,
    at: Span,
    tenant: Option<String>,
    input: u32,
    output: u32,
    blocks: Vec<u64>,
}

fn plan(rows: Vec<TraceRow>, source: &str, options: &TraceOptions) -> Result<Plan, TraceError> {
    let mut tenants = Tenants::new(&options.tenants);
    let mut arrivals: Vec<Arrival> = Vec::with_capacity(rows.len());
    let mut blocks: Vec<Arc<[u64]>> = Vec::with_capacity(rows.len());
    for (index, row) in (0u32..).zip(rows) {
        let at = row.at.scaled_down(options.speed_up);
        if arrivals.last().is_some_and(|before| before.at > at) {
            return Err(line(row.line, "earlier than the line before it; rows must be in order of time".into()));
        }
        let tenant = tenants.place(&row)?;
        // Prompts of one number share their text, so only prompts with the same blocks have the same.
        let prompt = match row.blocks.last() {
            Some(last) => crate::rng::mix(*last, u64::from(row.input)),
            None => crate::rng::mix(0, u64::from(index)),
        };
        arrivals.push(Arrival { index, at, tenant, input: row.input, output: row.output, prompt });
        blocks.push(row.blocks.into());
    }
    let Some(last) = arrivals.last() else { return Err(TraceError::Whole("it has no rows".into())) };
    // A trace of a single moment still needs a length to divide by.
    let window = if last.at == Span::ZERO { Span::from_secs(1) } else { last.at };
    let rate = arrivals.len() as f64 / window.as_secs_f64();
    let whole = |error: super::PlanError| TraceError::Whole(error.to_string());
    let plan = Plan::recorded(source, rate, window, tenants.list, arrivals).map_err(whole)?;
    plan.with_blocks(blocks).map_err(whole)
}

struct Tenants {
    list: Vec<PlanTenant>,
    /// Whether the trace may add to them.
    open: bool,
}

impl Tenants {
    fn new(given: &[PlanTenant]) -> Self {
        Self { list: given.to_vec(), open: given.is_empty() }
    }

    fn place(&mut self, row: &TraceRow) -> Result<u16, TraceError> {
        let name = match (&row.tenant, self.list.first()) {
            (Some(name), _) => name.as_str(),
            (None, Some(_)) => return Ok(0),
            (None, None) => "default",
        };
        let place = match self.list.iter().position(|t| t.name == name) {
            Some(place) => place,
            None if self.open => {
                self.list.push(PlanTenant::new(name, 1.0, Slo::default()));
                self.list.len() - 1
            }
            None => {
                let names: Vec<&str> = self.list.iter().map(|t| t.name.as_str()).collect();
                return Err(line(row.line, format!("no tenant is called '{name}'; there are: {}", names.join(", "))));
            }
        };
        u16::try_from(place).map_err(|_| line(row.line, "more tenants than 65536".into()))
    }
}

/// An error in a line counted from 0.
fn line(number: usize, problem: String) -> TraceError {
    TraceError::Line { line: number + 1, problem }
}

/// Checks a length in tokens.
fn tokens(number: usize, name: &str, value: u32) -> Result<u32, TraceError> {
    if value == 0 {
        return Err(line(number, format!("{name} is 0; it must be 1 token or more")));
    }
    Ok(value)
}

/// The rows of a CSV file without quotes, after a header that must be this: line and fields.
pub(super) fn csv<'a, const N: usize>(
    text: &'a str,
    header: &str,
) -> Result<impl Iterator<Item = Result<(usize, [&'a str; N]), TraceError>>, TraceError> {
    let mut lines = text.lines().enumerate();
    let first = lines.next().map_or("", |(_, first)| first);
    if first != header {
        return Err(line(0, format!("the header is '{first}', but must be '{header}'")));
    }
    Ok(lines.map(|(number, text)| {
        let fields: Vec<&str> = text.split(',').collect();
        let count = fields.len();
        let fields = fields.try_into().map_err(|_| line(number, format!("{count} fields, but {N} belong there")))?;
        Ok((number, fields))
    }))
}

/// A length in tokens from a field.
pub(super) fn tokens_field(number: usize, name: &str, field: &str) -> Result<u32, TraceError> {
    let value =
        field.parse().map_err(|_| line(number, format!("{name} is '{field}', not a whole number of tokens")))?;
    tokens(number, name, value)
}
