//! `elasticserve sim`: policies and engines on virtual time.

mod fit;
pub(crate) mod lists;
mod policies;
mod policy;
mod replay;
mod reproduce;
mod run;
mod single_worker;
mod sweep;

pub(crate) use reproduce::{short, signed};

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
    /// Compare the scheduler's policies on the published workloads, and check what they must reach.
    Policies(policies::Args),
    /// Replay one overload in front of an engine that does not batch, under both orders.
    SingleWorker(single_worker::Args),
    /// Simulate every combination of rates, policies and seeds, and find each policy's knee.
    Sweep(Box<sweep::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Run(args) => run::run(&args),
        What::Fit(args) => fit::run(&args),
        What::Reproduce(args) => reproduce::run(&args),
        What::Policies(args) => policies::run(&args),
        What::SingleWorker(args) => single_worker::run(&args),
        What::Sweep(args) => sweep::run(&args),
    }
}
