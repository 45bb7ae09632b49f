//! The plan: drawn from the arguments, or read from a file.

use std::path::Path;

use elasticserve_core::slo::Slo;
use elasticserve_core::work::{
    ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant, TraceFormat, TraceOptions, read_trace,
};

use super::work::{Pattern, WorkArgs};
use crate::cmd::BadConfig;

/// The tenant of a load that names none.
const TENANT: &str = "default";
/// More arrivals than one process should plan: about 2 GB of plan.
const MAX_ARRIVALS: f64 = 2e7;

pub(crate) fn from_args(args: &WorkArgs) -> Result<Plan, BadConfig> {
    if let Some(path) = &args.plan {
        let bad = |problem: String| BadConfig(format!("--plan {}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        return Plan::from_ndjson(&text).map_err(|e| bad(e.to_string()));
    }
    if let Some(path) = &args.trace {
        return from_trace(path, args);
    }
    let rate = args.request_rate.ok_or_else(|| BadConfig("--request-rate is missing".to_owned()))?;
    let process = match args.arrival_pattern {
        Pattern::Constant => ArrivalProcess::Constant { rate },
        Pattern::Poisson => ArrivalProcess::Poisson { rate },
    };
    let extent = match (args.num_prompts, args.duration) {
        (Some(count), _) => Extent::Count(count),
        (None, Some(window)) if window.as_secs_f64() * rate > MAX_ARRIVALS => {
            return Err(BadConfig(format!("--duration: more than {MAX_ARRIVALS} requests; take a shorter one")));
        }
        (None, Some(window)) => Extent::Duration(window),
        (None, None) => return Err(BadConfig("--num-prompts or --duration is missing".to_owned())),
    };
    let lengths = |tokens| Lengths::around(tokens, args.random_range_ratio);
    let spec = PlanSpec {
        seed: args.seed,
        process,
        extent,
        input: lengths(args.random_input_len),
        output: lengths(args.random_output_len),
        tenants: vec![PlanTenant::new(TENANT, 1.0, args.limits.slo())],
    };
    let plan = Plan::generate(&spec).map_err(|e| BadConfig(e.to_string()))?;
    if plan.arrivals().is_empty() {
        return Err(BadConfig("--duration is too short for a single request at this --request-rate".to_owned()));
    }
    Ok(plan)
}

/// A recorded trace. The limits of `--goodput` hold for all of it; a trace that names its tenants gets
/// theirs from a gateway's configuration.
fn from_trace(path: &Path, args: &WorkArgs) -> Result<Plan, BadConfig> {
    let bad = |problem: String| BadConfig(format!("--trace {}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    let format = TraceFormat::detect(&text).map_err(|e| bad(e.to_string()))?;
    let slo = args.limits.slo();
    let tenants = match format {
        TraceFormat::Tenants if slo != Slo::default() => {
            return Err(bad("it names its tenants, so --goodput cannot say their limits".to_owned()));
        }
        TraceFormat::Tenants => Vec::new(),
        TraceFormat::Mooncake | TraceFormat::Azure => vec![PlanTenant::new(TENANT, 1.0, slo)],
    };
    let options = TraceOptions { speed_up: args.trace_speedup, limit: args.trace_rows, tenants };
    let source = path.file_name().unwrap_or_default().to_string_lossy();
    read_trace(format, &text, &source, &options).map_err(|e| bad(e.to_string()))
}
