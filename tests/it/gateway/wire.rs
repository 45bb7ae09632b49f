//! Headers, codes and paths as clients and their tools expect them.

use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::support::backend::header;
use crate::support::client::{Client, completion, get, post};
use crate::support::gateway::{Piped, on_sockets};
use crate::support::{soon, until};

#[tokio::test(start_paused = true)]
async fn an_answer_says_where_it_comes_from_and_how_long_it_waited() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let client = gateway.client().await;
    let mut request = completion("");
    request.headers_mut().insert("x-request-id", HeaderValue::from_static("my-id.1"));
    let (answer, ()) = tokio::join!(client.send(request), async {
        let call = backend.call().await;
        assert_eq!(header(&call.head.headers, "x-request-id"), Some("my-id.1"));
        assert_eq!(header(&call.head.headers, "host"), Some("backend"));
        let headers = [
            ("content-type", "text/event-stream; charset=utf-8"),
            ("x-elasticserve-backend", "forged"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("x-request-id", "forged"),
        ];
        call.respond(200, &headers).finish();
    });
    let headers = answer.unwrap().headers;
    for (name, value) in [
        ("x-request-id", "my-id.1"),
        ("x-elasticserve-backend", "0"),
        ("x-elasticserve-outcome", "admitted"),
        ("x-elasticserve-queue-ms", "0.000"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(header(&headers, name), Some(value), "{name}");
    }
    assert!(!headers.contains_key("x-hop"));
}

#[tokio::test(start_paused = true)]
async fn bad_requests_are_refused_in_openais_shape_without_touching_a_backend() {
    let (mut gateway, backend) = Piped::start(1, |raw| raw.limits.body_bytes = Some(1000));
    let with = |name: &'static str, value: &'static str| {
        let mut request = completion("");
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        request
    };
    let cases = [
        (post("/v1/completions", "{\"model\":"), 400, "bad_body"),
        (post("/v1/completions", "[]"), 400, "bad_body"),
        (post("/v1/completions", "{\"max_tokens\":-1}"), 400, "bad_body"),
        (post("/v1/completions", &format!("{{\"prompt\":\"{}\"}}", "x".repeat(1000))), 413, "body_too_large"),
        (post("/v1/nothing", "{}"), 404, "not_found"),
        (post("/metrics", "{}"), 404, "not_found"),
        (get("/v1/completions"), 405, "method_not_allowed"),
        (with("content-encoding", "gzip"), 415, "unsupported_encoding"),
        (with("x-elasticserve-queue-budget-ms", "-5"), 400, "bad_header"),
        (with("x-elasticserve-output-tokens", "many"), 400, "bad_header"),
    ];
    for (request, status, code) in cases {
        let what = format!("{} {:?}", request.uri(), request.headers());
        let mut answer = gateway.client().await.send(request).await.unwrap();
        assert_eq!(answer.status, status, "{what}");
        assert_eq!(header(&answer.headers, "x-elasticserve-reason"), Some(code), "{what}");
        let error = &answer.json().await["error"];
        assert_eq!(error["code"], code, "{what}");
        assert!(error["message"].as_str().unwrap().len() > 10 && error["type"].is_string());
    }
    assert!(!backend.has_call());
    assert_eq!(gateway.service.totals().offers, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_to_come_back() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| raw.queue.depth = Some(0));
    let client = gateway.client().await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { client.send(completion("")).await.unwrap().rest().await });
    let running = backend.call().await.stream();
    let refused = gateway.client().await.send(completion("")).await.unwrap();
    assert_eq!(refused.status, 429);
    let seconds: u64 = header(&refused.headers, "retry-after").unwrap().parse().unwrap();
    let millis: u64 = header(&refused.headers, "retry-after-ms").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds) && (1000..=60_000).contains(&millis));
    assert_eq!(header(&refused.headers, "x-llm-d-request-dropped-reason"), Some("rejected-saturated"));
    assert!(!refused.headers.contains_key("x-should-retry"));
    running.finish();
    tasks.join_next().await;
}

#[tokio::test]
async fn questions_about_the_server_pass_by_a_full_queue() {
    let (gateway, mut backend) = on_sockets(1, |_| {}).await;
    let addr = gateway.data_addr();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { Client::tcp(addr).await.send(completion("")).await.unwrap().rest().await });
    let running = backend.call().await.stream();
    assert_eq!(gateway.service().load(), (0, vec![(1, 1)]));
    let (answer, ()) = tokio::join!(Client::tcp(addr).await.send(get("/v1/models")), async {
        backend.call().await.json(r#"{"data":[],"x":1}"#);
    });
    let mut answer = answer.unwrap();
    assert_eq!(header(&answer.headers, "x-elasticserve-outcome"), Some("passed_by"));
    assert_eq!(answer.rest().await.0, br#"{"data":[],"x":1}"#);
    running.finish();
    tasks.join_next().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_is_not_ready_before_a_backend_has_answered_a_probe() {
    // It takes connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (gateway, _backend) = on_sockets(1, |raw| raw.backends.as_mut().unwrap()[0].url = url).await;
    let ask = async |path| Client::tcp(gateway.admin_addr()).await.send(get(path)).await.unwrap().status;
    let probe = silent.accept().await.unwrap();
    assert_eq!(
        (ask("/livez").await, ask("/readyz").await),
        (http::StatusCode::OK, http::StatusCode::SERVICE_UNAVAILABLE)
    );
    drop(probe);
    gateway.stop().await;
}

#[tokio::test]
async fn the_admin_listener_has_probes_and_metrics_and_the_data_port_has_neither() {
    let (gateway, mut backend) = on_sockets(3, |_| {}).await;
    let (data, admin) = (gateway.data_addr(), gateway.admin_addr());
    let ask = |addr, path: &'static str| async move { Client::tcp(addr).await.send(get(path)).await.unwrap() };
    assert_eq!(ask(admin, "/livez").await.status, 200);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
    let call = backend.call().await; // answers the probes that come before it
    until("the gateway is ready", || gateway.service().load().1[0].0 == 1).await;
    let responding = call.stream();
    responding.event(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#);
    responding.event(r#"{"choices":[{"delta":{"content":"a"}}]}"#);
    responding.event(r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}"#);
    responding.event(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}"#);
    responding.event("[DONE]");
    responding.finish();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(ask(data, "/livez").await.status, 404);
    assert_eq!(ask(data, "/metrics").await.status, 404);

    let mut metrics = ask(admin, "/metrics").await;
    assert_eq!(header(&metrics.headers, "content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(metrics.rest().await.0).unwrap();
    for line in [
        r#"elasticserve_requests_total{tenant="default",outcome="finished"} 1"#,
        r#"elasticserve_slo_results_total{tenant="default",result="met"} 1"#,
        r#"elasticserve_tokens_total{tenant="default",direction="output"} 2"#,
        r#"elasticserve_tokens_total{tenant="default",direction="input"} 3"#,
        r#"elasticserve_ttft_seconds_count{tenant="default"} 1"#,
        r#"elasticserve_tpot_seconds_count{tenant="default"} 1"#,
        "elasticserve_queue_depth{pool=\"default\"} 0",
    ] {
        assert!(text.contains(line), "{line}\nin\n{text}");
    }
    assert!(text.contains("elasticserve_permits{pool=\"default\",backend="), "{text}");
    gateway.stop().await;
}

#[tokio::test(start_paused = true)]
async fn audio_comes_as_a_form_and_passes_unread() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let client = gateway.client().await;
    let (answer, ()) = tokio::join!(client.send(post("/v1/audio/transcriptions", "--x\r\nnot json")), async {
        let call = backend.call().await;
        assert_eq!((gateway.in_use(), &call.body[..]), (1, &b"--x\r\nnot json"[..]));
        call.json("{}");
    });
    assert_eq!(answer.unwrap().status, 200);
}

#[tokio::test]
async fn a_request_head_beyond_the_bound_is_a_431() {
    let (gateway, _backend) = on_sockets(1, |_| {}).await;
    for extra in [70_000, 300_000] {
        let mut stream = tokio::net::TcpStream::connect(gateway.data_addr()).await.unwrap();
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: g\r\nx-long: {}\r\n\r\n", "a".repeat(extra));
        // The gateway may close before all of it is written.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = soon("the connection is closed", stream.read_to_end(&mut answer)).await;
        // What is closed with unread bytes may reset the answer away; it is never served.
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(gateway.service().totals().offers, 0);
    }
    gateway.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused_by_its_announced_length_or_as_soon_as_it_is_too_long() {
    let announced = "POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 1001\r\n\r\n".to_owned();
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    let chunked =
        format!("POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n{}", chunk.repeat(3));
    for head in [announced, chunked] {
        let (mut gateway, backend) = Piped::start(1, |raw| raw.limits.body_bytes = Some(1000));
        let mut stream = gateway.connect();
        // Neither of them ever ends: only the limit can make an answer come before the body's time is up.
        stream.write_all(head.as_bytes()).await.unwrap();
        let sent = tokio::time::Instant::now();
        let mut answer = Vec::new();
        soon("the connection is closed", stream.read_to_end(&mut answer)).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&answer));
        assert!(sent.elapsed().as_secs() < 1);
        assert!(!backend.has_call());
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_in_time_is_a_408_that_is_not_to_be_tried_again() {
    let (mut gateway, backend) = Piped::start(1, |raw| raw.timeouts.body = Some("5s".into()));
    let mut stream = gateway.connect();
    stream.write_all(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 10\r\n\r\n{").await.unwrap();
    let mut answer = Vec::new();
    soon("the connection is closed", stream.read_to_end(&mut answer)).await.unwrap();
    let text = String::from_utf8(answer).unwrap();
    assert!(text.starts_with("HTTP/1.1 408 ") && text.contains("x-should-retry: false"), "{text}");
    assert_eq!((gateway.service.totals().offers, backend.has_call()), (0, false));
}
