//! `elasticserve sim sweep`.

mod output;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::sched::{Order, TenantPolicy};
use elasticserve_core::sim::sweep::{Common, Grid, Outcome, curves};
use elasticserve_core::time::Span;
use elasticserve_core::work::{Lengths, PlanTenant};
use elasticserve_report::write_file;

use super::lists::{Tenant, parse_budget, parse_lengths, parse_rates, parse_tenant};
use super::policy::parse_order;
use crate::cmd::load::work::LimitArgs;
use crate::cmd::page::PageArgs;
use crate::cmd::{BadConfig, profile, say, say_error};
use crate::lab::parallel;

/// Simulate every combination of rates, permits, orders, budgets and seeds on all cores.
///
/// All policies meet the same arrivals: those that `elasticserve load` offers for the seed and rate. The
/// table shows means over the seeds, the CSV every run. The knee of a policy is the highest offered rate up
/// to which, at every rate of the sweep, on average at least --target of all that was offered got a good
/// answer.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  elasticserve sim sweep --rates 4:24:2 --permits 32,24 --budgets none,750ms --seeds 7,11,23 \\
    --goodput ttft:1000 tpot:100 e2el:15000 --html sweep.html --csv sweep.csv
  elasticserve sim sweep --rates 4:12:1 --orders fcfs,wfq --budgets 750ms --seeds 1,2,3,4,5 \\
    --input-len 64:960 --output-len 32:224 \\
    --tenant gold:share=0.2,weight=4,ttft=600,e2el=5000 \\
    --tenant standard:share=0.5,weight=2,ttft=1200,e2el=9000 \\
    --tenant batch:share=0.3,weight=1,ttft=5000,e2el=30000

The same command gives the same output, byte for byte, on any number of threads.

Exit codes:
  0   done
  1   a file could not be written
  2   the command line is wrong; the message names the flag
  64  the profile or the work is wrong; nothing was simulated")]
pub(crate) struct Args {
    /// Requests per second: values, or LOW:HIGH:STEP
    #[arg(long, value_name = "RATES", value_parser = parse_rates)]
    rates: RateList,
    /// Permits of the gateway
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "32", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Vec<u32>,
    /// Orders of the queue: fcfs, wfq, …
    #[arg(long, value_name = "ORDER,…", value_delimiter = ',', default_value = "fcfs", value_parser = parse_order)]
    orders: Vec<Order>,
    /// Queue budgets: times such as 750ms, or none
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_value = "none", value_parser = parse_budget)]
    budgets: Vec<Budget>,
    /// Seeds of arrivals, lengths and tenants
    #[arg(long, value_name = "NUMBER,…", value_delimiter = ',', default_value = "0")]
    seeds: Vec<u64>,
    /// The engine without a gateway, too
    #[arg(long)]
    direct: bool,
    /// The most requests that may wait in the gateway
    #[arg(long, value_name = "N", default_value_t = 256)]
    queue_depth: u32,

    /// Requests in each run
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    num_prompts: u32,
    /// Prompt tokens: a number, or LOW:HIGH for a uniform distribution
    #[arg(long, visible_aliases = ["isl", "random-input-len"], value_name = "TOKENS", default_value = "256", value_parser = parse_lengths)]
    input_len: Lengths,
    /// Answer tokens, in the same form
    #[arg(long, visible_aliases = ["osl", "random-output-len"], value_name = "TOKENS", default_value = "64", value_parser = parse_lengths)]
    output_len: Lengths,
    #[command(flatten)]
    limits: LimitArgs,
    /// A tenant with its share of arrivals, weight, and limits in ms; may be repeated
    #[arg(long, value_name = "NAME:KEY=VALUE,…", value_parser = parse_tenant, conflicts_with = "goodput")]
    tenant: Vec<Tenant>,

    /// The engine: the name of a built-in profile, or a file that ends in .toml
    #[arg(long, value_name = "NAME|FILE.toml", default_value = profile::DEFAULT)]
    profile: String,
    /// The prefix cache holds all prompts from the start
    #[arg(long)]
    warm: bool,
    /// The attainment that defines the knee
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = parse_share)]
    target: f64,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
    /// Write every run as a line of CSV to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
}

// By these names the values of a flag are one value, not as many as it holds.
type RateList = Vec<f64>;
type Budget = Option<Span>;

/// More runs than a sweep should hold in memory.
const MAX_RUNS: usize = 100_000;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let profile = profile::load(&args.profile)?;
    let grid = args.grid();
    let points = grid.points();
    if points.len() > MAX_RUNS {
        return Err(BadConfig(format!("{} runs where at most {MAX_RUNS} are simulated at once", points.len())).into());
    }
    let common = args.common(profile);
    let threads = args.threads.unwrap_or_else(parallel::all_cores);
    let outcomes: Vec<Outcome> = parallel::map(&points, threads, |point| common.run(*point))
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|e| BadConfig(e.to_string()))?;
    let curves = curves(&grid, &outcomes);
    let described = args.describe(&common);
    say(&output::text(&described, &curves, args.target));
    if let Some(file) = &args.csv {
        write_file(file, &output::csv(&outcomes)).context("--csv")?;
        say_error(&format!("wrote {}", file.display()));
    }
    if args.page.wanted() {
        args.page.write(&output::document(&described, &curves, args.target))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn grid(&self) -> Grid {
        Grid {
            rates: self.rates.clone(),
            permits: self.permits.clone(),
            orders: self.orders.clone(),
            budgets: self.budgets.clone(),
            seeds: self.seeds.clone(),
            direct: self.direct,
        }
    }

    fn common(&self, profile: Profile) -> Common {
        let alone = PlanTenant::new("default", 1.0, self.limits.slo());
        let (tenants, policies) = if self.tenant.is_empty() {
            (vec![alone], vec![TenantPolicy::default()])
        } else {
            let policy = |t: &Tenant| TenantPolicy { weight: t.weight, ..TenantPolicy::default() };
            (self.tenant.iter().map(|t| t.plan.clone()).collect(), self.tenant.iter().map(policy).collect())
        };
        Common {
            profile,
            requests: self.num_prompts,
            input: self.input_len,
            output: self.output_len,
            tenants,
            policies,
            depth: self.queue_depth,
            warm: self.warm,
        }
    }

    /// What was offered to what, in a line.
    fn describe(&self, common: &Common) -> String {
        let lengths = |l: Lengths| if l.low == l.high { l.low.to_string() } else { format!("{} to {}", l.low, l.high) };
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let tenants: Vec<&str> = common.tenants.iter().map(|t| t.name.as_str()).collect();
        format!(
            "{} Poisson arrivals a run, {} prompt tokens, {} answer tokens, seeds {}, tenants {}, {} prefix cache; engine {}.",
            self.num_prompts,
            lengths(self.input_len),
            lengths(self.output_len),
            seeds.join(", "),
            tenants.join(", "),
            if self.warm { "warm" } else { "cold" },
            common.profile.name,
        )
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok().filter(|s| *s > 0.0 && *s <= 1.0);
    share.ok_or_else(|| "write a share above 0, at most 1, such as 0.95".to_owned())
}
