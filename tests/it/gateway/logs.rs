//! What is logged, and what never is.

use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::backend::Backend;
use crate::support::client::{Client, post};
use crate::support::process::Process;
use crate::support::soon;

const PROMPT: &str = "canary-of-the-prompt";
const ANSWER: &str = "canary-of-the-answer";
const KEY: &str = "canary-of-the-key-0123456789";

/// S11 and S13, on a process at the level of `trace`: 200 requests of which every fifth ends in another way.
#[tokio::test]
async fn no_level_logs_what_is_asked_answered_or_secret_and_each_line_is_a_bounded_object() {
    let (mut backend, addr) = Backend::on_tcp().await;
    let folder = tempfile::tempdir().unwrap();
    let decisions = folder.path().join("decisions.ndjson");
    let text = format!(
        "[[backends]]\nurl = 'http://{addr}'\npermits = 4\n[log]\naccess = true\nlevel = 'info'\ndecisions = '{}'\n\
         [limits]\nbody_bytes = 4000\n",
        decisions.display()
    );
    let gateway = Process::start(&text, &[], &[("RUST_LOG", "trace")]).await;
    let data = gateway.data;
    let (mut scheduled, mut refused) = (0, 0);
    for n in 0..200 {
        let good = format!(r#"{{"model":"m\n\u001b[31m{n}","prompt":"{PROMPT}","stream":true}}"#);
        let body = match n % 5 {
            1 => format!("{{\"prompt\": {PROMPT}"),
            2 => format!(r#"{{"prompt":"{}"}}"#, PROMPT.repeat(300)),
            _ => good,
        };
        let mut request = post("/v1/completions", &body);
        request.headers_mut().insert("authorization", format!("Bearer {KEY}").parse().unwrap());
        request.headers_mut().insert("x-custom", PROMPT.parse().unwrap());
        let mut asking = JoinSet::new();
        let (begun, begins) = tokio::sync::oneshot::channel();
        asking.spawn(async move {
            let mut answer = Client::tcp(data).await.send(request).await.unwrap();
            let _ = begun.send(());
            answer.rest().await
        });
        match n % 5 {
            0 => {
                let streaming = backend.call().await.stream();
                streaming.event(&format!(r#"{{"choices":[{{"text":"{ANSWER}"}}]}}"#));
                streaming.finish();
                scheduled += 1;
            }
            3 => {
                let failing = backend.call().await.respond(400, &[("x-why", ANSWER)]);
                failing.chunk(ANSWER.as_bytes());
                failing.finish();
                scheduled += 1;
            }
            4 => {
                let breaking = backend.call().await.stream();
                breaking.chunk(format!("data: {ANSWER}").as_bytes());
                // Without an answer that has begun, the request would be sent once more.
                soon("the answer begins", begins).await.unwrap();
                breaking.break_off();
                scheduled += 1;
            }
            _ => refused += 1,
        }
        soon(&format!("request {n} ends"), asking.join_next()).await.unwrap().unwrap();
    }
    let metrics = gateway.get("/metrics").await.1;
    let state = gateway.get("/admin/state").await.1;
    gateway.signal("TERM").await;
    let (status, log) = gateway.ended().await;
    assert!(status.success());
    let decisions = std::fs::read_to_string(decisions).unwrap();
    assert_eq!(decisions.lines().count(), scheduled);
    let places =
        [("the log", &log), ("/metrics", &metrics), ("/admin/state", &state), ("the decision log", &decisions)];
    for (place, text) in places {
        for canary in [PROMPT, ANSWER, KEY] {
            assert!(!text.contains(canary), "{canary} is in {place}: {:?}", text.lines().find(|l| l.contains(canary)));
        }
    }
    let mut access = Vec::new();
    for line in log.lines() {
        assert!(line.len() < 2048, "{line}");
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        if event["target"] == "elasticserve::access" {
            access.push(event);
        }
    }
    assert_eq!(access.len(), scheduled + refused);
    let finished: Vec<&Value> = access.iter().filter(|line| line["outcome"] == "finished").collect();
    assert_eq!(finished.len(), 40);
    let line = finished[0];
    assert_eq!((&line["status"], &line["slo"], &line["tenant"]), (&200.into(), &"met".into(), &"default".into()));
    assert!(line["model"].as_str().unwrap().starts_with("m\n\u{1b}[31m"), "{line}");
    assert!(line["ttft_ms"].as_f64() <= line["e2e_ms"].as_f64() && line["queue_ms"].is_number(), "{line}");
    assert!(access.iter().any(|line| line["outcome"] == "bad_body" && line["status"] == 400));
    assert!(access.iter().any(|line| line["outcome"] == "backend_failed"));
}
