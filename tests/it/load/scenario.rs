//! A scenario file as a run: what the server gets, and what the manifest says.

use std::process::{Command, Stdio};

use elasticserve_core::ledger::Manifest;
use elasticserve_core::time::Span;

use super::server::{Server, answer};

const SCENARIO: &str = r#"
name = "two-tenants"
seed = 3
requests = 20
arrivals = { pattern = "constant", rate = 200 }
lengths = { input = 16, output = 2 }
slo = { ttft = "30s" }

[[tenants]]
name = "gold"
share = 1
class = "interactive"
key_env = "SCENARIO_GOLD_KEY"
headers = { x-team = "search" }
slo = { ttft = "20s", e2e = "40s" }

[[tenants]]
name = "batch"
share = 1

[target]
model = "m"
endpoint = "chat"
send_slo = true
headers = { x-team = "none", x-run = "7" }
extra_body = { top_p = 0.5, stop = ["END"] }

[run]
warmups = 2
drain = "33s"
idle_timeout = "44s"
max_send_lag = "60s"
max_client_cpu = 1.0

[metadata]
gpu = "none"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scenario_says_what_is_sent_and_flags_win_over_it() {
    let server = Server::start(|_| answer()).await;
    let folder = tempfile::tempdir().unwrap();
    let (run, file) = (folder.path().join("run"), folder.path().join("scenario.toml"));
    std::fs::write(&file, SCENARIO).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.args(["load", "--url", &format!("http://{}", server.addr), "--scenario", file.to_str().unwrap()]);
    command.args(["--idle-timeout", "55", "--header", "x-run=8", "--result-dir", run.to_str().unwrap()]);
    command.env("SCENARIO_GOLD_KEY", "sk-gold").env("OPENAI_API_KEY", "sk-all").env_remove("OPENAI_BASE_URL");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));

    let received = server.received();
    assert_eq!(received.iter().filter(|r| r.is_warmup()).count(), 2);
    let (gold, batch): (Vec<_>, Vec<_>) =
        received.iter().partition(|r| r.header("authorization") == Some("Bearer sk-gold"));
    assert!(!gold.is_empty() && !batch.is_empty());
    for request in &gold {
        assert_eq!(request.header("x-elasticserve-class"), Some("interactive"));
        assert_eq!((request.header("x-team"), request.header("x-run")), (Some("search"), Some("8")));
        assert_eq!(request.header("x-elasticserve-tenant"), None, "its key says whose it is");
        assert_eq!(request.header("x-elasticserve-slo-e2e-ms"), Some("40000"));
    }
    for request in &batch {
        assert_eq!((request.header("x-elasticserve-class"), request.header("x-team")), (None, Some("none")));
        assert_eq!(request.header("authorization"), Some("Bearer sk-all"));
        assert_eq!(request.header("x-elasticserve-tenant"), Some("batch"));
        assert_eq!(request.header("x-elasticserve-slo-ttft-ms"), Some("30000"));
    }
    for request in &received {
        assert!(request.head.starts_with("POST /v1/chat/completions "), "{}", request.head);
        let body = request.json();
        assert_eq!((&body["top_p"], &body["stop"][0], &body["model"]), (&0.5.into(), &"END".into(), &"m".into()));
    }
    let manifest = std::fs::read_to_string(run.join("manifest.json")).unwrap();
    assert!(!manifest.contains("sk-"), "keys are written nowhere");
    let manifest: Manifest = serde_json::from_str(&manifest).unwrap();
    assert_eq!((manifest.name.as_str(), manifest.warmups), ("two-tenants", 2));
    assert_eq!((manifest.timeouts.drain, manifest.timeouts.idle), (Span::from_secs(33), Span::from_secs(55)));
    assert_eq!(manifest.metadata["gpu"], "none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_whose_key_is_not_in_the_environment_is_refused_before_anything_is_sent() {
    let server = Server::start(|_| answer()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, SCENARIO).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.args(["load", "--url", &format!("http://{}", server.addr), "--scenario", file.to_str().unwrap()]);
    command.args(["--result-dir", folder.path().join("run").to_str().unwrap()]);
    command.env_remove("SCENARIO_GOLD_KEY").stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{message}");
    assert!(message.contains("'gold'") && message.contains("SCENARIO_GOLD_KEY"), "{message}");
    assert_eq!(server.received().len(), 0);
}
