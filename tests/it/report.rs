//! `elasticserve report` as a command: run folders in, figures and files out.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use elasticserve_core::engine::{Profile, Prompt};
use elasticserve_core::ledger::{LEDGER_FILE, MANIFEST_FILE, Manifest, RunEnd, Target, Timeouts, Tolerances};
use elasticserve_core::sched::Settings;
use elasticserve_core::sim::{GatewaySetup, Setup};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::{ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant};

const TRACE: &str = include_str!("../../reference/traces/vllm_bench_seed7_n200_unit_rate.csv");

/// The published overload: 200 requests at 16/s, 256 tokens in and 64 out.
fn plan() -> Plan {
    let slo =
        Slo { ttft: Some(Span::from_millis(1000)), tpot: Some(Span::from_millis(100)), e2e: Some(Span::from_secs(15)) };
    let unit_times = TRACE.lines().skip(1).map(|l| l.split(',').nth(1).unwrap().parse().unwrap()).collect();
    Plan::generate(&PlanSpec {
        seed: 7,
        process: ArrivalProcess::Recorded { rate: 16.0, source: "vllm bench, seed 7".into(), unit_times },
        extent: Extent::Count(200),
        input: Lengths::fixed(256),
        output: Lengths::fixed(64),
        tenants: vec![PlanTenant::new("default", 1.0, slo)],
    })
    .unwrap()
}

/// Simulates the overload and writes its run folder.
pub(crate) fn write_run(folder: &Path, name: &str, budget: Option<Span>) {
    let plan = plan();
    let settings = Settings { budget, ..Settings::fcfs(vec![32]) };
    let setup = Setup {
        engines: vec![Profile::built_in("gb10-qwen3-8b-fp8").unwrap()],
        gateway: budget.map(|_| GatewaySetup::instant(settings)),
        warm: vec![(Prompt::Family(plan.arrivals()[0].prompt), 256)],
    };
    let mut ledger = String::new();
    elasticserve_core::sim::run(&plan, &setup, |row| ledger += &(serde_json::to_string(&row).unwrap() + "\n")).unwrap();
    let end = RunEnd {
        at: Tick::from_nanos(20_000_000_000),
        interrupted: false,
        peak_in_flight: 200,
        connections: 200,
        cpu: None,
        drawn: None,
        health: None,
    };
    let manifest = Manifest {
        format: 1,
        name: name.into(),
        simulated: true,
        tool_version: env!("CARGO_PKG_VERSION").into(),
        started: None,
        plan_hash: plan.hash(),
        plan: plan.header().clone(),
        time_scale: 1.0,
        target: Target { model: "Qwen3-8B-FP8".into(), streaming: true, ..Target::default() },
        warmups: 1,
        prompts_salted: true,
        timeouts: Timeouts::default(),
        tolerances: Tolerances::default(),
        max_in_flight: None,
        retries: 0,
        ceiling: None,
        metadata: BTreeMap::new(),
        end: Some(end),
    };
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(MANIFEST_FILE), serde_json::to_string_pretty(&manifest).unwrap()).unwrap();
    fs::write(folder.join(LEDGER_FILE), ledger).unwrap();
}

fn write_pair(parent: &Path) {
    write_run(&parent.join("direct"), "direct", None);
    write_run(&parent.join("gateway"), "gateway", Some(Span::from_millis(750)));
}

fn report(args: &[&str], within: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_elasticserve")).arg("report").args(args).current_dir(within).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_folder_of_two_runs_is_compared_and_every_file_written() {
    let parent = tempfile::tempdir().unwrap();
    write_pair(parent.path());
    let output = report(&["."], parent.path());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.contains("Of the same 200 arrivals, 128 (64.0%) got a good answer with gateway"), "{text}");
    for file in
        ["report.html", "direct/report.html", "direct/summary.json", "gateway/report.html", "gateway/summary.json"]
    {
        assert!(parent.path().join(file).is_file(), "{file}");
    }
    let page = fs::read_to_string(parent.path().join("report.html")).unwrap();
    assert!(page.contains("128 (64.0%) got a good answer with gateway") && page.ends_with("</html>"));
}

#[test]
fn json_holds_the_summaries_and_what_they_mean() {
    let parent = tempfile::tempdir().unwrap();
    write_pair(parent.path());
    let output = report(&["direct", "gateway", "--json", "--html", "both.html"], parent.path());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let attainment: Vec<f64> =
        json["runs"].as_array().unwrap().iter().map(|r| r["attainment"].as_f64().unwrap()).collect();
    assert_eq!(attainment, [0.16, 0.64]);
    assert!(json["finding"].as_str().unwrap().contains("4 times as many"));
    assert!(parent.path().join("both.html").is_file());
    let written = fs::read_to_string(parent.path().join("gateway/summary.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), json["runs"][1]);
}

#[test]
fn everything_comes_from_the_ledger_and_nothing_from_an_earlier_summary() {
    let parent = tempfile::tempdir().unwrap();
    write_pair(parent.path());
    report(&["direct"], parent.path());
    let summary = parent.path().join("direct/summary.json");
    let first = fs::read_to_string(&summary).unwrap();
    fs::write(&summary, first.replace("0.16", "0.99")).unwrap();
    report(&["direct"], parent.path());
    assert_eq!(fs::read_to_string(&summary).unwrap(), first);
}

#[test]
fn a_killed_run_gives_counts_and_exit_code_1() {
    let parent = tempfile::tempdir().unwrap();
    write_pair(parent.path());
    let ledger = parent.path().join("gateway").join(LEDGER_FILE);
    let text = fs::read(&ledger).unwrap();
    // Wherever the kill falls, what is whole is counted and nothing else is claimed.
    for cut in [0, 1, text.len() / 3, text.len() / 2, text.len() - 2] {
        fs::write(&ledger, &text[..cut]).unwrap();
        let output = report(&["gateway", "--json"], parent.path());
        assert_eq!(output.status.code(), Some(1), "cut at {cut}: {}", stderr(&output));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let run = &json["runs"][0];
        let whole = text[..cut].iter().filter(|b| **b == b'\n').count() as u64;
        let counted: u64 = run["states"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert!(counted == whole || (cut == text.len() - 2 && counted == 199), "cut at {cut}: {counted} of {whole}");
        assert_eq!(run["complete"], false);
        for absent in [&run["attainment"], &run["goodput_per_s"], &run["latencies"]["ttft"]["p50"]] {
            assert!(absent.is_null(), "cut at {cut}");
        }
    }
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let parent = tempfile::tempdir().unwrap();
    fs::create_dir(parent.path().join("empty")).unwrap();
    write_run(&parent.path().join("bad"), "bad", None);
    let ledger = parent.path().join("bad").join(LEDGER_FILE);
    let first = fs::read_to_string(&ledger).unwrap().lines().next().unwrap().to_owned();
    fs::write(&ledger, format!("{first}\n{first}\n")).unwrap();
    for (argument, code, says) in [
        ("nowhere", 1, "it does not exist"),
        ("empty", 1, "empty holds no run: name a folder with manifest.json and ledger.ndjson"),
        ("bad", 1, "line 2: arrival"),
        ("--jsn", 2, "--json"),
    ] {
        let output = report(&[argument], parent.path());
        assert_eq!(output.status.code(), Some(code), "{argument}");
        assert!(stderr(&output).contains(says), "{argument}: {}", stderr(&output));
    }
    assert_eq!(report(&[], parent.path()).status.code(), Some(2));
}

#[test]
fn runs_that_no_page_can_hold_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    write_run(&parent.path().join("one"), "one", None);
    let output = report(&["one"; 17], parent.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("17 runs where at most 16"), "{}", stderr(&output));
}
