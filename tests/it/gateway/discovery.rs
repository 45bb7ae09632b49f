//! Backends that come and go with the addresses of a name.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use elasticserve_gateway::config::RawConfig;
use elasticserve_gateway::{Gateway, Resolve, ResolveFuture};

use crate::support::backend::{Backend, header};
use crate::support::client::{Client, completion, get};
use crate::support::gateway::nowhere;
use crate::support::{soon, until};

/// A name server that says what the test says.
#[derive(Clone)]
struct Names(Arc<Mutex<Told>>);

struct Told {
    /// `None` for a failure.
    addresses: Option<Vec<SocketAddr>>,
    asked: usize,
}

impl Names {
    fn of(addresses: &[SocketAddr]) -> Self {
        Self(Arc::new(Mutex::new(Told { addresses: Some(addresses.to_vec()), asked: 0 })))
    }

    fn are(&self, addresses: Option<Vec<SocketAddr>>) {
        self.0.lock().unwrap().addresses = addresses;
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }

    /// Returns once what was said has been heard twice.
    async fn heard(&self) {
        let before = self.asked();
        until("the name is looked up again", || self.asked() >= before + 2).await;
    }
}

impl Resolve for Names {
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        assert_eq!((host, port), ("llm.test", 8000));
        let mut state = self.0.lock().unwrap();
        state.asked += 1;
        let answer = state.addresses.clone().ok_or_else(|| std::io::Error::other("no such name"));
        Box::pin(async move { answer })
    }
}

const TEXT: &str = "
    listen = '127.0.0.1:0'
    admin = '127.0.0.1:0'
    [health]
    slow_start = '0s'
    [[backends]]
    url = 'http://llm.test:8000/v1'
    permits = 4
    discover = 'dns'
    interval = '100ms'
";

async fn start(names: &Names, change: impl FnOnce(String) -> String) -> Gateway {
    let config = RawConfig::from_toml(&change(TEXT.to_owned())).unwrap().check().unwrap();
    Gateway::start_resolving(config, None, Arc::new(names.clone())).await.unwrap()
}

/// Sends a request that the given backend answers; its number.
async fn answered_by(gateway: &Gateway, backend: &mut Backend) -> String {
    let client = Client::tcp(gateway.data_addr()).await;
    let (answer, ()) = tokio::join!(client.send(completion("")), async { backend.call().await.json("{}") });
    let mut answer = answer.unwrap();
    assert_eq!(answer.status, 200);
    answer.rest().await;
    header(&answer.headers, "x-elasticserve-backend").unwrap().to_owned()
}

#[tokio::test]
async fn the_addresses_of_a_name_are_backends_from_the_first_request_on() {
    let (mut one, first) = Backend::on_tcp().await;
    let (_two, second) = Backend::on_tcp().await;
    let names = Names::of(&[second, first, first]);
    let gateway = start(&names, |text| text).await;
    assert_eq!(gateway.service().load().1, [(0, 4), (0, 4)]);
    names.are(Some(vec![first]));
    until("one has gone", || gateway.service().load().1.len() == 1).await;
    answered_by(&gateway, &mut one).await;
    let text = metrics(&gateway).await;
    assert!(text.contains(&format!("backend=\"{first}\"")) && !text.contains(&second.to_string()), "{text}");
    gateway.stop().await;
}

async fn metrics(gateway: &Gateway) -> String {
    let mut answer = Client::tcp(gateway.admin_addr()).await.send(get("/metrics")).await.unwrap();
    String::from_utf8(answer.rest().await.0).unwrap()
}

#[tokio::test]
async fn what_is_found_no_more_finishes_its_work_and_its_number_is_never_used_again() {
    let (mut one, first) = Backend::on_tcp().await;
    let (mut two, second) = Backend::on_tcp().await;
    let names = Names::of(&[first]);
    let gateway = start(&names, |text| text).await;
    let client = Client::tcp(gateway.data_addr()).await;
    let (answer, responding) = tokio::join!(client.send(completion("")), async { one.call().await.stream() });
    let mut running = answer.unwrap();
    let old = header(&running.headers, "x-elasticserve-backend").unwrap().to_owned();

    names.are(Some(vec![second]));
    until("the other one is there alone", || gateway.service().load().1 == [(0, 4)]).await;
    let new = answered_by(&gateway, &mut two).await;
    // It is back while its old work still runs: another backend, with permits of its own.
    names.are(Some(vec![first]));
    until("it is back", || gateway.service().load().1 == [(0, 4)] && !two.has_call()).await;
    names.heard().await;
    let back = answered_by(&gateway, &mut one).await;
    let numbers = std::collections::BTreeSet::from([&old, &new, &back]);
    assert_eq!(numbers.len(), 3, "{numbers:?}");

    responding.event("{}");
    responding.finish();
    assert!(running.rest().await.1, "what ran is not cut");
    until("nothing runs", || gateway.service().load().1 == [(0, 4)]).await;
    gateway.service().audit().unwrap();
    let totals = gateway.service().totals();
    assert_eq!(totals.granted, totals.released.values().sum::<u64>());
    gateway.stop().await;
}

#[tokio::test]
async fn a_name_server_that_fails_or_finds_nothing_changes_nothing_and_is_counted() {
    let (mut one, first) = Backend::on_tcp().await;
    let names = Names::of(&[first]);
    let gateway = start(&names, |text| text).await;
    for trouble in [None, Some(Vec::new())] {
        names.are(trouble);
        names.heard().await;
        answered_by(&gateway, &mut one).await;
    }
    let text = metrics(&gateway).await;
    let failures =
        text.lines().find_map(|l| l.strip_prefix("elasticserve_discovery_failures_total{name=\"llm.test:8000\"} "));
    assert!(failures.is_some_and(|n| n.parse::<u32>().unwrap() >= 2), "{text}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_name_without_addresses_at_the_start_is_a_503_until_it_has_some() {
    let names = Names::of(&[]);
    names.are(None);
    let gateway = start(&names, |text| text).await;
    let mut refused = Client::tcp(gateway.data_addr()).await.send(completion("")).await.unwrap();
    assert_eq!((refused.status.as_u16(), &refused.json().await["error"]["code"] == "no_backend"), (503, true));
    let (mut one, first) = Backend::on_tcp().await;
    names.are(Some(vec![first]));
    until("it is found", || gateway.service().load().1 == [(0, 4)]).await;
    answered_by(&gateway, &mut one).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_backend_that_is_found_later_starts_slowly() {
    let (_one, first) = Backend::on_tcp().await;
    let (_two, second) = Backend::on_tcp().await;
    let names = Names::of(&[first]);
    let gateway =
        start(&names, |text| text.replace("slow_start = '0s'", "slow_start = '1h'").replace("= 4", "= 20")).await;
    assert_eq!(gateway.service().load().1, [(0, 20)]);
    names.are(Some(vec![first, second]));
    until("it is found", || gateway.service().load().1.len() == 2).await;
    soon("the slow start is applied", async {
        until("it has a tenth", || gateway.service().load().1 == [(0, 20), (0, 2)]).await;
    })
    .await;
    // One at which nothing listens is taken out by its probes, and changes nothing else.
    let nothing = nowhere().await;
    names.are(Some(vec![first, nothing]));
    until("they are two again", || gateway.service().load().1.len() == 2).await;
    assert_eq!(gateway.service().load().1[0], (0, 20));
    gateway.stop().await;
}
