//! The mock engine server over real sockets.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test that cannot go on says so")]

mod answers;
mod client;
mod leaving;
mod limits;
mod unloaded;

use std::net::SocketAddr;

use elasticserve_core::engine::Profile;
use elasticserve_mock::{Limits, MockConfig, Server};

const MODEL: &str = "Qwen3-8B-FP8";
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// An engine with so many seats and a step of about 2 ms.
fn config(max_seqs: u32) -> MockConfig {
    let profile = Profile { max_seqs, ..Profile::built_in("gb10-qwen3-8b-fp8").unwrap() };
    MockConfig { profile, speed: 20.0, model: None, max_model_len: 8192 }
}

async fn server(max_seqs: u32) -> Server {
    Server::bind_with(config(max_seqs), Limits::default(), ANY_PORT).await.unwrap()
}
