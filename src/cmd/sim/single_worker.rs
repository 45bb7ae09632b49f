//! `elasticserve sim single-worker`.

use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::sched::Order;
use elasticserve_core::sim::{SingleWorker, single_worker};
use serde::Serialize;

use crate::cmd::say;

/// Replay one overload in front of an engine that does not batch, under both orders.
#[derive(clap::Args)]
#[command(after_help = "\
An ordering check, not a performance claim: 300 requests at 4 a second, of three tenants, in front of the
built-in profile `single-worker`. The published figures are of the same kind of trace, not of this one: its
answer lengths were not published, so what can be compared is which way the order moves each figure.

Exit codes: 0 done; 1 a defect of this program.")]
pub(crate) struct Args {
    /// The seed of the trace
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const REFERENCE: &str = include_str!("../../../reference/spark-gb10.toml");

/// The figures of one order.
#[derive(Serialize)]
struct Figures {
    policy: &'static str,
    source: &'static str,
    goodput_share: f64,
    jain: Option<f64>,
    min_tenant_attainment: f64,
    ttft_p95_ms: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for (policy, order) in [("fcfs", Order::Fcfs), ("wfq", Order::Wfq)] {
        all.push(published(policy)?);
        let SingleWorker { goodput_share, jain, lowest_attainment, ttft_p95_ms } = single_worker(order, args.seed)?;
        let min_tenant_attainment = lowest_attainment;
        all.push(Figures { policy, source: "simulated", goodput_share, jain, min_tenant_attainment, ttft_p95_ms });
    }
    if args.json {
        say(&serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!(
        "{:<7}{:<11}{:>14}{:>7}{:>15}{:>14}",
        "order", "source", "goodput share", "Jain", "lowest tenant", "TTFT p95, ms"
    ));
    for f in &all {
        let jain = f.jain.map_or_else(|| "-".to_owned(), |j| format!("{j:.3}"));
        let (share, lowest, ttft) = (f.goodput_share, f.min_tenant_attainment, f.ttft_p95_ms);
        say(&format!("{:<7}{:<11}{share:>14.3}{jain:>7}{lowest:>15.3}{ttft:>14.0}", f.policy, f.source));
    }
    Ok(ExitCode::SUCCESS)
}

/// The published figures of an order.
fn published(policy: &'static str) -> anyhow::Result<Figures> {
    let reference: toml::Table = REFERENCE.parse()?;
    let rows = reference.get("single_worker").and_then(toml::Value::as_array).context("the published rows")?;
    let named = |row: &&toml::Value| row.get("policy").and_then(toml::Value::as_str) == Some(policy);
    let row = rows.iter().find(named).context("the published row")?;
    let number = |key: &str| row.get(key).and_then(toml::Value::as_float).context("a published figure");
    Ok(Figures {
        policy,
        source: "published",
        goodput_share: number("goodput_share")?,
        jain: Some(number("jain")?),
        min_tenant_attainment: number("min_tenant_attainment")?,
        ttft_p95_ms: number("ttft_p95")?,
    })
}
