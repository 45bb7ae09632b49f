//! The load of a search over rates: what `load` offers, at rates and with seeds that the search chooses.

use std::path::Path;

use clap::{Arg, ArgMatches, Command, Error, FromArgMatches};
use elasticserve_core::time::Span;
use elasticserve_core::work::Plan;
use elasticserve_load::{BaseUrl, CeilingCheck, LoadConfig};

use super::args::Args;
use super::given::Given;
use super::work::parse_rate;
use super::{config, plan};
use crate::cmd::{BadConfig, BadUsage};
use crate::lab::{Salt, Terms};

/// The flags of `load`, of which neither the rate nor the URL must be given.
pub(crate) struct ProbeArgs(Args);

impl clap::Args for ProbeArgs {
    fn augment_args(command: Command) -> Command {
        adapt(Args::augment_args(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        adapt(Args::augment_args_for_update(command))
    }
}

impl FromArgMatches for ProbeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Args::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        Args::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// What a search has no use for, and why.
const USELESS: [(&str, &str); 15] = [
    ("plan_only", "there are as many plans as probes"),
    ("save_result", "each probe is a run folder, from which `report` makes everything"),
    ("save_detailed", "each probe is a run folder, from which `report` makes everything"),
    ("result_filename", "each probe is a run folder, from which `report` makes everything"),
    ("concurrency", "a closed load has no rate"),
    ("max_concurrency", "what a cap keeps from being sent would not be offered"),
    ("retries", "a retry adds to the load that is searched for"),
    ("rate_steps", "each probe has one rate"),
    ("ramp", "each probe has one rate"),
    ("bursts", "each probe has one rate"),
    ("plan", "its arrivals have a rate already"),
    ("trace", "its arrivals have a rate already"),
    ("trace_speedup", "its arrivals have a rate already"),
    ("trace_rows", "its arrivals have a rate already"),
    ("name", "the folder of a probe says its rate and seed"),
];

/// Hides what is of no use, and asks for less.
fn adapt(command: Command) -> Command {
    let command = USELESS.iter().fold(command, |command, (flag, _)| command.mut_arg(flag, |arg| arg.hide(true)));
    let rate = Arg::new("request_rate")
        .long("request-rate")
        .value_name("RATE")
        .value_parser(parse_rate)
        .help_heading(super::work::ARRIVALS)
        .help("Requests per second to begin with [default: 1, or that of the scenario]");
    let url = {
        let url = Arg::new("url").long("url").visible_alias("base-url").value_name("URL");
        url.value_parser(|text: &str| text.parse::<BaseUrl>())
            .env("OPENAI_BASE_URL")
            .hide_env_values(true)
            .help_heading(super::args::TARGET)
            .help("The server, such as http://127.0.0.1:8000; https is spoken too")
    };
    command.mut_arg("request_rate", |_| rate).mut_arg("url", |_| url)
}

/// A checked load without a rate.
pub(crate) struct Probed {
    args: Args,
    first: Plan,
    seed: u64,
}

impl Probed {
    /// Checks the flags by drawing the first plan.
    ///
    /// # Errors
    /// Flags that have no place in a search, and whatever is wrong with a plan.
    pub(crate) fn new(args: ProbeArgs, given: &Given) -> anyhow::Result<Self> {
        let ProbeArgs(mut args) = args;
        if let Some((flag, why)) = USELESS.iter().find(|(flag, _)| given.has(flag)) {
            return Err(BadUsage(format!("--{} cannot be used here: {why}", flag.replace('_', "-"))).into());
        }
        if args.work.request_rate.is_none() && args.work.scenario.is_none() {
            args.work.request_rate = Some(1.0);
        }
        let (first, settings) = plan::with_settings(&args.work)?;
        settings.fill(&mut args, given);
        if !given.has("measure_ceiling") {
            // Once for each probe would cost more than it tells.
            args.measure_ceiling = CeilingCheck::Off;
        }
        let model = first.header().model;
        if !model.is_open() {
            return Err(BadConfig(format!("this is a {model} load; only an open one has a rate to search for")).into());
        }
        let seed = first.header().seed;
        let mut load = Self { args, first, seed };
        // A rate that cannot be changed is found out now.
        let rate = load.first_rate()?;
        load.plan(rate, seed)?;
        Ok(load)
    }

    /// The rate to begin with.
    pub(crate) fn first_rate(&self) -> Result<f64, BadConfig> {
        let rate = self.first.header().process.rate();
        rate.ok_or_else(|| BadConfig("these arrivals have no rate that a search could change".to_owned()))
    }

    /// The seed that was given, or 0.
    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    /// The server, if one is named.
    pub(crate) const fn url(&self) -> Option<&BaseUrl> {
        self.args.url.as_ref()
    }

    /// Where to write, if that is said.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.args.result_dir.as_deref()
    }

    /// Whether to print JSON.
    pub(crate) const fn json(&self) -> bool {
        self.args.json
    }

    /// A plan with the header of all: tenants and limits.
    pub(crate) const fn first(&self) -> &Plan {
        &self.first
    }

    /// The plan at a rate.
    ///
    /// # Errors
    /// Arrivals whose rate cannot be changed.
    pub(crate) fn plan(&mut self, rate: f64, seed: u64) -> anyhow::Result<Plan> {
        (self.args.work.request_rate, self.args.work.seed) = (Some(rate), Some(seed));
        plan::with_settings(&self.args.work).map(|(plan, _)| plan)
    }

    /// What every probe is told besides.
    ///
    /// # Errors
    /// A configuration that is wrong.
    pub(crate) fn terms(&self, given: &Given) -> anyhow::Result<Terms> {
        let usual = Terms::new("probe").load;
        // Where no server is named, the stand has one of its own.
        let url = self.args.url.clone().unwrap_or(usual.url);
        let mut load: LoadConfig = config(&self.args, url, &self.first)?;
        load.name = usual.name;
        if !given.has("max_send_lag") {
            load.tolerances.send_lag_p99 = usual.tolerances.send_lag_p99;
            load.tolerances.runtime_delay_p99 = usual.tolerances.runtime_delay_p99;
        }
        let salt = if self.args.no_salt { Salt::None } else { Salt::Fresh };
        load.metadata.remove("salt");
        Ok(Terms { load, salt, primed: 0 })
    }

    /// How long a probe is, in words.
    pub(crate) fn length(&self) -> String {
        match self.args.work.duration {
            Some(window) => window.to_string(),
            None => format!("{} arrivals", self.first.header().count),
        }
    }

    /// How long the arrivals of a probe take at a rate.
    pub(crate) fn window(&self, rate: f64) -> Span {
        let header = self.first.header();
        match (self.args.work.duration, header.window) {
            (Some(window), _) => window,
            _ => Span::from_secs_f64(f64::from(header.count) / rate),
        }
    }
}
