//! inference-perf: `per_request_lifecycle_metrics.json`, a list of requests, and the summary of a stage.

use serde::Deserialize;
use serde_json::Value;

use super::{Declared, Export, Figure, Moment, Reported, Sent, State, Tool, has, lacks, largest, tpot, turned_away};
use crate::fmt;

const SCHEMA: &[Moment] = &[
    lacks("planned arrival", "of each request not kept; the stage has the distribution of schedule_delay"),
    has("send", "start_time"),
    lacks("head of the answer", "not kept"),
    lacks("first event", "not kept apart from the first content"),
    has("first content", "the first of chunk_times"),
    has("gaps", "between chunk_times"),
    has("end", "end_time"),
    has("rejected, failed", "error"),
    lacks("timed out, cut off", "not told apart from other errors"),
    lacks("unsent", "not kept"),
    lacks("arrival process", "in config.yaml alone, not in its JSON"),
    has("tokens", "by the client's tokenizer; usage is kept beside it"),
];

#[derive(Deserialize)]
struct Row {
    start_time: f64,
    end_time: Option<f64>,
    info: Info,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Info {
    response_metrics: Option<Response>,
}

#[derive(Deserialize)]
struct Response {
    output_tokens: Option<u32>,
    server_usage: Option<Usage>,
    #[serde(default)]
    chunk_times: Vec<f64>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    error_type: String,
}

pub(super) fn read(text: &str, stage: Option<&str>) -> Result<Export, String> {
    let rows: Vec<Row> = serde_json::from_str(text).map_err(|e| format!("as inference-perf's requests: {e}"))?;
    let stage: Value = match stage {
        Some(text) => serde_json::from_str(text).map_err(|e| format!("stage_0_lifecycle_metrics.json: {e}"))?,
        None => Value::Null,
    };
    let of = |path: &str| stage.pointer(path).and_then(Value::as_f64);
    let mut remarks = Vec::new();
    let other =
        |r: &&Row| r.info.response_metrics.as_ref().is_some_and(|m| usage(m).is_some() && usage(m) != m.output_tokens);
    let recounted = rows.iter().filter(other).count();
    if recounted > 0 {
        remarks.push(format!(
            "In {recounted} answers the tool's own tokenizer counts other tokens than the server's usage; its TPOT and ITL divide by its own. Usage is taken here."
        ));
    }
    if let Some(delay) = of("/load_summary/schedule_delay/p99").filter(|d| *d > 0.01) {
        remarks.push(format!(
            "It sent late: its schedule_delay is {} at p99, {} at most. Its latencies start at the send.",
            fmt::duration(delay * 1e3),
            fmt::duration(of("/load_summary/schedule_delay/max").unwrap_or(delay) * 1e3)
        ));
    }
    if stage.is_null() {
        remarks
            .push("stage_0_lifecycle_metrics.json is not beside it: what rate was asked for is not known.".to_owned());
    }
    let reported = |figure, path: &str| Some(Reported { figure, value: of(path)? * 1e3 });
    Ok(Export {
        tool: Tool::InferencePerf,
        version: None,
        name: String::new(),
        model: None,
        declared: Declared { rate: of("/load_summary/requested_rate"), ..Declared::default() },
        sent: rows.iter().map(request).collect(),
        schema: SCHEMA,
        lag: of("/load_summary/schedule_delay/p99")
            .zip(of("/load_summary/schedule_delay/max"))
            .map(|(p99, max)| [p99.max(0.0) * 1e3, max.max(0.0) * 1e3]),
        remarks,
        reported: [
            reported(Figure::TtftP50, "/successes/latency/time_to_first_token/median"),
            reported(Figure::TtftP99, "/successes/latency/time_to_first_token/p99"),
            reported(Figure::E2eP50, "/successes/latency/request_latency/median"),
            reported(Figure::E2eP99, "/successes/latency/request_latency/p99"),
            reported(Figure::TpotP50, "/successes/latency/time_per_output_token/median"),
        ]
        .into_iter()
        .flatten()
        .collect(),
    })
}

fn usage(metrics: &Response) -> Option<u32> {
    metrics.server_usage.as_ref()?.completion_tokens
}

fn request(row: &Row) -> Sent {
    let state = match &row.error {
        None => State::Completed,
        Some(error) if turned_away(&error.error_type) => State::Rejected,
        Some(_) => State::Failed,
    };
    let answered = |ms: Option<f64>| ms.filter(|_| state == State::Completed);
    let metrics = row.info.response_metrics.as_ref();
    let times = metrics.map_or(&[][..], |m| &m.chunk_times);
    let tokens = metrics.and_then(|m| usage(m).or(m.output_tokens));
    let content = times.first().zip(times.last()).map(|(first, last)| (last - first) * 1e3);
    Sent {
        planned: None,
        at: row.start_time,
        ttft: answered(times.first().map(|first| (first - row.start_time) * 1e3)),
        e2e: answered(row.end_time.map(|end| (end - row.start_time) * 1e3)),
        tpot: tpot(answered(content), tokens),
        longest_gap: answered(largest(times.windows(2).map(|w| (w[1] - w[0]) * 1e3))),
        output_tokens: tokens.filter(|_| state == State::Completed),
        state,
    }
}
