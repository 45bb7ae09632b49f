//! `elasticserve experiment`.

mod design;
mod findings;
mod make;
mod measure;
mod output;
mod published;
mod raw;
mod record;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_load::{BaseUrl, Stop};
use elasticserve_report::HTML_FILE;

use self::design::{Arm, Design};
use self::findings::Findings;
use self::measure::Measured;
use self::record::{Record, Recorded};
use super::load::{INTERRUPTED, default_folder, fresh_salt, interruptible};
use super::{BadConfig, profile, say, say_error};
use crate::lab::{Stand, Way};

/// Arguments of `elasticserve experiment`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The experiment; see docs/experiments.md and experiments/
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Make the runs on the simulator, on virtual time
    #[arg(long, conflicts_with_all = ["url", "speed"], help_heading = STAND)]
    sim: bool,
    /// Make them against this server, and gateways in front of it; may be repeated
    #[arg(long, value_name = "URL", conflicts_with_all = ["speed", "profile"], help_heading = STAND)]
    url: Vec<BaseUrl>,
    /// How many times faster than real time the built-in mock runs, with arrivals, limits and gateway alike
    /// [default: the file's, or 1]
    #[arg(long, value_name = "FACTOR", value_parser = super::mock::parse_speed, help_heading = STAND)]
    speed: Option<f64>,
    /// The engine of simulator and mock: the name of a built-in profile, or a file that ends in .toml [default: the
    /// file's]
    #[arg(long, value_name = "NAME|FILE.toml", help_heading = STAND)]
    profile: Option<String>,
    /// Only these seeds, in this order
    #[arg(long, value_name = "SEED,…", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// The folder of the runs and the report; one that holds this experiment is gone on with [default: runs/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    result_dir: Option<PathBuf>,
    /// When going on, make runs again that were not valid
    #[arg(long, requires = "result_dir")]
    repeat_invalid: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Send nothing; print the runs in their order and the hashes of their plans
    #[arg(long)]
    list: bool,
}

const STAND: &str = "Where";

const HELP: &str = "\
Each arm (a policy, or another target) meets each workload with each seed: two runs of one seed are a
pair and are offered the same plan. The order of the arms goes round from seed to seed, each run has
prompts of its own, and a gateway is started for each run. Without --sim and --url the runs are made
against the built-in mock engine, in real time or faster.

An interrupted experiment goes on where it was if it is started again with the same --result-dir.

Examples:
  elasticserve experiment experiments/admission.toml --sim
  elasticserve experiment experiments/admission.toml --speed 10 --result-dir runs/admission
  elasticserve experiment my.toml --url http://127.0.0.1:8000

Exit codes:
  0    all runs were made and can be compared
  1    a run is not valid, or runs differ in what they must share; the report says which
  2    the command line is wrong; the message names the flag
  64   the file is wrong, or --result-dir holds another experiment; nothing was started
  130  interrupted; what was measured so far is kept";

/// Simulated experiments need no salts that differ from one to the next.
const SIMULATED: &str = "simulated";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let source = std::fs::read_to_string(&args.file).map_err(|e| args.bad(&e.to_string()))?;
    let beside = args.file.parent().unwrap_or(Path::new(""));
    let design = Design::read(&source, beside, &args.seeds).map_err(|problem| args.bad(&problem))?;
    let stand = args.stand(&design)?;
    let simulates = matches!(stand, Stand::Simulator { .. });
    if simulates && design.arms.iter().any(|arm| matches!(arm.way, Way::Url(_))) {
        return Err(args.bad("arms: an arm with a url is not for the simulator; leave out --sim").into());
    }
    design.check_ways(args.profile_of(&design).as_deref()).map_err(|problem| args.bad(&problem))?;
    make::check_target(&design).map_err(|e| args.bad(&format!("{e:#}")))?;
    let key = if simulates { SIMULATED.to_owned() } else { fresh_salt() };
    let speed = if let Stand::Mock { speed, .. } = &stand { *speed } else { 1.0 };
    let record = Record::new(&design, &source, args.stand_words(&design), key, speed);
    if args.list {
        list(&record);
        return Ok(ExitCode::SUCCESS);
    }
    super::start_logging();
    let folder = args.result_dir.clone().unwrap_or_else(|| default_folder(&design.name));
    let mut record = record.resume(&folder, design.salt, args.repeat_invalid)?;
    if !make(&design, stand, &mut record, &folder)? {
        say_error(&format!("interrupted; to go on, start it again with --result-dir {}", folder.display()));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    conclude(&design, record, &folder, args.json)
}

/// Makes the runs that are missing; `false` if it was stopped.
fn make(design: &Design, stand: Stand, record: &mut Record, folder: &Path) -> anyhow::Result<bool> {
    match stand {
        Stand::Simulator { profile, .. } => make::simulated(design, &profile, record, folder).map(|()| true),
        stand => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio's runtime")?;
            let stop = Stop::new();
            runtime.block_on(interruptible(&stop, make::live(design, stand, record, folder, &stop)))
        }
    }
}

/// Reads the runs, writes the findings and prints them.
fn conclude(design: &Design, mut record: Record, folder: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let read = |(turn, place)| {
        let name: String = design.folder(place);
        let path = folder.join(&name);
        Measured::read(place, turn, name, &path)
    };
    let runs = design.schedule().into_iter().enumerate().map(read).collect::<anyhow::Result<Vec<Measured>>>()?;
    let findings = Findings::of(design, record.stand.clone(), &runs);
    record.findings = Some(serde_json::to_value(&findings)?);
    record.write(folder)?;
    output::doc(&findings, &record.source).write_into(folder)?;
    if as_json {
        say(&serde_json::to_string_pretty(&findings)?);
    } else {
        say(&output::text(&findings));
        say(&format!("report:  {}\nledgers: {}", folder.join(HTML_FILE).display(), folder.display()));
    }
    Ok(if findings.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(record: &Record) {
    for (turn, run) in record.runs.iter().enumerate() {
        let Recorded { workload, arm, seed, plan_hash, .. } = run;
        say(&format!(
            "{:>4}  {workload}, {arm}, seed {seed}  plan {}",
            turn + 1,
            &plan_hash[..12.min(plan_hash.len())]
        ));
    }
}

impl Args {
    fn bad(&self, problem: &str) -> BadConfig {
        BadConfig(format!("{}: {problem}", self.file.display()))
    }

    /// The servers that are there: those of --url, or where every arm has its own, theirs.
    fn servers(&self, design: &Design) -> Vec<BaseUrl> {
        let own = |arm: &Arm| if let Way::Url(url) = &arm.way { Some(url.clone()) } else { None };
        let all: Option<Vec<BaseUrl>> = design.arms.iter().map(own).collect();
        if self.url.is_empty() && !self.sim { all.unwrap_or_default() } else { self.url.clone() }
    }

    /// The engine's profile, if it is one of ours.
    fn profile_of(&self, design: &Design) -> Option<String> {
        if !self.servers(design).is_empty() {
            return None;
        }
        let named = self.profile.clone().or_else(|| {
            let of_file = design.profile.clone()?;
            // A file's path is relative to the experiment's.
            let is_file = Path::new(&of_file).extension().is_some_and(|e| e == "toml");
            let beside = self.file.parent().unwrap_or(Path::new(""));
            Some(if is_file { beside.join(of_file).to_string_lossy().into_owned() } else { of_file })
        });
        Some(named.unwrap_or_else(|| profile::DEFAULT.to_owned()))
    }

    fn speed_of(&self, design: &Design) -> Result<f64, BadConfig> {
        match self.speed.or(design.speed) {
            None => Ok(1.0),
            Some(speed) if speed > 0.0 && speed <= 1000.0 => Ok(speed),
            Some(speed) => Err(self.bad(&format!("stand.speed: must be above 0, at most 1000, not {speed}"))),
        }
    }

    fn stand(&self, design: &Design) -> Result<Stand, BadConfig> {
        let servers = self.servers(design);
        if !servers.is_empty() {
            return Ok(Stand::Servers(servers));
        }
        let name = self.profile_of(design).unwrap_or_default();
        if self.sim {
            let profile = Box::new(profile::load(&name)?);
            return Ok(Stand::Simulator { profile, gateway: design.simulated_gateway });
        }
        Ok(Stand::Mock { profile: name, speed: self.speed_of(design)? })
    }

    /// Where the runs are made, for the record.
    fn stand_words(&self, design: &Design) -> BTreeMap<String, String> {
        let (what, more) = match (self.servers(design).as_slice(), self.sim) {
            ([], true) => ("simulator", None),
            ([], false) => ("mock", Some(("speed", self.speed_of(design).unwrap_or(1.0).to_string()))),
            (urls, _) => ("servers", Some(("url", urls.iter().map(BaseUrl::to_string).collect::<Vec<_>>().join(" ")))),
        };
        let profile = self.profile_of(design).map(|profile| ("profile", profile));
        let all = [Some(("stand", what.to_owned())), more, profile];
        all.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
