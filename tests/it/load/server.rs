//! A server that does to each request what the test says, byte by byte.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What to do next to a request.
#[derive(Clone)]
pub(crate) enum Act {
    /// Send bytes.
    Send(String),
    /// Do nothing until the test ends or the client leaves.
    Hang,
    /// Close the connection.
    Close,
    /// Close it with a reset.
    Reset,
    /// Hold up the whole thread.
    BlockThread(std::time::Duration),
    /// Do nothing for so long.
    Pause(std::time::Duration),
    /// Do nothing until so many requests have come.
    AwaitRequests(usize),
    /// Do nothing until the test says so.
    AwaitSignal,
    /// Do what the test says.
    Do(Arc<dyn Fn() + Send + Sync>),
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: String,
    /// How many requests its connection carried before.
    pub(crate) before: usize,
}

impl Received {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.split_once(": ").filter(|(n, _)| *n == name).map(|(_, value)| value))
    }

    /// Its place in the plan, by its request id.
    pub(crate) fn index(&self) -> usize {
        self.header("x-request-id").unwrap().rsplit('-').next().unwrap().trim_start_matches('w').parse().unwrap()
    }

    pub(crate) fn is_warmup(&self) -> bool {
        self.header("x-request-id").unwrap().contains("-w")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A server that stops when it is dropped.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    seen: watch::Receiver<(usize, usize)>,
    signal: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

type Script = Box<dyn Fn(&Received) -> Vec<Act> + Send + Sync>;

struct Shared {
    script: Script,
    received: Arc<Mutex<Vec<Received>>>,
    /// Requests that came, and connections that clients left.
    seen: watch::Sender<(usize, usize)>,
    signal: watch::Receiver<bool>,
}

impl Server {
    /// Starts a server that answers each POST as `script` says and each GET with 404.
    pub(crate) async fn start(script: impl Fn(&Received) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (tell, seen) = watch::channel((0, 0));
        let (signal, told) = watch::channel(false);
        let shared =
            Arc::new(Shared { script: Box::new(script), received: Arc::clone(&received), seen: tell, signal: told });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { addr, received, seen, signal, _tasks: tasks }
    }

    /// Lets go on what awaits the signal.
    pub(crate) fn signal(&self) {
        self.signal.send_replace(true);
    }

    /// The requests so far, in the order in which they came.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until so many requests have come.
    pub(crate) async fn has_received(&self, count: usize) {
        self.seen.clone().wait_for(|seen| seen.0 >= count).await.unwrap();
    }

    /// Waits until clients have left so many connections while a request was open.
    pub(crate) async fn was_left(&self, count: usize) {
        self.seen.clone().wait_for(|seen| seen.1 >= count).await.unwrap();
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut before = 0;
    while let Some((head, body)) = read_request(&mut stream).await {
        if head.starts_with("GET ") {
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
            continue;
        }
        let request = Received { head, body, before };
        let acts = (shared.script)(&request);
        shared.received.lock().unwrap().push(request);
        shared.seen.send_modify(|seen| seen.0 += 1);
        before += 1;
        for act in acts {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(bytes.as_bytes()).await.is_err() {
                        return;
                    }
                }
                Act::Hang => {
                    let _ = stream.read(&mut [0]).await;
                    shared.seen.send_modify(|seen| seen.1 += 1);
                    return;
                }
                Act::Close => return,
                Act::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
                Act::BlockThread(time) => std::thread::sleep(time),
                Act::Pause(time) => tokio::time::sleep(time).await,
                Act::AwaitRequests(count) => {
                    shared.seen.subscribe().wait_for(|seen| seen.0 >= count).await.unwrap();
                }
                Act::AwaitSignal => {
                    shared.signal.clone().wait_for(|told| *told).await.unwrap();
                }
                Act::Do(what) => what(),
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length =
                head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Some((head, String::from_utf8(bytes[end + 4..].to_vec()).unwrap()));
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// A head of an answer that is sent in chunks.
pub(crate) fn head(status: &str, headers: &str) -> Act {
    Act::Send(format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n{headers}\r\n"))
}

pub(crate) const STREAM: &str = "content-type: text/event-stream\r\n";

/// A chunk of a body.
pub(crate) fn chunk(bytes: &str) -> Act {
    Act::Send(format!("{:x}\r\n{bytes}\r\n", bytes.len()))
}

/// The proper end of a chunked body.
pub(crate) fn end() -> Act {
    Act::Send("0\r\n\r\n".to_owned())
}

/// An event with data.
pub(crate) fn event(data: &str) -> Act {
    chunk(&format!("data: {data}\n\n"))
}

/// An event with a token of text.
pub(crate) fn token() -> Act {
    event(r#"{"choices":[{"text":" hi","finish_reason":null}]}"#)
}

/// The events that end a whole answer of so many tokens.
pub(crate) fn finish(tokens: u32) -> Vec<Act> {
    let usage = format!(r#"{{"choices":[],"usage":{{"prompt_tokens":4,"completion_tokens":{tokens}}}}}"#);
    vec![event(r#"{"choices":[{"text":"","finish_reason":"length"}]}"#), event(&usage), event("[DONE]"), end()]
}

/// A whole streamed answer of two tokens.
pub(crate) fn answer() -> Vec<Act> {
    [vec![head("200 OK", STREAM), token(), token()], finish(2)].concat()
}

/// A whole answer with a body of known length.
pub(crate) fn whole(status: &str, headers: &str, body: &str) -> Vec<Act> {
    vec![Act::Send(format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()))]
}
