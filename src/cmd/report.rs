//! `elasticserve report`: figures, `summary.json` and a page from run folders.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_report::{
    HTML_FILE, MARKDOWN_FILE, MAX_RUNS, Summary, finding, is_run_folder, runs_in, text, write_comparison, write_run,
};
use serde::Serialize;

use super::page::PageArgs;
use super::{say, say_error};

/// Arguments of `elasticserve report`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Run folders, or folders that hold run folders; the first run is the one to compare with
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    page: PageArgs,
}

const HELP: &str = "\
Every figure is recomputed from manifest.json and ledger.ndjson; an earlier summary is not read.
Written: summary.json, report.html and report.md into each run folder, and for a folder that holds
several runs (as `demo` makes one) report.html and report.md that compare them. The page of --html
and its twin of --markdown compare all runs that were named.

Examples:
  elasticserve report results/2026-01-31
  elasticserve report direct gateway --html comparison.html
  elasticserve report results --json | jq '.runs[] | {name, attainment}'

Exit codes:
  0  done
  1  a run cannot be read, is incomplete, or does not reconcile; what can be told is told
  2  the command line is wrong";

/// What `--json` prints.
#[derive(Serialize)]
struct Output<'a> {
    runs: &'a [Summary],
    finding: String,
    written: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let groups: Vec<Group> = args.folders.iter().map(|f| group(f)).collect::<anyhow::Result<_>>()?;
    let runs: Vec<PathBuf> = groups.iter().flat_map(|g| g.runs.clone()).collect();
    anyhow::ensure!(runs.len() <= MAX_RUNS, "{} runs where at most {MAX_RUNS} can be compared at once", runs.len());
    let mut written = Vec::new();
    let mut summaries = Vec::new();
    for folder in &runs {
        summaries.push(write_run(folder)?);
        written.extend([HTML_FILE, MARKDOWN_FILE].map(|name| folder.join(name)));
    }
    for group in groups.iter().filter(|g| g.parent.is_some()) {
        written.extend(compare(group)?);
    }
    if args.page.wanted() {
        let PageArgs { html, markdown } = args.page;
        write_comparison(html.as_deref(), markdown.as_deref(), &title(&runs), &runs)?;
        written.extend(html.into_iter().chain(markdown));
    }
    print(&summaries, &written, args.json)?;
    let sound = summaries.iter().all(|s| s.complete && s.reconciled);
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The runs that one argument names.
struct Group {
    /// The folder that holds them, if the argument is not a run itself.
    parent: Option<PathBuf>,
    runs: Vec<PathBuf>,
}

fn group(folder: &Path) -> anyhow::Result<Group> {
    if is_run_folder(folder) || !folder.is_dir() {
        return Ok(Group { parent: None, runs: vec![folder.to_owned()] });
    }
    let runs = runs_in(folder)?;
    anyhow::ensure!(
        !runs.is_empty(),
        "{} holds no run: name a folder with manifest.json and ledger.ndjson in it, or one that holds such folders",
        folder.display()
    );
    Ok(Group { parent: Some(folder.to_owned()), runs })
}

/// Writes the page of a folder of runs, and its twin.
fn compare(group: &Group) -> anyhow::Result<Vec<PathBuf>> {
    let Some(parent) = &group.parent else { return Ok(Vec::new()) };
    let files = [HTML_FILE, MARKDOWN_FILE].map(|name| parent.join(name));
    write_comparison(Some(&files[0]), Some(&files[1]), &title(&group.runs), &group.runs)?;
    Ok(files.into())
}

/// The names of the folders.
fn title(runs: &[PathBuf]) -> String {
    let names = runs.iter().filter_map(|f| f.file_name()).map(|n| n.to_string_lossy());
    names.collect::<Vec<_>>().join(" and ")
}

fn print(summaries: &[Summary], written: &[PathBuf], json: bool) -> anyhow::Result<()> {
    let written: Vec<String> = written.iter().map(|p| p.display().to_string()).collect();
    if json {
        let output = Output { runs: summaries, finding: finding(summaries), written };
        say(&serde_json::to_string_pretty(&output).context("summary")?);
        return Ok(());
    }
    say(&text(summaries));
    for path in written {
        say_error(&format!("wrote {path}"));
    }
    Ok(())
}
