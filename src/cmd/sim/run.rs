//! `elasticserve sim run`.

use std::path::PathBuf;
use std::process::ExitCode;

use elasticserve_core::engine::Profile;
use elasticserve_core::ledger::Manifest;
use elasticserve_core::sched::Settings;
use elasticserve_core::sim::{GatewaySetup, Setup};
use elasticserve_core::work::Plan;

use super::policy::GatewayArgs;
use crate::cmd::load::work::WorkArgs;
use crate::cmd::load::{conclude, default_folder, plan};
use crate::cmd::{BadConfig, profile, say};
use crate::lab::{simulated_manifest, write_simulation};

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
    write_simulation(&folder, &plan, &args.setup(&plan, engines, settings), &mut manifest)?;
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
        let mut manifest = simulated_manifest(&self.name, plan, engines, settings);
        let cache = if self.warm { "warm" } else { "cold" };
        manifest.metadata.insert("prefix_cache".to_owned(), cache.to_owned());
        manifest.prompts_salted = !self.warm;
        manifest
    }
}
