//! Experiments, each as a process of its own.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod going_on;
mod live;
mod refused;
mod studies;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The command, without what the environment says of servers.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.arg("experiment").args(args).stdin(Stdio::null());
    command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    command
}

fn experiment(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// The findings of an experiment that ends with this code.
fn findings(args: &[&str], code: i32) -> Value {
    let output = experiment(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Two policies, two seeds, 40 requests a run. The tolerances are those of a machine that does much else.
const SMALL: &str = "
name = 'small'
[runs]
seeds = [1, 2]
[run]
max_send_lag = '100s'
max_client_cpu = 1.0
[[workloads]]
name = 'some'
[workloads.work]
requests = 40
arrivals = { pattern = 'poisson', rate = 20 }
lengths = { input = 64, output = 16 }
slo = { ttft = '1s' }
[[arms]]
name = 'direct'
direct = true
[[arms]]
name = 'budget'
policy = 'fcfs+budget:100ms'
permits = 4
";

/// A gateway that goes by a profile of its own, in a file beside the experiment's, while it is run from elsewhere.
#[test]
fn files_that_a_gateway_in_the_file_names_lie_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/engines/gb10-qwen3-8b-fp8.toml");
    std::fs::copy(profile, folder.path().join("own.toml")).unwrap();
    let arm = "[[arms]]\nname = 'predict'\npolicy = 'least-slack+predict'\n";
    let all_predict = SMALL.replace("fcfs+budget:100ms", "wfq+predict");
    let everywhere = format!("{all_predict}{arm}[gateway.predict]\nprofile = 'own.toml'\n");
    let of_the_arm = format!("{SMALL}{arm}gateway = {{ predict = {{ profile = 'own.toml' }} }}\n");
    for (name, text) in [("all.toml", everywhere), ("arm.toml", of_the_arm)] {
        let file = write(folder.path(), name, &text);
        let runs = folder.path().join(name.replace(".toml", "-runs"));
        let found = findings(&[file.to_str().unwrap(), "--sim", "--result-dir", runs.to_str().unwrap()], 0);
        assert!(found["runs"].as_array().unwrap().iter().any(|run| run["arm"] == "predict"), "{found}");
    }
}
