//! The measurements.

use std::path::Path;
use std::sync::Arc;

use elasticserve_core::ledger::{LEDGER_FILE, Manifest, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::stats::quantile;
use elasticserve_core::time::Span;
use elasticserve_core::work::{Arrival, Plan, PlanTenant};
use elasticserve_load::{LoadConfig, Progress, Stop};
use serde_json::{Value, json};

use crate::process::{Serving, forget_peak, memory_kib};
use crate::tell;
use crate::truth::{self, Truth};

/// The bar for the p99 of the send lag.
const CLEAN_LAG: Span = Span::from_millis(1);
/// How long a rate is offered.
const OFFER_S: f64 = 2.0;
const FIRST_RATE: f64 = 500.0;
const MOST: f64 = 200_000.0;
/// How long each measured stream lasts, and its events per second.
const STREAM_S: u32 = 5;
const EVENTS_PER_S: u32 = 100;
/// Prompt tokens of every request.
const INPUT: u32 = 256;

struct Measured {
    manifest: Manifest,
    rows: Vec<Row>,
}

/// The highest clean rate against the null server, and the CPU of a request at it.
pub(crate) async fn null() -> Value {
    let server = Serving::start(&["null"]);
    let (mut clean, mut unclean) = (None, MOST);
    let mut rate = FIRST_RATE;
    while rate < unclean {
        match is_clean(&server, rate).await {
            Some(found) => (clean, rate) = (Some((rate, found)), rate * 2.0),
            None => unclean = rate,
        }
    }
    for _ in 0..3 {
        let between = f64::midpoint(clean.as_ref().map_or(0.0, |(rate, _)| *rate), unclean);
        match is_clean(&server, between).await {
            Some(found) => clean = Some((between, found)),
            None => unclean = between,
        }
    }
    server.end();
    let Some((rate, found)) = clean else {
        tell("no rate was clean: is the machine busy?");
        return json!({"highest_clean_per_s": 0});
    };
    tell(&format!("highest rate with a send lag below 1 ms at p99: {rate:.0}/s"));
    let mut told = found;
    told["highest_clean_per_s"] = rate.into();
    told
}

/// Whether a rate is clean, at the second try if need be: a stall of the machine is not the generator's.
async fn is_clean(server: &Serving, rate: f64) -> Option<Value> {
    for _ in 0..2 {
        let count = (OFFER_S * rate) as u32;
        let plan = plan(count, rate, 1);
        let Measured { manifest, rows } = offer(server, &plan).await;
        let end = manifest.end.unwrap();
        let lag = end.health.unwrap().send_lag;
        let answered = rows.iter().filter(|row| row.state == Terminal::Completed).count() as u32;
        let cpu_us = end.cpu.unwrap().as_secs_f64() * 1e6 / f64::from(count);
        let (p50, p99) = (lag.p50.unwrap(), lag.p99.unwrap());
        tell(&format!(
            "  {rate:>8.0}/s  send lag p50 {p50} p99 {p99}  answered {answered} of {count}  {cpu_us:.0} us CPU each"
        ));
        if answered == count && p99 <= CLEAN_LAG {
            return Some(json!({
                "send_lag_p50_ms": p50.as_millis_f64(), "send_lag_p99_ms": p99.as_millis_f64(),
                "cpu_us_per_request": cpu_us, "input_tokens": INPUT,
            }));
        }
    }
    None
}

/// The error of TTFT and gaps at so many streams.
pub(crate) async fn truth(streams: &[u32]) -> Value {
    let mut told = Vec::new();
    for count in streams {
        let file = tempfile::NamedTempFile::new().unwrap();
        let server = Serving::start(&["truth", file.path().to_str().unwrap(), "50", "10"]);
        // All streams begin within a second and last five.
        let plan = plan(*count, f64::from(*count), STREAM_S * EVENTS_PER_S);
        forget_peak();
        let before = memory_kib("VmRSS");
        let Measured { manifest, rows } = offer(&server, &plan).await;
        let memory = memory_kib("VmHWM").saturating_sub(before) as f64 / f64::from(*count);
        server.end();
        told.push(compare(*count, &manifest, &rows, &truth::read(file.path()), memory));
    }
    Value::Array(told)
}

fn compare(
    streams: u32,
    manifest: &Manifest,
    rows: &[Row],
    truths: &std::collections::BTreeMap<String, Truth>,
    memory: f64,
) -> Value {
    let (mut ttft, mut gaps, mut server_gaps) = (Vec::new(), Vec::new(), Vec::new());
    let completed: Vec<&Row> = rows.iter().filter(|row| row.state == Terminal::Completed).collect();
    for row in &completed {
        let Some(truth) = row.request_id.as_ref().and_then(|id| truths.get(id)) else { continue };
        let read = row.ttft_from_send().unwrap().as_nanos();
        ttft.push((read as f64 - truth.ttft_ns as f64) / 1e6);
        // A client that reads two events at once sees one gap of nothing: each is compared with its own.
        gaps.extend(
            row.gaps
                .iter()
                .zip(&truth.gaps_ns)
                .map(|(read, true_ns)| (read.as_nanos() as f64 - *true_ns as f64).abs() / 1e6),
        );
        server_gaps.extend(truth.gaps_ns.iter().map(|ns| *ns as f64 / 1e6));
    }
    let end = manifest.end.unwrap();
    let events = f64::from(STREAM_S * EVENTS_PER_S) * completed.len() as f64;
    let cpu_us = end.cpu.unwrap().as_secs_f64() * 1e6;
    let told = json!({
        "streams": streams, "completed": completed.len(), "compared": ttft.len(),
        "events_per_s_asked": streams * EVENTS_PER_S,
        "server_gap_ms": spread(server_gaps),
        "ttft_error_ms": spread(ttft), "gap_error_ms": spread(gaps),
        "cpu_us_per_request": cpu_us / completed.len().max(1) as f64, "cpu_us_per_event": cpu_us / events.max(1.0),
        "memory_kib_per_stream": memory,
        "peak_in_flight": end.peak_in_flight,
        "runtime_delay_p99_ms": end.health.and_then(|h| h.runtime_delay.p99).map(Span::as_millis_f64),
    });
    tell(&format!("{streams} streams: {told}"));
    told
}

/// So many streams open at once, an event a second each.
pub(crate) async fn open(streams: u32) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let server = Serving::start(&["truth", file.path().to_str().unwrap(), "1000", "1000"]);
    let rate = f64::from(streams) / 10.0;
    let plan = plan(streams, rate, 20);
    forget_peak();
    let before = memory_kib("VmRSS");
    let Measured { manifest, rows } = offer(&server, &plan).await;
    let memory = memory_kib("VmHWM").saturating_sub(before) as f64 / f64::from(streams);
    server.end();
    let completed = rows.iter().filter(|row| row.state == Terminal::Completed).count();
    let end = manifest.end.unwrap();
    let lag = end.health.unwrap().send_lag;
    let told = json!({
        "streams": streams, "completed": completed, "peak_in_flight": end.peak_in_flight,
        "send_lag_p99_ms": lag.p99.map(Span::as_millis_f64), "memory_kib_per_stream": memory,
        "cpu_s": end.cpu.map(Span::as_secs_f64),
        "descriptors_peak": end.health.and_then(|h| h.descriptors_peak),
    });
    tell(&format!("open streams: {told}"));
    told
}

fn spread(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |p| quantile(&values, p);
    json!({"n": values.len(), "p50": at(0.5), "p99": at(0.99), "max": values.last()})
}

fn plan(count: u32, rate: f64, output: u32) -> Plan {
    let arrival = |place: u32| Arrival {
        index: 0,
        at: Span::from_secs_f64(f64::from(place) / rate),
        tenant: 0,
        input: INPUT,
        output,
        prompt: u64::from(place),
    };
    let tenant = PlanTenant { name: "default".into(), share: 1.0, ..PlanTenant::default() };
    let window = Span::from_secs_f64(f64::from(count) / rate);
    Plan::recorded("constant", rate, window, vec![tenant], (0..count).map(arrival).collect()).unwrap()
}

async fn offer(server: &Serving, plan: &Plan) -> Measured {
    let folder = tempfile::tempdir().unwrap();
    let config = LoadConfig::new("bench", format!("http://{}", server.addr).parse().unwrap(), "m");
    let progress = Arc::new(Progress::new());
    let manifest = elasticserve_load::run(&config, plan, folder.path(), progress, Stop::new()).await.unwrap();
    Measured { manifest, rows: rows(folder.path()) }
}

fn rows(folder: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(folder.join(LEDGER_FILE)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
