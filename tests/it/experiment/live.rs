//! Experiments on sockets.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use elasticserve_report::read_run;
use serde_json::Value;

use super::{SMALL, findings, write};

#[test]
fn a_gateway_is_started_for_each_run_and_the_figures_are_in_the_time_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "e.toml", SMALL);
    let dir = folder.path().join("out");
    let (file, dir_name) = (file.to_str().unwrap(), dir.to_str().unwrap());
    let found = findings(&[file, "--speed", "20", "--result-dir", dir_name], 0);
    assert_eq!(found["problems"], Value::Array(Vec::new()));
    assert_eq!(found["stand"]["speed"], "20");
    let workload = &found["workloads"][0];
    // 64 prompt tokens meet an idle engine of 40 ms a step three steps before their first token.
    let ttft = workload["arms"][0]["figures"]["completed_ttft_p95"]["median"].as_f64().unwrap();
    assert!(ttft > 40.0, "{ttft} ms is of an engine twenty times faster");
    assert_eq!(workload["effects"][0]["pairs"], serde_json::json!(["seed 1", "seed 2"]));
    for (arm, seed) in [("direct", 1), ("direct", 2), ("budget", 1), ("budget", 2)] {
        let run = dir.join(arm).join(format!("seed{seed}"));
        let read = read_run(&run).unwrap();
        assert_eq!((read.manifest.time_scale, read.rows.len()), (20.0, 40));
        let before = &read.manifest.metadata["before"];
        assert!(before.contains("idle by its metrics") && before.ends_with("prefix cache reset"), "{before}");
        assert_eq!(run.join("gateway.log").exists(), arm == "budget");
        assert!(read.manifest.prompts_salted && read.rows.iter().all(|r| r.cached_tokens.is_none_or(|n| n == 0)));
    }
    let config = std::fs::read_to_string(dir.join("budget/seed1/gateway.toml")).unwrap();
    assert!(config.contains("budget = \"5ms\"") && config.contains("permits = 4"), "{config}");
    for file in ["report.html", "report.md", "experiment.json"] {
        assert!(dir.join(file).exists(), "{file}");
    }
}

#[test]
fn shared_prompts_are_found_in_the_cache_by_the_run_that_comes_second() {
    let folder = tempfile::tempdir().unwrap();
    let shared =
        SMALL.replace("seeds = [1, 2]", "seeds = [1, 2]\nsalt = 'pair'").replace("permits = 4", "permits = 32");
    let shared = shared.replace("budget:100ms", "budget:100s");
    let file = write(folder.path(), "e.toml", &shared);
    let dir = folder.path().join("out");
    let found = findings(&[file.to_str().unwrap(), "--speed", "20", "--result-dir", dir.to_str().unwrap()], 0);
    let mut cached: Vec<(u64, f64)> = found["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["turn"].as_u64().unwrap(), r["cached_share"].as_f64().unwrap()))
        .collect();
    cached.sort_by_key(|(turn, _)| *turn);
    // Of 64 tokens the last block of 16 is always computed.
    assert_eq!(cached.iter().map(|c| c.1).collect::<Vec<_>>(), [0.0, 0.75, 0.0, 0.75]);
    assert!(found["warnings"].to_string().contains("Cache contamination: in 2 of 2 pairs"), "{}", found["warnings"]);
}

#[test]
fn servers_of_different_models_are_compared_only_where_the_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Mock::start("model-a"), Mock::start("model-b"));
    let (head, _) = SMALL.split_once("[[arms]]").unwrap();
    let arms = format!("[[arms]]\nname = 'a'\nurl = '{}'\n[[arms]]\nname = 'b'\nurl = '{}'\n", one.url, two.url);
    let run = |name: &str, allow: &str, code: i32| {
        let text =
            head.replace("name = 'small'", &format!("name = 'small'\n{allow}")).replace("rate = 20", "rate = 400");
        let file = write(folder.path(), &format!("{name}.toml"), &(text + &arms));
        let dir = folder.path().join(name);
        findings(&[file.to_str().unwrap(), "--result-dir", dir.to_str().unwrap()], code)
    };
    let refused = run("refused", "", 1);
    let problem = refused["problems"][0].as_str().unwrap();
    assert!(problem.contains("target.model is 'model-a' and 'model-b'"), "{problem}");
    assert_eq!(refused["workloads"][0]["effects"], Value::Array(Vec::new()));
    let allowed = run("allowed", "allow = ['target.model']", 0);
    assert_eq!(allowed["workloads"][0]["effects"][0]["effects"][0]["n"], 2);
}

#[test]
fn a_child_that_does_not_start_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let text = SMALL
        .replace("policy = 'fcfs+budget:100ms'", "policy = 'fcfs'\ngateway = { log = { decisions = '/nowhere/d' } }");
    let file = write(folder.path(), "e.toml", &text);
    let dir = folder.path().join("out");
    let args = [file.to_str().unwrap(), "--speed", "20", "--result-dir", dir.to_str().unwrap()];
    let output = super::experiment(&args);
    let said = super::stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the gateway did not start") && said.contains("/nowhere/d"), "{said}");
}

/// A mock engine that ends when it is dropped.
struct Mock {
    process: Child,
    url: String,
}

impl Mock {
    fn start(model: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_elasticserve"))
            .args(["mock", "--supervised", "--listen", "127.0.0.1:0", "--speed", "20", "--model", model])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        Self { process, url: format!("http://{}", told["listen"].as_str().unwrap()) }
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        // Its stdin ends, and so does it.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
