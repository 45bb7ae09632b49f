//! Whether an engine is idle, and its prefix cache.

use std::fmt;
use std::time::{Duration, Instant};

use elasticserve_core::time::Span;
use elasticserve_load::{LoadConfig, Method, StatusCode, ask};

/// What runs or waits, under the names of vLLM, SGLang and llama.cpp's server.
const BUSY: [&str; 6] = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
];
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// The pause where an engine does not tell.
const PAUSE: Span = Span::from_secs(2);

/// How an engine came to rest.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// By its own metrics nothing runs or waits; so long it took.
    Idle(Span),
    /// It does not tell, so a pause was made.
    Paused(Span),
}

/// What became of the order to empty the prefix cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    /// It was carried out.
    Done,
    /// The engine takes no such order.
    NotOffered,
}

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle(waited) => write!(f, "idle by its metrics after {waited}"),
            Self::Paused(pause) => write!(f, "paused for {pause}; it offers no metrics of what it works on"),
        }
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "reset",
            Self::NotOffered => "reset not offered",
        })
    }
}

/// Waits until the server has nothing to do.
pub(super) async fn wait(server: &LoadConfig, patience: Span) -> anyhow::Result<Quiet> {
    let (url, began) = (&server.url, Instant::now());
    loop {
        let (status, body) = ask(server, Method::GET, "/metrics").await.map_err(|e| anyhow::anyhow!("{url}: {e}"))?;
        let busy = if status == StatusCode::OK { busy(&String::from_utf8_lossy(&body)) } else { None };
        match busy {
            None => {
                tokio::time::sleep(PAUSE.to_std()).await;
                return Ok(Quiet::Paused(PAUSE));
            }
            Some(0) => return Ok(Quiet::Idle(Span::from_std(began.elapsed()))),
            Some(requests) if began.elapsed() + LOOK > patience.to_std() => {
                anyhow::bail!("{url} still works on {requests} requests after {patience}");
            }
            Some(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Orders the server to empty its prefix cache.
pub(super) async fn reset(server: &LoadConfig) -> anyhow::Result<Reset> {
    let url = &server.url;
    let answer = ask(server, Method::POST, "/reset_prefix_cache").await;
    let (status, _) = answer.map_err(|e| anyhow::anyhow!("{url}: {e}"))?;
    match status {
        status if status.is_success() => Ok(Reset::Done),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Ok(Reset::NotOffered),
        status => anyhow::bail!("{url}: /reset_prefix_cache answered {status}"),
    }
}

/// Requests that run or wait by a page of metrics in Prometheus' text format; `None` if it has none of the known ones.
fn busy(page: &str) -> Option<u64> {
    let counts = page.lines().filter_map(|line| {
        let name = line.split(['{', ' ']).next()?;
        // A label's value may hold spaces, the count does not.
        let count: f64 = line.rsplit(' ').next()?.parse().ok()?;
        BUSY.contains(&name).then_some(count.max(0.0).ceil() as u64)
    });
    counts.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_and_what_waits_count_over_all_labels() {
        let page = "# TYPE vllm:num_requests_running gauge\n\
                    vllm:num_requests_running{model_name=\"a b\",engine=\"0\"} 3.0\n\
                    vllm:num_requests_running{model_name=\"a b\",engine=\"1\"} 1.0\n\
                    vllm:num_requests_waiting{model_name=\"a b\",engine=\"0\"} 2.0\n\
                    vllm:prompt_tokens_total{model_name=\"a b\"} 9000.0\n";
        assert_eq!(busy(page), Some(6));
        assert_eq!(busy("llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n"), Some(0));
        assert_eq!(busy("sglang:num_queue_reqs{a=\"b\"} 4\n"), Some(4));
    }

    #[test]
    fn a_server_that_does_not_tell_is_not_taken_for_idle() {
        assert_eq!(busy(""), None);
        assert_eq!(busy("http_requests_total 7\n"), None);
    }
}
