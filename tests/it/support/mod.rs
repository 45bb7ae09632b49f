//! Peers for the gateway: a backend that does what the test says, and a client that sees bytes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test that cannot go on says so")]

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod engine;
pub(crate) mod gateway;
pub(crate) mod process;
pub(crate) mod raw;

use std::future::Future;
use std::time::Duration;

/// Long enough for a busy machine; reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How often something is tried: `usual` times, or `all` where the environment has `ELASTICSERVE_ALL_TRIALS`.
pub(crate) fn trials(usual: u64, all: u64) -> u64 {
    if std::env::var_os("ELASTICSERVE_ALL_TRIALS").is_some() { all } else { usual }
}

/// Tells a figure to who looks, with `--nocapture`.
#[expect(clippy::print_stderr, reason = "figures that a test measures beside its bounds")]
pub(crate) fn tell(figure: &str) {
    eprintln!("{figure}");
}

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("this did not happen within {PATIENCE:?}: {what}"),
    }
}

/// Waits until a condition holds, giving way to other tasks in between.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    })
    .await;
}
