//! `elasticserve sweep` as a command.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::{LENGTHS, LIMITS, command, json};
use crate::report::{stderr, stdout};

fn sweep(args: &[&[&str]], within: &Path) -> Output {
    let base = ["--sim", "--num-prompts", "150", "--seeds", "7,11", "--result-dir", "s"];
    command("sweep", &[&base, &LENGTHS, &LIMITS, &args.concat()], within).output().unwrap()
}

fn made(output: &Output) -> Vec<String> {
    stderr(output).lines().filter(|line| line.ends_with("150 requests")).map(str::to_owned).collect()
}

#[test]
fn the_knee_is_that_of_sim_sweep_and_every_run_is_a_folder() {
    let here = tempfile::tempdir().unwrap();
    let output = sweep(&[&["--rates", "6:12:1", "--json"]], here.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = json(&output);
    let curve = ["sweep", "--direct", "--rates", "6:12:1", "--seeds", "7,11", "--num-prompts", "150"];
    let other = command("sim", &[&curve, &LENGTHS, &LIMITS], here.path()).output().unwrap();
    let knee = format!("direct: {}/s;", found["knee_per_s"]);
    assert!(stdout(&other).contains(&knee.replace(".0/s", "/s")), "{knee} in {}", stdout(&other));
    assert_eq!(found["rates"].as_array().unwrap().len(), 7);
    for file in ["rate-6/seed-7/ledger.ndjson", "rate-12/seed-11/summary.json", "sweep.html", "sweep.md"] {
        assert!(here.path().join("s").join(file).is_file(), "{file}");
    }
}

#[test]
fn a_sweep_that_is_started_again_keeps_what_is_finished_and_makes_half_a_run_again() {
    let here = tempfile::tempdir().unwrap();
    let first = sweep(&[&["--rates", "4,8", "--json"]], here.path());
    assert_eq!(made(&first).len(), 4, "{}", stderr(&first));
    let ledger = here.path().join("s/rate-8/seed-11/ledger.ndjson");
    let text = fs::read(&ledger).unwrap();
    fs::write(&ledger, &text[..text.len() / 2]).unwrap();
    let second = sweep(&[&["--rates", "4,8,16", "--json"]], here.path());
    assert_eq!(
        made(&second),
        ["rate-8/seed-11: 150 requests", "rate-16/seed-7: 150 requests", "rate-16/seed-11: 150 requests"]
    );
    assert_eq!(fs::read(here.path().join("s/rate-8/seed-11.aside-1/ledger.ndjson")).unwrap(), text[..text.len() / 2]);
    let (first, second): (Value, Value) = (json(&first), json(&second));
    assert_eq!(first["rates"][1], second["rates"][1], "the run that was made again is the same");
}

#[test]
fn a_folder_of_other_work_is_refused() {
    let here = tempfile::tempdir().unwrap();
    sweep(&[&["--rates", "4"]], here.path());
    let base = ["--sim", "--rates", "4", "--num-prompts", "150", "--seeds", "7,11", "--result-dir", "s"];
    let other = command("sweep", &[&base, &["--isl", "300", "--osl", "64"], &LIMITS], here.path()).output().unwrap();
    assert_eq!(other.status.code(), Some(64), "{}", stderr(&other));
    assert!(stderr(&other).contains("seed-7 holds a run of other work"), "{}", stderr(&other));
}

#[test]
fn higher_rates_are_left_out_once_the_target_is_missed() {
    let here = tempfile::tempdir().unwrap();
    let output = sweep(&[&["--rates", "4,16,24,32", "--stop-after-miss", "2", "--json"]], here.path());
    assert_eq!(json(&output)["rates"].as_array().unwrap().len(), 3, "{}", stdout(&output));
    assert!(stderr(&output).contains("2 rates in a row have missed"), "{}", stderr(&output));
}
