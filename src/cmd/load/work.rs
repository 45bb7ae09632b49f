//! The work that is offered: flags that `load` and the simulator share.

use std::num::NonZeroU32;
use std::path::PathBuf;

use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;

pub(super) const WORK: &str = "Work";
pub(super) const LIMITS: &str = "Limits";

/// Where a plan comes from.
#[derive(clap::Args)]
pub(crate) struct WorkArgs {
    /// Requests per second.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, help_heading = WORK)]
    #[arg(required_unless_present_any = ["plan", "trace"])]
    pub(super) request_rate: Option<f64>,
    /// Gaps between arrivals: exponential (poisson) or all equal (constant).
    #[arg(long, value_enum, value_name = "PATTERN", default_value = "poisson", help_heading = WORK)]
    pub(super) arrival_pattern: Pattern,
    /// How many requests.
    #[arg(long, visible_alias = "request-count", value_name = "COUNT", help_heading = WORK)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=20_000_000), required_unless_present_any = ["duration", "plan", "trace"])]
    pub(super) num_prompts: Option<u32>,
    /// For how long requests arrive, in place of --num-prompts.
    #[arg(long, visible_alias = "benchmark-duration", value_name = "SECONDS", value_parser = parse_seconds)]
    #[arg(conflicts_with = "num_prompts", help_heading = WORK)]
    pub(super) duration: Option<Span>,
    /// Prompt tokens.
    #[arg(long, visible_aliases = ["isl", "input-len"], value_name = "TOKENS", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..), help_heading = WORK)]
    pub(super) random_input_len: u32,
    /// Answer tokens.
    #[arg(long, visible_aliases = ["osl", "output-len"], value_name = "TOKENS", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..), help_heading = WORK)]
    pub(super) random_output_len: u32,
    /// Lengths are uniform within this ratio of the ones above; 0 keeps them fixed.
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, value_parser = parse_ratio, help_heading = WORK)]
    pub(super) random_range_ratio: f64,
    /// The seed of arrivals, lengths and prompts.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = WORK)]
    pub(super) seed: u64,
    /// Take the plan from a file instead: plan.ndjson of an earlier run.
    #[arg(long, value_name = "FILE", help_heading = WORK)]
    #[arg(conflicts_with_all = ["request_rate", "num_prompts", "duration", "goodput"])]
    pub(super) plan: Option<PathBuf>,
    /// Replay a trace: Mooncake JSON lines, Azure CSV, or CSV of i,arrival_s,tenant,input_tokens,output_tokens.
    #[arg(long, value_name = "FILE", help_heading = WORK)]
    #[arg(conflicts_with_all = ["request_rate", "num_prompts", "duration", "plan"])]
    pub(super) trace: Option<PathBuf>,
    /// The trace's arrivals come so many times faster than recorded.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_rate, help_heading = WORK)]
    pub(super) trace_speedup: f64,
    /// Only so many rows from the trace's start.
    #[arg(long, value_name = "COUNT", help_heading = WORK)]
    pub(super) trace_rows: Option<NonZeroU32>,
    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

/// What makes an answer good.
#[derive(clap::Args)]
pub(crate) struct LimitArgs {
    /// Limits in ms that make an answer good, from the planned time: ttft, tpot, e2el.
    #[arg(long, value_name = "LIMIT:MS", num_args = 1.., value_parser = parse_limit, help_heading = LIMITS)]
    goodput: Vec<(Limit, Span)>,
}

/// The gaps between arrivals.
#[derive(Copy, Clone, clap::ValueEnum)]
pub(super) enum Pattern {
    /// All equal.
    Constant,
    /// Exponential.
    Poisson,
}

/// A limit of `--goodput`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Ttft,
    Tpot,
    E2e,
}

impl LimitArgs {
    /// The limits of `--goodput`; a later one takes the place of an earlier one.
    pub(crate) fn slo(&self) -> Slo {
        let mut slo = Slo::default();
        for (limit, span) in &self.goodput {
            let field = match limit {
                Limit::Ttft => &mut slo.ttft,
                Limit::Tpot => &mut slo.tpot,
                Limit::E2e => &mut slo.e2e,
            };
            *field = Some(*span);
        }
        slo
    }
}

/// A plain number is of seconds.
pub(super) fn parse_seconds(text: &str) -> Result<Span, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(Span::from_secs_f64(seconds)),
        Ok(_) => Err("a time is 0 s or more".to_owned()),
        Err(_) => text.parse::<Span>().map_err(|e| e.to_string()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "write a number of requests per second".to_owned())?;
    if rate.is_infinite() && rate > 0.0 {
        return Err("an open load needs a finite rate; 'inf' would measure a queue of your own making".to_owned());
    }
    if rate > 0.0 { Ok(rate) } else { Err("the rate must be above 0".to_owned()) }
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "write a number from 0 up to below 1".to_owned())?;
    if (0.0..1.0).contains(&ratio) { Ok(ratio) } else { Err("write a number from 0 up to below 1".to_owned()) }
}

fn parse_limit(text: &str) -> Result<(Limit, Span), String> {
    const FORM: &str = "write ttft:MS, tpot:MS or e2el:MS, such as ttft:1000";
    let (name, ms) = text.split_once(':').ok_or(FORM)?;
    let limit = match name {
        "ttft" => Limit::Ttft,
        "tpot" => Limit::Tpot,
        "e2el" | "e2e" => Limit::E2e,
        _ => return Err(FORM.to_owned()),
    };
    let ms: f64 = ms.parse().map_err(|_| FORM)?;
    if !(ms > 0.0 && ms.is_finite()) {
        return Err("a limit must be above 0 ms".to_owned());
    }
    Ok((limit, Span::from_millis_f64(ms)))
}
