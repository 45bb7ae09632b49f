//! What a decision under prediction costs on one core.
//!
//! `cargo bench --bench sched` prints, for admission by prediction, with declared and with learned lengths, and at
//! a price,
//!
//! - decisions per second: a token's observation, a release, the grant that follows and a new offer, while so
//!   many wait and so many tenants offer;
//! - the time to judge everything that waits anew, which happens when the time per token has moved by 2 %;
//! - the resident memory of a request that waits.
//!
//! Wall time on a shared machine is noisy: the median of several rounds counts.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant;

use elasticserve_core::engine::Profile;
use elasticserve_core::ids::TenantId;
use elasticserve_core::outcome::How;
use elasticserve_core::sched::{
    Action, Caution, CostModel, Observation, Offer, Order, Predict, Price, Scheduler, Settings, TenantPolicy, Ticket,
    Used,
};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};

const ROUNDS: usize = 5;
const DECISIONS: u32 = 50_000;
const PERMITS: u32 = 32;
const TENANTS: [u16; 4] = [3, 300, 3_000, 30_000];
const WAITING: [u32; 4] = [10, 1_000, 10_000, 100_000];

fn main() {
    // `cargo test --benches` calls every bench with `--test`, to see that it starts.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    say(&format!("memory of a request that waits, of 200,000: {:.0} bytes", memory(200_000)));
    for mode in MODES {
        let head: Vec<String> = TENANTS.iter().map(|t| format!("{t:>8} tenants")).collect();
        say(&format!("{:<42}{}", format!("{}, decisions per second", mode.name), head.concat()));
        for waiting in WAITING {
            let cells: Vec<String> =
                TENANTS.iter().map(|t| format!("{:>16.0}", decisions(mode, waiting, *t))).collect();
            say(&format!("  {:<40}{}", format!("{waiting} waiting"), cells.concat()));
        }
    }
    for waiting in WAITING {
        let (once, all) = anew(waiting);
        say(&format!("judging {waiting} anew: {:.3} ms at once, {:.3} ms in all", once * 1e3, all * 1e3));
    }
}

/// What decides.
#[derive(Copy, Clone)]
struct Mode {
    name: &'static str,
    order: Order,
    mu: Option<f64>,
    /// Whether requests declare the lengths of their answers.
    declared: bool,
}

const MODES: [Mode; 4] = [
    Mode { name: "least-slack + predict", order: Order::LeastSlack, mu: None, declared: true },
    Mode { name: "least-slack, learned lengths", order: Order::LeastSlack, mu: None, declared: false },
    Mode { name: "value, learned lengths", order: Order::Value, mu: None, declared: false },
    Mode { name: "least-slack + price", order: Order::LeastSlack, mu: Some(0.5), declared: true },
];

/// A scheduler with all permits in use and so much waiting.
struct Loaded {
    scheduler: Scheduler,
    held: VecDeque<Ticket>,
    tenants: u16,
    offered: u32,
    declared: bool,
}

impl Loaded {
    fn new(mode: Mode, waiting: u32, tenants: u16) -> Self {
        let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
        let predict = Predict { caution: Caution::default() };
        let settings = Settings {
            order: mode.order,
            cost: CostModel::from_profile(&profile),
            predict: Some(predict),
            price: mode.mu.map(|mu| Price::from_profile(&profile, mu)),
            depth: waiting as usize + 1,
            max_bytes: u64::MAX,
            tenants: vec![TenantPolicy::default(); usize::from(tenants)],
            ..Settings::fcfs(vec![PERMITS])
        };
        let mut loaded = Self {
            scheduler: Scheduler::new(&settings),
            held: VecDeque::new(),
            tenants,
            offered: 0,
            declared: mode.declared,
        };
        for _ in 0..waiting + PERMITS {
            loaded.offer(Tick::ZERO);
            loaded.grant(Tick::ZERO);
        }
        loaded
    }

    /// Limits so wide that all is admitted: what waits stays as much as it is.
    fn offer(&mut self, now: Tick) {
        // A step that shares no factor with the tenants visits all of them, out of order.
        self.offered = self.offered.wrapping_add(7919);
        let tenant = TenantId((self.offered % u32::from(self.tenants)) as u16);
        let e2e = Some(Span::from_secs(1_000_000 + u64::from(self.offered % 2_000)));
        let (input, output) = (64 + self.offered % 900, 32 + self.offered % 200);
        let slo = Slo { e2e, ..Slo::default() };
        self.scheduler
            .offer(
                now,
                Offer {
                    tenant,
                    bytes: 1000,
                    input,
                    output: Some(output).filter(|_| self.declared),
                    slo,
                    ..Offer::default()
                },
            )
            .unwrap();
    }

    /// The mean that the scheduler goes by, which another gap of that size does not move.
    fn tpot(&self) -> Span {
        self.scheduler.live_tpot().unwrap()
    }

    fn grant(&mut self, now: Tick) {
        while let Some(action) = self.scheduler.poll(now) {
            if let Action::Grant(ticket) = action {
                self.held.push_back(ticket);
            }
        }
    }

    fn observe(&mut self, now: Tick, gap: Span) {
        let id = self.held.back().unwrap().id();
        self.scheduler.observe(now, id, Observation { tokens: 1, gap: Some(gap) });
    }
}

fn decisions(mode: Mode, waiting: u32, tenants: u16) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut loaded = Loaded::new(mode, waiting, tenants);
            let started = Instant::now();
            let mut now = Tick::ZERO;
            // What looks at many requests or tenants takes longer.
            let count = if mode.mu.is_some() || mode.order == Order::Value { DECISIONS / 10 } else { DECISIONS };
            for _ in 0..count {
                now = now + Span::from_nanos(10_000);
                loaded.observe(now, Span::from_millis(40));
                let ticket = loaded.held.pop_front().unwrap();
                let used = Used { input: None, output: Some(32 + loaded.offered % 200) };
                loaded.scheduler.release(now, ticket, How::Finished, used);
                loaded.grant(now);
                loaded.offer(now);
            }
            let seconds = started.elapsed().as_secs_f64();
            assert_eq!(loaded.scheduler.queued(), waiting as usize);
            f64::from(count) / seconds
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Seconds for the first part of a judgement of everything that waits, and for all of it.
fn anew(waiting: u32) -> (f64, f64) {
    let mut loaded = Loaded::new(MODES[0], waiting, 300);
    let (mut first, mut whole) = (Vec::new(), Vec::new());
    for round in 1..=9 {
        let started = Instant::now();
        // A gap long enough to move the mean by more than a fiftieth, in turns up and down.
        loaded.observe(Tick::ZERO, Span::from_secs(if round % 2 == 1 { 1_000 } else { 10_000 }));
        first.push(started.elapsed().as_secs_f64());
        for _ in 0..waiting / 32 {
            let id = loaded.held.back().unwrap().id();
            loaded.scheduler.observe(Tick::ZERO, id, Observation { tokens: 1, gap: Some(loaded.tpot()) });
        }
        whole.push(started.elapsed().as_secs_f64());
    }
    let median = |mut rounds: Vec<f64>| {
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    };
    (median(first), median(whole))
}

fn memory(waiting: u32) -> f64 {
    let before = resident();
    let loaded = Loaded::new(MODES[0], waiting, 300);
    let after = resident();
    assert_eq!(loaded.scheduler.queued(), waiting as usize);
    (after - before) / f64::from(waiting)
}

/// Resident bytes of this process; zero without Linux's `/proc`.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
