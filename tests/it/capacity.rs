//! `elasticserve capacity` and `elasticserve sweep` as commands.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so")]

mod sweep;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use elasticserve_core::engine::Profile;
use elasticserve_core::sched::TenantPolicy;
use elasticserve_core::search::crossing;
use elasticserve_core::sim::sweep::{Common, Point, Policy};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{Lengths, PlanTenant};
use serde_json::Value;

use crate::report::{stderr, stdout};

const LIMITS: [&str; 4] = ["--goodput", "ttft:1000", "tpot:100", "e2el:15000"];
const LENGTHS: [&str; 4] = ["--isl", "256", "--osl", "64"];
/// Sockets of a test on a busy machine are late; what is tested here is not how late.
const LENIENT: [&str; 4] = ["--max-send-lag", "60", "--max-client-cpu", "1"];

fn command(verb: &str, args: &[&[&str]], within: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
    command.arg(verb).args(args.concat()).current_dir(within);
    command
}

fn capacity(args: &[&[&str]], within: &Path) -> Output {
    command("capacity", args, within).output().unwrap()
}

fn json(output: &Output) -> Value {
    let said = || format!("{} {}", stdout(output), stderr(output));
    serde_json::from_slice(&output.stdout).map_err(|e| format!("{e}: {}", said())).unwrap()
}

/// The rate at which the mean attainment of runs of 1,000 requests falls below 95 %, by brute force: 60 seeds at each
/// of 16 rates, other seeds than a search takes.
fn knee() -> f64 {
    let ms = |n| Some(Span::from_millis(n));
    let slo = Slo { ttft: ms(1000), tpot: ms(100), e2e: ms(15_000) };
    let common = Common {
        profile: Profile::built_in("gb10-qwen3-8b-fp8").unwrap(),
        requests: 1000,
        input: Lengths::fixed(256),
        output: Lengths::fixed(64),
        tenants: vec![PlanTenant::new("default", 1.0, slo)],
        policies: vec![TenantPolicy::default()],
        depth: 256,
        warm: false,
    };
    let mean = |rate: f64| {
        let run = |seed| common.run(Point { policy: Policy::Direct, rate, seed }).unwrap().attainment;
        (rate, (1_000_000..1_000_060).map(run).sum::<f64>() / 60.0, 1.0)
    };
    let points: Vec<(f64, f64, f64)> = (0..16).map(|i| mean(8.0 + 0.1 * f64::from(i))).collect();
    crossing(&points, 0.95).unwrap()
}

#[test]
fn on_the_simulator_both_ends_lie_within_3_percent_of_the_knee_that_brute_force_finds() {
    let here = tempfile::tempdir().unwrap();
    let search = ["--sim", "--num-prompts", "1000", "--precision", "0.03", "--seed", "1", "--json"];
    let output = capacity(&[&search, &LENGTHS, &LIMITS], here.path());
    let found = json(&output);
    let (met, missed) = (found["met_per_s"].as_f64().unwrap(), found["missed_per_s"].as_f64().unwrap());
    let knee = knee();
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(met <= knee && knee <= missed, "{met} to {missed} where the knee is {knee}");
    assert!(met >= knee * 0.97 && missed <= knee * 1.03, "{met} to {missed} where the knee is {knee}");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "a simulated search writes only where it is told to");
}

#[test]
fn the_same_search_on_the_simulator_gives_the_same_bytes_and_writes_them_where_it_is_told() {
    let here = tempfile::tempdir().unwrap();
    let search = |folder| {
        let args = ["--sim", "--num-prompts", "100", "--max-probes", "60", "--result-dir", folder];
        capacity(&[&args, &LENGTHS, &LIMITS, &["--permits", "16"]], here.path())
    };
    let (first, second) = (search("a"), search("b"));
    assert_eq!(stdout(&first), stdout(&second));
    assert!(stdout(&first).contains("behind a gateway with fcfs and 16 permits"), "{}", stdout(&first));
    for file in ["capacity.json", "capacity.html", "capacity.md"] {
        let read = |folder| fs::read_to_string(here.path().join(folder).join(file)).unwrap();
        assert_eq!(read("a"), read("b"), "{file}");
    }
    let again = search("a");
    assert_eq!(again.status.code(), Some(64));
    assert!(stderr(&again).contains("already holds a search"), "{}", stderr(&again));
}

#[test]
fn too_few_requests_leave_it_unresolved_and_the_answer_says_so() {
    let here = tempfile::tempdir().unwrap();
    let output = capacity(&[&["--sim", "--num-prompts", "20", "--max-probes", "6"], &LENGTHS, &LIMITS], here.path());
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    let text = stdout(&output);
    assert!(text.starts_with("UNRESOLVED: No rate was shown to meet attainment ≥ 95% or to miss it."), "{text}");
    assert!(text.contains("n is too small: at 1/s"), "{text}");
}

#[test]
fn what_cannot_be_searched_for_is_refused_with_what_would_be_right() {
    let here = tempfile::tempdir().unwrap();
    let base = ["--num-prompts", "20"];
    for (args, code, says) in [
        (&["--sim", "--target", "goodput>=9"][..], 2, "bound a share"),
        (&["--sim", "--target", "attainment>=1"], 2, "0.999"),
        (&["--sim", "--target", "attainment[gold]>=0.9"], 2, "it has default"),
        (&["--sim", "--concurrency", "4"], 2, "a closed load has no rate"),
        (&["--sim", "--retries", "2"], 2, "adds to the load"),
        (&["--sim", "--min-rate", "9", "--max-rate", "3"], 2, "is above"),
        (&["--sim", "--url", "http://127.0.0.1:1"], 2, "cannot be used with"),
        (&[], 2, "--url URL, --mock, or --sim"),
        (&["--url", "http://127.0.0.1:1", "--speed", "3"], 2, "--speed is of --mock"),
        (&["--sim", "--profile", "none-such"], 64, "none-such"),
    ] {
        let output = capacity(&[args, &base], here.path());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
    }
    let missing = capacity(&[&["--sim"]], here.path());
    assert!(missing.status.code() == Some(2) && stderr(&missing).contains("--num-prompts"), "{}", stderr(&missing));
}

#[test]
fn hopeless_probes_of_a_mock_are_cut_short_and_still_show_the_miss() {
    let here = tempfile::tempdir().unwrap();
    let search = ["--mock", "--speed", "10", "--request-rate", "100", "--min-rate", "100", "--num-prompts", "300"];
    let output = capacity(&[&search, &["--json", "--result-dir", "r"], &LENGTHS, &LIMITS, &LENIENT], here.path());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let found = json(&output);
    assert_eq!((&found["met_per_s"], &found["missed_per_s"]), (&Value::Null, &100.0.into()), "{found:#}");
    assert!(found["notes"][0].as_str().unwrap().contains("was cut short: at most"), "{found:#}");
    // Of the probe a whole run folder stays, with a row for each planned arrival.
    let ledger = fs::read_to_string(here.path().join("r/probe-001-at-100/ledger.ndjson")).unwrap();
    assert_eq!(ledger.lines().count(), 300);
    assert!(ledger.contains("\"censored\""), "what was open was not cut");
}

#[test]
fn a_rate_that_a_mock_carries_is_shown_to_meet() {
    let here = tempfile::tempdir().unwrap();
    let search = ["--mock", "--speed", "4", "--request-rate", "20", "--max-rate", "20", "--num-prompts", "200"];
    let work = ["--isl", "16", "--osl", "4", "--goodput", "ttft:10000", "--json"];
    let output = capacity(&[&search, &work, &LENIENT], here.path());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let found = json(&output);
    assert_eq!((&found["met_per_s"], &found["missed_per_s"]), (&20.0.into(), &Value::Null), "{found:#}");
    assert!(found["sentence"].as_str().unwrap().contains("raise --max-rate"), "{found:#}");
}

#[test]
fn probes_that_the_generator_spoilt_do_not_count() {
    let here = tempfile::tempdir().unwrap();
    let search =
        ["--mock", "--speed", "4", "--request-rate", "40", "--num-prompts", "20", "--max-send-lag", "0.000001"];
    let output = capacity(&[&search, &["--isl", "16", "--osl", "4", "--goodput", "ttft:9000"]], here.path());
    assert_eq!(output.status.code(), Some(5), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).starts_with("UNRESOLVED: No rate was shown to meet"), "{}", stdout(&output));
    assert!(stdout(&output).contains("The generator could not offer 40/s"), "{}", stdout(&output));
    assert!(stderr(&output).contains("probe 3 at 40/s does not count: "), "{}", stderr(&output));
}

/// A mock of its own process, with the address that it announces.
fn mock() -> (Child, String) {
    let mut mock = Command::new(env!("CARGO_BIN_EXE_elasticserve"))
        .args(["mock", "--supervised", "--listen", "127.0.0.1:0", "--speed", "10"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(mock.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let announced: Value = serde_json::from_str(&line).unwrap();
    (mock, format!("http://{}", announced["listen"].as_str().unwrap()))
}

#[test]
fn a_server_that_dies_ends_the_search_and_its_last_probe_does_not_count() {
    let here = tempfile::tempdir().unwrap();
    let (mut mock, url) = mock();
    let search = ["--url", &url, "--request-rate", "60", "--num-prompts", "120", "--result-dir", "r"];
    let work = ["--isl", "16", "--osl", "4", "--goodput", "ttft:5000", "--ready-check-timeout-sec", "1"];
    let mut child = command("capacity", &[&search, &work, &LENIENT], here.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.by_ref().any(|line| line.unwrap().starts_with("probe 2: 120 requests")));
    mock.kill().unwrap();
    mock.wait().unwrap();
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest:?}");
    let text = stdout(&output);
    assert!(
        text.starts_with("UNRESOLVED: ") && text.contains("The server does not answer any more."),
        "{text} {rest:?}"
    );
    let found: Value = serde_json::from_slice(&fs::read(here.path().join("r/capacity.json")).unwrap()).unwrap();
    assert_eq!(found["probes"], 1, "{found:#}");
}
