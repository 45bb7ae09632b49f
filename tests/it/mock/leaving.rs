//! Clients that go before their answer is whole. At 2 ms a token, the answers that are left here would
//! take 16 s; each test waits for the engine to say that the place is free.

use elasticserve_mock::{Server, Snapshot};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::{Client, Stream, post};
use super::{MODEL, server};

fn long(stream: bool) -> Value {
    json!({ "model": MODEL, "prompt": "x", "max_tokens": 8000, "stream": stream })
}

async fn until(server: &Server, what: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    *server.watch().wait_for(what).await.unwrap()
}

/// A client whose stream holds a seat.
async fn seated(server: &Server) -> (Client, Stream) {
    let mut client = Client::connect(server.addr()).await;
    let mut stream = client.stream("/v1/completions", &long(true)).await;
    stream.next().await.unwrap().unwrap();
    (client, stream)
}

/// A client that has sent a request and waits for the head of its answer; dropping it closes its connection.
async fn sent(server: &Server, path: &'static str, body: Value) -> JoinSet<()> {
    let mut client = Client::connect(server.addr()).await;
    let mut task = JoinSet::new();
    task.spawn(async move {
        drop(client.open(post(path, &body)).await);
        panic!("there was an answer");
    });
    task
}

#[tokio::test]
async fn a_client_that_leaves_mid_stream_frees_its_seat() {
    let server = server(4).await;
    let gone = seated(&server).await;
    assert_eq!(server.stats().running, 1);
    drop(gone);
    let after = until(&server, |s| s.engine.running == 0).await;
    assert_eq!((after.finished.abort, after.finished.length), (1, 0));
    assert!(after.engine.generated_tokens < 8000);
    server.shutdown().await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_frees_its_seat() {
    let server = server(4).await;
    for path in ["/v1/completions", "/v1/chat/completions"] {
        let mut body = long(false);
        body["messages"] = json!([{ "role": "user", "content": "x" }]);
        let gone = sent(&server, path, body).await;
        until(&server, |s| s.engine.running == 1 && s.engine.generated_tokens > 0).await;
        drop(gone);
        until(&server, |s| s.engine.running == 0).await;
    }
    assert_eq!(server.watch().borrow().finished.abort, 2);
    server.shutdown().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_waiting_frees_its_place_whether_streamed_or_not() {
    let server = server(1).await;
    let holder = seated(&server).await;

    // A stream's head comes at once, so this client waits for its first token.
    let mut client = Client::connect(server.addr()).await;
    let stream = client.stream("/v1/completions", &long(true)).await;
    until(&server, |s| s.engine.waiting == 1).await;
    drop((client, stream));
    let after = until(&server, |s| s.engine.waiting == 0).await;
    assert_eq!((after.engine.running, after.finished.abort), (1, 1));

    let gone = sent(&server, "/v1/completions", long(false)).await;
    until(&server, |s| s.engine.waiting == 1).await;
    drop(gone);
    let after = until(&server, |s| s.engine.waiting == 0).await;
    assert_eq!((after.engine.running, after.finished.abort), (1, 2));

    drop(holder);
    until(&server, |s| s.engine.running == 0).await;
    server.shutdown().await;
}

#[tokio::test]
async fn the_seat_of_one_that_leaves_goes_to_the_next_in_the_queue() {
    let server = server(1).await;
    let holder = seated(&server).await;
    let mut client = Client::connect(server.addr()).await;
    let body = json!({ "prompt": "y", "max_tokens": 3, "stream": true });
    let next = client.stream("/v1/completions", &body).await;
    until(&server, |s| s.engine.waiting == 1).await;
    drop(holder);
    assert_eq!(next.rest().await.len(), 3);
    let after = until(&server, |s| s.finished.length + s.finished.abort == 2).await;
    assert_eq!((after.finished.length, after.finished.abort), (1, 1));
    server.shutdown().await;
}

#[tokio::test]
async fn the_metrics_follow_who_runs_and_who_waits() {
    let server = server(1).await;
    let mut observer = Client::connect(server.addr()).await;
    let holder = seated(&server).await;
    let waiting = sent(&server, "/v1/completions", long(false)).await;
    until(&server, |s| s.engine.waiting == 1).await;
    let text = observer.get("/metrics").await;
    assert_eq!(text.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(value(text.text(), "vllm:num_requests_running"), 1.0);
    assert_eq!(value(text.text(), "vllm:num_requests_waiting"), 1.0);
    assert!(value(text.text(), "vllm:kv_cache_usage_perc") > 0.0);
    assert!(value(text.text(), "vllm:generation_tokens_total") >= 1.0);

    drop((holder, waiting));
    until(&server, |s| s.engine.running == 0 && s.engine.waiting == 0).await;
    let text = observer.get("/metrics").await;
    for name in ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"] {
        assert_eq!(value(text.text(), name), 0.0, "{name}");
    }
    drop(observer);
    server.shutdown().await;
}

/// The value of the metric of this name with the labels of this engine alone.
fn value(text: &str, name: &str) -> f64 {
    let series = format!("{name}{{model_name=\"{MODEL}\",engine=\"0\"}} ");
    let mut values = text.lines().filter_map(|line| line.strip_prefix(series.as_str()));
    let found = values.next().unwrap_or_else(|| panic!("no {name} in:\n{text}"));
    assert_eq!(values.next(), None, "{name} twice");
    found.parse().unwrap()
}
