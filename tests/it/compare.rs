//! `elasticserve compare` as a command: pairs of runs in, effects and an exit code out.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use elasticserve_core::ledger::MANIFEST_FILE;
use elasticserve_core::time::Span;

use crate::report::{stderr, stdout, write_run};

/// Five pairs of the published overload, without and with the gateway: 32 and 128 of 200 good.
fn write_sides(parent: &Path) {
    for (side, budget) in [("direct", None), ("gateway", Some(Span::from_millis(750)))] {
        let model = parent.join("model").join(side);
        write_run(&model, side, budget);
        for seed in 1..=5 {
            let folder = parent.join(side).join(format!("seed{seed}"));
            fs::create_dir_all(&folder).unwrap();
            for entry in fs::read_dir(&model).unwrap() {
                let entry = entry.unwrap();
                fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
            }
            edit(&folder, |m| {
                m["plan"]["seed"] = seed.into();
                m["plan_hash"] = format!("plan of seed {seed}").into();
            });
        }
    }
}

fn edit(folder: &Path, change: impl Fn(&mut serde_json::Value)) {
    let path = folder.join(MANIFEST_FILE);
    let mut manifest = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

fn compare(args: &[&str], within: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_elasticserve")).arg("compare").args(args).current_dir(within).output().unwrap()
}

#[test]
fn the_exit_code_says_the_verdict() {
    let parent = tempfile::tempdir().unwrap();
    write_sides(parent.path());
    for (args, code, says) in [
        (&["direct", "gateway"][..], 0, "BETTER: gateway is better: attainment 64.0% with gateway against 16.0%"),
        (&["gateway", "direct"], 4, "WORSE: direct is worse"),
        (&["direct", "direct"], 6, "NO DIFFERENCE SHOWN: direct makes no difference"),
        (&["direct/seed1", "gateway/seed1"], 3, "UNDECIDED: It cannot be told yet"),
        (&["direct", "gateway", "--pairs", "seed1=seed1"], 3, "UNDECIDED"),
        (&["direct", "gateway", "--margin", "60%"], 6, "NO DIFFERENCE SHOWN"),
        (&["direct", "gateway", "--metric", "completed_ttft_p95"], 0, "BETTER: gateway is better: TTFT p95"),
        (&["direct", "gateway", "--metric", "rejected"], 3, "UNDECIDED: rejected 36.0% with gateway"),
    ] {
        let output = compare(args, parent.path());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).starts_with(says), "{args:?}: {}", stdout(&output));
    }
}

#[test]
fn manifests_that_differ_are_refused_unless_it_is_said_to_be_meant() {
    let parent = tempfile::tempdir().unwrap();
    write_sides(parent.path());
    for seed in 1..=5 {
        edit(&parent.path().join(format!("gateway/seed{seed}")), |m| m["target"]["model"] = "another".into());
    }
    let refused = compare(&["direct", "gateway"], parent.path());
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(5), ""));
    assert!(stderr(&refused).contains("target.model: Qwen3-8B-FP8 against another"), "{}", stderr(&refused));
    let allowed = compare(&["direct", "gateway", "--allow", "target.model"], parent.path());
    assert_eq!(allowed.status.code(), Some(0), "{}", stderr(&allowed));
    assert!(stdout(&allowed).contains("! target.model differs, as allowed"), "{}", stdout(&allowed));
}

#[test]
fn json_page_and_twin_hold_what_the_text_says() {
    let parent = tempfile::tempdir().unwrap();
    write_sides(parent.path());
    let profile = ["--profile", "gb10-qwen3-8b-fp8", "--metric", "feasible_attainment"];
    let files = ["--json", "--html", "effects.html", "--markdown", "effects.md"];
    let args: Vec<&str> = ["direct", "gateway"].into_iter().chain(profile).chain(files).collect();
    let output = compare(&args, parent.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["verdict"], &json["base"], &json["changed"]),
        (&"better".into(), &"direct".into(), &"gateway".into())
    );
    assert_eq!(json["pairs"].as_array().unwrap().len(), 5);
    assert_eq!(json["ceilings"][0]["feasible"], 1000);
    let attainment = json["effects"].as_array().unwrap().iter().find(|e| e["figure"] == "attainment").unwrap();
    assert_eq!(
        (&attainment["n"], &attainment["base"]["median"], &attainment["changed"]["median"]),
        (&5.into(), &0.16.into(), &0.64.into())
    );
    assert_eq!(attainment["difference"]["interval"]["confidence"], 0.9375);
    let page = fs::read_to_string(parent.path().join("effects.html")).unwrap();
    let twin = fs::read_to_string(parent.path().join("effects.md")).unwrap();
    for told in ["64.0%", "+48.0 points", "no policy answers more in time"] {
        let found = |text: &str| text.to_lowercase().contains(told);
        assert!(found(&page) && found(&twin), "{told}: {twin}");
    }
}

#[test]
fn bare_figures_are_compared_as_runs_are() {
    let parent = tempfile::tempdir().unwrap();
    let pair = |seed, fcfs, wfq| {
        format!(
            "[[pairs]]\nname = 'seed {seed}'\nbase = {{ jain = {fcfs} }}\nchanged = {{ jain = {wfq}, goodput = 2 }}\n"
        )
    };
    let pairs = [(11, 0.673, 0.937), (23, 0.720, 0.875), (37, 0.769, 0.895), (53, 0.718, 0.824), (71, 0.842, 0.990)];
    let list: String = pairs.iter().map(|(s, a, b)| pair(s, a, b)).collect();
    let file = parent.path().join("pairs.toml");
    fs::write(&file, format!("base = 'fcfs'\nchanged = 'wfq'\n{list}")).unwrap();
    let output = compare(&["--figures", "pairs.toml", "--metric", "jain"], parent.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // Published: 0.15 [0.11, 0.26].
    assert!(stdout(&output).contains("+0.148") && stdout(&output).contains("+0.106 to +0.264"), "{}", stdout(&output));
    for (wrong, says) in [
        ("base = 'a'\nchanged = 'b'\npairs = []", "1 to 1000"),
        ("base = 'a'\nchanged = 'b'\n[[pairs]]\nbase = { goodput = nan }\nchanged = {}", "pairs[0].base"),
        ("base = 'a'\nchanged = 'b'\n[[pairs]]\nbase = {}\nchanged = { ttft_p95 = 3 }", "completed_ttft_p95"),
        ("base = 'a'\nchanged = 'b'\n[[pairs]]\nbase = {}\nchange = {}", "did you mean `changed`"),
        ("base = 'a'\n", "changed"),
    ] {
        fs::write(&file, wrong).unwrap();
        let output = compare(&["--figures", "pairs.toml"], parent.path());
        assert_eq!(output.status.code(), Some(64), "{wrong}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{wrong}: {}", stderr(&output));
    }
}

#[test]
fn published_medians_come_out_of_their_pairs() {
    let parent = tempfile::tempdir().unwrap();
    let output = compare(&["--published", "--json"], parent.path());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let [admission, order] = json.as_array().unwrap().as_slice() else { unreachable!("{json}") };
    assert_eq!((&admission["verdict"], &order["verdict"]), (&"better".into(), &"undecided".into()));
    let agree = |study: &serde_json::Value, with: &str| {
        study["recomputed"].as_array().unwrap().iter().filter(|r| r["agreement"] == with).count()
    };
    assert_eq!((agree(admission, "digits"), agree(admission, "within_rounding"), agree(order, "digits")), (4, 2, 3));
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let parent = tempfile::tempdir().unwrap();
    write_sides(parent.path());
    fs::create_dir(parent.path().join("empty")).unwrap();
    for (args, code, says) in [
        (&["nowhere", "gateway"][..], 1, "does not exist"),
        (&["direct", "empty"], 1, "holds no run"),
        (&["direct"], 2, "CHANGED"),
        (&[], 2, "BASE"),
        (&["direct/seed1", "gateway/seed2"], 2, "--pairs BASE=CHANGED"),
        (&["direct", "gateway", "--pairs", "seed1"], 2, "BASE=CHANGED"),
        (&["direct", "gateway", "--pairs", "seed1=seed9"], 2, "there are: seed1, seed2"),
        (&["direct", "gateway", "--metric", "ttft_p95"], 2, "completed_ttft_p95"),
        (&["direct", "gateway", "--metric", "attainment[gold]"], 2, "there are: attainment"),
        (&["direct", "gateway", "--metric", "feasible_attainment"], 2, "it takes --profile"),
        (&["direct", "gateway", "--margin", "wide"], 2, "percentage points"),
        (&["direct", "gateway", "--profile", "h100"], 64, "gb10-qwen3-8b-fp8"),
        (&["direct", "gateway", "--published"], 2, "--published"),
        (&["--figures", "none.toml"], 1, "none.toml"),
    ] {
        let output = compare(args, parent.path());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}{}", stdout(&output), stderr(&output));
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
    }
}
