//! A simulated run as a folder: the same files as those of a real one.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::ledger::{
    LEDGER_FILE, MANIFEST_FILE, Manifest, PLAN_FILE, Row, RunEnd, Target, Timeouts, Tolerances,
};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::sched::Settings;
use elasticserve_core::sim::fit::PARAMETERS;
use elasticserve_core::sim::{self, Setup};
use elasticserve_core::time::Tick;
use elasticserve_core::work::Plan;
use elasticserve_report::write_file;

/// The manifest of a simulated run with cold, salted prompts.
pub(crate) fn simulated_manifest(
    name: &str,
    plan: &Plan,
    engines: &[Profile],
    settings: Option<&Settings>,
) -> Manifest {
    let mut metadata = BTreeMap::new();
    for (place, engine) in engines.iter().enumerate() {
        metadata.insert(format!("engine.{place}"), parameters(engine));
    }
    metadata.insert("gateway".to_owned(), settings.map_or_else(|| "none".to_owned(), describe));
    Manifest {
        format: 1,
        name: name.to_owned(),
        simulated: true,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: None,
        plan_hash: plan.hash(),
        plan: plan.header().clone(),
        time_scale: 1.0,
        target: Target {
            url: "simulated".to_owned(),
            endpoint: "/v1/completions".to_owned(),
            model: engines.first().map(|e| e.model.clone()).unwrap_or_default(),
            streaming: true,
            ..Target::default()
        },
        warmups: 0,
        prompts_salted: true,
        timeouts: Timeouts::default(),
        tolerances: Tolerances::default(),
        max_in_flight: None,
        retries: 0,
        ceiling: None,
        metadata,
        end: None,
    }
}

/// Simulates and writes the run folder; at its end the manifest says how it ended. Gives the places of the requests
/// that were answered in full, ascending.
///
/// # Errors
/// A folder that holds a run or cannot be written; a scheduler that breaks its own rules, a defect of this program.
pub(crate) fn write_simulation(
    folder: &Path,
    plan: &Plan,
    setup: &Setup,
    manifest: &mut Manifest,
) -> anyhow::Result<Vec<u32>> {
    std::fs::create_dir_all(folder).with_context(|| format!("--result-dir {}", folder.display()))?;
    let path = folder.join(LEDGER_FILE);
    let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{} already holds a run: choose another --result-dir", folder.display())
        }
        _ => anyhow::Error::new(error).context(path.display().to_string()),
    })?;
    write_file(&folder.join(PLAN_FILE), &plan.to_ndjson())?;
    write_manifest(folder, manifest)?;
    let mut ledger = Ledger::new(BufWriter::new(file), plan);
    let mut completed = Vec::new();
    let add = |row: Row| {
        if row.state == Terminal::Completed {
            completed.push(row.index);
        }
        ledger.add(&row);
    };
    sim::run(plan, setup, add).context("the scheduler broke its own rules")?;
    manifest.end = Some(ledger.finish().with_context(|| path.display().to_string())?);
    write_manifest(folder, manifest)?;
    completed.sort_unstable();
    Ok(completed)
}

/// The scheduler's settings in words.
fn describe(settings: &Settings) -> String {
    let permits: Vec<String> = settings.backends.iter().map(u32::to_string).collect();
    let budget = settings.budget.map_or_else(|| "none".to_owned(), |b| b.to_string());
    let weights: Vec<String> = settings.tenants.iter().map(|t| t.weight.to_string()).collect();
    let predicts = if settings.predict.is_some() { ", admission by prediction" } else { "" };
    format!(
        "{}, permits {}, queue depth {}, queue budget {budget}, weights {}{predicts}",
        settings.order,
        permits.join("+"),
        settings.depth,
        weights.join(":")
    )
}

/// A profile in one line.
fn parameters(engine: &Profile) -> String {
    let fitted = PARAMETERS.iter().map(|p| format!("{} {}", p.key, p.get(engine)));
    let set = [
        ("max_seqs", engine.max_seqs),
        ("block_tokens", engine.block_tokens),
        ("token_budget", engine.token_budget),
        ("pipeline_depth", engine.pipeline_depth),
        ("prefix_cache", u32::from(engine.prefix_cache)),
    ];
    let limits = [("kv_blocks", engine.kv_blocks), ("cache_blocks", engine.cache_blocks)];
    let limits = limits.into_iter().filter_map(|(name, limit)| Some(format!("{name} {}", limit?)));
    let all = fitted.chain(set.map(|(name, value)| format!("{name} {value}"))).chain(limits);
    format!("{}: {}", engine.name, all.collect::<Vec<_>>().join(", "))
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(manifest)? + "\n";
    Ok(write_file(&folder.join(MANIFEST_FILE), &text)?)
}

/// Rows on their way to the disk, and what is counted of them.
struct Ledger<'a, W> {
    out: W,
    /// The first failure; nothing is written after it.
    failed: Option<io::Error>,
    plan: &'a Plan,
    arrived: u32,
    ended: u32,
    peak: u32,
    last: Tick,
}

impl<'a, W: Write> Ledger<'a, W> {
    fn new(out: W, plan: &'a Plan) -> Self {
        Self { out, failed: None, plan, arrived: 0, ended: 0, peak: 0, last: Tick::ZERO }
    }

    fn add(&mut self, row: &Row) {
        let end = row.end.unwrap_or(self.last);
        // Just before an end as many are in flight as have arrived and not ended: rows come in the order of
        // their ends, so the peaks lie there.
        let waiting = &self.plan.arrivals()[self.arrived as usize..];
        self.arrived += waiting.iter().take_while(|a| Tick::ZERO + a.at <= end).count() as u32;
        self.peak = self.peak.max(self.arrived - self.ended);
        self.ended += 1;
        self.last = self.last.max(end);
        if self.failed.is_none() {
            let line = serde_json::to_writer(&mut self.out, row).map_err(io::Error::from);
            self.failed = line.and_then(|()| self.out.write_all(b"\n")).err();
        }
    }

    fn finish(mut self) -> io::Result<RunEnd> {
        match self.failed.take() {
            Some(error) => return Err(error),
            None => self.out.flush()?,
        }
        Ok(RunEnd {
            at: self.last,
            interrupted: false,
            peak_in_flight: self.peak,
            connections: 0,
            cpu: None,
            drawn: None,
            health: None,
        })
    }
}
