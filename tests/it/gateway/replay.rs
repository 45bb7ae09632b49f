//! One plan through the simulator and through the real gateway gives the same decisions.
//!
//! The gateway runs over pipes on a paused clock, in front of a backend that answers as the engine model
//! says. Compared are, for every arrival: granted or refused and why, and when. Grants must fall on
//! the same tick (the header that tells the wait has whole microseconds); refusals may be told up to one
//! millisecond later, which is the grain of tokio's timer. Everything but expiries happens on whole
//! milliseconds, and arrivals, tokens and ends never on the same one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use elasticserve_core::engine::Prompt;
use elasticserve_core::outcome::How;
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::{OnMiss, Order};
use elasticserve_core::sim::{self, Declares, GatewaySetup, Setup};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{Arrival, PlanTenant};
use elasticserve_gateway::config::{RawAdmission, RawConfig, RawPredict, RawSlo, RawStall, RawTenant};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::support::backend::{Call, header};
use crate::support::client::post;
use crate::support::engine::{Asked, EngineBackend, TAIL, profile};
use crate::support::gateway::{Piped, settings};

const SEEDS: u64 = 50;
const REQUESTS: u32 = 80;
const SEATS: u32 = 6;
/// Name, TTFT and E2E limits in ms; weights 4, 2 and 1.
const TENANTS: [(&str, u64, u64); 3] = [("gold", 600, 1_800), ("standard", 1_200, 5_000), ("batch", 4_000, 9_000)];

/// What decides.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Policy {
    Predict,
    Price,
    /// By value, with lengths that are learned, and work cut when its deadline is lost.
    Learned,
    Wfq,
    Fcfs,
}

impl Policy {
    const ALL: [Self; 5] = [Self::Predict, Self::Price, Self::Learned, Self::Wfq, Self::Fcfs];

    fn order(self) -> Order {
        match self {
            Self::Predict | Self::Price => Order::LeastSlack,
            Self::Learned => Order::Value,
            Self::Wfq => Order::Wfq,
            Self::Fcfs => Order::Fcfs,
        }
    }
}

/// What was decided about an arrival, and when; `None` for a permit.
type Decisions = BTreeMap<u32, (Option<String>, Span)>;

fn arrivals(seed: u64) -> Vec<Arrival> {
    let mut random = Random::new(seed, Stream::Test);
    let mut at = Span::ZERO;
    let mut next = |index| {
        at += Span::from_millis(10 * random.between(1, 20));
        let (tenant, output) = (random.between(0, 2) as u16, random.between(4, 60) as u32);
        let input = random.between(16, 512) as u32;
        Arrival { index, at, tenant, input, output, prompt: u64::from(index) }
    };
    (0..REQUESTS).map(&mut next).collect()
}

fn configure(raw: &mut RawConfig, policy: Policy) {
    let ms = |ms: u64| Some(format!("{ms}ms"));
    let slo = |ttft, e2e| Some(RawSlo { ttft: ms(ttft), tpot: None, e2e: ms(e2e) });
    let tenant = |(name, ttft, e2e): (&str, u64, u64)| RawTenant {
        name: name.into(),
        weight: Some(if name == "gold" { 4 } else { 1 + u32::from(name == "standard") }),
        slo: slo(ttft, e2e),
        max_permits: (name == "batch").then_some(4),
        ..RawTenant::default()
    };
    raw.tenants = Some(TENANTS.map(tenant).to_vec());
    raw.queue.order = Some(policy.order());
    // All that waits is then looked at one by one, whatever it costs.
    raw.queue.depth = Some(32);
    raw.timeouts.header = Some("1h".into());
    let cost = |overhead: &str, steps| RawPredict {
        overhead: Some(overhead.into()),
        prefill_per_token: Some("0".into()),
        first_token_steps: Some(steps),
        idle_tpot: Some("40ms".into()),
        ..RawPredict::default()
    };
    match policy {
        Policy::Predict | Policy::Price | Policy::Learned => {
            raw.queue.admission = Some(RawAdmission::Predict);
            raw.predict = cost("3ms", 3);
        }
        Policy::Wfq => {
            raw.queue.budget = Some("755ms".into());
            raw.predict = cost("3ms", 3);
        }
        Policy::Fcfs => raw.queue.budget = Some("755ms".into()),
    }
    if policy == Policy::Learned {
        raw.queue.on_miss = Some(OnMiss::Abort);
    }
    if policy == Policy::Price {
        raw.queue.admission = Some(RawAdmission::Price);
        raw.queue.fairness = Some(0.7);
        // The engine's steps do not grow with prompts here, so that everything happens on whole milliseconds;
        // what a request is charged need not be what it takes.
        let (per_token_ms, free_tokens) = (0.5, 40.0);
        raw.predict.stall = Some(RawStall { per_token_ms, free_tokens, ..RawStall::default() });
    }
}

/// What is decided, and how many answers are cut.
fn simulated(policy: Policy, arrivals: &[Arrival]) -> (Decisions, u32) {
    let mut raw = settings("backend", SEATS);
    configure(&mut raw, policy);
    let scheduler = raw.check().unwrap().scheduler();
    let tenants = TENANTS.map(|(name, ttft, e2e)| {
        PlanTenant::new(
            name,
            1.0,
            Slo { ttft: Some(Span::from_millis(ttft)), tpot: None, e2e: Some(Span::from_millis(e2e)) },
        )
    });
    let declares = if policy == Policy::Learned { Declares::None } else { Declares::All };
    let gateway = GatewaySetup { release_delay: TAIL, declares, ..GatewaySetup::instant(scheduler) };
    let setup = Setup { engines: vec![profile(SEATS)], gateway: Some(gateway), warm: Vec::new() };
    let (mut decisions, mut cut) = (Decisions::new(), 0);
    let work = arrivals.iter().map(|a| (*a, Prompt::Unique));
    sim::run_arrivals(&tenants, work, &setup, |record| {
        let row = record.to_row();
        let at = match (row.queue, row.end) {
            // What is cut gives its seat back one nanosecond after its limit, which the gateway's header does not show.
            (Some(waited), _) => Span::from_nanos((record.arrival.at + waited).as_nanos() / 1_000 * 1_000),
            (None, end) => end.unwrap().since(Tick::ZERO),
        };
        decisions.insert(row.index, (row.reason, at));
        cut += u32::from(row.error.is_some());
    })
    .unwrap();
    (decisions, cut)
}

async fn served(policy: Policy, arrivals: &[Arrival]) -> (Decisions, u32) {
    let (mut gateway, mut backend) = Piped::start(SEATS, |raw| configure(raw, policy));
    let origin = Instant::now();
    let decisions: Arc<Mutex<Decisions>> = Arc::default();
    let mut clients = JoinSet::new();
    for &arrival in arrivals {
        let (client, decisions) = (gateway.client().await, Arc::clone(&decisions));
        let mut request = post("/v1/completions", r#"{"model":"m","prompt":[1,2,3],"stream":true}"#);
        for (name, value) in [
            ("x-request-id", arrival.index.to_string()),
            ("x-elasticserve-tenant", TENANTS[usize::from(arrival.tenant)].0.to_owned()),
            ("x-elasticserve-input-tokens", arrival.input.to_string()),
            ("x-elasticserve-output-tokens", arrival.output.to_string()),
        ] {
            if name == "x-elasticserve-output-tokens" && policy == Policy::Learned {
                continue;
            }
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        clients.spawn(async move {
            sleep_until(origin + arrival.at.to_std()).await;
            let mut answer = client.send(request).await.unwrap();
            let now = Span::from_std(origin.elapsed());
            let reason = header(&answer.headers, "x-elasticserve-reason").map(str::to_owned);
            let waited = header(&answer.headers, "x-elasticserve-queue-ms").map(|ms| ms.parse().unwrap());
            let at = waited.map_or(now, |ms| arrival.at + Span::from_millis_f64(ms));
            decisions.lock().unwrap().insert(arrival.index, (reason, at));
            answer.rest().await;
        });
    }
    let what = |call: &Call| {
        let index: u32 = header(&call.head.headers, "x-request-id").unwrap().parse().unwrap();
        let Arrival { input, output, .. } = arrivals[index as usize];
        Asked { number: u64::from(index), input, output }
    };
    EngineBackend::new(SEATS, origin).serve(&mut backend, &mut clients, what).await;
    gateway.service.audit().unwrap();
    let cut = gateway.service.totals().released.get(&How::Aborted).copied().unwrap_or(0);
    (std::mem::take(&mut *decisions.lock().unwrap()), cut as u32)
}

#[tokio::test(start_paused = true)]
async fn a_plan_meets_the_same_decisions_in_the_simulator_and_in_the_gateway() {
    let mut endings: BTreeMap<String, u32> = BTreeMap::new();
    let (mut priced, mut all_cut) = (0, 0);
    for seed in 0..SEEDS {
        let policy = Policy::ALL[seed as usize % Policy::ALL.len()];
        let plan = arrivals(seed);
        let (expected, cut) = simulated(policy, &plan);
        let (seen, cut_by_gateway) = served(policy, &plan).await;
        assert_eq!(cut, cut_by_gateway, "{policy:?}, seed {seed}");
        all_cut += cut;
        priced += u32::from(policy == Policy::Price && expected != simulated(Policy::Predict, &plan).0);
        assert_eq!((expected.len(), seen.len()), (plan.len(), plan.len()), "seed {seed}");
        for (index, (reason, at)) in &expected {
            let (seen_reason, seen_at) = &seen[index];
            assert_eq!(reason, seen_reason, "{policy:?}, seed {seed}, arrival {index}: {at} {seen_at}");
            let late = seen_at.checked_sub(*at);
            let grain = if reason.is_none() { Span::ZERO } else { TAIL };
            assert!(late.is_some_and(|l| l <= grain), "seed {seed}, arrival {index} {reason:?}: {at} {seen_at}");
            let ending = reason.as_deref().unwrap_or("granted");
            *endings.entry(format!("{policy:?} {ending}")).or_default() += 1;
        }
    }
    assert!(all_cut > 10, "too little was cut: {all_cut}");
    assert!(priced > 5, "the price decided too little: {priced}");
    for name in [
        "Predict granted",
        "Predict slo_infeasible",
        "Predict predicted_late",
        "Predict queue_expired",
        "Price granted",
        "Price predicted_late",
        "Learned granted",
        "Learned predicted_late",
        "Wfq granted",
        "Wfq queue_expired",
        "Fcfs granted",
        "Fcfs queue_expired",
    ] {
        assert!(endings.get(name).is_some_and(|n| *n > 10), "{name} is not exercised: {endings:?}");
    }
}
