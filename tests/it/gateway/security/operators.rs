//! Who keeps the operators out.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::client::{Client, get, post};
use crate::support::gateway::on_sockets;
use crate::support::soon;

/// Connections to the admin listener that are served at once.
const PLACES: usize = 64;

#[tokio::test]
async fn clients_of_the_admin_listener_that_do_not_go_on_leave_it_to_others_in_time() {
    let (gateway, _backend) = on_sockets(1, |_| {}).await;
    let addr = gateway.admin_addr();
    let host = addr.to_string();
    let mut silent = Vec::new();
    for _ in 0..PLACES {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let head = format!(
            "POST /admin/policy HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    // A probe is closed unanswered while all places are taken; it must not be so for ever.
    soon("a probe is answered", async {
        loop {
            let stream = TcpStream::connect(addr).await.unwrap();
            match Client::over(stream).await.send(get("/livez")).await {
                Ok(answer) => break assert_eq!(answer.status, 200),
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    drop(silent);
    gateway.stop().await;
}

#[tokio::test]
async fn a_host_that_only_looks_like_this_machine_is_a_stranger() {
    let (gateway, _backend) = on_sockets(1, |_| {}).await;
    let addr = gateway.admin_addr();
    let before = gateway.service().load();
    for host in [
        "evil.example",
        "evil.example:9090",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.1@evil.example",
        "localhost:9090@evil.example",
        "2130706433.evil",
        "0x7f.1",
        "[::1].evil.example",
        "localhost, evil.example",
        "localhost/evil",
        "*",
    ] {
        for path in ["/admin/state", "/admin/config"] {
            let mut request = get(path);
            request.headers_mut().insert("host", host.parse().unwrap());
            let answer = Client::tcp(addr).await.send(request).await.unwrap();
            assert_eq!(answer.status, 403, "{host} {path}");
        }
        let mut request = post("/admin/drain", "{}");
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(Client::tcp(addr).await.send(request).await.unwrap().status, 403, "{host}");
    }
    for host in ["localhost", "LOCALHOST:9090", "127.0.0.1", "[::1]:9090", "10.0.0.7:1"] {
        let mut request = get("/admin/state");
        request.headers_mut().insert("host", host.parse().unwrap());
        let status = Client::tcp(addr).await.send(request).await.unwrap().status;
        assert!(status == 200 || host == "LOCALHOST:9090", "{host}: {status}");
    }
    assert_eq!(gateway.service().load(), before);
    gateway.stop().await;
}
