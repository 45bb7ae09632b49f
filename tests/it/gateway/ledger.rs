//! The gateway's counters and the generator's ledger tell the same story of the same run, outcome by outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use elasticserve_core::ledger::{LEDGER_FILE, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{Arrival, Plan, PlanTenant};
use elasticserve_gateway::Gateway;
use elasticserve_gateway::config::{RawAdmission, RawConfig, RawPredict, RawSlo, RawTenant};
use elasticserve_load::{LoadConfig, Progress, Stop};
use elasticserve_report::{Summary, read_run};
use tokio::task::JoinSet;

use crate::support::backend::{Backend, Call, header};
use crate::support::client::{Client, get};
use crate::support::gateway::on_sockets;
use crate::support::soon;

const ARRIVALS: u32 = 160;
const GAP: Span = Span::from_millis(16);
/// Three seats and this long for each answer are 50 answers a second, of 62 that are asked for.
const HOLD: Duration = Duration::from_millis(60);
/// What the client gives up after. Only what the backend never answers takes so long.
const PATIENCE: Span = Span::from_secs(3);
/// Of a tenant whose answers are always late, though not by what is predicted.
const LATE: Span = Span::from_millis(40);
const TENANTS: [&str; 5] = ["plain", "bounded", "hopeless", "limited", "late"];

fn slo_of(tenant: &str) -> Slo {
    match tenant {
        "hopeless" => Slo { ttft: Some(Span::from_millis(1)), ..Slo::default() },
        "late" => Slo { e2e: Some(LATE), ..Slo::default() },
        _ => Slo::default(),
    }
}

fn configure(raw: &mut RawConfig) {
    let ms = |limit: Option<Span>| limit.map(|limit| format!("{}ms", limit.as_millis_f64()));
    let tenant = |name: &str| {
        let slo = slo_of(name);
        RawTenant {
            name: name.into(),
            max_queued: (name == "bounded").then_some(1),
            requests_per_minute: (name == "limited").then_some(6),
            slo: Some(RawSlo { ttft: ms(slo.ttft), tpot: None, e2e: ms(slo.e2e) }),
            ..RawTenant::default()
        }
    };
    raw.tenants = Some(TENANTS.map(tenant).to_vec());
    raw.queue.depth = Some(4);
    raw.queue.admission = Some(RawAdmission::Predict);
    raw.predict = RawPredict {
        overhead: Some("2ms".into()),
        prefill_per_token: Some("0".into()),
        first_token_steps: Some(1),
        idle_tpot: Some("1ms".into()),
        pad: Some("0".into()),
        ..RawPredict::default()
    };
    // The backend fails on purpose and stays in use.
    (raw.health.failures, raw.health.probes) = (Some(1_000_000), Some(1_000_000));
}

fn plan() -> Plan {
    let arrivals = (0..ARRIVALS).map(|index| {
        let (at, tenant) = (GAP * u64::from(index), (index % TENANTS.len() as u32) as u16);
        Arrival { index, at, tenant, input: 16, output: 2, prompt: u64::from(index) }
    });
    let tenants = TENANTS.map(|name| PlanTenant::new(name, 1.0, slo_of(name))).to_vec();
    Plan::recorded("test", 1.0, GAP * u64::from(ARRIVALS), tenants, arrivals.collect()).unwrap()
}

/// Answers as the request's place in the plan has it, until the task is dropped.
async fn answer_all(mut backend: Backend) {
    let (mut answers, mut left) = (JoinSet::new(), BTreeSet::new());
    while let Some(call) = backend.next_call().await {
        if call.head.uri.path() != "/v1/completions" {
            call.respond(404, &[]).finish();
            continue;
        }
        let id = header(&call.head.headers, "x-request-id").unwrap();
        let index: u32 = id.rsplit('-').next().unwrap().parse().unwrap();
        match index % 8 {
            // Once for each; its client then asks again.
            6 if index % 40 == 6 && left.insert(index) => {
                answers.spawn(async move { { call }.abandoned().await });
            }
            // No head at all.
            7 => drop(call),
            kind => {
                answers.spawn(answer(call, kind));
            }
        }
    }
}

async fn answer(call: Call, kind: u32) {
    tokio::time::sleep(HOLD).await;
    if kind == 4 {
        call.respond(500, &[]).finish();
        return;
    }
    let responding = call.stream();
    let token = r#"{"choices":[{"text":" a","finish_reason":null}]}"#;
    responding.event(token);
    responding.event(token);
    if kind == 5 {
        responding.break_off();
        return;
    }
    responding.event(r#"{"choices":[{"text":"","finish_reason":"length"}]}"#);
    responding.event(r#"{"choices":[],"usage":{"prompt_tokens":16,"completion_tokens":2}}"#);
    responding.event("[DONE]");
    responding.finish();
}

/// How the gateway must have counted an attempt that ended so for the client.
fn outcome(row: &Row) -> String {
    match row.state {
        Terminal::Completed => "finished".into(),
        // Its own answers say why; the backend's do not.
        Terminal::Rejected | Terminal::HttpError => row.reason.clone().unwrap_or("backend_error".into()),
        Terminal::StreamError | Terminal::Truncated => "backend_failed".into(),
        Terminal::TimeoutTtft => "client_gone".into(),
        other => panic!("nothing should end as {other}: {row:?}"),
    }
}

fn result(row: &Row) -> &'static str {
    let by_client = || if row.is_good(&slo_of(&row.tenant)) { "met" } else { "missed" };
    match outcome(row).as_str() {
        "finished" => by_client(),
        "backend_error" | "backend_failed" => "missed",
        "client_gone" => "cancelled",
        _ => "rejected",
    }
}

/// The series of a family by their labels.
fn family(metrics: &str, name: &str) -> BTreeMap<String, u64> {
    let series = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')?.split_once("} "));
    series.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap())).collect()
}

async fn metrics(gateway: &Gateway) -> String {
    let mut answer = Client::tcp(gateway.admin_addr()).await.send(get("/metrics")).await.unwrap();
    String::from_utf8(answer.rest().await.0).unwrap()
}

/// What the rows add up to, by labels.
fn counted<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    label: impl Fn(&Row) -> String,
    of: impl Fn(&Row) -> u64,
) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in rows {
        *sums.entry(label(row)).or_default() += of(row);
    }
    sums
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counters_of_the_gateway_are_those_of_the_ledger_outcome_by_outcome() {
    let (gateway, backend) = on_sockets(3, configure).await;
    let mut answers = JoinSet::new();
    answers.spawn(answer_all(backend));
    let url = format!("http://{}", gateway.data_addr()).parse().unwrap();
    let mut config = LoadConfig { ignore_eos: true, retries: 1, ..LoadConfig::new("test", url, "m") };
    config.timeouts.ttft = PATIENCE;
    config.headers = vec![("x-elasticserve-queue-budget-ms".parse().unwrap(), "100".parse().unwrap())];
    let folder = tempfile::tempdir().unwrap();
    let progress = Arc::new(Progress::new());
    soon("the run ends", elasticserve_load::run(&config, &plan(), folder.path(), progress, Stop::new())).await.unwrap();
    let text = std::fs::read_to_string(folder.path().join(LEDGER_FILE)).unwrap();
    let rows: Vec<Row> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();

    // A client that leaves is noticed a moment later.
    let ended = async {
        loop {
            let metrics = metrics(&gateway).await;
            if family(&metrics, "elasticserve_slo_results_total").values().sum::<u64>() >= rows.len() as u64 {
                break metrics;
            }
        }
    };
    let metrics = soon("all has ended for the gateway too", ended).await;
    let labelled = |name: &str, value: &str, row: &Row| format!("tenant=\"{}\",{name}=\"{value}\"", row.tenant);
    let one = |_: &Row| 1;

    let mut outcomes = family(&metrics, "elasticserve_requests_total");
    outcomes.retain(|labels, _| !labels.contains("passed_by"));
    let by_outcome = |row: &Row| labelled("outcome", &outcome(row), row);
    assert_eq!(outcomes, counted(&rows, by_outcome, one));
    let by_result = |row: &Row| labelled("result", result(row), row);
    assert_eq!(family(&metrics, "elasticserve_slo_results_total"), counted(&rows, by_result, one));
    let again = rows.iter().filter(|row| row.attempt > 0);
    let mut retries = family(&metrics, "elasticserve_retries_total");
    // Also those of which there is none, and those of the tenant for who names none.
    assert_eq!(retries.len(), 4 * (TENANTS.len() + 1));
    retries.retain(|_, count| *count > 0);
    assert_eq!(retries, counted(again, by_result, one));

    let completed = || rows.iter().filter(|row| row.state == Terminal::Completed);
    let of = |direction: &str| {
        let all = family(&metrics, "elasticserve_tokens_total").into_iter();
        all.filter(|(labels, _)| labels.contains(direction)).collect::<BTreeMap<_, _>>()
    };
    let tokens = |row: &Row| u64::from(row.output_tokens.unwrap());
    assert_eq!(of("output"), counted(completed(), |row| labelled("direction", "output", row), tokens));
    let tokens = |row: &Row| u64::from(row.input_tokens.unwrap());
    assert_eq!(of("input"), counted(completed(), |row| labelled("direction", "input", row), tokens));
    for histogram in ["ttft", "tpot", "e2e"] {
        let mut seen = family(&metrics, &format!("elasticserve_{histogram}_seconds_count"));
        seen.retain(|_, count| *count > 0);
        let by_tenant = |row: &Row| format!("tenant=\"{}\"", row.tenant);
        assert_eq!(seen, counted(completed(), by_tenant, one), "{histogram}");
    }

    // Attempts are apart from demand on both sides, and the same.
    let summary = Summary::of(&read_run(folder.path()).unwrap());
    let sum = |name| family(&metrics, name).values().sum::<u64>();
    let (attempts, retries) = (sum("elasticserve_slo_results_total"), sum("elasticserve_retries_total"));
    assert_eq!((attempts, retries), (summary.attempts.into(), summary.retries.into()));
    assert_eq!(attempts - retries, u64::from(summary.figures.planned));

    let seen: BTreeSet<String> = rows.iter().map(outcome).collect();
    for due in [
        "finished",
        "queue_full",
        "queue_expired",
        "tenant_limit",
        "slo_infeasible",
        "rate_limit_exceeded",
        "backend_error",
        "backend_failed",
        "client_gone",
    ] {
        assert!(seen.contains(due), "{due} is not among {seen:?}");
    }
    let late = rows.iter().filter(|row| row.tenant == "late" && row.state == Terminal::Completed).count();
    assert!(late > 0 && retries > 20, "{late} {retries}");
}
