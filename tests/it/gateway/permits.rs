//! A permit lives exactly as long as the response body.

use std::time::Duration;

use elasticserve_core::outcome::{How, RejectReason};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::backend::header;
use crate::support::client::completion;
use crate::support::gateway::{Piped, on_sockets};
use crate::support::until;

#[tokio::test(start_paused = true)]
async fn with_one_permit_the_second_stream_starts_after_the_first_has_ended() {
    for trial in 0..50 {
        let (mut gateway, mut backend) = Piped::start(1, |_| {});
        let client = gateway.client().await;
        let (first_answer, first) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
        let started = Instant::now();
        let second_client = gateway.client().await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { (second_client.send(completion("")).await.unwrap(), Instant::now()) });
        for i in 0..10 {
            first.event(&format!(r#"{{"choices":[{{"text":"t{i}"}}]}}"#));
            sleep(Duration::from_millis(200)).await;
            assert!(!backend.has_call(), "trial {trial}: the second request reached the backend early");
            assert_eq!((gateway.in_use(), gateway.queued()), (1, 1), "trial {trial}");
        }
        first.finish();
        let (bytes, whole) = first_answer.unwrap().rest().await;
        assert!(whole && bytes.windows(5).filter(|w| w == b"data:").count() == 10);
        let call = backend.call().await;
        assert_eq!((gateway.in_use(), gateway.queued()), (1, 0));
        let second = call.stream();
        second.finish();
        let (answer, at) = tasks.join_next().await.unwrap().unwrap();
        assert!(at.duration_since(started) >= Duration::from_secs(2), "trial {trial}");
        let waited: f64 = header(&answer.headers, "x-elasticserve-queue-ms").unwrap().parse().unwrap();
        assert!((2000.0..2010.0).contains(&waited), "trial {trial}: {waited}");
        gateway.service.audit().unwrap();
    }
}

#[tokio::test]
async fn with_one_permit_streams_do_not_overlap_on_real_sockets() {
    for _ in 0..5 {
        let (gateway, mut backend) = on_sockets(1, |_| {}).await;
        let addr = gateway.data_addr();
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            tasks.spawn(async move {
                let client = crate::support::client::Client::tcp(addr).await;
                client.send(completion("")).await.unwrap().rest().await
            });
        }
        let first = backend.call().await.stream();
        let service = gateway.service().clone();
        until("the second request waits", || service.load() == (1, vec![(1, 1)])).await;
        for _ in 0..20 {
            first.event(r#"{"choices":[{"text":"a"}]}"#);
            sleep(Duration::from_millis(5)).await;
            assert!(!backend.has_call());
            assert_eq!(service.load(), (1, vec![(1, 1)]));
        }
        first.finish();
        backend.call().await.stream().finish();
        while let Some(result) = tasks.join_next().await {
            assert!(result.unwrap().1);
        }
        until("the permit is back", || service.load() == (0, vec![(0, 1)])).await;
        gateway.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_streamed_holds_its_permit_to_its_last_byte() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let client = gateway.client().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { client.send(completion("")).await.unwrap().json().await });
    let call = backend.call().await;
    assert_eq!(gateway.in_use(), 1);
    let body =
        r#"{"choices":[{"text":"ab","finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    call.json(body);
    let answer = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(answer["choices"][0]["text"], "ab");
    until("the permit is back", || gateway.in_use() == 0).await;
    assert_eq!(gateway.service.totals().released[&How::Finished], 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_its_whole_budget_and_is_then_refused() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| raw.queue.budget = Some("750ms".into()));
    let first = gateway.client().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { first.send(completion("")).await.unwrap().rest().await });
    let running = backend.call().await.stream();

    let started = Instant::now();
    let second = gateway.client().await;
    let mut refused = second.send(completion("")).await.unwrap();
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(750) && waited <= Duration::from_millis(752), "{waited:?}");
    assert_eq!(refused.status, 429);
    assert_eq!(header(&refused.headers, "x-elasticserve-reason"), Some("queue_expired"));
    assert_eq!(refused.json().await["error"]["code"], "queue_expired");
    assert!(!backend.has_call());

    running.finish();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(gateway.service.totals().expired[&RejectReason::QueueExpired], 1);
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_becomes_free_within_the_budget_serves_who_waits() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| raw.queue.budget = Some("10s".into()));
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let client = gateway.client().await;
        tasks.spawn(async move { client.send(completion("")).await.unwrap().status.as_u16() });
    }
    let running = backend.call().await.stream();
    sleep(Duration::from_millis(9_500)).await;
    running.finish();
    backend.call().await.stream().finish();
    while let Some(status) = tasks.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_at_once_and_a_zero_budget_does_not_wait() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| raw.queue.depth = Some(1));
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let client = gateway.client().await;
        tasks.spawn(async move { client.send(completion("")).await.unwrap().status.as_u16() });
    }
    let running = backend.call().await.stream();
    until("one request waits", || gateway.queued() == 1).await;

    let mut full = gateway.client().await.send(completion("")).await.unwrap();
    assert_eq!(full.status, 429);
    assert_eq!(full.json().await["error"]["code"], "queue_full");

    let mut impatient = completion("");
    impatient.headers_mut().insert("x-elasticserve-queue-budget-ms", "0".parse().unwrap());
    let started = Instant::now();
    let refused = gateway.client().await.send(impatient).await.unwrap();
    assert_eq!((refused.status.as_u16(), started.elapsed().as_millis() < 2), (429, true));

    running.finish();
    backend.call().await.stream().finish();
    while let Some(status) = tasks.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
}
