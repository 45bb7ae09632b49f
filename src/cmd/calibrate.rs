//! `elasticserve calibrate`.

mod args;
mod measure;
mod outcome;
mod page;
mod text;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::calibrate::{Bench, Calibration, Campaign, Trial};
use elasticserve_core::time::{Span, Tick};
use elasticserve_load::Stop;
use elasticserve_report::{read_run, runs_in};

use super::load::{INTERRUPTED, default_folder, interruptible};
use super::{BadConfig, profile, say_error, start_logging};
pub(crate) use args::Args;
use args::Source;
use outcome::Outcome;

/// What was measured, and what is to be known of it.
#[derive(Default)]
struct Measured {
    trials: Vec<Trial>,
    /// The model that answered.
    model: String,
    /// Where the answers come from, in words.
    from: String,
    notes: Vec<String>,
    /// Probes that did not fit into the budget.
    skipped: Vec<String>,
    interrupted: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    start_logging();
    let (measured, folder) = match args.source()? {
        Source::Folder(folder) => (read(&folder)?, Some(folder)),
        Source::Model(name) => (simulate(args, &name)?, args.result_dir.clone()),
        Source::Server(url) => {
            let folder = args.result_dir.clone().unwrap_or_else(|| default_folder("calibrate"));
            (live(args, url, &folder)?, Some(folder))
        }
    };
    if measured.interrupted {
        let kept = folder.as_deref().unwrap_or_else(|| Path::new(".")).display();
        say_error(&format!("interrupted; what was measured is in {kept}: --from {kept} fits it"));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let calibration = Calibration::of(&measured.trials, args.seed).map_err(|problem| {
        let notes = measured.notes.iter().map(|note| format!("; {note}"));
        anyhow::anyhow!("{problem}{}", notes.collect::<String>())
    })?;
    Outcome::new(args, measured, calibration).conclude(args, folder.as_deref())
}

/// The runs of an earlier calibration.
fn read(folder: &Path) -> anyhow::Result<Measured> {
    let folders = runs_in(folder).map_err(|e| BadConfig(format!("--from: {e}")))?;
    let mut measured = Measured { from: format!("the runs in {}", folder.display()), ..Measured::default() };
    for folder in &folders {
        let run = read_run(folder).map_err(|e| BadConfig(format!("--from: {e}")))?;
        measured.take(&run);
    }
    if measured.trials.is_empty() {
        let problem = format!("--from {}: it holds no runs of a calibration", folder.display());
        return Err(BadConfig(problem).into());
    }
    Ok(measured)
}

/// The engine model itself, on virtual time.
fn simulate(args: &Args, name: &str) -> anyhow::Result<Measured> {
    let truth = profile::load(name)?;
    let mut campaign = Campaign::new(args.settings()).map_err(|e| BadConfig(e.to_string()))?;
    let mut bench = Bench::new(&truth);
    let mut measured = Measured { model: truth.model, ..Measured::default() };
    let elapsed = |bench: &Bench| bench.now().since(Tick::ZERO);
    while let Some(probe) = campaign.next(elapsed(&bench))? {
        let trial = bench.play(&probe);
        campaign.observe(&trial)?;
        measured.trials.push(trial);
    }
    measured.from = format!("the engine model {} on virtual time, {} of it", truth.name, elapsed(&bench));
    measured.take_remarks(&campaign);
    Ok(measured)
}

fn live(args: &Args, url: elasticserve_load::BaseUrl, folder: &Path) -> anyhow::Result<Measured> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio's runtime")?;
    let stop = Stop::new();
    runtime.block_on(interruptible(&stop, measure::measure(args, url, folder, &stop)))
}

impl Measured {
    fn take(&mut self, run: &elasticserve_report::Run) -> &Trial {
        let workers = match run.manifest.plan.model {
            elasticserve_core::work::LoadModel::Closed { workers } => Some(workers.get()),
            _ => None,
        };
        self.model.clone_from(&run.manifest.target.model);
        let summary = elasticserve_report::Summary::of(run);
        if !summary.valid && !run.manifest.end.is_some_and(|end| end.interrupted) {
            self.notes.push(format!(
                "{}: the run is not valid: {}",
                run.manifest.name,
                summary.invalid_because.join("; ")
            ));
        }
        let place = self.trials.len();
        self.trials.push(Trial::of_rows(&run.manifest.name, workers, &run.rows));
        &self.trials[place]
    }

    fn take_remarks(&mut self, campaign: &Campaign) {
        self.notes.extend_from_slice(campaign.notes());
        self.skipped.extend_from_slice(campaign.skipped());
    }
}

/// A time for people: whole seconds, or minutes and seconds.
fn rough(span: Span) -> String {
    match span.as_secs_ceil() {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}
