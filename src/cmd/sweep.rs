//! `elasticserve sweep`.

mod output;
mod resume;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::search::{Trial, knee};
use elasticserve_load::Stop;
use elasticserve_report::check::Target;
use elasticserve_report::{Summary, read_run, write_run};

use self::output::Swept;
use self::resume::Place;
use super::load::{Given, INTERRUPTED, ProbeArgs, Probed, default_folder, interruptible};
use super::sim::lists::parse_rates;
use super::{BadUsage, say, say_error, start_logging};
use crate::knee::{Prober, StandArgs, Taken};
use crate::lab::Lab;

const USAGE: &str = "elasticserve sweep --url <URL> --rates <RATES> --num-prompts <COUNT> [OPTIONS]
       elasticserve sweep --sim --rates <RATES> --scenario <FILE> [OPTIONS]";

const AFTER_HELP: &str = "\
Each run is an open load at one rate with one seed, with prompts of its own, on an engine at rest. The
work is that of `load`: its flags or a scenario. Every run is a folder with its ledger, DIR/rate-8/seed-7.
A sweep that is started again with the same --result-dir keeps the runs that are finished and makes the
others; half a run is set aside.

The knee is the highest rate up to which, at every rate of the sweep, the mean over the seeds reaches
--target: the same as that of `sim sweep`. How sure it is a sweep does not say; `capacity` does.

Examples:
  elasticserve sweep --url http://127.0.0.1:8000 --rates 4:24:2 --seeds 7,11,23 --num-prompts 200 \\
    --isl 256 --osl 64 --ignore-eos --goodput ttft:1000 tpot:100 e2el:15000 --result-dir runs/sweep
  elasticserve sweep --mock --speed 4 --policy wfq+budget:750ms --rates 8,16,24 --num-prompts 200 \\
    --isl 256 --osl 64 --goodput ttft:1000

Exit codes:
  0    done
  1    something failed, such as a server that is gone; runs that are finished stay
  2    the command line is wrong; the message names the flag
  5    a run is not valid: a finding about the generator; it is in no figure
  64   the configuration is wrong, or the folder holds a sweep of other work; nothing was started
  130  interrupted; runs that are finished stay";

/// Arguments of `elasticserve sweep`.
#[derive(clap::Args)]
#[command(override_usage = USAGE, after_help = AFTER_HELP)]
// The flags of `load` are a group of this name already.
#[group(skip)]
pub(crate) struct Args {
    /// Requests per second: values, or LOW:HIGH:STEP.
    #[arg(long, value_name = "RATES", value_parser = parse_rates, help_heading = SWEEP)]
    rates: RateList,
    /// Seeds of the runs at each rate [default: --seed, or 0].
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', conflicts_with = "seed", help_heading = SWEEP)]
    seeds: Vec<u64>,
    /// What the knee is about.
    #[arg(long, value_name = "TARGET", default_value = "attainment>=0.95", help_heading = SWEEP)]
    target: Target,
    /// Try no higher rate once so many in a row have missed.
    #[arg(long, value_name = "RATES", value_parser = clap::value_parser!(u32).range(1..), help_heading = SWEEP)]
    stop_after_miss: Option<u32>,
    #[command(flatten)]
    stand: StandArgs,
    #[command(flatten)]
    load: ProbeArgs,
}

// By this name the values of a flag are one value, not as many as it holds.
type RateList = Vec<f64>;
const SWEEP: &str = "Sweep";
/// A run of a sweep is not valid.
const NOT_VALID: u8 = 5;

pub(crate) fn run(args: Args, given: &Given) -> anyhow::Result<ExitCode> {
    let Args { rates, mut seeds, target, stop_after_miss, stand, load } = args;
    let required = target.required_share().map_err(|e| BadUsage(format!("--target {target}: {e}")))?;
    let load = Probed::new(load, given)?;
    if seeds.is_empty() {
        seeds.push(load.seed());
    }
    let opened = stand.stand(load.url())?;
    let subject = format!("{}; runs of {}", stand.describe(load.url()), load.length());
    let folder = load.folder().map_or_else(|| default_folder("sweep"), PathBuf::from);
    let as_json = load.json();
    let mut terms = load.terms(given)?;
    terms.load.name = "sweep".to_owned();
    let mut sweep = Sweep { load, folder, rates, seeds, required, stop_after_miss, points: Vec::new(), why: None };
    let places = sweep.places(&target)?;
    start_logging();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio's runtime")?;
    let lab = runtime.block_on(Lab::open(opened, &sweep.folder))?;
    let mut prober = Prober { lab, way: stand.way()?, terms, targets: vec![target] };
    let stop = Stop::new();
    let failed = runtime.block_on(interruptible(&stop, sweep.make(&mut prober, &places, &stop))).err();
    let swept = Swept { subject, simulated: stand.sim, target: &prober.targets[0], required, points: &sweep.points };
    let text = if as_json { serde_json::to_string_pretty(&swept.json())? } else { swept.text() };
    say(text.trim_end());
    swept.write(&sweep.folder)?;
    if let Some(error) = failed {
        return Err(error);
    }
    Ok(match sweep.why {
        Some(Ended::Interrupted) => ExitCode::from(INTERRUPTED),
        Some(Ended::Gone) => ExitCode::FAILURE,
        None if sweep.points.iter().any(|p| !p.invalid.is_empty()) => ExitCode::from(NOT_VALID),
        None => ExitCode::SUCCESS,
    })
}

/// A rate and its runs.
pub(crate) struct Point {
    pub(crate) rate: f64,
    /// The runs that count, with the share of each that was served as the target asks.
    pub(crate) runs: Vec<(f64, Summary)>,
    /// What stands against those that do not.
    pub(crate) invalid: Vec<String>,
}

impl Point {
    /// The mean share over the runs that count; `None` without any.
    pub(crate) fn share(&self) -> Option<f64> {
        let shares = self.runs.iter().map(|(share, _)| share);
        (!self.runs.is_empty()).then(|| shares.sum::<f64>() / self.runs.len() as f64)
    }
}

/// The knee of points: as in `sim sweep`.
pub(crate) fn knee_of(points: &[Point], required: f64) -> Option<f64> {
    knee(points.iter().filter_map(|p| Some((p.rate, p.share()?))), required)
}

struct Sweep {
    load: Probed,
    folder: PathBuf,
    rates: Vec<f64>,
    seeds: Vec<u64>,
    required: f64,
    stop_after_miss: Option<u32>,
    points: Vec<Point>,
    why: Option<Ended>,
}

/// Why a sweep ended before its last rate.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Ended {
    Interrupted,
    Gone,
}

impl Sweep {
    /// Where each run goes, and what is there already.
    fn places(&mut self, target: &Target) -> anyhow::Result<Vec<Vec<Place>>> {
        let (rates, seeds) = (self.rates.clone(), self.seeds.clone());
        let of = |rate: f64| {
            let place = |seed: &u64| {
                let folder = self.folder.join(format!("rate-{rate}")).join(format!("seed-{seed}"));
                Place::look(folder, self.load.plan(rate, *seed)?, target)
            };
            seeds.iter().map(place).collect::<anyhow::Result<Vec<Place>>>()
        };
        rates.into_iter().map(of).collect()
    }

    async fn make(&mut self, prober: &mut Prober, places: &[Vec<Place>], stop: &Stop) -> anyhow::Result<()> {
        let mut missed = 0;
        for (rate, places) in self.rates.clone().into_iter().zip(places) {
            self.points.push(Point { rate, runs: Vec::new(), invalid: Vec::new() });
            for place in places {
                self.one(prober, place, stop).await?;
                if self.why.is_some() {
                    return Ok(());
                }
            }
            let share = self.points.last().and_then(Point::share);
            missed = if share.is_some_and(|share| share < self.required) { missed + 1 } else { 0 };
            if self.stop_after_miss.is_some_and(|most| missed >= most) {
                say_error(&format!("{missed} rates in a row have missed: higher ones are left out"));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes a run, or takes the one that is there.
    async fn one(&mut self, prober: &mut Prober, place: &Place, stop: &Stop) -> anyhow::Result<()> {
        let Some(point) = self.points.last_mut() else { return Ok(()) };
        let folder = place.folder();
        let name = folder.strip_prefix(&self.folder).unwrap_or(folder).display().to_string();
        if place.is_finished() {
            say_error(&format!("{name}: is there"));
        } else {
            place.clear()?;
            say_error(&format!("{name}: {} requests", place.plan().header().count));
            prober.rest().await?;
            match prober.take(place.plan(), folder, None, stop).await? {
                Taken::Counted(trials) => {
                    let share = trials.first().map_or(0.0, Trial::share);
                    say_error(&format!("{name}: {:.1}%", share * 100.0));
                }
                Taken::Invalid(why) => {
                    say_error(&format!("{name} does not count: {why}"));
                    point.invalid.push(format!("{name}: {why}"));
                    return Ok(());
                }
                Taken::Gone(why) => {
                    say_error(&format!("{name} does not count: {why}"));
                    place.set_aside()?;
                    self.why = Some(Ended::Gone);
                    return Ok(());
                }
                Taken::CutShort(_) | Taken::Interrupted => {
                    self.why = Some(Ended::Interrupted);
                    return Ok(());
                }
            }
            write_run(folder).with_context(|| folder.display().to_string())?;
        }
        let run = read_run(folder).with_context(|| folder.display().to_string())?;
        let summary = Summary::of(&run);
        match prober.targets.first().and_then(|target| target.series(&run).trial()) {
            Some(trial) if summary.valid && summary.reconciled => point.runs.push((trial.share(), summary)),
            _ => point.invalid.push(format!("{name}: {}", summary.invalid_because.join("; "))),
        }
        Ok(())
    }
}
