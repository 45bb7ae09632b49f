//! GuideLLM's JSON: one object, in it benchmarks, in each the requests by status.

use serde::Deserialize;

use super::{Declared, Export, Figure, Moment, Process, Reported, Sent, State, Tool, has, lacks, tpot, turned_away};

const SCHEMA: &[Moment] = &[
    has("planned arrival", "timings.targeted_start"),
    has("send", "timings.request_start"),
    lacks("head of the answer", "not kept"),
    has("first event", "timings.first_request_iteration"),
    has("first content", "timings.first_token_iteration"),
    lacks("gaps", "only the mean of each answer: its longest silence is not known"),
    has("end", "timings.request_end"),
    has("rejected, failed", "requests.errored, by the text in error"),
    has("cut off", "requests.incomplete: open when the time was over; in none of its latencies"),
    lacks("unsent", "what was due and not sent when the time was over is not told apart from what was never due"),
    lacks("error inside a 200, broken stream", "not told apart"),
    has("tokens", "by usage, else by the client's tokenizer; which of both is not kept"),
];

#[derive(Deserialize)]
struct Output {
    metadata: Metadata,
    benchmarks: Vec<Benchmark>,
}

#[derive(Deserialize)]
struct Metadata {
    guidellm_version: Option<String>,
}

#[derive(Deserialize)]
struct Benchmark {
    config: Config,
    requests: Requests,
    #[serde(default)]
    metrics: serde_json::Value,
}

#[derive(Deserialize)]
struct Config {
    strategy: Strategy,
    #[serde(default)]
    constraints: serde_json::Value,
    #[serde(default)]
    backend: serde_json::Value,
}

#[derive(Deserialize)]
struct Strategy {
    type_: String,
    rate: Option<f64>,
    max_concurrency: Option<u64>,
    streams: Option<u64>,
}

#[derive(Deserialize)]
struct Requests {
    successful: Option<Vec<Request>>,
    errored: Option<Vec<Request>>,
    incomplete: Option<Vec<Request>>,
}

#[derive(Deserialize)]
struct Request {
    info: Info,
    request_start_time: Option<f64>,
    output_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Info {
    timings: Timings,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Timings {
    targeted_start: Option<f64>,
    request_start: Option<f64>,
    first_token_iteration: Option<f64>,
    last_token_iteration: Option<f64>,
    request_end: Option<f64>,
}

/// The cap that GuideLLM sets by itself, which is no choice of its user's.
const DEFAULT_CAP: u64 = 10_240;

pub(super) fn read(text: &str) -> Result<Export, String> {
    let output: Output = serde_json::from_str(text).map_err(|e| format!("as GuideLLM's output: {e}"))?;
    let [benchmark] = &output.benchmarks[..] else {
        return Err(format!(
            "it holds {} benchmarks, each a load of its own: run one rate at a time",
            output.benchmarks.len()
        ));
    };
    let of = |rows: &Option<Vec<Request>>, cut: bool| -> Vec<Sent> {
        rows.iter().flatten().filter_map(|row| request(row, cut)).collect()
    };
    let requests = &benchmark.requests;
    let mut sent = of(&requests.successful, false);
    sent.extend(of(&requests.errored, false));
    let cut = of(&requests.incomplete, true);
    let mut remarks = Vec::new();
    if !cut.is_empty() {
        remarks.push(format!(
            "{} requests were cut off when the time was over and are in none of its latencies: long answers are missing from them first. Here they stay in the denominators.",
            cut.len()
        ));
    }
    remarks.push("Its time_per_output_token divides the whole latency by all tokens, so it holds the first token's wait; TPOT is recomputed here.".to_owned());
    sent.extend(cut);
    let strategy = &benchmark.config.strategy;
    let process = match strategy.type_.as_str() {
        "constant" => Some(Process::Constant),
        "poisson" => Some(Process::Poisson),
        _ => None,
    };
    let limit = |path: &str| benchmark.config.constraints.pointer(path).and_then(serde_json::Value::as_f64);
    let cap = strategy.max_concurrency.or(strategy.streams).filter(|cap| *cap < DEFAULT_CAP);
    let reported = |figure, path: &str| {
        let value = benchmark.metrics.pointer(path).and_then(serde_json::Value::as_f64)?;
        Some(Reported { figure, value: if path.contains("latency") { value * 1e3 } else { value } })
    };
    Ok(Export {
        tool: Tool::Guidellm,
        version: output.metadata.guidellm_version,
        name: String::new(),
        model: benchmark.config.backend.pointer("/model").and_then(|m| m.as_str()).map(str::to_owned),
        declared: Declared {
            rate: strategy.rate.filter(|_| process.is_some()),
            process,
            count: limit("/max_requests/args/count").or_else(|| limit("/max_number/args/count")).map(|n| n as u64),
            seconds: limit("/max_duration/args/seconds"),
            cap,
        },
        sent,
        schema: SCHEMA,
        lag: None,
        remarks,
        reported: [
            reported(Figure::TtftP50, "/time_to_first_token_ms/successful/percentiles/p50"),
            reported(Figure::TtftP99, "/time_to_first_token_ms/successful/percentiles/p99"),
            reported(Figure::E2eP50, "/request_latency/successful/percentiles/p50"),
            reported(Figure::E2eP99, "/request_latency/successful/percentiles/p99"),
        ]
        .into_iter()
        .flatten()
        .collect(),
    })
}

fn request(row: &Request, cut: bool) -> Option<Sent> {
    let t = &row.info.timings;
    let at = t.request_start.or(row.request_start_time)?;
    let state = match row.info.error.as_deref() {
        _ if cut => State::Cut,
        None => State::Completed,
        Some(error) if turned_away(error) => State::Rejected,
        Some(_) => State::Failed,
    };
    let since = |time: Option<f64>| time.map(|time| (time - at) * 1e3).filter(|_| state == State::Completed);
    let content = since(t.last_token_iteration).zip(since(t.first_token_iteration)).map(|(last, first)| last - first);
    Some(Sent {
        planned: t.targeted_start,
        at,
        ttft: since(t.first_token_iteration),
        e2e: since(t.request_end),
        tpot: tpot(content, row.output_tokens),
        longest_gap: None,
        output_tokens: row.output_tokens.filter(|_| state == State::Completed),
        state,
    })
}
