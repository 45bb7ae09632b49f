//! Experiments that were interrupted.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::{SMALL, command, experiment, findings, stderr, write};

/// Runs of 30 s of the engine's time: long enough to be met in the middle of one.
fn slow() -> String {
    SMALL
        .replace("requests = 40", "requests = 100")
        .replace("rate = 20", "rate = 3")
        .replace("output = 16", "output = 64")
}

fn record(dir: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("experiment.json")).unwrap()).unwrap()
}

#[test]
fn after_a_kill_whole_runs_are_kept_half_ones_are_made_again_and_no_server_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "e.toml", &slow());
    let dir = folder.path().join("out");
    let args = [file.to_str().unwrap(), "--speed", "60", "--result-dir", dir.to_str().unwrap()];
    let mut child = command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    // The third run has begun once the progress of one is told after its name.
    let third = said.by_ref().map(Result::unwrap).find(|line| line.starts_with("[3/4]"));
    assert!(third.is_some_and(|line| line.contains("budget, some, seed 2") && line.contains("left")));
    while !dir.join("budget/seed2/manifest.json").exists() {
        std::thread::yield_now();
    }
    let config = std::fs::read_to_string(dir.join("budget/seed2/gateway.toml")).unwrap();
    let engine = config.split("http://").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let mut connection = TcpStream::connect(&engine).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // The engine ends with whoever started it, and its connections with it.
    let _ = connection.read(&mut [0u8; 1]);
    assert!(TcpStream::connect(&engine).is_err(), "the mock still listens");

    let kept = ["direct/seed1", "budget/seed1"].map(|run| std::fs::read(dir.join(run).join("ledger.ndjson")).unwrap());
    let found = findings(&args, 0);
    assert_eq!(found["runs"].as_array().unwrap().len(), 4);
    for (run, before) in ["direct/seed1", "budget/seed1"].iter().zip(kept) {
        assert!(std::fs::read(dir.join(run).join("ledger.ndjson")).unwrap() == before, "{run} was made again");
    }
    assert!(dir.join("aside/budget-seed2-1").is_dir(), "half a run is set aside");
    let attempts: Vec<u64> =
        record(&dir)["runs"].as_array().unwrap().iter().map(|r| r["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempts, [1, 1, 2, 1]);
}

#[test]
fn an_experiment_that_is_done_is_only_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "e.toml", SMALL);
    let dir = folder.path().join("out");
    let args = [file.to_str().unwrap(), "--sim", "--result-dir", dir.to_str().unwrap()];
    let first = findings(&args, 0);
    let changed = || std::fs::metadata(dir.join("direct/seed1/ledger.ndjson")).unwrap().modified().unwrap();
    let before = changed();
    assert_eq!(findings(&args, 0), first);
    assert_eq!(changed(), before);
    // Simulated anew elsewhere, every ledger is the same to the byte.
    let again = folder.path().join("again");
    findings(&[file.to_str().unwrap(), "--sim", "--result-dir", again.to_str().unwrap()], 0);
    for run in ["direct/seed1", "direct/seed2", "budget/seed1", "budget/seed2"] {
        let ledger = |dir: &Path| std::fs::read(dir.join(run).join("ledger.ndjson")).unwrap();
        assert!(ledger(&dir) == ledger(&again), "{run}");
    }
}

#[test]
fn runs_that_share_prompts_are_made_again_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "e.toml", &SMALL.replace("seeds = [1, 2]", "seeds = [1, 2]\nsalt = 'pair'"));
    let dir = folder.path().join("out");
    let args = [file.to_str().unwrap(), "--sim", "--result-dir", dir.to_str().unwrap()];
    let first = findings(&args, 0);
    std::fs::remove_file(dir.join("budget/seed2/manifest.json")).unwrap();
    let again = findings(&args, 0);
    assert_eq!(first["runs"], again["runs"], "what the first run of a pair leaves is there for the second again");
    assert!(dir.join("aside/budget-seed2-1").is_dir() && dir.join("aside/direct-seed2-1").is_dir());
    assert!(!dir.join("aside/direct-seed1-1").exists());
}

#[test]
fn a_run_that_is_not_valid_is_left_out_until_it_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "e.toml", SMALL);
    let dir = folder.path().join("out");
    let args = [file.to_str().unwrap(), "--sim", "--result-dir", dir.to_str().unwrap()];
    let first = findings(&args, 0);
    let ledger = dir.join("budget/seed1/ledger.ndjson");
    let text = std::fs::read_to_string(&ledger).unwrap();
    let (short, _) = text.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(&ledger, format!("{short}\n")).unwrap();
    let left_out = findings(&args, 1);
    assert!(left_out["problems"][0].as_str().unwrap().contains("budget/seed1 is left out"), "{}", left_out["problems"]);
    assert_eq!(left_out["workloads"][0]["effects"][0]["pairs"], serde_json::json!(["seed 2"]));
    assert_eq!(findings(&[&args[..], &["--repeat-invalid"]].concat(), 0), first);
    assert!(dir.join("aside/budget-seed1-1").is_dir() && !dir.join("aside/direct-seed1-1").exists());
}

#[test]
fn a_changed_file_or_stand_is_refused_with_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "e.toml", SMALL);
    let dir = folder.path().join("out");
    let (file, dir) = (file.to_str().unwrap().to_owned(), dir.to_str().unwrap().to_owned());
    findings(&[&file, "--sim", "--result-dir", &dir], 0);
    let refused = |more: &[&str], says: &[&str]| {
        let output = experiment(&[&[file.as_str(), "--result-dir", &dir], more].concat());
        assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
        assert!(says.iter().all(|s| stderr(&output).contains(s)), "{}", stderr(&output));
    };
    refused(&["--speed", "20"], &["stand was 'simulator' and is 'mock'"]);
    refused(&["--sim", "--seeds", "1"], &["had 4 runs and has 2"]);
    write(folder.path(), "e.toml", &SMALL.replace("permits = 4", "permits = 5").replace("rate = 20", "rate = 21"));
    refused(&["--sim"], &["arms[1].permits", "workloads[0].work.arrivals.rate", "--result-dir"]);
    write(folder.path(), "e.toml", &format!("# a remark\n{SMALL}"));
    findings(&[&file, "--sim", "--result-dir", &dir], 0);
}
