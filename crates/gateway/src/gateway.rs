//! A gateway from its start to its end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use elasticserve_core::outcome::How;
use elasticserve_core::sched::{AuditError, Totals};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::connection::Ending;
use crate::decisions::DecisionLog;
use crate::discovery::{Discovery, Resolve, SystemResolver};
use crate::limits::Quotas;
use crate::live::{Live, ReloadError};
use crate::metrics::Metrics;
use crate::pool::Pools;
use crate::proxy::Shared;
use crate::reload::{self, Reloader, Source, Why};
use crate::state::{self, Keeper};
use crate::trace::Tracer;
use crate::upstream::{Dial, Stream, TcpDial, Upstream};
use crate::{admin, connection, files, health, listen};

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be set up.
    #[error("{key}: cannot listen on {address}")]
    Listen {
        /// The flag or key that says where.
        key: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The state could not be read or written.
    #[error("state.file: cannot read and write {}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The decision log could not be opened.
    #[error("log.decisions: cannot write to {}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The gateway without its listeners: it serves any connection that it is given.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
    connections: TaskTracker,
    ending: Ending,
}

/// How a drain ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy when the time for the drain was over, and were cut.
    pub cut: usize,
}

impl Service {
    /// A gateway that connects to its backends with `dial`. Nothing probes them, so all are offered work,
    /// and nothing writes a decision log.
    #[must_use]
    pub fn new(config: Config, dial: Arc<dyn Dial>) -> Self {
        Self::with(config, dial, None, None, None)
    }

    /// The same with a configuration that can be read again.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn from_source(source: Arc<dyn Source>, dial: Arc<dyn Dial>) -> Result<Self, ConfigError> {
        Ok(Self::with(source.read()?, dial, None, None, Some(source)))
    }

    fn with(
        config: Config,
        dial: Arc<dyn Dial>,
        decisions: Option<DecisionLog>,
        tracer: Option<Arc<Tracer>>,
        source: Option<Arc<dyn Source>>,
    ) -> Self {
        let clock = Clock::start();
        let metrics = Metrics::new(&config);
        let pools = Pools::new(&config, clock);
        let live = Live::new(config);
        metrics.reloads().in_effect(live.now().hash());
        let shared = Shared {
            clock,
            pools,
            upstream: Upstream::new(dial, Arc::clone(&live), &TaskTracker::new()),
            live,
            metrics,
            leaving: AtomicBool::new(false),
            quotas: Quotas::new(clock),
            memory: Arc::default(),
            draining: AtomicBool::new(false),
            stop_asked: CancellationToken::new(),
            crowd: Arc::default(),
            requests: AtomicU64::new(0),
            instance: u64::from(std::process::id()),
            reloader: Reloader::new(source),
            tracer,
            decisions,
        };
        Self { shared: Arc::new(shared), connections: TaskTracker::new(), ending: Ending::default() }
    }

    /// Serves one client connection to its end, from an address that is not known.
    pub async fn serve(&self, stream: impl Stream + 'static) {
        self.serve_from(stream, None).await;
    }

    /// Serves one client connection to its end.
    pub async fn serve_from(&self, stream: impl Stream + 'static, peer: Option<IpAddr>) {
        let timeout = self.shared.config().timeouts.header.to_std();
        connection::serve(Arc::clone(&self.shared), stream, peer, timeout, self.ending.clone()).await;
    }

    /// Runs the schedulers' and the backends' timers, for ever.
    pub async fn run_timer(&self) {
        self.shared.pools.run_timers().await;
    }

    /// Refuses what waits and what comes, and lets what runs finish.
    pub fn drain(&self) {
        self.shared.leaving.store(true, Ordering::Relaxed);
        if !self.shared.draining.swap(true, Ordering::Relaxed) {
            self.shared.pools.drain();
            self.ending.drain.cancel();
        }
    }

    /// Reads the configuration again and puts it into effect, all of it or nothing; see [`Gateway::reload`].
    ///
    /// # Errors
    /// A [`ReloadError`]; what was in effect still is.
    pub fn reload(&self, why: Why) -> Result<(), ReloadError> {
        self.shared.reload(why)
    }

    /// Requests that wait, and permits in use and in total of each backend, pool by pool.
    #[must_use]
    pub fn load(&self) -> (usize, Vec<(u32, u32)>) {
        let views = self.shared.pools.views(0);
        let permits = views.iter().flat_map(|pool| pool.backends.iter().map(|b| b.permits)).collect();
        (views.iter().map(|pool| pool.view.queued).sum(), permits)
    }

    /// Client connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Bytes of request bodies that are in memory, or are to come.
    #[must_use]
    pub fn body_memory(&self) -> u64 {
        self.shared.memory.used()
    }

    /// The schedulers' counters, summed up.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shared.pools.totals()
    }

    /// All figures, as `/metrics` shows them.
    ///
    /// # Errors
    /// Those of writing them as text: a defect of this program.
    pub fn metrics(&self) -> Result<String, std::fmt::Error> {
        admin::figures(&self.shared)
    }

    /// Checks the schedulers' invariants.
    ///
    /// # Errors
    /// The first one that does not hold: a defect of this program.
    pub fn audit(&self) -> Result<(), AuditError> {
        self.shared.pools.audit()
    }
}

/// A running gateway.
pub struct Gateway {
    service: Service,
    data_addr: SocketAddr,
    admin_addr: SocketAddr,
    background: JoinSet<()>,
    admin_connections: TaskTracker,
    logging: JoinSet<()>,
    log_ends: CancellationToken,
}

impl Gateway {
    /// Opens both listeners and starts to serve.
    ///
    /// # Errors
    /// [`StartError`] names the listener or the file that could not be set up.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, None, Arc::new(SystemResolver)).await
    }

    /// The same with a configuration that is read again once its files change, or [`Gateway::reload`] says so.
    ///
    /// # Errors
    /// See [`Gateway::start`].
    pub async fn start_from(config: Config, source: Arc<dyn Source>) -> Result<Self, StartError> {
        Self::start_with(config, Some(source), Arc::new(SystemResolver)).await
    }

    /// The same, with names looked up by `resolver`.
    ///
    /// # Errors
    /// See [`Gateway::start`].
    pub async fn start_resolving(
        config: Config,
        source: Option<Arc<dyn Source>>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, StartError> {
        Self::start_with(config, source, resolver).await
    }

    async fn start_with(
        config: Config,
        source: Option<Arc<dyn Source>>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, StartError> {
        let data = bind("--listen", config.fixed.listen).await?;
        let admin = bind("--admin", config.fixed.admin).await?;
        files::compare_with(config.max_connections);
        let addr = |listener: &TcpListener, wanted| listener.local_addr().unwrap_or(wanted);
        let (data_addr, admin_addr) = (addr(&data, config.fixed.listen), addr(&admin, config.fixed.admin));
        let (log, writer) = match &config.fixed.decisions {
            None => (None, None),
            Some(path) => {
                let wrong = |source| StartError::Log { path: path.clone(), source };
                let (log, writer) = DecisionLog::open(path).map_err(wrong)?;
                (Some(log), Some(writer))
            }
        };
        let (tracer, exporter) = config.fixed.trace.as_ref().map(Tracer::new).unzip();
        let service = Service::with(config, Arc::new(TcpDial), log, tracer.map(Arc::new), source);
        let shared = &service.shared;
        let (mut logging, log_ends) = (JoinSet::new(), CancellationToken::new());
        let config = shared.config();
        if let Some(state) = &config.fixed.state {
            let wrong = |source| StartError::State { path: state.file.clone(), source };
            state::restore(state, &config.tenants, &shared.pools, &shared.metrics).map_err(wrong)?;
            let keeper = Keeper {
                state: state.clone(),
                live: Arc::clone(&shared.live),
                pools: Arc::clone(&shared.pools),
                metrics: Arc::clone(&shared.metrics),
            };
            logging.spawn(keeper.run(log_ends.clone()));
        }
        if let Some(writer) = writer {
            logging.spawn(writer.run(Arc::clone(&shared.metrics), log_ends.clone()));
        }
        if let Some(exporter) = exporter {
            logging.spawn(exporter.run(Arc::clone(&shared.metrics), log_ends.clone()));
        }
        let mut background = JoinSet::new();
        // Until its first probe a backend is offered work, but does not make the gateway ready.
        background.spawn(health::supervise(Arc::clone(shared)));
        let mut discovery = Discovery::new(Arc::clone(shared), resolver);
        // The first request finds the backends that there are.
        discovery.round().await;
        background.spawn(discovery.run());
        let timers = service.clone();
        background.spawn(async move { timers.run_timer().await });
        if config.fixed.watch && shared.reloader.can_read() {
            background.spawn(reload::watch(Arc::clone(shared)));
        }
        let admin_connections = TaskTracker::new();
        background.spawn(admin::accept(
            admin,
            Arc::clone(shared),
            admin_connections.clone(),
            service.ending.cut.clone(),
        ));
        let ending = service.ending.clone();
        background.spawn(listen::accept(data, Arc::clone(shared), service.connections.clone(), ending));
        Ok(Self { service, data_addr, admin_addr, background, admin_connections, logging, log_ends })
    }

    /// Where clients connect.
    #[must_use]
    pub const fn data_addr(&self) -> SocketAddr {
        self.data_addr
    }

    /// Where probes and metrics are served.
    #[must_use]
    pub const fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// What serves the connections.
    #[must_use]
    pub const fn service(&self) -> &Service {
        &self.service
    }

    /// Reads the configuration again and puts it into effect, all of it or nothing, from the next decision on. What
    /// waits and runs stays. A configuration that is wrong is logged, counted and shown, and changes nothing.
    ///
    /// # Errors
    /// A [`ReloadError`]; what was in effect still is.
    pub fn reload(&self, why: Why) -> Result<(), ReloadError> {
        self.service.reload(why)
    }

    /// Waits until an operator asks on the admin listener that it be stopped.
    pub async fn stop_asked(&self) {
        self.service.shared.stop_asked.cancelled().await;
    }

    /// Drains and ends: what runs may finish within the configured time, then everything is cut.
    ///
    /// It is not ready from the start, but refuses nothing before `timeouts.drain_delay` is over: who sends work here
    /// needs time to notice.
    pub async fn stop(mut self) -> Drained {
        let shared = &self.service.shared;
        shared.leaving.store(true, Ordering::Relaxed);
        let delay = shared.config().timeouts.drain_delay.to_std();
        tokio::time::sleep(delay).await;
        self.service.drain();
        let connections = &self.service.connections;
        connections.close();
        let grace = self.service.shared.config().timeouts.drain.to_std();
        let finished = tokio::time::timeout(grace, connections.wait()).await.is_ok();
        let cut = if finished { 0 } else { connections.len() };
        self.service.ending.cut.cancel();
        self.background.shutdown().await;
        connections.wait().await;
        self.admin_connections.close();
        self.admin_connections.wait().await;
        // Everything has ended, so every decision is in the log's channel, and all that can be learned was.
        self.log_ends.cancel();
        while self.logging.join_next().await.is_some() {}
        tracing::info!(cut, finished = self.released(How::Finished), "gateway has stopped");
        Drained { cut }
    }

    fn released(&self, how: How) -> u64 {
        self.service.totals().released.get(&how).copied().unwrap_or(0)
    }
}

async fn bind(key: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { key, address, source })
}
