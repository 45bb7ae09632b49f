//! Many at once: nothing but whole answers and refusals that say why, and no bound that is passed in between.

use std::collections::BTreeMap;

use elasticserve_gateway::Gateway;
use elasticserve_gateway::config::RawTenant;
use tokio::task::JoinSet;

use crate::support::backend::{Backend, header};
use crate::support::client::{Client, completion, post};
use crate::support::gateway::{Piped, on_sockets, settings};
use crate::support::until;

#[tokio::test]
async fn of_a_thousand_clients_at_once_each_gets_an_answer_or_a_refusal_that_says_why() {
    let (gateway, mut backend) = on_sockets(8, |raw| raw.queue.depth = Some(200)).await;
    let addr = gateway.data_addr();
    let mut clients = JoinSet::new();
    for _ in 0..1000 {
        clients.spawn(async move {
            let mut answer = Client::tcp(addr).await.send(completion("")).await.unwrap();
            let (_, whole) = answer.rest().await;
            let told = header(&answer.headers, "x-elasticserve-reason").map(str::to_owned);
            (answer.status.as_u16(), told, header(&answer.headers, "retry-after").is_some(), whole)
        });
    }
    let mut answering = JoinSet::new();
    let service = gateway.service().clone();
    answering.spawn(async move {
        while let Some(call) = backend.next_call().await {
            until("all have come", || service.totals().offers == 1000).await;
            let responding = call.stream();
            responding.event("[DONE]");
            responding.finish();
        }
    });
    let mut seen: BTreeMap<_, u32> = BTreeMap::new();
    while let Some(ended) = clients.join_next().await {
        *seen.entry(ended.unwrap()).or_default() += 1;
    }
    let answered = seen.remove(&(200, None, false, true)).unwrap_or(0);
    let refused = seen.remove(&(429, Some("queue_full".to_owned()), true, true)).unwrap_or(0);
    assert!(seen.is_empty(), "{seen:?}");
    assert_eq!((answered, refused), (208, 792));
    until("all permits are back", || gateway.service().load() == (0, vec![(0, 8)])).await;
    gateway.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_number_of_requests_at_once_slips_past_a_limit_of_tokens() {
    let (mut gateway, mut backend) = Piped::start(1000, |raw| {
        let tenant = RawTenant { name: "gold".into(), tokens_per_minute: Some(1_000), ..RawTenant::default() };
        raw.tenants = Some(vec![tenant]);
        raw.default_tenant = Some("gold".into());
    });
    // 3 tokens of the prompt and 97 of the answer: ten of them.
    let body = r#"{"prompt":[1,2,3],"max_tokens":97,"ignore_eos":true}"#;
    let mut sent: Vec<_> = (0..100).map(|_| gateway.send(post("/v1/completions", body))).collect();
    let mut calls = Vec::new();
    for _ in 0..10 {
        calls.push(backend.call().await);
    }
    until("the others are refused", || {
        gateway.service.totals().offers == 10 && gateway.in_use() == 10 && !backend.has_call()
    })
    .await;
    calls.into_iter().for_each(|call| call.json("{}"));
    let mut refused = 0;
    for sending in sent.drain(..) {
        let answer = sending.answer().await;
        match answer.status.as_u16() {
            200 => {}
            status => {
                let reason = header(&answer.headers, "x-elasticserve-reason");
                assert_eq!((status, reason), (429, Some("rate_limit_exceeded")));
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 90);
}

#[tokio::test]
async fn what_is_sent_between_two_looks_at_an_engines_metrics_counts_at_once() {
    let (mut backend, addr) = Backend::on_tcp().await;
    let mut raw = settings(&addr.to_string(), 10);
    raw.backends.as_mut().unwrap()[0].engine = Some("vllm".into());
    raw.health.metrics_interval = Some("2s".into());
    let gateway = Gateway::start(raw.check().unwrap()).await.unwrap();
    // What two looks show is believed for ten seconds; no later one is answered.
    for _ in 0..2 {
        let look = backend.call().await;
        assert_eq!(look.head.uri.path(), "/metrics");
        let responding = look.respond(200, &[]);
        responding.chunk(b"vllm:num_requests_running 5.0\nvllm:num_requests_waiting 1.0\n");
        responding.finish();
    }
    let load = || gateway.service().load();
    until("six seats are others'", || load() == (0, vec![(0, 4)])).await;

    let mut clients = JoinSet::new();
    let data = gateway.data_addr();
    for _ in 0..30 {
        clients.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().status.as_u16() });
    }
    until("four run and all others wait", || load() == (26, vec![(4, 4)])).await;
    let mut answered = 0;
    while answered < 30 {
        let call = backend.call().await;
        if call.head.uri.path() != "/metrics" {
            // What runs is never more than the four seats that others have left.
            assert!(load().1[0].0 <= 4, "{:?} at answer {answered}", load());
            call.json("{}");
            answered += 1;
        }
    }
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    gateway.stop().await;
}
