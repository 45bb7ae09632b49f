//! `vllm bench serve --save-result --save-detailed`: one JSON object with a list for each moment.

use serde::Deserialize;

use super::{
    Declared, Export, Figure, Moment, Process, Reported, Sent, State, Tool, has, lacks, largest, tpot, turned_away,
};
use crate::fmt;

const SCHEMA: &[Moment] = &[
    has(
        "planned arrival",
        "start_times − queue_times: when the request came to the client's own semaphore (0.32 and later)",
    ),
    has("send", "start_times"),
    lacks("head of the answer", "not kept"),
    lacks("first event", "not kept apart from the first content"),
    has("first content", "ttfts: the first event with a choice, even if its text is empty"),
    has("gaps", "itls, between events"),
    has("end", "latencies: the last event with a choice (0.32 and later)"),
    has("rejected, failed", "by the text in errors"),
    lacks("timed out, cut off", "a broken stream that ended its connection cleanly counts as a success"),
    lacks("error inside a 200", "counts as a success"),
    lacks("retries", "sent by the client, not kept"),
    has("tokens", "by usage, else by the client's tokenizer; which of both is not kept"),
];

#[derive(Deserialize)]
struct Result_ {
    model_id: Option<String>,
    num_prompts: u64,
    request_rate: Option<Rate>,
    burstiness: Option<f64>,
    max_concurrency: Option<u64>,
    max_concurrent_requests: Option<f64>,
    ttfts: Option<Vec<f64>>,
    itls: Option<Vec<Vec<f64>>>,
    latencies: Option<Vec<f64>>,
    start_times: Option<Vec<f64>>,
    queue_times: Option<Vec<f64>>,
    output_lens: Option<Vec<u32>>,
    errors: Option<Vec<Option<String>>>,
    median_ttft_ms: Option<f64>,
    p99_ttft_ms: Option<f64>,
    median_tpot_ms: Option<f64>,
    median_e2el_ms: Option<f64>,
    p99_e2el_ms: Option<f64>,
}

/// A rate, or `inf`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Rate {
    Number(f64),
    Word(serde::de::IgnoredAny),
}

pub(super) fn read(text: &str) -> Result<Export, String> {
    let r: Result_ = serde_json::from_str(text).map_err(|e| format!("as a result of vllm bench serve: {e}"))?;
    let detailed = "it holds figures only, not the requests one by one: save it with --save-detailed";
    let older = "it keeps no start_times: that takes a newer vLLM (0.32 keeps them)";
    let starts = r.start_times.as_ref().ok_or(if r.ttfts.is_some() { older } else { detailed })?;
    let (ttfts, itls) = (r.ttfts.as_ref().ok_or(detailed)?, r.itls.as_ref().ok_or(detailed)?);
    let errors = r.errors.as_ref().ok_or(detailed)?;
    let lens = r.output_lens.as_ref().ok_or(detailed)?;
    if [ttfts.len(), itls.len(), errors.len(), lens.len()].iter().any(|n| *n != starts.len()) {
        return Err("its lists are not of one length".to_owned());
    }
    let at = |list: &Option<Vec<f64>>, i: usize| list.as_ref().and_then(|l| l.get(i)).copied();
    let request = |i: usize| {
        let state = match errors[i].as_deref() {
            None | Some("") => State::Completed,
            Some(error) if turned_away(error) => State::Rejected,
            Some(_) => State::Failed,
        };
        let answered = |ms: f64| Some(ms * 1e3).filter(|_| state == State::Completed);
        let between: f64 = itls[i].iter().sum();
        let e2e = at(&r.latencies, i).unwrap_or(ttfts[i] + between);
        Sent {
            planned: at(&r.queue_times, i).map(|waited| starts[i] - waited),
            at: starts[i],
            ttft: answered(ttfts[i]),
            e2e: answered(e2e),
            tpot: tpot(answered(e2e - ttfts[i]), Some(lens[i])),
            longest_gap: largest(itls[i].iter().map(|gap| gap * 1e3)).filter(|_| state == State::Completed),
            output_tokens: Some(lens[i]).filter(|_| state == State::Completed),
            state,
        }
    };
    let sent: Vec<Sent> = (0..starts.len()).map(request).collect();
    let rate = match &r.request_rate {
        Some(Rate::Number(rate)) => Some(*rate).filter(|r| r.is_finite()),
        Some(Rate::Word(_)) | None => None,
    };
    let process = match r.burstiness {
        Some(b) if b != 1.0 => Process::Gamma(b),
        _ => Process::Poisson,
    };
    Ok(Export {
        tool: Tool::VllmBench,
        version: None,
        name: String::new(),
        remarks: remarks(&r, &sent),
        model: r.model_id,
        declared: Declared {
            rate,
            process: rate.map(|_| process),
            count: Some(r.num_prompts),
            seconds: None,
            cap: r.max_concurrency,
        },
        sent,
        schema: SCHEMA,
        lag: None,
        reported: [
            (Figure::TtftP50, r.median_ttft_ms),
            (Figure::TtftP99, r.p99_ttft_ms),
            (Figure::TpotP50, r.median_tpot_ms),
            (Figure::E2eP50, r.median_e2el_ms),
            (Figure::E2eP99, r.p99_e2el_ms),
        ]
        .into_iter()
        .filter_map(|(figure, value)| Some(Reported { figure, value: value? }))
        .collect(),
    })
}

fn remarks(r: &Result_, sent: &[Sent]) -> Vec<String> {
    let mut found = Vec::new();
    let waited = sent.iter().filter_map(|s| Some(s.at - s.planned?)).fold(0.0, f64::max);
    if let Some(cap) = r.max_concurrency.filter(|_| waited > 0.1) {
        found.push(format!(
            "Requests waited up to {} for one of the client's {cap} slots. The tool's own TTFT and E2EL start after that wait.",
            fmt::duration(waited * 1e3)
        ));
    }
    let zeros = sent.iter().filter(|s| s.state != State::Completed).count();
    if zeros > 0 {
        found.push(format!("{zeros} requests that failed are kept with a TTFT of 0 and are left out here."));
    }
    if let Some((peak, cap)) = r.max_concurrent_requests.zip(r.max_concurrency).filter(|(p, c)| *p > *c as f64) {
        found.push(format!(
            "Its peak of {peak:.0} concurrent requests is counted by whole seconds; no more than {cap} can have been open."
        ));
    }
    found.push("Its goodput and throughput divide by the whole run, the last answer included, and not by the time of arrivals.".to_owned());
    found
}
