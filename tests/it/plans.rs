//! What is offered: flags, scenario files and plan files, through the commands.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so")]

mod refused;
mod scenarios;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use elasticserve_core::time::Span;
use elasticserve_core::work::{ArrivalProcess, LoadModel, Plan};

fn elasticserve(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.args(args).stdin(Stdio::null()).env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The plan that `load` prints, and the hash that it says.
fn planned(args: &[&str]) -> (Plan, String) {
    let output = elasticserve(&[&["load", "--plan-only"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    let hash = text(&output.stderr).trim().rsplit(' ').next().unwrap().to_owned();
    (Plan::from_ndjson(text(&output.stdout)).unwrap(), hash)
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn example(name: &str) -> String {
    let found = examples().into_iter().find(|path| path.file_stem().is_some_and(|stem| stem == name));
    found.unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_plan_written_to_a_file_is_read_back_and_drawn_again_with_the_same_hash() {
    let folder = tempfile::tempdir().unwrap();
    for scenario in examples() {
        let file = folder.path().join("plan.ndjson");
        let scenario = scenario.to_str().unwrap();
        let written = elasticserve(&["load", "--scenario", scenario, "--plan-only", file.to_str().unwrap()]);
        assert_eq!((written.status.code(), text(&written.stdout)), (Some(0), ""), "{}", text(&written.stderr));
        let (drawn, hash) = planned(&["--scenario", scenario]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), drawn.to_ndjson(), "{scenario}");
        assert_eq!(hash, drawn.hash());
        assert!(text(&written.stderr).contains(&hash));
        let (replayed, again) = planned(&["--plan", file.to_str().unwrap()]);
        assert_eq!((replayed, again), (drawn, hash), "{scenario}");
    }
}

#[test]
fn each_flag_of_arrivals_is_the_process_that_it_names() {
    let seconds = Span::from_secs;
    for (flags, process) in [
        (&["--request-rate", "16"][..], ArrivalProcess::Poisson { rate: 16.0 }),
        (&["--request-rate", "16", "--arrival-pattern", "constant"], ArrivalProcess::Constant { rate: 16.0 }),
        (&["--request-rate", "16", "--burstiness", "0.5"], ArrivalProcess::Gamma { rate: 16.0, burstiness: 0.5 }),
        (
            &["--request-rate", "16", "--arrival-pattern", "gamma", "--arrival-smoothness", "2"],
            ArrivalProcess::Gamma { rate: 16.0, burstiness: 2.0 },
        ),
        (&["--request-rate", "16", "--burstiness", "1"], ArrivalProcess::Poisson { rate: 16.0 }),
        (&["--request-rate", "16", "--burstiness", "inf"], ArrivalProcess::Constant { rate: 16.0 }),
        (&["--ramp", "1:40"], ArrivalProcess::Ramp { from: 1.0, to: 40.0 }),
        (&["--bursts", "20:10s"], ArrivalProcess::Bursts { size: 20, every: seconds(10) }),
    ] {
        let (plan, _) = planned(&[flags, &["--num-prompts", "100", "--seed", "3"]].concat());
        assert_eq!((&plan.header().process, plan.header().count), (&process, 100), "{flags:?}");
        assert_eq!((plan.header().seed, plan.header().model), (3, LoadModel::Open));
    }
    let (plan, _) = planned(&["--rate-steps", "4:5s,20:5s", "--duration", "10"]);
    assert_eq!((plan.header().process.rate(), plan.header().window), (Some(12.0), Some(seconds(10))));
}

#[test]
fn workers_draw_from_a_supply_that_a_count_or_a_time_ends() {
    let (plan, _) = planned(&["--concurrency", "8", "--num-prompts", "100"]);
    assert_eq!((plan.header().count, plan.header().window), (100, None));
    assert!(matches!(plan.header().model, LoadModel::Closed { workers } if workers.get() == 8));
    let (plan, _) = planned(&["--concurrency", "8", "--duration", "5", "--num-prompts", "9000"]);
    assert_eq!((plan.header().count, plan.header().window), (9000, Some(Span::from_secs(5))));
    // A hundred requests a second of each worker are more than it can need.
    let (plan, _) = planned(&["--concurrency", "8", "--duration", "5"]);
    assert_eq!((plan.header().count, plan.header().window), (4000, Some(Span::from_secs(5))));
}

#[test]
fn lengths_come_from_measured_pairs_and_a_prefix_on_top() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pairs.csv");
    std::fs::write(&file, "input_tokens,output_tokens\n100,10\n900,90\n").unwrap();
    let base = ["--request-rate", "16", "--num-prompts", "50", "--lengths-file", file.to_str().unwrap()];
    let (plan, _) = planned(&[&base[..], &["--random-prefix-len", "64"]].concat());
    assert!(plan.arrivals().iter().all(|a| a.input - 64 == a.output * 10), "the pairs stay together");
    assert!(plan.arrivals().iter().any(|a| a.output == 10) && plan.arrivals().iter().any(|a| a.output == 90));
    let first = plan.prefix(&plan.arrivals()[0]).unwrap();
    assert!(plan.arrivals().iter().all(|a| plan.prefix(a) == Some(first) && first.tokens == 64));
    assert!(plan.header().tenants[0].lengths.as_ref().unwrap().contains("pairs.csv (2 rows)"));
}

const CONVERSATIONS: &str = r#"[
  {"id": "a", "conversations": [
    {"from": "human", "value": "How do I boil an egg without a timer?"},
    {"from": "gpt", "value": "Listen for the rolling boil, then hum a song of three minutes."}]},
  {"id": "b", "conversations": [
    {"from": "system", "value": "Be brief."},
    {"from": "human", "value": "Name the three largest lakes of Finland, please."},
    {"from": "gpt", "value": "Saimaa, Päijänne and Inari."},
    {"from": "human", "value": "And of Sweden?"},
    {"from": "gpt", "value": "Vänern, Vättern and Mälaren."}]},
  {"id": "c", "conversations": [{"from": "gpt", "value": "I start, so this is no prompt."}]}]"#;

#[test]
fn conversations_become_prompts_and_a_replay_wants_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let (data, plan_file) = (folder.path().join("talk.json"), folder.path().join("plan.ndjson"));
    std::fs::write(&data, CONVERSATIONS).unwrap();
    let data_path = data.to_str().unwrap();
    let base =
        ["--request-rate", "16", "--num-prompts", "10", "--dataset-name", "sharegpt", "--dataset-path", data_path];
    let (plan, hash) = planned(&base);
    // ⌈37 / 4⌉ bytes of the first question and ⌈48 / 4⌉ of the second; answers of 62 and 29 bytes.
    let mut sizes: Vec<(u32, u32)> = plan.arrivals().iter().map(|a| (a.input, a.output)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    assert_eq!(sizes, [(10, 16), (12, 8)]);
    let (longer, _) = planned(&[&base[..], &["--sharegpt-output-len", "77"]].concat());
    assert!(longer.arrivals().iter().all(|a| a.output == 77));

    std::fs::write(&plan_file, plan.to_ndjson()).unwrap();
    let replay = ["--plan", plan_file.to_str().unwrap()];
    assert_eq!(planned(&replay).1, hash);
    let moved = folder.path().join("moved.json");
    std::fs::rename(&data, &moved).unwrap();
    let refused = |more: &[&str]| {
        let output = elasticserve(&[&["load", "--plan-only"], &replay[..], more].concat());
        assert_eq!(output.status.code(), Some(64));
        text(&output.stderr).to_owned()
    };
    assert!(refused(&[]).contains("--dataset-path says where it is"));
    assert_eq!(planned(&[&replay[..], &["--dataset-path", moved.to_str().unwrap()]].concat()).1, hash);
    std::fs::write(&data, CONVERSATIONS.replace("Sweden", "Norway")).unwrap();
    assert!(refused(&[]).contains("SHA-256"), "another file is another load");
}

#[test]
fn the_simulator_runs_scenarios_of_open_loads_and_says_which_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let run = |scenario: &str, more: &[&str]| {
        let into = folder.path().join(scenario);
        let base = ["sim", "run", "--scenario", &example(scenario), "--result-dir", into.to_str().unwrap(), "--json"];
        elasticserve(&[&base[..], more].concat())
    };
    for scenario in ["steady", "burst", "three-tenants", "shared-prefix"] {
        let output = run(scenario, &["--permits", "32"]);
        assert_eq!(output.status.code(), Some(0), "{scenario}: {}", text(&output.stderr));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["plan_hash"], planned(&["--scenario", &example(scenario)]).1.as_str(), "{scenario}");
    }
    let output = run("sessions", &[]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("this is a sessions load; the simulator runs open plans only"));
}
