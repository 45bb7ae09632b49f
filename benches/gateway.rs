//! What the gateway adds to a request, measured against a direct connection in the same run.
//!
//! `cargo bench --bench gateway` starts a backend that costs nothing (in this process) and the gateway (the
//! release binary, in a process of its own), and prints
//!
//! - at a fixed open rate, TTFT and gaps between events, direct and through the gateway, in turns;
//! - in a closed loop, the gateway's own CPU time per request, from `/proc`;
//! - the gateway's resident memory, idle and with 1,000 open streams.
//!
//! Latencies on a shared machine are noisy: read them as a pair. CPU time per request is robust.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

#[path = "gateway/backend.rs"]
mod backend;
#[path = "gateway/process.rs"]
mod process;
#[path = "gateway/traffic.rs"]
mod traffic;

use std::io::Write;
use std::time::Duration;

use backend::Backend;
use process::GatewayProcess;
use traffic::{Kind, closed_loop, open_loop, open_streams};

/// Events in a stream, as an answer of 16 tokens has them.
const EVENTS: usize = 19;
/// Between two events of a paced stream.
const PACE: Duration = Duration::from_millis(5);
const ROUNDS: usize = 3;
const OPEN_FOR: Duration = Duration::from_secs(4);
const CLOSED_REQUESTS: usize = 20_000;
const CLOSED_CLIENTS: usize = 32;
const STREAMS: usize = 1_000;

fn main() {
    // `cargo test --benches` calls every bench with `--test`, to see that it starts.
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run());
}

async fn run() {
    let backend = Backend::start(EVENTS, PACE).await;
    let gateway = GatewayProcess::start(backend.addr()).await;
    say(&format!("{:<44} {:>9} {:>9} {:>7}", "", "direct", "gateway", "ratio"));
    for rate in [200, 1000] {
        let mut direct = traffic::Latencies::default();
        let mut through = traffic::Latencies::default();
        for _ in 0..ROUNDS {
            direct.extend(open_loop(backend.addr(), rate, OPEN_FOR, Kind::PacedStream).await);
            through.extend(open_loop(gateway.addr(), rate, OPEN_FOR, Kind::PacedStream).await);
        }
        say(&format!("open loop, {rate} streams/s of {EVENTS} events {PACE:?} apart, n = {}", direct.ttft.len()));
        for (name, p) in [("p50", 0.5), ("p99", 0.99)] {
            pair(&format!("  TTFT {name}, ms"), direct.ttft(p), through.ttft(p));
        }
        for (name, p) in [("p50", 0.5), ("p99", 0.99)] {
            pair(&format!("  gap between events {name}, ms"), direct.gap(p), through.gap(p));
        }
    }
    for (name, kind) in [("plain answers", Kind::Plain), ("streams, all events at once", Kind::Stream)] {
        let before = gateway.cpu();
        let took = closed_loop(gateway.addr(), CLOSED_CLIENTS, CLOSED_REQUESTS, kind).await;
        let cpu = (gateway.cpu() - before).as_secs_f64();
        let direct = closed_loop(backend.addr(), CLOSED_CLIENTS, CLOSED_REQUESTS, kind).await;
        let n = CLOSED_REQUESTS as f64;
        say(&format!("closed loop, {CLOSED_CLIENTS} clients, {CLOSED_REQUESTS} {name}"));
        say(&format!("  gateway CPU per request, us {:>35.1}", cpu / n * 1e6));
        say(&format!("  requests per gateway CPU second {:>31.0}", n / cpu));
        pair("  requests/s (all share this machine)", n / direct.as_secs_f64(), n / took.as_secs_f64());
    }
    let idle = gateway.resident_mib();
    let streams = open_streams(gateway.addr(), STREAMS).await;
    let open = gateway.resident_mib();
    say(&format!("gateway memory, MiB: {idle:.1} after the load above, {open:.1} with {} open streams", streams.len()));
    drop(streams);
    gateway.stop().await;
}

fn pair(what: &str, direct: f64, gateway: f64) {
    say(&format!("{what:<44} {direct:>9.3} {gateway:>9.3} {:>7.2}", gateway / direct));
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}
