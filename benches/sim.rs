//! What the simulator and the scheduler cost on one core.
//!
//! `cargo bench --bench sim` prints
//!
//! - simulated requests per second of CPU time, to a sink that counts records and through the ledger's rows
//!   and serialisation to a writer that drops the bytes. Drawing the arrivals is part of it;
//! - the most resident memory of a process of its own that simulates 100,000 and 1,000,000 requests, arrivals
//!   drawn as they come and rows written as they end;
//! - the CPU time of a release with the grant and the offer that follow it, over requests that wait and
//!   tenants.
//!
//! CPU time is the thread's own, so other work on the machine disturbs little; without Linux's `/proc` it is
//! the time that passes. `cargo bench --bench sim -- fixed` or `mixed` simulates only, and
//! `-- --decision wfq 100000 300` decides only, for a profiler.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::collections::VecDeque;
use std::io::Write;
use std::num::NonZeroU32;
use std::process::Command;
use std::time::Instant;

use elasticserve_core::engine::{Profile, Prompt};
use elasticserve_core::ids::TenantId;
use elasticserve_core::outcome::How;
use elasticserve_core::sched::{Action, Offer, Order, Scheduler, Settings, TenantPolicy, Ticket, Used};
use elasticserve_core::sim::{self, Ending, GatewaySetup, Record, Setup};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{ArrivalProcess, Extent, Lengths, PlanSpec, PlanTenant};

/// Requests of a run that is timed.
const REQUESTS: u32 = 500_000;
/// Runs, of which the median counts.
const ROUNDS: usize = 5;
/// Releases, grants and offers that are timed.
const DECISIONS: u32 = 200_000;
const PERMITS: u32 = 32;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        // `cargo test --benches` calls every bench with `--test`, to see that it starts.
        ["--test", ..] => {}
        ["--memory", workload, requests] => remember(&Workload::named(workload), requests.parse().unwrap()),
        ["--decision", order, waiting, tenants] => {
            let order = if *order == "wfq" { Order::Wfq } else { Order::Fcfs };
            say(&format!("{:.0} ns", decision(order, waiting.parse().unwrap(), tenants.parse().unwrap())));
        }
        [workload] => speed(&Workload::named(workload)),
        _ => {
            for workload in [Workload::fixed(), Workload::mixed()] {
                speed(&workload);
            }
            for workload in ["fixed", "mixed"] {
                memory(workload);
            }
            decisions();
        }
    }
}

struct Workload {
    name: &'static str,
    what: &'static str,
    spec: PlanSpec,
    setup: Setup,
}

impl Workload {
    fn named(name: &str) -> Self {
        if name == "mixed" { Self::mixed() } else { Self::fixed() }
    }

    /// 1.6 times what the engine can serve; what finds the queue full is turned away.
    fn fixed() -> Self {
        let spec = PlanSpec {
            seed: 7,
            process: ArrivalProcess::Poisson { rate: 16.0 },
            extent: Extent::Count(REQUESTS),
            input: Lengths::fixed(256),
            output: Lengths::fixed(64),
            tenants: vec![tenant("default", 1.0)],
        };
        let what = "256/64 tokens at 16/s, 32 permits, fcfs, queue of 256";
        Self { name: "fixed", what, spec, setup: setup(Settings::fcfs(vec![PERMITS])) }
    }

    /// Three tenants with weights, and a wait of 750 ms at most.
    fn mixed() -> Self {
        let spec = PlanSpec {
            seed: 11,
            process: ArrivalProcess::Poisson { rate: 8.0 },
            extent: Extent::Count(REQUESTS),
            input: Lengths { low: 64, high: 960 },
            output: Lengths { low: 32, high: 224 },
            tenants: vec![tenant("gold", 0.2), tenant("standard", 0.5), tenant("batch", 0.3)],
        };
        let scheduler = Settings {
            order: Order::Wfq,
            tenants: vec![policy(4), policy(2), policy(1)],
            budget: Some(Span::from_millis(750)),
            ..Settings::fcfs(vec![PERMITS])
        };
        let what = "64-960/32-224 tokens at 8/s, 32 permits, 3 tenants, wfq, 750 ms";
        Self { name: "mixed", what, spec, setup: setup(scheduler) }
    }

    fn run(&self, sink: impl FnMut(&Record<'_>)) {
        let arrivals = self.spec.arrivals().unwrap().map(|a| (a, Prompt::Family(a.prompt)));
        sim::run_arrivals(&self.spec.tenants, arrivals, &self.setup, sink).unwrap();
    }
}

fn tenant(name: &str, share: f64) -> PlanTenant {
    PlanTenant::new(name, share, Slo::default())
}

fn policy(weight: u32) -> TenantPolicy {
    TenantPolicy { weight: NonZeroU32::new(weight).unwrap(), ..TenantPolicy::default() }
}

fn setup(scheduler: Settings) -> Setup {
    let engine = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    Setup { engines: vec![engine], gateway: Some(GatewaySetup::instant(scheduler)), warm: Vec::new() }
}

fn speed(workload: &Workload) {
    say(&format!("{}: {}, {REQUESTS} requests", workload.name, workload.what));
    let mut completed = 0;
    let seconds = median(|| {
        completed = 0;
        workload.run(|record| completed += u32::from(matches!(record.ending, Ending::Completed { .. })));
    });
    rates("records, counted", seconds, completed);
    let seconds = median(|| {
        let mut out = std::io::BufWriter::new(std::io::sink());
        workload.run(|record| {
            serde_json::to_writer(&mut out, &record.to_row()).unwrap();
            out.write_all(b"\n").unwrap();
        });
    });
    rates("rows, serialised", seconds, completed);
}

fn rates(what: &str, seconds: f64, completed: u32) {
    let (all, completed) = (f64::from(REQUESTS) / seconds, f64::from(completed) / seconds);
    say(&format!("  {what:<18} {all:>10.0} requests/s, {completed:>10.0} answered/s   ({seconds:.3} s of CPU)"));
}

/// The median CPU time of some runs.
fn median(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let clock = Clock::start();
            run();
            clock.seconds()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn memory(workload: &str) {
    let peak = |requests: u32| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--memory", workload, &requests.to_string()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (short, long) = (peak(100_000), peak(1_000_000));
    say(&format!("{workload}: peak resident memory {short} for 100,000 requests, {long} for 1,000,000"));
}

/// Simulates, and says how much memory that took at most.
fn remember(workload: &Workload, requests: u32) {
    let spec = PlanSpec { extent: Extent::Count(requests), ..workload.spec.clone() };
    let mut out = std::io::BufWriter::new(std::io::sink());
    Workload { spec, setup: workload.setup.clone(), ..*workload }
        .run(|record| serde_json::to_writer(&mut out, &record.to_row()).unwrap());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown");
    say(peak.trim());
}

fn decisions() {
    say("release, grant and offer, ns of CPU:");
    let tenants = [3, 300, 30_000];
    for order in [Order::Fcfs, Order::Wfq] {
        let head: Vec<String> = tenants.iter().map(|t| format!("{t:>8} tenants")).collect();
        say(&format!("  {:<24}{}", format!("{order:?}"), head.concat()));
        for waiting in [1_000, 10_000, 100_000] {
            let cells: Vec<String> =
                tenants.iter().map(|t| format!("{:>16.0}", decision(order, waiting, *t))).collect();
            say(&format!("  {:<24}{}", format!("{waiting} waiting"), cells.concat()));
        }
    }
}

/// Nanoseconds for a release with the grant and the offer that follow it, while so many wait.
fn decision(order: Order, waiting: u32, tenants: u16) -> f64 {
    let settings = Settings {
        order,
        depth: waiting as usize + 1,
        max_bytes: u64::MAX,
        budget: Some(Span::from_secs(3600)),
        tenants: (0..u32::from(tenants)).map(|i| policy(1 + i % 4)).collect(),
        ..Settings::fcfs(vec![PERMITS])
    };
    let mut scheduler = Scheduler::new(&settings);
    let mut held = VecDeque::new();
    let now = Tick::ZERO;
    let mut offered = 0u32;
    let mut offer = |scheduler: &mut Scheduler, now| {
        // A step that shares no factor with the tenants visits all of them, out of order.
        offered = offered.wrapping_add(7919);
        let tenant = TenantId((offered % u32::from(tenants)) as u16);
        let output = Some(1 + offered % 25);
        scheduler.offer(now, Offer { tenant, bytes: 1000, output, ..Offer::default() }).unwrap();
    };
    for _ in 0..waiting + PERMITS {
        offer(&mut scheduler, now);
        held.extend(grant(&mut scheduler, now));
    }
    let clock = Clock::start();
    decide(&mut scheduler, &mut held, now, offer);
    let seconds = clock.seconds();
    scheduler.audit().unwrap();
    assert_eq!((held.len(), scheduler.queued()), (PERMITS as usize, waiting as usize));
    seconds * 1e9 / f64::from(DECISIONS)
}

/// What is timed, in a function of its own for a profiler's sake.
#[inline(never)]
fn decide(
    scheduler: &mut Scheduler,
    held: &mut VecDeque<Ticket>,
    mut now: Tick,
    mut offer: impl FnMut(&mut Scheduler, Tick),
) {
    for _ in 0..DECISIONS {
        now = now + Span::from_nanos(1_000);
        let ticket = held.pop_front().unwrap();
        scheduler.release(now, ticket, How::Finished, Used::default());
        held.extend(grant(scheduler, now));
        offer(scheduler, now);
    }
}

fn grant(scheduler: &mut Scheduler, now: Tick) -> Option<Ticket> {
    match scheduler.poll(now) {
        Some(Action::Grant(ticket)) => Some(ticket),
        _ => None,
    }
}

/// The CPU time of this thread.
struct Clock {
    cpu: Option<u64>,
    wall: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { cpu: cpu_nanoseconds(), wall: Instant::now() }
    }

    fn seconds(&self) -> f64 {
        match (self.cpu, cpu_nanoseconds()) {
            (Some(before), Some(now)) => (now - before) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn cpu_nanoseconds() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
}

fn say(text: &str) {
    writeln!(std::io::stdout().lock(), "{text}").unwrap();
}
