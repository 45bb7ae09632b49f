//! A run in the schema of `vllm bench serve --save-result`, for dashboards that read it.
//!
//! The names mean there what they mean here only in part, so each figure is the one that its name promises:
//! latencies under those names count from the send, goodput is by this project's rule, from the plan. What
//! the ledger cannot say is null; a percentile that n cannot support is null too. See
//! docs/requests.md for every difference.

use std::path::Path;

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::ArrivalProcess;
use serde_json::{Map, Value, json};

use crate::quantile::quantile;
use crate::read::{Run, read_run};
use crate::write::{WriteError, write_file};

/// Writes a run folder's figures into `file`; with `detailed` its lists by request too.
///
/// # Errors
/// [`WriteError`] if the run cannot be read or the file cannot be written.
pub fn write_vllm(folder: &Path, file: &Path, detailed: bool) -> Result<(), WriteError> {
    let run = read_run(folder)?;
    write_file(file, &(serde_json::to_string(&vllm(&run, detailed))? + "\n"))
}

/// A run as `vllm bench serve` writes its own.
#[must_use]
pub fn vllm(run: &Run, detailed: bool) -> Value {
    let outcomes = run.outcomes();
    let completed: Vec<&Row> = outcomes.iter().copied().filter(|r| r.state == Terminal::Completed).collect();
    let mut result = setup(run);
    result.extend(totals(run, &outcomes, &completed));
    let metrics: [(&str, Vec<f64>); 4] = [
        ("ttft", millis(completed.iter().filter_map(|r| r.ttft_from_send()))),
        ("tpot", millis(completed.iter().filter_map(|r| r.tpot()))),
        ("itl", millis(completed.iter().flat_map(|r| r.gaps.iter().copied()))),
        ("e2el", millis(completed.iter().filter_map(|r| latency(r)))),
    ];
    for (name, values) in metrics {
        result.extend(statistics(name, values));
    }
    if detailed {
        result.extend(lists(&outcomes));
    }
    Value::Object(result)
}

fn setup(run: &Run) -> Map<String, Value> {
    let manifest = &run.manifest;
    let backend = match manifest.target.endpoint.as_str() {
        "/v1/chat/completions" => "openai-chat",
        _ => "openai",
    };
    let mut setup = Map::new();
    // Notes of the user stand among the fields there as well; a field's own meaning comes first.
    setup.extend(manifest.metadata.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    let burstiness = match &manifest.plan.process {
        ArrivalProcess::Poisson { .. } => Some(1.0),
        ArrivalProcess::Gamma { burstiness, .. } => Some(*burstiness),
        _ => None,
    };
    let fields = json!({
        "date": manifest.started.as_deref().and_then(compact_date),
        "endpoint_type": backend,
        "backend": backend,
        "label": manifest.name,
        "model_id": manifest.target.model,
        "tokenizer_id": null,
        "num_prompts": run.due(),
        "request_rate": manifest.plan.process.rate(),
        "burstiness": burstiness,
        "max_concurrency": manifest.max_in_flight,
    });
    setup.extend(fields.as_object().cloned().unwrap_or_default());
    setup
}

fn totals(run: &Run, outcomes: &[&Row], completed: &[&Row]) -> Map<String, Value> {
    let tenants = &run.manifest.plan.tenants;
    let has_limits = tenants.iter().any(|t| t.slo != Slo::default());
    let good = outcomes.iter().filter(|r| r.is_good(&run.slo(r))).count();
    let duration = run.rows.iter().filter_map(|r| r.end).max().map(|end| end.since(Tick::ZERO).as_secs_f64());
    let duration = duration.filter(|d| *d > 0.0);
    let input: u64 = completed.iter().map(|r| u64::from(r.input_tokens.unwrap_or(r.input_planned))).sum();
    // A count that is known of some answers only is the count of none.
    let output: Option<u64> = completed.iter().map(|r| r.output_tokens.map(u64::from)).sum();
    let per_second = |n: f64| duration.map(|d| n / d);
    let fields = json!({
        "duration": duration,
        "completed": completed.len(),
        "failed": outcomes.len() - completed.len(),
        "total_input_tokens": input,
        "total_output_tokens": output,
        "request_throughput": per_second(completed.len() as f64),
        "request_goodput": if has_limits { Some(good as f64 / run.window().as_secs_f64()) } else { None },
        "output_throughput": output.and_then(|n| per_second(n as f64)),
        "total_token_throughput": output.and_then(|n| per_second((n + input) as f64)),
        "max_output_tokens_per_s": null,
        "max_concurrent_requests": run.manifest.end.map(|end| end.peak_in_flight),
        "rtfx": null,
    });
    fields.as_object().cloned().unwrap_or_default()
}

fn statistics(name: &str, mut values: Vec<f64>) -> Map<String, Value> {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let mean = (n > 0.0).then(|| values.iter().sum::<f64>() / n);
    // Of the whole sample, without the correction for one: what NumPy's std gives.
    let spread = mean.map(|mean| (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n).sqrt());
    let p99 = quantile(&values, 0.99).filter(|_| n >= 100.0);
    [
        (format!("mean_{name}_ms"), mean),
        (format!("median_{name}_ms"), quantile(&values, 0.5)),
        (format!("std_{name}_ms"), spread),
        (format!("p99_{name}_ms"), p99),
    ]
    .into_iter()
    .map(|(key, value)| (key, value.into()))
    .collect()
}

/// One entry for each arrival, in the order of the plan; null where there is nothing to say.
fn lists(outcomes: &[&Row]) -> Map<String, Value> {
    let mut rows = outcomes.to_vec();
    rows.sort_by_key(|row| row.index);
    let seconds = |span: Option<Span>| span.map(Span::as_secs_f64);
    let list = |of: &dyn Fn(&Row) -> Value| Value::Array(rows.iter().map(|row| of(row)).collect());
    let gaps = |row: &Row| Value::from(row.gaps.iter().map(|gap| gap.as_secs_f64()).collect::<Vec<_>>());
    let error = |row: &Row| match (&row.error, row.state) {
        (_, Terminal::Completed) => String::new(),
        (Some(error), state) => format!("{state}: {error}"),
        (None, state) => state.to_string(),
    };
    [
        ("input_lens", list(&|row| row.input_tokens.unwrap_or(row.input_planned).into())),
        ("output_lens", list(&|row| row.output_tokens.into())),
        ("ttfts", list(&|row| seconds(row.ttft_from_send()).into())),
        ("itls", list(&gaps)),
        ("latencies", list(&|row| seconds(latency(row)).into())),
        ("start_times", list(&|row| seconds(row.send_started.map(|t| t.since(Tick::ZERO))).into())),
        ("queue_times", list(&|row| seconds(row.send_lag()).into())),
        ("errors", list(&|row| error(row).into())),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// From the send to the end.
fn latency(row: &Row) -> Option<Span> {
    Some(row.end?.since(row.send_started?))
}

fn millis(spans: impl Iterator<Item = Span>) -> Vec<f64> {
    spans.map(Span::as_millis_f64).collect()
}

/// `20261130-061500` of an RFC 3339 time.
fn compact_date(text: &str) -> Option<String> {
    let digits: String = text.get(..19)?.chars().filter(char::is_ascii_digit).collect();
    Some(format!("{}-{}", digits.get(..8)?, digits.get(8..14)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{answered, ended, manifest, plan};

    fn run(rows: Vec<Row>) -> Run {
        let mut manifest = manifest("mine", &plan(&[("a", 1.0)]));
        manifest.plan.count = rows.len() as u32;
        manifest.plan.window = Some(Span::from_secs(4));
        manifest.max_in_flight = Some(8);
        manifest.started = Some("2026-11-30T06:15:00.123Z".into());
        manifest.metadata.insert("gpu".into(), "none".into());
        Run { manifest, rows, torn: false }
    }

    fn mixed() -> Run {
        let mut late = answered(1, "a", 500, 400);
        // Sent 100 ms after its time: its latency from the send is 300 ms.
        late.send_started = Some(crate::fixture::ms(600));
        // Two of its three tokens came as one event, and the server counted its prompt.
        (late.gaps, late.input_tokens) = (vec![Span::from_millis(20)], Some(250));
        let mut rejected = ended(2, "a", 900, 12, Terminal::Rejected);
        rejected.error = Some("try later".into());
        run(vec![late, answered(0, "a", 0, 200), rejected, ended(3, "a", 1000, 0, Terminal::UnsentClientCap)])
    }

    #[test]
    fn figures_stand_under_the_names_and_in_the_units_of_the_schema() {
        let result = vllm(&mixed(), false);
        let number = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", result[name]));
        assert_eq!((&result["date"], &result["model_id"]), (&"20261130-061500".into(), &"".into()));
        assert_eq!(
            (&result["num_prompts"], &result["completed"], &result["failed"]),
            (&4.into(), &2.into(), &2.into())
        );
        // By hand: from the send 200 and 300 ms; NumPy: mean 250, std 50, median 250.
        assert_eq!((number("mean_ttft_ms"), number("std_ttft_ms"), number("median_ttft_ms")), (250.0, 50.0, 250.0));
        // Gaps of 20, 10 and 10 ms; two times 20 ms for two further tokens.
        assert_eq!((number("mean_e2el_ms"), number("mean_tpot_ms")), (270.0, 10.0));
        assert!((number("mean_itl_ms") - 40.0 / 3.0).abs() < 1e-9);
        // The last row ends at 0.92 s; both whole answers are good, in a window of 4 s.
        assert_eq!((number("duration"), number("request_goodput")), (0.92, 0.5));
        assert!((number("output_throughput") - 6.0 / 0.92).abs() < 1e-9);
        assert_eq!((number("total_input_tokens"), number("total_output_tokens")), (506.0, 6.0));
        assert!((number("total_token_throughput") - (6.0 + 506.0) / 0.92).abs() < 1e-9);
        assert!((number("request_throughput") - 2.0 / 0.92).abs() < 1e-9);
        assert_eq!((number("max_concurrency"), number("max_concurrent_requests")), (8.0, 200.0));
        assert_eq!(result["gpu"], "none");
        assert!(result.get("ttfts").is_none());
    }

    #[test]
    fn what_cannot_be_said_is_null_and_never_zero() {
        let result = vllm(&run(vec![ended(0, "a", 0, 12, Terminal::Rejected)]), false);
        for name in ["mean_ttft_ms", "p99_e2el_ms", "std_itl_ms", "max_output_tokens_per_s", "tokenizer_id", "rtfx"] {
            assert_eq!(result[name], Value::Null, "{name}");
        }
        assert_eq!(vllm(&mixed(), false)["p99_ttft_ms"], Value::Null, "two answers have no 99th percentile");
        let many = run((0..100).map(|i| answered(i, "a", 0, u64::from(i) + 1)).collect());
        assert!((vllm(&many, false)["p99_ttft_ms"].as_f64().unwrap() - 99.01).abs() < 1e-9);
        let mut unknown = answered(0, "a", 0, 100);
        unknown.output_tokens = None;
        assert_eq!(vllm(&run(vec![unknown]), false)["total_output_tokens"], Value::Null);
    }

    #[test]
    fn lists_have_an_entry_for_each_arrival_in_the_order_of_the_plan() {
        let result = vllm(&mixed(), true);
        assert_eq!(result["ttfts"], json!([0.2, 0.3, null, null]));
        assert_eq!(result["queue_times"], json!([0.0, 0.1, 0.0, null]));
        assert_eq!(result["start_times"], json!([0.0, 0.6, 0.9, null]));
        assert_eq!(result["itls"], json!([[0.01, 0.01], [0.02], [], []]));
        assert_eq!(result["errors"], json!(["", "", "rejected: try later", "unsent_client_cap"]));
        assert_eq!(result["output_lens"], json!([3, 3, null, null]));
        assert_eq!(result["input_lens"], json!([256, 250, 256, 256]));
        assert_eq!(result["latencies"], json!([0.22, 0.32, 0.012, null]));
    }
}
