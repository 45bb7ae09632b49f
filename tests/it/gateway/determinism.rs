//! The same plan twice through the real gateway on a paused clock gives the same events at the same times.

use std::sync::{Arc, Mutex};

use elasticserve_core::rng::{Random, Stream};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, sleep_until};

use crate::support::client::completion;
use crate::support::gateway::Piped;

const REQUESTS: usize = 2_000;

/// Runs a random overload, with a shadow policy or without, and returns a hash over every event, and how many
/// requests were refused.
async fn run(seed: u64, shadow: Option<&str>) -> (String, usize) {
    let (mut gateway, mut backend) = Piped::start(4, |raw| {
        raw.queue.budget = Some("750ms".into());
        raw.queue.depth = Some(16);
        raw.queue.shadow = shadow.map(str::to_owned);
        if shadow.is_some_and(|s| s.contains("pr")) {
            raw.predict.profile = Some("gb10-qwen3-8b-fp8".into());
        }
        raw.slo.e2e = Some("900ms".into());
        // All clients connect before the first one sends.
        raw.timeouts.header = Some("1h".into());
    });
    let origin = Instant::now();
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut clients = JoinSet::new();
    let mut random = Random::new(seed, Stream::Test);
    let mut at = Duration::ZERO;
    for number in 0..REQUESTS {
        at += Duration::from_micros(random.between(0, 60_000));
        let client = gateway.client().await;
        let log = Arc::clone(&log);
        let mut request = completion("");
        request.headers_mut().insert("x-request-id", number.to_string().parse().unwrap());
        clients.spawn(async move {
            sleep_until(origin + at).await;
            let mut answer = client.send(request).await.unwrap();
            let head = origin.elapsed();
            let (bytes, whole) = answer.rest().await;
            let line = format!("{number} {} {head:?} {:?} {} {whole}", answer.status, origin.elapsed(), bytes.len());
            log.lock().unwrap().push(line);
        });
    }
    let mut service_times = Random::new(seed, Stream::Lengths);
    let mut answering = JoinSet::new();
    loop {
        let call = tokio::select! {
            call = backend.call() => call,
            done = clients.join_next() => match done {
                Some(done) => { done.unwrap(); continue }
                None => break,
            },
        };
        let tokens = service_times.between(1, 12);
        answering.spawn(async move {
            let responding = call.stream();
            for token in 0..tokens {
                sleep(Duration::from_millis(40)).await;
                responding.event(&format!("{{\"choices\":[{{\"text\":\"{token}\"}}]}}"));
            }
            responding.finish();
        });
    }
    gateway.service.audit().unwrap();
    assert_eq!(gateway.service.totals().offers, REQUESTS as u64);
    let log = log.lock().unwrap();
    assert_eq!(log.len(), REQUESTS);
    let refused = log.iter().filter(|line| line.contains("429")).count();
    (format!("{:x?}", Sha256::digest(log.join("\n"))), refused)
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_events_at_the_same_times() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..=3 {
        let (first, refused) = run(seed, None).await;
        assert!((REQUESTS / 20..REQUESTS).contains(&refused), "not an overload: {refused} refused");
        assert_eq!(run(seed, None).await, (first.clone(), refused), "seed {seed}");
        seen.insert(first);
    }
    assert_eq!(seen.len(), 3, "different seeds must not give the same events");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_policy_changes_nothing_of_what_happens() {
    let (alone, refused) = run(1, None).await;
    assert!(refused > 100, "not an overload: {refused} refused");
    for shadow in ["wfq+budget:100ms", "least-slack+predict", "fcfs+price:0.7"] {
        assert_eq!(run(1, Some(shadow)).await, (alone.clone(), refused), "{shadow}");
    }
}
