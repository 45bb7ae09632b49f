//! The plan: drawn from the arguments or a scenario, or read from a file.

use std::path::Path;
use std::process::ExitCode;

use elasticserve_core::slo::Slo;
use elasticserve_core::work::{Plan, PlanTenant, TraceFormat, TraceOptions, read_trace};

use super::scenario::{Scenario, Settings, Work};
use super::work::WorkArgs;
use super::{conflicts, flags};
use crate::cmd::{BadConfig, say, say_error};

/// The plan that the arguments ask for.
pub(crate) fn from_args(args: &WorkArgs) -> anyhow::Result<Plan> {
    with_settings(args).map(|(plan, _)| plan)
}

/// The plan that the arguments ask for, and what a scenario says besides.
pub(super) fn with_settings(args: &WorkArgs) -> anyhow::Result<(Plan, Settings)> {
    conflicts::refuse(args)?;
    if let Some(path) = &args.plan {
        return Ok((from_file(path, args.dataset_path.as_deref())?, Settings::default()));
    }
    if let Some(path) = &args.trace {
        return Ok((from_trace(path, args)?, Settings::default()));
    }
    let Some(path) = &args.scenario else {
        let plan = flags::mix(args)?.plan().map_err(|e| BadConfig(e.to_string()))?;
        return Ok((plan, Settings::default()));
    };
    let Scenario { work, settings } = Scenario::read(path, args)?;
    let bad = |problem: String| BadConfig(format!("--scenario {}: {problem}", path.display()));
    Ok((draw(work).map_err(bad)?, settings))
}

/// The plan of a scenario's work. The error says what is wrong with it.
pub(super) fn draw(work: Work) -> Result<Plan, String> {
    match work {
        Work::Mix(mix) => mix.plan().map_err(|e| e.to_string()),
        Work::Trace { path, options } => replay(&path, &options).map_err(|problem| format!("trace: {problem}")),
    }
}

/// Writes a plan to a file, or to stdout, and its hash to stderr.
pub(super) fn write(plan: &Plan, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    match file {
        Some(path) => elasticserve_report::write_file(path, &plan.to_ndjson())?,
        None => say(plan.to_ndjson().trim_end()),
    }
    say_error(&format!("{} arrivals, SHA-256 {}", plan.header().count, plan.hash()));
    Ok(ExitCode::SUCCESS)
}

/// A plan that was written down, with the texts that it refers to.
fn from_file(path: &Path, dataset: Option<&Path>) -> Result<Plan, BadConfig> {
    let bad = |problem: String| BadConfig(format!("--plan {}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    let plan = Plan::from_ndjson(&text).map_err(|e| bad(e.to_string()))?;
    let Some(named) = &plan.header().dataset else {
        return match dataset {
            Some(_) => Err(bad("--dataset-path is of no use: the plan refers to no dataset".to_owned())),
            None => Ok(plan),
        };
    };
    let file = dataset.map_or_else(|| Path::new(&named.source).to_owned(), Path::to_owned);
    let bad_file =
        |problem: String| bad(format!("its dataset {}: {problem}; --dataset-path says where it is", file.display()));
    let dataset = flags::read_dataset(&file).map_err(&bad_file)?;
    plan.with_dataset(dataset).map_err(|e| bad_file(e.to_string()))
}

/// A recorded trace. The limits of `--goodput` hold for all of it; a trace that names its tenants gets
/// theirs from a scenario or a gateway's configuration.
fn from_trace(path: &Path, args: &WorkArgs) -> Result<Plan, BadConfig> {
    let bad = |problem: String| BadConfig(format!("--trace {}: {problem}", path.display()));
    let slo = args.limits.slo();
    let tenants = match format(path).map_err(bad)? {
        TraceFormat::Tenants if slo != Slo::default() => {
            return Err(bad("it names its tenants, so --goodput cannot say their limits".to_owned()));
        }
        TraceFormat::Tenants => Vec::new(),
        TraceFormat::Mooncake | TraceFormat::Azure => vec![PlanTenant::new(flags::TENANT, 1.0, slo)],
    };
    let options = TraceOptions { speed_up: args.trace_speedup.unwrap_or(1.0), limit: args.trace_rows, tenants };
    replay(path, &options).map_err(bad)
}

fn format(path: &Path) -> Result<TraceFormat, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    TraceFormat::detect(&text).map_err(|e| e.to_string())
}

fn replay(path: &Path, options: &TraceOptions) -> Result<Plan, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let format = TraceFormat::detect(&text).map_err(|e| e.to_string())?;
    let source = path.file_name().unwrap_or_default().to_string_lossy();
    read_trace(format, &text, &source, options).map_err(|e| e.to_string())
}
