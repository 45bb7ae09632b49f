//! `elasticserve sim fit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::sim::fit::{Effort, PARAMETERS, Parameter, fit, rewrite};
use elasticserve_core::sim::reproduce::{Published, Report};
use elasticserve_report::{grid, write_file};

use super::replay::Replay;
use crate::cmd::{BadConfig, profile, say, say_error};

/// Fit an engine profile to measurements by least squares.
///
/// Rows of the published measurements are fitted to, or those of a file about a server of your own. The
/// fitted parameters are the times of a step, the roof, and the overheads around the engine; what a server
/// is configured with (sequences, block size, token budget) is taken from the profile to start from.
///
/// The loss is the sum over all cells of (error / tolerance)², with the tolerances of `sim reproduce`. It
/// is lowered with the method of Levenberg and Marquardt; the same start gives the same profile.
#[derive(clap::Args)]
#[command(after_help = "\
A file of your own has the form of reference/spark-gb10.toml: [slo], and for each run a row of [[unloaded]],
[[saturation]], [[permits]] or [[queue_budget]] with any figures that you have. Arrivals are those of
`elasticserve load` with the same --seed:

  [slo]
  ttft_ms = 1000
  [workload]
  seed = 7
  requests = 200
  input = 256
  output = 64
  [[saturation]]
  offered = 8
  throughput = 7.15
  ttft_p95 = 195.6

Examples:
  elasticserve sim fit --rows unloaded,direct
  elasticserve sim fit --profile my-server.toml --measured my-runs.toml --out my-server-fitted.toml

Exit codes:
  0   done
  1   the profile could not be written
  2   the command line is wrong; the message names the flag
  64  the profile, --measured or --rows is wrong")]
pub(crate) struct Args {
    /// Where to start: the name of a built-in profile, or a file that ends in .toml
    #[arg(long, value_name = "NAME|FILE.toml", default_value = profile::DEFAULT)]
    profile: String,
    /// Measurements of a server of your own, in place of the published ones
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
    /// Only these rows: direct, gateway, unloaded, low-rate, saturation, overhead, permits, budgets, pairs, tenants
    #[arg(long, value_name = "GROUP,…", value_delimiter = ',')]
    rows: Vec<String>,
    /// How often to start again from the best found, shaken, so as not to end in a small valley
    #[arg(long, value_name = "COUNT", default_value_t = RESTARTS, value_parser = clap::value_parser!(u32).range(..=10_000))]
    restarts: u32,
    /// Write the fitted profile to this file
    #[arg(long, value_name = "FILE.toml")]
    out: Option<PathBuf>,
}

const RESTARTS: u32 = 16;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let start = profile::load(&args.profile)?;
    let text = profile::text(&args.profile)?;
    // Before the work: a profile that could not be written is no use.
    rewrite(&text, &start).map_err(|e| BadConfig(format!("--profile {}: {e}", args.profile)))?;
    let replay = Replay::new(measurements(args.measured.as_deref())?)?.only(&args.rows)?;
    let before = replay.report(&start)?;
    let effort = Effort { restarts: args.restarts, ..Effort::default() };
    let found = fit(&start, effort, |profiles: &[Profile]| {
        let reports = replay.reports(profiles)?;
        anyhow::Ok(reports.iter().map(|report| report.residuals().collect()).collect())
    })?;
    // What is printed is what the file says, rounded as it is there.
    let fitted = rewrite(&text, &found.profile)?;
    let profile = Profile::from_toml(&fitted).context("the fitted profile")?;
    let after = replay.report(&profile)?;
    say(&parameters(&start, &profile));
    say(&residuals(&before, &after));
    say(&format!("loss {:.2} before, {:.2} after {} rounds", before.loss(), after.loss(), found.rounds));
    if let Some(out) = &args.out {
        let origin = origin(args, before.loss(), after.loss());
        write_file(out, &(origin + &fitted)).context("--out")?;
        say_error(&format!("wrote {}", out.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn measurements(file: Option<&Path>) -> Result<Published, BadConfig> {
    let Some(path) = file else { return Published::built_in().map_err(|e| BadConfig(e.to_string())) };
    let wrong = |error: &dyn std::fmt::Display| BadConfig(format!("--measured {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    Published::from_toml(&text).map_err(|e| wrong(&e))
}

/// The first lines of a fitted profile: how to make it again.
fn origin(args: &Args, before: f64, after: f64) -> String {
    let mut command = format!("elasticserve sim fit --profile {}", args.profile);
    if let Some(measured) = &args.measured {
        command += &format!(" --measured {}", measured.display());
    }
    if !args.rows.is_empty() {
        command += &format!(" --rows {}", args.rows.join(","));
    }
    if args.restarts != RESTARTS {
        command += &format!(" --restarts {}", args.restarts);
    }
    format!("# Fitted with: {command}\n# Loss {before:.2} before, {after:.2} after.\n#\n")
}

fn parameters(before: &Profile, after: &Profile) -> String {
    let columns = ["before", "after", "change"].map(str::to_owned);
    let row = |p: &Parameter| {
        let (old, new) = (p.get(before), p.get(after));
        let change = if old == 0.0 { "–".to_owned() } else { format!("{:+.1}%", (new / old - 1.0) * 100.0) };
        (format!("{}.{}", p.table, p.key), vec![format!("{old:.6}"), format!("{new:.6}"), change])
    };
    grid("parameter", &columns, &PARAMETERS.iter().map(row).collect::<Vec<_>>())
}

/// The cells that are furthest off after the fit.
fn residuals(before: &Report, after: &Report) -> String {
    const MOST: usize = 12;
    let mut cells: Vec<(f64, f64, String)> = after
        .rows
        .iter()
        .zip(&before.rows)
        .filter_map(|(new, old)| {
            let (tolerance, name) = (new.tolerance?, format!("{} {}", new.row, new.column));
            Some((old.error? / tolerance, new.error? / tolerance, name))
        })
        .collect();
    cells.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let row = |(old, new, name): &(f64, f64, String)| (name.clone(), vec![format!("{old:+.2}"), format!("{new:+.2}")]);
    let rows: Vec<_> = cells.iter().take(MOST).map(row).collect();
    grid("largest errors, in tolerances", &["before", "after"].map(str::to_owned), &rows)
}
