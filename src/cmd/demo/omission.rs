//! `elasticserve demo coordinated-omission`: one slow endpoint, three load models.

mod picture;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use elasticserve_core::health::Tolerances;
use elasticserve_core::ledger::{Row, Timeouts};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;
use elasticserve_core::slow::experiment::{Case, Counts, Seen, Terms};
use elasticserve_core::slow::{Event, Rules};
use elasticserve_core::time::Span;
use elasticserve_core::work::{ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant};
use elasticserve_load::{Endpoint, LoadConfig, LoadError, Stop};
use elasticserve_mock::slow::SlowServer;
use elasticserve_report::{HTML_FILE, Run, omission_doc, read_run, write_file, write_run};
use serde::Serialize;

use crate::cmd::load::{INTERRUPTED, default_folder, interruptible, offer};
use crate::cmd::{say, say_error};

/// Arguments of `elasticserve demo coordinated-omission`.
#[derive(clap::Args)]
#[command(after_help = "\
The endpoint works on 2 requests at once and takes in 8; one more gets 503. An answer takes 50 ms,
and 410 ms if the work starts in the slow window, from 1 s to 3 s. Users come 40 times a second for
4 s and are content within 250 ms of the time they came. Each load model meets a fresh server:

  closed   2 workers that each wait for their answer before they ask again
  open     every user is sent at the planned time, whatever the server does
  capped   the same plan, but at most 2 requests in flight; the rest is counted as never sent

Each run's folder holds its plan, ledger, report and events.ndjson, the log of both sides.

Examples:
  elasticserve demo coordinated-omission
  elasticserve demo coordinated-omission --json | jq '.cases[] | {name, sent_in_slow_window, within_limit}'
  elasticserve demo coordinated-omission --virtual      on virtual time: at once, the same every time

Exit codes: 0 done; 1 a run failed or cannot be believed; 130 interrupted.")]
pub(crate) struct Args {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Where the run folders go [default: runs/omission-TIME]
    #[arg(long, value_name = "DIR", conflicts_with = "virtual_time")]
    result_dir: Option<PathBuf>,
    /// Run on virtual time, without sockets and files
    #[arg(long = "virtual")]
    virtual_time: bool,
}

const RULES: Rules = Rules::PUBLISHED;
const TERMS: Terms = Terms::PUBLISHED;
/// How late the generator may be: one gap of the plan.
const MAX_SEND_LAG: Span = Span::from_millis(25);
/// More than the closed workers can draw in the window: each takes 50 ms or more.
const SUPPLY: u32 = 10_000;
/// The log of a run's two sides.
const EVENTS_FILE: &str = "events.ndjson";
const TENANT: &str = "users";

/// A case and what became of it.
#[derive(Serialize)]
pub(super) struct Outcome {
    name: &'static str,
    #[serde(flatten)]
    counts: Counts,
    /// Answers within the limit, by second of the window.
    within_limit_per_s: f64,
    #[serde(skip)]
    case: Case,
    #[serde(skip)]
    seen: Vec<Seen>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Output<'a> {
    cases: &'a [Outcome],
    virtual_time: bool,
    valid: bool,
    invalid_because: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.virtual_time {
        let outcomes: Vec<Outcome> = Case::ALL.into_iter().map(virtually).collect();
        return conclude(&outcomes, Vec::new(), None, args.json);
    }
    let folder = args.result_dir.unwrap_or_else(|| default_folder("omission"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio's runtime")?;
    let stop = Stop::new();
    let Some((outcomes, invalid)) = runtime.block_on(interruptible(&stop, measure_all(&folder, &stop)))? else {
        say_error(&format!("interrupted; what was measured is in {}", folder.display()));
        return Ok(ExitCode::from(INTERRUPTED));
    };
    conclude(&outcomes, invalid, Some(&folder), args.json)
}

fn virtually(case: Case) -> Outcome {
    let (seen, _) = elasticserve_core::slow::experiment::run(case, RULES, TERMS);
    outcome(case, seen)
}

fn outcome(case: Case, seen: Vec<Seen>) -> Outcome {
    let counts = Counts::of(case, &RULES, &TERMS, &seen);
    let within_limit_per_s = f64::from(counts.within_limit) / TERMS.window.as_secs_f64();
    Outcome { name: case.name(), counts, within_limit_per_s, case, seen }
}

/// All cases, one after the other, and why one of them cannot be believed; `None` if one was interrupted.
async fn measure_all(folder: &Path, stop: &Stop) -> anyhow::Result<Option<(Vec<Outcome>, Vec<String>)>> {
    let (mut outcomes, mut invalid) = (Vec::new(), Vec::new());
    for case in Case::ALL {
        say_error(&format!("{}: {}", case.name(), describe(case)));
        let Some((outcome, why)) = measure(case, &folder.join(case.name()), stop).await? else { return Ok(None) };
        invalid.extend(why.iter().map(|why| format!("{}: {why}", case.name())));
        outcomes.push(outcome);
    }
    Ok(Some((outcomes, invalid)))
}

fn describe(case: Case) -> String {
    let (rate, clients) = (TERMS.rate, TERMS.clients);
    match case {
        Case::Closed => format!("{clients} workers that each wait for their answer, for {}", TERMS.window),
        Case::Open => format!("{rate} arrivals per second on schedule, for {}", TERMS.window),
        Case::Capped => format!("the same schedule with at most {clients} requests in flight"),
    }
}

/// One case against a fresh server.
async fn measure(case: Case, folder: &Path, stop: &Stop) -> anyhow::Result<Option<(Outcome, Vec<String>)>> {
    let server = Arc::new(SlowServer::bind(RULES).await.context("the slow endpoint")?);
    let mut config = LoadConfig::new(case.name(), format!("http://{}", server.addr()).parse()?, "none");
    config.endpoint = Endpoint::Plain;
    config.streaming = false;
    config.timeouts = Timeouts { drain: TERMS.drain, ..Timeouts::default() };
    config.tolerances = Tolerances::of_lateness(MAX_SEND_LAG);
    config.max_in_flight = (case == Case::Capped).then_some(TERMS.clients);
    let clock = Arc::clone(&server);
    config.on_start = Some(Arc::new(move |origin| clock.starts_at(origin)));
    let offered = offer(&config, &plan(case)?, folder, stop).await;
    drop(config);
    let log = server.shutdown().await;
    let interrupted = match offered {
        Err(LoadError::StoppedEarly) => return Ok(None),
        offered => offered?.end.is_some_and(|end| end.interrupted),
    };
    if interrupted {
        return Ok(None);
    }
    let summary = write_run(folder).context("the report of the run")?;
    let run = read_run(folder)?;
    write_events(&run, &log, &folder.join(EVENTS_FILE))?;
    let mut rows = run.rows;
    rows.sort_by_key(|row| row.index);
    Ok(Some((outcome(case, rows.iter().map(seen).collect()), [summary.invalid_because, summary.problems].concat())))
}

fn plan(case: Case) -> anyhow::Result<Plan> {
    let slo = Slo { e2e: Some(TERMS.limit), ..Slo::default() };
    let count = if case == Case::Closed { SUPPLY } else { TERMS.planned().count() as u32 };
    let plan = Plan::generate(&PlanSpec {
        seed: 0,
        process: ArrivalProcess::Constant { rate: f64::from(TERMS.rate) },
        extent: Extent::Count(count),
        input: Lengths::around(1, 0.0),
        output: Lengths::around(1, 0.0),
        tenants: vec![PlanTenant { name: TENANT.to_owned(), share: 1.0, slo, ..PlanTenant::default() }],
    })?;
    let workers = NonZeroU32::new(TERMS.clients).context("at least one client")?;
    Ok(if case == Case::Closed { plan.as_supply(workers, Some(TERMS.window)) } else { plan })
}

fn seen(row: &Row) -> Seen {
    Seen {
        planned: row.planned,
        sent: row.send_started,
        end: row.end,
        completed: row.state == Terminal::Completed,
        rejected: row.state == Terminal::Rejected,
    }
}

/// A line of the log: what happened to which arrival, as which side saw it.
#[derive(Serialize)]
struct Line<'a> {
    at_ns: u64,
    by: &'static str,
    arrival: u32,
    event: &'a str,
}

/// Writes what both sides saw, in order of time, on the run's one clock.
fn write_events(run: &Run, log: &[Event], file: &Path) -> anyhow::Result<()> {
    let client = |row: &Row| {
        let line = |at: elasticserve_core::time::Tick, event| (at.as_nanos(), "client", row.index, event);
        let sent = row.send_started.map(|at| line(at, "sent"));
        let end = row.end.map(|at| line(at, row.state.name()));
        let unsent = row.send_started.is_none().then(|| line(row.planned, row.state.name()));
        [Some(line(row.planned, "planned")), sent, end, unsent]
    };
    let mut lines: Vec<(u64, &str, u32, &str)> = run.rows.iter().flat_map(client).flatten().collect();
    lines.extend(log.iter().map(|e| (e.at.as_nanos(), "server", e.request, e.what.name())));
    lines.sort_by_key(|(at, ..)| *at);
    let mut text = String::new();
    for (at_ns, by, arrival, event) in lines {
        text += &serde_json::to_string(&Line { at_ns, by, arrival, event })?;
        text.push('\n');
    }
    Ok(write_file(file, &text)?)
}

fn conclude(outcomes: &[Outcome], invalid: Vec<String>, folder: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    if let Some(folder) = folder {
        omission_doc(&picture::page(outcomes)).write_into(folder)?;
    }
    let code = if invalid.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    for why in &invalid {
        say_error(&format!("error: the run is not valid: {why}"));
    }
    if json {
        let output = Output {
            cases: outcomes,
            virtual_time: folder.is_none(),
            valid: invalid.is_empty(),
            invalid_because: invalid,
            folder: folder.map(|f| f.display().to_string()),
        };
        say(&serde_json::to_string_pretty(&output)?);
        return Ok(code);
    }
    say(&picture::text(outcomes));
    if let Some(folder) = folder {
        say(&format!("\nreport: {}\nevents, ledgers: {}", folder.join(HTML_FILE).display(), folder.display()));
    }
    Ok(code)
}
