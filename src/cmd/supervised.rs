//! A server that another program starts: it tells where it listens, and ends when that program is gone.

use std::io::Read;
use std::net::SocketAddr;
use std::thread;

use tokio::sync::oneshot;

use super::say;

/// Prints where it listens, as one line of JSON on stdout.
pub(crate) fn announce(addresses: &[(&str, SocketAddr)]) {
    let fields = addresses.iter().map(|(name, address)| ((*name).to_owned(), address.to_string().into()));
    say(&serde_json::Value::Object(fields.collect()).to_string());
}

/// Resolves when stdin has ended: whoever holds its other end has closed it, or is gone.
pub(crate) async fn stdin_ended() -> std::io::Result<()> {
    let (tell, ended) = oneshot::channel();
    // It blocks until the end, so it has a thread of its own, which ends with the process at the latest.
    thread::Builder::new().name("stdin".into()).spawn(move || {
        let (mut stdin, mut buffer) = (std::io::stdin().lock(), [0u8; 256]);
        while stdin.read(&mut buffer).is_ok_and(|n| n > 0) {}
        // Nobody may wait for it any more.
        let _ = tell.send(());
    })?;
    // A thread that is gone without a word has read to the end too.
    let _ = ended.await;
    Ok(())
}
