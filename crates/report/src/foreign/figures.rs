//! What can be recomputed from an export.

use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use serde::Serialize;

use super::sends::{Sends, arrivals, chance};
use super::{Declared, Export, Figure, Process, Sent, State, Tool};
use crate::chart::Offered;
use crate::check::cohort::{Case, Cohort};
use crate::fmt;
use crate::quantile::Distribution;

/// An export in figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExportFigures {
    /// What it is called.
    pub name: String,
    /// Who wrote it.
    pub tool: Tool,
    /// The tool's version, where the export has it.
    pub version: Option<String>,
    /// The load that was asked for, in words.
    pub declared: String,
    /// Arrivals of the declared load; `None` if that is not known.
    pub arrivals: Option<f64>,
    /// Requests in the export.
    pub sent: u32,
    /// Answered, as far as the tool tells.
    pub completed: u32,
    /// Turned away with 429 or 503.
    pub rejected: u32,
    /// Failed otherwise.
    pub failed: u32,
    /// Cut off by the tool at its end.
    pub cut: u32,
    /// Arrivals of the declared load that are missing beyond chance.
    pub missing: u32,
    /// The sends.
    pub sends: Sends,
    /// How late the sends were, in ms; of no values where planned times are not kept.
    pub send_lag: Distribution,
    /// From the planned time to the first content; of no values where planned times are not kept.
    pub ttft: Distribution,
    /// From the planned time to the end.
    pub e2e: Distribution,
    /// From the send to the first content, as the tool reports it.
    pub ttft_from_send: Distribution,
    /// From the send to the end.
    pub e2e_from_send: Distribution,
    /// Time per output token after the first.
    pub tpot: Distribution,
    /// The longest gap of each answer.
    pub longest_gap: Distribution,
    /// What the schema has and lacks: the moment or state, whether it is there, and how.
    pub schema: Vec<(String, bool, String)>,
}

impl ExportFigures {
    /// The figures of an export.
    #[must_use]
    pub fn of(export: &Export) -> Self {
        let count = |state| export.sent.iter().filter(|s| s.state == state).count() as u32;
        let each = |of: &dyn Fn(&Sent) -> Option<f64>| {
            Distribution::of(export.sent.iter().filter_map(of).map(Span::from_millis_f64))
        };
        let from_plan = |s: &Sent, ms: Option<f64>| Some(ms? + lag(s)?);
        Self {
            name: export.name.clone(),
            tool: export.tool,
            version: export.version.clone(),
            declared: export.declared.words(),
            arrivals: arrivals(&export.declared),
            sent: export.sent.len() as u32,
            completed: count(State::Completed),
            rejected: count(State::Rejected),
            failed: count(State::Failed),
            cut: count(State::Cut),
            missing: export.missing(),
            sends: Sends::of(export),
            send_lag: each(&lag),
            ttft: each(&|s| from_plan(s, s.ttft)),
            e2e: each(&|s| from_plan(s, s.e2e)),
            ttft_from_send: each(&|s| s.ttft),
            e2e_from_send: each(&|s| s.e2e),
            tpot: each(&|s| s.tpot),
            longest_gap: each(&|s| s.longest_gap),
            schema: export.schema.iter().map(|m| (m.what.to_owned(), m.has, m.how.to_owned())).collect(),
        }
    }

    /// The recomputed counterpart of a figure that the tool reported.
    pub(crate) const fn counterpart(&self, figure: Figure) -> (&'static str, Option<f64>) {
        match figure {
            Figure::TtftP50 => ("TTFT p50", self.ttft_from_send.p50),
            Figure::TtftP99 => ("TTFT p99", self.ttft_from_send.p99),
            Figure::E2eP50 => ("E2E p50", self.e2e_from_send.p50),
            Figure::E2eP99 => ("E2E p99", self.e2e_from_send.p99),
            Figure::TpotP50 => ("TPOT p50", self.tpot.p50),
        }
    }
}

/// How late a send was, in ms.
pub(crate) fn lag(sent: &Sent) -> Option<f64> {
    sent.planned.map(|planned| ((sent.at - planned) * 1e3).max(0.0))
}

impl Export {
    /// How many arrivals of the declared load are missing beyond chance.
    pub(crate) fn missing(&self) -> u32 {
        let short = |n: f64| Some(n - self.sent.len() as f64).filter(|short| *short > chance(&self.declared, n));
        arrivals(&self.declared).and_then(short).map_or(0, |short| short.round() as u32)
    }

    /// The sends, to be drawn.
    pub(crate) fn offered(&self) -> Offered<'_> {
        let first = self.sent.first().map_or(0.0, |s| s.at);
        Offered {
            label: &self.name,
            times: self.sent.iter().map(|s| s.at - first).collect(),
            rate: self.declared.rate,
            arrivals: arrivals(&self.declared),
        }
    }

    /// The requests as targets see them: from the planned time where there is one, else from the send. What was declared
    /// and is missing comes last, as never sent.
    pub(crate) fn cohort(&self, slo: &Slo) -> Cohort {
        let mut cases: Vec<Case> = self.sent.iter().map(|s| case(s, slo)).collect();
        cases.resize(cases.len() + self.missing() as usize, Case::default());
        let asked = self.declared.count.zip(self.declared.rate).map(|(n, rate)| n as f64 / rate);
        let sends = Sends::of(self);
        let seen = || sends.rate.map_or(0.0, |rate| sends.n as f64 / rate);
        Cohort { window_s: self.declared.seconds.or(asked).unwrap_or_else(seen), cases }
    }
}

fn case(s: &Sent, slo: &Slo) -> Case {
    let late = lag(s).unwrap_or(0.0);
    let from_plan = |ms: Option<f64>| ms.map(|ms| ms + late);
    let (ttft, e2e) = (from_plan(s.ttft), from_plan(s.e2e));
    let span = |ms: Option<f64>| ms.map(Span::from_millis_f64);
    let completed = s.state == State::Completed;
    Case {
        good: completed && slo.is_met(span(ttft), span(s.tpot), span(e2e), s.output_tokens),
        completed,
        rejected: s.state == State::Rejected,
        failed: matches!(s.state, State::Failed | State::Cut),
        capped: false,
        latencies: [ttft, s.tpot, e2e, s.longest_gap].map(|ms| ms.filter(|_| completed)),
    }
}

impl Declared {
    /// The load that was asked for.
    pub(crate) fn words(&self) -> String {
        let number = |n: f64| fmt::trimmed(n, 2);
        let rate = match (self.rate, self.process) {
            (Some(rate), Some(Process::Constant)) => format!("evenly spaced at {}/s", number(rate)),
            (Some(rate), Some(Process::Poisson)) => format!("Poisson at {}/s", number(rate)),
            (Some(rate), Some(Process::Gamma(b))) => format!("gamma of burstiness {} at {}/s", number(b), number(rate)),
            (Some(rate), None) => format!("{}/s, spaced in a way that the export does not tell", number(rate)),
            (None, _) => "no rate".to_owned(),
        };
        let count = self.count.map(|n| format!(", {} requests", fmt::count(n)));
        let seconds = self.seconds.map(|s| format!(", for {} s", number(s)));
        let cap = self.cap.map(|k| format!(", at most {} in flight", fmt::count(k)));
        [Some(rate), count, seconds, cap].into_iter().flatten().collect()
    }
}
