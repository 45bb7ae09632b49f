//! `elasticserve capacity`.

mod output;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use elasticserve_core::search::{Probe, Search, Spec, Stop as Why, Trial, Unresolved, misses_that_doom};
use elasticserve_core::time::Span;
use elasticserve_load::Stop;
use elasticserve_report::check::{Metric, Share, Target};
use elasticserve_report::write_file;

use self::output::Found;
use super::load::{Given, INTERRUPTED, ProbeArgs, Probed, default_folder, interruptible};
use super::{BadConfig, BadUsage, say, say_error, start_logging};
use crate::knee::{Prober, StandArgs, Taken};
use crate::lab::Lab;

const USAGE: &str = "elasticserve capacity --url <URL> --num-prompts <COUNT> [OPTIONS]
       elasticserve capacity --sim --num-prompts <COUNT> [OPTIONS]
       elasticserve capacity --mock --scenario <FILE> [OPTIONS]";

const AFTER_HELP: &str = "\
Probes are runs of an open load, each with its own seed and prompts on an engine at rest. The rate
grows until the target is missed, and the bracket is halved until its upper end is at most --precision
above its lower one. A rate is told by a test that may be looked at after each probe; what cannot be
told is said. The result is an interval: the highest rate shown to meet the target and the lowest shown
to miss it, each wrong with a chance of at most half of what --confidence leaves.

The work of a probe is that of `load`: its flags or a scenario. --num-prompts or --duration says how long
a probe is, and belongs to the answer: a queue that grows has longer to grow in a longer probe.

Targets: attainment and completed with >=; rejected and failed with <=; ttft, tpot, e2e and longest_gap
with a quantile and <=, in ms. With several the knee is where the first of them is missed.

Examples:
  elasticserve capacity --sim --num-prompts 1000 --isl 256 --osl 64 \\
    --goodput ttft:1000 tpot:100 e2el:15000 --target 'attainment>=0.95' --precision 0.03
  elasticserve capacity --url http://127.0.0.1:8000 --request-rate 4 --num-prompts 300 --isl 256 --osl 64 \\
    --ignore-eos --goodput ttft:1000 e2el:15000 --time 1h
  elasticserve capacity --mock --speed 10 --policy fcfs+budget:750ms --permits 32 \\
    --num-prompts 300 --isl 256 --osl 64 --goodput ttft:1000 --target 'rejected<=0.05'

Exit codes:
  0    found, as narrow as was asked for
  1    something failed, such as a server that is gone; what was found so far is printed
  2    the command line is wrong; the message names the flag
  3    not resolved; the interval so far is printed, with the reason
  5    not resolved, because the generator did not keep its tolerances
  64   the configuration is wrong; nothing was started
  130  interrupted; what was found so far is printed";

/// Arguments of `elasticserve capacity`.
#[derive(clap::Args)]
#[command(override_usage = USAGE, after_help = AFTER_HELP)]
// The flags of `load` are a group of this name already.
#[group(skip)]
pub(crate) struct Args {
    /// What must be reached; may be repeated [default: attainment>=0.95].
    #[arg(long, value_name = "TARGET", help_heading = SEARCH)]
    target: Vec<Target>,
    /// How far the upper end of the interval may lie above the lower one, as a part of it.
    #[arg(long, value_name = "PART", default_value = "0.05", value_parser = parse_precision, help_heading = SEARCH)]
    precision: f64,
    /// Of both ends of the interval together.
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = parse_confidence, help_heading = SEARCH)]
    confidence: f64,
    /// No lower rate is tried.
    #[arg(long, value_name = "RATE", default_value = "0.01", value_parser = parse_rate, help_heading = SEARCH)]
    min_rate: f64,
    /// No higher rate is tried.
    #[arg(long, value_name = "RATE", default_value = "10000", value_parser = parse_rate, help_heading = SEARCH)]
    max_rate: f64,
    /// Probes in all [default: 4000 with --sim, else 400].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = SEARCH)]
    max_probes: Option<u32>,
    /// Begin no probe that would end later than this after the start, such as 30m.
    #[arg(long, value_name = "TIME", help_heading = SEARCH)]
    time: Option<Span>,
    #[command(flatten)]
    stand: StandArgs,
    #[command(flatten)]
    load: ProbeArgs,
}

const SEARCH: &str = "Search";
/// Probes in all, at most, unless something else is said.
const LIVE_PROBES: u32 = 400;
const SIMULATED_PROBES: u32 = 4000;
/// Probes of a rate before rates beside it are tried.
const ALLOWANCE: u32 = 8;
/// Probes that are simulated at once. It is not the number of cores, so that the result is the same on any.
const BATCH: u32 = 8;
/// By how much the rate grows until it misses.
const GROWTH: f64 = 2.0;

pub(crate) fn run(args: Args, given: &Given) -> anyhow::Result<ExitCode> {
    let Args { mut target, stand, load, precision, confidence, min_rate, max_rate, max_probes, time } = args;
    if target.is_empty() {
        target.push(Target::DEFAULT);
    }
    let targets = target.iter().map(|t| t.required_share().map_err(|e| BadUsage(format!("--target {t}: {e}"))));
    let targets: Vec<f64> = targets.collect::<Result<_, _>>()?;
    if min_rate > max_rate {
        return Err(BadUsage(format!("--min-rate {min_rate} is above --max-rate {max_rate}")).into());
    }
    let load = Probed::new(load, given)?;
    known_tenants(&target, &load)?;
    let opened = stand.stand(load.url())?;
    let spec = Spec {
        targets,
        error: (1.0 - confidence) / 2.0,
        start: load.first_rate()?,
        lowest: min_rate,
        highest: max_rate,
        growth: GROWTH,
        precision,
        allowance: ALLOWANCE,
        probes: max_probes.unwrap_or(if stand.sim { SIMULATED_PROBES } else { LIVE_PROBES }),
    };
    let subject = format!("{}; {}", stand.describe(load.url()), describe(&load));
    let folder = match load.folder() {
        None if stand.sim => None,
        None => Some(default_folder("capacity")),
        Some(folder) => Some(folder.to_owned()),
    };
    if let Some(folder) = folder.as_ref().filter(|folder| folder.join(output::JSON_FILE).exists()) {
        let problem = format!("{} already holds a search: choose another --result-dir", folder.display());
        return Err(BadConfig(problem).into());
    }
    if !stand.sim {
        start_logging();
    }
    let (way, terms) = (stand.way()?, load.terms(given)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio's runtime")?;
    let logs = folder.clone().unwrap_or_else(|| PathBuf::from("."));
    let lab = runtime.block_on(Lab::open(opened, &logs))?;
    let prober = Prober { lab, way, terms, targets: target };
    let as_json = load.json();
    let mut hunt =
        Hunt { search: Search::new(spec), load, prober, folder, time, began: Instant::now(), notes: Vec::new() };
    let failed = if stand.sim {
        hunt.simulate().err()
    } else {
        let stop = Stop::new();
        runtime.block_on(interruptible(&stop, hunt.live(&stop))).err()
    };
    let found = Found {
        subject,
        simulated: stand.sim,
        targets: &hunt.prober.targets,
        confidence,
        precision,
        search: &hunt.search,
        answer: hunt.search.answer(),
        notes: &hunt.notes,
    };
    if let (Some(error), true) = (&failed, hunt.search.tested().is_empty()) {
        return Err(anyhow::anyhow!("{error:#}"));
    }
    show(&found, hunt.folder.as_deref(), as_json)?;
    match failed {
        Some(error) => Err(error),
        None => Ok(ExitCode::from(exit_code(found.answer.unresolved))),
    }
}

/// A target that names a tenant the plan does not have is about nothing.
fn known_tenants(targets: &[Target], load: &Probed) -> Result<(), BadUsage> {
    let tenants = &load.first().header().tenants;
    for tenant in targets.iter().filter_map(|t| t.tenant.as_ref()) {
        if !tenants.iter().any(|known| known.name == *tenant) {
            let known: Vec<&str> = tenants.iter().map(|t| t.name.as_str()).collect();
            let problem = format!("--target: the plan has no tenant '{tenant}'; it has {}", known.join(", "));
            return Err(BadUsage(problem));
        }
    }
    Ok(())
}

fn exit_code(unresolved: Option<Unresolved>) -> u8 {
    match unresolved {
        None => 0,
        Some(Unresolved::Stopped(Why::Interrupted)) => INTERRUPTED,
        Some(Unresolved::Stopped(Why::Server)) => 1,
        Some(Unresolved::Stopped(Why::Generator(_))) => 5,
        Some(_) => 3,
    }
}

fn show(found: &Found, folder: Option<&Path>, as_json: bool) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(&found.json())?;
    let text = found.text();
    say(if as_json { &json } else { text.trim_end() });
    let Some(folder) = folder else { return Ok(()) };
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    write_file(&folder.join(output::JSON_FILE), &(json + "\n"))?;
    let doc = found.doc();
    doc.write(Some(&folder.join("capacity.html")), Some(&folder.join("capacity.md")))?;
    say_error(&format!("wrote {}", folder.join("capacity.html").display()));
    Ok(())
}

/// The work of a probe, in a line.
fn describe(load: &Probed) -> String {
    let header = load.first().header();
    let mean = |of: fn(&elasticserve_core::work::Arrival) -> u32| {
        let arrivals = load.first().arrivals();
        arrivals.iter().map(|a| f64::from(of(a))).sum::<f64>() / arrivals.len().max(1) as f64
    };
    let tenants: Vec<&str> = header.tenants.iter().map(|t| t.name.as_str()).collect();
    format!(
        "probes of {}, {:.0} prompt and {:.0} answer tokens on average, tenants {}, seeds from {}",
        load.length(),
        mean(|a| a.input),
        mean(|a| a.output),
        tenants.join(", "),
        load.seed()
    )
}

/// A search under way.
struct Hunt {
    search: Search,
    load: Probed,
    prober: Prober,
    folder: Option<PathBuf>,
    time: Option<Span>,
    began: Instant,
    /// What happened besides, by probe.
    notes: Vec<String>,
}

impl Hunt {
    fn simulate(&mut self) -> anyhow::Result<()> {
        while let Some(first) = self.search.next_probe() {
            if self.is_late(Span::ZERO) {
                self.search.stop(Why::Time);
                break;
            }
            let more = (1..BATCH).map_while(|_| self.search.next_probe());
            let probes: Vec<Probe> = std::iter::once(first).chain(more.collect::<Vec<_>>()).collect();
            let plans = probes.iter().map(|p| self.load.plan(p.rate, self.load.seed() + u64::from(p.number)));
            let plans = plans.collect::<anyhow::Result<Vec<_>>>()?;
            for (probe, trials) in probes.iter().zip(self.prober.simulated(&plans)?) {
                self.search.observe(probe.rate, &trials);
            }
        }
        Ok(())
    }

    async fn live(&mut self, stop: &Stop) -> anyhow::Result<()> {
        self.prober.rest().await?;
        while let Some(probe) = self.search.next_probe() {
            if self.is_late(self.load.window(probe.rate).scaled_down(self.prober.lab.speed())) {
                self.search.stop(Why::Time);
                break;
            }
            let plan = self.load.plan(probe.rate, self.load.seed() + u64::from(probe.number))?;
            let n = plan.header().count;
            let name = format!("probe-{:03}-at-{}", probe.number + 1, probe.rate);
            let folder = self.folder.clone().unwrap_or_default().join(&name);
            say_error(&format!("probe {}: {n} requests at {}/s", probe.number + 1, probe.rate));
            let doom = self.doom(probe.rate, n);
            let taken = self.prober.take(&plan, &folder, doom, stop).await?;
            self.take_in(probe, n, taken);
        }
        Ok(())
    }

    fn take_in(&mut self, probe: Probe, n: u32, taken: Taken) {
        let Probe { rate, number } = probe;
        let number = number + 1;
        match taken {
            Taken::Counted(trials) => {
                self.search.observe(rate, &trials);
                let share = trials.first().map_or(0.0, Trial::share) * 100.0;
                let word = self.search.at(rate).map_or("", |t| output::word(t.verdict));
                say_error(&format!("probe {number}: {share:.1}% at {rate}/s, so far {word}"));
            }
            Taken::CutShort(misses) => {
                let trial = Trial::cut_short(u64::from(n), u64::from(misses));
                self.search.observe(rate, &[trial]);
                let most = trial.share() * 100.0;
                self.note(format!("probe {number} at {rate}/s was cut short: at most {most:.1}% could be reached"));
            }
            Taken::Invalid(why) => {
                self.search.observe_invalid(rate);
                self.note(format!("probe {number} at {rate}/s does not count: {why}"));
            }
            Taken::Gone(why) => {
                self.search.stop(Why::Server);
                self.note(format!("probe {number} at {rate}/s does not count: {why}"));
            }
            Taken::Interrupted => self.search.stop(Why::Interrupted),
        }
    }

    fn note(&mut self, note: String) {
        say_error(&note);
        self.notes.push(note);
    }

    /// The misses that end a probe. Only good answers are counted while a probe runs, so only a search for attainment
    /// alone can be cut short.
    fn doom(&self, rate: f64, n: u32) -> Option<u32> {
        let [target] = self.prober.targets.as_slice() else { return None };
        let counted = target.metric == Metric::Share(Share::Attainment) && target.tenant.is_none();
        counted.then(|| misses_that_doom(n, self.search.hopeless(rate)))
    }

    /// Whether what takes so long would end after the time that was given.
    fn is_late(&self, takes: Span) -> bool {
        self.time.is_some_and(|time| self.began.elapsed() + takes.to_std() > time.to_std())
    }
}

fn parse_precision(text: &str) -> Result<f64, String> {
    let part = text.parse::<f64>().ok().filter(|part| *part >= 0.001 && *part <= 1.0);
    part.ok_or_else(|| "write a part from 0.001 to 1, such as 0.05".to_owned())
}

fn parse_confidence(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share >= 0.5 && *share <= 0.9999);
    share.ok_or_else(|| "write a share from 0.5 to 0.9999, such as 0.95".to_owned())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && rate.is_finite());
    rate.ok_or_else(|| "write requests per second, above 0".to_owned())
}
