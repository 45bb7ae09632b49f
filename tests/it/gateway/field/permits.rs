//! Permits over long times, and as many in use as there are requests alive.

use std::time::Duration;

use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::Order;
use elasticserve_gateway::config::{RawAdmission, RawConfig, RawTenant};
use tokio::time::{Instant, sleep};

use crate::gateway::security::with;
use crate::support::backend::{Backend, Responding, header};
use crate::support::client::{Answer, completion};
use crate::support::gateway::{Piped, Sending};
use crate::support::until;

const TOKEN: &str = r#"{"choices":[{"text":"a"}]}"#;

/// A stream that has begun, with both of its ends.
async fn begin(gateway: &mut Piped, backend: &mut Backend) -> (Answer, Responding) {
    let sending = gateway.send(completion(""));
    let responding = backend.call().await.stream();
    (sending.answer().await, responding)
}

#[tokio::test(start_paused = true)]
async fn streams_that_stay_open_for_hours_keep_their_permits_and_let_nobody_else_in() {
    let (mut gateway, mut backend) = Piped::start(3, |_| {});
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(begin(&mut gateway, &mut backend).await);
    }
    let waiting: Vec<Sending> = (0..9).map(|_| gateway.send(completion(""))).collect();
    until("nine wait", || gateway.queued() == 9).await;
    // Six hours; a token every four minutes keeps the idle limit away.
    for minute in (0..360).step_by(4) {
        sleep(Duration::from_secs(240)).await;
        for (answer, responding) in &mut running {
            responding.event(TOKEN);
            answer.chunk().await.unwrap().unwrap();
        }
        assert_eq!((gateway.in_use(), gateway.queued(), backend.has_call()), (3, 9, false), "after {minute} minutes");
    }
    // One goes, one comes.
    let (mut answer, responding) = running.remove(0);
    responding.finish();
    assert!(answer.rest().await.1);
    let next = backend.call().await.stream();
    until("eight wait", || gateway.queued() == 8).await;
    assert_eq!((gateway.in_use(), backend.has_call()), (3, false));
    gateway.service.audit().unwrap();
    drop((waiting, running, next));
    until("all permits are back", || gateway.in_use() == 0 && gateway.queued() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_the_queue_is_bounded_by_its_budget_and_by_no_other_limit() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        raw.queue.budget = Some("3h".into());
        // All that could be mistaken for a limit of the queue is far shorter.
        raw.timeouts.header = Some("2s".into());
        raw.timeouts.body = Some("2s".into());
        raw.timeouts.connect = Some("2s".into());
        raw.timeouts.head = Some("2s".into());
        raw.timeouts.write = Some("2s".into());
    });
    let (mut answer, holder) = begin(&mut gateway, &mut backend).await;
    let (asked, waiting) = (Instant::now(), gateway.send(completion("")));
    until("it waits", || gateway.queued() == 1).await;
    for _ in 0..44 {
        sleep(Duration::from_secs(240)).await;
        holder.event(TOKEN);
        answer.chunk().await.unwrap().unwrap();
        assert_eq!(gateway.queued(), 1, "after {:?}", asked.elapsed());
    }
    holder.finish();
    let responding = backend.call().await.stream();
    responding.finish();
    let mut answer = waiting.answer().await;
    assert_eq!((answer.status.as_u16(), answer.rest().await.1), (200, true));
    let waited: f64 = header(&answer.headers, "x-elasticserve-queue-ms").unwrap().parse().unwrap();
    assert!((10_560_000.0..10_561_000.0).contains(&waited), "{waited} ms");
}

#[tokio::test(start_paused = true)]
async fn the_largest_request_of_all_is_served_at_once_by_an_idle_backend_whatever_the_order() {
    for order in [Order::Fcfs, Order::Wfq, Order::Priority, Order::LeastSlack, Order::ShortestFirst] {
        let (mut gateway, mut backend) = Piped::start(2, |raw: &mut RawConfig| {
            raw.queue.order = Some(order);
            raw.queue.admission = Some(RawAdmission::Predict);
            raw.predict.profile = Some("gb10-qwen3-8b-fp8".into());
            raw.slo.ttft = Some("10m".into());
        });
        let large =
            with(completion(""), &[("x-elasticserve-input-tokens", "5000000"), ("x-elasticserve-output-tokens", "9")]);
        let asked = Instant::now();
        let sending = gateway.send(large);
        backend.call().await.stream().finish();
        assert_eq!((sending.answer().await.status.as_u16(), asked.elapsed()), (200, Duration::ZERO), "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_was_silent_for_a_week_is_served_as_ever() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        let tenant = |name: &str| RawTenant { name: name.into(), ..RawTenant::default() };
        raw.queue.order = Some(Order::Wfq);
        raw.tenants = Some(vec![tenant("busy"), tenant("quiet")]);
        raw.default_tenant = Some("busy".into());
    });
    let of = |name: &str| with(completion(""), &[("x-elasticserve-tenant", name), ("x-request-id", name)]);
    for week in 0..3 {
        // What one has more of is forgotten once nothing is left to do.
        for tenant in ["quiet", "busy", "busy", "busy", "busy", "busy"] {
            let sending = gateway.send(of(tenant));
            backend.call().await.stream().finish();
            assert_eq!(sending.answer().await.status, 200, "week {week}");
        }
        until("the permit is back", || gateway.in_use() == 0).await;
        sleep(Duration::from_secs(7 * 86_400)).await;
    }
    // Nor has it saved up anything: it does not go three times before the other one.
    let (_answer, holder) = begin(&mut gateway, &mut backend).await;
    let mut sent = Vec::new();
    for (waiting, tenant) in ["quiet", "quiet", "quiet", "busy"].into_iter().enumerate() {
        sent.push(gateway.send(of(tenant)));
        until("it waits", || gateway.queued() == waiting + 1).await;
    }
    holder.finish();
    let mut order = Vec::new();
    for _ in &sent {
        let call = backend.call().await;
        order.push(header(&call.head.headers, "x-request-id").unwrap().to_owned());
        call.stream().finish();
    }
    assert_ne!(order[3], "busy", "{order:?}");
}

/// A request that is alive, as the test knows it.
enum Alive {
    /// Its backend has not answered yet.
    Asked(Sending, crate::support::backend::Call),
    Streaming(Answer, Responding),
}

#[tokio::test(start_paused = true)]
async fn permits_in_use_are_the_requests_that_are_alive_at_each_backend_however_they_end() {
    const TEXT: &str = "listen = '127.0.0.1:1'\n[health]\nfailures = 1000000\n\
        [[backends]]\nurl = 'http://a'\npermits = 6\n[[backends]]\nurl = 'http://b'\npermits = 6\n";
    for seed in 0..30 {
        let mut random = Random::new(seed, Stream::Test);
        let (mut gateway, mut backends, _dial) = Piped::over(&["a", "b"], TEXT);
        let mut alive: [Vec<Alive>; 2] = Default::default();
        for step in 0..80 {
            let place = random.between(0, 1) as usize;
            let total = alive[0].len() + alive[1].len();
            if total < 12 && (random.between(0, 2) > 0 || alive[place].is_empty()) {
                let sending = gateway.send(completion(""));
                let (place, call) = next_call(&mut backends).await;
                alive[place].push(Alive::Asked(sending, call));
            } else if !alive[place].is_empty() {
                let chosen = random.between(0, alive[place].len() as u64 - 1) as usize;
                let one = alive[place].swap_remove(chosen);
                if let Some(goes_on) = act(one, random.between(0, 4)).await {
                    alive[place].push(goes_on);
                }
            }
            let expected = alive.each_ref().map(|all| (all.len() as u32, 6));
            let what = format!("seed {seed}, step {step}: {expected:?} are alive");
            until(&what, || gateway.service.load() == (0, expected.to_vec())).await;
            gateway.service.audit().unwrap();
        }
        drop(alive);
        until("all permits are back", || gateway.in_use() == 0).await;
    }
}

async fn next_call(backends: &mut [Backend]) -> (usize, crate::support::backend::Call) {
    let (first, second) = backends.split_at_mut(1);
    tokio::select! {
        call = first[0].call() => (0, call),
        call = second[0].call() => (1, call),
    }
}

/// Does something to a request; what goes on of it.
async fn act(one: Alive, what: u64) -> Option<Alive> {
    match (one, what) {
        (Alive::Asked(sending, call), 0..=2) => {
            let responding = call.stream();
            Some(Alive::Streaming(sending.answer().await, responding))
        }
        // An answer that is an error of the client's.
        (Alive::Asked(sending, call), 3) => {
            let responding = call.respond(400, &[]);
            responding.chunk(b"{}");
            responding.finish();
            assert!(sending.answer().await.rest().await.1);
            None
        }
        (Alive::Asked(sending, mut call), _) => {
            drop(sending);
            call.abandoned().await;
            None
        }
        (Alive::Streaming(mut answer, responding), 0 | 1) => {
            responding.event(TOKEN);
            answer.chunk().await.unwrap().unwrap();
            Some(Alive::Streaming(answer, responding))
        }
        (Alive::Streaming(mut answer, responding), 2) => {
            responding.finish();
            assert!(answer.rest().await.1);
            None
        }
        (Alive::Streaming(mut answer, responding), 3) => {
            responding.break_off();
            assert!(!answer.rest().await.1);
            None
        }
        (Alive::Streaming(answer, mut responding), _) => {
            drop(answer);
            responding.abandoned().await;
            None
        }
    }
}
