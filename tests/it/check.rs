//! `elasticserve check` as a command: run folders and a rule in, a verdict and its exit code out.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so")]

mod exports;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use elasticserve_core::ledger::LEDGER_FILE;
use elasticserve_core::time::Span;

use crate::report::{stderr, stdout, write_run};

/// The published overload behind the gateway: 128 of 200 good, 72 refused.
fn write_gateway(folder: &Path) {
    write_run(folder, "gateway", Some(Span::from_millis(750)));
}

fn check(args: &[&str], within: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_elasticserve")).arg("check").args(args).current_dir(within).output().unwrap()
}

#[test]
fn the_exit_code_says_the_verdict() {
    let parent = tempfile::tempdir().unwrap();
    write_gateway(&parent.path().join("run"));
    let model = "--allow-simulated";
    for (args, code, says) in [
        (&["run", model, "--target", "attainment>=0.3"][..], 0, "ACCEPT: Every target is met."),
        (&["run", model, "--target", "attainment>=0.6"], 3, "RETEST: attainment ≥ 60% cannot be told yet"),
        (&["run", model, "--target", "attainment>=0.9"], 4, "RESIZE: attainment ≥ 90% is missed"),
        (&["run", model], 4, "RESIZE: attainment ≥ 95% is missed"),
        (&["run", "--target", "attainment>=0.3"], 3, "RETEST: The release check failed. Simulated"),
    ] {
        let output = check(args, parent.path());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stdout(&output));
        assert!(stdout(&output).starts_with(says), "{args:?}: {}", stdout(&output));
    }
    let ledger = parent.path().join("run").join(LEDGER_FILE);
    let text = fs::read(&ledger).unwrap();
    fs::write(&ledger, &text[..text.len() / 2]).unwrap();
    let killed = check(&["run", model], parent.path());
    assert_eq!(killed.status.code(), Some(5), "{}", stdout(&killed));
    assert!(stdout(&killed).starts_with("RETEST (not valid)"), "{}", stdout(&killed));
}

#[test]
fn json_and_page_hold_what_the_text_says() {
    let parent = tempfile::tempdir().unwrap();
    write_gateway(&parent.path().join("run"));
    let args = ["run", "--allow-simulated", "--json", "--html", "check.html", "--target", "attainment>=0.3"];
    let output = check(&args, parent.path());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["verdict"], &json["invalid"]), (&"accept".into(), &false.into()));
    assert_eq!((&json["findings"][0]["n"], &json["findings"][0]["value"]), (&200.into(), &0.64.into()));
    let names: Vec<&str> = json["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["load", "generator", "results", "streaming", "release"]);
    let page = fs::read_to_string(parent.path().join("check.html")).unwrap();
    assert!(page.contains(json["sentence"].as_str().unwrap().split(':').next().unwrap()), "{page}");
}

#[test]
fn a_rule_file_holds_targets_numbers_and_a_baseline() {
    let parent = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        write_gateway(&parent.path().join(name));
    }
    write_run(&parent.path().join("direct"), "direct", None);
    let rule = "name = 'spring'\nallow_simulated = true\nrepeats = 2\nmin_requests = 400\nbaseline = 'direct'\n\
                targets = ['attainment>=0.3']\n[tenants.default]\ntargets = ['rejected<=50%']\nmin_requests = 400\n";
    fs::write(parent.path().join("rule.toml"), rule).unwrap();
    let output = check(&[".", "--rule", "rule.toml"], parent.path());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for told in ["spring: ", "rejected[default] ≤ 50%", "2 repeats.", "32 (16.0%) with direct: 4 times as many"] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(told.trim()), "{told}: {text}");
    }
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let parent = tempfile::tempdir().unwrap();
    write_gateway(&parent.path().join("run"));
    fs::create_dir(parent.path().join("empty")).unwrap();
    for (args, code, says) in [
        (&["nowhere"][..], 1, "does not exist"),
        (&["empty"], 1, "holds no run"),
        (&["run", "--target", "ttft>=1"], 2, "ttft_p99"),
        (&["run", "--target", "attainment[gold]>=0.9"], 2, "it has default"),
        (&["run", "--rule", "none.toml"], 1, "none.toml"),
        (&[], 2, "PATH"),
    ] {
        let output = check(args, parent.path());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
    }
    for (rule, says) in [
        ("repeat = 3", &["repeat", "did you mean `repeats`"][..]),
        ("repeats = 0", &["repeats", "1 to 16"]),
        ("confidence = 95", &["confidence", "0.95"]),
        ("targets = ['attainment<=1']", &["attainment<=1", ">="]),
        ("[tenants.a]\ntargets = ['attainment[a]>=1']", &["tenants.a.targets", "[NAME]"]),
        ("[slo]\nttft_ms = -1", &["slo.ttft_ms", "above 0"]),
        ("min_requests = 'many'", &["min_requests", "rule.toml"]),
        ("baseline = 'x'", &["'x'", "gateway"]),
    ] {
        fs::write(parent.path().join("rule.toml"), rule).unwrap();
        let output = check(&["run", "--rule", "rule.toml"], parent.path());
        let code = if rule.starts_with("baseline") { 2 } else { 64 };
        assert_eq!(output.status.code(), Some(code), "{rule}: {}", stderr(&output));
        assert!(says.iter().all(|s| stderr(&output).contains(s)), "{rule}: {}", stderr(&output));
    }
}
