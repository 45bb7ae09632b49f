//! What holds under every order and admission, tried on random work.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::*;
use crate::engine::{Profile, Prompt};
use crate::ids::{BackendId, TenantId};
use crate::rng::{Random, Stream};
use crate::sim::{GatewaySetup, Setup, run};
use crate::slo::Slo;
use crate::work::{Arrival, Plan, PlanTenant};

const ORDERS: [Order; 6] =
    [Order::Fcfs, Order::Wfq, Order::Priority, Order::LeastSlack, Order::ShortestFirst, Order::Value];
const MS: fn(u64) -> Span = Span::from_millis;

fn profile() -> Profile {
    Profile::built_in("gb10-qwen3-8b-fp8").unwrap()
}

fn predicting(order: Order, mu: Option<f64>, tenants: usize) -> Settings {
    let predict = Predict { caution: Caution::default() };
    Settings {
        order,
        cost: CostModel::from_profile(&profile()),
        predict: Some(predict),
        price: mu.map(|mu| Price::from_profile(&profile(), mu)),
        tenants: vec![TenantPolicy::default(); tenants],
        ..Settings::fcfs(vec![32])
    }
}

/// How one request fares on an engine with nothing else to do.
fn alone(input: u32, output: u32, warm: bool) -> crate::ledger::Row {
    let arrival = Arrival { index: 0, at: Span::ZERO, tenant: 0, input, output, prompt: 1 };
    let tenants = vec![PlanTenant::new("a", 1.0, Slo::default())];
    let plan = Plan::recorded("alone", 1.0, Span::from_secs(1), tenants, vec![arrival]).unwrap();
    let warm = if warm { vec![(Prompt::Family(1), input)] } else { Vec::new() };
    let gateway = Some(GatewaySetup::instant(Settings::fcfs(vec![32])));
    let mut rows = Vec::new();
    run(&plan, &Setup { engines: vec![profile()], gateway, warm }, |row| rows.push(row)).unwrap();
    rows.remove(0)
}

#[test]
fn an_idle_engine_is_refused_no_work_that_it_can_do_in_time() {
    let mut random = Random::new(1, Stream::Test);
    let (mut feasible, mut refused) = (0, 0);
    for trial in 0..600 {
        let (input, output) = (random.between(1, 4_000) as u32, random.between(1, 300) as u32);
        let row = alone(input, output, trial % 2 == 0);
        // Limits just above and just below what the engine does.
        let near = |limit: Option<Span>, random: &mut Random| {
            limit.map(|l| Span::from_nanos(l.as_nanos() / 1000 * random.between(960, 1040)))
        };
        let slo = Slo {
            ttft: near(row.ttft(), &mut random),
            tpot: near(row.tpot(), &mut random).filter(|_| trial % 3 == 0),
            e2e: near(row.e2e(), &mut random),
        };
        let offer = Offer { input, output: Some(output), slo, ..Offer::default() };
        for mu in [None, Some(0.0), Some(1.0)] {
            let mut s = Scheduler::new(&predicting(ORDERS[trial % 6], mu, 1));
            let answer = s.offer(Tick::ZERO, offer);
            if row.is_good(&slo) {
                feasible += 1;
                assert!(answer.is_ok(), "trial {trial}: {answer:?} for {offer:?}");
                assert!(matches!(s.poll(Tick::ZERO), Some(Action::Grant(_))), "trial {trial}");
            } else if answer.is_err() {
                refused += 1;
            }
        }
    }
    assert!(feasible > 200 && refused > 200, "{feasible} feasible, {refused} refused");
}

#[test]
fn what_an_idle_engine_could_do_is_never_called_infeasible_however_busy_it_is() {
    let mut random = Random::new(2, Stream::Test);
    let mut late = 0;
    for trial in 0..300 {
        let mut s = Scheduler::new(&predicting(Order::LeastSlack, None, 1));
        let (input, output) = (random.between(1, 2_000) as u32, random.between(1, 200) as u32);
        let row = alone(input, output, trial % 2 == 0);
        let slo = Slo { ttft: row.ttft(), tpot: None, e2e: row.e2e() };
        for _ in 0..random.between(1, 60) {
            let _ = s.offer(Tick::ZERO, Offer { input: 500, output: Some(200), ..Offer::default() });
        }
        while s.poll(Tick::ZERO).is_some() {}
        s.observe(Tick::ZERO, RequestId(0), Observation { tokens: 1, gap: Some(MS(900)) });
        let answer = s.offer(Tick::ZERO, Offer { input, output: Some(output), slo, ..Offer::default() });
        if let Err(rejection) = answer {
            assert_eq!(rejection.reason, RejectReason::PredictedLate, "trial {trial}");
            late += 1;
        }
    }
    assert!(late > 200, "{late}");
}

#[test]
fn nothing_waits_behind_later_arrivals_for_longer_than_its_class_times_the_guard() {
    let mut passed = 0;
    for seed in 0..500 {
        let mut random = Random::new(seed, Stream::Test);
        let guard = Span::from_nanos(random.between(0, 200));
        let tenants = (0..4).map(|class| TenantPolicy { class, ..TenantPolicy::default() }).collect();
        let settings = Settings { order: Order::Priority, guard, tenants, depth: 10_000, ..Settings::fcfs(vec![2]) };
        let mut s = Scheduler::new(&settings);
        let mut waiting: BTreeMap<RequestId, (Tick, u64)> = BTreeMap::new();
        let mut held = Vec::new();
        let mut now = Tick::ZERO;
        for _ in 0..300 {
            now = now + Span::from_nanos(random.between(0, 10));
            if random.between(0, 1) == 0 {
                let class = random.between(0, 3);
                // Its tenant's class, or one that a tenant of the first class asks for.
                let asks = random.between(0, 1) == 0;
                let (tenant, class_asked) = if asks { (0, Some(class as u32)) } else { (class as u16, None) };
                let offer = Offer { tenant: TenantId(tenant), class: class_asked, ..Offer::default() };
                waiting.insert(s.offer(now, offer).unwrap(), (now, class));
            } else if !held.is_empty() {
                s.release(now, held.remove(0), How::Finished, Used::default());
            }
            while let Some(Action::Grant(ticket)) = s.poll(now) {
                let (arrived, _) = waiting.remove(&ticket.id()).unwrap();
                for (earlier, class) in waiting.values().filter(|w| w.0 < arrived) {
                    assert!(arrived <= *earlier + guard * *class, "seed {seed}: {arrived:?} passed {earlier:?}");
                    passed += 1;
                }
                held.push(ticket);
            }
        }
    }
    assert!(passed > 10_000, "{passed}");
}

/// Offers in order of time on one seat, and how they are granted. Extras come and go in between.
fn granted(order: Order, weights: u32, extras: bool, seed: u64) -> Vec<u64> {
    let weight =
        |w: u32| TenantPolicy { weight: NonZeroU32::new(w * weights).unwrap(), class: w, ..TenantPolicy::default() };
    // Powers of two: tags are exact, so scaling every weight changes no tie.
    let tenants = [1, 2, 4, 8].map(weight).into();
    let (zero, ns) = (Span::ZERO, Span::from_nanos(1));
    let cost = CostModel { overhead: zero, prefill_per_token: ns, first_token_steps: 0, idle_tpot: ns };
    let settings = Settings { tenants, depth: 10_000, backends: vec![1], cost, ..predicting(order, None, 4) };
    // Predictions depend on what waits; only the order by the latest start needs them.
    let predict = settings.predict.filter(|_| order == Order::LeastSlack);
    let mut s = Scheduler::new(&Settings { predict, ..settings });
    let mut random = Random::new(seed, Stream::Test);
    let mut other = Random::new(seed, Stream::Jitter);
    let mut names = BTreeMap::new();
    let mut held: Option<Ticket> = None;
    let mut order_of = Vec::new();
    let mut now = Tick::ZERO;
    let draw = |random: &mut Random| Offer {
        tenant: TenantId(random.between(0, 3) as u16),
        input: 1 << random.between(3, 12),
        slo: Slo { e2e: Some(Span::from_secs(random.between(400, 900))), ..Slo::default() },
        ..Offer::default()
    };
    for name in 0..200 {
        now = now + Span::from_nanos(random.between(1, 9));
        names.insert(s.offer(now, draw(&mut random)).unwrap(), name);
        if extras && held.is_some() {
            let gone = s.offer(now, draw(&mut other)).unwrap();
            assert!(s.cancel(now, gone));
            // This one expires at once: the only seat is taken.
            let expires = s.offer(now, Offer { budget: Some(Span::ZERO), ..draw(&mut other) }).unwrap();
            assert!(matches!(s.poll(now), Some(Action::Expire(r)) if r.id == expires));
            let hopeless = Offer { bytes: u64::MAX, ..draw(&mut other) };
            assert!(s.offer(now, hopeless).is_err());
        }
        if name % 2 == 0
            && let Some(ticket) = held.take()
        {
            s.release(now, ticket, How::Finished, Used::default());
        }
        while let Some(Action::Grant(ticket)) = s.poll(now) {
            order_of.push(names[&ticket.id()]);
            held = Some(ticket);
        }
    }
    order_of
}

#[test]
fn what_is_cancelled_expires_or_is_refused_changes_no_later_order() {
    for seed in 0..60 {
        for order in ORDERS {
            let (with, without) = (granted(order, 1, true, seed), granted(order, 1, false, seed));
            assert!(without.len() > 90);
            assert_eq!(with, without, "seed {seed}, {order:?}");
        }
    }
}

#[test]
fn only_the_ratios_of_weights_count() {
    let mut differs = 0;
    for seed in 0..60 {
        assert_eq!(granted(Order::Wfq, 1, false, seed), granted(Order::Wfq, 16, false, seed), "seed {seed}");
        differs += u32::from(granted(Order::Wfq, 1, false, seed) != granted(Order::Fcfs, 1, false, seed));
    }
    assert!(differs > 50, "{differs}");
}

#[test]
fn random_operations_with_limits_and_observations_break_no_invariant() {
    let mut ends: BTreeMap<&'static str, u32> = BTreeMap::new();
    for seed in 0..2_000 {
        let mut random = Random::new(seed, Stream::Test);
        let mu = [None, Some(0.0), Some(0.7)][random.between(0, 2) as usize];
        let mut settings = predicting(ORDERS[(seed % 6) as usize], mu, 3);
        settings.tenants[0].on_miss = OnMiss::Abort;
        settings.tenants[1].on_miss = OnMiss::Abort;
        settings.tenants[2].max_permits = Some(random.between(0, 3) as u32);
        settings.backends = vec![random.between(0, 4) as u32, random.between(0, 4) as u32];
        settings.depth = random.between(0, 40) as usize;
        if let Err(error) = operate(&mut random, &settings, &mut ends) {
            panic!("seed {seed}: {error}\n{settings:?}");
        }
    }
    assert!(ends.len() == 9 && ends.values().all(|n| *n > 500), "{ends:?}");
}

/// Two hundred random inputs, each polled to the end and audited; then all work ends.
fn operate(random: &mut Random, settings: &Settings, ends: &mut BTreeMap<&'static str, u32>) -> Result<(), String> {
    let mut s = Scheduler::new(settings);
    let mut now = Tick::ZERO;
    let mut open: Vec<RequestId> = Vec::new();
    let mut held: Vec<Ticket> = Vec::new();
    for step in 0..=200 {
        now = now + MS(random.between(0, 60));
        let pick = random.next_u64() as usize;
        match random.between(0, 9) {
            _ if step == 200 => s.drain(now),
            0..=3 => match s.offer(now, random_offer(random)) {
                Ok(id) => open.push(id),
                Err(r) => *ends.entry(r.reason.name()).or_default() += 1,
            },
            4 if !open.is_empty() => {
                let id = open.swap_remove(pick % open.len());
                if !s.cancel(now, id) {
                    return Err(format!("{id:?} waits and cannot be cancelled"));
                }
                *ends.entry("cancelled").or_default() += 1;
            }
            5 if !held.is_empty() => {
                let ticket = held.swap_remove(pick % held.len());
                s.release(now, ticket, How::Finished, Used::default());
            }
            6 => s.set_backend(
                now,
                BackendId(random.between(0, 1) as u16),
                random.between(0, 4) as u32,
                !pick.is_multiple_of(9),
            ),
            _ if !held.is_empty() => {
                let gap = Some(MS(random.between(1, 200))).filter(|_| !pick.is_multiple_of(4));
                let tokens = random.between(0, 5) as u32;
                s.observe(now, held[pick % held.len()].id(), Observation { tokens, gap });
            }
            _ => {}
        }
        while let Some(action) = s.poll(now) {
            let id = match action {
                Action::Grant(ticket) => {
                    let id = ticket.id();
                    held.push(ticket);
                    id
                }
                Action::Abort(id) => {
                    let place = held.iter().position(|t| t.id() == id).ok_or(format!("{id:?} does not run"))?;
                    s.release(now, held.swap_remove(place), How::Aborted, Used::default());
                    *ends.entry("aborted").or_default() += 1;
                    continue;
                }
                Action::Strand(id) => return Err(format!("{id:?} did not fail")),
                Action::Expire(rejection) => {
                    *ends.entry(rejection.reason.name()).or_default() += 1;
                    rejection.id
                }
            };
            let place = open.iter().position(|o| *o == id).ok_or(format!("{id:?} ended twice"))?;
            open.swap_remove(place);
        }
        s.audit().map_err(|e| e.to_string())?;
        if s.next_timer().is_some_and(|at| at <= now) {
            return Err("a timer is overdue".into());
        }
    }
    if !open.is_empty() || s.queued() > 0 {
        return Err(format!("{} wait forever", open.len()));
    }
    for ticket in held {
        s.release(now, ticket, How::Finished, Used::default());
        *ends.entry("released").or_default() += 1;
    }
    s.audit().map_err(|e| e.to_string())
}

fn random_offer(random: &mut Random) -> Offer {
    let limit = |random: &mut Random, most| Some(MS(random.between(1, most))).filter(|_| random.between(0, 3) > 0);
    Offer {
        tenant: TenantId(random.between(0, 3) as u16),
        bytes: random.between(0, 1_000),
        class: None,
        budget: limit(random, 3_000),
        input: random.between(0, 4_000) as u32,
        output: Some(random.between(0, 200) as u32).filter(|_| random.between(0, 2) > 0),
        hint: limit(random, 3).map(|_| random.between(0, 300) as u32),
        slo: Slo { ttft: limit(random, 3_000), tpot: limit(random, 300), e2e: limit(random, 12_000) },
        affinity: limit(random, 3).map(|_| random.between(0, 5)),
        again: random.between(0, 3) == 0,
    }
}
