//! Spans, as a collector gets them.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::backend::{Backend, Call, header};
use crate::support::client::{Client, completion, get};
use crate::support::gateway::{nowhere, on_sockets};
use crate::support::{soon, until};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The spans of one message.
fn spans(call: &Call) -> Vec<Value> {
    assert_eq!(call.head.uri.path(), "/v1/traces");
    assert_eq!(header(&call.head.headers, "content-type"), Some("application/json"));
    let message: Value = serde_json::from_slice(&call.body).unwrap();
    let resource = &message["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!((&resource["key"], &resource["value"]["stringValue"]), (&"service.name".into(), &"es-test".into()));
    message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn attributes(span: &Value) -> BTreeMap<String, Value> {
    let all = span["attributes"].as_array().unwrap().iter();
    all.map(|a| {
        (a["key"].as_str().unwrap().to_owned(), a["value"].as_object().unwrap().values().next().unwrap().clone())
    })
    .collect()
}

fn nanos(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_span_tells_of_a_request_by_the_names_of_the_conventions_and_the_backend_continues_the_trace() {
    let (mut collector, at) = Backend::on_tcp().await;
    let (gateway, mut backend) = on_sockets(1, |raw| {
        raw.trace.endpoint = Some(format!("http://{at}"));
        raw.trace.service = Some("es-test".into());
        // The caller's word counts, not chance.
        raw.trace.sample = Some(0.0);
    })
    .await;
    let data = gateway.data_addr();
    let mut request = completion("");
    request.headers_mut().insert("traceparent", CALLER.parse().unwrap());
    request.headers_mut().insert("x-request-id", "r-1".parse().unwrap());
    let mut asking = JoinSet::new();
    asking.spawn(async move { Client::tcp(data).await.send(request).await.unwrap().rest().await });
    let call = backend.call().await;
    let passed = header(&call.head.headers, "traceparent").unwrap().to_owned();
    let streaming = call.stream();
    streaming.event(r#"{"choices":[{"text":"a"}]}"#);
    streaming.event(r#"{"choices":[{"text":"b"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#);
    streaming.event("[DONE]");
    streaming.finish();
    assert!(soon("it is answered", asking.join_next()).await.unwrap().unwrap().1);

    let sent = collector.call().await;
    let all = spans(&sent);
    sent.json("{}");
    assert_eq!(all.len(), 1);
    let (span, said) = (&all[0], attributes(&all[0]));
    assert_eq!((&span["name"], &span["kind"]), (&"text_completion m".into(), &2.into()));
    assert_eq!(span["traceId"], CALLER[3..35]);
    assert_eq!(span["parentSpanId"], CALLER[36..52]);
    assert_eq!(passed, format!("00-{}-{}-01", &CALLER[3..35], span["spanId"].as_str().unwrap()));
    assert!(span["status"].is_null());
    for (key, value) in [
        ("gen_ai.operation.name", "text_completion"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.usage.input_tokens", "3"),
        ("gen_ai.usage.output_tokens", "2"),
        ("http.response.status_code", "200"),
        ("elasticserve.tenant", "default"),
        ("elasticserve.outcome", "finished"),
        ("elasticserve.request_id", "r-1"),
    ] {
        assert_eq!(said.get(key), Some(&value.into()), "{key}");
    }
    assert_eq!(said["gen_ai.request.stream"], true);
    let (began, ended) = (nanos(&span["startTimeUnixNano"]), nanos(&span["endTimeUnixNano"]));
    let first = said["gen_ai.response.time_to_first_chunk"].as_f64().unwrap();
    assert!(began < ended && first > 0.0 && first <= (ended - began) as f64 / 1e9);
    let events: Vec<&str> = span["events"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(events, ["elasticserve.granted", "elasticserve.first_content"]);
    assert!(span["events"].as_array().unwrap().iter().all(|e| (began..=ended).contains(&nanos(&e["timeUnixNano"]))));
}

#[tokio::test]
async fn what_is_not_sampled_leaves_no_span_and_its_place_in_a_trace_passes_by_as_it_is() {
    let (mut collector, at) = Backend::on_tcp().await;
    let (gateway, mut backend) = on_sockets(1, |raw| {
        raw.trace.endpoint = Some(format!("http://{at}"));
        raw.trace.service = Some("es-test".into());
    })
    .await;
    let data = gateway.data_addr();
    let ask = |parent: Option<String>| {
        let mut request = completion("");
        if let Some(parent) = parent {
            request.headers_mut().insert("traceparent", parent.parse().unwrap());
        }
        let mut asking = JoinSet::new();
        asking.spawn(async move { Client::tcp(data).await.send(request).await.unwrap().rest().await });
        asking
    };
    let unsampled = CALLER.replace("-01", "-00");
    let mut first = ask(Some(unsampled.clone()));
    let call = backend.call().await;
    assert_eq!(header(&call.head.headers, "traceparent"), Some(&*unsampled));
    call.json("{}");
    soon("it is answered", first.join_next()).await.unwrap().unwrap();
    // By chance, which is all of them here: a trace of its own. It fails.
    let mut second = ask(None);
    let call = backend.call().await;
    assert!(header(&call.head.headers, "traceparent").unwrap().ends_with("-01"));
    call.respond(500, &[]).finish();
    soon("it is answered", second.join_next()).await.unwrap().unwrap();
    let sent = collector.call().await;
    let all = spans(&sent);
    sent.json("{}");
    assert!(all.len() == 1 && all[0]["parentSpanId"].is_null() && all[0]["status"]["code"] == 2, "{all:?}");
    assert_eq!(attributes(&all[0])["error.type"], "backend_error");
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_spans_that_are_counted_and_no_request() {
    let at = nowhere().await;
    let (gateway, mut backend) = on_sockets(1, |raw| raw.trace.endpoint = Some(format!("http://{at}"))).await;
    let data = gateway.data_addr();
    for _ in 0..3 {
        let mut asking = JoinSet::new();
        asking.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
        backend.call().await.json("{}");
        assert!(soon("it is answered", asking.join_next()).await.unwrap().unwrap().1);
    }
    let admin = gateway.admin_addr();
    let dropped = async || {
        let mut answer = Client::tcp(admin).await.send(get("/metrics")).await.unwrap();
        String::from_utf8(answer.rest().await.0).unwrap().contains("elasticserve_dropped_spans_total 3\n")
    };
    soon("the spans are counted", async { while !dropped().await {} }).await;
    until("nothing runs", || gateway.service().load().1 == [(0, 1)]).await;
}
