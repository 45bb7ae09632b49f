//! The figures of one run, in the time of its plan.

use std::collections::BTreeMap;
use std::path::Path;

use elasticserve_core::ledger::{Manifest, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::sim::{Figures, Tally};
use elasticserve_core::time::Tick;
use elasticserve_report::check::Latency;
use elasticserve_report::effects::{Figure, Kind, Values};
use elasticserve_report::{Distribution, Run, Summary, read_run};

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

/// The figures of a run in the time of its plan; those that it does not have are not in them.
fn values(summary: &Summary) -> Values {
    let (scale, all) = (summary.time_scale, &summary.figures);
    let share = |n: u32, of: u32| (of > 0).then(|| f64::from(n) / f64::from(of));
    let latency = |of: Latency, d: &Distribution| (Kind::Latency(of, 95), d.p95.map(|ms| ms * scale));
    let whole = [
        (Kind::Attainment, all.attainment),
        (Kind::Goodput, all.goodput_per_s.map(|rate| rate / scale)),
        (Kind::Throughput, summary.completed_per_s.map(|rate| rate / scale)),
        (Kind::Rejected, share(all.rejected, all.planned)),
        (Kind::Failed, share(all.failed, all.planned)),
        latency(Latency::Ttft, &all.latencies.ttft),
        latency(Latency::Tpot, &all.latencies.tpot),
        latency(Latency::E2e, &all.latencies.e2e),
        (Kind::Jain, summary.jain),
        (Kind::LowestTenant, summary.lowest_tenant.as_ref().map(|lowest| lowest.attainment)),
    ];
    let mut values: Values = whole.into_iter().filter_map(|(kind, v)| Some((Figure::all(kind), v?))).collect();
    if summary.tenants.len() > 1 {
        for tenant in &summary.tenants {
            let of = &tenant.figures;
            let own = [(Kind::Attainment, of.attainment), (Kind::Rejected, share(of.rejected, of.planned))];
            values.extend(own.into_iter().filter_map(|(kind, v)| Some((Figure::of(&tenant.name, kind), v?))));
        }
    }
    values
}

impl Measured {
    /// Reads a run folder.
    pub(super) fn read(place: Place, turn: usize, folder: String, path: &Path) -> anyhow::Result<Self> {
        let run = read_run(path)?;
        let summary = Summary::of(&run);
        let completed = run.outcomes().into_iter().filter(|r| r.state == Terminal::Completed);
        let cached = completed.filter_map(|r| Some((r.index, r.cached_tokens?))).collect();
        let (counted, values) = (counted(&run), values(&summary));
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
