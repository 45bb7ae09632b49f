//! Clients that ask again as the OpenAI SDKs do, at twice what the engine can serve, on a paused clock: what is left for
//! those who ask for the first time.
//!
//! A client asks again up to twice, after the time that it was told, unless it was told not to. Its answer is good if
//! it is within its limits from the moment when it was to be asked *first*.

use std::time::Duration;

use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::Order;
use elasticserve_gateway::Service;
use elasticserve_gateway::config::{RawAdmission, RawConfig, RawPredict, RawSlo, RawStall, RawTenant};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::backend::{Call, header};
use crate::support::client::{Client, post};
use crate::support::engine::{Asked, EngineBackend};
use crate::support::gateway::Piped;

const SEATS: u32 = 16;
const OUTPUT: u32 = 25;
/// With 21 steps a second for 16 seats the engine ends some 13 such answers; this many users come, of whom each has a
/// single question.
const USERS: u32 = 810;
/// Mean time between two of them: 27 a second.
const MEAN_GAP_MS: u64 = 37;
const TTFT: Duration = Duration::from_millis(700);
const E2E: Duration = Duration::from_secs(4);
/// Further attempts of an SDK.
const MOST: u32 = 2;
const TENANTS: [&str; 2] = ["gold", "standard"];

/// What decides.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Policy {
    Budget,
    Predict,
    /// The same with lengths that are learned.
    LeastSlack,
    /// By what an answer is worth and costs the others.
    Price,
    /// Shares of three to one.
    Wfq,
}

/// What became of one user.
struct Ended {
    attempts: u32,
    answered: bool,
    good: bool,
}

/// What became of all.
#[derive(Debug)]
struct Sums {
    attempts: u32,
    answered: u32,
    good: u32,
}

fn configure(raw: &mut RawConfig, policy: Policy) {
    let ms = |limit: Duration| Some(format!("{}ms", limit.as_millis()));
    let slo = RawSlo { ttft: ms(TTFT), tpot: None, e2e: ms(E2E) };
    let weight = |name: &str| if policy == Policy::Wfq && name == TENANTS[0] { 3 } else { 1 };
    let tenant = |name: &str| RawTenant {
        name: name.into(),
        weight: Some(weight(name)),
        slo: Some(slo.clone()),
        ..RawTenant::default()
    };
    raw.tenants = Some(TENANTS.map(tenant).to_vec());
    raw.timeouts.header = Some("1h".into());
    let cost = RawPredict {
        overhead: Some("3ms".into()),
        prefill_per_token: Some("0".into()),
        first_token_steps: Some(3),
        idle_tpot: Some("40ms".into()),
        ..RawPredict::default()
    };
    match policy {
        Policy::Budget => raw.queue.budget = Some("500ms".into()),
        Policy::Predict => {
            raw.queue.admission = Some(RawAdmission::Predict);
            raw.predict = cost;
        }
        Policy::LeastSlack => {
            raw.queue.admission = Some(RawAdmission::Predict);
            raw.queue.order = Some(Order::LeastSlack);
            raw.predict = cost;
        }
        Policy::Price => {
            raw.queue.admission = Some(RawAdmission::Price);
            raw.queue.order = Some(Order::LeastSlack);
            let (per_token_ms, free_tokens) = (0.5, 40.0);
            let stall = Some(RawStall { per_token_ms, free_tokens, ..RawStall::default() });
            raw.predict = RawPredict { stall, ..cost };
        }
        Policy::Wfq => {
            raw.queue.order = Some(Order::Wfq);
            raw.queue.budget = Some("500ms".into());
            raw.predict = cost;
        }
    }
}

/// A user who asks at `at`, and again up to `most` times.
async fn user(service: Service, policy: Policy, index: u32, at: Instant, most: u32) -> Ended {
    sleep_until(at).await;
    let mut attempts = 0;
    loop {
        let mut request = post("/v1/completions", r#"{"model":"m","prompt":[1,2,3],"stream":true}"#);
        let headers = request.headers_mut();
        headers.insert("x-request-id", index.into());
        headers.insert("x-elasticserve-tenant", TENANTS[index as usize % 2].parse().unwrap());
        if policy != Policy::LeastSlack {
            headers.insert("x-elasticserve-output-tokens", OUTPUT.into());
        }
        headers.insert("x-stainless-retry-count", attempts.into());
        let (mut serving, service) = (JoinSet::new(), service.clone());
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        serving.spawn(async move { service.serve(theirs).await });
        let mut answer = Client::over(ours).await.send(request).await.unwrap();
        attempts += 1;
        if answer.status == 200 {
            answer.chunk().await.unwrap().unwrap();
            let first = at.elapsed();
            let (_, answered) = answer.rest().await;
            let good = answered && first <= TTFT && at.elapsed() <= E2E;
            return Ended { attempts, answered, good };
        }
        assert_eq!(answer.status, 429, "{:?}", answer.headers);
        let told = header(&answer.headers, "retry-after-ms").map(|ms| ms.parse().unwrap());
        let welcome = header(&answer.headers, "x-should-retry") != Some("false");
        let Some(told) = told.filter(|_| welcome && attempts <= most) else {
            return Ended { attempts, answered: false, good: false };
        };
        answer.rest().await;
        sleep(Duration::from_millis(told)).await;
    }
}

async fn run(policy: Policy, most: u32) -> Sums {
    let (gateway, mut backend) = Piped::start(SEATS, |raw| configure(raw, policy));
    let origin = Instant::now();
    let (mut clients, mut random, mut at) = (JoinSet::new(), Random::new(7, Stream::Test), origin);
    for index in 0..USERS {
        at += Duration::from_millis(random.between(1, 2 * MEAN_GAP_MS - 1));
        clients.spawn(user(gateway.service.clone(), policy, index, at, most));
    }
    let what = |call: &Call| {
        let number = header(&call.head.headers, "x-request-id").unwrap().parse().unwrap();
        Asked { number, input: 3, output: OUTPUT }
    };
    let all = EngineBackend::new(SEATS, origin).serve(&mut backend, &mut clients, what).await;
    gateway.service.audit().unwrap();
    let sums = Sums {
        attempts: all.iter().map(|ended| ended.attempts).sum(),
        answered: all.iter().filter(|ended| ended.answered).count() as u32,
        good: all.iter().filter(|ended| ended.good).count() as u32,
    };
    assert_eq!((all.len() as u32, gateway.service.totals().offers), (USERS, u64::from(sums.attempts)));
    sums
}

#[tokio::test(start_paused = true)]
async fn who_asks_again_at_twice_the_capacity_takes_no_more_than_a_tenth_of_the_goodput() {
    for policy in [Policy::Budget, Policy::Predict, Policy::LeastSlack, Policy::Price, Policy::Wfq] {
        let (once, again) = (run(policy, 0).await, run(policy, MOST).await);
        let told = format!("{policy:?}: without {once:?}, with {again:?}");
        // The load is about twice what is answered in time, and half of all have reason to ask again.
        assert!(
            f64::from(once.good) > 0.4 * f64::from(USERS) && f64::from(once.good) < 0.6 * f64::from(USERS),
            "{told}"
        );
        assert!(once.attempts == USERS && f64::from(again.attempts) > 1.7 * f64::from(USERS), "{told}");
        assert!(f64::from(again.good) >= 0.9 * f64::from(once.good), "{told}");
        // Nobody goes without for it: as many are answered, and what is asked again is answered when there is room.
        assert!(again.answered >= once.answered, "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_refused_in_a_burst_is_answered_when_asking_again_after_it() {
    // 40 at once are beyond the seats, and beyond what a budget of half a second lets wait to the end.
    let (gateway, mut backend) = Piped::start(SEATS, |raw| configure(raw, Policy::Budget));
    let origin = Instant::now();
    let mut clients = JoinSet::new();
    for index in 0..40 {
        clients.spawn(user(gateway.service.clone(), Policy::Budget, index, origin + Duration::from_millis(1), MOST));
    }
    let what = |call: &Call| {
        let number = header(&call.head.headers, "x-request-id").unwrap().parse().unwrap();
        Asked { number, input: 3, output: OUTPUT }
    };
    let all = EngineBackend::new(SEATS, origin).serve(&mut backend, &mut clients, what).await;
    assert!(all.iter().filter(|ended| ended.attempts > 1).count() >= 20);
    assert!(all.iter().all(|ended| ended.answered), "{:?}", all.iter().map(|e| e.attempts).collect::<Vec<_>>());
}
