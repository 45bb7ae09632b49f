//! `elasticserve sim policies`.

mod output;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::sim::policies::{
    Bar, Cache, Compared, Expected, Outcome, Policy, Row, Table, Workload, bars, by_knowledge, front_policies, measure,
    search, setup, tables,
};
use elasticserve_core::sim::reproduce::Published;

use crate::cmd::page::PageArgs;
use crate::cmd::{BadConfig, profile, say};
use crate::lab::parallel;

/// Compare the scheduler's policies on the published workloads, and check what they must reach.
///
/// Every policy meets the same recorded arrivals, with prompts that the engine has not seen: three tenants
/// with mixed lengths at 8/s, five traces; and prompts of 256 tokens with answers of 64 at 16/s, five
/// traces, cold and warm. All that predictions and prices need comes from the engine's profile.
#[derive(clap::Args)]
#[command(after_help = "\
Attainment: answers within every limit, of all that was offered. Misses: work that was admitted and missed
a limit, of all that was offered. At arrival: refusals told at once, of all refusals.

Examples:
  elasticserve sim policies
  elasticserve sim policies --hindsight 3000 --fresh 20 --html policies.html
  elasticserve sim policies --conversation reference/traces/azure_llm_2023_conv.csv
  elasticserve sim policies --json | jq '.bars[] | select(.ok | not)'

Exit codes:
  0   every bar holds
  1   a bar does not, and is marked; or a file could not be written
  2   the command line is wrong; the message names the flag
  64  the profile or the trace is wrong; nothing was simulated")]
pub(crate) struct Args {
    /// The engine: the name of a built-in profile, or a file that ends in .toml
    #[arg(long, value_name = "NAME|FILE.toml", default_value = profile::DEFAULT)]
    profile: String,
    /// Also search for the best that is possible with so many simulations of each tenant trace
    #[arg(long, value_name = "SIMULATIONS", num_args = 0..=1, default_missing_value = "3000", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    hindsight: Option<u32>,
    /// Also compare a price with caps, and what is known of lengths, on so many freshly drawn traces of three tenants
    #[arg(long, value_name = "TRACES", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    fresh: u64,
    /// The seed of the first fresh trace; the others follow
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    fresh_seed: u64,
    /// Also compare all orders in deep overload on Azure's conversation trace
    #[arg(long, value_name = "FILE.csv")]
    conversation: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// All that was simulated.
#[derive(Debug)]
struct Results {
    tables: Vec<Table>,
    hindsight: Option<(Vec<(u64, f64)>, f64)>,
    fronts: Vec<FrontResult>,
    bars: Vec<Bar>,
}

/// A line of policies on a workload.
#[derive(Debug)]
struct FrontResult {
    workload: String,
    name: &'static str,
    points: Vec<(String, Outcome)>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let profile = profile::load(&args.profile)?;
    let bad = |e: &dyn std::fmt::Display| BadConfig(e.to_string());
    let published = Published::built_in().map_err(|e| bad(&e))?;
    let of =
        |workload: Result<Workload, _>| workload.map_err(|e: elasticserve_core::sim::policies::WorkloadError| bad(&e));
    let tenants = of(Workload::tenants(&published))?;
    let seeds = args.fresh_seed..args.fresh_seed.saturating_add(args.fresh);
    let fresh = if args.fresh > 0 { Some(of(Workload::fresh(&published, seeds))?) } else { None };
    let mut others = Vec::new();
    if let Some(path) = &args.conversation {
        let named = |e: &dyn std::fmt::Display| BadConfig(format!("--conversation {}: {e}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| named(&e))?;
        others.push(Workload::conversation(&text, &published, &profile).map_err(|e| named(&e))?);
    }
    let cold = of(Workload::fixed(&published, Cache::Cold))?;
    let warm = of(Workload::fixed(&published, Cache::Warm))?;
    let mut compared = tables(tenants.clone(), cold, warm, others);
    compared.extend(fresh.clone().map(|fresh| (fresh, by_knowledge())));
    let results = simulate(args, &profile, &compared, [Some(tenants), fresh])?;
    if args.page.wanted() {
        args.page.write(&output::document(&results))?;
    }
    say(&if args.json { serde_json::to_string_pretty(&output::json(&results))? } else { output::text(&results) });
    Ok(if results.bars.iter().all(|bar| bar.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn simulate(
    args: &Args,
    profile: &Profile,
    compared: &[Compared],
    fronts: [Option<Workload>; 2],
) -> anyhow::Result<Results> {
    let tables: Vec<Table> =
        compared.iter().map(|(workload, policies)| table(workload, policies, profile)).collect::<Result<_, _>>()?;
    let hindsight = match (args.hindsight, compared.first()) {
        (Some(budget), Some((workload, _))) => Some(best(workload, profile, budget)?),
        _ => None,
    };
    let mut lines = Vec::new();
    // Fronts are for the page and for fresh traces; the tables say enough of the rest.
    let wanted = args.page.wanted() || args.fresh > 0;
    for workload in fronts.into_iter().flatten().filter(|_| wanted) {
        for front in front_policies() {
            let policies: Vec<(Policy, Option<Expected>)> = front.policies.iter().map(|(_, p)| (*p, None)).collect();
            let table = table(&workload, &policies, profile)?;
            let means = table.rows.iter().filter_map(Row::mean);
            let points = front.policies.iter().map(|(name, _)| name.clone()).zip(means).collect();
            lines.push(FrontResult { workload: workload.name.clone(), name: front.name, points });
        }
    }
    let bars = match tables.as_slice() {
        [tenants, cold, warm, ..] => bars(tenants, cold, warm, hindsight.as_ref().map(|(_, mean)| *mean)),
        _ => Vec::new(),
    };
    Ok(Results { tables, hindsight, fronts: lines, bars })
}

fn table(workload: &Workload, policies: &[(Policy, Option<Expected>)], profile: &Profile) -> anyhow::Result<Table> {
    let jobs: Vec<(usize, usize)> =
        (0..policies.len()).flat_map(|p| (0..workload.plans.len()).map(move |s| (p, s))).collect();
    let outcomes = parallel::map(&jobs, parallel::all_cores(), |&(policy, seed)| {
        let plan = &workload.plans[seed].1;
        measure(plan, &setup(workload, plan, profile, &policies[policy].0))
    });
    let mut outcomes = outcomes.into_iter();
    let row = |(policy, expected): &(Policy, Option<Expected>)| {
        let seed = |(seed, _): &(u64, _)| Some((*seed, outcomes.next()?));
        let seeds = workload.plans.iter().filter_map(seed).map(|(seed, outcome)| Ok((seed, outcome?)));
        Ok(Row { policy: *policy, expected: *expected, seeds: seeds.collect::<Result<_, _>>()? })
    };
    let rows: Result<Vec<Row>, elasticserve_core::sched::AuditError> = policies.iter().map(row).collect();
    Ok(Table { workload: workload.name.clone(), rows: rows.context("the scheduler broke its own rules")? })
}

/// The best found for each trace, and the mean.
fn best(workload: &Workload, profile: &Profile, budget: u32) -> anyhow::Result<(Vec<(u64, f64)>, f64)> {
    let found = parallel::map(&workload.plans, parallel::all_cores(), |(seed, plan)| {
        search(workload, plan, profile, *seed, budget).map(|found| (*seed, found.attainment))
    });
    let found: Vec<(u64, f64)> =
        found.into_iter().collect::<Result<_, _>>().context("the scheduler broke its own rules")?;
    let mean = found.iter().map(|(_, a)| a).sum::<f64>() / found.len().max(1) as f64;
    Ok((found, mean))
}
