//! Backends whose addresses come from the DNS: looked up every so often.
//!
//! What was found keeps its work until it is found no more, and then until its work has ended. A look-up that fails or
//! finds nothing changes nothing: whether backends work is for their probes to say, not for a name server.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::Backend;
use crate::endpoint::Source;
use crate::proxy::Shared;

/// A look-up without an answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most addresses of one name that become backends; the first ones in their order.
const MAX_ADDRESSES: usize = 256;

/// A name being looked up.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// A way to look names up: the system's, or a list in a test.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a host, each with the port.
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture;
}

/// The system's resolver.
#[derive(Debug)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        let host = host.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Names that are looked up, and when next.
pub(crate) struct Discovery {
    shared: Arc<Shared>,
    resolver: Arc<dyn Resolve>,
    next: BTreeMap<String, Instant>,
    /// Names that were found once.
    found: BTreeMap<String, usize>,
}

impl Discovery {
    pub(crate) fn new(shared: Arc<Shared>, resolver: Arc<dyn Resolve>) -> Self {
        Self { shared, resolver, next: BTreeMap::new(), found: BTreeMap::new() }
    }

    /// Looks up what is due, for ever.
    pub(crate) async fn run(mut self) {
        loop {
            let rewritten = Arc::clone(&self.shared.pools);
            match self.next.values().min().copied() {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = rewritten.rewritten.notified() => {}
                },
                None => rewritten.rewritten.notified().await,
            }
            self.round().await;
        }
    }

    /// Looks up all that is due now.
    pub(crate) async fn round(&mut self) {
        let config = self.shared.config();
        let written: BTreeMap<String, &Backend> =
            config.backends.iter().filter(|b| b.look_up.is_some()).map(|b| (key(b), b)).collect();
        self.forget(|name| written.contains_key(name));
        let mut looking = JoinSet::new();
        for (name, backend) in &written {
            if self.next.get(name).is_some_and(|at| *at > Instant::now()) {
                continue;
            }
            let every = backend.look_up.map_or(PATIENCE, |every| every.to_std());
            self.next.insert(name.clone(), Instant::now() + every);
            let host = backend.authority.host().trim_matches(['[', ']']).to_owned();
            let resolving = self.resolver.resolve(&host, backend.port());
            let name = name.clone();
            looking.spawn(async move { (name, tokio::time::timeout(PATIENCE, resolving).await) });
        }
        while let Some(joined) = looking.join_next().await {
            let Ok((name, answer)) = joined else { continue };
            let Some(backend) = written.get(&name) else { continue };
            match answer {
                Ok(Ok(addresses)) if !addresses.is_empty() => self.are(&name, backend, addresses),
                failed => {
                    tracing::warn!(name, ?failed, "the addresses of a backend cannot be looked up; those known stay");
                    self.shared.metrics.look_up_failed(&backend.authority);
                }
            }
        }
    }

    /// A name has these addresses now.
    fn are(&mut self, name: &str, backend: &Backend, mut addresses: Vec<SocketAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.len() > MAX_ADDRESSES {
            tracing::warn!(name, found = addresses.len(), used = MAX_ADDRESSES, "more addresses than can be used");
            addresses.truncate(MAX_ADDRESSES);
        }
        let of = |address: &SocketAddr| {
            let authority: Authority = address.to_string().parse().ok()?;
            Some(Backend { authority, look_up: None, ..backend.clone() })
        };
        let backends: Vec<Backend> = addresses.iter().filter_map(of).collect();
        // What is there from the start has been warmed up by others.
        let slowly = self.found.insert(name.to_owned(), backends.len()).is_some();
        let Some(pool) = self.shared.pools.get(backend.pool) else { return };
        let watch = &self.shared.config().watch;
        pool.reconcile(&Source::Found(name.to_owned()), backends.iter().enumerate(), watch, slowly);
        self.shared.pools.added.notify_one();
    }

    /// Removes what was found by names that are written down no more.
    fn forget(&mut self, is_written: impl Fn(&str) -> bool) {
        self.next.retain(|name, _| is_written(name));
        self.found.retain(|name, _| is_written(name));
        let watch = &self.shared.config().watch;
        for pool in self.shared.pools.all() {
            for endpoint in pool.living() {
                if let Source::Found(name) = &endpoint.source
                    && !is_written(name)
                {
                    pool.reconcile(&endpoint.source, std::iter::empty(), watch, false);
                }
            }
        }
    }
}

fn key(backend: &Backend) -> String {
    format!("{}{} of pool {}", backend.authority, backend.base_path, backend.pool)
}
