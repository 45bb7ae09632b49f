//! Keys: who gets in, and that nobody else learns anything (S10).

use elasticserve_core::rng::{Random, Stream};
use elasticserve_gateway::config::RawTenant;

use super::{BATCH, EXPIRED, GOLD, bearer, key, with, with_keys};
use crate::support::backend::header;
use crate::support::client::{completion, get, post};
use crate::support::gateway::Piped;

/// Ways to show a key that is none, with `r` for some random letters.
fn wrong_ways(r: &str) -> Vec<Vec<(&'static str, String)>> {
    let one = |value: String| vec![("authorization", value)];
    vec![
        vec![],
        one(String::new()),
        one("Bearer".into()),
        one("Bearer ".into()),
        one(format!("Bearer esk-{r}{r}{r}")),
        one(format!("Bearer {EXPIRED}")),
        one(format!("Bearer {}", &GOLD[..GOLD.len() - 1])),
        one(format!("Bearer {GOLD}{r}")),
        one(format!("Bearer {}", GOLD.to_uppercase())),
        one(format!("Bearer {GOLD} {r}")),
        one(format!("Bearer {}", r.repeat(3_000))),
        one(format!("Basic {GOLD}")),
        one(GOLD.into()),
        one(format!("Bearer {GOLD}, Bearer {GOLD}")),
        one(format!("Bearer \u{e9}{GOLD}")),
        vec![bearer(GOLD), bearer(GOLD)],
        vec![bearer(GOLD), ("x-api-key", GOLD.into())],
        vec![("x-api-key", r.to_owned())],
        vec![("proxy-authorization", format!("Bearer {GOLD}"))],
        vec![("cookie", format!("authorization=Bearer {GOLD}"))],
    ]
}

#[tokio::test(start_paused = true)]
async fn every_wrong_key_is_refused_with_the_same_words_and_reaches_no_backend() {
    let (mut gateway, backend) = Piped::start(4, with_keys);
    let mut random = Random::new(10, Stream::Test);
    let (mut first, mut trials) = (None, 0);
    for _ in 0..10 {
        let letters: String = (0..8).map(|_| char::from(b'a' + random.between(0, 25) as u8)).collect();
        for way in wrong_ways(&letters) {
            let headers: Vec<(&str, &str)> = way.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let request = if trials % 2 == 0 { completion("") } else { get("/v1/models") };
            let mut answer = gateway.client().await.send(with(request, &headers)).await.unwrap();
            assert_eq!(answer.status, 401, "{headers:?}");
            answer.headers.remove("x-request-id");
            answer.headers.remove("date");
            let seen = (answer.headers.clone(), answer.rest().await.0);
            assert_eq!(first.get_or_insert_with(|| seen.clone()), &seen, "{headers:?}");
            trials += 1;
        }
    }
    let (headers, body) = first.unwrap();
    assert_eq!((trials, header(&headers, "www-authenticate")), (200, Some("Bearer")));
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&body["error"]["code"], &body["error"]["type"]),
        (&"invalid_api_key".into(), &"invalid_request_error".into())
    );
    assert!(!backend.has_call());
    assert_eq!(gateway.service.totals().offers, 0);
}

#[tokio::test(start_paused = true)]
async fn a_valid_key_gets_in_by_either_header_and_goes_by_its_tenant() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        with_keys(raw);
        // Who is known as batch finds no place.
        raw.tenants.as_mut().unwrap()[1].max_queued = Some(0);
    });
    for show in [bearer(GOLD), ("authorization", format!("bearer   {GOLD}")), ("x-api-key", GOLD.into())] {
        let client = gateway.client().await;
        let request = with(completion(""), &[(show.0, &show.1)]);
        let (running, call) = tokio::join!(client.send(request), async { backend.call().await.stream() });
        // The one permit is taken, so the tenant decides what becomes of the next.
        let refused =
            gateway.client().await.send(with(completion(""), &[("x-api-key", BATCH)])).await.unwrap().json().await;
        assert_eq!(refused["error"]["code"], "tenant_limit");
        assert!(refused["error"]["message"].as_str().unwrap().starts_with("batch "), "{refused}");
        call.finish();
        assert_eq!(running.unwrap().status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_bound_to_models_is_told_which_it_may_not_use() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        let mut bound = key("bound", GOLD);
        bound.models = Some(vec!["small".into(), "Qwen/*".into()]);
        raw.tenants = Some(vec![RawTenant { name: "gold".into(), keys: Some(vec![bound]), ..RawTenant::default() }]);
    });
    let (name, value) = bearer(GOLD);
    for (path, body, says) in [
        ("/v1/completions", r#"{"model":"large","prompt":"x"}"#, "'large'"),
        ("/v1/completions", r#"{"prompt":"x"}"#, "names none"),
        ("/v1/completions", r#"{"mod\u0065l":"large","prompt":"x"}"#, "'large'"),
        ("/tokenize", r#"{"model":"large","prompt":"x"}"#, "'large'"),
    ] {
        let refused = gateway.client().await.send(with(post(path, body), &[(name, &value)])).await;
        let mut refused = refused.unwrap();
        assert_eq!(refused.status, 403, "{body}");
        let error = &refused.json().await["error"];
        let message = error["message"].as_str().unwrap();
        assert!(
            error["code"] == "model_not_allowed" && message.contains("'bound'") && message.contains(says),
            "{message}"
        );
    }
    // Naming a model twice is no way around it.
    let twice = r#"{"model":"small","prompt":"x","model":"large"}"#;
    let refused = gateway.client().await.send(with(post("/v1/completions", twice), &[(name, &value)])).await.unwrap();
    assert_eq!(refused.status, 400);
    assert!(!backend.has_call());
    for model in ["small", "Qwen/Qwen3-8B"] {
        let client = gateway.client().await;
        let request =
            with(post("/v1/completions", &format!(r#"{{"model":"{model}","prompt":"x"}}"#)), &[(name, &value)]);
        let (answer, ()) = tokio::join!(client.send(request), async { backend.call().await.json("{}") });
        assert_eq!(answer.unwrap().status, 200, "{model}");
    }
}
