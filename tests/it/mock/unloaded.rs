//! One request at a time against the published measurements.

use std::time::Instant;

use elasticserve_core::engine::Profile;
use elasticserve_mock::{MockConfig, Server};
use serde_json::json;

use super::client::Client;
use super::{ANY_PORT, MODEL};

const PUBLISHED: &str = include_str!("../../../reference/spark-gb10.toml");
/// Whole answers at each point.
const REPEATS: u32 = 2;
/// Answers of one token at each point: a first token is soon disturbed by whatever else the machine does.
const FIRST_TOKENS: u32 = 12;

/// Milliseconds from the client's send: first token, time per output token, last token.
#[derive(Copy, Clone, Debug)]
struct Times {
    ttft: f64,
    tpot: f64,
    e2e: f64,
}

struct Point {
    input: u32,
    output: u32,
    p95: Times,
}

/// The published figures are the 95th percentiles of an idle server, which hardly vary. The mock's
/// delays do not vary at all, so whatever differs between repeats is the machine that runs the test,
/// and the smallest time is the mock's own.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "how far off it is, with --nocapture")]
async fn an_idle_mock_takes_the_times_that_were_published() {
    let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    let config = MockConfig { profile, speed: 1.0, model: None, max_model_len: 8192 };
    let server = Server::bind(config, ANY_PORT).await.unwrap();
    let mut client = Client::connect(server.addr()).await;
    let points = published();
    assert_eq!(points.len(), 4);
    for point in points.iter().enumerate() {
        let (before, point) = (point.0.checked_sub(1).map_or(0, |i| points[i].input), point.1);
        let mut best = Times { ttft: f64::MAX, tpot: f64::MAX, e2e: f64::MAX };
        for repeat in 0..REPEATS + FIRST_TOKENS {
            let output = if repeat < REPEATS { point.output } else { 1 };
            // As published: each prompt goes on where the point before ended, so that part is cached.
            let (times, cached) = measure(&mut client, repeat, point.input, output).await;
            assert_eq!(cached, u64::from(before));
            best.ttft = best.ttft.min(times.ttft);
            if output == point.output {
                best.tpot = best.tpot.min(times.tpot);
                best.e2e = best.e2e.min(times.e2e);
            }
        }
        for (name, measured, published) in
            [("TTFT", best.ttft, point.p95.ttft), ("TPOT", best.tpot, point.p95.tpot), ("E2E", best.e2e, point.p95.e2e)]
        {
            let off = measured / published - 1.0;
            println!(
                "{}/{} {name}: {measured:.2} ms, published {published} ms: {:+.2} %",
                point.input,
                point.output,
                off * 100.0
            );
            assert!(off.abs() <= 0.05, "{name} at {}/{}: {measured} ms", point.input, point.output);
        }
    }
    drop(client);
    server.shutdown().await;
}

/// Sends the first tokens of the endless prompt of this number; the times, and how many were cached.
async fn measure(client: &mut Client, family: u32, input: u32, output: u32) -> (Times, u64) {
    let prompt: Vec<u32> = (0..input).map(|i| family * 10_000 + i).collect();
    let options = json!({ "include_usage": true });
    let body = json!({
        "model": MODEL, "prompt": prompt, "max_tokens": output, "ignore_eos": true,
        "stream": true, "stream_options": options,
    });
    let sent = Instant::now();
    let since = || sent.elapsed().as_secs_f64() * 1000.0;
    let mut stream = client.stream("/v1/completions", &body).await;
    let mut ends = Vec::new();
    let mut last = String::new();
    while let Some(event) = stream.next().await.unwrap().filter(|e| e != "[DONE]") {
        ends.push(since());
        last = event;
    }
    // The event with the counts comes right behind the last token's.
    ends.pop();
    assert_eq!(ends.len(), output as usize);
    let usage = serde_json::from_str::<serde_json::Value>(&last).unwrap()["usage"].clone();
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let (ttft, e2e) = (ends[0], ends[ends.len() - 1]);
    (Times { ttft, tpot: (e2e - ttft) / f64::from(output.max(2) - 1), e2e }, cached)
}

fn published() -> Vec<Point> {
    let tables = PUBLISHED.split("[[unloaded]]").skip(1);
    let read = |table: &str| {
        let value = |key: &str| -> f64 {
            let line = table.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
            line.unwrap().trim().parse().unwrap()
        };
        Point {
            input: value("input") as u32,
            output: value("output") as u32,
            p95: Times { ttft: value("ttft_p95"), tpot: value("tpot_p95"), e2e: value("e2e_p95") },
        }
    };
    tables.map(read).collect()
}
