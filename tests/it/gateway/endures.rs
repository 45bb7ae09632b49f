//! What a gateway outlives: a configuration that vanishes, a full disk, readers of its output that are gone.

use tokio::task::JoinSet;

use crate::support::backend::Backend;
use crate::support::client::{Client, completion};
use crate::support::process::Process;
use crate::support::soon;

const ANSWER: &str = r#"{"choices":[{"text":"a"}]}"#;

/// Sends so many requests, one after the other, and sees each answered whole.
async fn serves(gateway: &Process, backend: &mut Backend, count: usize) {
    for _ in 0..count {
        let (data, mut asking) = (gateway.data, JoinSet::new());
        asking.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
        backend.call().await.json(ANSWER);
        let answer = soon("it is answered", asking.join_next()).await.unwrap().unwrap();
        assert_eq!(answer, (ANSWER.as_bytes().to_vec(), true));
    }
}

#[tokio::test]
async fn a_configuration_that_vanishes_changes_nothing_and_one_that_comes_back_is_read() {
    let (mut backend, addr) = Backend::on_tcp().await;
    for watch in [false, true] {
        let text = |permits: u32| {
            format!("[[backends]]\nurl = 'http://{addr}'\npermits = {permits}\n[reload]\nwatch = {watch}\n")
        };
        let gateway = Process::start(&text(3), &[], &[]).await;
        std::fs::remove_file(&gateway.file).unwrap();
        if !watch {
            gateway.signal("HUP").await;
        }
        gateway.until_metric("elasticserve_config_reload_failures_total", 1.0).await;
        let state: serde_json::Value = serde_json::from_str(&gateway.get("/admin/state").await.1).unwrap();
        let error = state["config"]["error"].as_str().unwrap();
        assert!(error.contains("gateway.toml") && error.contains("No such file"), "{error}");
        serves(&gateway, &mut backend, 3).await;
        let permits = format!("elasticserve_permits{{pool=\"default\",backend=\"{addr}\"}}");
        assert_eq!(gateway.metric(&permits).await, Some(3.0));

        gateway.write(&text(5));
        if !watch {
            gateway.signal("HUP").await;
        }
        gateway.until_metric(&permits, 5.0).await;
        gateway.until_metric("elasticserve_config_last_reload_successful", 1.0).await;
    }
}

#[tokio::test]
async fn logs_on_a_full_disk_cost_lines_and_no_request() {
    const REQUESTS: usize = 50;
    let (mut backend, addr) = Backend::on_tcp().await;
    // Every write to this file fails for want of room.
    let text = format!("[[backends]]\nurl = 'http://{addr}'\n[log]\naccess = true\ndecisions = '/dev/full'\n");
    let gateway = Process::start_by("exec \"$0\" \"$@\" 2>/dev/full", &text, false).await;
    serves(&gateway, &mut backend, REQUESTS).await;
    gateway.until_metric("elasticserve_dropped_decisions_total", REQUESTS as f64).await;
    serves(&gateway, &mut backend, 1).await;
    gateway.signal("TERM").await;
    assert!(gateway.ended().await.0.success());
}

#[tokio::test]
async fn whoever_read_its_output_may_go_and_it_goes_on() {
    let (mut backend, addr) = Backend::on_tcp().await;
    let text = format!("[[backends]]\nurl = 'http://{addr}'\n[log]\naccess = true\nlevel = 'debug'\n");
    // The end of its stdout is dropped once it has said where it listens, that of its stderr before.
    let gateway = Process::start_by("exec \"$0\" \"$@\"", &text, false).await;
    serves(&gateway, &mut backend, 20).await;
    gateway.signal("HUP").await;
    gateway.until_metric("elasticserve_config_reloads_total", 1.0).await;
    serves(&gateway, &mut backend, 20).await;
    gateway.signal("TERM").await;
    assert!(gateway.ended().await.0.success());
}
