//! The figures of one run, in the time of its plan.

use std::collections::BTreeMap;
use std::path::Path;

use elasticserve_core::ledger::{Manifest, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::sim::{Figures, Tally};
use elasticserve_core::time::{Span, Tick};
use elasticserve_report::{Run, Summary, read_run};

use super::design::Place;

/// A run that has ended.
pub(super) struct Measured {
    pub(super) place: Place,
    /// Its place in the order in which the runs were made.
    pub(super) turn: usize,
    pub(super) folder: String,
    pub(super) manifest: Manifest,
    pub(super) summary: Summary,
    /// The figures as usual load generators print them, for figures that somebody else has measured.
    pub(super) counted: Figures,
    /// Prompt tokens from the prefix cache, of each request that was answered in full.
    pub(super) cached: BTreeMap<u32, u32>,
}

/// A figure that arms are compared by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// Answers within every limit, of all that was offered.
    Attainment,
    /// The same per second of the arrival window.
    Goodput,
    /// Whole answers per second until the last one.
    Throughput,
    /// What was turned away, of all that was offered.
    Refused,
    /// The 95th percentile of the time to first token, of whole answers, in ms.
    Ttft,
    /// Of the time per output token.
    Tpot,
    /// Of the time to the end.
    E2e,
    /// Jain's index over the tenants' attainments.
    Jain,
    /// The lowest attainment of a tenant.
    Lowest,
    /// The attainment of the tenant in this place of the plan.
    Tenant(usize, String),
}

impl Metric {
    /// Those of a workload with these tenants.
    pub(super) fn all(tenants: &[String]) -> Vec<Self> {
        use Metric::{Attainment, E2e, Goodput, Jain, Lowest, Refused, Throughput, Tpot, Ttft};
        let mut all = vec![Attainment, Goodput, Throughput, Refused, Ttft, Tpot, E2e];
        if tenants.len() > 1 {
            all.extend([Jain, Lowest]);
            all.extend(tenants.iter().enumerate().map(|(place, name)| Self::Tenant(place, name.clone())));
        }
        all
    }

    /// The name in JSON.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Attainment => "attainment".to_owned(),
            Self::Goodput => "goodput_per_s".to_owned(),
            Self::Throughput => "completed_per_s".to_owned(),
            Self::Refused => "refused_share".to_owned(),
            Self::Ttft => "ttft_p95_ms".to_owned(),
            Self::Tpot => "tpot_p95_ms".to_owned(),
            Self::E2e => "e2e_p95_ms".to_owned(),
            Self::Jain => "jain".to_owned(),
            Self::Lowest => "lowest_attainment".to_owned(),
            Self::Tenant(_, name) => format!("attainment[{name}]"),
        }
    }

    /// The name in tables, with the unit.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Attainment => "attainment, %".to_owned(),
            Self::Goodput => "goodput, /s".to_owned(),
            Self::Throughput => "completed, /s".to_owned(),
            Self::Refused => "refused, %".to_owned(),
            Self::Ttft => "TTFT p95, ms".to_owned(),
            Self::Tpot => "TPOT p95, ms".to_owned(),
            Self::E2e => "E2E p95, ms".to_owned(),
            Self::Jain => "Jain's index".to_owned(),
            Self::Lowest => "lowest tenant, %".to_owned(),
            Self::Tenant(_, name) => format!("{name}, %"),
        }
    }

    /// Whether the value is a share, which tables show in per cent and whose differences are points.
    pub(super) const fn is_share(&self) -> bool {
        matches!(self, Self::Attainment | Self::Refused | Self::Lowest | Self::Tenant(..))
    }

    /// Decimals in tables.
    pub(super) const fn decimals(&self) -> usize {
        match self {
            Self::Goodput | Self::Throughput => 2,
            Self::Jain => 3,
            _ => 1,
        }
    }

    /// Whether more is better; `None` where that depends.
    pub(super) const fn more_is_better(&self) -> Option<bool> {
        match self {
            Self::Attainment | Self::Goodput | Self::Jain | Self::Lowest | Self::Tenant(..) => Some(true),
            Self::Throughput | Self::Refused => None,
            Self::Ttft | Self::Tpot | Self::E2e => Some(false),
        }
    }

    /// The value of a run: shares from 0 to 1, times in ms.
    pub(super) fn of(&self, run: &Measured) -> Option<f64> {
        let (figures, scale) = (&run.summary.figures, run.summary.time_scale);
        let (share, time) = (|n: u32, of: u32| (of > 0).then(|| f64::from(n) / f64::from(of)), |ms: f64| ms * scale);
        match self {
            Self::Attainment => figures.attainment,
            Self::Goodput => figures.goodput_per_s.map(|rate| rate / scale),
            Self::Throughput => run.summary.completed_per_s.map(|rate| rate / scale),
            Self::Refused => share(figures.rejected, figures.planned),
            Self::Ttft => figures.latencies.ttft.p95.map(time),
            Self::Tpot => figures.latencies.tpot.p95.map(time),
            Self::E2e => figures.latencies.e2e.p95.map(time),
            Self::Jain => run.summary.jain,
            Self::Lowest => run.summary.lowest_tenant.as_ref().map(|lowest| lowest.attainment),
            Self::Tenant(place, _) => run.summary.tenants.get(*place)?.figures.attainment,
        }
    }
}

impl Measured {
    /// Reads a run folder.
    pub(super) fn read(place: Place, turn: usize, folder: String, path: &Path) -> anyhow::Result<Self> {
        let run = read_run(path)?;
        let summary = Summary::of(&run);
        let completed = run.outcomes().into_iter().filter(|r| r.state == Terminal::Completed);
        let cached = completed.filter_map(|r| Some((r.index, r.cached_tokens?))).collect();
        Ok(Self { place, turn, folder, counted: counted(&run), cached, summary, manifest: run.manifest })
    }

    /// Whether it says something about the server.
    pub(super) const fn counts(&self) -> bool {
        self.summary.valid && self.summary.reconciled
    }
}

/// The figures in the time of the plan. Rows that were not sent at all are offered ones too.
fn counted(run: &Run) -> Figures {
    let (factor, tenants) = (run.manifest.time_scale, &run.manifest.plan.tenants);
    let mut tally = Tally::new(tenants.len());
    for row in run.outcomes() {
        let place = tenants.iter().position(|t| t.name == row.tenant).unwrap_or(0);
        let slo = tenants.get(place).map(|t| t.slo.scaled_down(1.0 / factor)).unwrap_or_default();
        tally.add(&slowed(row, factor), place, &slo);
    }
    tally.finish()
}

/// A row in time that runs `factor` times slower, as far as the figures need it.
fn slowed(row: &Row, factor: f64) -> Row {
    let mut row = row.clone();
    if factor == 1.0 {
        return row;
    }
    let slow = |at: Tick| Tick::ZERO + Span::from_nanos((at.as_nanos() as f64 * factor).round() as u64);
    row.planned = slow(row.planned);
    for time in [&mut row.send_started, &mut row.first_content, &mut row.last_content, &mut row.end] {
        *time = time.map(slow);
    }
    row
}
