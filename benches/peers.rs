//! A server that costs nothing and clients, for measuring any gateway that speaks the OpenAI API over HTTP/1.1.
//!
//! `scripts/gateway-peers` runs it. Each part is a process of its own, on one thread:
//!
//! - `serve` prints its address and answers until its input ends;
//! - `closed ADDR SHAPE CLIENTS SECONDS` sends on each of so many connections, the next request after the last answer;
//! - `open ADDR DIRECT SHAPE RATE SECONDS ROUNDS` sends at a fixed rate, in turns to the server itself and to ADDR;
//! - `hold ADDR STREAMS` opens so many streams, says so, and keeps them until its input ends.
//!
//! A SHAPE is `plain`, or `burst:EVENTS`, `single:EVENTS` or `paced:EVENTS:MS`: all events at once, one write each, or
//! so many milliseconds apart. Words with a `=` in them are more headers. Results are JSON on stdout.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a benchmark that cannot go on stops")]

#[path = "peers/client.rs"]
mod client;
#[path = "peers/server.rs"]
mod server;
#[path = "peers/shape.rs"]
mod shape;

use std::io::{Read, Write};

use client::Target;
use serde_json::{Value, json};
use shape::Shape;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    // `cargo test --benches` calls every bench with `--test`, to see that it starts.
    if args.iter().any(|a| a == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(&args));
}

async fn run(args: &[String]) {
    let (headers, words): (Vec<&str>, Vec<&str>) = args.iter().map(String::as_str).partition(|word| word.contains('='));
    let target = |addr: &str| Target::new(addr.parse().unwrap(), &headers);
    match words[..] {
        ["serve"] => {
            let (addr, _serving) = server::start().await;
            say(&json!(addr.to_string()));
            end_of_input().await;
        }
        ["closed", addr, shape, clients, seconds] => {
            let clients = clients.parse().unwrap();
            say(&client::closed(target(addr), Shape::parse(shape), clients, seconds.parse().unwrap()).await);
        }
        ["open", addr, direct, shape, rate, seconds, rounds] => {
            let targets = [Target::new(direct.parse().unwrap(), &[]), target(addr)];
            let (rate, seconds) = (rate.parse().unwrap(), seconds.parse().unwrap());
            say(&client::open(targets, Shape::parse(shape), rate, seconds, rounds.parse().unwrap()).await);
        }
        ["hold", addr, streams] => {
            let (held, problem) = client::hold(&target(addr), streams.parse().unwrap()).await;
            say(&json!({"open": held.len(), "problem": problem}));
            end_of_input().await;
        }
        _ => say(&json!("parts: serve | closed | open | hold; see benches/peers.rs")),
    }
}

async fn end_of_input() {
    let reading = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    reading.await.unwrap().unwrap();
}

fn say(value: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).unwrap();
}
