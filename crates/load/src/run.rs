//! A run from its first question to its last row.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use elasticserve_core::ledger::{Manifest, Row, RunEnd, Target};
use elasticserve_core::rng::mix;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{Arrival, Plan};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config::LoadConfig;
use crate::dial::Dialer;
use crate::exchange::Exchanges;
use crate::health::{cpu_time, rfc3339};
use crate::pacer::Pacer;
use crate::probe::Probe;
use crate::progress::{Phase, Progress};
use crate::record::{Folder, FolderError, Ledger, Tally};
use crate::request::{Prepared, Requests, identity_headers};
use crate::stop::Stop;

/// From the last preparation to the origin of the run's clock, so that the first arrival is not late.
const LEAD: Duration = Duration::from_millis(50);
/// Sets the prompts of warm-ups apart from those of a plan.
const WARMUP: u64 = 0x7761_726d_7570_2d31;

/// Why there is no complete run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The run folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The host has no address.
    #[error("cannot find the host of {url}: {error}")]
    Host {
        /// The URL.
        url: String,
        /// What happened.
        error: io::Error,
    },
    /// The server did not become ready.
    #[error("{url} was not ready within {waited}: {last}")]
    NotReady {
        /// The URL.
        url: String,
        /// How long it was given.
        waited: Span,
        /// What came last.
        last: String,
    },
    /// No model was named and the server lists none.
    #[error("no model to ask for: {0} does not answer, or lists none. Is it up? Else name one with --model")]
    NoModel(String),
    /// A request cannot be made from the configuration.
    #[error("{0}")]
    Request(String),
    /// The system gives no thread, or one has failed.
    #[error("the pacer's thread failed: {0}")]
    Pacer(String),
    /// It was stopped before the first arrival.
    #[error("stopped before the first request was sent")]
    StoppedEarly,
    /// The ledger does not hold exactly one row for each arrival: a defect of this program.
    #[error("the ledger does not reconcile: {planned} planned, {sent} sent, {unsent} unsent, {surplus} surplus rows")]
    Unreconciled {
        /// Arrivals in the plan.
        planned: u32,
        /// Rows of what was sent.
        sent: u32,
        /// Rows of what was not.
        unsent: u32,
        /// Rows for an arrival that had one.
        surplus: u32,
    },
}

/// Offers the plan to the server and writes the run folder.
///
/// Interrupted through `stop`, the run still ends with a row for each arrival and with its manifest
/// complete; dropping the future cuts everything and leaves the folder incomplete.
///
/// # Errors
/// [`LoadError`]; the folder then holds what was measured so far.
pub async fn run(
    config: &LoadConfig,
    plan: &Plan,
    folder: &Path,
    progress: Arc<Progress>,
    stop: Stop,
) -> Result<Manifest, LoadError> {
    let folder = Folder::create(folder)?;
    progress.plan(plan.header().count);
    progress.enter(Phase::WaitingForServer);
    let prepare = Preparation { config, plan, folder: &folder, progress: &progress };
    let ready = tokio::select! {
        ready = prepare.run() => ready?,
        () = stop.pressed(1) => return Err(LoadError::StoppedEarly),
    };
    let manifest = offer(ready, plan, &folder, Arc::clone(&progress), &stop).await?;
    progress.enter(Phase::Ended);
    Ok(manifest)
}

/// All that is done before the first arrival.
struct Preparation<'a> {
    config: &'a LoadConfig,
    plan: &'a Plan,
    folder: &'a Folder,
    progress: &'a Progress,
}

struct Ready {
    exchanges: Exchanges,
    requests: Arc<Requests>,
    manifest: Manifest,
}

impl Preparation<'_> {
    async fn run(&self) -> Result<Ready, LoadError> {
        let config = self.config;
        let addresses = resolve(config).await?;
        let target = self.look(&addresses).await?;
        let requests =
            Requests::new(config, &target.model, self.plan, &tag()).map_err(|e| LoadError::Request(e.to_string()))?;
        let requests = Arc::new(requests);
        self.folder.write_plan(self.plan)?;
        if config.warmups > 0 {
            self.progress.enter(Phase::WarmingUp);
            self.warm_up(&addresses, &requests).await;
        }
        let mut manifest = self.manifest(target);
        manifest.started = Some(rfc3339(SystemTime::now() + LEAD));
        self.folder.write_manifest(&manifest)?;
        let clock = Clock::starting_in(LEAD);
        Ok(Ready { exchanges: exchanges(config, addresses, clock), requests, manifest })
    }

    /// Waits for the server and asks what it is.
    async fn look(&self, addresses: &[SocketAddr]) -> Result<Target, LoadError> {
        let config = self.config;
        let dialer = Dialer::new(addresses.to_vec(), Clock::starting_in(Duration::ZERO));
        let headers = identity_headers(config).map_err(|e| LoadError::Request(e.to_string()))?;
        let connect = config.timeouts.connect.to_std();
        let probe = Probe { dialer: &dialer, url: &config.url, headers, connect };
        let url = config.url.to_string();
        if let Some(waited) = config.ready_timeout {
            let ready = probe.wait_ready(waited.to_std()).await;
            ready.map_err(|last| LoadError::NotReady { url: url.clone(), waited, last })?;
        }
        let (models, version) = tokio::join!(probe.models(), probe.version());
        let model = match (config.model.is_empty(), models.first()) {
            (false, _) => config.model.clone(),
            (true, Some(first)) => first.clone(),
            (true, None) => return Err(LoadError::NoModel(url)),
        };
        let endpoint = config.endpoint.path().to_owned();
        Ok(Target { url, endpoint, model, streaming: config.streaming, version, models })
    }

    /// Sends the warm-ups at once and waits for them. How they end is only logged: the run itself will
    /// show what is wrong with the server.
    async fn warm_up(&self, addresses: &[SocketAddr], requests: &Arc<Requests>) {
        let shared = Arc::new(exchanges(self.config, addresses.to_vec(), Clock::starting_in(Duration::ZERO)));
        let mut open = JoinSet::new();
        for index in 0..self.config.warmups {
            let Some(&like) = self.plan.arrivals().get(index as usize % self.plan.arrivals().len().max(1)) else {
                return;
            };
            let prompt = mix(WARMUP ^ self.plan.header().seed, u64::from(index));
            let arrival = Arrival { index, prompt, at: Span::ZERO, ..like };
            let (shared, requests) = (Arc::clone(&shared), Arc::clone(requests));
            open.spawn(async move { shared.run(&requests.prepare_warmup(arrival), "").await });
        }
        while let Some(ended) = open.join_next().await {
            if let Ok(row) = ended {
                tracing::debug!(index = row.index, state = %row.state, error = row.error, "warm-up ended");
            }
        }
    }

    fn manifest(&self, target: Target) -> Manifest {
        let config = self.config;
        // Two runs that differ in what was asked of the server are not the same measurement.
        let mut metadata = config.metadata.clone();
        metadata.insert("ignore_eos".to_owned(), config.ignore_eos.to_string());
        if !config.extra_body.is_empty() {
            metadata.insert("extra_body".to_owned(), Value::Object(config.extra_body.clone()).to_string());
        }
        Manifest {
            format: 1,
            name: config.name.clone(),
            simulated: false,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            started: None,
            plan_hash: self.plan.hash(),
            plan: self.plan.header().clone(),
            time_scale: config.time_scale,
            target,
            warmups: config.warmups,
            prompts_salted: config.salt.is_some(),
            timeouts: config.timeouts,
            tolerances: config.tolerances,
            max_in_flight: config.max_in_flight,
            retries: config.retries,
            ceiling: None,
            metadata,
            end: None,
        }
    }
}

async fn resolve(config: &LoadConfig) -> Result<Vec<SocketAddr>, LoadError> {
    // Once for the whole run, so that no look-up is part of a latency.
    let found = tokio::net::lookup_host((config.url.host(), config.url.port())).await;
    found.map(Iterator::collect).map_err(|error| LoadError::Host { url: config.url.to_string(), error })
}

fn exchanges(config: &LoadConfig, addresses: Vec<SocketAddr>, clock: Clock) -> Exchanges {
    Exchanges {
        clock,
        dialer: Dialer::new(addresses, clock),
        timeouts: config.timeouts,
        streaming: config.streaming,
        cut: CancellationToken::new(),
    }
}

/// Tells the request ids of this run from those of others.
fn tag() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mixed = mix(Span::from_std(now).as_nanos(), u64::from(std::process::id()));
    format!("load-{:08x}", mixed >> 32)
}

/// Sends the plan and writes a row for each arrival.
async fn offer(
    ready: Ready,
    plan: &Plan,
    folder: &Folder,
    progress: Arc<Progress>,
    stop: &Stop,
) -> Result<Manifest, LoadError> {
    let Ready { exchanges, requests, mut manifest } = ready;
    let cpu_before = cpu_time();
    let plan = Arc::new(plan.clone());
    let shared = Arc::new(exchanges);
    let _cut_if_dropped = shared.cut.clone().drop_guard();
    let (rows, mut ledger) = folder.start_ledger(plan.header().count)?;
    progress.enter(Phase::Running);
    let open = TaskTracker::new();
    let send = sender(&shared, &plan, &progress, &open, rows.clone());
    let mut pacer =
        Pacer::start(Arc::clone(&plan), requests, shared.clock, send).map_err(|e| LoadError::Pacer(e.to_string()))?;
    let sent = tokio::select! {
        sent = pacer.done() => sent,
        () = stop.pressed(1) => {
            pacer.stop();
            pacer.done().await
        }
        failed = ledger.done() => return Err(ledger_ended(&plan, failed)),
    };
    let sent = sent.ok_or_else(|| LoadError::Pacer("it ended before its time".to_owned()))?;
    progress.enter(Phase::Draining);
    let cut = drain(&shared, &plan, sent, &open, &mut ledger, stop).await?;
    write_unsent(&plan, sent, rows).await;
    let tally = ledger.done().await?;
    let planned = plan.header().count;
    if tally.surplus > 0 || tally.sent + tally.unsent != planned {
        return Err(unreconciled(&plan, &tally));
    }
    manifest.end = Some(RunEnd {
        at: shared.clock.now(),
        interrupted: cut || sent < planned,
        peak_in_flight: progress.peak_in_flight(),
        connections: shared.dialer.opened(),
        cpu: cpu_time().zip(cpu_before).map(|(after, before)| after.saturating_sub(before)),
        drawn: None,
        health: None,
    });
    folder.write_manifest(&manifest)?;
    Ok(manifest)
}

/// What the pacer does with an arrival whose time has come: a task of its own, up to its row.
fn sender(
    shared: &Arc<Exchanges>,
    plan: &Arc<Plan>,
    progress: &Arc<Progress>,
    open: &TaskTracker,
    rows: mpsc::Sender<Row>,
) -> impl FnMut(Prepared) + Send + use<> {
    let (shared, plan, progress, open) = (Arc::clone(shared), Arc::clone(plan), Arc::clone(progress), open.clone());
    let runtime = Handle::current();
    move |prepared| {
        progress.sent();
        let (shared, plan, progress, rows) =
            (Arc::clone(&shared), Arc::clone(&plan), Arc::clone(&progress), rows.clone());
        let task = async move {
            let tenant = plan.tenant(&prepared.arrival);
            let row = shared.run(&prepared, &tenant.name).await;
            progress.ended(&row, &tenant.slo);
            // It fails only when the ledger has, which ends the run.
            let _ = rows.send(row).await;
        };
        open.spawn_on(task, &runtime);
    }
}

/// Waits for what is open, and cuts it when the drain ends. True if the user cut it.
async fn drain(
    shared: &Exchanges,
    plan: &Plan,
    sent: u32,
    open: &TaskTracker,
    ledger: &mut Ledger,
    stop: &Stop,
) -> Result<bool, LoadError> {
    let all = sent == plan.header().count;
    let last = plan.arrivals().last().map_or(Span::ZERO, |a| a.at);
    let from = if all { Tick::ZERO + last.max(plan.header().window.unwrap_or(Span::ZERO)) } else { shared.clock.now() };
    let deadline = shared.clock.instant(from + shared.timeouts.drain);
    open.close();
    let by_user = tokio::select! {
        () = open.wait() => return Ok(false),
        () = tokio::time::sleep_until(deadline.into()) => false,
        () = stop.pressed(2) => true,
        failed = ledger.done() => return Err(ledger_ended(plan, failed)),
    };
    shared.cut.cancel();
    open.wait().await;
    Ok(by_user)
}

/// Writes the rows of the arrivals from `sent` on, none of which was sent.
async fn write_unsent(plan: &Plan, sent: u32, rows: mpsc::Sender<Row>) {
    for arrival in plan.arrivals().iter().skip(sent as usize) {
        let tenant = &plan.tenant(arrival).name;
        let row = Row::new(arrival.index, tenant, Tick::ZERO + arrival.at, arrival.input, arrival.output);
        // A new row is an unsent one. If it cannot be written, the ledger says why.
        if rows.send(row).await.is_err() {
            return;
        }
    }
}

/// The ledger ended while rows were still to come.
fn ledger_ended(plan: &Plan, result: Result<Tally, FolderError>) -> LoadError {
    result.map_or_else(LoadError::from, |tally| unreconciled(plan, &tally))
}

const fn unreconciled(plan: &Plan, tally: &Tally) -> LoadError {
    let &Tally { sent, unsent, surplus } = tally;
    LoadError::Unreconciled { planned: plan.header().count, sent, unsent, surplus }
}
