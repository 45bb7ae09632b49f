//! The command itself, as a process of its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use elasticserve_core::outcome::Terminal;

use super::server::{Act, Server, answer};
use super::{rows, states};

fn load(server: &Server, folder: &Path, more: &[&str]) -> Command {
    let lengths = ["--random-input-len", "16", "--random-output-len", "2"];
    replay(server, folder, &[&lengths[..], more].concat())
}

/// A run whose lengths are said by something else.
fn replay(server: &Server, folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.args(["load", "--url", &format!("http://{}", server.addr), "--model", "m"]);
    command.arg("--result-dir").arg(folder).args(more);
    command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_prints_its_summary_as_json_and_keeps_the_key_to_itself() {
    let server = Server::start(|_| answer()).await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = load(&server, folder.path(), &["--request-rate", "200", "--num-prompts", "20", "--json"]);
    command.args(["--goodput", "e2el:60000", "--max-send-lag", "60", "--seed", "7", "--metadata", "gpu=none"]);
    command.env("OPENAI_API_KEY", "sk-canary");
    let output = output(command).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["planned"], &summary["good"]), (&20.into(), &20.into()));
    assert_eq!(server.received()[0].header("authorization"), Some("Bearer sk-canary"));
    assert_eq!(states(&rows(folder.path())), [Terminal::Completed; 20]);
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let written = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!written.contains("sk-canary"));
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_ends_with_130_and_a_kill_leaves_whole_lines() {
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(130)), ("-KILL", None)] {
        let server = Server::start(|_| answer()).await;
        let folder = tempfile::tempdir().unwrap();
        let child = load(&server, folder.path(), &["--request-rate", "100", "--num-prompts", "20000"]).spawn().unwrap();
        let pid = child.id().to_string();
        server.has_received(30).await;
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(output.status.code(), code, "{}", text(&output.stderr));
        let rows = rows(folder.path());
        let completed = rows.iter().filter(|row| row.state == Terminal::Completed).count();
        assert!(completed >= 1);
        if code.is_some() {
            assert_eq!(rows.len(), 20_000, "each planned arrival has its row");
            assert_eq!(rows[19_999].state, Terminal::UnsentAbort);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_run_is_refused_with_the_flag_before_anything_is_sent() {
    let server = Server::start(|_| vec![Act::Hang]).await;
    let folder = tempfile::tempdir().unwrap();
    for (more, code, says) in [
        (&["--request-rate", "16"][..], 2, "--num-prompts"),
        (&["--request-rate", "16", "--num-prompts", "2", "--goodput", "ttft"], 2, "ttft:1000"),
        (
            &["--request-rate", "16", "--num-prompts", "2", "--goodput", "tpot:9", "--no-streaming"],
            64,
            "--no-streaming",
        ),
        (&["--request-rate", "16", "--duration", "1ms"], 64, "the duration is too short"),
    ] {
        let output = output(load(&server, folder.path(), more)).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
    let output = output(replay(&server, folder.path(), &["--plan", "/nowhere/plan.ndjson"])).await;
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("--plan /nowhere/plan.ndjson"));
    assert_eq!(server.received().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_was_printed_can_be_run() {
    let server = Server::start(|_| answer()).await;
    let folder = tempfile::tempdir().unwrap();
    let (run, file) = (folder.path().join("run"), folder.path().join("plan"));
    let shape = ["--request-rate", "500", "--num-prompts", "10", "--seed", "3"];
    let mut print = load(&server, &run, &shape);
    print.arg("--plan-only");
    let printed = output(print).await.stdout;
    std::fs::write(&file, &printed).unwrap();
    let more = ["--plan", file.to_str().unwrap(), "--max-send-lag", "60"];
    let output = output(replay(&server, &run, &more)).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(run.join("plan.ndjson")).unwrap(), printed);
    assert_eq!(server.received().len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_result_has_vllms_names_and_holds_no_key() {
    let server = Server::start(|_| answer()).await;
    let folder = tempfile::tempdir().unwrap();
    let more =
        ["--request-rate", "200", "--num-prompts", "12", "--save-result", "--save-detailed", "--max-send-lag", "60"];
    let mut command = load(&server, folder.path(), &more);
    command.args(["--result-filename", "mine.json"]).env("OPENAI_API_KEY", "sk-canary");
    let output = output(command).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let saved = std::fs::read_to_string(folder.path().join("mine.json")).unwrap();
    assert!(!saved.contains("sk-canary"));
    let saved: serde_json::Value = serde_json::from_str(&saved).unwrap();
    assert_eq!((&saved["completed"], &saved["failed"], &saved["request_rate"]), (&12.into(), &0.into(), &200.0.into()));
    assert_eq!((saved["ttfts"].as_array().unwrap().len(), &saved["burstiness"]), (12, &1.0.into()));

    let taken = tempfile::tempdir().unwrap();
    let mut command = load(&server, taken.path(), &["--request-rate", "200", "--num-prompts", "1", "--save-result"]);
    command.args(["--result-filename", "manifest.json"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("--result-filename"));
}
