//! Drain and stop.

use std::time::Duration;

use elasticserve_gateway::Drained;
use tokio::task::JoinSet;

use crate::support::backend::header;
use crate::support::client::{Client, completion};
use crate::support::gateway::on_sockets;
use crate::support::until;

#[tokio::test]
async fn a_drain_lets_streams_finish_and_refuses_what_waits_and_what_comes() {
    let (gateway, mut backend) = on_sockets(1, |_| {}).await;
    let addr = gateway.data_addr();
    let service = gateway.service().clone();
    let mut running = JoinSet::new();
    running.spawn(async move { Client::tcp(addr).await.send(completion("")).await.unwrap().rest().await });
    let responding = backend.call().await.stream();
    responding.event(r#"{"choices":[{"text":"a"}]}"#);
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { Client::tcp(addr).await.send(completion("")).await.unwrap() });
    until("one request waits", || service.load().0 == 1).await;

    let mut stopping = JoinSet::new();
    stopping.spawn(gateway.stop());
    for refused in
        [waiting.join_next().await.unwrap().unwrap(), Client::tcp(addr).await.send(completion("")).await.unwrap()]
    {
        let mut refused = refused;
        assert_eq!(refused.status, 503);
        assert_eq!(header(&refused.headers, "connection"), Some("close"));
        assert_eq!(refused.json().await["error"]["code"], "draining");
    }
    for _ in 0..50 {
        responding.event(r#"{"choices":[{"text":"b"}]}"#);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    responding.finish();
    let (bytes, ended) = running.join_next().await.unwrap().unwrap();
    assert!(ended && bytes.windows(5).filter(|w| w == b"data:").count() == 51);
    assert_eq!(stopping.join_next().await.unwrap().unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn a_drain_that_takes_too_long_cuts_what_is_left() {
    let (gateway, mut backend) = on_sockets(1, |raw| raw.timeouts.drain = Some("100ms".into())).await;
    let addr = gateway.data_addr();
    let mut running = JoinSet::new();
    running.spawn(async move { Client::tcp(addr).await.send(completion("")).await.unwrap().rest().await });
    let mut responding = backend.call().await.stream();
    responding.event("{}");
    let service = gateway.service().clone();
    assert_eq!(gateway.stop().await, Drained { cut: 1 });
    assert!(!running.join_next().await.unwrap().unwrap().1);
    responding.abandoned().await;
    until("the permit is back", || service.load().1 == [(0, 1)]).await;
}
