//! A client that leaves frees what was held for it at once, and the backend's connection is closed.

use std::time::{Duration, Instant};

use elasticserve_core::outcome::How;
use elasticserve_gateway::Gateway;
use tokio::task::JoinSet;

use crate::support::backend::Backend;
use crate::support::client::{Client, completion};
use crate::support::gateway::on_sockets;
use crate::support::until;

const TRIALS: usize = 100;

/// Half of the trials must stay under the bar of 50 ms and every single one under this; the rest is
/// left to a busy machine.
const BAR: Duration = Duration::from_millis(50);
const WORST: Duration = Duration::from_secs(2);

fn judge(mut times: Vec<Duration>) {
    times.sort();
    assert_eq!(times.len(), TRIALS);
    assert!(times[TRIALS / 2] <= BAR, "median {:?}", times[TRIALS / 2]);
    assert!(times[TRIALS - 1] <= WORST, "worst {:?}", times[TRIALS - 1]);
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
    judge(times);
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
    judge(times);
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
    judge(times);
    gateway.stop().await;
}
