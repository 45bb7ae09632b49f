//! A server that streams tokens at a set pace and writes down when it wrote each.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::process::{announce, wait_for_end};

/// What the server says of one answer, in nanoseconds.
#[derive(Serialize, Deserialize)]
pub(crate) struct Truth {
    /// The request's id.
    pub(crate) id: String,
    /// From the last byte of the request to the first token.
    pub(crate) ttft_ns: u64,
    /// Between the writes of consecutive tokens.
    pub(crate) gaps_ns: Vec<u64>,
}

/// The rows of a file, by id.
pub(crate) fn read(file: &Path) -> BTreeMap<String, Truth> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str::<Truth>(line).unwrap()).map(|row| (row.id.clone(), row)).collect()
}

#[derive(Copy, Clone)]
struct Pace {
    first: Duration,
    gap: Duration,
}

/// Serves until the input ends; then the file is whole.
pub(crate) fn serve(file: PathBuf, pace: &[&str]) {
    let ms = |place: usize, otherwise: u64| pace.get(place).map_or(otherwise, |word| word.parse().unwrap());
    let pace = Pace { first: Duration::from_millis(ms(0, 50)), gap: Duration::from_millis(ms(1, 10)) };
    let (rows, taken) = channel::<Truth>();
    let writer = std::thread::spawn(move || {
        let mut out = std::io::BufWriter::new(std::fs::File::create(file).unwrap());
        for row in taken {
            writeln!(out, "{}", serde_json::to_string(&row).unwrap()).unwrap();
        }
        out.flush().unwrap();
    });
    // One thread: what is left of the machine is the client's.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    announce(listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn_on(
        async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection(stream, pace, rows.clone()));
            }
        },
        runtime.handle(),
    );
    wait_for_end();
    drop(serving);
    runtime.shutdown_timeout(Duration::from_secs(1));
    writer.join().unwrap();
}

async fn connection(mut stream: TcpStream, pace: Pace, rows: Sender<Truth>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    while let Some((head, body)) = request(&mut stream).await? {
        if head.starts_with("GET ") {
            // Other tools ask whether it is well, and what it serves, before they begin.
            let models = r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                models.len()
            );
            stream.write_all(format!("{head}{models}").as_bytes()).await?;
            continue;
        }
        let asked = Instant::now();
        let id = header(&head, "x-request-id").unwrap_or_default().to_owned();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let tokens = body["max_tokens"].as_u64().or_else(|| body["max_completion_tokens"].as_u64()).unwrap_or(100);
        let is_chat = head.contains("/chat/");
        let start = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-request-id: {id}\r\n\r\n"
        );
        stream.write_all(start.as_bytes()).await?;
        let event = event(is_chat);
        let mut written = Vec::with_capacity(tokens as usize);
        for place in 0..tokens {
            let due = asked + pace.first + pace.gap * place as u32;
            tokio::time::sleep_until(due.into()).await;
            // The time is that of the hand-over: the client cannot have it earlier.
            written.push(Instant::now());
            stream.write_all(event.as_bytes()).await?;
        }
        stream.write_all(end(is_chat, tokens).as_bytes()).await?;
        let gaps_ns = written.windows(2).map(|pair| (pair[1] - pair[0]).as_nanos() as u64).collect();
        let ttft_ns = written.first().map_or(0, |first| (*first - asked).as_nanos() as u64);
        let _ = rows.send(Truth { id, ttft_ns, gaps_ns });
    }
    Ok(())
}

async fn request(stream: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length: usize = header(&head, "content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                return Ok(Some((head, bytes[end + 4..end + 4 + length].to_vec())));
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn chunk(data: &str) -> String {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

fn event(is_chat: bool) -> String {
    chunk(if is_chat {
        r#"{"id":"t","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" hi"},"finish_reason":null}]}"#
    } else {
        r#"{"id":"t","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" hi","finish_reason":null}]}"#
    })
}

fn end(is_chat: bool, tokens: u64) -> String {
    let last = if is_chat { r#""delta":{}"# } else { r#""text":"""# };
    let finish = format!(
        r#"{{"id":"t","created":1,"model":"m","choices":[{{"index":0,{last},"finish_reason":"length"}}],"usage":{{"prompt_tokens":1,"completion_tokens":{tokens},"total_tokens":{}}}}}"#,
        tokens + 1
    );
    format!("{}{}0\r\n\r\n", chunk(&finish), chunk("[DONE]"))
}
