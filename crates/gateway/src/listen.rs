//! The accept loop.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::connection::{self, Ending};
use crate::proxy::Shared;

/// After an accept that failed, most likely for want of a file descriptor, wait until some are free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a connection beyond the limit is told.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
x-elasticserve-reason: too_many_connections\r\ncontent-length: 0\r\n\r\n";

/// Accepts clients until it is aborted. While the gateway drains it goes on, so that who comes is told.
pub(crate) async fn accept(listener: TcpListener, shared: Arc<Shared>, connections: TaskTracker, ending: Ending) {
    let slots = Arc::new(Semaphore::new(shared.config.max_connections as usize));
    let header_timeout = shared.config.timeouts.header.to_std();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            shared.metrics.connection_refused();
            turn_away(stream);
            continue;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "connection lost before it was served");
            continue;
        }
        let serving = connection::serve(Arc::clone(&shared), stream, header_timeout, ending.clone());
        let metrics = Arc::clone(&shared.metrics);
        let tracker = connections.clone();
        connections.spawn(async move {
            metrics.connections_are(tracker.len());
            serving.await;
            drop(slot);
            metrics.connections_are(tracker.len().saturating_sub(1));
        });
    }
}

fn turn_away(stream: TcpStream) {
    // A fresh socket's buffer has room for it; a client that cannot take it is closed all the same.
    let _ = stream.try_write(TOO_MANY);
}
