//! The accept loop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::connection::{self, Ending};
use crate::files;
use crate::proxy::Shared;

/// After an accept that failed, most likely for want of a file descriptor, wait until some are free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a connection beyond the limit is told.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
x-elasticserve-reason: too_many_connections\r\ncontent-length: 0\r\n\r\n";

/// Accepts clients until it is aborted. While the gateway drains it goes on, so that who comes is told.
pub(crate) async fn accept(listener: TcpListener, shared: Arc<Shared>, connections: TaskTracker, ending: Ending) {
    loop {
        let (stream, peer) = match accept_one(&listener).await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let config = shared.config();
        // Only this loop adds connections, so what is counted here cannot grow meanwhile.
        if connections.len() >= (config.max_connections as usize).min(files::room_for_clients()) {
            shared.metrics.connection_refused();
            // Who comes next may find room.
            if shared.crowd.make_room() {
                shared.metrics.connection_evicted();
            }
            turn_away(&stream);
            continue;
        }
        let header_timeout = config.timeouts.header.to_std();
        let (served, ending) = (Arc::clone(&shared), ending.clone());
        let serving = async move {
            let peer = Some(peer.ip());
            let Some(tls) = &config.tls else {
                return connection::serve(served, stream, peer, header_timeout, ending).await;
            };
            match ending.cut.clone().run_until_cancelled(tls.accept(stream)).await {
                Some(Ok(stream)) => connection::serve(served, stream, peer, header_timeout, ending).await,
                Some(Err(error)) => {
                    tracing::debug!(%error, "TLS handshake failed");
                    served.metrics.handshake_failed();
                }
                None => {}
            }
        };
        let metrics = Arc::clone(&shared.metrics);
        let tracker = connections.clone();
        connections.spawn(async move {
            metrics.connections_are(tracker.len());
            serving.await;
            metrics.connections_are(tracker.len().saturating_sub(1));
        });
    }
}

/// A client's connection with Nagle's algorithm off, so that each event leaves at once.
async fn accept_one(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept().await?;
    // This fails only for a connection that is lost already, which serving it will find out.
    let _ = stream.set_nodelay(true);
    Ok((stream, peer))
}

fn turn_away(stream: &TcpStream) {
    // A fresh socket's buffer has room for it; a client that cannot take it is closed all the same.
    let _ = stream.try_write(TOO_MANY);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_from_clients_send_small_writes_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (accepted, _client) = tokio::join!(accept_one(&listener), client);
        assert!(accepted.unwrap().0.nodelay().unwrap());
    }
}
