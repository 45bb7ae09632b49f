//! The figures of one run, in the time of its plan.

use std::collections::BTreeMap;
use std::path::Path;

use elasticserve_core::ledger::{Manifest, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::sim::{Figures, Tally};
use elasticserve_core::time::Tick;
use elasticserve_report::check::Latency;
use elasticserve_report::effects::{Figure, Kind, Unit, Values, values};
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
    /// The figures that arms are compared by.
    pub(super) values: Values,
    /// The figures as usual load generators print them, for figures that somebody else has measured.
    pub(super) counted: Figures,
    /// Prompt tokens from the prefix cache, of each request that was answered in full.
    pub(super) cached: BTreeMap<u32, u32>,
}

/// The figures that arms are compared by, in the order of tables: of all arrivals, then by tenant.
pub(super) fn compared(tenants: &[String]) -> Vec<Figure> {
    use Kind::{Attainment, Goodput, Jain, Latency as Of, LowestTenant, Rejected, Throughput};
    let latencies = [Of(Latency::Ttft, 95), Of(Latency::Tpot, 95), Of(Latency::E2e, 95)];
    let mut kinds = vec![Attainment, Goodput, Throughput, Rejected];
    kinds.extend(latencies);
    if tenants.len() < 2 {
        return kinds.into_iter().map(Figure::all).collect();
    }
    kinds.extend([Jain, LowestTenant]);
    let own = tenants.iter().flat_map(|t| [Attainment, Rejected].map(|kind| Figure::of(t, kind)));
    kinds.into_iter().map(Figure::all).chain(own).collect()
}

/// The figures of a run in the time of its plan.
fn in_real_time(summary: &Summary) -> Values {
    let slowed = |(figure, value): (Figure, f64)| {
        let value = match figure.kind.unit() {
            Unit::Ms => value * summary.time_scale,
            Unit::PerSecond => value / summary.time_scale,
            Unit::Share | Unit::Index => value,
        };
        (figure, value)
    };
    values(summary).into_iter().map(slowed).collect()
}

impl Measured {
    /// Reads a run folder.
    pub(super) fn read(place: Place, turn: usize, folder: String, path: &Path) -> anyhow::Result<Self> {
        let run = read_run(path)?;
        let summary = Summary::of(&run);
        let completed = run.outcomes().into_iter().filter(|r| r.state == Terminal::Completed);
        let cached = completed.filter_map(|r| Some((r.index, r.cached_tokens?))).collect();
        let (counted, values) = (counted(&run), in_real_time(&summary));
        Ok(Self { place, turn, folder, counted, values, cached, summary, manifest: run.manifest })
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
    for time in [&mut row.send_started, &mut row.first_content, &mut row.last_content, &mut row.end] {
        *time = time.map(|at| slowed_tick(at, factor));
    }
    row.planned = slowed_tick(row.planned, factor);
    row
}

fn slowed_tick(at: Tick, factor: f64) -> Tick {
    if factor == 1.0 { at } else { Tick::ZERO + at.since(Tick::ZERO).scaled_down(1.0 / factor) }
}
