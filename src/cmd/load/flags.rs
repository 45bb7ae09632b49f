//! From the flags to what a plan is drawn from.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use elasticserve_core::time::Span;
use elasticserve_core::work::{
    ArrivalProcess, Class, Dataset, Extent, Length, Lengths, Mix, Offering, Pairs, PlanTenant, SharedPrefix, Sizes,
    TextBounds, Texts,
};

use super::work::{DatasetName, Pattern, WorkArgs};
use crate::cmd::{BadConfig, BadUsage};

/// The tenant of a load that names none.
pub(super) const TENANT: &str = "default";
/// Requests that a worker may send in a second of a closed load that is bounded by time alone.
const PER_WORKER: f64 = 100.0;
/// The most requests that such a load may send.
const MAX_SUPPLY: f64 = 1e6;

/// What the flags ask for.
pub(super) fn mix(args: &WorkArgs) -> anyhow::Result<Mix> {
    let prefix = args.random_prefix_len.map(|tokens| SharedPrefix { tokens, groups: NonZeroU32::MIN, scope: 0 });
    let class = Class { tenant: PlanTenant::new(TENANT, 1.0, args.limits.slo()), sizes: sizes(args)?, prefix };
    Ok(Mix { seed: args.seed.unwrap_or(0), offer: offering(args)?, classes: vec![class], texts: texts(args)? })
}

fn offering(args: &WorkArgs) -> anyhow::Result<Offering> {
    if let Some(workers) = args.concurrency {
        let (count, window) = supply(workers, args.num_prompts.and_then(NonZeroU32::new), args.duration)
            .ok_or_else(|| BadUsage("--num-prompts or --duration is missing".to_owned()))?;
        return Ok(Offering::Closed { workers, count, window });
    }
    let extent = match (args.num_prompts, args.duration) {
        (Some(count), _) => Extent::Count(count),
        (None, Some(window)) => Extent::Duration(window),
        (None, None) => return Err(BadUsage("--num-prompts or --duration is missing".to_owned()).into()),
    };
    Ok(Offering::Shared { process: process(args)?, extent })
}

/// How many requests a closed load may send, and when it ends if not with them.
pub(super) fn supply(
    workers: NonZeroU32,
    count: Option<NonZeroU32>,
    window: Option<Span>,
) -> Option<(NonZeroU32, Option<Span>)> {
    let by_time = |window: Span| {
        let most = (f64::from(workers.get()) * window.as_secs_f64() * PER_WORKER).clamp(1.0, MAX_SUPPLY);
        NonZeroU32::new(most.ceil() as u32)
    };
    Some((count.or_else(|| by_time(window?))?, window))
}

fn process(args: &WorkArgs) -> Result<ArrivalProcess, BadUsage> {
    if !args.rate_steps.is_empty() {
        return Ok(ArrivalProcess::Steps { steps: args.rate_steps.clone() });
    }
    if let Some((from, to)) = args.ramp {
        return Ok(ArrivalProcess::Ramp { from, to });
    }
    if let Some((size, every)) = args.bursts {
        return Ok(ArrivalProcess::Bursts { size, every });
    }
    let rate = args.request_rate.ok_or_else(|| BadUsage("--request-rate is missing".to_owned()))?;
    match (args.arrival_pattern, args.burstiness) {
        (Some(pattern @ (Pattern::Constant | Pattern::Poisson)), Some(_)) => {
            let name = if pattern == Pattern::Constant { "constant" } else { "poisson" };
            let why = "it is the shape of --arrival-pattern gamma";
            Err(BadUsage(format!("--burstiness cannot be used with --arrival-pattern {name}: {why}")))
        }
        (Some(Pattern::Gamma), None) => {
            Err(BadUsage("--arrival-pattern gamma needs --burstiness, the shape of its gaps".to_owned()))
        }
        (Some(Pattern::Constant), None) => Ok(ArrivalProcess::Constant { rate }),
        (None | Some(Pattern::Poisson), None) => Ok(ArrivalProcess::Poisson { rate }),
        (None | Some(Pattern::Gamma), Some(burstiness)) => Ok(gamma(rate, burstiness)),
    }
}

/// Gamma gaps, by their name where the shape has one.
fn gamma(rate: f64, burstiness: f64) -> ArrivalProcess {
    if burstiness == 1.0 {
        ArrivalProcess::Poisson { rate }
    } else if burstiness.is_infinite() {
        ArrivalProcess::Constant { rate }
    } else {
        ArrivalProcess::Gamma { rate, burstiness }
    }
}

fn sizes(args: &WorkArgs) -> Result<Sizes, BadConfig> {
    if let Some(path) = &args.lengths_file {
        return read_pairs(path).map_err(|problem| BadConfig(format!("--lengths-file {}: {problem}", path.display())));
    }
    let ratio = args.random_range_ratio.unwrap_or(0.0);
    let length = |tokens| Length::Uniform(Lengths::around(tokens, ratio));
    let (input, output) = (args.random_input_len.unwrap_or(1024), args.random_output_len.unwrap_or(128));
    Ok(Sizes::Independent { input: length(input), output: length(output) })
}

/// The pairs of a file.
pub(super) fn read_pairs(path: &Path) -> Result<Sizes, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let source = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Sizes::Empirical(Arc::new(Pairs::from_csv(&text, &source).map_err(|e| e.to_string())?)))
}

fn texts(args: &WorkArgs) -> anyhow::Result<Option<Texts>> {
    let path = match (args.dataset_name, &args.dataset_path) {
        (Some(DatasetName::Sharegpt), None) => {
            return Err(BadUsage("--dataset-name sharegpt needs --dataset-path, the file".to_owned()).into());
        }
        (Some(DatasetName::Random), Some(_)) => {
            let problem = "--dataset-path cannot be used with --dataset-name random: random prompts need no file";
            return Err(BadUsage(problem.to_owned()).into());
        }
        (_, None) => return Ok(None),
        (_, Some(path)) => path,
    };
    let dataset = read_dataset(path).map_err(|p| BadConfig(format!("--dataset-path {}: {p}", path.display())))?;
    let output = args.sharegpt_output_len.map(|tokens| Length::Uniform(Lengths::fixed(tokens)));
    Ok(Some(Texts { dataset, bounds: TextBounds::default(), output }))
}

/// The conversations of a file.
pub(super) fn read_dataset(path: &Path) -> Result<Arc<Dataset>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    Dataset::from_json(&text, &path.to_string_lossy()).map(Arc::new).map_err(|e| e.to_string())
}
