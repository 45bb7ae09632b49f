//! Tenants, orders and admission by prediction, from the headers to the decision log.

use std::time::Duration;

use elasticserve_core::sched::Order;
use elasticserve_gateway::config::{Lengths, RawAdmission, RawConfig, RawPredict, RawSlo, RawTenant};
use elasticserve_gateway::decisions::Decision;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Full;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::backend::header;
use crate::support::client::{Answer, Client, completion, get, post};
use crate::support::gateway::{Piped, on_sockets};
use crate::support::until;

fn tenant(name: &str, ttft: &str) -> RawTenant {
    let slo = Some(RawSlo { ttft: Some(ttft.into()), ..RawSlo::default() });
    RawTenant { name: name.into(), slo, ..RawTenant::default() }
}

/// Predictions of round numbers: a token takes 10 ms, and nothing else takes any time; `max_tokens` is the length.
fn predict(raw: &mut RawConfig) {
    raw.queue.admission = Some(RawAdmission::Predict);
    raw.predict = RawPredict {
        overhead: Some("0".into()),
        prefill_per_token: Some("0".into()),
        first_token_steps: Some(1),
        idle_tpot: Some("10ms".into()),
        pad: Some("0".into()),
        margin: Some(0.0),
        lengths: Some(Lengths::Declared),
        ..RawPredict::default()
    };
}

/// A request for 8 tokens with more headers.
fn with(headers: &[(&str, &str)]) -> Request<Full<bytes::Bytes>> {
    let mut request = completion("");
    add(&mut request, headers);
    request
}

fn add(request: &mut Request<Full<bytes::Bytes>>, headers: &[(&str, &str)]) {
    for (name, value) in headers {
        request.headers_mut().insert(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
}

async fn refused(gateway: &mut Piped, request: Request<Full<bytes::Bytes>>) -> (u16, String, Answer) {
    let mut answer = gateway.client().await.send(request).await.unwrap();
    let code = answer.json().await["error"]["code"].as_str().unwrap().to_owned();
    (answer.status.as_u16(), code, answer)
}

#[tokio::test(start_paused = true)]
async fn the_tenant_in_a_header_decides_who_goes_next() {
    for name in ["x-elasticserve-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"] {
        let (mut gateway, mut backend) = Piped::start(1, |raw| {
            raw.queue.order = Some(Order::Priority);
            let class = |name: &str, class| RawTenant { class: Some(class), ..tenant(name, "9s") };
            raw.tenants = Some(vec![class("gold", 0), class("batch", 1)]);
            raw.default_tenant = Some("batch".into());
        });
        let mut tasks = JoinSet::new();
        let requests = [("first", "batch"), ("second", "nobody"), ("third", "batch"), ("fourth", "gold")];
        for (waiting, (id, tenant)) in requests.into_iter().enumerate() {
            let client = gateway.client().await;
            tasks.spawn(async move {
                client.send(with(&[(name, tenant), ("x-request-id", id)])).await.unwrap().rest().await
            });
            until("it is in its place", || gateway.queued() == waiting && gateway.in_use() == 1).await;
        }
        let mut order = Vec::new();
        for _ in requests {
            let call = backend.call().await;
            order.push(header(&call.head.headers, "x-request-id").unwrap().to_owned());
            call.stream().finish();
        }
        assert_eq!(order, ["first", "fourth", "second", "third"], "{name}");
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_by_the_class_in_its_header_and_never_before_its_tenants() {
    for name in ["x-elasticserve-class", "x-llm-d-inference-objective", "x-gateway-inference-objective"] {
        let (mut gateway, mut backend) = Piped::start(1, |raw| {
            raw.queue.order = Some(Order::Priority);
            raw.queue.classes = Some([("bulk".to_owned(), 3)].into());
            let class = |name: &str, class| RawTenant { class: Some(class), ..tenant(name, "9s") };
            raw.tenants = Some(vec![class("gold", 0), class("batch", 2)]);
        });
        let mut tasks = JoinSet::new();
        let requests =
            [("0", "gold", ""), ("1", "gold", "bulk"), ("2", "batch", "0"), ("3", "gold", "1"), ("4", "gold", "")];
        for (waiting, (id, tenant, class)) in requests.into_iter().enumerate() {
            let client = gateway.client().await;
            let mut request = with(&[("x-elasticserve-tenant", tenant), ("x-request-id", id)]);
            if !class.is_empty() {
                add(&mut request, &[(name, class)]);
            }
            tasks.spawn(async move { client.send(request).await.unwrap().rest().await });
            until("it is in its place", || gateway.queued() == waiting && gateway.in_use() == 1).await;
        }
        let mut order = Vec::new();
        for _ in requests {
            let call = backend.call().await;
            order.push(header(&call.head.headers, "x-request-id").unwrap().to_owned());
            call.stream().finish();
        }
        assert_eq!(order, ["0", "4", "3", "2", "1"], "{name}");
        let (status, code, mut answer) = refused(&mut gateway, with(&[(name, "premium")])).await;
        assert_eq!((status, code.as_str()), (400, "bad_header"));
        drop(answer.rest().await);
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_exact_length_is_taken_at_its_word_and_a_limit_tells_requests_apart() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        predict(raw);
        raw.predict.lengths = None;
        raw.slo.e2e = Some("70ms".into());
    });
    // 8 tokens take 80 ms; so many are declared by the header, or by an engine that is told to go on to the limit.
    let (_, reason, _) = refused(&mut gateway, with(&[("x-elasticserve-output-tokens", "8")])).await;
    assert_eq!(reason, "slo_infeasible");
    let (_, reason, _) = refused(&mut gateway, completion(r#","ignore_eos":true"#)).await;
    assert_eq!(reason, "slo_infeasible");
    // At most 8 may be 2.
    let client = gateway.client().await;
    let (answer, ()) = tokio::join!(client.send(completion("")), async { backend.call().await.stream().finish() });
    assert_eq!(answer.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn limits_that_nothing_can_meet_are_refused_for_good_with_the_configured_status() {
    for (configured, status) in [(None, 422), (Some(422), 422), (Some(429), 429)] {
        let (mut gateway, mut backend) = Piped::start(1, |raw| {
            predict(raw);
            raw.queue.infeasible_status = configured;
            raw.tenants = Some(vec![tenant("strict", "5ms")]);
            raw.slo.e2e = Some("1s".into());
        });
        let strict = ("x-elasticserve-tenant", "strict");
        let (code, reason, answer) = refused(&mut gateway, with(&[strict])).await;
        assert_eq!((code, reason.as_str()), (status, "slo_infeasible"));
        assert_eq!(header(&answer.headers, "x-should-retry"), Some("false"));
        assert!(!answer.headers.contains_key("retry-after"));
        // A request's own limits take the place of its tenant's, looser or tighter.
        let (_, reason, _) = refused(&mut gateway, with(&[("x-slo-e2e-ms", "70")])).await;
        assert_eq!(reason, "slo_infeasible", "8 tokens take 80 ms");
        for fits in [[strict, ("x-llm-d-slo-ttft-ms", "20")], [("x-slo-e2e-ms", "100"), ("x-other", "1")]] {
            let client = gateway.client().await;
            let (answer, ()) = tokio::join!(client.send(with(&fits)), async { backend.call().await.stream().finish() });
            assert_eq!(answer.unwrap().rest().await.0, b"");
            until("the permit is back", || gateway.in_use() == 0).await;
        }
        assert!(!backend.has_call());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_be_late_is_refused_at_arrival_and_one_that_became_late_at_its_latest_start() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        predict(raw);
        raw.queue.order = Some(Order::LeastSlack);
        raw.tenants = Some(vec![tenant("a", "100ms"), tenant("b", "50ms")]);
    });
    let mut tasks = JoinSet::new();
    let first = gateway.client().await;
    tasks.spawn(async move { first.send(with(&[])).await.unwrap().rest().await });
    // It is expected to hold the seat for 80 ms, and does so for ever.
    let running = backend.call().await.stream();
    let started = Instant::now();
    let (status, reason, answer) = refused(&mut gateway, with(&[("x-elasticserve-tenant", "b")])).await;
    assert_eq!((status, reason.as_str(), started.elapsed()), (429, "predicted_late", Duration::ZERO));
    assert!(answer.headers.contains_key("retry-after") && !answer.headers.contains_key("x-should-retry"));
    let (status, reason, _) = refused(&mut gateway, with(&[("x-elasticserve-tenant", "a")])).await;
    assert_eq!((status, reason.as_str()), (429, "queue_expired"));
    let waited = started.elapsed();
    assert!((90..=92).contains(&waited.as_millis()), "a first token takes 10 ms of the 100: {waited:?}");
    running.finish();
    tasks.join_next().await;
    gateway.service.audit().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tighter_limit_of_its_own_lets_a_request_go_no_earlier() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        predict(raw);
        raw.queue.order = Some(Order::LeastSlack);
        raw.tenants = Some(vec![tenant("a", "2s"), tenant("b", "3s")]);
    });
    let mut tasks = JoinSet::new();
    let all = [("a", "3000"), ("a", "2000"), ("b", "1000")];
    for (waiting, (tenant, ttft)) in all.into_iter().enumerate() {
        let client = gateway.client().await;
        let headers =
            [("x-elasticserve-tenant", tenant), ("x-elasticserve-slo-ttft-ms", ttft), ("x-request-id", tenant)];
        tasks.spawn(async move { client.send(with(&headers)).await.unwrap().rest().await });
        until("it is in its place", || gateway.queued() == waiting && gateway.in_use() == 1).await;
    }
    backend.call().await.stream().finish();
    let next = backend.call().await;
    assert_eq!(header(&next.head.headers, "x-request-id"), Some("a"));
    next.stream().finish();
    backend.call().await.stream().finish();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_begun_that_its_client_would_not_wait_for() {
    let (mut gateway, mut backend) = Piped::start(1, predict);
    let patience = ("x-stainless-read-timeout", "0.05");
    let body = r#"{"model":"m","prompt":[1,2,3],"max_tokens":8}"#;
    let mut whole = post("/v1/completions", body);
    add(&mut whole, &[patience]);
    let (_, reason, _) = refused(&mut gateway, whole).await;
    assert_eq!(reason, "slo_infeasible", "80 ms for an answer in one piece");
    // A stream's first bytes come after 10 ms.
    let client = gateway.client().await;
    let (answer, ()) = tokio::join!(client.send(with(&[patience])), async { backend.call().await.stream().finish() });
    assert_eq!(answer.unwrap().status, 200);
}

#[tokio::test]
async fn every_tenant_has_its_figures_and_every_request_its_line_without_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("decisions.ndjson");
    let (gateway, mut backend) = on_sockets(1, |raw| {
        predict(raw);
        raw.tenants = Some(vec![tenant("gold", "20s"), tenant("strict", "1ms")]);
        raw.log.decisions = Some(log.clone());
    })
    .await;
    let (data, admin) = (gateway.data_addr(), gateway.admin_addr());
    let send = move |id: &'static str, tenant: &'static str| async move {
        let body = r#"{"model":"m","prompt":"canary words","max_tokens":8,"stream":true}"#;
        let mut request = post("/v1/completions", body);
        add(&mut request, &[("x-elasticserve-tenant", tenant), ("x-request-id", id)]);
        Client::tcp(data).await.send(request).await.unwrap()
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { send("done", "gold").await.rest().await });
    let responding = backend.call().await.stream();
    for text in ["canary", "answer"] {
        responding.event(&format!(r#"{{"choices":[{{"text":"{text}"}}]}}"#));
    }
    responding.event(r#"{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}"#);
    responding.finish();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(send("refused", "strict").await.status, 422);
    let leaving = {
        tasks.spawn(async move { send("left", "unheard-of").await.rest().await });
        backend.call().await.stream()
    };
    tasks.shutdown().await;
    let service = gateway.service().clone();
    until("the permit is back", || service.load().1 == [(0, 1)]).await;
    drop(leaving);

    let mut metrics = Client::tcp(admin).await.send(get("/metrics")).await.unwrap();
    let text = String::from_utf8(metrics.rest().await.0).unwrap();
    for line in [
        r#"elasticserve_requests_total{tenant="gold",outcome="finished"} 1"#,
        r#"elasticserve_requests_total{tenant="strict",outcome="slo_infeasible"} 1"#,
        r#"elasticserve_requests_total{tenant="default",outcome="client_gone"} 1"#,
        r#"elasticserve_slo_results_total{tenant="gold",result="met"} 1"#,
        r#"elasticserve_slo_results_total{tenant="strict",result="rejected"} 1"#,
        r#"elasticserve_tokens_total{tenant="gold",direction="output"} 2"#,
        r#"elasticserve_ttft_seconds_count{tenant="gold"} 1"#,
        r#"elasticserve_queue_wait_seconds_count{tenant="gold"} 1"#,
        r#"elasticserve_queue_wait_seconds_count{tenant="strict"} 0"#,
        "elasticserve_live_tpot_seconds{pool=\"default\"} 0.01",
        "elasticserve_dropped_decisions_total 0",
    ] {
        assert!(text.contains(line), "{line}\nin\n{text}");
    }
    assert!(!text.contains("unheard-of"), "a client must not make labels");

    gateway.stop().await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("canary") && !text.contains("answer"), "{text}");
    let lines: Vec<Decision> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: &str| lines.iter().find(|d| d.id == id).unwrap();
    assert_eq!(lines.len(), 3);
    let (done, refused, left) = (of("done"), of("refused"), of("left"));
    assert_eq!((done.tenant.as_str(), done.tenant_from.as_str(), done.result.as_str()), ("gold", "header", "met"));
    assert_eq!(
        (done.known.input_from.as_str(), done.known.output, done.known.output_from.as_str()),
        ("estimate", Some(8), "max_tokens")
    );
    assert_eq!(done.known.slo.ttft_ms, Some(20_000.0));
    let predicted = done.predicted.as_ref().unwrap();
    assert_eq!(predicted.tpot_ms, 10.0);
    let slack = predicted.latest_start_ms.unwrap();
    assert!((19_990.0..20_000.0 + PATIENCE_MS).contains(&slack), "{slack}");
    let happened = done.happened.as_ref().unwrap();
    assert_eq!((happened.how.as_str(), happened.output_tokens), ("finished", Some(2)));
    assert!(done.decided.granted && done.decided.at_ms <= happened.ttft_ms.unwrap());
    assert!(happened.ttft_ms.unwrap() <= happened.e2e_ms);
    assert_eq!((refused.decided.granted, refused.decided.reason.as_deref()), (false, Some("slo_infeasible")));
    assert_eq!((refused.happened.is_none(), refused.result.as_str()), (true, "rejected"));
    assert_eq!((left.tenant.as_str(), left.tenant_from.as_str()), ("default", "default"));
    assert!(left.decided.granted && left.result != "met", "{left:?}");
}

/// Between the arrival and the offer on a busy machine.
const PATIENCE_MS: f64 = 20_000.0;
