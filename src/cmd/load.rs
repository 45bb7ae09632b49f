//! `elasticserve load`.

pub(crate) mod args;
mod conflicts;
mod flags;
mod given;
pub(crate) mod plan;
mod probes;
pub(crate) mod progress;
pub(crate) mod scenario;
pub(crate) mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use elasticserve_core::ledger::{LEDGER_FILE, MANIFEST_FILE, Manifest, PLAN_FILE, Timeouts, Tolerances};
use elasticserve_core::rng::mix;
use elasticserve_core::time::Span;
use elasticserve_core::work::Plan;
use elasticserve_load::{BaseUrl, LoadConfig, LoadError, Progress, Secret, Stop, Trust};
use elasticserve_report::{HTML_FILE, MARKDOWN_FILE, SUMMARY_FILE};
use tokio::signal::unix::{SignalKind, signal};

use self::scenario::{RunPart, TargetPart};
use super::{BadConfig, say, say_error, start_logging};
pub(crate) use args::Args;
pub(crate) use given::Given;
pub(crate) use probes::{ProbeArgs, Probed};

/// The file of `--save-result` in the folder of the run.
const VLLM_FILE: &str = "vllm-bench.json";
/// As shells report a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

pub(crate) fn run(mut args: Args, given: &Given) -> anyhow::Result<ExitCode> {
    start_logging();
    let (plan, settings) = plan::with_settings(&args.work)?;
    settings.fill(&mut args, given);
    if let Some(file) = &args.plan_only {
        return plan::write(&plan, file.as_deref());
    }
    let folder = args.result_dir.clone().unwrap_or_else(|| default_folder(&args.name));
    let as_json = args.json;
    let saved = saved_result(&args, &folder)?;
    // The command line demands a URL unless it only asks for the plan.
    let url = args.url.clone().ok_or_else(|| BadConfig("--url is missing".to_owned()))?;
    let config = config(&args, url, &plan)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio's runtime")?;
    let stop = Stop::new();
    match runtime.block_on(interruptible(&stop, offer(&config, &plan, &folder, &stop))) {
        Ok(manifest) => {
            if let Some((file, detailed)) = saved {
                elasticserve_report::write_vllm(&folder, &file, detailed).context("--save-result")?;
            }
            conclude(&manifest, &folder, as_json)
        }
        Err(LoadError::StoppedEarly) => Ok(ExitCode::from(INTERRUPTED)),
        Err(error) => Err(error.into()),
    }
}

/// What the generator is told by `[target]` and `[run]` of a file, all else at the defaults of `load`: without a salt, and
/// with a URL that stands for none.
///
/// # Errors
/// [`BadConfig`] names the key and what would be right.
pub(crate) fn config_of(
    target: TargetPart,
    run: RunPart,
    prompts: Option<String>,
    plan: &Plan,
) -> anyhow::Result<LoadConfig> {
    #[derive(clap::Parser)]
    struct Defaults {
        #[command(flatten)]
        args: Args,
    }
    let flags = ["load", "--url", "http://127.0.0.1:1", "--request-rate", "1", "--num-prompts", "1", "--no-salt"];
    let Defaults { mut args } = clap::Parser::try_parse_from(flags)?;
    target.settings(run, prompts).map_err(BadConfig)?.fill(&mut args, &Given::default());
    let url = args.url.clone().ok_or_else(|| BadConfig("a URL is missing".to_owned()))?;
    config(&args, url, plan)
}

fn config(args: &Args, url: BaseUrl, plan: &Plan) -> anyhow::Result<LoadConfig> {
    let streams = args.streams();
    if !streams && plan.header().tenants.iter().any(|t| t.slo.tpot.is_some()) {
        let problem = "--no-streaming cannot be used with a tpot limit: when the tokens came is not known";
        return Err(BadConfig(problem.to_owned()).into());
    }
    let mut config = LoadConfig::new(&args.name, url, args.model.as_deref().unwrap_or_default());
    config.endpoint = args.endpoint.or(args.endpoint_type).unwrap_or(config.endpoint);
    config.streaming = streams;
    config.api_key = std::env::var("OPENAI_API_KEY").ok().filter(|key| !key.is_empty()).map(Secret::new);
    config.trust = trust(args.cacert.as_deref(), args.insecure)?;
    config.prompt = args.prompt.unwrap_or(config.prompt);
    config.tenant_keys = tenant_keys(plan)?;
    config.validators = args.validate.clone();
    config.headers = args.header.clone();
    config.extra_body = args.extra_body.clone().unwrap_or_default();
    config.ignore_eos = args.ignore_eos;
    config.slo_headers = args.send_slo;
    config.warmups = args.num_warmups;
    config.timeouts = Timeouts {
        connect: args.connect_timeout,
        ttft: args.ttft_timeout,
        idle: args.idle_timeout,
        total: args.timeout,
        drain: args.drain,
    };
    config.tolerances = Tolerances { cpu: args.max_client_cpu, ..Tolerances::of_lateness(args.max_send_lag) };
    config.max_in_flight = args.max_concurrency;
    config.retries = args.retries;
    config.ceiling = args.measure_ceiling;
    config.metadata = args.metadata.iter().cloned().collect();
    config.ready_timeout = args.ready_check_timeout_sec.filter(|t| t.as_nanos() > 0);
    if !args.no_salt {
        let salt = fresh_salt();
        // With it the prompts of this run can be made again.
        config.metadata.insert("salt".to_owned(), salt.clone());
        config.salt = Some(salt);
    }
    Ok(config)
}

/// Where to write the figures in the schema of vLLM's benchmark, if they are wanted, and whether with lists.
fn saved_result(args: &Args, folder: &Path) -> Result<Option<(PathBuf, bool)>, BadConfig> {
    if !args.save_result {
        return Ok(None);
    }
    let name = args.result_filename.clone().unwrap_or_else(|| PathBuf::from(VLLM_FILE));
    let ours = [MANIFEST_FILE, LEDGER_FILE, PLAN_FILE, SUMMARY_FILE, HTML_FILE, MARKDOWN_FILE];
    if ours.iter().any(|file| name == Path::new(file)) || name.file_name().is_none() {
        let problem = format!("--result-filename {}: this file is the run's own; take another", name.display());
        return Err(BadConfig(problem));
    }
    Ok(Some((folder.join(name), args.save_detailed)))
}

pub(crate) fn trust(cacert: Option<&Path>, insecure: bool) -> Result<Trust, BadConfig> {
    match cacert {
        _ if insecure => Ok(Trust::Anyone),
        None => Ok(Trust::Public),
        Some(file) => {
            let pem = std::fs::read(file).map_err(|e| BadConfig(format!("--cacert {}: {e}", file.display())))?;
            Ok(Trust::Only(pem))
        }
    }
}

/// The keys of tenants that have their own, from the environment.
fn tenant_keys(plan: &Plan) -> Result<BTreeMap<String, Secret>, BadConfig> {
    let named = plan.header().tenants.iter().filter_map(|tenant| Some((&tenant.name, tenant.key_env.as_ref()?)));
    let read = |(tenant, env): (&String, &String)| {
        let key = std::env::var(env).ok().filter(|key| !key.is_empty());
        let missing = || BadConfig(format!("the key of tenant '{tenant}': set {env} in the environment"));
        Ok((env.clone(), Secret::new(key.ok_or_else(missing)?)))
    };
    named.map(read).collect()
}

pub(crate) fn fresh_salt() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:016x}", mix(now.as_nanos() as u64, u64::from(std::process::id())))
}

pub(crate) fn default_folder(name: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name: String = name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
    Path::new("runs").join(format!("{name}-{}", now.as_secs()))
}

/// Offers a plan and shows the progress.
pub(crate) async fn offer(config: &LoadConfig, plan: &Plan, folder: &Path, stop: &Stop) -> Result<Manifest, LoadError> {
    let progress = Arc::new(Progress::new());
    let run = elasticserve_load::run(config, plan, folder, Arc::clone(&progress), stop.clone());
    let (mut run, mut shown) = (pin!(run), pin!(progress::show(&progress, plan.header().window.unwrap_or(Span::ZERO))));
    tokio::select! {
        ended = &mut run => ended,
        () = &mut shown => run.await,
    }
}

/// Does the work to its end, and presses the handle at each Ctrl-C and SIGTERM meanwhile.
pub(crate) async fn interruptible<T>(stop: &Stop, work: impl Future<Output = T>) -> T {
    let (mut work, mut pressing) = (pin!(work), pin!(press_at_signals(stop)));
    tokio::select! {
        ended = &mut work => ended,
        // The system does not tell of signals.
        Err(_) = &mut pressing => work.await,
    }
}

async fn press_at_signals(stop: &Stop) -> std::io::Result<std::convert::Infallible> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if !stop.is_pressed() {
            say_error("stopping: nothing more is sent, what is open may end (Ctrl-C again cuts it)");
        }
        stop.press();
    }
}

/// Recomputes the figures from the ledger, prints them, and says with the exit code what they are worth.
pub(crate) fn conclude(manifest: &Manifest, folder: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let summary = elasticserve_report::write_run(folder).context("the report of the run")?;
    if as_json {
        say(&serde_json::to_string_pretty(&summary)?);
    } else {
        say(&elasticserve_report::text(std::slice::from_ref(&summary)));
        say(&format!("ledger, manifest, summary and report: {}", folder.display()));
    }
    if manifest.end.is_some_and(|end| end.interrupted) {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if !summary.valid || !summary.reconciled {
        let why = summary.invalid_because.iter().chain(&summary.problems).cloned().collect::<Vec<_>>().join("; ");
        say_error(&format!("error: the run is not valid: {why}"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
