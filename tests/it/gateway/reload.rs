//! Another configuration while requests wait and run.

use std::time::Duration;

use elasticserve_gateway::Why;
use tokio::task::JoinSet;

use crate::support::backend::Backend;
use crate::support::client::{Client, completion};
use crate::support::process::Process;
use crate::support::soon;

fn text(backend: std::net::SocketAddr, permits: u32, gold: u32) -> String {
    format!(
        "[[backends]]\nurl = 'http://{backend}'\npermits = {permits}\n[queue]\norder = 'wfq'\n\
         [[tenants]]\nname = 'gold'\nweight = {gold}\n[[tenants]]\nname = 'batch'\n[reload]\nwatch = false\n"
    )
}

/// R30, on a process: 20 reloads that work and 20 that are refused, around one stream that lives through all of them.
#[tokio::test]
async fn forty_signals_to_reload_drop_no_stream_and_each_that_is_right_holds_from_the_next_decision_on() {
    let (mut backend, addr) = Backend::on_tcp().await;
    let gateway = Process::start(&text(addr, 1, 1), &[], &[]).await;
    let mut long = JoinSet::new();
    let data = gateway.data;
    long.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
    let streaming = backend.call().await.stream();
    let mut reloads = 0;
    for trial in 0..20 {
        let mut waiting = JoinSet::new();
        waiting.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
        gateway.until_metric("elasticserve_queue_depth{pool=\"default\"}", 1.0).await;

        gateway.write(&text(addr, 2, 3).replace("weight", "wieght"));
        gateway.signal("HUP").await;
        gateway.until_metric("elasticserve_config_reload_failures_total", f64::from(trial + 1)).await;
        assert_eq!(gateway.metric("elasticserve_config_last_reload_successful").await, Some(0.0));
        assert_eq!(
            gateway.metric("elasticserve_queue_depth{pool=\"default\"}").await,
            Some(1.0),
            "what was in effect still is"
        );
        streaming.event(r#"{"choices":[{"text":"a"}]}"#);

        gateway.write(&text(addr, 2, 3 + trial));
        gateway.signal("HUP").await;
        // The new permit goes to what waited before the reload.
        let granted = backend.call().await;
        reloads += 1;
        gateway.until_metric("elasticserve_config_reloads_total", f64::from(reloads)).await;
        assert_eq!(gateway.metric("elasticserve_config_last_reload_successful").await, Some(1.0));
        granted.json("{}");
        assert_eq!(soon("it is answered", waiting.join_next()).await.unwrap().unwrap(), (b"{}".to_vec(), true));

        gateway.write(&text(addr, 1, 1));
        gateway.signal("HUP").await;
        reloads += 1;
        gateway.until_metric("elasticserve_config_reloads_total", f64::from(reloads)).await;
    }
    streaming.event("[DONE]");
    streaming.finish();
    let (bytes, ended) = soon("the stream ends", long.join_next()).await.unwrap().unwrap();
    assert!(ended && bytes.windows(5).filter(|w| w == b"data:").count() == 21);
    let state: serde_json::Value = serde_json::from_str(&gateway.get("/admin/state").await.1).unwrap();
    assert_eq!(state["config"]["last_reload"], "ok");
    assert!(gateway.metric(&format!("elasticserve_config_active{{hash={}}}", state["config"]["hash"])).await.is_some());
}

#[tokio::test]
async fn a_change_of_a_file_is_noticed_also_behind_a_link_and_a_wrong_one_is_shown() {
    let (_backend, addr) = Backend::on_tcp().await;
    let watched = |permits| text(addr, permits, 1).replace("watch = false", "watch = true");
    let gateway = Process::start(&watched(1), &[], &[]).await;
    // As Kubernetes mounts a ConfigMap: the file is a link, and what it leads to is replaced.
    let (first, second) = (gateway.folder().join("v1.toml"), gateway.folder().join("v2.toml"));
    std::fs::write(&first, watched(5)).unwrap();
    std::fs::remove_file(&gateway.file).unwrap();
    std::os::unix::fs::symlink(&first, &gateway.file).unwrap();
    let until_permits = async |n: u32| {
        let wanted = format!("\npermits = {n}\n");
        soon("other permits are in effect", async { while !gateway.get("/admin/config").await.1.contains(&wanted) {} })
            .await;
    };
    until_permits(5).await;
    std::fs::write(&second, watched(6)).unwrap();
    std::fs::remove_file(&gateway.file).unwrap();
    std::os::unix::fs::symlink(&second, &gateway.file).unwrap();
    until_permits(6).await;

    std::fs::write(&second, format!("listen = '127.0.0.1:1'\nadmin = '127.0.0.1:2'\n{}", watched(7))).unwrap();
    // Flags win over the file, so this one is right; what follows is not.
    until_permits(7).await;
    std::fs::write(&second, watched(8) + "[log]\ndecisions = 'd.ndjson'\n").unwrap();
    gateway.until_metric("elasticserve_config_last_reload_successful", 0.0).await;
    let state: serde_json::Value = serde_json::from_str(&gateway.get("/admin/state").await.1).unwrap();
    assert_eq!(state["config"]["needs_restart"], serde_json::json!(["log.decisions"]));
    assert!(state["config"]["error"].as_str().unwrap().contains("restart"));
    until_permits(7).await;
}

#[tokio::test]
async fn tenants_that_come_and_go_take_nothing_from_what_waits_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.toml");
    let (mut backend, dial) = Backend::on_pipes();
    let write = |names: &[&str]| {
        let tenants: String = names.iter().map(|n| format!("[[tenants]]\nname = '{n}'\n")).collect();
        std::fs::write(&file, format!("[[backends]]\nurl = 'http://b:1'\npermits = 1\n{tenants}")).unwrap();
    };
    write(&["a", "b"]);
    let path = file.clone();
    let read = move || elasticserve_gateway::config::RawConfig::from_file(&path)?.check();
    let service = elasticserve_gateway::Service::from_source(std::sync::Arc::new(read), dial).unwrap();
    let mut tasks = JoinSet::new();
    let mut ask = |tenant: &str| {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let serving = service.clone();
        tasks.spawn(async move { serving.serve(theirs).await });
        let mut request = completion("");
        request.headers_mut().insert("x-elasticserve-tenant", tenant.parse().unwrap());
        let mut asking = JoinSet::new();
        asking.spawn(async move { Client::over(ours).await.send(request).await.unwrap().rest().await });
        asking
    };
    let mut running = ask("a");
    let first = backend.call().await;
    let mut waiting = ask("b");
    crate::support::until("one waits", || service.load().0 == 1).await;
    write(&["c"]);
    service.reload(Why::Signal).unwrap();
    let mut newcomer = ask("c");
    crate::support::until("two wait", || service.load().0 == 2).await;
    first.json("{}");
    backend.call().await.json("{}");
    backend.call().await.json("{}");
    for asked in [&mut running, &mut waiting, &mut newcomer] {
        assert!(soon("it is answered", asked.join_next()).await.unwrap().unwrap().1);
    }
    service.audit().unwrap();
    assert_eq!(service.totals().granted, 3);
}

#[tokio::test]
async fn the_service_manager_is_told_of_readiness_reloads_the_end_and_life_in_between() {
    let (_backend, addr) = Backend::on_tcp().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = tokio::net::UnixDatagram::bind(&path).unwrap();
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "20000")];
    let gateway = Process::start(&text(addr, 1, 1), &[], &variables).await;
    let heard = async |wanted: &str| {
        soon(wanted, async {
            loop {
                let mut buffer = [0; 256];
                let size = socket.recv(&mut buffer).await.unwrap();
                let said = String::from_utf8(buffer[..size].to_vec()).unwrap();
                if said.starts_with(wanted) {
                    return said;
                }
                assert!(said.starts_with("WATCHDOG=1"), "{said} came before {wanted}");
            }
        })
        .await
    };
    heard("READY=1").await;
    heard("WATCHDOG=1").await;
    gateway.signal("HUP").await;
    let reloading = heard("RELOADING=1\nMONOTONIC_USEC=").await;
    let usec: u64 = reloading.rsplit('=').next().unwrap().parse().unwrap();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let now: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    assert!((now - usec as f64 / 1e6).abs() < Duration::from_secs(3600).as_secs_f64(), "{usec} against {now}");
    heard("READY=1").await;
    gateway.signal("TERM").await;
    heard("STOPPING=1").await;
    assert!(gateway.ended().await.0.success());
}
