//! Running work whose deadline is lost: it goes on, or is cut, as its tenant wants it.

use std::net::Ipv4Addr;
use std::time::Duration;

use elasticserve_core::outcome::How;
use elasticserve_core::sched::OnMiss;
use elasticserve_gateway::config::{RawConfig, RawSlo, RawTenant};
use elasticserve_gateway::decisions::Decision;
use elasticserve_mock::{MockConfig, Server};
use tokio::time::{Instant, sleep};

use crate::support::backend::header;
use crate::support::client::{Client, completion, get, post};
use crate::support::gateway::{Piped, on_sockets, settings};
use crate::support::until;

const TOKEN: &str = r#"{"choices":[{"text":"a"}]}"#;

/// A first token within 300 ms, the end within 1 s.
fn limited(on_miss: OnMiss) -> impl Fn(&mut RawConfig) {
    move |raw| {
        let slo = Some(RawSlo { ttft: Some("300ms".into()), e2e: Some("1s".into()), tpot: None });
        raw.tenants =
            Some(vec![RawTenant { name: "default".into(), slo, on_miss: Some(on_miss), ..RawTenant::default() }]);
    }
}

fn aborted(gateway: &Piped) -> u64 {
    gateway.service.totals().released.get(&How::Aborted).copied().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_deadline_is_lost_is_cut_with_an_error_event_and_its_backend_is_told_by_the_close() {
    let (mut gateway, mut backend) = Piped::start(1, limited(OnMiss::Abort));
    let client = gateway.client().await;
    let started = Instant::now();
    let (answer, mut responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
    let mut answer = answer.unwrap();
    responding.event(TOKEN);
    answer.chunk().await.unwrap().unwrap();
    let (bytes, whole) = answer.rest().await;
    let lost = started.elapsed();
    assert!((1000..1005).contains(&lost.as_millis()), "{lost:?}");
    let text = String::from_utf8(bytes).unwrap();
    assert!(!whole && text.contains("\"deadline_lost\"") && !text.contains("[DONE]"), "{whole} {text}");
    responding.abandoned().await;
    assert_eq!((gateway.in_use(), aborted(&gateway), started.elapsed()), (0, 1, lost));
    gateway.service.audit().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_first_token_in_time_is_cut_and_told_not_to_come_back_with_the_same() {
    let (mut gateway, mut backend) = Piped::start(1, limited(OnMiss::Abort));
    let client = gateway.client().await;
    let started = Instant::now();
    let (answer, mut call) = tokio::join!(client.send(completion("")), async { backend.call().await });
    let mut answer = answer.unwrap();
    let lost = started.elapsed();
    assert!((300..305).contains(&lost.as_millis()), "{lost:?}");
    assert_eq!(answer.status, 504);
    assert_eq!(answer.json().await["error"]["code"], "deadline_lost");
    assert_eq!(header(&answer.headers, "x-should-retry"), Some("false"));
    call.abandoned().await;
    assert_eq!((gateway.in_use(), aborted(&gateway)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn work_that_may_finish_does_whatever_its_deadline() {
    let (mut gateway, mut backend) = Piped::start(1, limited(OnMiss::Finish));
    let client = gateway.client().await;
    let (answer, responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
    sleep(Duration::from_secs(3)).await;
    responding.event(TOKEN);
    responding.finish();
    assert!(answer.unwrap().rest().await.1);
    until("the permit is back", || gateway.in_use() == 0).await;
    assert_eq!(aborted(&gateway), 0);
}

#[tokio::test(start_paused = true)]
async fn what_ends_in_time_is_not_cut_and_an_answer_in_one_piece_has_no_first_token_to_lose() {
    let (mut gateway, mut backend) = Piped::start(1, limited(OnMiss::Abort));
    let client = gateway.client().await;
    let whole = post("/v1/completions", r#"{"prompt":[1],"max_tokens":8}"#);
    let answering = async {
        let call = backend.call().await;
        sleep(Duration::from_millis(900)).await;
        call.json(r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#);
    };
    let (answer, ()) = tokio::join!(client.send(whole), answering);
    let mut answer = answer.unwrap();
    assert_eq!((answer.status.as_u16(), answer.rest().await.1), (200, true));
    sleep(Duration::from_secs(2)).await;
    assert_eq!((gateway.in_use(), aborted(&gateway)), (0, 0));
}

#[tokio::test]
async fn a_cut_request_frees_its_seat_in_the_engine_and_is_counted_and_written_down() {
    let profile = elasticserve_core::engine::Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    let config = MockConfig { profile, speed: 1.0, model: None, max_model_len: 8192 };
    let mock = Server::bind(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("d.ndjson");
    let mut raw = settings(&mock.addr().to_string(), 1);
    limited(OnMiss::Abort)(&mut raw);
    raw.tenants.as_mut().unwrap()[0].slo = Some(RawSlo { e2e: Some("1s".into()), ..RawSlo::default() });
    raw.log.decisions = Some(log.clone());
    let gateway = elasticserve_gateway::Gateway::start(raw.check().unwrap()).await.unwrap();
    let body = r#"{"prompt":"x","max_tokens":4000,"ignore_eos":true,"stream":true}"#;
    let mut answer = Client::tcp(gateway.data_addr()).await.send(post("/v1/completions", body)).await.unwrap();
    let (bytes, whole) = answer.rest().await;
    assert!(!whole && String::from_utf8(bytes).unwrap().contains("deadline_lost"));
    // 4,000 tokens would take minutes.
    mock.watch().wait_for(|s| s.engine.running == 0 && s.finished.abort == 1).await.unwrap();
    let service = gateway.service().clone();
    until("the permit is back", || service.load().1 == [(0, 1)]).await;
    let mut metrics = Client::tcp(gateway.admin_addr()).await.send(get("/metrics")).await.unwrap();
    let text = String::from_utf8(metrics.rest().await.0).unwrap();
    for line in [
        r#"elasticserve_requests_total{tenant="default",outcome="aborted"} 1"#,
        r#"elasticserve_slo_results_total{tenant="default",result="missed"} 1"#,
    ] {
        assert!(text.contains(line), "{line}\nin\n{text}");
    }
    gateway.stop().await;
    let line: Decision = serde_json::from_str(std::fs::read_to_string(&log).unwrap().trim()).unwrap();
    let happened = line.happened.unwrap();
    assert_eq!((happened.how.as_str(), line.result.as_str()), ("aborted", "missed"));
    assert!(happened.output_tokens.is_some_and(|n| n > 0));
    assert_eq!((line.known.output, line.known.output_from.as_str()), (Some(4000), "ignore_eos"));
    mock.shutdown().await;
}

#[tokio::test]
async fn what_the_shadow_decides_is_counted_by_tenant_and_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("d.ndjson");
    // The shadow lets nothing wait.
    let (gateway, mut backend) = on_sockets(1, |raw| {
        raw.queue.shadow = Some("fcfs+budget:0".into());
        raw.tenants = Some(vec![RawTenant { name: "gold".into(), ..RawTenant::default() }]);
        raw.log.decisions = Some(log.clone());
    })
    .await;
    let addr = gateway.data_addr();
    let send = move |id: &'static str| async move {
        let mut request = completion("");
        request.headers_mut().insert("x-elasticserve-tenant", "gold".parse().unwrap());
        request.headers_mut().insert("x-request-id", id.parse().unwrap());
        Client::tcp(addr).await.send(request).await.unwrap().rest().await
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(send("first"));
    let first = backend.call().await.stream();
    tasks.spawn(send("second"));
    let service = gateway.service().clone();
    until("the second waits", || service.load().0 == 1).await;
    first.finish();
    backend.call().await.stream().finish();
    while let Some(done) = tasks.join_next().await {
        assert!(done.unwrap().1);
    }
    until("the permits are back", || service.load().1 == [(0, 1)]).await;
    let mut metrics = Client::tcp(gateway.admin_addr()).await.send(get("/metrics")).await.unwrap();
    let text = String::from_utf8(metrics.rest().await.0).unwrap();
    for (live, shadow, count) in
        [("admitted", "admitted", 1), ("admitted", "refused", 1), ("refused", "admitted", 0), ("refused", "refused", 0)]
    {
        let line = format!(
            r#"elasticserve_shadow_decisions_total{{pool="default",tenant="gold",live="{live}",shadow="{shadow}"}} {count}"#
        );
        assert!(text.contains(&line), "{line}\nin\n{text}");
    }
    gateway.stop().await;
    let text = std::fs::read_to_string(&log).unwrap();
    let words: Vec<(String, String)> = text
        .lines()
        .map(|line| serde_json::from_str::<Decision>(line).unwrap())
        .map(|d| (d.id, d.shadow.unwrap().decided))
        .collect();
    assert_eq!(words, [("first".into(), "granted".into()), ("second".into(), "refused".into())]);
}
