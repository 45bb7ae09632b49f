//! The direct run of the published saturation rows, over real sockets: the mock's throughput is the published one.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on says so")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use elasticserve_core::engine::Profile;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{Arrival, Plan, PlanTenant};
use elasticserve_load::{LoadConfig, Progress, Stop};
use elasticserve_mock::{MockConfig, Server};
use elasticserve_report::{Summary, read_run};

/// The engine, the plan and so the published rate, all so many times faster.
const SPEED: f64 = 4.0;
const ARRIVALS: &str = include_str!("../../reference/traces/vllm_bench_seed7_n200_unit_rate.csv");
const REFERENCE: &str = include_str!("../../reference/spark-gb10.toml");

/// A row of the published table.
fn published_throughput(offered: f64) -> f64 {
    let reference: toml::Table = REFERENCE.parse().unwrap();
    let rows = reference["saturation"].as_array().unwrap();
    let number = |v: &toml::Value| v.as_float().or_else(|| v.as_integer().map(|i| i as f64)).unwrap();
    let row = rows.iter().find(|row| (number(&row["offered"]) - offered).abs() < 1e-9).unwrap();
    number(&row["throughput"])
}

fn plan(rate: f64) -> Plan {
    let arrival = |(i, line): (usize, &str)| {
        let at = line.split(',').nth(1).unwrap().parse::<f64>().unwrap() / rate;
        Arrival { index: 0, at: Span::from_secs_f64(at), tenant: 0, input: 256, output: 64, prompt: i as u64 }
    };
    let arrivals: Vec<Arrival> = ARRIVALS.lines().skip(1).enumerate().map(arrival).collect();
    recorded(rate, Span::from_secs_f64(arrivals.len() as f64 / rate), arrivals).sped_up(SPEED)
}

fn recorded(rate: f64, window: Span, arrivals: Vec<Arrival>) -> Plan {
    let tenants = vec![PlanTenant::new("default", 1.0, Slo::default())];
    Plan::recorded("published", rate, window, tenants, arrivals).unwrap()
}

async fn offer(server: &Server, plan: &Plan, folder: &Path) -> Summary {
    let mut load = LoadConfig::new("direct", format!("http://{}", server.addr()).parse().unwrap(), "");
    load.ignore_eos = true;
    // Without a salt a prompt is the same each time, as it was for the published client.
    load.salt = None;
    elasticserve_load::run(&load, plan, folder, Arc::new(Progress::new()), Stop::new()).await.unwrap();
    Summary::of(&read_run(folder).unwrap())
}

/// Completions per second until the last one, in the engine's own time, with `warm` prompts known before.
async fn throughput(rate: f64, warm: usize) -> f64 {
    let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    let config = MockConfig { profile, speed: SPEED, model: None, max_model_len: 8192 };
    let server = Server::bind(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(rate);
    if warm > 0 {
        let gap = Span::from_millis(10);
        let once = plan.arrivals().iter().take(warm);
        let once = once.map(|a| Arrival { at: gap * u64::from(a.index), output: 1, ..*a }).collect();
        let primed = offer(&server, &recorded(100.0, gap * warm as u64, once), &folder.path().join("priming")).await;
        assert_eq!(primed.figures.completed as usize, warm);
    }
    let summary = offer(&server, &plan, &folder.path().join("direct")).await;
    server.shutdown().await;
    assert_eq!((summary.figures.completed, summary.reconciled), (200, true));
    summary.completed_per_s.unwrap() / SPEED
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_direct_run_at_8_and_16_requests_per_second_has_the_published_throughput() {
    // As the published runs met the prefix cache: a quarter of the prompts known at 8/s, all of them at 16/s.
    for (rate, warm) in [(8.0, 50), (16.0, 200)] {
        let (measured, published) = (throughput(rate, warm).await, published_throughput(rate));
        let error = measured / published - 1.0;
        assert!(
            error.abs() <= 0.05,
            "{rate}/s: {measured:.2} where {published} was published: {:+.1} %",
            error * 100.0
        );
    }
}
