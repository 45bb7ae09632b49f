//! ElasticServe: a gateway, a load generator and a simulator for shared LLM servers under overload.

mod cmd;
mod knee;
mod lab;
mod log;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Keep a shared LLM server useful under overload, and prove that it is.
#[derive(Parser)]
#[command(name = "elasticserve", version, propagate_version = true, after_help = cmd::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure a server and write the profile that the gateway's prediction and the simulator load.
    Calibrate(Box<cmd::calibrate::Args>),
    /// Find the highest rate of an open load that a server carries within a target.
    Capacity(Box<cmd::capacity::Args>),
    /// Tell whether runs may be believed and what they say of a release: accept, retest or resize.
    Check(cmd::check::Args),
    /// Tell what a change did, from pairs of runs of the same arrivals: better, worse, no difference, undecided.
    Compare(Box<cmd::compare::Args>),
    /// Overload a built-in engine server with and without the gateway, and compare.
    Demo(cmd::demo::Args),
    /// Compare policies or servers over pairs of runs, and say what the difference is worth.
    Experiment(cmd::experiment::Args),
    /// Tell what the gateway decided about a request, and why, from its decision log.
    Explain(cmd::explain::Args),
    /// Stand in front of OpenAI-compatible servers and admit what can be answered in time.
    Gateway(cmd::gateway::Args),
    /// Make API keys for the gateway, and the digests by which it knows them.
    Keys(cmd::keys::Args),
    /// Offer a fixed plan of requests to a server and account for every one of them.
    Load(Box<cmd::load::Args>),
    /// Serve the OpenAI API from an engine model in real time.
    Mock(cmd::mock::Args),
    /// Recompute a run's figures from its ledger.
    Report(cmd::report::Args),
    /// Check the reader of streams, or any other, against a corpus of streams from the field.
    Selftest(cmd::selftest::Args),
    /// Try policies and engines on virtual time, with the gateway's own scheduler.
    Sim(cmd::sim::Args),
    /// Offer one rate after the other to a server and mark where the target is lost.
    Sweep(Box<cmd::sweep::Args>),
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let given = matches.subcommand().map(|(_, flags)| cmd::load::Given::of(flags)).unwrap_or_default();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.verb {
        Verb::Calibrate(args) => cmd::calibrate::run(&args),
        Verb::Capacity(args) => cmd::capacity::run(*args, &given),
        Verb::Check(args) => cmd::check::run(&args),
        Verb::Compare(args) => cmd::compare::run(&args),
        Verb::Demo(args) => cmd::demo::run(args),
        Verb::Experiment(args) => cmd::experiment::run(&args),
        Verb::Explain(args) => cmd::explain::run(&args),
        Verb::Gateway(args) => cmd::gateway::run(args),
        Verb::Keys(args) => cmd::keys::run(&args),
        Verb::Load(args) => cmd::load::run(*args, &given),
        Verb::Mock(args) => cmd::mock::run(args),
        Verb::Report(args) => cmd::report::run(args),
        Verb::Selftest(args) => cmd::selftest::run(&args),
        Verb::Sim(args) => cmd::sim::run(args),
        Verb::Sweep(args) => cmd::sweep::run(*args, &given),
    };
    log::flush();
    result.unwrap_or_else(|error| cmd::fail(&error))
}
