//! `elasticserve sim run`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::ledger::{
    LEDGER_FILE, MANIFEST_FILE, Manifest, PLAN_FILE, Row, RunEnd, Target, Timeouts, Tolerances,
};
use elasticserve_core::sched::Settings;
use elasticserve_core::sim::fit::PARAMETERS;
use elasticserve_core::sim::{self, GatewaySetup, Setup};
use elasticserve_core::time::Tick;
use elasticserve_core::work::Plan;
use elasticserve_report::write_file;

use super::policy::{GatewayArgs, describe};
use crate::cmd::load::work::WorkArgs;
use crate::cmd::load::{conclude, default_folder, plan};
use crate::cmd::{BadConfig, profile, say};

/// Run a plan against engine models, direct or behind the gateway's scheduler, on virtual time.
///
/// The run folder is the same as that of `elasticserve load`: plan, manifest, and a ledger with one row for
/// each arrival, written as they end. So `elasticserve report` reads and compares both; figures of a
/// simulation are marked as such.
#[derive(clap::Args)]
#[command(after_help = "\
The gateway is described by its own configuration file or by flags; with none of them the requests go
straight to the engine. Several engines, each with a profile, stand behind one gateway.

Examples:
  elasticserve sim run --request-rate 16 --num-prompts 200 --isl 256 --osl 64 --seed 7 \\
    --goodput ttft:1000 tpot:100 e2el:15000 --permits 32 --queue-budget 750ms --result-dir runs/sim
  elasticserve sim run --plan runs/first/plan.ndjson --gateway gateway.toml --profile my-engine.toml
  elasticserve sim run --plan plan.ndjson --permits 32 --profile fast.toml --profile slow.toml
  elasticserve report runs/first runs/sim

Exit codes:
  0   done
  1   the folder could not be written, or holds a run already
  2   the command line is wrong; the message names the flag
  64  a profile, the plan or the gateway's configuration is wrong; nothing was started")]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// An engine: the name of a built-in profile, or a file that ends in .toml; several stand behind one gateway
    #[arg(long, value_name = "NAME|FILE.toml", default_value = profile::DEFAULT, help_heading = ENGINE)]
    profile: Vec<String>,
    /// The engines' prefix caches hold all prompts of the plan from the start
    #[arg(long, help_heading = ENGINE)]
    warm: bool,
    /// The folder for ledger, manifest and report [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    result_dir: Option<PathBuf>,
    /// The run's name in reports
    #[arg(long, value_name = "NAME", default_value = "sim", help_heading = OUTPUT)]
    name: String,
    /// Write plan, manifest and ledger only: the report reads the whole ledger into memory
    #[arg(long, help_heading = OUTPUT)]
    no_report: bool,
    /// Print the summary as JSON
    #[arg(long, conflicts_with = "no_report", help_heading = OUTPUT)]
    json: bool,
}

const ENGINE: &str = "Engine";
const OUTPUT: &str = "Output";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = plan::from_args(&args.work)?;
    if !plan.header().model.is_open() {
        let model = plan.header().model;
        return Err(BadConfig(format!("this is a {model} load; the simulator runs open plans only")).into());
    }
    let profiles = args.profile.iter().map(|name| profile::load(name)).collect::<Result<Vec<Profile>, _>>()?;
    let engines = args.gateway.engines(profiles)?;
    let settings = args.gateway.settings(engines.len(), &plan.header().tenants)?;
    if settings.is_none() && engines.len() > 1 {
        return Err(
            BadConfig("--profile: several engines need a gateway; say --permits or --gateway".to_owned()).into()
        );
    }
    let mut manifest = args.manifest(&plan, &engines, settings.as_ref());
    let folder = args.result_dir.clone().unwrap_or_else(|| default_folder(&args.name));
    write_run(&folder, &plan, &args.setup(&plan, engines, settings), &mut manifest)?;
    if args.no_report {
        say(&format!("ledger and manifest: {}", folder.display()));
        return Ok(ExitCode::SUCCESS);
    }
    conclude(&manifest, &folder, args.json)
}

impl Args {
    fn setup(&self, plan: &Plan, engines: Vec<Profile>, settings: Option<Settings>) -> Setup {
        let overhead = self.gateway.gateway_overhead.scaled_down(2.0);
        let gateway = settings.map(|scheduler| GatewaySetup {
            overhead_in: overhead,
            overhead_out: overhead,
            ..GatewaySetup::instant(scheduler)
        });
        let warm = plan.arrivals().iter().filter(|_| self.warm).map(|a| (plan.prompt(a), a.input)).collect();
        Setup { engines, gateway, warm }
    }

    fn manifest(&self, plan: &Plan, engines: &[Profile], settings: Option<&Settings>) -> Manifest {
        let mut metadata = BTreeMap::new();
        for (place, engine) in engines.iter().enumerate() {
            metadata.insert(format!("engine.{place}"), parameters(engine));
        }
        metadata.insert("gateway".to_owned(), settings.map_or_else(|| "none".to_owned(), describe));
        metadata.insert("prefix_cache".to_owned(), if self.warm { "warm" } else { "cold" }.to_owned());
        Manifest {
            format: 1,
            name: self.name.clone(),
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
            prompts_salted: !self.warm,
            timeouts: Timeouts::default(),
            tolerances: Tolerances::default(),
            max_in_flight: None,
            retries: 0,
            ceiling: None,
            metadata,
            end: None,
        }
    }
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

/// Simulates and writes the run folder; at its end the manifest says how it ended.
fn write_run(folder: &Path, plan: &Plan, setup: &Setup, manifest: &mut Manifest) -> anyhow::Result<()> {
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
    sim::run(plan, setup, |row| ledger.add(&row)).context("the scheduler broke its own rules")?;
    manifest.end = Some(ledger.finish().with_context(|| path.display().to_string())?);
    write_manifest(folder, manifest)
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
