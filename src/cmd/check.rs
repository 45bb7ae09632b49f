//! `elasticserve check`: whether runs may be believed, and what they say about a release.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::config::from_toml;
use elasticserve_core::slo::Slo;
use elasticserve_report::check::{
    Beside, Check, CheckError, RawRule, Reader, Rule, Target, check_doc, check_text, exports_doc,
};
use elasticserve_report::doc::Doc;
use elasticserve_report::foreign::{Export, is_export, read_export};
use elasticserve_report::{Account, is_run_folder, read_account, runs_in};

use super::load::work::LimitArgs;
use super::page::PageArgs;
use super::selftest::own_reader;
use super::{BadConfig, say, say_error};

/// Arguments of `elasticserve check`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Run folders, a folder that holds them, or exports of other tools: repeats of each other
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// What must be reached; may be repeated [default: attainment>=0.95]
    #[arg(long, value_name = "TARGET")]
    target: Vec<Target>,
    /// A file in TOML with targets, the least number of requests and repeats, tenants and a baseline
    #[arg(long, value_name = "FILE")]
    rule: Option<PathBuf>,
    /// The run to fall back to, to compare with
    #[arg(long, value_name = "DIR")]
    baseline: Option<PathBuf>,
    /// Accept what a model did as if a server had done it
    #[arg(long)]
    allow_simulated: bool,
    #[command(flatten)]
    limits: LimitArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: PageArgs,
}

const HELP: &str = "\
Five checks, each with its evidence, and a verdict:
  accept   every target lies on the right side of a 95 % interval, and nothing stands against it
  retest   it cannot be told yet, or the run is not valid; what is missing is said
  resize   the run is valid and a target is missed

Targets: attainment, completed and goodput with >=; rejected and failed with <=; ttft, tpot, e2e and
longest_gap with a quantile and <=, in ms, such as ttft_p99<=1000. Quantiles are over all planned
arrivals: what was never answered is later than any limit. completed_ttft_p99 is over answers alone.
attainment[NAME]>=0.99 is about one tenant.

Exports of other tools are known by what is in them: the JSON of `vllm bench serve --save-result
--save-detailed`, AIPerf's folder or profile_export.jsonl, GuideLLM's JSON, inference-perf's folder or
per_request_lifecycle_metrics.json. Their good answers are those within --goodput. Where they do
not show that the declared load was offered, the verdict is retest.

Examples:
  elasticserve check vllm-bench.json --goodput ttft:1000 tpot:100
  elasticserve check runs/monday --target 'attainment>=0.95'
  elasticserve check runs/seed1 runs/seed2 runs/seed3 --rule release.toml --html check.html

Exit codes:
  0   accept
  1   a file cannot be read
  2   the command line is wrong, or a rule names what the runs do not have
  3   retest
  4   resize
  5   retest, because the run is not valid: a finding about the generator, not about the server
  64  the rule file is wrong";

/// The command line asks for what the runs do not have.
const USAGE: u8 = 2;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut rule = args.rule.as_ref().map(|file| read_rule(file)).transpose()?.unwrap_or_default();
    rule.targets.extend(args.target.iter().cloned());
    rule.allow_simulated |= args.allow_simulated;
    rule.slo = rule.slo.overridden_by(&args.limits.slo());
    let exports = args.paths.iter().filter(|p| is_export(p)).count();
    anyhow::ensure!(
        exports == 0 || exports == args.paths.len(),
        "runs of `load` and exports of other tools hold different things: check them one kind at a time"
    );
    let found = if exports > 0 { of_exports(args, &rule)? } else { of_runs(args, &rule)? };
    let (checked, doc) = match found {
        Ok(found) => found,
        Err(error) => {
            say_error(&format!("error: {error}"));
            return Ok(ExitCode::from(USAGE));
        }
    };
    args.page.write(&doc)?;
    if args.json {
        say(&serde_json::to_string_pretty(&checked).context("check")?);
    } else {
        say(&check_text(&checked));
    }
    Ok(ExitCode::from(checked.exit_code()))
}

/// A check and its document, or why the rule and what is checked do not go together.
type Found = Result<(Check, Doc), CheckError>;

fn of_runs(args: &Args, rule: &Rule) -> anyhow::Result<Found> {
    anyhow::ensure!(
        rule.slo == Slo::default(),
        "a run holds the limits that it was made with: leave --goodput and slo out"
    );
    let mut folders = Vec::new();
    for path in &args.paths {
        folders.extend(expand(path)?);
    }
    let runs: Vec<Account> = folders.iter().map(|f| read_account(f)).collect::<Result<_, _>>()?;
    let baseline = args.baseline.as_ref().map(|f| read_account(f)).transpose()?;
    let runs: Vec<&Account> = runs.iter().collect();
    let title = rule.name.clone().unwrap_or_else(|| title(&folders));
    let (right, all) = own_reader()?;
    let reader = Some(Reader { version: env!("CARGO_PKG_VERSION"), right, all });
    let beside = Beside { baseline: baseline.as_ref(), reader };
    Ok(Check::of(&title, &runs, &beside, rule).map(|checked| {
        let doc = check_doc(&checked, &runs);
        (checked, doc)
    }))
}

fn of_exports(args: &Args, rule: &Rule) -> anyhow::Result<Found> {
    anyhow::ensure!(
        args.baseline.is_none() && rule.baseline.is_none(),
        "a baseline is a run of `load`; exports of other tools are not compared with one"
    );
    let exports: Vec<Export> = args.paths.iter().map(|p| read_export(p)).collect::<Result<_, _>>()?;
    let title = rule.name.clone().unwrap_or_else(|| title(&args.paths));
    Ok(Check::of_exports(&title, &exports, rule).map(|checked| {
        let doc = exports_doc(&checked, &exports);
        (checked, doc)
    }))
}

/// Reads and checks a rule file.
fn read_rule(file: &Path) -> anyhow::Result<Rule> {
    let wrong = |problem: String| BadConfig(format!("{}: {}", file.display(), problem.trim_end()));
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let raw: RawRule = from_toml(&text).map_err(wrong)?;
    Ok(Rule::try_from(raw).map_err(|e| wrong(e.to_string()))?)
}

/// The run folders that an argument names.
fn expand(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if is_run_folder(path) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let runs = runs_in(path)?;
    anyhow::ensure!(
        !runs.is_empty(),
        "{} holds no run: name a folder with manifest.json and ledger.ndjson in it, or one that holds such folders",
        path.display()
    );
    Ok(runs)
}

/// The names of the folders.
fn title(folders: &[PathBuf]) -> String {
    let names = folders.iter().filter_map(|f| f.file_name()).map(|n| n.to_string_lossy());
    names.collect::<Vec<_>>().join(", ")
}
