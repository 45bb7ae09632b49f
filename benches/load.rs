//! What the load generator can do, and how far its readings are from the truth.
//!
//! `cargo bench --bench load` (or `scripts/load-bench`) runs, against servers in processes of their own,
//!
//! - the highest rate whose send lag has a p99 below 1 ms, against a server that costs nothing, with the
//!   CPU of a request;
//! - at 100, 1,000 and 3,000 streams of 100 events per second, the error of TTFT and of each gap: the
//!   client's reading less the server's own, with the CPU of an event and the memory of a stream;
//! - 10,000 streams open at once.
//!
//! A table goes to stderr and JSON to stdout. Parts: `null`, `truth`, `open`; for example
//! `cargo bench --bench load -- truth 100 1000`.
//!
//! The servers can be started alone for other tools: `cargo bench --bench load -- serve null`, or
//! `serve truth FILE [FIRST_MS GAP_MS]`, print their address and end with their input; the truth server
//! then has written a row of its own times for each answer to FILE.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

#[path = "load/measure.rs"]
mod measure;
#[path = "load/process.rs"]
mod process;
#[path = "load/truth.rs"]
mod truth;

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    // `cargo test --benches` calls every bench with `--test`, to see that it starts.
    if args.iter().any(|a| a == "--test") {
        return;
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", "null"] => process::serve_null(),
        ["serve", "truth", file, ref pace @ ..] => truth::serve(PathBuf::from(file), pace),
        [] => say(&json!({
            "null": run(measure::null()),
            "truth": run(measure::truth(&[100, 1000, 3000])),
            "open": run(measure::open(10_000)),
        })),
        ["null"] => say(&json!({"null": run(measure::null())})),
        ["truth", ref streams @ ..] => say(&json!({"truth": run(measure::truth(&numbers(streams)))})),
        ["open", streams] => say(&json!({"open": run(measure::open(streams.parse().unwrap()))})),
        _ => tell("parts: null | truth STREAMS… | open STREAMS | serve null | serve truth FILE [FIRST_MS GAP_MS]"),
    }
}

fn numbers(words: &[&str]) -> Vec<u32> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}

fn say(value: &Value) {
    let _ = writeln!(std::io::stdout().lock(), "{value:#}");
}

pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
