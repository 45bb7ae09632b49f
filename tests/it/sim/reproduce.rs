//! Published rows, replayed.

use elasticserve_core::engine::Profile;
use elasticserve_core::sim::Figures;
use elasticserve_core::sim::fit::{Effort, fit};
use elasticserve_core::sim::reproduce::{Ablation, Case, Column, Deployment, Published, Report, Sequence, replay};

const PROFILE: &str = "gb10-qwen3-8b-fp8";
const MEASUREMENTS: &str = include_str!("../../../reference/spark-gb10.toml");
const CONDITIONS: &str = include_str!("../../../reference/spark-gb10-conditions.toml");
const PROFILE_TEXT: &str = include_str!("../../../config/engines/gb10-qwen3-8b-fp8.toml");

fn profile() -> Profile {
    Profile::built_in(PROFILE).unwrap()
}

fn report(published: &Published, profile: &Profile, groups: &[&str]) -> Report {
    let deployment = Deployment { profile: profile.clone(), gateway: published.gateway_times() };
    let wanted = |s: &Sequence| groups.is_empty() || s.iter().any(|case| groups.contains(&case.group));
    let sequences: Vec<Sequence> = published.sequences().unwrap().into_iter().filter(wanted).collect();
    let figures: Vec<Vec<Figures>> = sequences.iter().map(|s| replay(s, &deployment).unwrap()).collect();
    let runs: Vec<(&Case, &Figures)> = sequences.iter().flatten().zip(figures.iter().flatten()).collect();
    Report::new(published, &runs)
}

#[test]
fn every_published_cell_is_reproduced_within_its_tolerance() {
    let report = report(&Published::built_in().unwrap(), &profile(), &[]);
    let broken: Vec<_> = report.rows.iter().filter(|cell| !cell.ok).collect();
    assert!(report.ok && broken.is_empty(), "{broken:#?}");
    // Every table is there, with a row for each of its runs.
    let rows = |group: &str| {
        let mut rows: Vec<&str> = report.rows.iter().filter(|c| c.group == group).map(|c| c.row.as_str()).collect();
        rows.dedup();
        rows.len()
    };
    for (group, count) in [
        ("unloaded", 4),
        ("low_rate", 1),
        ("saturation", 4),
        ("gateway_overhead", 2),
        ("permits", 3),
        ("queue_budget", 4),
        ("admission_pairs", 10),
        ("mixed_pilot", 2),
        // Both orders of five seeds, and the errors over all of them.
        ("queue_order_pairs", 11),
        ("admission_effects", 1),
        ("queue_order_effects", 1),
    ] {
        assert_eq!(rows(group), count, "{group}");
    }
    let (_, held) = report.held();
    assert!(held >= 170, "{held} cells are held to a tolerance");
}

#[test]
fn no_simulation_sees_a_measured_value() {
    const MEASURED: [&str; 10] = [
        "throughput",
        "goodput",
        "ttft_p95",
        "tpot_p95",
        "e2e_p95",
        "completed",
        "rejected",
        "slo_passing",
        "peak_concurrency",
        "goodput_share",
    ];
    let falsify = |line: &str| match line.split_once(" = ") {
        Some((key, value)) if MEASURED.contains(&key) && !value.starts_with('{') => format!("{key} = 1.5\n"),
        _ => format!("{line}\n"),
    };
    let false_text: String = MEASUREMENTS.lines().map(falsify).collect();
    let falsified = Published::from_toml(&format!("{false_text}\n{CONDITIONS}")).unwrap();
    let (truth, lie) = (report(&Published::built_in().unwrap(), &profile(), &[]), report(&falsified, &profile(), &[]));
    assert_eq!(truth.rows.len(), lie.rows.len());
    let changed = truth.rows.iter().zip(&lie.rows).filter(|(a, b)| a.published != b.published).count();
    assert!(changed > 60, "{changed} published values were falsified");
    for (a, b) in truth.rows.iter().zip(&lie.rows) {
        let pure = !a.column.ends_with("_rms_error");
        assert!(!pure || a.simulated == b.simulated, "{a:?} {b:?}");
    }
    assert!(!lie.ok);
}

#[test]
fn each_rule_of_the_engine_model_earns_its_place() {
    let published = Published::built_in().unwrap();
    let full = report(&published, &profile(), &[]).loss();
    for ablation in Ablation::ALL {
        let without = report(&published, &ablation.apply(&profile()), &[]);
        assert!(without.loss() > 5.0 * full, "{}: {} where all rules give {full}", ablation.name(), without.loss());
        assert!(!without.ok, "{}", ablation.name());
    }
}

#[test]
fn a_fit_to_direct_rows_predicts_the_rows_behind_the_gateway() {
    // Every parameter 15 % off, in directions that do not cancel.
    let mut text = PROFILE_TEXT.to_owned();
    let start = profile();
    for (key, value, factor) in [
        ("base_ms", start.base_ms, 1.15),
        ("kv_ms_per_token", start.kv_ms_per_token, 0.85),
        ("prefill_step_ms", start.prefill_step_ms, 1.15),
        ("prefill_ms_per_token", start.prefill_ms_per_token, 0.85),
        ("roof_tokens", start.roof_tokens, 1.15),
        ("attention_ms", start.attention_ms, 0.85),
        ("in_ms", start.overhead_in.as_millis_f64(), 1.15),
        ("out_ms", start.overhead_out.as_millis_f64(), 0.85),
    ] {
        let change = |line: &str| match line.strip_prefix(key) {
            Some(rest) if rest.starts_with(" = ") => format!("{key} = {}\n", value * factor),
            _ => format!("{line}\n"),
        };
        text = text.lines().map(change).collect();
    }
    let perturbed = Profile::from_toml(&text).unwrap();
    let published = Published::built_in().unwrap();
    let seen = ["unloaded", "low_rate", "saturation"];
    let evaluate = |profiles: &[Profile]| {
        let residuals = |profile| report(&published, profile, &seen).residuals().collect();
        Ok::<_, ()>(profiles.iter().map(residuals).collect())
    };
    let found = fit(&perturbed, Effort { rounds: 12, restarts: 2 }, evaluate).unwrap();

    let unseen = ["permits", "queue_budget", "admission_pairs", "mixed_pilot"];
    let worst = |profile: &Profile, column| report(&published, profile, &unseen).worst(column).unwrap();
    for (column, most) in [
        (Column::Throughput, 0.04),
        (Column::Tpot(95), 0.03),
        (Column::E2e(95), 0.04),
        (Column::Ttft(95), 0.08),
        // 6 % of the fewest that were completed.
        (Column::Completed, 0.06 * 128.0),
    ] {
        let error = worst(&found.profile, column);
        assert!(error <= most, "{}: off by {error}, at most {most}; {:?}", column.name(), found.profile);
    }
    assert!(worst(&perturbed, Column::E2e(95)) > 0.08, "the start was no good");
}
