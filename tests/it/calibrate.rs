//! `elasticserve calibrate`, as a process of its own: the engine model on virtual time, the mock on sockets, and servers
//! that do not do as they are asked.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so")]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use elasticserve_core::engine::Profile;
use elasticserve_mock::{MockConfig, Server as Mock};
use elasticserve_report::runs_in;
use serde_json::Value;

use crate::load::server::{Act, Received, STREAM, Server, end, event, head, token, whole};

const GB10: &str = "gb10-qwen3-8b-fp8";

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.args(args).env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn calibrate(args: &[&str]) -> Output {
    command(&[&["calibrate"], args].concat()).output().unwrap()
}

/// The same, without holding up the servers of this process.
async fn calibrate_beside(args: &[&str]) -> Output {
    let mut command = command(&[&["calibrate"], args].concat());
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A parameter's value, by its key.
fn value(found: &Value, key: &str) -> f64 {
    let all = found["parameters"].as_array().unwrap();
    all.iter().find(|p| p["key"] == key).unwrap()["value"].as_f64().unwrap()
}

fn assert_close(what: &str, found: f64, truth: f64, part: f64) {
    assert!((found - truth).abs() <= part * truth, "{what}: found {found}, truth {truth}");
}

fn said(found: &Value, list: &str) -> String {
    found[list].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_model_on_virtual_time_is_found_again_and_its_profile_serves_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("found");
    let found = json(&calibrate(&["--sim", GB10, "--json", "--quick", "--result-dir", dir.to_str().unwrap()]));
    let truth = Profile::built_in(GB10).unwrap();
    for (key, truth) in [
        ("base_ms", truth.base_ms),
        ("kv_ms_per_token", truth.kv_ms_per_token),
        ("prefill_step_ms", truth.prefill_step_ms),
        ("prefill_ms_per_token", truth.prefill_ms_per_token),
        ("roof_tokens", truth.roof_tokens),
        ("attention_ms", truth.attention_ms),
    ] {
        assert_close(key, value(&found, key), truth, 0.05);
    }
    assert_eq!((value(&found, "max_seqs"), value(&found, "pipeline_depth")), (32.0, 2.0));
    assert_eq!(found["knee"]["permits"], 32);
    assert_eq!(said(&found, "warnings"), "");
    let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("Throughput by requests at once") && page.contains("What is left of first tokens"));

    let profile = dir.join("profile.toml");
    let (profile, run) = (profile.to_str().unwrap(), folder.path().join("run"));
    let work = ["sim", "run", "--request-rate", "4", "--num-prompts", "20", "--isl", "64", "--osl", "8", "--no-report"];
    let simulated =
        command(&[&work[..], &["--profile", profile, "--result-dir", run.to_str().unwrap()]].concat()).output();
    assert_eq!(simulated.unwrap().status.code(), Some(0));
}

#[test]
fn without_a_salt_the_straight_line_is_the_published_one_and_the_warning_tells_the_case() {
    let grid =
        ["--sim", GB10, "--inputs", "64,256,512,960", "--outputs", "32", "--rounds", "1", "--max-concurrency", "1"];
    let honest = json(&calibrate(&[&grid[..], &["--json"]].concat()));
    let spoiled = json(&calibrate(&[&grid[..], &["--json", "--no-salt"]].concat()));
    let slope = |found: &Value| found["line"]["slope"].as_f64().unwrap();
    assert_close("the published slope", slope(&spoiled), 0.02864, 0.15);
    assert_close("too small by", slope(&honest) / slope(&spoiled), 2.6, 0.1);
    assert!(
        said(&spoiled, "warnings").contains("prompts were not new") && said(&spoiled, "warnings").contains("0.02864")
    );
    assert!(!said(&honest, "warnings").contains("prompts were not new"));
}

/// An engine with few seats.
async fn small_engine() -> Mock {
    let text = "name = 'small'\nmodel = 'm'\n[step]\nbase_ms = 15.0\nkv_ms_per_token = 0.001\nprefill_step_ms = 2.0\n\
                prefill_ms_per_token = 0.08\nroof_tokens = 30.0\nattention_ms = 0.0\n[overhead]\nin_ms = 2.0\nout_ms = 2.0\n\
                [engine]\nmax_seqs = 5\nblock_tokens = 16\ntoken_budget = 8192\npipeline_depth = 2\nprefix_cache = true\n";
    let profile = Profile::from_toml(text).unwrap();
    let config = MockConfig { profile, speed: 1.0, model: None, max_model_len: 4096 };
    Mock::bind(config, "127.0.0.1:0".parse().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_measured_and_what_was_kept_gives_the_same_again() {
    let (mock, folder) = (small_engine().await, tempfile::tempdir().unwrap());
    let (url, dir) = (format!("http://{}", mock.addr()), folder.path().to_str().unwrap().to_owned());
    let grid = ["--inputs", "16,64,256,768", "--outputs", "12", "--rounds", "2", "--max-concurrency", "16", "--quick"];
    let found = json(&calibrate_beside(&[&["--url", &url, "--result-dir", &dir, "--json"], &grid[..]].concat()).await);
    // What is counted is exact on any machine; times only get longer where it is busy.
    assert_eq!(
        (value(&found, "max_seqs"), value(&found, "prefix_cache"), value(&found, "block_tokens")),
        (5.0, 1.0, 16.0)
    );
    assert!((12.0..40.0).contains(&value(&found, "base_ms")), "{}", value(&found, "base_ms"));
    assert!(value(&found, "prefill_ms_per_token") > 0.02, "{found}");
    assert!(runs_in(folder.path()).unwrap().len() > 6);
    let kept = std::fs::read(folder.path().join("profile.toml")).unwrap();
    assert_eq!(Profile::from_toml(text(&kept)).unwrap().max_seqs, 5);

    mock.shutdown().await;
    let again = json(&calibrate(&["--from", &dir, "--json"]));
    assert_eq!(again["parameters"], found["parameters"]);
    assert_eq!(again["points"], found["points"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cached_text_flattens_the_line_on_sockets_too() {
    let (mock, folder) = (small_engine().await, tempfile::tempdir().unwrap());
    let url = format!("http://{}", mock.addr());
    let grid =
        ["--inputs", "64,1024", "--outputs", "4", "--rounds", "3", "--max-concurrency", "1", "--json", "--no-salt"];
    let dir = folder.path().to_str().unwrap();
    let found = json(&calibrate_beside(&[&["--url", &url, "--result-dir", dir], &grid[..]].concat()).await);
    mock.shutdown().await;
    assert_eq!(found["shared"]["counted"]["of"], 10, "{}", found["shared"]);
    assert!(found["line"]["slope"].as_f64().unwrap() < 0.04, "{}", found["line"]);
    assert!(said(&found, "warnings").contains("found") && said(&found, "warnings").contains("prefix cache"));
    assert!(said(&found, "notes").contains("--no-salt"));
}

/// Refuses token ids and fields that it does not know, ends every answer after five tokens, and counts nothing.
fn strict(request: &Received) -> Vec<Act> {
    let body = request.json();
    if body["prompt"].is_array() || body.get("ignore_eos").is_some() {
        return whole("400 Bad Request", "", "{\"error\":{\"message\":\"no\"}}");
    }
    let pause = |ms| Act::Pause(Duration::from_millis(ms));
    let tokens = (0..5).flat_map(|_| [pause(6), token()]);
    let ends = [event(r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#), event("[DONE]"), end()];
    [head("200 OK", STREAM), pause(10)].into_iter().chain(tokens).chain(ends).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_neither_ids_nor_unknown_fields_and_counts_nothing_is_measured_all_the_same() {
    let (server, folder) = (Server::start(strict).await, tempfile::tempdir().unwrap());
    let (url, dir) = (format!("http://{}", server.addr), folder.path().to_str().unwrap());
    let args =
        ["--url", &url, "--model", "m", "--result-dir", dir, "--inputs", "16,64", "--outputs", "12", "--rounds", "1"];
    let found = json(&calibrate_beside(&[&args[..], &["--max-concurrency", "1", "--json"]].concat()).await);
    let notes = said(&found, "notes");
    for part in ["text without ignore_eos", "does not count tokens", "ended before the length"] {
        assert!(notes.contains(part), "{notes}");
    }
    assert!(value(&found, "base_ms") >= 5.0, "{found}");
    assert!(server.received().last().unwrap().json()["prompt"].is_string());
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_keeps_what_was_measured_for_a_later_fit() {
    // Two warm-ups, four requests of the pilot, and then nothing.
    let answered = std::sync::atomic::AtomicUsize::new(0);
    let script = move |request: &Received| {
        if answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst) >= 6 {
            return vec![Act::Hang];
        }
        let tokens = request.json()["max_tokens"].as_u64().unwrap();
        let pause = || Act::Pause(Duration::from_millis(4));
        let answer = (0..tokens).flat_map(|_| [pause(), token()]);
        let ends = [event(r#"{"choices":[{"text":"","finish_reason":"length"}]}"#), event("[DONE]"), end()];
        [head("200 OK", STREAM)].into_iter().chain(answer).chain(ends).collect()
    };
    let (server, folder) = (Server::start(script).await, tempfile::tempdir().unwrap());
    let (url, dir) = (format!("http://{}", server.addr), folder.path().to_str().unwrap());
    let child = command(&["calibrate", "--url", &url, "--model", "m", "--result-dir", dir]).spawn().unwrap();
    let pid = child.id().to_string();
    server.has_received(7).await;
    for _ in 0..2 {
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }
    // One signal may be all that arrives of two; the client leaves only when it has cut what is open.
    let again = async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let _ = Command::new("kill").args(["-INT", &pid]).status();
        }
    };
    tokio::select! {
        () = server.was_left(1) => {}
        () = again => {}
    }
    let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&format!("--from {dir}")), "{}", text(&output.stderr));
    let found = json(&calibrate(&["--from", dir, "--json"]));
    assert_eq!(found["answers"], 4);
    assert!(said(&found, "warnings").contains("max_seqs and the knee are not known"), "{}", said(&found, "warnings"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_nothing_ends_it_with_what_it_said() {
    let refuses = |_: &Received| whole("403 Forbidden", "", "{\"error\":{\"message\":\"no key\"}}");
    let (server, folder) = (Server::start(refuses).await, tempfile::tempdir().unwrap());
    let (url, dir) = (format!("http://{}", server.addr), folder.path().join("runs"));
    let output = calibrate_beside(&["--url", &url, "--model", "m", "--result-dir", dir.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("none of the first 4 requests was answered"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("403"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_sent() {
    let empty = tempfile::tempdir().unwrap();
    let nowhere = "http://127.0.0.1:1";
    for (args, code, says) in [
        (&[][..], 2, "--url"),
        (&["--url", nowhere, "--inputs", "64"][..], 64, "two lengths"),
        (&["--url", nowhere, "--inputs", "64,32"], 64, "ascending"),
        (&["--url", nowhere, "--outputs", "1"], 64, "from 2 to"),
        (&["--url", nowhere, "--cacert", "/nowhere/ca.pem"], 64, "--cacert"),
        (&["--sim", "h100"], 64, GB10),
        (&["--from", empty.path().to_str().unwrap()], 64, "no runs"),
        (&["--sim", GB10, "--from", "x"], 2, "--from"),
    ] {
        let output = calibrate(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{args:?}: {}", text(&output.stderr));
    }
}
