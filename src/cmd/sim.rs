//! `elasticserve sim`: policies and engines on virtual time.

mod fit;
mod parallel;
mod policy;
mod replay;
mod reproduce;
mod run;

use std::process::ExitCode;

use clap::Subcommand;

/// Arguments of `elasticserve sim`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run a plan against engine models, direct or behind the gateway's scheduler.
    Run(Box<run::Args>),
    /// Fit an engine profile to measurements by least squares.
    Fit(fit::Args),
    /// Replay every row of the published measurements and compare.
    Reproduce(reproduce::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Run(args) => run::run(&args),
        What::Fit(args) => fit::run(&args),
        What::Reproduce(args) => reproduce::run(&args),
    }
}
