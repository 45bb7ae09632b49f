//! `elasticserve demo`: an overloaded engine server, first without and then with the gateway.

mod omission;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::ledger::Tolerances;
use elasticserve_core::sim::reproduce::vllm_bench;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{Arrival, Plan, PlanTenant};
use elasticserve_gateway::Gateway;
use elasticserve_gateway::config::{RawBackend, RawConfig};
use elasticserve_load::{LoadConfig, LoadError, Stop};
use elasticserve_mock::{MockConfig, Server};
use elasticserve_report::{HTML_FILE, MARKDOWN_FILE, Summary, text, verdict_sentence, write_comparison, write_run};
use serde::Serialize;

use super::load::{INTERRUPTED, default_folder, fresh_salt, interruptible, offer};
use super::{say, say_error};

/// Arguments of `elasticserve demo`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The server behaves like a published deployment: vLLM with an 8B model on one NVIDIA GB10. It gets
the published overload: 200 requests of 256 prompt tokens and 64 answer tokens at 16 requests/s,
where about 9 can be served. A useful answer starts within 1 s, goes on at 100 ms a token or faster,
and ends within 15 s. The same plan runs twice: straight to the server, then through the gateway
with 32 permits and a queue budget of 750 ms. Everything is real except the model: sockets, HTTP,
streams, time.

Examples:
  elasticserve demo                about a minute
  elasticserve demo --quick        four times faster: arrivals, engine, limits and budget alike
  elasticserve demo --warm         the server has seen the prompts, as when a benchmark is repeated
  elasticserve demo --json | jq '.runs[] | {name, attainment}'

Exit codes: 0 done; 1 a run failed or cannot be believed; 130 interrupted."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    experiment: Option<Experiment>,
    /// Everything four times faster, in under 20 s
    #[arg(long)]
    quick: bool,
    /// Fill the server's prefix cache with all prompts first
    #[arg(long)]
    warm: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Where the run folder goes [default: runs/demo-TIME]
    #[arg(long, value_name = "DIR")]
    result_dir: Option<PathBuf>,
}

/// Another experiment than the overload.
#[derive(clap::Subcommand)]
enum Experiment {
    /// Show what closed, open and capped load say about the same slow server.
    CoordinatedOmission(omission::Args),
}

/// The published deployment.
const PROFILE: &str = "gb10-qwen3-8b-fp8";
/// The published arrivals: what `vllm bench serve` draws for this seed and count.
const SEED: u64 = 7;
const REQUESTS: u32 = 200;
const SOURCE: &str = "vllm bench serve, seed 7, 200 requests";
const RATE: f64 = 16.0;
const INPUT: u32 = 256;
const OUTPUT: u32 = 64;
const WARMUPS: u32 = 10;
const PERMITS: u32 = 32;
const QUEUE_BUDGET: Span = Span::from_millis(750);
/// Tokens that a request and its answer may have together, as in the published deployment.
const MAX_MODEL_LEN: u32 = 8192;
/// How late the generator may be: 5 % of the limit on TTFT.
const MAX_SEND_LAG: Span = Span::from_millis(50);
const QUICK: f64 = 4.0;
/// Between two requests that fill the prefix cache.
const PRIMING_GAP: Span = Span::from_millis(40);

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { experiment, quick, warm, json, result_dir } = args;
    if let Some(Experiment::CoordinatedOmission(args)) = experiment {
        return omission::run(args);
    }
    let folder = result_dir.unwrap_or_else(|| default_folder("demo"));
    let demo = Demo { speed: if quick { QUICK } else { 1.0 }, warm, folder };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio's runtime")?;
    let stop = Stop::new();
    let Some([direct, gateway]) = runtime.block_on(interruptible(&stop, demo.run(&stop)))? else {
        say_error(&format!("interrupted; what was measured is in {}", demo.folder.display()));
        return Ok(ExitCode::from(INTERRUPTED));
    };
    demo.conclude(direct, gateway, json)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output<'a> {
    runs: [&'a Summary; 2],
    finding: &'a str,
    folder: String,
}

struct Demo {
    speed: f64,
    warm: bool,
    folder: PathBuf,
}

impl Demo {
    /// Both runs; `None` if one was interrupted.
    async fn run(&self, stop: &Stop) -> anyhow::Result<Option<[Summary; 2]>> {
        let plan = published_plan()?.sped_up(self.speed);
        let mut summaries = Vec::new();
        for name in ["direct", "gateway"] {
            // It may have been pressed after the last send, when that run could still end as planned.
            if stop.is_pressed() {
                return Ok(None);
            }
            say_error(&format!("{name}: {}", self.describe(name)));
            match self.measure(name, &plan, stop).await? {
                Some(summary) => summaries.push(summary),
                None => return Ok(None),
            }
        }
        Ok(<[Summary; 2]>::try_from(summaries).ok())
    }

    fn describe(&self, name: &str) -> String {
        let scale = if self.speed == 1.0 { String::new() } else { format!(", everything {} times faster", self.speed) };
        match name {
            "direct" => format!("{RATE} requests/s straight to the server{scale}"),
            _ => format!("the same plan through the gateway, {PERMITS} permits, queue budget {QUEUE_BUDGET}{scale}"),
        }
    }

    /// One run against a fresh server, through a gateway or not.
    async fn measure(&self, name: &str, plan: &Plan, stop: &Stop) -> anyhow::Result<Option<Summary>> {
        let profile = Profile::built_in(PROFILE)?;
        let config = MockConfig { profile, speed: self.speed, model: None, max_model_len: MAX_MODEL_LEN };
        let server = Server::bind(config, any_port()).await.context("the engine server")?;
        let gateway = match name {
            "direct" => None,
            _ => Some(self.gateway(server.addr()).await?),
        };
        let target = gateway.as_ref().map_or(server.addr(), Gateway::data_addr);
        let mut load = LoadConfig::new(name, format!("http://{target}").parse()?, "");
        load.ignore_eos = true;
        load.warmups = WARMUPS;
        load.time_scale = self.speed;
        load.tolerances = Tolerances::of_lateness(MAX_SEND_LAG.scaled_down(self.speed));
        // Without a salt both runs have the same prompts; with one of its own each starts cold.
        load.salt = (!self.warm).then(fresh_salt);
        let folder = self.folder.join(name);
        if self.warm {
            // Inside the run's own folder, so that it is not taken for a run to compare.
            prime(&load, plan, server.addr(), &folder.join("priming"), stop).await?;
        }
        let offered = offer(&load, plan, &folder, stop).await;
        if let Some(gateway) = gateway {
            gateway.stop().await;
        }
        server.shutdown().await;
        let interrupted = match offered {
            Err(LoadError::StoppedEarly) => return Ok(None),
            offered => offered?.end.is_some_and(|end| end.interrupted),
        };
        let summary = write_run(&folder).context("the report of the run")?;
        Ok((!interrupted).then_some(summary))
    }

    async fn gateway(&self, backend: SocketAddr) -> anyhow::Result<Gateway> {
        let mut raw = RawConfig {
            listen: Some(any_port().to_string()),
            admin: Some(any_port().to_string()),
            backends: Some(vec![RawBackend {
                url: format!("http://{backend}"),
                permits: Some(PERMITS),
                ..RawBackend::default()
            }]),
            ..RawConfig::default()
        };
        raw.queue.budget = Some(format!("{}ns", QUEUE_BUDGET.scaled_down(self.speed).as_nanos()));
        Ok(Gateway::start(raw.check()?).await?)
    }

    fn conclude(&self, direct: Summary, gateway: Summary, json: bool) -> anyhow::Result<ExitCode> {
        let folders = ["direct", "gateway"].map(|name| self.folder.join(name));
        let [page, twin] = [HTML_FILE, MARKDOWN_FILE].map(|name| self.folder.join(name));
        write_comparison(Some(&page), Some(&twin), "An overloaded LLM server, without and with the gateway", &folders)?;
        let meaning = verdict_sentence(&direct, &gateway);
        let sound = [&direct, &gateway].iter().all(|s| s.valid && s.reconciled);
        if json {
            let folder = self.folder.display().to_string();
            say(&serde_json::to_string_pretty(&Output { runs: [&direct, &gateway], finding: &meaning, folder })?);
        } else {
            say(&text(&[direct, gateway]));
            say(&format!("\nreport:  {}\nledgers: {}", page.display(), self.folder.display()));
        }
        Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The published overload.
fn published_plan() -> anyhow::Result<Plan> {
    let times = vllm_bench(SEED, REQUESTS, RATE).context("the recorded arrivals")?;
    let arrival = |(at, prompt)| Arrival { index: 0, at, tenant: 0, input: INPUT, output: OUTPUT, prompt };
    let arrivals: Vec<Arrival> = times.into_iter().zip(0..).map(arrival).collect();
    let slo =
        Slo { ttft: Some(Span::from_millis(1000)), tpot: Some(Span::from_millis(100)), e2e: Some(Span::from_secs(15)) };
    let tenants = vec![PlanTenant::new("default", 1.0, slo)];
    let window = Span::from_secs_f64(arrivals.len() as f64 / RATE);
    Ok(Plan::recorded(SOURCE, RATE, window, tenants, arrivals)?)
}

/// Sends every prompt once, for one token, so that the server has seen it.
async fn prime(load: &LoadConfig, plan: &Plan, server: SocketAddr, folder: &Path, stop: &Stop) -> anyhow::Result<()> {
    say_error("filling the prefix cache");
    let once = plan.arrivals().iter().map(|a| Arrival { at: PRIMING_GAP * u64::from(a.index), output: 1, ..*a });
    let window = PRIMING_GAP * plan.arrivals().len() as u64;
    let rate = 1.0 / PRIMING_GAP.as_secs_f64();
    let tenants = vec![PlanTenant::new("default", 1.0, Slo::default())];
    let priming = Plan::recorded(SOURCE, rate, window, tenants, once.collect())?;
    let mut load = load.clone();
    load.name = "priming".into();
    load.url = format!("http://{server}").parse()?;
    load.warmups = 0;
    match offer(&load, &priming, folder, stop).await {
        // The run that follows stops for the same reason.
        Ok(_) | Err(LoadError::StoppedEarly) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
