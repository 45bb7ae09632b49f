//! A client that leaves frees what was held for it at once, and the backend's connection is closed.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use elasticserve_core::engine::Profile;
use elasticserve_core::outcome::How;
use elasticserve_gateway::Gateway;
use elasticserve_mock::{MockConfig, Server};
use tokio::task::JoinSet;

use crate::support::backend::Backend;
use crate::support::client::{Client, completion, post};
use crate::support::gateway::{on_sockets, settings};
use crate::support::{soon, tell, until};

const TRIALS: usize = 100;

/// Half of the trials must stay under the bar of 50 ms and every single one under this; the rest is
/// left to a busy machine.
const BAR: Duration = Duration::from_millis(50);
const WORST: Duration = Duration::from_secs(2);

fn judge(phase: &str, mut times: Vec<Duration>) {
    times.sort();
    assert_eq!(times.len(), TRIALS);
    let (p50, p99, worst) = (times[TRIALS / 2], times[TRIALS * 99 / 100 - 1], times[TRIALS - 1]);
    tell(&format!("{phase}: p50 {p50:?}, p99 {p99:?}, worst {worst:?}"));
    assert!(p50 <= BAR && worst <= WORST, "{phase}: median {p50:?}, worst {worst:?}");
}

async fn start() -> (Gateway, Backend) {
    on_sockets(1, |_| {}).await
}

async fn at_rest(gateway: &Gateway) {
    until("the permit is back", || gateway.service().load() == (0, vec![(0, 1)])).await;
    gateway.service().audit().unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_frees_its_place_and_never_reaches_the_backend() {
    let (gateway, mut backend) = start().await;
    let holder = Client::tcp(gateway.data_addr()).await;
    let mut holding = JoinSet::new();
    holding.spawn(async move { holder.send(completion("")).await.unwrap().rest().await });
    let running = backend.call().await.stream();
    let mut times = Vec::new();
    for _ in 0..TRIALS {
        let client = Client::tcp(gateway.data_addr()).await;
        let mut waiting = JoinSet::new();
        waiting.spawn(client.send(completion("")));
        until("the request waits", || gateway.service().load().0 == 1).await;
        let left = Instant::now();
        waiting.shutdown().await;
        until("the queue is empty", || gateway.service().load().0 == 0).await;
        times.push(left.elapsed());
    }
    assert!(!backend.has_call());
    running.finish();
    holding.join_next().await;
    at_rest(&gateway).await;
    assert_eq!(gateway.service().totals().cancelled, TRIALS as u64);
    judge("while it waits", times);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_closes_the_backends_connection() {
    let (gateway, mut backend) = start().await;
    let mut times = Vec::new();
    for _ in 0..TRIALS {
        let client = Client::tcp(gateway.data_addr()).await;
        let mut asking = JoinSet::new();
        asking.spawn(client.send(completion("")));
        let mut call = backend.call().await;
        let left = Instant::now();
        asking.shutdown().await;
        call.abandoned().await;
        times.push(left.elapsed());
        at_rest(&gateway).await;
    }
    assert_eq!(gateway.service().totals().released[&How::ClientGone], TRIALS as u64);
    judge("before the head", times);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_between_two_tokens_closes_the_backends_connection() {
    let (gateway, mut backend) = start().await;
    let mut times = Vec::new();
    for _ in 0..TRIALS {
        let client = Client::tcp(gateway.data_addr()).await;
        let (answer, mut responding) = tokio::join!(client.send(completion("")), async {
            let responding = backend.call().await.stream();
            responding.event(r#"{"choices":[{"text":"a"}]}"#);
            responding
        });
        let mut answer = answer.unwrap();
        answer.chunk().await.unwrap().unwrap();
        // The backend is silent from here on: nothing is written that could find the client gone.
        let left = Instant::now();
        drop(answer);
        responding.abandoned().await;
        times.push(left.elapsed());
        at_rest(&gateway).await;
    }
    assert_eq!(gateway.service().totals().released[&How::ClientGone], TRIALS as u64);
    judge("between two tokens", times);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_seat_in_the_engine() {
    let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    let config = MockConfig { profile, speed: 5.0, model: None, max_model_len: 8192 };
    let mock = Server::bind(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let gateway = Gateway::start(settings(&mock.addr().to_string(), 1).check().unwrap()).await.unwrap();
    // Were it not given up, each would take half a minute.
    let body = r#"{"prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":true}"#;
    let mut times = Vec::new();
    for trial in 1..=TRIALS {
        let mut answer = Client::tcp(gateway.data_addr()).await.send(post("/v1/completions", body)).await.unwrap();
        answer.chunk().await.unwrap().unwrap();
        let left = Instant::now();
        drop(answer);
        let mut watch = mock.watch();
        let freed = watch.wait_for(|s| s.engine.running == 0 && s.finished.abort == trial as u64);
        soon("the engine's seat is free", freed).await.unwrap();
        times.push(left.elapsed());
        at_rest(&gateway).await;
    }
    judge("of an engine", times);
    gateway.stop().await;
    mock.shutdown().await;
}
