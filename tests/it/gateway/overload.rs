//! Overload in steps through the gateway on a paused clock, in front of the engine model (R18).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use elasticserve_core::engine::{Engine, Profile, Prompt, Work};
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{Arrival, Plan};
use elasticserve_gateway::config::{RawAdmission, RawConfig};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::sched::overload::{BUDGET, LOADS, SLO, STEP, steps};
use crate::support::backend::{Responding, header};
use crate::support::client::{Client, post};
use crate::support::gateway::Piped;

const SEEDS: u64 = 5;
/// What the engine works on at once.
const PERMITS: u32 = 32;
/// What may wait.
const DEPTH: u32 = 48;
const BODY: &str = r#"{"model":"m","prompt":[1,2,3],"max_tokens":64,"ignore_eos":true,"stream":true}"#;

/// What turns work away.
#[derive(Copy, Clone, Debug)]
enum Admission {
    Budget,
    Predict,
}

/// What clients had of a run.
struct Seen {
    /// For each arrival, when it was planned and whether its answer was good.
    good: BTreeMap<u32, (Span, bool)>,
    most_queued: usize,
    most_memory: u64,
}

#[tokio::test(start_paused = true)]
async fn at_four_times_the_capacity_the_gateway_keeps_its_goodput_and_its_bounds_and_is_well_again_soon() {
    for seed in 0..SEEDS {
        let plan = steps(seed);
        for admission in [Admission::Budget, Admission::Predict] {
            let seen = run(&plan, admission).await;
            let mut good = [0; LOADS.len()];
            for (at, _) in seen.good.values().filter(|(_, good)| *good) {
                good[(at.as_nanos() / STEP.as_nanos()) as usize] += 1;
            }
            let best = *good.iter().max().unwrap();
            assert!(f64::from(good[3]) >= 0.9 * f64::from(best), "{admission:?}, seed {seed}: {good:?}");
            let well = STEP * 4 + BUDGET * 2;
            let late = seen.good.values().filter(|(at, good)| *at >= well && !good).count();
            assert_eq!(late, 0, "{admission:?}, seed {seed}: {good:?}");
            assert!(seen.most_queued > 2, "{admission:?}, seed {seed}: nothing waited");
            assert!(seen.most_queued <= DEPTH as usize, "{admission:?}, seed {seed}: {} waited", seen.most_queued);
            // A body is in memory while it is read, waits and is sent.
            let bound = u64::from(DEPTH + PERMITS) * BODY.len() as u64;
            assert!(seen.most_memory <= bound, "{admission:?}, seed {seed}: {} of {bound}", seen.most_memory);
        }
    }
}

fn configure(raw: &mut RawConfig, admission: Admission) {
    raw.queue.depth = Some(DEPTH);
    // All clients connect before the first one sends.
    raw.timeouts.header = Some("1h".into());
    let limit = |span: Option<Span>| span.map(|span| span.to_string());
    (raw.slo.ttft, raw.slo.e2e) = (limit(SLO.ttft), limit(SLO.e2e));
    match admission {
        Admission::Budget => raw.queue.budget = Some(BUDGET.to_string()),
        Admission::Predict => {
            raw.queue.admission = Some(RawAdmission::Predict);
            raw.predict.profile = Some("gb10-qwen3-8b-fp8".into());
        }
    }
}

async fn run(plan: &Plan, admission: Admission) -> Seen {
    let (mut gateway, mut backend) = Piped::start(PERMITS, |raw| configure(raw, admission));
    let origin = Instant::now();
    let good: Arc<Mutex<BTreeMap<u32, (Span, bool)>>> = Arc::default();
    let mut clients = JoinSet::new();
    for &arrival in plan.arrivals() {
        let (client, good) = (gateway.client().await, Arc::clone(&good));
        clients.spawn(async move {
            let is_good = ask(client, arrival, origin).await;
            good.lock().unwrap().insert(arrival.index, (arrival.at, is_good));
        });
    }
    let mut engine = Behind { engine: Engine::new(&profile()), running: BTreeMap::new(), origin };
    let (mut most_queued, mut most_memory) = (0, 0);
    loop {
        engine.act();
        most_queued = most_queued.max(gateway.queued());
        most_memory = most_memory.max(gateway.service.body_memory());
        let wake = engine.engine.next_output().map(|at| origin + at.since(Tick::ZERO).to_std());
        tokio::select! {
            call = backend.next_call() => {
                let call = call.unwrap();
                let index: u32 = header(&call.head.headers, "x-request-id").unwrap().parse().unwrap();
                engine.submit(&plan.arrivals()[index as usize], call.stream());
            }
            () = sleep_until(wake.unwrap_or(origin)), if wake.is_some() => {}
            done = clients.join_next() => match done {
                Some(done) => done.unwrap(),
                None => break,
            },
        }
    }
    gateway.service.audit().unwrap();
    assert_eq!((gateway.queued(), gateway.in_use()), (0, 0));
    assert_eq!(gateway.service.totals().offers, plan.arrivals().len() as u64);
    let good = std::mem::take(&mut *good.lock().unwrap());
    assert_eq!(good.len(), plan.arrivals().len());
    Seen { good, most_queued, most_memory }
}

/// Sends a request at its time; whether its answer was whole and within its limits.
async fn ask(client: Client, arrival: Arrival, origin: Instant) -> bool {
    let mut request = post("/v1/completions", BODY);
    for (name, value) in [
        ("x-request-id", arrival.index),
        ("x-elasticserve-input-tokens", arrival.input),
        ("x-elasticserve-output-tokens", arrival.output),
    ] {
        request.headers_mut().insert(name, value.into());
    }
    sleep_until(origin + arrival.at.to_std()).await;
    let since = || Span::from_std(origin.elapsed()).saturating_sub(arrival.at);
    let mut answer = client.send(request).await.unwrap();
    let Some(Ok(_)) = answer.chunk().await else { return false };
    let first = since();
    let (_, whole) = answer.rest().await;
    let within = |limit: Option<Span>, taken: Span| limit.is_none_or(|limit| taken <= limit);
    answer.status == 200 && whole && within(SLO.ttft, first) && within(SLO.e2e, since())
}

fn profile() -> Profile {
    Profile::built_in("gb10-qwen3-8b-fp8").unwrap()
}

/// A backend that answers when the engine model says, to the millisecond of the paused clock.
struct Behind {
    engine: Engine,
    running: BTreeMap<u64, Responding>,
    origin: Instant,
}

impl Behind {
    fn now(&self) -> Tick {
        Tick::ZERO + Span::from_std(self.origin.elapsed())
    }

    fn submit(&mut self, arrival: &Arrival, responding: Responding) {
        let Arrival { index, input, output, .. } = *arrival;
        let tag = u64::from(index);
        self.engine.submit(self.now(), Work { tag, prompt: Prompt::Unique, input, output }).unwrap();
        self.running.insert(tag, responding);
    }

    fn act(&mut self) {
        while let Some(token) = self.engine.poll(self.now()) {
            self.running[&token.tag].event(r#"{"choices":[{"text":"a"}]}"#);
            if token.last
                && let Some(responding) = self.running.remove(&token.tag)
            {
                responding.finish();
            }
        }
    }
}
