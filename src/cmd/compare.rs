//! `elasticserve compare`: what a change did, from pairs of runs of the same arrivals.

mod figures;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::sim::reproduce::Published;
use elasticserve_report::doc::Doc;
use elasticserve_report::effects::{
    Comparison, Effects, Figure, Kind, MAX_PAIRS, Margin, Measured, Question, Study, Verdict, pair, studies_doc,
};
use elasticserve_report::{is_run_folder, read_account, runs_in};
use serde::Serialize;

use super::{BadUsage, profile, say, say_error};

/// Arguments of `elasticserve compare`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Without the change: a run folder, or a folder that holds run folders
    #[arg(value_name = "BASE", required_unless_present_any = ["figures", "published"])]
    base: Option<PathBuf>,
    /// With the change
    #[arg(value_name = "CHANGED", required_unless_present_any = ["figures", "published"])]
    changed: Option<PathBuf>,
    /// A pair by the names of its run folders; may be repeated [default: runs of the same plan]
    #[arg(long, value_name = "BASE=CHANGED", value_parser = two_names)]
    pairs: Vec<(String, String)>,
    /// What the verdict is about
    #[arg(long, value_name = "FIGURE", default_value = "attainment")]
    metric: Figure,
    /// Which difference of it is too small to matter, such as 2% [default: 2 points of a share, 5% of a rate or latency]
    #[arg(long, value_name = "SIZE")]
    margin: Option<String>,
    /// Compare although this field of the manifests differs (or runs are not `valid`); may be repeated
    #[arg(long, value_name = "KEY")]
    allow: Vec<String>,
    /// The engine, by a built-in profile's name or a .toml file: tells which requests no policy could have served in time
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Resamples of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    resamples: u32,
    /// Seed of the bootstrap
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Pairs as bare figures in a TOML file, instead of runs
    #[arg(long, value_name = "FILE", conflicts_with_all = ["base", "pairs", "allow", "profile", "published"])]
    figures: Option<PathBuf>,
    /// The pairs of the published studies, and whether their published medians come out of them
    #[arg(long, conflicts_with_all = ["base", "pairs", "allow", "profile", "metric", "margin"])]
    published: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Also write the page to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the page's text and tables to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

const HELP: &str = "\
Runs of the same plan make a pair. Of every figure: both medians, the median of the pairs'
differences with its 95% interval (also by bootstrap), the ratio, the spread, the smallest effect
that so many pairs show, and how many more would decide. The verdict is about --metric:
  better, worse         the whole interval lies on that side of 0
  no difference shown   the whole interval lies within the margin
  undecided             neither yet, or fewer than 5 pairs

Figures: attainment, feasible_attainment (with --profile), goodput, throughput, rejected, failed,
jain, lowest_tenant, and completed_ttft, completed_tpot, completed_e2e and completed_longest_gap
with _p50, _p95 or _p99 (of the gap _p95 alone); attainment[NAME] is that of one tenant.

Runs whose manifests differ in what they were offered, asked or measured on are not compared unless
--allow says that this is meant. Flagged are effects that go with the order of the runs, and prompts
that one side may have found in the prefix cache.

Examples:
  elasticserve compare runs/fcfs runs/wfq
  elasticserve compare none budget --metric goodput --profile gb10-qwen3-8b-fp8 --html effects.html
  elasticserve compare direct gateway --pairs seed11=seed11 --pairs seed23=seed23
  elasticserve compare --figures pairs.toml --metric completed_ttft_p95
  elasticserve compare --published

A file of figures:
  base = 'fcfs'
  changed = 'wfq'
  [[pairs]]
  name = 'seed 11'
  first = 'base'                   # which side ran first, if known
  base = { goodput = 1.75, 'attainment[gold]' = 0.28 }
  changed = { goodput = 2.15, 'attainment[gold]' = 0.41 }

Exit codes:
  0   better; with --published: every median that the pairs give is as published
  1   a file cannot be read; with --published: a median differs
  2   the command line is wrong, or there is no pair
  3   undecided
  4   worse
  5   not compared: manifests differ, or a run is not valid
  6   no difference shown
  64  a file of figures or a profile is wrong";

/// Runs that must not be compared.
const REFUSED: u8 = 5;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.published {
        return published(args);
    }
    let margin = args.margin.as_deref().map(|text| Margin::parse(text, args.metric.kind));
    let margin = margin.transpose().map_err(|e| BadUsage(format!("--margin: {e}")))?;
    let question = Question { margin, resamples: args.resamples, seed: args.seed, ..Question::of(args.metric.clone()) };
    if let Some(file) = &args.figures {
        let figures = figures::read(file)?;
        let effects = Effects::of(&figures.base, &figures.changed, &figures.pairs, &question);
        has_metric(args, &effects)?;
        print(args, &effects, &effects.text(), &effects.doc())?;
        return Ok(exit_code(effects.verdict));
    }
    let (Some(base), Some(changed)) = (&args.base, &args.changed) else {
        return Err(BadUsage("name two folders to compare, or --figures FILE, or --published".to_owned()).into());
    };
    of_runs(args, base, changed, &question)
}

fn of_runs(args: &Args, base: &Path, changed: &Path, question: &Question) -> anyhow::Result<ExitCode> {
    let engine = args.profile.as_deref().map(profile::load).transpose()?;
    let sides = [measured(base, engine.as_ref())?, measured(changed, engine.as_ref())?];
    let plans = sides.each_ref().map(|runs| plans(runs));
    let [without, with] = sides;
    let paired = pair(without, with, &args.pairs).map_err(|e| BadUsage(e.to_string()))?;
    if paired.pairs.is_empty() {
        let [a, b] = [base, changed].map(Path::display);
        let problem = format!(
            "no plan was run on both sides: {a} has {}; {b} has {}. Name pairs with --pairs BASE=CHANGED",
            plans[0], plans[1]
        );
        return Err(BadUsage(problem).into());
    }
    let [a, b] = names_of(base, changed);
    let comparison = match Comparison::of(&a, &b, &paired, &args.allow, question) {
        Ok(comparison) => comparison,
        Err(refused) => {
            say_error(&format!("error: {refused}"));
            return Ok(ExitCode::from(REFUSED));
        }
    };
    has_metric(args, &comparison.effects)?;
    print(args, &comparison, &comparison.text(), &comparison.doc())?;
    Ok(exit_code(comparison.effects.verdict))
}

fn published(args: &Args) -> anyhow::Result<ExitCode> {
    let tables = Published::built_in().and_then(|p| p.pair_tables()).context("the measurements that come with this")?;
    let studies: Vec<Study> = tables.iter().map(Study::of).collect();
    let text: Vec<String> = studies.iter().map(Study::text).collect();
    print(args, &studies, &text.join("\n\n"), &studies_doc(&studies))?;
    let agree = studies.iter().all(Study::agrees);
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(args: &Args, json: &impl Serialize, text: &str, doc: &Doc) -> anyhow::Result<()> {
    for file in doc.write(args.html.as_deref(), args.markdown.as_deref())? {
        say_error(&format!("wrote {}", file.display()));
    }
    if args.json {
        say(&serde_json::to_string_pretty(json).context("effects")?);
    } else {
        say(text);
    }
    Ok(())
}

fn exit_code(verdict: Verdict) -> ExitCode {
    ExitCode::from(match verdict {
        Verdict::Better => 0,
        Verdict::Undecided => 3,
        Verdict::Worse => 4,
        Verdict::NoDifference => 6,
    })
}

/// Whether any pair has what the verdict is to be about.
fn has_metric(args: &Args, effects: &Effects) -> Result<(), BadUsage> {
    if effects.effect(&args.metric).is_some_and(|e| e.n > 0) {
        return Ok(());
    }
    let known: Vec<String> = effects.effects.iter().filter(|e| e.n > 0).map(|e| e.figure.to_string()).collect();
    let hint = if args.metric.kind == Kind::FeasibleAttainment { ": it takes --profile" } else { "" };
    Err(BadUsage(format!(
        "--metric {}: no pair has it on both sides{hint}; there are: {}",
        args.metric,
        known.join(", ")
    )))
}

/// The runs of one side, without their rows.
fn measured(side: &Path, engine: Option<&Profile>) -> anyhow::Result<Vec<Measured>> {
    let folders = if is_run_folder(side) || !side.is_dir() { vec![side.to_owned()] } else { runs_in(side)? };
    anyhow::ensure!(
        !folders.is_empty(),
        "{} holds no run: name a folder with manifest.json and ledger.ndjson in it, or one that holds such folders",
        side.display()
    );
    anyhow::ensure!(
        folders.len() <= MAX_PAIRS,
        "{} holds {} runs where at most {MAX_PAIRS} can be compared",
        side.display(),
        folders.len()
    );
    let one = |folder: &PathBuf| Ok(Measured::of_account(&name(folder), &read_account(folder)?, engine));
    folders.iter().map(one).collect()
}

/// The plans of a side's runs, for a message.
fn plans(runs: &[Measured]) -> String {
    let one = |run: &Measured| {
        let hash = run.manifest.plan_hash.get(..12).unwrap_or(&run.manifest.plan_hash);
        format!("plan {hash}… (seed {}, {})", run.manifest.plan.seed, run.name)
    };
    runs.iter().take(8).map(one).collect::<Vec<_>>().join(", ")
}

/// The last part of a path.
fn name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// What the sides are called: the last parts of their paths, or the paths where those are the same.
fn names_of(base: &Path, changed: &Path) -> [String; 2] {
    let short = [name(base), name(changed)];
    if short[0] == short[1] { [base, changed].map(|p| p.display().to_string()) } else { short }
}

fn two_names(text: &str) -> Result<(String, String), String> {
    let (base, changed) = text.split_once('=').filter(|(a, b)| !a.is_empty() && !b.is_empty()).ok_or_else(|| {
        format!("'{text}' names no pair: write the names of two run folders as BASE=CHANGED, such as seed11=seed11")
    })?;
    Ok((base.to_owned(), changed.to_owned()))
}
