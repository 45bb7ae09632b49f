//! A tenant that fills its part of the queue, on real sockets.

use elasticserve_core::sched::Order;
use elasticserve_gateway::config::RawTenant;
use tokio::task::JoinSet;

use crate::support::backend::header;
use crate::support::client::{Client, completion};
use crate::support::gateway::on_sockets;
use crate::support::until;

const FLOOD: usize = 1_000;
const QUEUED: u32 = 8;

#[tokio::test]
async fn a_tenant_with_many_connections_is_refused_by_its_bound_and_takes_no_place_from_another() {
    let (gateway, mut backend) = on_sockets(1, |raw| {
        raw.queue.order = Some(Order::Wfq);
        raw.queue.depth = Some(QUEUED + 1);
        let flood = RawTenant { name: "flood".into(), max_queued: Some(QUEUED), ..RawTenant::default() };
        raw.tenants = Some(vec![flood, RawTenant { name: "other".into(), ..RawTenant::default() }]);
    })
    .await;
    let addr = gateway.data_addr();
    let send = move |tenant: &'static str| async move {
        let mut request = completion("");
        request.headers_mut().insert("x-elasticserve-tenant", tenant.parse().unwrap());
        request.headers_mut().insert("x-request-id", tenant.parse().unwrap());
        let mut answer = Client::tcp(addr).await.send(request).await.unwrap();
        let status = answer.status.as_u16();
        let told = header(&answer.headers, "retry-after-ms").map(|ms| ms.parse::<u64>().unwrap());
        (status, told, String::from_utf8(answer.rest().await.0).unwrap())
    };
    let mut flood = JoinSet::new();
    for _ in 0..FLOOD {
        flood.spawn(send("flood"));
    }
    let running = backend.call().await.stream();
    for _ in 0..FLOOD - 1 - QUEUED as usize {
        let (status, told, body) = flood.join_next().await.unwrap().unwrap();
        assert_eq!(status, 429);
        assert!(told.is_some_and(|ms| (1_000..=60_000).contains(&ms)), "{told:?}");
        for part in ["\"tenant_limit\"", "flood", "max_queued is 8"] {
            assert!(body.contains(part), "{part}: {body}");
        }
    }
    let mut other = JoinSet::new();
    other.spawn(send("other"));
    let service = gateway.service().clone();
    until("the other tenant's request waits", || service.load().0 == QUEUED as usize + 1).await;
    running.finish();
    let next = backend.call().await;
    assert_eq!(header(&next.head.headers, "x-request-id"), Some("other"));
    next.stream().finish();
    assert_eq!(other.join_next().await.unwrap().unwrap().0, 200);
    for _ in 0..QUEUED {
        backend.call().await.stream().finish();
    }
    while let Some(done) = flood.join_next().await {
        assert_eq!(done.unwrap().0, 200);
    }
    gateway.service().audit().unwrap();
    gateway.stop().await;
}
