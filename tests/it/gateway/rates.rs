//! Requests and tokens per minute: what is taken, what it costs in the end, and what clients are told.

use std::time::Duration;

use bytes::Bytes;
use elasticserve_gateway::config::{RawConfig, RawTenant};
use http::Request;
use http_body_util::Full;

use super::security::{GOLD, bearer, key, with};
use crate::support::backend::{Backend, Call, header};
use crate::support::client::{Answer, completion, get, post};
use crate::support::gateway::Piped;
use crate::support::until;

/// One tenant with limits.
fn limited(requests: Option<u64>, tokens: Option<u64>) -> impl FnOnce(&mut RawConfig) {
    move |raw| {
        let (requests_per_minute, tokens_per_minute) = (requests, tokens);
        let tenant = RawTenant { name: "gold".into(), requests_per_minute, tokens_per_minute, ..RawTenant::default() };
        raw.tenants = Some(vec![tenant]);
        raw.default_tenant = Some("gold".into());
    }
}

/// A request of 3 prompt tokens that declares an answer of `output`.
fn declaring(output: u32, stream: bool) -> Request<Full<Bytes>> {
    let body = format!(r#"{{"prompt":[1,2,3],"max_tokens":{output},"ignore_eos":true,"stream":{stream}}}"#);
    post("/v1/completions", &body)
}

/// Sends a request and lets the backend do `act`.
async fn ask(
    gateway: &mut Piped,
    backend: &mut Backend,
    request: Request<Full<Bytes>>,
    act: impl FnOnce(Call),
) -> Answer {
    let client = gateway.client().await;
    let (answer, ()) = tokio::join!(client.send(request), async { act(backend.call().await) });
    answer.unwrap()
}

async fn refused(gateway: &mut Piped, request: Request<Full<Bytes>>) -> Answer {
    let answer = gateway.client().await.send(request).await.unwrap();
    assert_eq!(
        (answer.status.as_u16(), header(&answer.headers, "x-elasticserve-reason")),
        (429, Some("rate_limit_exceeded"))
    );
    answer
}

fn number(answer: &Answer, name: &str) -> u64 {
    header(&answer.headers, name).unwrap_or_else(|| panic!("no {name} in {:?}", answer.headers)).parse().unwrap()
}

fn remaining(answer: &Answer) -> u64 {
    number(answer, "x-ratelimit-remaining-tokens")
}

/// What is left of the tokens, by a request that takes none of them: 3 declared for the prompt, an answer of 1.
async fn left(gateway: &mut Piped, backend: &mut Backend) -> u64 {
    let free =
        with(declaring(1, false), &[("x-elasticserve-input-tokens", "0"), ("x-elasticserve-output-tokens", "0")]);
    let answer =
        ask(gateway, backend, free, |call| call.json(r#"{"usage":{"prompt_tokens":0,"completion_tokens":0}}"#)).await;
    remaining(&answer)
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_limit_are_told_which_limit_whose_and_exactly_when_to_come_back() {
    let (mut gateway, mut backend) = Piped::start(4, limited(Some(6), None));
    for n in 1..=6_u64 {
        let mut answer = ask(&mut gateway, &mut backend, completion(""), |call| call.stream().finish()).await;
        assert_eq!(number(&answer, "x-ratelimit-limit-requests"), 6);
        assert_eq!(number(&answer, "x-ratelimit-remaining-requests"), 6 - n);
        // Ten seconds for each that was taken.
        let reset = if n == 6 { "1m0s".to_owned() } else { format!("{}s", 10 * n) };
        assert_eq!(header(&answer.headers, "x-ratelimit-reset-requests"), Some(reset.as_str()));
        assert!(!answer.headers.contains_key("x-ratelimit-limit-tokens"));
        answer.rest().await;
    }
    tokio::time::advance(Duration::from_millis(2_500)).await;
    let mut answer = refused(&mut gateway, completion("")).await;
    assert_eq!((number(&answer, "retry-after-ms"), number(&answer, "retry-after")), (7_500, 8));
    assert_eq!(number(&answer, "x-ratelimit-remaining-requests"), 0);
    assert_eq!(header(&answer.headers, "x-ratelimit-reset-requests"), Some("57.5s"));
    assert!(!answer.headers.contains_key("x-should-retry"));
    let error = answer.json().await["error"].clone();
    assert_eq!((&error["code"], &error["type"]), (&"rate_limit_exceeded".into(), &"rate_limit_error".into()));
    let message = error["message"].as_str().unwrap();
    for part in ["tenant 'gold'", "6 requests per minute", "0 are left", "7.5s"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // A moment too soon, and then in time.
    tokio::time::advance(Duration::from_millis(7_499)).await;
    refused(&mut gateway, completion("")).await;
    tokio::time::advance(Duration::from_millis(1)).await;
    ask(&mut gateway, &mut backend, completion(""), |call| call.stream().finish()).await;
    // What passes by costs nothing and is never refused.
    let answer = ask(&mut gateway, &mut backend, get("/v1/models"), |call| call.json("{}")).await;
    assert!(answer.status == 200 && !answer.headers.contains_key("x-ratelimit-limit-requests"));
}

#[tokio::test(start_paused = true)]
async fn tokens_are_taken_as_expected_and_settled_as_used() {
    let (mut gateway, mut backend) = Piped::start(4, limited(None, Some(1_000)));
    // Declared: 3 + 97 are taken at once; 3 + 7 were used in the end.
    let usage = r#"{"usage":{"prompt_tokens":3,"completion_tokens":7}}"#;
    let mut answer = ask(&mut gateway, &mut backend, declaring(97, false), |call| call.json(usage)).await;
    assert_eq!((number(&answer, "x-ratelimit-limit-tokens"), remaining(&answer)), (1_000, 900));
    assert_eq!(header(&answer.headers, "x-ratelimit-reset-tokens"), Some("6s"));
    answer.rest().await;
    until("it is settled", || gateway.in_use() == 0).await;
    assert_eq!(left(&mut gateway, &mut backend).await, 990);
    // More than was declared is charged too, beyond the limit if need be.
    let usage = r#"{"usage":{"prompt_tokens":3,"completion_tokens":1087}}"#;
    ask(&mut gateway, &mut backend, declaring(1, false), |call| call.json(usage)).await.rest().await;
    until("it is settled", || gateway.in_use() == 0).await;
    let answer = refused(&mut gateway, declaring(1, false)).await;
    // 1100 of 1000 are used and 4 more are asked for: 104 at 1000 a minute.
    assert_eq!((remaining(&answer), number(&answer, "retry-after-ms")), (0, 6_240));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_lets_nothing_in_for_longer_than_sdks_wait_tells_them_not_to_try() {
    let (mut gateway, mut backend) = Piped::start(4, limited(None, Some(1_000)));
    let usage = r#"{"usage":{"prompt_tokens":3,"completion_tokens":2087}}"#;
    ask(&mut gateway, &mut backend, declaring(1, false), |call| call.json(usage)).await.rest().await;
    until("it is settled", || gateway.in_use() == 0).await;
    // 2090 of 1000 are used and 4 more are asked for: 1094 at 1000 a minute.
    let answer = refused(&mut gateway, declaring(1, false)).await;
    let told = |answer: &Answer| header(&answer.headers, "x-should-retry").map(str::to_owned);
    assert!((65_000..=65_640).contains(&number(&answer, "retry-after-ms")), "{:?}", answer.headers);
    assert_eq!(told(&answer).as_deref(), Some("false"));
    tokio::time::advance(Duration::from_secs(10)).await;
    let answer = refused(&mut gateway, declaring(1, false)).await;
    assert!(number(&answer, "retry-after-ms") <= 55_640 && told(&answer).is_none(), "{:?}", answer.headers);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_pays_for_its_prompt_and_what_came_of_it() {
    let (mut gateway, mut backend) = Piped::start(4, limited(None, Some(1_000)));
    let client = gateway.client().await;
    let (answer, responding) = tokio::join!(client.send(declaring(500, true)), async { backend.call().await.stream() });
    let mut answer = answer.unwrap();
    assert_eq!(remaining(&answer), 497);
    for _ in 0..5 {
        responding.event(r#"{"choices":[{"text":"a"}]}"#);
        answer.chunk().await.unwrap().unwrap();
    }
    drop(answer);
    until("the permit is back", || gateway.in_use() == 0).await;
    assert_eq!(left(&mut gateway, &mut backend).await, 1_000 - 3 - 5);
    drop(responding);
    // An answer in one piece of which nothing can be counted costs what was expected.
    let client = gateway.client().await;
    let mut asking = tokio::task::JoinSet::new();
    asking.spawn(async move { client.send(declaring(500, false)).await.map(|_| ()) });
    let call = backend.call().await;
    asking.shutdown().await;
    until("the permit is back", || gateway.in_use() == 0).await;
    drop(call);
    assert_eq!(left(&mut gateway, &mut backend).await, 1_000 - 8 - 503);
}

#[tokio::test(start_paused = true)]
async fn what_fails_by_no_fault_of_the_client_or_never_runs_costs_nothing() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        limited(Some(100), Some(1_000))(raw);
        raw.queue.depth = Some(1);
    });
    // An error of the backend's, overload of the backend's, and a connection that breaks.
    for status in [500, 503, 429] {
        ask(&mut gateway, &mut backend, declaring(97, false), |call| call.respond(status, &[]).finish()).await;
    }
    ask(&mut gateway, &mut backend, declaring(97, false), drop).await;
    // A connection that had served before is tried once more; nobody answers that in time.
    backend.call().await.abandoned().await;
    until("the permit is back", || gateway.in_use() == 0).await;
    assert_eq!(left(&mut gateway, &mut backend).await, 1_000);
    // One that runs, one that leaves the queue, and one that the full queue refuses.
    let (running, waiting) = (gateway.client().await, gateway.client().await);
    let mut asking = tokio::task::JoinSet::new();
    asking.spawn(async move { running.send(declaring(97, true)).await.map(|_| ()) });
    let call = backend.call().await;
    let mut leaving = tokio::task::JoinSet::new();
    leaving.spawn(async move { waiting.send(declaring(97, true)).await.map(|_| ()) });
    until("one waits", || gateway.queued() == 1).await;
    let full = gateway.client().await.send(declaring(97, true)).await.unwrap();
    assert_eq!(header(&full.headers, "x-elasticserve-reason"), Some("queue_full"));
    leaving.shutdown().await;
    until("nobody waits", || gateway.queued() == 0).await;
    call.json(r#"{"usage":{"prompt_tokens":3,"completion_tokens":0}}"#);
    asking.join_next().await;
    until("the permit is back", || gateway.in_use() == 0).await;
    let answer = ask(&mut gateway, &mut backend, declaring(97, false), |call| call.respond(400, &[]).finish()).await;
    // The request with the four failures, the first measurement, and the two that ran: three of 100.
    assert_eq!(number(&answer, "x-ratelimit-remaining-requests"), 97);
    assert_eq!(remaining(&answer), 1_000 - 3 - 100);
    drop(answer);
    // The client's own mistake counts as a request, and has used no tokens.
    until("the permit is back", || gateway.in_use() == 0).await;
    assert_eq!(left(&mut gateway, &mut backend).await, 1_000 - 3);
}

#[tokio::test(start_paused = true)]
async fn without_a_declared_length_a_limit_and_then_experience_say_what_is_taken() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        limited(None, Some(100_000))(raw);
        raw.queue.admission = Some(elasticserve_gateway::config::RawAdmission::Predict);
        raw.predict.profile = Some("gb10-qwen3-8b-fp8".into());
    });
    let body = |limit: &str| post("/v1/completions", &format!(r#"{{"prompt":[1,2,3]{limit}}}"#));
    let usage = r#"{"usage":{"prompt_tokens":3,"completion_tokens":20}}"#;
    let mut before = 100_000;
    let mut last = 0;
    for n in 0..200 {
        let (limit, most) = [("", u64::MAX), (r#","max_tokens":10"#, 3 + 10)][n % 2];
        let mut answer = ask(&mut gateway, &mut backend, body(limit), |call| call.json(usage)).await;
        let taken = before - remaining(&answer);
        assert!((4..=most).contains(&taken), "{n}: {taken}");
        if n == 0 {
            assert_eq!(taken, 3 + 256, "nothing is known yet");
        }
        last = if n % 2 == 0 { taken } else { last };
        answer.rest().await;
        until("it is settled", || gateway.in_use() == 0).await;
        before -= 23;
    }
    // Two hundred answers of 20 tokens have told what they are like.
    assert!((3 + 15..=3 + 40).contains(&last), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_keys_own_limit_holds_beside_its_tenants_and_a_refusal_by_either_costs_the_other_nothing() {
    let (mut gateway, mut backend) = Piped::start(4, |raw| {
        let other = "esk-other-0123456789abcdef";
        let mut small = key("small", GOLD);
        small.requests_per_minute = Some(1);
        let keys = Some(vec![small, key("large", other)]);
        let requests_per_minute = Some(3);
        raw.tenants = Some(vec![RawTenant { name: "gold".into(), requests_per_minute, keys, ..RawTenant::default() }]);
    });
    let (name, value) = bearer(GOLD);
    let small = || with(completion(""), &[(name, &value)]);
    let large = || with(completion(""), &[("x-api-key", "esk-other-0123456789abcdef")]);
    let answer = ask(&mut gateway, &mut backend, small(), |call| call.stream().finish()).await;
    assert_eq!(
        (number(&answer, "x-ratelimit-limit-requests"), number(&answer, "x-ratelimit-remaining-requests")),
        (1, 0)
    );
    for _ in 0..5 {
        let message =
            refused(&mut gateway, small()).await.json().await["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("key 'small'"), "{message}");
    }
    for left in [1, 0] {
        let answer = ask(&mut gateway, &mut backend, large(), |call| call.stream().finish()).await;
        assert_eq!(number(&answer, "x-ratelimit-remaining-requests"), left);
    }
    let message = refused(&mut gateway, large()).await.json().await["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("tenant 'gold'"), "{message}");
}
