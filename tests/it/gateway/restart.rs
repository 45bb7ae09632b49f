//! One of two backends is restarted again and again under load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elasticserve_core::engine::Profile;
use elasticserve_gateway::Gateway;
use elasticserve_gateway::config::RawConfig;
use elasticserve_mock::{MockConfig, Server};
use tokio::task::JoinSet;

use crate::support::backend::header;
use crate::support::client::{Client, completion};
use crate::support::until;

const CLIENTS: u64 = 12;
const RESTARTS: usize = 12;
/// Requests between two changes.
const STRIDE: u64 = 60;

async fn engine(at: SocketAddr) -> Server {
    let profile = Profile::built_in("single-worker").unwrap();
    let config = MockConfig { profile, speed: 50.0, model: Some("m".into()), max_model_len: 4096 };
    Server::bind(config, at).await.unwrap()
}

/// What clients saw.
#[derive(Default)]
struct Seen {
    whole: u64,
    /// Answers that broke off after their head.
    cut: u64,
    /// Other than 200.
    refused: Vec<String>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_restart_of_one_of_two_backends_under_load_shows_no_client_a_5xx_before_its_first_byte() {
    let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let (mut first, second) = (engine(anywhere).await, engine(anywhere).await);
    let at = first.addr();
    let text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n\
         [health]\ninterval = '50ms'\nopen = '50ms'\nslow_start = '100ms'\n\
         [[backends]]\nurl = 'http://{at}'\npermits = 8\n[[backends]]\nurl = 'http://{}'\npermits = 8\n",
        second.addr()
    );
    let gateway = Gateway::start(RawConfig::from_toml(&text).unwrap().check().unwrap()).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(send_until(Arc::clone(&stop), gateway.data_addr()));
    }
    let passed = |n: u64| {
        let service = gateway.service().clone();
        let from = service.totals().offers;
        async move { until("more requests come", || service.totals().offers >= from + n).await }
    };
    for _ in 0..RESTARTS {
        passed(STRIDE).await;
        // Whatever it was doing is cut, as by a kill.
        first.shutdown().await;
        passed(STRIDE).await;
        first = engine(at).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut all = Seen::default();
    while let Some(seen) = clients.join_next().await {
        let seen = seen.unwrap();
        (all.whole, all.cut) = (all.whole + seen.whole, all.cut + seen.cut);
        all.refused.extend(seen.refused);
    }
    let totals = gateway.service().totals();
    assert!(all.refused.is_empty(), "{} refused: {:?}; {totals:?}", all.refused.len(), all.refused.first());
    assert!(all.whole > 2 * RESTARTS as u64 * STRIDE / 2, "{} whole, {} cut", all.whole, all.cut);
    assert!(totals.moved > 0, "the restarts hit nothing: {totals:?}");
    until("all permits are back", || gateway.service().load().1.iter().all(|(in_use, _)| *in_use == 0)).await;
    gateway.service().audit().unwrap();
    gateway.stop().await;
    first.shutdown().await;
    second.shutdown().await;
}

async fn send_until(stop: Arc<AtomicBool>, addr: SocketAddr) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let mut answer = Client::tcp(addr).await.send(completion("")).await.unwrap();
        if answer.status == 200 {
            let (_, ended) = answer.rest().await;
            seen.whole += u64::from(ended);
            seen.cut += u64::from(!ended);
        } else {
            let backend = header(&answer.headers, "x-elasticserve-backend").map(str::to_owned);
            let (status, said) = (answer.status, answer.json().await);
            seen.refused.push(format!("{status} by {backend:?}: {said}"));
        }
    }
    seen
}
