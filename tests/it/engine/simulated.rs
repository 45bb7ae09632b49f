//! Simulated runs with KV pressure and with traces.

use std::collections::BTreeMap;

use elasticserve_core::engine::Profile;
use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::Settings;
use elasticserve_core::sim::{self, GatewaySetup, Setup};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{
    ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant, TraceFormat, TraceOptions, read_trace,
};

fn rows(plan: &Plan, profile: Profile, gateway: Option<GatewaySetup>) -> BTreeMap<u32, Row> {
    let mut rows = BTreeMap::new();
    let setup = Setup { engines: vec![profile], gateway, warm: Vec::new() };
    sim::run(plan, &setup, |row| assert!(rows.insert(row.index, row).is_none())).unwrap();
    assert_eq!(rows.len(), plan.arrivals().len());
    rows
}

#[test]
fn under_kv_pressure_every_answer_is_whole_and_what_is_too_long_is_a_bad_request() {
    let (mut refused, mut stalled) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed, Stream::Test);
        let spec = PlanSpec {
            seed,
            process: ArrivalProcess::Poisson { rate: 30.0 },
            extent: Extent::Count(40),
            input: Lengths { low: 1, high: 300 },
            output: Lengths { low: 1, high: 40 },
            tenants: vec![PlanTenant::new("default", 1.0, Slo::default())],
        };
        let plan = Plan::generate(&spec).unwrap();
        let kv_blocks = Some(random.between(10, 40) as u32);
        let profile = Profile { kv_blocks, ..super::profile(&mut random) };
        let step = Span::from_millis_f64(profile.base_ms);
        let gateway = (seed % 2 == 0).then(|| GatewaySetup::instant(Settings::fcfs(vec![6])));
        for (index, row) in rows(&plan, profile.clone(), gateway) {
            let (input, output) = (row.input_planned, row.output_planned);
            if u64::from(input + output) - 1 > profile.kv_room() {
                assert_eq!((row.state, row.status), (Terminal::HttpError, Some(400)), "seed {seed}: {index}");
                assert!(row.error.unwrap().contains("KV cache"), "seed {seed}: {index}");
                refused += 1;
                continue;
            }
            assert_eq!(row.state, Terminal::Completed, "seed {seed}: {index}");
            assert_eq!((row.output_tokens, row.gaps.len()), (Some(output), output as usize - 1), "seed {seed}");
            let content = row.last_content.unwrap().since(row.first_content.unwrap());
            assert_eq!(row.gaps.iter().copied().sum::<Span>(), content, "seed {seed}: {index}");
            assert!(row.gaps.iter().all(|gap| *gap >= step), "seed {seed}: {index}");
            // Only who was preempted misses a step.
            stalled += row.gaps.iter().filter(|gap| **gap > step).count();
        }
    }
    assert!(refused > 200 && stalled > 200, "{refused} refused, {stalled} gaps of more than a step");
}

#[test]
fn blocks_of_a_trace_reach_the_prefix_cache() {
    let line = |timestamp: u32, input: u32, ids: &str| {
        format!(
            "{{\"timestamp\": {timestamp}, \"input_length\": {input}, \"output_length\": 2, \"hash_ids\": [{ids}]}}\n"
        )
    };
    let text = [
        line(0, 1500, "1, 2, 3"),
        line(10_000, 1500, "1, 2, 3"),
        line(20_000, 1500, "1, 2, 4"),
        line(30_000, 600, "1, 5"),
        line(40_000, 1500, "6, 2, 3"),
    ];
    let plan = read_trace(TraceFormat::Mooncake, &text.concat(), "a test", &TraceOptions::default()).unwrap();
    let again = Plan::from_ndjson(&plan.to_ndjson()).unwrap();
    for kv_blocks in [None, Some(1_000)] {
        let profile = Profile { kv_blocks, ..Profile::built_in("gb10-qwen3-8b-fp8").unwrap() };
        let rows = rows(&again, profile, None);
        let cached: Vec<u32> = rows.values().map(|row| row.cached_tokens.unwrap()).collect();
        // Of a known prompt all whole blocks of 16 before the last token; else the common blocks of 512.
        assert_eq!(cached, [0, 1488, 1024, 512, 0], "{kv_blocks:?}");
    }
}

/// From Azure/AzurePublicDataset, CC-BY 4.0.
const AZURE: &str = include_str!("../../../reference/traces/azure_llm_2023_conv.csv");

#[test]
fn a_published_trace_is_read_whole() {
    let options = TraceOptions { speed_up: 2.0, ..TraceOptions::default() };
    let plan = read_trace(TraceFormat::detect(AZURE).unwrap(), AZURE, "azure_llm_2023_conv.csv", &options).unwrap();
    assert_eq!(plan.arrivals().len(), AZURE.lines().count() - 1);
    // 18:15:46.68 to 19:14:08.40 in half the time.
    assert_eq!(plan.header().window.unwrap().as_secs_f64().round(), 1751.0);
    assert_eq!(plan.arrivals().iter().map(|a| u64::from(a.input)).max(), Some(14_050));
    let names = include_str!("../../../reference/traces/m3_seed11.csv");
    let plan = read_trace(TraceFormat::detect(names).unwrap(), names, "m3", &TraceOptions::default()).unwrap();
    assert_eq!((plan.arrivals().len(), plan.header().tenants.len()), (200, 3));
}
