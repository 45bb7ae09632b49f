//! `/metrics` in the text format of Prometheus, under vLLM's names.

use std::fmt::Write;

use crate::driver::Snapshot;

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes all metrics. `kv_capacity` is the KV cache's size in tokens.
pub(crate) fn render(snapshot: &Snapshot, model: &str, kv_capacity: u64) -> String {
    let Snapshot { engine, finished } = snapshot;
    let labels = format!("model_name=\"{}\",engine=\"0\"", escape(model));
    let usage = engine.kv_tokens as f64 / kv_capacity.max(1) as f64;
    let mut out = String::new();
    let mut one = |name: &str, kind: &str, help: &str, value: f64| {
        head(&mut out, name, kind, help);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name}{{{labels}}} {value:?}");
    };
    one("vllm:num_requests_running", "gauge", "Requests that hold a seat.", engine.running.into());
    one("vllm:num_requests_waiting", "gauge", "Requests that wait for a seat.", engine.waiting.into());
    one("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use; 1 is all of it.", usage.min(1.0));
    for (name, help, value) in [
        ("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", engine.cache_queries),
        ("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", engine.cache_hits),
        ("vllm:num_preemptions_total", "Times a request lost its seat for want of KV blocks.", engine.preemptions),
        ("vllm:prompt_tokens_total", "Prompt tokens of requests that got a seat.", engine.prompt_tokens),
        ("vllm:generation_tokens_total", "Tokens generated.", engine.generated_tokens),
    ] {
        one(name, "counter", help, value as f64);
    }
    let name = "vllm:request_success_total";
    head(&mut out, name, "counter", "Requests that have ended, by reason.");
    for (reason, count) in [("stop", finished.stop), ("length", finished.length), ("abort", finished.abort)] {
        let _ = writeln!(out, "{name}{{{labels},finished_reason=\"{reason}\"}} {:?}", count as f64);
    }
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use elasticserve_core::engine::EngineStats;

    use super::*;
    use crate::driver::Finished;

    #[test]
    fn figures_stand_under_the_names_and_labels_of_vllm() {
        let engine = EngineStats { running: 3, waiting: 2, kv_tokens: 50, cache_hits: 16, ..EngineStats::default() };
        let snapshot = Snapshot { engine, finished: Finished { stop: 1, length: 4, abort: 2 } };
        let text = render(&snapshot, "a\"b", 200);
        for line in [
            "vllm:num_requests_running{model_name=\"a\\\"b\",engine=\"0\"} 3.0",
            "vllm:num_requests_waiting{model_name=\"a\\\"b\",engine=\"0\"} 2.0",
            "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\",engine=\"0\"} 0.25",
            "vllm:prefix_cache_hits_total{model_name=\"a\\\"b\",engine=\"0\"} 16.0",
            "vllm:request_success_total{model_name=\"a\\\"b\",engine=\"0\",finished_reason=\"abort\"} 2.0",
            "# TYPE vllm:request_success_total counter",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        }
    }
}
