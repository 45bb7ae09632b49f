//! Request heads beyond their bounds, and paths that are not served (S5, S20).

use http::{Method, Request};
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::backend::header;
use crate::support::client::Client;
use crate::support::gateway::on_sockets;
use crate::support::soon;

/// Sends a head in pieces and reads all that comes back.
async fn send(addr: std::net::SocketAddr, head: &[u8], piece: usize) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut reading, mut writing) = stream.split();
    let write = async {
        for part in head.chunks(piece) {
            // The gateway may close before all of it is written.
            if writing.write_all(part).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    tokio::select! {
        _ = soon("the connection is closed", reading.read_to_end(&mut answer)) => {}
        () = write => {}
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn heads_beyond_their_bounds_are_refused_and_closed_however_they_are_cut() {
    let (gateway, mut backend) = on_sockets(1, |_| {}).await;
    let addr = gateway.data_addr();
    let lines = |count: usize| (0..count).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    let head = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nhost: g\r\nconnection: close\r\n{more}\r\n");
    // With `host` and `connection` these are exactly as many lines as may be, and as many bytes.
    let fits = [head("/nowhere", &lines(98)), head("/nowhere", &format!("x-long: {}\r\n", "a".repeat(60_000)))];
    let beyond = [
        (head("/nowhere", &lines(99)), "431"),
        (head("/nowhere", &format!("x-long: {}\r\n", "a".repeat(65_536))), "431"),
        (head("/nowhere", &format!("{}: 1\r\n", "a".repeat(70_000))), "431"),
        (head("/nowhere", &format!("x-a: {}\r\n", "a".repeat(1000)).repeat(70)), "431"),
        (head(&format!("/{}", "a".repeat(65_536)), ""), "414 431"),
    ];
    let mut trials = 0;
    for piece in [1 << 20, 65_536, 65_535, 8_192, 4_096, 999] {
        for head in &fits {
            let answer = send(addr, head.as_bytes(), piece).await;
            assert!(answer.starts_with("HTTP/1.1 404 "), "{piece}: {}", &answer[..answer.len().min(200)]);
        }
        for (head, statuses) in &beyond {
            let answer = send(addr, head.as_bytes(), piece).await;
            // What is closed with unread bytes may reset the answer away; it is never served.
            let status = answer.split(' ').nth(1).unwrap_or_default();
            assert!(answer.is_empty() || statuses.contains(status), "{piece} {statuses}: {status} {}", head.len());
            trials += 1;
        }
    }
    assert_eq!((trials, gateway.service().totals().offers, backend.has_request()), (30, 0, false));
    gateway.stop().await;
}

#[tokio::test]
async fn what_operators_may_see_is_not_on_the_clients_port_in_any_spelling() {
    let (gateway, mut backend) = on_sockets(1, |_| {}).await;
    let mut tried = 0;
    for path in [
        "/metrics",
        "/livez",
        "/readyz",
        "/admin",
        "/admin/state",
        "/admin/config",
        "/admin/policy",
        "/admin/reload",
        "/admin/drain",
        "/admin/tenants/default",
        "/admin/backends/0",
        "/debug",
        "/debug/pprof",
        "/config",
        "/state",
        "/%61dmin/state",
        "/admin%2fstate",
        "//admin/state",
        "/./admin/state",
        "/v1/../admin/state",
        "/v1/models/../../admin/state",
        "/v1/models/%2e%2e/%2e%2e/metrics",
        "/metrics/",
        "/metrics;x",
        "/METRICS",
        "/metrics?x=/v1/models",
        "/v1/models/..%2f..%2fmetrics",
        "/health/../metrics",
    ] {
        for method in [Method::GET, Method::POST] {
            let request = Request::builder().method(&method).uri(path).header("host", "g");
            let sending = Client::tcp(gateway.data_addr()).await.send(request.body(Full::default()).unwrap());
            let answer = soon("it is answered without a backend", sending).await.unwrap();
            assert_eq!(
                (answer.status.as_u16(), header(&answer.headers, "x-elasticserve-reason")),
                (404, Some("not_found")),
                "{method} {path}"
            );
            tried += 1;
        }
    }
    assert!(tried >= 20 && !backend.has_request());
    gateway.stop().await;
}
