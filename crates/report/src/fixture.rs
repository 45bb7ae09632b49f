//! Runs for tests: the published overload, simulated, and a small run with every kind of ending.

use std::collections::BTreeMap;

use elasticserve_core::engine::{Profile, Prompt};
use elasticserve_core::ledger::{CountSource, Manifest, Row, RunEnd, Target, Timeouts, Tolerances};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::sched::Settings;
use elasticserve_core::sim::{GatewaySetup, Setup};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant};

use crate::Run;

const TRACE: &str = include_str!("../../../reference/traces/vllm_bench_seed7_n200_unit_rate.csv");
pub(crate) const SLO: Slo =
    Slo { ttft: Some(Span::from_millis(1000)), tpot: Some(Span::from_millis(100)), e2e: Some(Span::from_secs(15)) };

/// The published overload: 200 requests at 16/s, 256 tokens in and 64 out, for the given tenants.
pub(crate) fn plan(tenants: &[(&str, f64)]) -> Plan {
    let times = TRACE.lines().skip(1).map(|l| l.split(',').nth(1).unwrap().parse().unwrap()).collect();
    let tenant = |(name, share): &(&str, f64)| PlanTenant::new(*name, *share, SLO);
    Plan::generate(&PlanSpec {
        seed: 7,
        process: ArrivalProcess::Recorded { rate: 16.0, source: "vllm bench, seed 7".into(), unit_times: times },
        extent: Extent::Count(200),
        input: Lengths::fixed(256),
        output: Lengths::fixed(64),
        tenants: tenants.iter().map(tenant).collect(),
    })
    .unwrap()
}

pub(crate) fn manifest(name: &str, plan: &Plan) -> Manifest {
    let mut header = plan.header().clone();
    if let ArrivalProcess::Recorded { unit_times, .. } = &mut header.process {
        // The manifest names the trace and does not repeat it.
        unit_times.clear();
    }
    Manifest {
        format: 1,
        name: name.into(),
        simulated: true,
        tool_version: "0.1.0".into(),
        started: None,
        plan_hash: plan.hash(),
        plan: header,
        time_scale: 1.0,
        target: Target::default(),
        warmups: 1,
        prompts_salted: true,
        timeouts: Timeouts::default(),
        tolerances: Tolerances::default(),
        max_in_flight: None,
        retries: 0,
        ceiling: None,
        metadata: BTreeMap::new(),
        end: Some(RunEnd {
            at: Tick::from_nanos(20_000_000_000),
            interrupted: false,
            peak_in_flight: 200,
            connections: 200,
            cpu: None,
            drawn: None,
            health: None,
        }),
    }
}

/// The published overload on the model of the engine: directly, or behind 32 permits and 750 ms.
pub(crate) fn simulated(name: &str, gateway: bool, tenants: &[(&str, f64)]) -> Run {
    let plan = plan(tenants);
    let settings = Settings { budget: Some(Span::from_millis(750)), ..Settings::fcfs(vec![32]) };
    let setup = Setup {
        engines: vec![Profile::built_in("gb10-qwen3-8b-fp8").unwrap()],
        gateway: gateway.then(|| GatewaySetup::instant(settings)),
        warm: vec![(Prompt::Family(plan.arrivals()[0].prompt), 256)],
    };
    let mut rows = Vec::new();
    elasticserve_core::sim::run(&plan, &setup, |row| rows.push(row)).unwrap();
    Run { manifest: manifest(name, &plan), rows, torn: false }
}

pub(crate) fn pair() -> [Run; 2] {
    [simulated("direct", false, &[("default", 1.0)]), simulated("gateway", true, &[("default", 1.0)])]
}

pub(crate) fn ms(n: u64) -> Tick {
    Tick::from_nanos(n * 1_000_000)
}

/// A completed row: sent when planned, first content after `ttft` ms, three tokens 10 ms apart.
pub(crate) fn answered(index: u32, tenant: &str, planned: u64, ttft: u64) -> Row {
    let mut row = Row::new(index, tenant, ms(planned), 256, 3);
    row.state = Terminal::Completed;
    row.status = Some(200);
    row.send_started = Some(ms(planned));
    row.first_content = Some(ms(planned + ttft));
    row.last_content = Some(ms(planned + ttft + 20));
    row.end = Some(ms(planned + ttft + 20));
    row.gaps = vec![Span::from_millis(10); 2];
    row.output_tokens = Some(3);
    row.output_tokens_from = Some(CountSource::Usage);
    row
}

/// A row that ended in another way, `after` ms from its plan; sent when planned if its state says so.
pub(crate) fn ended(index: u32, tenant: &str, planned: u64, after: u64, state: Terminal) -> Row {
    let mut row = Row::new(index, tenant, ms(planned), 256, 3);
    row.state = state;
    if state.was_sent() {
        row.send_started = Some(ms(planned));
        row.end = Some(ms(planned + after));
    }
    row
}

/// Eight arrivals of two tenants in 4 s: a has 2 good and 1 late of 4, b has 1 good of 4.
pub(crate) fn mixed() -> Run {
    let mut rejected = ended(3, "b", 1500, 12, Terminal::Rejected);
    (rejected.status, rejected.reason) = (Some(429), Some("queue_full".into()));
    let rows = vec![
        answered(0, "a", 0, 100),
        answered(1, "a", 500, 300),
        answered(2, "a", 1000, 1500),
        rejected,
        answered(4, "b", 2000, 200),
        ended(5, "b", 2500, 60_000, Terminal::TimeoutTtft),
        ended(6, "a", 3000, 90_000, Terminal::Censored),
        ended(7, "b", 3500, 0, Terminal::UnsentClientCap),
    ];
    let mut manifest = manifest("mixed", &plan(&[("a", 1.0), ("b", 1.0)]));
    (manifest.plan.count, manifest.plan.window) = (8, Some(Span::from_secs(4)));
    Run { manifest, rows, torn: false }
}
