//! Random settings and inputs.

use elasticserve_core::ids::TenantId;
use elasticserve_core::outcome::How;
use elasticserve_core::rng::Random;
use elasticserve_core::sched::{Caution, CostModel, Offer, Order, Predict, Price, Settings, Stall, Used};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;

use super::model::Op;

const ORDERS: [Order; 6] =
    [Order::Fcfs, Order::Wfq, Order::Priority, Order::LeastSlack, Order::ShortestFirst, Order::Value];

/// An engine whose steps take 2 ns, whatever the prompt.
const STEPS: CostModel = CostModel {
    overhead: Span::from_nanos(1),
    prefill_per_token: Span::ZERO,
    first_token_steps: 2,
    idle_tpot: Span::from_nanos(2),
};

const STALL: Stall =
    Stall { per_token_ms: 1e-15, free_tokens: 100.0, attention_ms: 0.0, kv_ms_per_token: 1e-9, sequence_ms: 0.0 };

/// Random settings: few permits, small bounds and short budgets, so that every limit is met often.
pub(super) fn settings(random: &mut Random) -> Settings {
    let order = ORDERS[random.between(0, ORDERS.len() as u64 - 1) as usize];
    let predicts = random.between(0, 2) > 0;
    let backends = (0..random.between(1, 3)).map(|_| random.between(0, 3) as u32).collect();
    let tenants = (0..random.between(1, 3)).map(|_| super::tenant(random)).collect();
    let max_bytes = [0, 200, 1_000, u64::MAX][random.between(0, 3) as usize];
    Settings {
        backends,
        tenants,
        order,
        depth: random.between(0, 12) as usize,
        max_bytes,
        budget: budget(random),
        cost: if predicts { STEPS } else { super::by_prompt() },
        predict: predicts.then(|| {
            let caution =
                Caution { pad: Span::from_nanos(random.between(0, 3)), margin_permille: random.between(0, 99) };
            Predict { caution }
        }),
        price: (random.between(0, 1) == 0).then(|| Price { mu: random.unit(), stall: STALL }),
        guard: Span::from_nanos(random.between(0, 20)),
        affinity_slack: Span::from_nanos(random.between(0, 20)),
    }
}

/// A random input; most are offers and releases.
pub(super) fn op(random: &mut Random) -> Op {
    let how = How::ALL[random.between(0, 4) as usize];
    match random.between(0, 999) {
        0..450 => Op::Offer(offer(random)),
        450..540 => Op::CancelWaiting(random.next_u64()),
        540..560 => Op::CancelAny(random.next_u64()),
        560..580 => Op::FailOver(random.next_u64()),
        580..740 => {
            let count = |random: &mut Random| {
                (random.between(0, 2) > 0).then(|| (random.next_u64() >> random.between(32, 63)) as u32)
            };
            let used = Used { input: count(random), output: count(random) };
            Op::Release(random.next_u64(), how, used)
        }
        740..800 => {
            let gap = (random.between(0, 3) > 0).then(|| Span::from_nanos(random.next_u64() >> random.between(40, 63)));
            Op::Observe(random.next_u64(), random.between(0, 3) as u32, gap)
        }
        800..830 => Op::Late(Span::from_nanos(random.between(0, 20))),
        830..930 => Op::Forward(Span::from_nanos(random.between(0, 12))),
        930..935 => Op::Forward(Span::from_nanos(random.next_u64() >> random.between(0, 40))),
        935..945 => Op::Back(Span::from_nanos(random.between(0, 30))),
        945..953 => Op::AddBackend(random.between(0, 3) as u32),
        953..961 => Op::RemoveBackend(random.next_u64() as u16),
        961..998 => {
            let permits = random.between(0, 4) as u32;
            Op::SetBackend(random.next_u64() as u16, permits, random.between(0, 3) > 0)
        }
        _ => Op::Drain,
    }
}

fn offer(random: &mut Random) -> Offer {
    let rare = random.between(0, 99) == 0;
    Offer {
        // One place more than there can be tenants.
        tenant: TenantId(random.between(0, 3) as u16),
        bytes: if rare { u64::MAX } else { random.between(0, 150) },
        class: None,
        input: (random.next_u64() >> random.between(32, 63)) as u32,
        budget: budget(random),
        output: (random.between(0, 1) == 0).then(|| random.between(0, 12) as u32),
        hint: (random.between(0, 2) == 0).then(|| [8, 16, u32::MAX][random.between(0, 2) as usize]),
        slo: Slo { ttft: limit(random), tpot: limit(random), e2e: limit(random) },
        affinity: (random.between(0, 2) == 0).then(|| random.between(0, 3)),
        again: random.between(0, 3) == 0,
    }
}

fn limit(random: &mut Random) -> Option<Span> {
    (random.between(0, 1) == 0).then(|| Span::from_nanos(random.between(0, 60)))
}

fn budget(random: &mut Random) -> Option<Span> {
    match random.between(0, 9) {
        0..4 => None,
        4 => Some(Span::ZERO),
        5 => Some(Span::MAX),
        _ => Some(Span::from_nanos(random.between(1, 40))),
    }
}
