//! What is refused, with which exit code, and what is said.

use super::{elasticserve, example, text};

fn refused(args: &[&str], code: i32, says: &[&str]) {
    let output = elasticserve(&[&["load", "--plan-only"], args].concat());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    assert!(says.iter().all(|part| message.contains(part)), "{args:?}: {message}");
    assert_eq!(text(&output.stdout), "", "{args:?}");
}

#[test]
fn flags_that_do_not_go_together_are_refused_with_the_reason() {
    let count = ["--num-prompts", "10"];
    for (flags, says) in [
        (&["--concurrency", "8", "--request-rate", "4"][..], &["--concurrency", "--request-rate", "no arrivals"][..]),
        (&["--concurrency", "8", "--burstiness", "2"], &["--concurrency", "--burstiness"]),
        (&["--ramp", "1:2", "--request-rate", "4"], &["--ramp", "--request-rate", "when requests come"]),
        (&["--ramp", "1:2", "--bursts", "4:1s"], &["--ramp", "--bursts"]),
        (&["--request-rate", "4", "--arrival-pattern", "gamma"], &["needs --burstiness"]),
        (
            &["--request-rate", "4", "--arrival-pattern", "poisson", "--burstiness", "2"],
            &["--burstiness", "poisson", "the shape of --arrival-pattern gamma"],
        ),
        (&["--request-rate", "4", "--lengths-file", "x", "--isl", "9"], &["--lengths-file", "--random-input-len"]),
        (&["--request-rate", "4", "--dataset-name", "sharegpt"], &["needs --dataset-path"]),
        (&["--request-rate", "4", "--dataset-path", "x", "--osl", "9"], &["--sharegpt-output-len"]),
        (&["--request-rate", "4", "--sharegpt-output-len", "9"], &["needs --dataset-path"]),
        (&["--request-rate", "4", "--trace-rows", "9"], &["--trace-rows needs --trace"]),
        (&["--trace", "x", "--seed", "9"], &["--trace cannot be used with --num-prompts", "--trace-speedup"]),
        (&["--request-rate", "inf"], &["finite rate", "--concurrency WORKERS", "--bursts"]),
        (&["--request-rate", "4", "--burstiness", "0"], &["--burstiness", "above 0"]),
        (&["--request-rate", "4", "--duration", "5"], &["--num-prompts cannot be used with --duration"]),
        (&["--ramp", "4"], &["--ramp", "FROM:TO"]),
        (&["--bursts", "4"], &["--bursts", "SIZE:TIME"]),
        (&["--rate-steps", "4:5s,x"], &["--rate-steps", "RATE:TIME"]),
        (&[], &["--request-rate"]),
    ] {
        refused(&[flags, &count].concat(), 2, says);
    }
    refused(&["--plan", "x", "--seed", "3"], 2, &["--plan", "--seed", "replayed as it is"]);
    refused(&["--plan", "x", "--isl", "3"], 2, &["--plan", "--random-input-len"]);
    refused(&["--request-rate", "4"], 2, &["--num-prompts"]);
    refused(&["--concurrency", "4"], 2, &["--num-prompts"]);
}

#[test]
fn only_what_has_a_place_in_a_scenario_can_be_changed_by_flags() {
    let with = |scenario: &str, flags: &[&str], says: &[&str]| {
        refused(&[&["--scenario", &example(scenario)], flags].concat(), 2, says);
    };
    with("steady", &["--isl", "100"], &["--scenario", "--random-input-len", "the file says it"]);
    with("steady", &["--goodput", "ttft:9"], &["--scenario", "--goodput"]);
    with("ramp", &["--request-rate", "4"], &["--request-rate", "no arrivals with a rate"]);
    with("steady", &["--concurrency", "4"], &["--concurrency", "no closed"]);
}

#[test]
fn parameters_that_cannot_be_drawn_are_refused_before_anything_is_sent() {
    for (flags, says) in [
        (&["--request-rate", "4", "--burstiness", "0.001"][..], "burstiness must be 0.01 or more"),
        (&["--ramp", "0:0"], "not both 0"),
        (&["--bursts", "0:1s"], "bursts need 1 request"),
        (&["--request-rate", "1", "--lengths-file", "/nonexistent"], "--lengths-file /nonexistent"),
        (&["--request-rate", "1", "--dataset-path", "/nonexistent"], "--dataset-path /nonexistent"),
    ] {
        refused(&[flags, &["--num-prompts", "10"]].concat(), 64, &[says]);
    }
    refused(&["--request-rate", "1e6", "--duration", "60"], 64, &["more than 20000000 requests"]);
    refused(&["--request-rate", "0.1", "--duration", "1"], 64, &["too short for a single request"]);
}
