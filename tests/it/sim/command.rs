//! The commands, each as a process of its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use elasticserve_core::slo::Slo;
use elasticserve_core::work::{ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant};
use elasticserve_report::{Summary, read_run};
use serde_json::Value;

const GATEWAY: &str = "[[backends]]\nurl = 'http://127.0.0.1:1'\npermits = 32\n[queue]\nbudget = '750ms'\n";

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.arg("sim").args(args).stdin(Stdio::null()).env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    command.output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A run of 200 requests at 16/s into `folder`.
fn run(folder: &Path, more: &[&str]) -> Output {
    let work = ["run", "--request-rate", "16", "--num-prompts", "200", "--isl", "256", "--osl", "64", "--seed", "7"];
    let limits = ["--goodput", "ttft:1000", "tpot:100", "e2el:15000", "--result-dir", folder.to_str().unwrap()];
    sim(&[&work[..], &limits[..], more].concat())
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn reproduce_prints_every_cell_as_json_and_exits_with_the_verdict() {
    let output = sim(&["reproduce", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(report["ok"], true);
    let cell =
        report["rows"].as_array().unwrap().iter().find(|c| c["row"] == "saturation/8" && c["column"] == "ttft_p95");
    let cell = cell.unwrap();
    assert_eq!((&cell["published"], &cell["tolerance"], &cell["ok"]), (&195.6.into(), &0.05.into(), &true.into()));
    let (simulated, error) = (cell["simulated"].as_f64().unwrap(), cell["error"].as_f64().unwrap());
    assert!((simulated / 195.6 - 1.0 - error).abs() < 1e-12);

    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow.toml");
    let good = String::from_utf8(read(Path::new("config/engines/gb10-qwen3-8b-fp8.toml"))).unwrap();
    std::fs::write(&slow, good.replace("base_ms = 40", "base_ms = 45")).unwrap();
    let output = sim(&["reproduce", "--profile", slow.to_str().unwrap(), "--rows", "direct"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("NO") && stdout(&output).contains("cells hold"), "{}", stdout(&output));
}

#[test]
fn a_run_folder_can_be_reported_and_is_marked_as_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["--permits", "32", "--queue-budget", "750ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let run = read_run(folder.path()).unwrap();
    let summary = Summary::of(&run);
    assert!(summary.simulated && summary.complete && summary.reconciled && summary.valid, "{summary:?}");
    assert_eq!(summary.figures.completed + summary.figures.rejected, 200);
    assert!(summary.figures.rejected > 40 && summary.figures.late == 0, "{summary:?}");
    let most = run.manifest.end.unwrap().peak_in_flight;
    assert!((33..100).contains(&most), "{most} in flight: 32 permits, and some that wait");
}

#[test]
fn flags_and_the_gateways_own_file_give_the_same_ledger_and_so_does_a_second_run() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    std::fs::write(&config, GATEWAY).unwrap();
    let runs = ["flags", "file", "again"].map(|name| folder.path().join(name));
    for (run_folder, more) in runs.iter().zip([
        &["--permits", "32", "--queue-budget", "750ms"][..],
        &["--gateway", config.to_str().unwrap()],
        &["--gateway", config.to_str().unwrap()],
    ]) {
        let output = run(run_folder, more);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let ledgers = runs.each_ref().map(|r| read(&r.join("ledger.ndjson")));
    assert!(!ledgers[0].is_empty() && ledgers[0] == ledgers[1] && ledgers[1] == ledgers[2]);
    assert_eq!(read(&runs[1].join("manifest.json")), read(&runs[2].join("manifest.json")));
    let short = folder.path().join("short");
    run(&short, &["--gateway", config.to_str().unwrap(), "--queue-budget", "500ms"]);
    assert_ne!(read(&short.join("ledger.ndjson")), ledgers[0], "flags win over the file");
}

#[test]
fn tenants_of_the_plan_get_what_the_gateways_file_says_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let tenant = |name: &str| PlanTenant::new(name, 1.0, Slo::default());
    let plan = Plan::generate(&PlanSpec {
        seed: 7,
        process: ArrivalProcess::Poisson { rate: 20.0 },
        extent: Extent::Count(150),
        input: Lengths::fixed(256),
        output: Lengths::fixed(64),
        tenants: vec![tenant("gold"), tenant("batch")],
    });
    std::fs::write(file("plan"), plan.unwrap().to_ndjson()).unwrap();
    let named = |names: &[(&str, u32)]| -> String {
        let tenants = names.iter().map(|(name, weight)| format!("[[tenants]]\nname = '{name}'\nweight = {weight}\n"));
        GATEWAY.replace("[queue]\n", "[queue]\norder = 'wfq'\n") + &tenants.collect::<String>()
    };
    // In another order than in the plan.
    std::fs::write(file("both.toml"), named(&[("batch", 1), ("gold", 9)])).unwrap();
    std::fs::write(file("neither.toml"), named(&[("silver", 1)])).unwrap();
    let run = |name: &str, more: &[&str]| {
        let (plan, folder) = (file("plan"), file(name));
        (sim(&[&["run", "--plan", &plan, "--result-dir", &folder], more].concat()), file(name))
    };
    let ledger = |(output, folder): (Output, String)| {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        read(&Path::new(&folder).join("ledger.ndjson"))
    };
    let by_file = ledger(run("file", &["--gateway", &file("both.toml")]));
    let flags = ["--permits", "32", "--queue-budget", "750ms", "--order", "wfq", "--weight", "gold=9"];
    assert!(by_file == ledger(run("flags", &flags)));
    assert!(by_file != ledger(run("equal", &flags[..6])), "weights matter");
    let (output, _) = run("none", &["--gateway", &file("neither.toml")]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("'gold' and 'batch'"), "{}", stderr(&output));
}

#[test]
fn several_engines_stand_behind_one_gateway_each_with_its_profile() {
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow.toml");
    let good = String::from_utf8(read(Path::new("config/engines/gb10-qwen3-8b-fp8.toml"))).unwrap();
    std::fs::write(&slow, good.replace("base_ms = 40", "base_ms = 160")).unwrap();
    let both = ["--profile", "gb10-qwen3-8b-fp8", "--profile", slow.to_str().unwrap(), "--permits", "32"];
    let target = folder.path().join("run");
    let output = run(&target, &both);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let run = read_run(&target).unwrap();
    let mean_gap = |backend: &str| {
        let tpots = run.rows.iter().filter(|r| r.backend.as_deref() == Some(backend)).filter_map(|r| r.tpot());
        let ms: Vec<f64> = tpots.map(|t| t.as_millis_f64()).collect();
        ms.iter().sum::<f64>() / ms.len() as f64
    };
    assert!(mean_gap("0") < 60.0 && mean_gap("1") > 150.0, "{} and {}", mean_gap("0"), mean_gap("1"));
}

#[test]
fn a_sweep_gives_the_same_bytes_on_one_thread_and_on_two() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = ["1", "2"].map(|threads| {
        let (csv, html) = (folder.path().join(format!("{threads}.csv")), folder.path().join(format!("{threads}.html")));
        let grid = ["sweep", "--rates", "6:12:3", "--permits", "32,16", "--budgets", "none,750ms", "--seeds", "7,11"];
        let more = ["--direct", "--num-prompts", "100", "--goodput", "ttft:1000", "--threads", threads];
        let files = ["--csv", csv.to_str().unwrap(), "--html", html.to_str().unwrap()];
        let output = sim(&[&grid[..], &more[..], &files[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        (output.stdout, read(&csv), read(&html))
    });
    assert!(outputs[0] == outputs[1]);
    let csv = String::from_utf8(outputs[0].1.clone()).unwrap();
    assert_eq!(csv.lines().count(), 1 + (1 + 2 * 2) * 3 * 2);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().all(|line| line.split(',').count() == columns));
    assert!(String::from_utf8(outputs[0].0.clone()).unwrap().contains("Knees"));
}

#[test]
fn a_fit_to_a_users_own_measurements_finds_the_engine_that_made_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // An engine a tenth slower than the built-in one, measured by a simulation of it.
    let good = String::from_utf8(read(Path::new("config/engines/gb10-qwen3-8b-fp8.toml"))).unwrap();
    std::fs::write(file("own.toml"), good.replace("base_ms = 40", "base_ms = 44")).unwrap();
    let mut measured = "[slo]\n[workload]\nseed = 7\nrequests = 200\ninput = 256\noutput = 64\n".to_owned();
    for rate in ["4", "8", "12"] {
        let folder = file(&format!("run{rate}"));
        let work =
            ["run", "--request-rate", rate, "--num-prompts", "200", "--isl", "256", "--osl", "64", "--seed", "7"];
        let output = sim(&[&work[..], &["--profile", &file("own.toml"), "--json", "--result-dir", &folder]].concat());
        let summary: Value = serde_json::from_str(stdout(&output)).unwrap();
        let p95 = |metric: &str| summary["latencies"][metric]["p95"].as_f64().unwrap();
        measured += &format!(
            "[[saturation]]\noffered = {rate}\nthroughput = {}\nttft_p95 = {}\ntpot_p95 = {}\ne2e_p95 = {}\n",
            summary["completed_per_s"],
            p95("ttft"),
            p95("tpot"),
            p95("e2e")
        );
    }
    std::fs::write(file("measured.toml"), measured).unwrap();
    let args = ["fit", "--measured", &file("measured.toml"), "--restarts", "1", "--out", &file("fitted.toml")];
    let output = sim(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(file("fitted.toml")).unwrap();
    let fitted = elasticserve_core::engine::Profile::from_toml(&text).unwrap();
    let own =
        elasticserve_core::engine::Profile::from_toml(&std::fs::read_to_string(file("own.toml")).unwrap()).unwrap();
    assert!((fitted.base_ms / own.base_ms - 1.0).abs() < 0.01, "{} for {}", fitted.base_ms, own.base_ms);
    assert!(text.starts_with("# Fitted with: elasticserve sim fit"), "{text}");
}

#[test]
fn what_is_wrong_is_told_by_its_flag_with_the_exit_code_of_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    assert_eq!(run(&taken, &[]).status.code(), Some(0));
    let config = folder.path().join("gateway.toml");
    std::fs::write(&config, GATEWAY.replace("budget", "budgett")).unwrap();
    let bad = config.to_str().unwrap();
    let new = folder.path().join("new");
    for (output, code, says) in [
        (run(&taken, &[]), 1, "--result-dir"),
        (run(&new, &["--gateway", bad]), 64, "budgett"),
        (run(&new, &["--profile", "h100"]), 64, "--profile"),
        (run(&new, &["--profile", "gb10-qwen3-8b-fp8", "--profile", "gb10-qwen3-8b-fp8"]), 64, "--permits"),
        (run(&new, &["--permits", "32", "--weight", "gold=4"]), 64, "--weight"),
        (run(&new, &["--order", "lifo"]), 2, "--order"),
        (run(&new, &["--queue-budget", "750"]), 2, "--queue-budget"),
        (sim(&["run", "--plan", "/nowhere"]), 64, "--plan"),
        (sim(&["reproduce", "--rows", "directt"]), 64, "--rows"),
        (sim(&["reproduce", "--ablate", "all"]), 2, "--ablate"),
        (sim(&["fit", "--measured", "/nowhere.toml"]), 64, "--measured"),
        (sim(&["sweep", "--rates", "4:2:1"]), 2, "--rates"),
        (sim(&["sweep", "--rates", "4", "--tenant", "gold:speed=3"]), 2, "--tenant"),
        (sim(&["sweep", "--rates", "4", "--target", "95"]), 2, "--target"),
    ] {
        assert_eq!(output.status.code(), Some(code), "{says}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{says}: {}", stderr(&output));
    }
    assert!(!new.exists(), "nothing was started");
}

#[test]
fn a_trace_is_replayed_with_its_own_lengths_times_and_shared_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    // The second prompt goes on where the first one ends; the third shares nothing.
    let row = |ms: u32, input: u32, blocks: &str| {
        format!("{{\"timestamp\": {ms}, \"input_length\": {input}, \"output_length\": 3, \"hash_ids\": [{blocks}]}}\n")
    };
    let text = [row(0, 1024, "1, 2"), row(4_000, 1536, "1, 2, 3"), row(8_000, 512, "9")].concat();
    std::fs::write(&trace, text).unwrap();
    let runs = folder.path().join("run");
    let output = sim(&[
        "run",
        "--trace",
        trace.to_str().unwrap(),
        "--trace-speedup",
        "2",
        "--result-dir",
        runs.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let run = read_run(&runs).unwrap();
    let rows: Vec<_> =
        run.rows.iter().map(|r| (r.planned.as_nanos() / 1_000_000, r.input_planned, r.cached_tokens)).collect();
    assert_eq!(rows, [(0, 1024, Some(0)), (2_000, 1536, Some(1024)), (4_000, 512, Some(0))]);

    let azure = "reference/traces/azure_llm_2023_conv.csv";
    let folder = folder.path().join("azure");
    let rows = ["--trace-rows", "20", "--permits", "32", "--goodput", "ttft:1000"];
    let output = sim(&[&["run", "--trace", azure, "--result-dir", folder.to_str().unwrap()], &rows[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let summary = Summary::of(&read_run(&folder).unwrap());
    assert_eq!((summary.figures.planned, summary.figures.completed), (20, 20));

    let output = sim(&["run", "--trace", "Cargo.toml"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(
        stderr(&output).contains("--trace Cargo.toml") && stderr(&output).contains("line 1"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_single_worker_replay_moves_the_figures_as_published() {
    let output = sim(&["single-worker", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows: Vec<Value> = serde_json::from_str(stdout(&output)).unwrap();
    let figure = |policy: &str, source: &str, name: &str| {
        let row = rows.iter().find(|r| r["policy"] == policy && r["source"] == source).unwrap();
        row[name].as_f64().unwrap()
    };
    for name in ["goodput_share", "jain", "min_tenant_attainment", "ttft_p95_ms"] {
        let change = |source| figure("wfq", source, name) - figure("fcfs", source, name);
        assert!(change("published") > 0.0 && change("simulated") > 0.0, "{name}");
    }
    assert_eq!(figure("wfq", "published", "goodput_share"), 0.2467);
}
