//! A backend that reads and writes bytes, by the plainest rules that there are.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What a backend got: a head without its last empty line, and as many bytes as its one length says.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    /// The values of a header.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

/// It takes what follows a request for the next one, whatever that is.
pub(crate) struct RawBackend {
    pub(crate) addr: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    _tasks: JoinSet<()>,
}

type Answer = Arc<dyn Fn(&Got) -> Vec<u8> + Send + Sync>;

impl RawBackend {
    /// Answers each request with the bytes that `answer` gives, and probes with 200.
    pub(crate) async fn start(answer: impl Fn(&Got) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let (log, answer): (_, Answer) = (Arc::clone(&got), Arc::new(answer));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                connections.spawn(serve(stream, Arc::clone(&log), Arc::clone(&answer)));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { addr, got, _tasks: tasks }
    }

    /// All that has come so far, but for probes.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(mut stream: TcpStream, log: Arc<Mutex<Vec<Got>>>, answer: Answer) {
    let mut bytes = Vec::new();
    loop {
        let Some(got) = take(&mut bytes) else {
            if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                return;
            }
            continue;
        };
        let probe = got.head.starts_with("GET /health ");
        let told = if probe { b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec() } else { answer(&got) };
        if !probe {
            log.lock().unwrap_or_else(PoisonError::into_inner).push(got);
        }
        if stream.write_all(&told).await.is_err() {
            return;
        }
    }
}

/// Takes a request off the bytes, once it is there.
fn take(bytes: &mut Vec<u8>) -> Option<Got> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let mut got = Got { head: String::from_utf8_lossy(&bytes[..end]).into_owned(), body: Vec::new() };
    let length = got.values("content-length").first().map_or(0, |text| text.parse().unwrap());
    let body = bytes.get(end + 4..end + 4 + length)?.to_vec();
    got.body = body;
    bytes.drain(..end + 4 + length);
    Some(got)
}
