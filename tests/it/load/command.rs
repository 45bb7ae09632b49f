//! The command itself, as a process of its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use elasticserve_core::outcome::Terminal;
use serde_json::{Value, json};

use super::server::{Act, Received, Server, answer};
use super::{rows, states};

fn load(server: &Server, folder: &Path, more: &[&str]) -> Command {
    let lengths = ["--random-input-len", "16", "--random-output-len", "2"];
    replay(server, folder, &[&lengths[..], more].concat())
}

/// A run whose lengths are said by something else.
fn replay(server: &Server, folder: &Path, more: &[&str]) -> Command {
    load_from(&format!("http://{}", server.addr), folder, more)
}

/// A run against a URL.
pub(super) fn load_from(url: &str, folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.args(["load", "--url", url, "--model", "m"]);
    command.arg("--result-dir").arg(folder).args(more);
    command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(super) async fn output(mut command: Command) -> Output {
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

/// Runs a plan of six prompts and gives them as the server got them, in the order of the plan.
async fn prompts(server: &Server, folder: &Path, more: &[&str]) -> Vec<Value> {
    let before = server.received().len();
    let plan = ["--request-rate", "200", "--num-prompts", "6", "--seed", "3", "--measure-ceiling", "off"];
    let output = output(replay(server, folder, &[&plan[..], more].concat())).await;
    let mut received: Vec<Received> = server.received().split_off(before);
    received.retain(|request| !request.is_warmup());
    received.sort_by_key(Received::index);
    assert_eq!(received.len(), 6, "{}", text(&output.stderr));
    received.iter().map(|request| request.json()["prompt"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_runs_share_the_first_block_of_a_prompt_unless_that_is_asked_for() {
    let server = Server::start(|_| answer()).await;
    let folder = tempfile::tempdir().unwrap();
    let mut runs = Vec::new();
    for (run, salt) in [("a", None), ("b", None), ("c", Some("--no-salt")), ("d", Some("--no-salt"))] {
        let lengths = ["--random-input-len", "16", "--random-output-len", "2"];
        let more: Vec<&str> = lengths.into_iter().chain(salt).collect();
        runs.push(prompts(&server, &folder.path().join(run), &more).await);
    }
    let [a, b, c, d] = runs.try_into().unwrap();
    assert_eq!(c, d);
    for (i, own) in a.iter().enumerate() {
        assert!(own.as_array().unwrap().len() == 16 && *own != b[i] && *own != c[i] && b[i] != c[i], "{own}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mark_of_a_run_stands_in_front_of_the_texts_of_a_dataset() {
    let server = Server::start(|_| answer()).await;
    let folder = tempfile::tempdir().unwrap();
    let (data, question) = (folder.path().join("talk.json"), "Which lakes are the largest ones?");
    let talk = json!([{ "conversations": [{ "from": "human", "value": question }, { "from": "gpt", "value": "Vänern, Vättern and Mälaren." }] }]);
    std::fs::write(&data, talk.to_string()).unwrap();
    let mut marks = Vec::new();
    for run in ["a", "b"] {
        let prompts = prompts(&server, &folder.path().join(run), &["--dataset-path", data.to_str().unwrap()]).await;
        assert!(prompts.iter().all(|prompt| *prompt == prompts[0]), "texts of one run still share what they share");
        marks.push(prompts[0].as_str().unwrap().strip_suffix(question).unwrap().to_owned());
    }
    assert!(marks[0] != marks[1] && marks.iter().all(|mark| mark.len() >= 16), "{marks:?}");
    let more = ["--dataset-path", data.to_str().unwrap(), "--no-salt"];
    let plain = prompts(&server, &folder.path().join("c"), &more).await;
    assert!(plain.iter().all(|prompt| prompt == question), "{plain:?}");
}
