//! Exports of other tools: what they show, what they cannot, and what is recomputed from them.
//!
//! The figures that are expected here were computed from the files with NumPy 2.5.5 (`numpy.quantile`), by the formulas
//! of `docs/check.md`.

use std::path::Path;

use elasticserve_report::check::{Check, Mark, Rule, Verdict, check_text, exports_doc};
use elasticserve_report::foreign::{Export, Tool, is_export, read_export};

use super::{check, stderr, stdout};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/exports")
}

fn export(path: &str) -> Export {
    read_export(&folder().join(path)).unwrap()
}

/// Good: first token within 300 ms, 60 ms per token after it.
fn rule(targets: &[&str]) -> Rule {
    let ms = |ms| Some(elasticserve_core::time::Span::from_millis(ms));
    let slo = elasticserve_core::slo::Slo { ttft: ms(300), tpot: ms(60), e2e: None };
    Rule { slo, targets: targets.iter().map(|t| t.parse().unwrap()).collect(), ..Rule::default() }
}

fn checked(path: &str, targets: &[&str]) -> Check {
    Check::of_exports(path, &[export(path)], &rule(targets)).unwrap()
}

fn says(check: &Check, name: &str, mark: Mark, text: &str) {
    let part = check.checks.iter().find(|c| c.name == name).unwrap();
    assert!(part.evidence.iter().any(|e| e.mark == mark && e.said.contains(text)), "{text}: {part:#?}");
}

fn near(got: Option<f64>, expected: f64) {
    let got = got.unwrap();
    assert!((got - expected).abs() < 1e-4 * expected, "{got} where {expected} is right");
}

#[test]
fn each_tool_is_known_by_what_is_in_its_file() {
    for (path, tool, sent, model) in [
        ("vllm/steady/result.json", Tool::VllmBench, 60, Some("mock")),
        ("aiperf/steady", Tool::Aiperf, 43, Some("mock")),
        ("aiperf/steady/profile_export.jsonl", Tool::Aiperf, 43, Some("mock")),
        ("guidellm/steady/result.json", Tool::Guidellm, 49, Some("mock")),
        ("inference-perf/steady", Tool::InferencePerf, 48, None),
        ("inference-perf/steady/per_request_lifecycle_metrics.json", Tool::InferencePerf, 48, None),
    ] {
        assert!(is_export(&folder().join(path)), "{path}");
        let read = export(path);
        let found = checked(path, &[]);
        assert_eq!((read.tool, found.exports[0].sent, read.model.as_deref()), (tool, sent, model), "{path}");
    }
    assert_eq!(export("aiperf/steady").version.as_deref(), Some("0.13.0"));
    assert_eq!(export("guidellm/steady/result.json").version.as_deref(), Some("0.8.1"));
}

#[test]
fn latencies_are_recomputed_from_the_requests() {
    for (path, ttft, tpot, gap) in [
        ("vllm/steady/result.json", None, 40.670911, Some(47.359410998979)),
        ("aiperf/steady", Some(115.308793), 40.445605, Some(54.40244)),
        ("aiperf/refused", Some(129.932834), 40.267086, Some(53.977996999999995)),
        ("guidellm/steady/result.json", Some(121.167421), 40.494803, None),
        ("inference-perf/steady", Some(120.534616), 40.503781, None),
        ("inference-perf/refused", Some(126.777651), 40.264246, None),
    ] {
        let found = checked(path, &[]);
        let f = &found.exports[0];
        if let Some(ttft) = ttft {
            near(f.ttft_from_send.p50, ttft);
        }
        near(f.tpot.p50, tpot);
        if let Some(gap) = gap {
            near(f.longest_gap.max, gap);
        }
    }
    // The tools' own figures of the same requests agree where they mean the same.
    says(
        &checked("vllm/capped/result.json", &[]),
        "results",
        Mark::Pass,
        "TTFT p99 from the send: 132 ms by the tool, 132 ms",
    );
    says(&checked("aiperf/steady", &[]), "results", Mark::Pass, "E2E p50 from the send: 1.37 s by the tool, 1.37 s");
    // inference-perf divides by its own tokenizer's count of tokens, nine times the server's here.
    says(
        &checked("inference-perf/steady", &[]),
        "results",
        Mark::Warn,
        "TPOT p50 from the send: 4.3 ms by the tool, 40.5 ms",
    );
}

#[test]
fn a_cap_that_puts_requests_off_is_found_in_vllms_export_and_its_wait_counted() {
    let found = checked("vllm/capped/result.json", &["attainment>=0.95"]);
    let f = &found.exports[0];
    near(f.ttft_from_send.p99, 131.553009);
    near(f.ttft.p50, 14_214.081176);
    near(f.ttft.p99, 28_205.764514);
    near(f.e2e.p99, 29_456.349449);
    near(f.send_lag.max, 28_148.10368899998);
    // All 100 are within the limits from the send, 4 from the time at which they were to be sent.
    assert_eq!((found.findings[0].value, found.verdict), (Some(0.04), Verdict::Retest));
    for text in ["sends came at 2.99/s", "reached for 99.4% of the time", "coordinated omission"] {
        says(&found, "load", Mark::Fail, text);
    }
    says(&found, "results", Mark::Warn, "waited up to 28.1 s for one of the client's 4 slots");
}

#[test]
fn arrivals_that_left_no_trace_are_counted_from_the_declared_load() {
    for path in ["aiperf/capped", "guidellm/capped/result.json"] {
        let found = checked(path, &["attainment>=0.5"]);
        assert_eq!((found.exports[0].missing, found.findings[0].n), (136, 160), "{path}");
        assert_eq!((found.verdict, found.exit_code()), (Verdict::Retest, 3), "{path}");
        says(
            &found,
            "load",
            Mark::Fail,
            "About 160 arrivals were declared and 24 requests are in the export: 136 were never sent",
        );
    }
    // By the tool's own figures every answer was good.
    let flattering = checked("aiperf/capped", &["completed_ttft_p50<=150"]);
    assert_eq!(flattering.verdict, Verdict::Retest, "no figure of it may be accepted");
}

#[test]
fn sends_that_wait_for_the_server_are_found_without_a_declared_cap() {
    // inference-perf keeps its cap in another file.
    let found = checked("inference-perf/capped", &[]);
    says(&found, "load", Mark::Fail, "92.5% of the sends come within 10 ms after another request's end");
    says(&found, "generator", Mark::Fail, "Sends were 46.2 s late at p99");
    assert_eq!(found.exit_code(), 5);
}

#[test]
fn an_open_load_that_was_offered_can_be_accepted_or_resized() {
    for path in ["vllm/steady/result.json", "aiperf/steady"] {
        let found = checked(path, &["attainment>=0.9", "ttft_p50<=200"]);
        assert_eq!((found.verdict, found.exit_code()), (Verdict::Accept, 0), "{path}: {}", check_text(&found));
        says(&found, "load", Mark::Pass, "may well be those of independent arrivals");
    }
    for (path, rejected) in [("vllm/refused/result.json", 84), ("aiperf/refused", 137)] {
        let found = checked(path, &["attainment>=0.9"]);
        assert_eq!((found.verdict, found.exports[0].rejected), (Verdict::Resize, rejected), "{path}");
    }
    says(
        &checked("vllm/refused/result.json", &[]),
        "results",
        Mark::Warn,
        "84 requests that failed are kept with a TTFT of 0",
    );
}

#[test]
fn what_the_tool_cut_off_stays_in_the_denominator() {
    let found = checked("guidellm/steady/result.json", &["completed>=0.99", "ttft_p90<=300"]);
    assert_eq!((found.exports[0].cut, found.findings[0].value), (9, Some(40.0 / 49.0)));
    assert_eq!(found.findings[1].value, None, "the 90th percentile of 49 lies among the 9 that were cut off");
    says(&found, "load", Mark::Pass, "vary by 1.4% of their mean");
    says(&found, "streaming", Mark::Warn, "longest silence is not known");
}

#[test]
fn what_an_export_does_not_tell_is_said() {
    let alone = tempfile::tempdir().unwrap();
    std::fs::copy(folder().join("aiperf/steady/profile_export.jsonl"), alone.path().join("profile_export.jsonl"))
        .unwrap();
    let found = Check::of_exports("alone", &[read_export(alone.path()).unwrap()], &rule(&["attainment>=0.5"])).unwrap();
    assert_eq!(found.verdict, Verdict::Retest);
    says(&found, "load", Mark::Fail, "What load was asked for is not in the export");
    for path in ["vllm/steady/result.json", "aiperf/steady", "guidellm/steady/result.json", "inference-perf/steady"] {
        let found = checked(path, &[]);
        let lacking = found.exports[0].schema.iter().filter(|(_, has, _)| !has).count();
        assert!(lacking >= 3, "{path}");
        says(&found, "generator", Mark::Warn, "CPU, timers and sockets");
    }
}

#[test]
fn repeats_of_an_export_are_pooled_and_tenants_are_unknown() {
    let two = [export("vllm/steady/result.json"), export("vllm/steady/result.json")];
    let found = Check::of_exports("two", &two, &rule(&["attainment>=0.95"])).unwrap();
    assert_eq!((found.findings[0].n, found.verdict), (120, Verdict::Accept));
    let other = [export("vllm/steady/result.json"), export("aiperf/capped")];
    let mixed = Check::of_exports("two", &other, &rule(&["attainment>=0.1"])).unwrap();
    assert_eq!(mixed.verdict, Verdict::Retest);
    says(&mixed, "load", Mark::Fail, "they differ in tool, declared load");
    let tenant = Check::of_exports("two", &two, &rule(&["attainment[gold]>=0.9"])).unwrap_err().to_string();
    assert!(tenant.contains("exports do not tell tenants apart"), "{tenant}");
}

#[test]
fn the_command_reads_them_and_refuses_what_is_none() {
    let scratch = tempfile::tempdir().unwrap();
    let data = folder();
    let path = |p: &str| data.join(p).display().to_string();
    let steady = path("vllm/steady/result.json");
    let args = [&steady, "--goodput", "ttft:300", "tpot:60", "--target", "attainment>=0.9", "--html", "x.html"];
    let output = check(&args, scratch.path());
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let page = std::fs::read_to_string(scratch.path().join("x.html")).unwrap();
    assert!(
        page.contains("what was declared and what was sent") && !page.contains("http:") && !page.contains("<script")
    );
    for (name, text, says) in [
        ("summary.json", r#"{"num_prompts":5,"request_throughput":1.0}"#, "--save-detailed"),
        ("older.json", r#"{"num_prompts":5,"request_throughput":1.0,"ttfts":[1]}"#, "newer vLLM"),
        ("other.json", r#"{"some":"thing"}"#, "known are"),
        ("torn.jsonl", "{\"metadata\":{\"request_start_ns\":1},\"metrics\":{}}\n{\"metad", "line 2"),
        ("none.json", "[]", "known are"),
        ("two.json", r#"{"metadata":{"guidellm_version":"1"},"benchmarks":[]}"#, "0 benchmarks"),
        (
            "lists.json",
            r#"{"num_prompts":1,"request_throughput":1,"start_times":[1],"ttfts":[],"itls":[[]],"errors":[""],"output_lens":[1]}"#,
            "one length",
        ),
    ] {
        std::fs::write(scratch.path().join(name), text).unwrap();
        let output = check(&[name], scratch.path());
        assert_eq!(output.status.code(), Some(1), "{name}: {}", stderr(&output));
        assert!(stderr(&output).contains(says) && stderr(&output).contains(name), "{name}: {}", stderr(&output));
    }
}

#[test]
fn names_from_an_export_are_text_on_the_page_and_cannot_steer_a_terminal() {
    let scratch = tempfile::tempdir().unwrap();
    let evil = "<script>alert(1)</script>\\u001b[2J\\\"'><svg onload=x>";
    let text = std::fs::read_to_string(folder().join("vllm/steady/result.json")).unwrap();
    let text = text.replace("\"model_id\": \"mock\"", &format!("\"model_id\": \"{evil}\""));
    let file = scratch.path().join("<script>x<script>.json");
    std::fs::write(&file, text).unwrap();
    let read = read_export(&file).unwrap();
    assert!(read.model.as_deref().unwrap().contains("<script>alert"));
    let found = Check::of_exports(&read.name, std::slice::from_ref(&read), &rule(&[])).unwrap();
    let (text, page) = (check_text(&found), exports_doc(&found, &[read]).to_html());
    assert!(!page.contains("<script") && !page.contains("<svg onload") && !page.contains("\"'>"));
    assert!(page.contains("&lt;script&gt;"));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
}
