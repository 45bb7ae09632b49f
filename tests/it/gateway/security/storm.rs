//! Clients that connect, ask and leave, thousands of them (S18).

use elasticserve_core::sched::Order;
use elasticserve_gateway::config::RawTenant;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::with;
use crate::support::backend::{Backend, header};
use crate::support::client::{Client, completion};
use crate::support::gateway::on_sockets;
use crate::support::{soon, until};

const STORM: usize = 5_000;
const AT_ONCE: usize = 50;
const OTHERS: usize = 4;
/// Requests of each of the others.
const EACH: usize = 50;

/// Answers the others at once, and those of the storm never: they hold a seat until the gateway gives them up.
async fn answer_all(mut backend: Backend) {
    let mut held = JoinSet::new();
    while let Some(mut call) = backend.next_call().await {
        if header(&call.head.headers, "x-request-id") == Some("other") {
            call.json("{}");
        } else {
            held.spawn(async move { call.abandoned().await });
        }
        while held.try_join_next().is_some() {}
    }
}

#[tokio::test]
async fn clients_that_ask_and_leave_by_the_thousand_take_nothing_from_others_and_leave_nothing_behind() {
    let (gateway, backend) = on_sockets(2, |raw| {
        raw.queue.order = Some(Order::Wfq);
        raw.queue.depth = Some(100);
        let storm = RawTenant { name: "storm".into(), max_queued: Some(32), ..RawTenant::default() };
        raw.tenants = Some(vec![storm, RawTenant { name: "other".into(), ..RawTenant::default() }]);
    })
    .await;
    let mut answering = JoinSet::new();
    answering.spawn(answer_all(backend));
    let addr = gateway.data_addr();
    let body = r#"{"prompt":[1,2,3],"max_tokens":8}"#;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: g\r\nx-elasticserve-tenant: storm\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut storm = JoinSet::new();
    for n in 0..AT_ONCE {
        let request = request.clone();
        storm.spawn(async move {
            for round in 0..STORM / AT_ONCE {
                let mut stream = TcpStream::connect(addr).await.unwrap();
                // Some leave in the middle of their request, and some with more behind it.
                let bytes = match (n + round) % 4 {
                    0 => request[..request.len() / 2].to_owned(),
                    1 => format!("{request}POST /v1/"),
                    _ => request.clone(),
                };
                stream.write_all(bytes.as_bytes()).await.unwrap();
                if round % 3 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    let mut others = JoinSet::new();
    for _ in 0..OTHERS {
        others.spawn(async move {
            for _ in 0..EACH {
                let request = with(completion(""), &[("x-elasticserve-tenant", "other"), ("x-request-id", "other")]);
                let mut answer = Client::tcp(addr).await.send(request).await.unwrap();
                assert_eq!(answer.status, 200);
                assert!(answer.rest().await.1);
            }
        });
    }
    soon("the others are served", others.join_all()).await;
    soon("the storm is over", storm.join_all()).await;
    let service = gateway.service().clone();
    until("nobody is left", || service.connections() == 0 && service.load() == (0, vec![(0, 2)])).await;
    service.audit().unwrap();
    assert!(service.totals().offers >= (OTHERS * EACH) as u64);
    gateway.stop().await;
}
