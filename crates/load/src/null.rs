//! A server that costs next to nothing: what is left of a measurement against it is the client's own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The most bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;

const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"text\":\" x\",\"delta\":{\"content\":\" x\"},\
    \"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
const WHOLE: &str = "{\"choices\":[{\"index\":0,\"text\":\" x\",\"message\":{\"content\":\" x\"},\
    \"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}";

/// A null server on loopback: every request gets one token at once. It runs on a thread of its own, so
/// that it shares no reactor with the client. Dropping it ends it.
#[derive(Debug)]
pub struct NullServer {
    addr: SocketAddr,
    _stop: DropGuard,
}

impl NullServer {
    /// Serves on a free port, streamed answers or whole ones.
    ///
    /// # Errors
    /// An [`io::Error`] if there is no port or thread.
    pub fn start(streaming: bool) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let answer: Arc<[u8]> = answer(streaming).into_bytes().into();
        thread::Builder::new().name("load-null".into()).spawn(move || {
            // Without a listener the client is refused, which it reports.
            runtime.block_on(stopped.run_until_cancelled(accept(listener, answer)))
        })?;
        Ok(Self { addr, _stop: stop.drop_guard() })
    }

    /// Where it serves.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

fn answer(streaming: bool) -> String {
    let (kind, body) = if streaming { ("text/event-stream", EVENTS) } else { ("application/json", WHOLE) };
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn accept(listener: std::net::TcpListener, answer: Arc<[u8]>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(serve(stream, Arc::clone(&answer)));
            }
            // How a connection ends concerns its client only.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<[u8]>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::with_capacity(16 << 10);
    loop {
        match request_length(&bytes)? {
            Some(length) if bytes.len() >= length => {
                bytes.drain(..length);
                stream.write_all(&answer).await?;
            }
            _ => {
                if stream.read_buf(&mut bytes).await? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// The length of the first request with its body; `None` while its head is not whole.
fn request_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return if bytes.len() > MAX_HEAD { Err(io::ErrorKind::InvalidData.into()) } else { Ok(None) };
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let body = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") { value.trim().parse::<usize>().ok() } else { None }
    });
    Ok(Some(end + 4 + body.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_body() {
        assert_eq!(request_length(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab").unwrap(), Some(41));
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n\r\nrest").unwrap(), Some(18));
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n").unwrap(), None);
        assert!(request_length(&vec![b'x'; MAX_HEAD + 1]).is_err());
    }
}
