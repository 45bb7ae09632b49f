//! AIPerf: `profile_export.jsonl`, a line for each request, and `profile_export_aiperf.json` with the configuration.

use serde::Deserialize;
use serde_json::Value;

use super::{Declared, Export, Figure, Moment, Process, Reported, Sent, State, Tool, has, lacks, largest, tpot};

const SCHEMA: &[Moment] = &[
    lacks("planned arrival", "credit_issued_ns is when the tool let a request go: with a cap, when a slot was free"),
    has("send", "request_start_ns"),
    has("head of the answer", "request_ack_ns"),
    lacks("first event", "not kept apart from the first content"),
    has("first content", "time_to_first_token, reasoning included; time_to_first_output_token without it"),
    has("gaps", "inter_chunk_latency, between chunks"),
    has("end", "request_latency"),
    has("rejected, failed", "error, with its code"),
    has("cut off", "was_cancelled"),
    lacks("unsent", "an arrival that found no slot leaves no line"),
    lacks("error inside a 200, broken stream", "not told apart"),
    has("tokens", "by the client's tokenizer, or by usage with --use-server-token-count; usage is kept beside it"),
];

#[derive(Deserialize)]
struct Line {
    metadata: Metadata,
    #[serde(default)]
    metrics: Value,
    error: Option<ErrorDetails>,
}

#[derive(Deserialize)]
struct Metadata {
    request_start_ns: u64,
    benchmark_phase: Option<String>,
    #[serde(default)]
    was_cancelled: bool,
}

#[derive(Deserialize)]
struct ErrorDetails {
    code: Option<u16>,
}

pub(super) fn read(lines: &str, summary: Option<&str>) -> Result<Export, String> {
    let (mut sent, mut others, mut recounted) = (Vec::new(), 0, 0);
    for (place, text) in (1..).zip(lines.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let line: Line = serde_json::from_str(text).map_err(|e| format!("line {place}: {e}"))?;
        if line.metadata.benchmark_phase.as_deref().is_some_and(|phase| phase != "profiling") {
            others += 1;
            continue;
        }
        recounted += usize::from(differs(&line.metrics));
        sent.push(request(&line));
    }
    let summary: Value = match summary {
        Some(text) => serde_json::from_str(text).map_err(|e| format!("profile_export_aiperf.json: {e}"))?,
        None => Value::Null,
    };
    let mut remarks = Vec::new();
    if recounted > 0 {
        remarks.push(format!(
            "In {recounted} answers the tool's own tokenizer counts other tokens than the server's usage; its inter_token_latency divides by its own. Usage is taken here."
        ));
    }
    if others > 0 {
        remarks.push(format!("{others} requests of other phases than profiling are left out."));
    }
    if summary.is_null() {
        remarks.push("profile_export_aiperf.json is not beside it: what load was asked for is not known.".to_owned());
    }
    let declared = declared(&summary);
    if declared.cap.is_some() {
        remarks.push("With --concurrency a request's slot is waited for before its clock starts: effective_latency and credit_to_start_latency leave that wait out too.".to_owned());
    }
    Ok(Export {
        tool: Tool::Aiperf,
        version: summary.pointer("/aiperf_version").and_then(Value::as_str).map(str::to_owned),
        name: String::new(),
        model: summary.pointer("/input_config/models/items/0/name").and_then(Value::as_str).map(str::to_owned),
        declared,
        sent,
        schema: SCHEMA,
        lag: None,
        remarks,
        reported: reported(&summary),
    })
}

fn request(line: &Line) -> Sent {
    let state = match &line.error {
        _ if line.metadata.was_cancelled => State::Cut,
        None => State::Completed,
        Some(error) if matches!(error.code, Some(429 | 503)) => State::Rejected,
        Some(_) => State::Failed,
    };
    let metric = |name: &str| line.metrics.pointer(&format!("/{name}/value")).and_then(Value::as_f64);
    let answered = |ms: Option<f64>| ms.filter(|_| state == State::Completed);
    let tokens = metric("usage_completion_tokens").or_else(|| metric("output_sequence_length")).map(|n| n as u32);
    let gaps = line.metrics.pointer("/inter_chunk_latency/value").and_then(Value::as_array);
    let (ttft, e2e) = (answered(metric("time_to_first_token")), answered(metric("request_latency")));
    Sent {
        planned: None,
        at: line.metadata.request_start_ns as f64 / 1e9,
        ttft,
        e2e,
        tpot: tpot(e2e.zip(ttft).map(|(e, t)| e - t), tokens),
        longest_gap: answered(gaps.and_then(|gaps| largest(gaps.iter().filter_map(Value::as_f64)))),
        output_tokens: tokens.filter(|_| state == State::Completed),
        state,
    }
}

fn differs(metrics: &Value) -> bool {
    let value = |name: &str| metrics.pointer(&format!("/{name}/value")).and_then(Value::as_f64);
    value("usage_completion_tokens").zip(value("output_sequence_length")).is_some_and(|(a, b)| a != b)
}

/// The load of the phase that was measured.
fn declared(summary: &Value) -> Declared {
    let phases = summary.pointer("/input_config/phases").and_then(Value::as_array);
    let phase = phases.and_then(|p| p.iter().find(|p| p["name"] == "profiling").or_else(|| p.last()));
    let Some(phase) = phase else { return Declared::default() };
    let number = |key: &str| phase.get(key).and_then(Value::as_f64);
    let rate = number("rate");
    let process = match phase.get("type").and_then(Value::as_str) {
        Some("constant") => Some(Process::Constant),
        Some("poisson") => Some(Process::Poisson),
        Some("gamma") => Some(Process::Gamma(number("smoothness").unwrap_or(1.0))),
        _ => None,
    };
    let cap = phase.get("concurrency").and_then(Value::as_u64);
    let count = phase.get("requests").and_then(Value::as_u64);
    Declared { rate, process: process.filter(|_| rate.is_some()), count, seconds: number("duration"), cap }
}

fn reported(summary: &Value) -> Vec<Reported> {
    let of = |figure, path: &str| Some(Reported { figure, value: summary.pointer(path)?.as_f64()? });
    [
        of(Figure::TtftP50, "/time_to_first_token/p50"),
        of(Figure::TtftP99, "/time_to_first_token/p99"),
        of(Figure::E2eP50, "/request_latency/p50"),
        of(Figure::E2eP99, "/request_latency/p99"),
        of(Figure::TpotP50, "/inter_token_latency/p50"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"metadata":{"request_start_ns":5000000000,"benchmark_phase":"profiling"},"metrics":{
        "usage_completion_tokens":{"value":3},"output_sequence_length":{"value":9},
        "time_to_first_token":{"value":10.0},"request_latency":{"value":50.0}}}"#;

    #[test]
    fn tokens_are_the_servers_where_the_tool_counted_others() {
        let line = LINE.replace('\n', "");
        let export = read(&line, None).unwrap();
        // (50 − 10) / (3 − 1); by the tool's own tokenizer it would be 40 / 8.
        assert_eq!((export.sent[0].tpot, export.sent[0].output_tokens), (Some(20.0), Some(3)));
        assert!(export.remarks[0].contains("In 1 answers"), "{:?}", export.remarks);
        let alike = read(&line.replace("\"value\":9", "\"value\":3"), None).unwrap();
        assert!(!alike.remarks[0].contains("tokenizer"), "{:?}", alike.remarks);
    }

    #[test]
    fn requests_of_a_warm_up_are_left_out_and_counted() {
        let line = LINE.replace('\n', "");
        let both = format!("{}\n{line}\n", line.replace("\"profiling\"", "\"warmup\""));
        let export = read(&both, None).unwrap();
        assert_eq!(export.sent.len(), 1);
        assert!(export.remarks.iter().any(|r| r.starts_with("1 requests of other phases")), "{:?}", export.remarks);
    }
}
