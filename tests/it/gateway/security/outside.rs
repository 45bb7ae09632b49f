//! Requests that ask for other hosts, and for paths that are not served (S9, S21).

use std::net::TcpListener;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::backend::header;
use crate::support::client::{Client, completion, get, post};
use crate::support::gateway::{on_sockets, settings};
use crate::support::raw::RawBackend;
use crate::support::soon;

use super::with;

/// A port that nobody may connect to.
struct Trap(TcpListener);

impl Trap {
    fn set() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        (Self(listener), addr)
    }

    /// What has connected waits in the listener, so that nothing is missed.
    fn is_unsprung(&self) -> bool {
        self.0.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

#[tokio::test]
async fn only_the_configured_backend_is_contacted_whatever_a_request_says() {
    let (trap, at) = Trap::set();
    let (gateway, mut backend) = on_sockets(4, |_| {}).await;
    let url = format!("http://{at}/v1");
    let mut requests = Vec::new();
    for field in
        ["api_base", "base_url", "api_url", "url", "endpoint", "host", "proxy", "webhook", "callback_url", "model"]
    {
        requests.push(post("/v1/completions", &format!(r#"{{"prompt":[1],"{field}":"{url}"}}"#)));
    }
    for name in [
        "x-api-base",
        "api-base",
        "base-url",
        "azure-endpoint",
        "x-forwarded-host",
        "x-forwarded-server",
        "x-original-host",
        "x-original-url",
        "x-rewrite-url",
        "x-host",
        "forwarded",
        "via",
        "referer",
        "origin",
        "destination",
        "x-backend",
        "x-elasticserve-backend",
        "x-gateway-destination-endpoint",
    ] {
        requests.push(with(completion(""), &[(name, &url)]));
    }
    let mut other_host = completion("");
    other_host.headers_mut().insert("host", at.parse().unwrap());
    requests.push(other_host);
    for path in ["/v1/completions", "/v1/chat/completions"] {
        requests.push(with(post(&format!("http://{at}{path}"), r#"{"prompt":[1]}"#), &[]));
        requests.push(post(&format!("http://backend@{at}{path}"), r#"{"prompt":[1]}"#));
    }
    requests.push(get(&format!("http://{at}/v1/models")));
    requests.push(get(&format!("/v1/models?base_url={url}")));
    requests.push(get(&format!("/v1/models/http://{at}/x").replace("//", "/")));
    let tried = requests.len();
    for request in requests {
        let what = format!("{} {:?}", request.uri(), request.headers());
        let (answer, call) = tokio::join!(Client::tcp(gateway.data_addr()).await.send(request), async {
            let call = backend.call().await;
            let host = header(&call.head.headers, "host").unwrap().to_owned();
            let path = call.head.uri.clone();
            call.json("{}");
            (host, path)
        });
        assert_eq!(answer.unwrap().status, 200, "{what}");
        assert!(call.0 != at && call.1.authority().is_none(), "{what}: {call:?}");
    }
    // An answer that points elsewhere is passed on, and not followed.
    for status in [301, 302, 303, 305, 307, 308, 300, 201, 503] {
        for request in [completion(""), get("/v1/models")] {
            let location = format!("{url}/{status}");
            let (answer, ()) = tokio::join!(Client::tcp(gateway.data_addr()).await.send(request), async {
                let call = backend.call().await;
                call.respond(status, &[("location", &location), ("refresh", &location), ("alt-svc", "h2=\":1\"")])
                    .finish();
            });
            let answer = answer.unwrap();
            assert_eq!((answer.status.as_u16(), header(&answer.headers, "location")), (status, Some(&*location)));
        }
    }
    assert!(tried + 18 >= 40 && !backend.has_request() && trap.is_unsprung());
    gateway.stop().await;
}

/// Sends a request line and gives the status of the answer.
async fn asked(addr: std::net::SocketAddr, line: &str, host: &str) -> u16 {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let head = format!("{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    soon(line, stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().parse().unwrap_or(0)
}

#[tokio::test]
async fn what_is_not_on_the_list_of_paths_is_not_there_in_any_spelling_and_no_backend_is_asked() {
    let backend = RawBackend::start(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec()).await;
    let gateway = elasticserve_gateway::Gateway::start(settings(&backend.addr.to_string(), 4).check().unwrap());
    let gateway = gateway.await.unwrap();
    let paths = [
        "/",
        "/v1",
        "/v1/",
        "/v1/completions/",
        "/v1/completions//",
        "//v1/completions",
        "/v1//completions",
        "/v1/./completions",
        "/./v1/completions",
        "/v1/../v1/completions",
        "/v1/%2e%2e/v1/completions",
        "/v1/%2e/completions",
        "/v1%2fcompletions",
        "/v1/completions%2f",
        "/v1/%63ompletions",
        "/%76%31/completions",
        "/v1/completions;x",
        "/v1/completions;/../../admin",
        "/v1/completions%00",
        "/v1/completions%20",
        "/v1/completions%3fx",
        "/v1/completions%23x",
        "/v1/completions.json",
        "/V1/COMPLETIONS",
        "/v1\\completions",
        "/v1/completions\\",
        "/v2/completions",
        "/v1/completions/../models",
        "/v1/models/../completions",
        "/v1/models/..",
        "/v1/models/.",
        "/v1/models/",
        "/v1/models//x",
        "/v1/models/x/",
        "/v1/models/%2e%2e/completions",
        "/v1/models/..%2fcompletions",
        "/v1/models/..;/completions",
        "/v1/models/x%00",
        "/v1/files",
        "/v1/batches",
        "/v1/fine_tuning/jobs",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/start_profile",
        "/reset_prefix_cache",
        "/sleep",
        "/collective_rpc",
        "/server_info",
        "/docs",
        "/openapi.json",
        "/metrics",
        "/invocations",
    ];
    let addr = gateway.data_addr();
    let mut tried = 0;
    for path in paths {
        for method in ["GET", "POST", "DELETE"] {
            let status = asked(addr, &format!("{method} {path}"), "g").await;
            // What no reader of HTTP takes for a path is refused before there is one.
            let expected: &[u16] = if path.contains('\\') { &[400, 404] } else { &[404] };
            assert!(expected.contains(&status), "{method} {path}: {status}");
            tried += 1;
        }
    }
    for (line, expected) in [
        ("CONNECT g:443", 405),
        ("CONNECT 127.0.0.1:22", 405),
        ("OPTIONS *", 404),
        ("GET *", 404),
        ("GET evil:80", 404),
        ("GET http://g", 404),
        ("GET http://g/admin/state", 404),
        ("TRACE /v1/completions", 405),
        ("OPTIONS /v1/completions", 405),
        ("PUT /v1/completions", 405),
        ("PATCH /v1/completions", 405),
        ("DELETE /v1/models/x", 405),
        ("TRACE /v1/models", 405),
        ("PROPFIND /v1/models", 405),
        ("post /v1/completions", 405),
        ("TRACK /health", 405),
        ("BREW /tokenize", 405),
    ] {
        let status = asked(addr, line, "g").await;
        assert_eq!(status, expected, "{line}");
        tried += 1;
    }
    assert!(tried >= 50, "{tried}");
    assert!(backend.got().is_empty(), "{:?}", backend.got());
    gateway.stop().await;
}
