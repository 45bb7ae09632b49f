//! The experiments that come with the program, on the simulator, against the rows that they are about.

use std::collections::BTreeMap;

use elasticserve_core::engine::Profile;
use elasticserve_core::sim::Figures;
use elasticserve_core::sim::reproduce::{Case, Column, Deployment, Published, replay};
use serde_json::Value;

use super::findings;

/// An experiment, the table that it is about, and the names of workload, arm and seed of a row.
type Study = (&'static str, &'static str, fn(&str) -> (String, String, Option<u64>));

const STUDIES: [Study; 6] = [
    ("saturation", "saturation", |row| (format!("{row}/s"), "direct".into(), None)),
    ("permits", "permits", |row| ("16/s".into(), format!("{row} permits"), None)),
    ("budgets", "queue_budget", |row| ("16/s".into(), row.into(), None)),
    ("contamination", "admission_pairs", |row| {
        let (seed, side) = row.split_once('/').unwrap();
        let arm = if side == "control" { "none" } else { "750ms" };
        ("16/s".into(), arm.into(), Some(seed.parse().unwrap()))
    }),
    ("mixed-pilot", "mixed_pilot", |row| ("8/s, mixed".into(), row.into(), None)),
    ("tenants", "queue_order_pairs", |row| {
        let (seed, order) = row.split_once('/').unwrap();
        ("8/s, three tenants".into(), order.into(), Some(seed.parse().unwrap()))
    }),
];

#[test]
fn each_study_replays_its_published_rows_with_the_same_plans_and_the_same_cache() {
    let published = Published::built_in().unwrap();
    let deployment =
        Deployment { profile: Profile::built_in("gb10-qwen3-8b-fp8").unwrap(), gateway: published.gateway_times() };
    let sequences = published.sequences().unwrap();
    for (file, group, names) in STUDIES {
        let of_group: Vec<_> = sequences.iter().filter(|s| s[0].group == group).collect();
        let expected: Vec<(&Case, Figures)> =
            of_group.iter().flat_map(|sequence| sequence.iter().zip(replay(sequence, &deployment).unwrap())).collect();
        let found = simulated(file);
        let runs = found["runs"].as_array().unwrap();
        assert_eq!(runs.len(), expected.len(), "{file}");
        for (case, figures) in &expected {
            let (workload, arm, seed) = names(case.row.strip_prefix(&format!("{group}/")).unwrap());
            let is = |v: &&Value| {
                v["workload"] == workload.as_str() && v["arm"] == arm.as_str() && seed.is_none_or(|s| v["seed"] == s)
            };
            let run = runs.iter().find(is).unwrap_or_else(|| panic!("{file}: no run of {}", case.row));
            for (name, value) in run["counted"].as_object().unwrap() {
                let expected = Column::from_name(name).unwrap().of(figures).unwrap();
                let got = value.as_f64().unwrap();
                assert!((got - expected).abs() <= 1e-9 * expected.abs(), "{} {name}: {got}, {expected}", case.row);
            }
            let beside: BTreeMap<String, f64> = found["published"]["values"]
                .as_array()
                .unwrap()
                .iter()
                .filter(is)
                .filter(|v| v.get("pairs").is_none())
                .map(|v| (v["name"].as_str().unwrap().to_owned(), v["published"].as_f64().unwrap()))
                .collect();
            let measured: BTreeMap<String, f64> = case.measured.iter().map(|(c, v)| (c.name(), *v)).collect();
            assert_eq!(beside, measured, "{file}: {}", case.row);
        }
    }
}

#[test]
fn every_published_value_of_the_studies_is_within_its_tolerance() {
    for (file, ..) in STUDIES {
        let found = simulated(file);
        let (within, held) = (&found["published"]["within"], &found["published"]["held"]);
        assert!(held.as_u64().unwrap() >= 14 && within == held, "{file}: {within} of {held}");
        assert_eq!(found["problems"], Value::Array(Vec::new()), "{file}");
    }
}

#[test]
fn refusals_follow_the_order_where_prompts_are_shared_and_are_alike_where_they_are_not() {
    let refused = |found: &Value| -> Vec<i64> {
        let of_candidate = |seed: u64| {
            let is = |r: &&Value| r["arm"] == "750ms" && r["seed"] == seed;
            found["runs"].as_array().unwrap().iter().find(is).unwrap()["rejected"].as_i64().unwrap()
        };
        [11, 23, 37, 53, 71].map(of_candidate).into()
    };
    let (shared, own) = (simulated("contamination"), simulated("admission"));
    for (got, measured) in refused(&shared).into_iter().zip([41, 71, 47, 72, 47]) {
        assert!((got - measured).abs() <= 3, "{got}, measured {measured}");
    }
    assert!(refused(&own).iter().all(|n| (n - 72).abs() <= 1), "{:?}", refused(&own));
    let warnings = |found: &Value| found["warnings"].to_string();
    assert!(warnings(&shared).contains("Cache contamination: in 5 of 5 pairs"), "{}", warnings(&shared));
    assert!(warnings(&shared).contains("goes with the order of the runs"), "{}", warnings(&shared));
    assert_eq!(own["warnings"], Value::Array(Vec::new()));
}

#[test]
fn what_the_studies_left_open_is_answered_with_pairs_of_the_same_plans() {
    for (file, arms) in [("priority", 3), ("prediction", 3), ("prediction-tenants", 3), ("knee", 3)] {
        let found = simulated(file);
        let mut plans: BTreeMap<(String, u64), Vec<&str>> = BTreeMap::new();
        for run in found["runs"].as_array().unwrap() {
            let key = (run["workload"].as_str().unwrap().to_owned(), run["seed"].as_u64().unwrap());
            plans.entry(key).or_default().push(run["plan_hash"].as_str().unwrap());
        }
        assert!(plans.len() >= 5 && plans.values().all(|p| p.len() == arms), "{file}");
        assert!(plans.values().all(|p| p.iter().all(|hash| *hash == p[0])), "{file}");
        assert_eq!(
            (&found["problems"], &found["warnings"]),
            (&Value::Array(Vec::new()), &Value::Array(Vec::new())),
            "{file}"
        );
    }
}

#[test]
fn the_order_of_the_arms_goes_round_from_seed_to_seed() {
    let found = simulated("priority");
    let mut turns: Vec<(u64, u64, &str)> = found["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["turn"].as_u64().unwrap(), r["seed"].as_u64().unwrap(), r["arm"].as_str().unwrap()))
        .collect();
    turns.sort_unstable();
    let first: Vec<(u64, &str)> = turns.chunks(3).map(|of| (of[0].1, of[0].2)).collect();
    assert_eq!(first, [(11, "fcfs"), (23, "wfq"), (37, "priority"), (53, "fcfs"), (71, "wfq")]);
}

fn simulated(file: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("experiments/{file}.toml");
    findings(&[&path, "--sim", "--result-dir", folder.path().to_str().unwrap()], 0)
}
