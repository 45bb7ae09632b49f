//! What a decision under prediction costs on one core.
//!
//! `cargo bench --bench sched` prints, for least-slack with admission by prediction and at a price,
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
    for (name, mu) in [("predict", None), ("price, mu 0.5", Some(0.5))] {
        let head: Vec<String> = TENANTS.iter().map(|t| format!("{t:>8} tenants")).collect();
        say(&format!("least-slack + {name}, decisions per second{:>6}{}", "", head.concat()));
        for waiting in WAITING {
            let cells: Vec<String> = TENANTS.iter().map(|t| format!("{:>16.0}", decisions(mu, waiting, *t))).collect();
            say(&format!("  {:<40}{}", format!("{waiting} waiting"), cells.concat()));
        }
    }
    for waiting in WAITING {
        say(&format!("judging {waiting} anew: {:.3} ms", anew(waiting) * 1e3));
    }
}

/// A scheduler with all permits in use and so much waiting.
struct Loaded {
    scheduler: Scheduler,
    held: VecDeque<Ticket>,
    tenants: u16,
    offered: u32,
}

impl Loaded {
    fn new(mu: Option<f64>, waiting: u32, tenants: u16) -> Self {
        let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
        let predict = Predict { caution: Caution::default() };
        let settings = Settings {
            order: Order::LeastSlack,
            cost: CostModel::from_profile(&profile),
            predict: Some(predict),
            price: mu.map(|mu| Price::from_profile(&profile, mu)),
            depth: waiting as usize + 1,
            max_bytes: u64::MAX,
            tenants: vec![TenantPolicy::default(); usize::from(tenants)],
            ..Settings::fcfs(vec![PERMITS])
        };
        let mut loaded = Self { scheduler: Scheduler::new(&settings), held: VecDeque::new(), tenants, offered: 0 };
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
            .offer(now, Offer { tenant, bytes: 1000, input, output: Some(output), slo, ..Offer::default() })
            .unwrap();
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

fn decisions(mu: Option<f64>, waiting: u32, tenants: u16) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut loaded = Loaded::new(mu, waiting, tenants);
            let started = Instant::now();
            let mut now = Tick::ZERO;
            // A price looks at all tenants of the last seconds.
            let count = if mu.is_some() { DECISIONS / 50 } else { DECISIONS };
            for _ in 0..count {
                now = now + Span::from_nanos(10_000);
                loaded.observe(now, Span::from_millis(40));
                let ticket = loaded.held.pop_front().unwrap();
                loaded.scheduler.release(now, ticket, How::Finished, Used::default());
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

/// Seconds for one judgement of everything that waits.
fn anew(waiting: u32) -> f64 {
    let mut loaded = Loaded::new(None, waiting, 300);
    let mut rounds: Vec<f64> = (1..=9)
        .map(|round| {
            let started = Instant::now();
            // A gap long enough to move the mean by more than a fiftieth, in turns up and down.
            loaded.observe(Tick::ZERO, Span::from_secs(if round % 2 == 1 { 1_000 } else { 10_000 }));
            started.elapsed().as_secs_f64()
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn memory(waiting: u32) -> f64 {
    let before = resident();
    let loaded = Loaded::new(None, waiting, 300);
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
