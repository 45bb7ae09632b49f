//! The work that is offered: flags that `load` and the simulator share.

use std::num::NonZeroU32;
use std::path::PathBuf;

use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::Step;

pub(super) const WORK: &str = "Work";
pub(super) const ARRIVALS: &str = "Arrivals";
pub(super) const LIMITS: &str = "Limits";

/// What says when requests are sent; one of them must be there.
const SOURCES: [&str; 8] = ["request_rate", "rate_steps", "ramp", "bursts", "concurrency", "scenario", "trace", "plan"];
/// What says how many requests there are; one of them must be there.
const EXTENTS: [&str; 5] = ["num_prompts", "duration", "scenario", "trace", "plan"];

/// Where a plan comes from.
#[derive(clap::Args)]
pub(crate) struct WorkArgs {
    /// Requests per second.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, help_heading = ARRIVALS)]
    #[arg(required_unless_present_any = &SOURCES[1..])]
    pub(super) request_rate: Option<f64>,
    /// Gaps between arrivals: all equal, exponential, or gamma with --burstiness [default: poisson].
    #[arg(long, value_enum, value_name = "PATTERN", help_heading = ARRIVALS)]
    pub(super) arrival_pattern: Option<Pattern>,
    /// Shape of gamma gaps: below 1 requests come in clumps, 1 is poisson, inf is constant.
    #[arg(long, visible_alias = "arrival-smoothness", value_name = "SHAPE", value_parser = parse_burstiness)]
    #[arg(help_heading = ARRIVALS)]
    pub(super) burstiness: Option<f64>,
    /// Poisson arrivals at one rate after the other, such as 4:30s,8:30s; the last one goes on.
    #[arg(long, value_name = "RATE:TIME", value_delimiter = ',', value_parser = parse_step, help_heading = ARRIVALS)]
    pub(super) rate_steps: Vec<Step>,
    /// Poisson arrivals at a rate that moves evenly in time from the first to the second, such as 1:40.
    #[arg(long, value_name = "FROM:TO", value_parser = parse_ramp, help_heading = ARRIVALS)]
    pub(super) ramp: Option<(f64, f64)>,
    /// So many requests at once, again after each time, such as 100:10s.
    #[arg(long, value_name = "SIZE:TIME", value_parser = parse_bursts, help_heading = ARRIVALS)]
    pub(super) bursts: Option<(u32, Span)>,
    /// A closed load in place of arrivals: so many workers, each of which sends when its last answer has ended.
    #[arg(long, value_name = "WORKERS", help_heading = ARRIVALS)]
    pub(super) concurrency: Option<NonZeroU32>,
    /// How many requests.
    #[arg(long, visible_alias = "request-count", value_name = "COUNT", help_heading = ARRIVALS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=20_000_000), required_unless_present_any = &EXTENTS[1..])]
    pub(super) num_prompts: Option<u32>,
    /// For how long requests arrive, in place of --num-prompts; with --concurrency beside it, too.
    #[arg(long, visible_alias = "benchmark-duration", value_name = "SECONDS", value_parser = parse_seconds)]
    #[arg(help_heading = ARRIVALS)]
    pub(super) duration: Option<Span>,

    /// A scenario file: tenants, arrivals, lengths, prompts, target and limits; flags win over it.
    #[arg(long, value_name = "FILE", help_heading = WORK)]
    pub(super) scenario: Option<PathBuf>,
    /// Prompt tokens [default: 1024].
    #[arg(long, visible_aliases = ["isl", "input-len"], value_name = "TOKENS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..), help_heading = WORK)]
    pub(super) random_input_len: Option<u32>,
    /// Answer tokens [default: 128].
    #[arg(long, visible_aliases = ["osl", "output-len"], value_name = "TOKENS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..), help_heading = WORK)]
    pub(super) random_output_len: Option<u32>,
    /// Lengths are uniform within this ratio of the ones above [default: 0, which keeps them fixed].
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, help_heading = WORK)]
    pub(super) random_range_ratio: Option<f64>,
    /// Tokens that all prompts start with, on top of their own.
    #[arg(long, value_name = "TOKENS", help_heading = WORK)]
    pub(super) random_prefix_len: Option<NonZeroU32>,
    /// Draw lengths from measured pairs: CSV of input_tokens,output_tokens.
    #[arg(long, value_name = "FILE", help_heading = WORK)]
    pub(super) lengths_file: Option<PathBuf>,
    /// Where prompts come from: made from random tokens, or conversations in the form of ShareGPT [default: random].
    #[arg(long, value_enum, value_name = "NAME", help_heading = WORK)]
    pub(super) dataset_name: Option<DatasetName>,
    /// The file of conversations.
    #[arg(long, value_name = "FILE", help_heading = WORK)]
    pub(super) dataset_path: Option<PathBuf>,
    /// Answer tokens in place of those of the conversations.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..), help_heading = WORK)]
    pub(super) sharegpt_output_len: Option<u32>,
    /// The seed of arrivals, lengths and prompts [default: 0].
    #[arg(long, visible_alias = "random-seed", value_name = "NUMBER", help_heading = WORK)]
    pub(super) seed: Option<u64>,
    /// Take the plan from a file instead: plan.ndjson of an earlier run.
    #[arg(long, value_name = "FILE", help_heading = WORK)]
    pub(super) plan: Option<PathBuf>,
    /// Replay a trace: Mooncake JSON lines, Azure CSV, or CSV of i,arrival_s,tenant,input_tokens,output_tokens.
    #[arg(long, value_name = "FILE", help_heading = WORK)]
    pub(super) trace: Option<PathBuf>,
    /// The trace's arrivals come so many times faster than recorded [default: 1].
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, help_heading = WORK)]
    pub(super) trace_speedup: Option<f64>,
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
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Pattern {
    /// All equal.
    Constant,
    /// Exponential.
    Poisson,
    /// Of a gamma distribution.
    Gamma,
}

/// Where prompts come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DatasetName {
    /// Random tokens.
    Random,
    /// Conversations.
    Sharegpt,
}

/// A limit of `--goodput`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Ttft,
    Tpot,
    E2e,
}

impl LimitArgs {
    /// Whether any limit was given.
    pub(super) const fn any(&self) -> bool {
        !self.goodput.is_empty()
    }

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
pub(crate) fn parse_seconds(text: &str) -> Result<Span, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(Span::from_secs_f64(seconds)),
        Ok(_) => Err("a time is 0 s or more".to_owned()),
        Err(_) => text.parse::<Span>().map_err(|e| e.to_string()),
    }
}

pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "write a number of requests per second".to_owned())?;
    if rate.is_infinite() && rate > 0.0 {
        return Err("an open load needs a finite rate; 'inf' would measure a queue of your own making. For workers \
                    that send one request after the other, as inf with a bound on concurrency does elsewhere, say \
                    --concurrency WORKERS; for all at once, --bursts COUNT:TIME"
            .to_owned());
    }
    if rate > 0.0 { Ok(rate) } else { Err("the rate must be above 0".to_owned()) }
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| *factor > 0.0 && factor.is_finite());
    factor.ok_or_else(|| "write a number above 0; 2 is twice as fast".to_owned())
}

fn parse_burstiness(text: &str) -> Result<f64, String> {
    let shape = text.parse::<f64>().ok().filter(|shape| *shape > 0.0);
    shape.ok_or_else(|| "write a number above 0, or inf".to_owned())
}

fn parse_step(text: &str) -> Result<Step, String> {
    const FORM: &str = "write RATE:TIME, such as 4:30s";
    let (rate, length) = text.split_once(':').ok_or(FORM)?;
    let rate = rate.trim().parse::<f64>().ok().filter(|rate| *rate >= 0.0 && rate.is_finite()).ok_or(FORM)?;
    Ok(Step { rate, length: parse_seconds(length.trim())? })
}

fn parse_ramp(text: &str) -> Result<(f64, f64), String> {
    let rate = |text: &str| text.trim().parse::<f64>().ok().filter(|rate| *rate >= 0.0 && rate.is_finite());
    let ends = text.split_once(':').and_then(|(from, to)| rate(from).zip(rate(to)));
    ends.ok_or_else(|| "write FROM:TO in requests per second, such as 1:40".to_owned())
}

fn parse_bursts(text: &str) -> Result<(u32, Span), String> {
    const FORM: &str = "write SIZE:TIME, such as 100:10s";
    let (size, every) = text.split_once(':').ok_or(FORM)?;
    Ok((size.trim().parse().map_err(|_| FORM)?, parse_seconds(every.trim())?))
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
