//! The listening server: its connections, their limits and its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use elasticserve_core::engine::{Engine, EngineStats, Profile};
use elasticserve_core::time::Span;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::driver::{Driver, Snapshot};
use crate::request::Served;
use crate::route::{self, App};
use crate::truth::Truth;

/// The largest request head, in bytes; a longer one is answered with 431.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// How long to leave the listener alone after it failed, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The largest speed taken: beyond it a step is shorter than the system's timers are exact.
const MAX_SPEED: f64 = 1000.0;

/// Which engine to serve.
#[derive(Clone, Debug)]
pub struct MockConfig {
    /// The engine's parameters.
    pub profile: Profile,
    /// How many times faster than the profile the engine runs; above 0, at most 1000.
    pub speed: f64,
    /// The name of the model; the profile's if there is none.
    pub model: Option<String>,
    /// Prompt and answer together, in tokens; at least 2. The KV cache holds this many for every seat,
    /// unless the profile sets `kv_blocks`: then it must hold this many once.
    pub max_model_len: u32,
}

/// Bounds on what clients can hold.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; further ones wait in the listener's backlog until one closes.
    pub connections: usize,
    /// How long a connection may be idle, and how long a request's head may take.
    pub keep_alive: Span,
    /// The largest body.
    pub body_bytes: usize,
    /// How long a body may take.
    pub body_time: Span,
}

impl Default for Limits {
    /// 4096 connections, 5 s idle as in the servers of Python that engines use, 64 MiB, 30 s.
    fn default() -> Self {
        Self { connections: 4096, keep_alive: Span::from_secs(5), body_bytes: 64 << 20, body_time: Span::from_secs(30) }
    }
}

/// An engine server that is bound and running.
///
/// [`Server::shutdown`] waits for the end of all it started. A dropped server ends as well, but
/// nobody waits for it.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    driver: Driver,
    stop: CancellationToken,
    /// The one task that accepts, which owns all others.
    accepting: JoinSet<()>,
}

impl Server {
    /// Binds and starts to serve, with the default [`Limits`].
    ///
    /// # Errors
    /// As [`Server::bind_with`].
    pub async fn bind(config: MockConfig, listen: SocketAddr) -> io::Result<Self> {
        Self::bind_with(config, Limits::default(), listen).await
    }

    /// Binds and starts to serve.
    ///
    /// # Errors
    /// If the address cannot be bound, the system gives no thread, or (`InvalidInput`) a value of the
    /// configuration is out of range; the message names it.
    pub async fn bind_with(config: MockConfig, limits: Limits, listen: SocketAddr) -> io::Result<Self> {
        Self::bind_observed(config, limits, None, listen).await
    }

    /// Binds and starts to serve, and tells its own times of every token.
    ///
    /// # Errors
    /// As [`Server::bind_with`].
    pub async fn bind_observed(
        config: MockConfig,
        limits: Limits,
        truth: Option<Truth>,
        listen: SocketAddr,
    ) -> io::Result<Self> {
        let MockConfig { profile, speed, model, max_model_len } = config;
        let invalid = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        if !(speed > 0.0 && speed <= MAX_SPEED) {
            return invalid(format!("speed must be above 0 and at most {MAX_SPEED}, not {speed}"));
        }
        if max_model_len < 2 {
            return invalid(format!("max_model_len must be at least 2, not {max_model_len}"));
        }
        if let Err(error) = profile.check_room(max_model_len - 1, 1) {
            return invalid(format!("max_model_len must fit into the profile's engine.kv_blocks: {error}"));
        }
        let listener = TcpListener::bind(listen).await?;
        let addr = listener.local_addr()?;
        let profile = profile.sped_up(speed);
        // Without a limit in the profile, as much as never runs out.
        let ample = u64::from(profile.max_seqs) * u64::from(max_model_len);
        let kv_capacity = if profile.kv_blocks.is_some() { profile.kv_room() } else { ample };
        let cache_blocks = usize::try_from(kv_capacity / u64::from(profile.block_tokens)).unwrap_or(usize::MAX);
        let driver = Driver::start(Engine::new(&profile).with_cache_blocks(cache_blocks))?;
        let served =
            Served { model: model.unwrap_or(profile.model), max_model_len, block_tokens: profile.block_tokens };
        let app = Arc::new(App {
            engine: driver.handle().clone(),
            served,
            kv_capacity,
            limits,
            truth,
            started: route::now_seconds(),
            next_id: AtomicU64::new(0),
        });
        let stop = CancellationToken::new();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept_all(listener, app, stop.clone()));
        Ok(Self { addr, driver, stop, accepting })
    }

    /// The address that is bound, with the real port.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What the engine is doing.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.driver.handle().snapshot().engine
    }

    /// The same and how requests ended, for waiting until something is so.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Snapshot> {
        self.driver.handle().watch()
    }

    /// Forgets all cached prompts, for requests that arrive afterwards.
    pub fn reset_prefix_cache(&self) {
        self.driver.handle().reset_prefix_cache();
    }

    /// Stops accepting, cuts all connections, and waits until every task and the engine's thread have
    /// ended.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        while self.accepting.join_next().await.is_some() {}
        let driver = self.driver;
        // The thread wakes at once, but joining it blocks.
        if let Err(error) = tokio::task::spawn_blocking(move || driver.stop()).await {
            tracing::error!(%error, "the engine's thread was not joined");
        }
    }
}

async fn accept_all(listener: TcpListener, app: Arc<App>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = accept(&listener), if connections.len() < app.limits.connections => match accepted {
                Ok(stream) => drop(connections.spawn(serve(stream, Arc::clone(&app)))),
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    // Each token is a small packet that must not wait for the last one's acknowledgement.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Serves one connection until it closes. hyper watches for the client's close all the time, also while
/// a request waits: it then drops the request's future or the answer's body, which frees the seat. A
/// client that closes only its sending side counts as gone.
async fn serve(stream: TcpStream, app: Arc<App>) {
    let service = service_fn({
        let app = Arc::clone(&app);
        move |request| route::answer(Arc::clone(&app), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // In hyper this also ends an idle connection.
        .header_read_timeout(app.limits.keep_alive.to_std())
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(speed: f64, max_model_len: u32) -> MockConfig {
        let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
        MockConfig { profile, speed, model: None, max_model_len }
    }

    #[tokio::test]
    async fn accepted_sockets_send_each_token_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(accept(&listener).await.unwrap().nodelay().unwrap());
        drop(client);
    }

    #[tokio::test]
    async fn a_value_out_of_range_is_refused_by_name_before_anything_is_bound() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        for (config, name) in [
            (config(0.0, 8192), "speed"),
            (config(f64::NAN, 8192), "speed"),
            (config(f64::INFINITY, 8192), "speed"),
            (config(1.0, 1), "max_model_len"),
            (
                MockConfig { profile: Profile { kv_blocks: Some(511), ..config(1.0, 2).profile }, ..config(1.0, 8192) },
                "kv_blocks",
            ),
        ] {
            let error = Server::bind(config, listen).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
