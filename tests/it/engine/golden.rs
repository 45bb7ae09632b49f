//! Ledgers whose bytes must not change unless the model does.

use std::num::NonZeroU32;

use elasticserve_core::engine::Profile;
use elasticserve_core::sched::{CostModel, Order, Settings, TenantPolicy};
use elasticserve_core::sim::{self, GatewaySetup, Setup};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant};
use sha2::{Digest, Sha256};

/// Kept here, so that a profile that is fitted anew changes nothing.
const PROFILE: &str = r#"
name = "golden"
model = "golden"
[step]
base_ms = 40.083
kv_ms_per_token = 0.000260
prefill_step_ms = 1.423
prefill_ms_per_token = 0.0732
roof_tokens = 71.7
attention_ms = 6.07
[overhead]
in_ms = 6.18
out_ms = 7.43
[engine]
max_seqs = 32
block_tokens = 16
token_budget = 8192
pipeline_depth = 2
prefix_cache = true
"#;

#[test]
fn ledgers_are_the_same_bytes_as_ever() {
    let (fixed, mixed) = (fixed(), mixed());
    let fcfs = GatewaySetup::instant(Settings::fcfs(vec![32]));
    let weight = |w| TenantPolicy { weight: NonZeroU32::new(w).unwrap(), ..TenantPolicy::default() };
    let wfq = Settings {
        order: Order::Wfq,
        tenants: vec![weight(4), weight(2), weight(1)],
        budget: Some(Span::from_millis(750)),
        cost: CostModel::from_profile(&Profile::from_toml(PROFILE).unwrap()),
        ..Settings::fcfs(vec![32])
    };
    let two = GatewaySetup {
        scheduler: Settings { backends: vec![16, 8], order: Order::Fcfs, ..wfq.clone() },
        overhead_in: Span::from_millis(1),
        overhead_out: Span::from_millis(2),
        release_delay: Span::from_millis(1),
        ..GatewaySetup::instant(Settings::fcfs(Vec::new()))
    };
    for (name, plan, engines, gateway, expected) in [
        ("saturated, first come first served", &fixed, 1, Some(fcfs), "d64d09649f1d8e5f"),
        ("saturated, no gateway", &fixed, 1, None, "a200ee5e8e21edde"),
        ("tenants, fair queueing, a wait limit", &mixed, 1, Some(GatewaySetup::instant(wfq)), "1345a05f79fd3e74"),
        ("tenants, two engines, a slow gateway", &mixed, 2, Some(two), "e6347f7af234d5a8"),
    ] {
        let engines = vec![Profile::from_toml(PROFILE).unwrap(); engines];
        let mut hash = Sha256::new();
        sim::run(plan, &Setup { engines, gateway, warm: Vec::new() }, |row| {
            hash.update(serde_json::to_vec(&row).unwrap());
            hash.update(b"\n");
        })
        .unwrap();
        let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, expected, "{name}");
    }
}

fn tenant(name: &str, share: f64) -> PlanTenant {
    PlanTenant::new(name, share, Slo::default())
}

fn fixed() -> Plan {
    let spec = PlanSpec {
        seed: 7,
        process: ArrivalProcess::Poisson { rate: 16.0 },
        extent: Extent::Count(2000),
        input: Lengths::fixed(256),
        output: Lengths::fixed(64),
        tenants: vec![tenant("default", 1.0)],
    };
    Plan::generate(&spec).unwrap()
}

fn mixed() -> Plan {
    let spec = PlanSpec {
        seed: 11,
        process: ArrivalProcess::Poisson { rate: 8.0 },
        extent: Extent::Count(2000),
        input: Lengths { low: 64, high: 960 },
        output: Lengths { low: 32, high: 224 },
        tenants: vec![tenant("gold", 0.2), tenant("standard", 0.5), tenant("batch", 0.3)],
    };
    Plan::generate(&spec).unwrap()
}
