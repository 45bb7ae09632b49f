//! What targets are held against: arrivals with what became of them.

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;

use super::target::{Latency, Metric, Quantile, Share};
use crate::account::{Account, Arrival};

/// The arrivals of one run, or of a tenant in it, in order of arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cohort {
    /// The arrival window in seconds, by which goodput divides.
    pub(crate) window_s: f64,
    pub(crate) cases: Vec<Case>,
}

/// An arrival and what became of it.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(crate) struct Case {
    pub(crate) good: bool,
    pub(crate) completed: bool,
    pub(crate) rejected: bool,
    pub(crate) failed: bool,
    /// Never sent, as the client's own cap left no slot.
    pub(crate) capped: bool,
    /// Latencies of a completed answer in ms, in the order of [`Latency`]; `None` if it was not measured.
    pub(crate) latencies: [Option<f64>; 4],
}

impl Cohort {
    /// The arrivals of a run that has a row for each; of one tenant if it is named.
    pub(crate) fn of(run: &Account, tenant: Option<&str>) -> Self {
        let named = tenant.map(|name| run.manifest.plan.tenants.iter().position(|t| t.name == name));
        let of = run.arrivals().filter(|a| named.is_none_or(|place| place == Some(a.tenant as usize)));
        Self::of_arrivals(run.window().as_secs_f64(), of.map(|a| (a, run.slo(&a))))
    }

    /// The arrivals of these rows with their limits, in order of arrival.
    pub(crate) fn of_rows<'a>(window_s: f64, rows: impl Iterator<Item = (&'a Row, Slo)>) -> Self {
        Self::of_arrivals(window_s, rows.map(|(row, slo)| (Arrival::of(row, 0), slo)))
    }

    fn of_arrivals(window_s: f64, arrivals: impl Iterator<Item = (Arrival, Slo)>) -> Self {
        let case = |(a, slo): (Arrival, Slo)| Case {
            good: a.is_good(&slo),
            completed: a.state == Terminal::Completed,
            rejected: a.state == Terminal::Rejected,
            failed: a.state.was_sent() && !matches!(a.state, Terminal::Completed | Terminal::Rejected),
            capped: a.state == Terminal::UnsentClientCap,
            latencies: [a.ttft(), a.tpot, a.e2e(), a.longest_gap]
                .map(|span| span.filter(|_| a.state == Terminal::Completed).map(|s| s.as_millis_f64())),
        };
        Self { window_s, cases: arrivals.map(case).collect() }
    }

    /// The same without what the client's own cap kept from being sent.
    pub(crate) fn uncapped(mut self) -> Self {
        self.cases.retain(|c| !c.capped);
        self
    }

    /// Whether each arrival counts towards a share or the goodput, in order of arrival. For a quantile, whether it
    /// is within `limit`.
    pub(crate) fn hits(&self, metric: &Metric, limit: f64) -> Vec<bool> {
        match metric {
            Metric::Share(Share::Attainment) | Metric::Goodput => self.cases.iter().map(|c| c.good).collect(),
            Metric::Share(Share::Completed) => self.cases.iter().map(|c| c.completed).collect(),
            Metric::Share(Share::Rejected) => self.cases.iter().map(|c| c.rejected).collect(),
            Metric::Share(Share::Failed) => self.cases.iter().map(|c| c.failed).collect(),
            Metric::Quantile(q) => self.values(q).into_iter().map(|v| v <= limit).collect(),
        }
    }

    /// The values that a quantile is of, in order of arrival, in ms; infinite for what was never answered in full.
    pub(crate) fn values(&self, q: &Quantile) -> Vec<f64> {
        let place = match q.of {
            Latency::Ttft => 0,
            Latency::Tpot => 1,
            Latency::E2e => 2,
            Latency::LongestGap => 3,
        };
        // An answer of one token has no gap: it is in no distribution of gaps, and no failure either.
        let measured = self.cases.iter().filter(|c| !c.completed || c.latencies[place].is_some());
        let counted = measured.filter(|c| c.completed || !q.completed_only);
        counted.map(|c| c.latencies[place].unwrap_or(f64::INFINITY)).collect()
    }
}
