//! A gateway in front of a scripted backend: over pipes on a paused clock, or over sockets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use elasticserve_gateway::config::{RawBackend, RawConfig};
use elasticserve_gateway::{Dial, Gateway, Service};
use http::Request;
use http_body_util::Full;
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

use super::backend::{Backend, NamedDial};
use super::client::{Answer, Client};

/// Settings with ports that the system picks.
pub(crate) fn settings(backend: &str, permits: u32) -> RawConfig {
    RawConfig {
        listen: Some("127.0.0.1:0".into()),
        admin: Some("127.0.0.1:0".into()),
        backends: Some(vec![RawBackend {
            url: format!("http://{backend}"),
            permits: Some(permits),
            ..RawBackend::default()
        }]),
        ..RawConfig::default()
    }
}

/// A gateway without sockets.
pub(crate) struct Piped {
    pub(crate) service: Service,
    tasks: JoinSet<()>,
}

impl Piped {
    /// A gateway and its backend; `change` edits the settings first.
    pub(crate) fn start(permits: u32, change: impl FnOnce(&mut RawConfig)) -> (Self, Backend) {
        Self::with(permits, change, |dial| dial)
    }

    /// The same with connections that are made in another way than the backend's own.
    pub(crate) fn through(permits: u32, through: impl FnOnce(Arc<dyn Dial>) -> Arc<dyn Dial>) -> (Self, Backend) {
        Self::with(permits, |_| {}, through)
    }

    fn with(
        permits: u32,
        change: impl FnOnce(&mut RawConfig),
        through: impl FnOnce(Arc<dyn Dial>) -> Arc<dyn Dial>,
    ) -> (Self, Backend) {
        let (backend, dial) = Backend::on_pipes();
        let dial = through(dial);
        let mut raw = settings("backend", permits);
        change(&mut raw);
        let service = Service::new(raw.check().unwrap(), dial);
        let mut tasks = JoinSet::new();
        let timer = service.clone();
        tasks.spawn(async move { timer.run_timer().await });
        (Self { service, tasks }, backend)
    }

    /// A gateway and several backends, by their names; `text` is the rest of the configuration, which
    /// [`Service::reload`] reads again.
    pub(crate) fn over(names: &[&str], text: &str) -> (Self, Vec<Backend>, Arc<NamedDial>) {
        let (piped, backends, dial, _) = Self::reloading(names, text);
        (piped, backends, dial)
    }

    /// The same, with a text that can be changed.
    pub(crate) fn reloading(names: &[&str], text: &str) -> (Self, Vec<Backend>, Arc<NamedDial>, Arc<Mutex<String>>) {
        let (backends, dial) = Backend::by_name(names);
        let text = Arc::new(Mutex::new(text.to_owned()));
        let read = Arc::clone(&text);
        let source = move || RawConfig::from_toml(&read.lock().unwrap_or_else(PoisonError::into_inner))?.check();
        let dialing = Arc::clone(&dial) as Arc<dyn elasticserve_gateway::Dial>;
        let service = Service::from_source(Arc::new(source), dialing).unwrap();
        let mut tasks = JoinSet::new();
        let timer = service.clone();
        tasks.spawn(async move { timer.run_timer().await });
        (Self { service, tasks }, backends, dial, text)
    }

    /// Sends a request on a connection of its own, in the background.
    pub(crate) fn send(&mut self, request: Request<Full<Bytes>>) -> Sending {
        let (connection, mut sending) = (self.connect(), JoinSet::new());
        sending.spawn(async move { Client::over(connection).await.send(request).await.unwrap() });
        Sending(sending)
    }

    /// A new client connection.
    pub(crate) async fn client(&mut self) -> Client {
        Client::over(self.connect()).await
    }

    /// The client's end of a new connection.
    pub(crate) fn connect(&mut self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let service = self.service.clone();
        self.tasks.spawn(async move { service.serve(theirs).await });
        ours
    }

    pub(crate) fn queued(&self) -> usize {
        self.service.load().0
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.service.load().1.iter().map(|(in_use, _)| in_use).sum()
    }
}

/// A request under way. Dropping it closes its connection.
pub(crate) struct Sending(JoinSet<Answer>);

impl Sending {
    /// The head of the answer.
    pub(crate) async fn answer(mut self) -> Answer {
        super::soon("an answer comes", self.0.join_next()).await.unwrap().unwrap()
    }
}

/// A gateway on sockets in front of a scripted backend on a socket.
pub(crate) async fn on_sockets(permits: u32, change: impl FnOnce(&mut RawConfig)) -> (Gateway, Backend) {
    let (backend, addr) = Backend::on_tcp().await;
    let mut raw = settings(&addr.to_string(), permits);
    change(&mut raw);
    let gateway = Gateway::start(raw.check().unwrap()).await.unwrap();
    (gateway, backend)
}

/// An address where nothing listens.
pub(crate) async fn nowhere() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}
