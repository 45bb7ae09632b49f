//! What operators change on the admin listener.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::backend::Backend;
use crate::support::client::{Client, completion, get, post};
use crate::support::process::Process;
use crate::support::soon;

async fn started() -> (Process, Backend) {
    let (backend, addr) = Backend::on_tcp().await;
    let text = format!(
        "[[backends]]\nurl = 'http://{addr}'\npermits = 1\n[queue]\norder = 'wfq'\n\
         [[tenants]]\nname = 'gold'\n[[tenants]]\nname = 'batch'\n[reload]\nwatch = false\n"
    );
    let gateway = Process::start(&text, &[], &[]).await;
    // From its first probe on the state stands still.
    gateway.until_metric(&format!("elasticserve_backend_up{{pool=\"default\",backend=\"{addr}\"}}"), 1.0).await;
    (gateway, backend)
}

fn read(answer: &(u16, String)) -> Value {
    serde_json::from_str(&answer.1).unwrap()
}

#[tokio::test]
async fn changes_are_in_effect_at_once_shown_and_lost_at_the_next_reload() {
    let (gateway, _backend) = started().await;
    let before = read(&gateway.get("/admin/state").await);
    assert_eq!((before["policy"].as_str(), before["tenants"][0]["weight"].as_u64()), (Some("wfq"), Some(1)));

    let changed = gateway.post("/admin/tenants/gold", r#"{"weight": 7, "max_permits": 3}"#).await;
    assert_eq!(changed.0, 200, "{}", changed.1);
    let state = read(&changed);
    assert_eq!(
        state["tenants"][0],
        json!({
            "name": "gold", "weight": 7, "max_permits": 3, "queued": 0, "queued_bytes": 0, "permits_in_use": 0
        })
    );
    let policy = r#"{"policy": "least-slack+predict", "profile": "gb10-qwen3-8b-fp8"}"#;
    let state = read(&gateway.post("/admin/policy", policy).await);
    assert_eq!(state["policy"], "least-slack+predict");
    assert_eq!(
        state["config"]["changed"],
        json!(["tenants.gold: weight = 7, max_permits = 3", "policy = least-slack+predict"])
    );
    assert_ne!(state["config"]["hash"], before["config"]["hash"]);
    let (status, toml) = gateway.get("/admin/config").await;
    assert!(status == 200 && toml.contains("weight = 7") && toml.contains("order = \"least-slack\""), "{toml}");

    let state = read(&gateway.post("/admin/reload", "").await);
    assert_eq!(
        state["config"],
        json!({
            "hash": before["config"]["hash"], "last_reload": "ok", "changed": []
        })
    );
    assert_eq!((state["policy"].as_str(), state["tenants"][0]["weight"].as_u64()), (Some("wfq"), Some(1)));
}

#[tokio::test]
async fn what_a_file_may_not_say_an_operator_may_not_either_and_nothing_changes() {
    let (gateway, _backend) = started().await;
    let before = read(&gateway.get("/admin/state").await);
    for (path, body, status, says) in [
        ("/admin/tenants/gold", r#"{"weight": 0}"#, 422, "tenants[0].weight"),
        ("/admin/tenants/gilt", r#"{"weight": 1}"#, 422, "gold, batch"),
        ("/admin/tenants/gold", r#"{"wieght": 1}"#, 400, "weight"),
        ("/admin/tenants/gold", r#"{"weight": -1}"#, 400, "u32"),
        ("/admin/policy", r#"{"policy": "lifo"}"#, 422, "fcfs"),
        ("/admin/policy", r#"{"policy": "wfq+predict"}"#, 422, "predict.profile"),
        ("/admin/policy", r#"{"policy": "wfq", "profile": "h100"}"#, 422, "gb10-qwen3-8b-fp8"),
        ("/admin/policy", "policy", 400, "body"),
        ("/admin/tenants", "{}", 404, "/admin/tenants/NAME"),
        ("/admin/state", "{}", 405, "GET"),
    ] {
        let answer = gateway.post(path, body).await;
        assert!(answer.0 == status && answer.1.contains(says), "{path} {body}: {answer:?}");
    }
    assert_eq!(gateway.get("/admin/reload").await.0, 405);
    assert_eq!(read(&gateway.get("/admin/state").await), before);
}

#[tokio::test]
async fn a_page_in_a_browser_on_the_same_machine_can_change_nothing() {
    let (gateway, _backend) = started().await;
    // A name that the page's owner points at this machine, and a request that a browser sends without asking first.
    for host in ["evil.example", "evil.example:9090", ""] {
        let mut request = post("/admin/drain", "{}");
        request.headers_mut().insert("host", host.parse().unwrap());
        let answer = Client::tcp(gateway.admin).await.send(request).await.unwrap();
        assert!([400, 403].contains(&answer.status.as_u16()), "{host}: {}", answer.status);
    }
    let mut simple = post("/admin/drain", "{}");
    simple.headers_mut().insert("host", "127.0.0.1:9090".parse().unwrap());
    simple.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    assert_eq!(Client::tcp(gateway.admin).await.send(simple).await.unwrap().status, 415);
    assert_ne!(gateway.get("/readyz").await.1, "draining\n");
}

#[tokio::test]
async fn with_a_token_only_who_shows_it_may_ask_and_probes_need_none() {
    let token = "esk-operators-token-0123456789";
    let digest = elasticserve_gateway::secret::Secret::new(token).unwrap().digest();
    let (_backend, addr) = Backend::on_tcp().await;
    let text = format!("admin_token_sha256 = '{digest}'\n[[backends]]\nurl = 'http://{addr}'\n");
    let gateway = Process::start(&text, &[], &[]).await;
    for (shown, status) in [
        (None, 401),
        (Some(format!("Bearer {token}x")), 401),
        (Some(token.to_owned()), 401),
        (Some(format!("Basic {token}")), 401),
        (Some(format!("Bearer {digest}")), 401),
        (Some(format!("Bearer {token}")), 200),
    ] {
        let mut request = get("/admin/state");
        shown.iter().for_each(|shown| _ = request.headers_mut().insert("authorization", shown.parse().unwrap()));
        assert_eq!(Client::tcp(gateway.admin).await.send(request).await.unwrap().status, status, "{shown:?}");
    }
    for path in ["/livez", "/metrics"] {
        assert_eq!(gateway.get(path).await.0, 200);
    }
    let config = elasticserve_gateway::config::RawConfig::from_toml;
    let open = "admin = '0.0.0.0:9090'\n[[backends]]\nurl = 'http://h:1'\n";
    let refused = config(open).unwrap().check().unwrap_err().to_string();
    assert!(refused.starts_with("admin: ") && refused.contains("admin_token_sha256"), "{refused}");
    assert!(config(&format!("admin_api = false\n{open}")).unwrap().check().is_ok());
    assert!(config(&format!("admin_token_sha256 = '{digest}'\n{open}")).unwrap().check().is_ok());
}

/// S20.
#[tokio::test]
async fn the_data_port_knows_nothing_of_the_admin_paths_however_they_are_written() {
    let (gateway, mut backend) = started().await;
    for path in [
        "/admin/state",
        "/admin/config",
        "/admin/",
        "/admin",
        "/metrics",
        "/livez",
        "/readyz",
        "/debug",
        "/%61dmin/state",
        "//admin/state",
        "/v1/../admin/state",
        "/admin%2fstate",
        "/./metrics",
        "/metrics;a=b",
        "/ADMIN/state",
        "/v1/models/../../metrics",
        "/metrics/",
        "/admin/state?x=1",
        "/%2e/metrics",
        "/.%2e/admin/state",
    ] {
        for request in [get(path), post(path, "{}")] {
            let method = request.method().clone();
            let sending = Client::tcp(gateway.data).await.send(request);
            let answer = soon("it is answered without a backend", sending).await.unwrap();
            // One of them is a way of writing a model's name.
            let passed = path.starts_with("/v1/models/");
            assert!(answer.status == 404 || passed && answer.status == 405, "{method} {path}: {}", answer.status);
            if passed {
                break;
            }
        }
    }
    // What reaches the backend first, beside probes, is what is asked for now.
    let data = gateway.data;
    let mut asking = JoinSet::new();
    asking.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().status });
    let call = backend.call().await;
    assert_eq!(call.head.uri.path(), "/v1/completions");
    call.json("{}");
}

#[tokio::test]
async fn an_operator_can_end_it_as_a_signal_does() {
    let (gateway, mut backend) = started().await;
    let data = gateway.data;
    let mut running = JoinSet::new();
    running.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
    let streaming = backend.call().await.stream();
    streaming.event("{}");
    assert_eq!(gateway.post("/admin/drain", "{}").await.0, 200);
    soon("it says that it goes", async { while gateway.get("/readyz").await.0 != 503 {} }).await;
    let refused = Client::tcp(data).await.send(completion("")).await.unwrap();
    assert_eq!(refused.status, 503);
    streaming.event("[DONE]");
    streaming.finish();
    assert!(soon("the stream ends", running.join_next()).await.unwrap().unwrap().1);
    assert!(gateway.ended().await.0.success());
}

#[tokio::test]
async fn a_backend_gets_other_permits_or_no_new_work_until_it_may_have_some_again() {
    let (gateway, mut backend) = started().await;
    let name = read(&gateway.get("/admin/state").await)["pools"][0]["backends"][0]["name"].as_str().unwrap().to_owned();
    let path = format!("/admin/backends/{name}");
    let data = gateway.data;
    let ask = || {
        let mut asking = JoinSet::new();
        asking.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().status });
        asking
    };
    let (mut first, mut second) = (ask(), ask());
    let running = backend.call().await;
    gateway.until_metric("elasticserve_queue_depth{pool=\"default\"}", 1.0).await;
    let state = read(&gateway.post(&path, r#"{"permits": 2}"#).await);
    assert_eq!(state["pools"][0]["backends"][0]["permits"], 2);
    backend.call().await.json("{}");

    let state = read(&gateway.post(&path, r#"{"drain": true}"#).await);
    assert_eq!(state["pools"][0]["backends"][0]["permits"], 0);
    assert_eq!(soon("no new work is taken", ask().join_next()).await.unwrap().unwrap(), 503);
    running.json("{}");
    for asked in [&mut first, &mut second] {
        assert_eq!(soon("what ran is answered", asked.join_next()).await.unwrap().unwrap(), 200);
    }
    assert_eq!(gateway.post(&path, r#"{"drain": false}"#).await.0, 200);
    let mut again = ask();
    backend.call().await.json("{}");
    assert_eq!(soon("it takes work again", again.join_next()).await.unwrap().unwrap(), 200);
    let unknown = gateway.post("/admin/backends/h:1", r#"{"permits": 2}"#).await;
    assert!(unknown.0 == 422 && unknown.1.contains(&name), "{unknown:?}");
}
