//! A run from its first question to its last row.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use elasticserve_core::ledger::{Manifest, Target, Timeouts};
use elasticserve_core::rng::mix;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{Arrival, Plan};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ceiling::measure;
use crate::clock::Clock;
use crate::config::{Endpoint, LoadConfig, OnStart, Trust};
use crate::dial::{Dialer, Route};
use crate::exchange::Exchanges;
use crate::offer::offer;
use crate::probe::Probe;
use crate::progress::{Phase, Progress};
use crate::record::{Folder, FolderError};
use crate::request::{Requests, identity_headers};
use crate::stop::Stop;
use crate::tls::Tls;
use crate::validate::Validators;

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
    #[error("a thread of the generator failed: {0}")]
    Thread(String),
    /// It was stopped before the first arrival.
    #[error("stopped before the first request was sent")]
    StoppedEarly,
    /// The ledger does not hold exactly one row for each arrival: a defect of this program.
    #[error("the ledger does not reconcile: {due} came due, {sent} sent, {unsent} unsent, {surplus} surplus rows")]
    Unreconciled {
        /// Arrivals that came due.
        due: u32,
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
/// [`LoadError`]; the folder then holds what was measured so far. A run that fails before its first arrival
/// leaves no folder behind.
pub async fn run(
    config: &LoadConfig,
    plan: &Plan,
    folder: &Path,
    progress: Arc<Progress>,
    stop: Stop,
) -> Result<Manifest, LoadError> {
    let folder = Folder::create(folder)?;
    let result = prepare_and_offer(config, plan, &folder, &progress, &stop).await;
    if result.is_err() {
        folder.abandon();
    }
    progress.enter(Phase::Ended);
    result
}

async fn prepare_and_offer(
    config: &LoadConfig,
    plan: &Plan,
    folder: &Folder,
    progress: &Arc<Progress>,
    stop: &Stop,
) -> Result<Manifest, LoadError> {
    if config.max_in_flight.is_some() && !plan.header().model.is_open() {
        let model = plan.header().model;
        return Err(LoadError::Request(format!(
            "a cap on requests in flight belongs to an open plan; in a {model} one the users are the cap"
        )));
    }
    progress.plan(plan.header().count);
    progress.enter(Phase::WaitingForServer);
    let prepare = Preparation { config, plan, folder, progress };
    let ready = tokio::select! {
        ready = prepare.run() => ready?,
        () = stop.pressed(1) => return Err(LoadError::StoppedEarly),
    };
    offer(ready, Arc::new(plan.clone()), folder, Arc::clone(progress), stop).await
}

/// All that is done before the first arrival.
struct Preparation<'a> {
    config: &'a LoadConfig,
    plan: &'a Plan,
    folder: &'a Folder,
    progress: &'a Progress,
}

/// What a run begins with.
pub(crate) struct Ready {
    pub(crate) connections: Connections,
    pub(crate) requests: Arc<Requests>,
    pub(crate) validators: Validators,
    pub(crate) manifest: Manifest,
    pub(crate) on_start: Option<OnStart>,
}

/// What exchanges need besides a clock.
#[derive(Clone)]
pub(crate) struct Connections {
    route: Route,
    timeouts: Timeouts,
    streaming: bool,
    plain: bool,
}

impl Connections {
    pub(crate) fn new(config: &LoadConfig, route: Route) -> Self {
        let plain = config.endpoint == Endpoint::Plain;
        Self { route, timeouts: config.timeouts, streaming: config.streaming, plain }
    }

    /// Exchanges on a clock, with connections of their own.
    pub(crate) fn at(self, clock: Clock) -> Exchanges {
        Exchanges {
            clock,
            dialer: Dialer::new(self.route, clock),
            timeouts: self.timeouts,
            streaming: self.streaming,
            plain: self.plain,
            cut: CancellationToken::new(),
        }
    }
}

impl Preparation<'_> {
    async fn run(&self) -> Result<Ready, LoadError> {
        let config = self.config;
        let tls = Tls::new(&config.url, &config.trust).map_err(LoadError::Request)?;
        let route = Route { addresses: resolve(config).await?, tls };
        let target = self.look(&route).await?;
        let requests = Requests::new(config, &target.model, &Arc::new(self.plan.clone()), &tag())
            .map_err(|e| LoadError::Request(e.to_string()))?;
        let requests = Arc::new(requests);
        self.folder.write_plan(self.plan)?;
        let ceiling = measure(config, self.plan).await?;
        if config.warmups > 0 {
            self.progress.enter(Phase::WarmingUp);
            self.warm_up(&route, &requests).await;
        }
        let connections = Connections::new(config, route);
        Ok(Ready {
            connections,
            requests,
            validators: Validators::new(&config.validators),
            manifest: Manifest { ceiling, ..self.manifest(target) },
            on_start: config.on_start.clone(),
        })
    }

    /// Waits for the server and asks what it is.
    async fn look(&self, route: &Route) -> Result<Target, LoadError> {
        let config = self.config;
        let dialer = Dialer::new(route.clone(), Clock::starting_in(Duration::ZERO));
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
    async fn warm_up(&self, route: &Route, requests: &Arc<Requests>) {
        let connections = Connections::new(self.config, route.clone());
        let shared = Arc::new(connections.at(Clock::starting_in(Duration::ZERO)));
        let mut open = JoinSet::new();
        for index in 0..self.config.warmups {
            let Some(&like) = self.plan.arrivals().get(index as usize % self.plan.arrivals().len().max(1)) else {
                return;
            };
            let prompt = mix(WARMUP ^ self.plan.header().seed, u64::from(index));
            let arrival = Arrival { index, prompt, at: Span::ZERO, ..like };
            let (shared, requests) = (Arc::clone(&shared), Arc::clone(requests));
            open.spawn(async move { shared.run(&requests.prepare_warmup(arrival), "", Tick::ZERO, 0).await });
        }
        while let Some(ended) = open.join_next().await {
            if let Ok((row, _)) = ended {
                tracing::debug!(index = row.index, state = %row.state, error = row.error, "warm-up ended");
            }
        }
    }

    fn manifest(&self, target: Target) -> Manifest {
        let config = self.config;
        // Two runs that differ in what was asked of the server are not the same measurement.
        let mut metadata = config.metadata.clone();
        metadata.insert("ignore_eos".to_owned(), config.ignore_eos.to_string());
        if !config.validators.is_empty() {
            let rules: Vec<String> = config.validators.iter().map(ToString::to_string).collect();
            metadata.insert("validators".to_owned(), rules.join("; "));
        }
        if config.url.is_secure() && config.trust == Trust::Anyone {
            metadata.insert("certificates".to_owned(), "not verified".to_owned());
        }
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

pub(crate) async fn resolve(config: &LoadConfig) -> Result<Vec<SocketAddr>, LoadError> {
    // Once for the whole run, so that no look-up is part of a latency.
    let found = tokio::net::lookup_host((config.url.host(), config.url.port())).await;
    found.map(Iterator::collect).map_err(|error| LoadError::Host { url: config.url.to_string(), error })
}

/// Tells the request ids of this run from those of others.
fn tag() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mixed = mix(Span::from_std(now).as_nanos(), u64::from(std::process::id()));
    format!("load-{:08x}", mixed >> 32)
}
