//! Requests that two servers may read in two ways (S6). The cases are in `tests/corpus/smuggling`.

use std::path::Path;

use elasticserve_gateway::{Gateway, Service};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::support::gateway::settings;
use crate::support::raw::{Got, RawBackend};
use crate::support::soon;

const BODY: &str = r#"{"prompt":[1],"max_tokens":1}"#;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Expected {
    Refused,
    One,
    Both,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    expect: Expected,
    send: String,
    body: Option<String>,
    /// It is more than may come behind another request.
    #[serde(default)]
    alone: bool,
    /// It may be closed without a word.
    #[serde(default)]
    silent: bool,
}

#[derive(Deserialize)]
struct Cases {
    case: Vec<Case>,
}

/// How the bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AtOnce,
    ByteByByte,
    /// Behind a good request, in the same write.
    Pipelined,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/smuggling");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    files
        .iter()
        .flat_map(|file| toml::from_str::<Cases>(&std::fs::read_to_string(file).unwrap()).unwrap().case)
        .collect()
}

fn request(id: &str, more: &str) -> String {
    let length = BODY.len();
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: g\r\nx-request-id: {id}\r\n{more}content-length: {length}\r\n\r\n{BODY}"
    )
}

/// Fills in what a text of a case stands for.
fn filled(text: &str, id: &str) -> String {
    // Whoever serves it closes the connection, so that all trials end.
    let canary = request(&format!("canary-{id}"), "connection: close\r\n");
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: g\r\nx-request-id: {id}\r\n");
    [
        ("{head}", head),
        ("{body}", BODY.to_owned()),
        ("{length}", BODY.len().to_string()),
        ("{size}", format!("{:x}", BODY.len())),
        ("{canary}", canary.clone()),
        ("{n}", canary.len().to_string()),
        ("{x}", format!("{:x}", canary.len())),
        ("{id}", id.to_owned()),
        ("{fill}", "a".repeat(20_000)),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (name, value)| text.replace(name, &value))
}

impl Case {
    /// Sends it over a connection of its own, and gives the statuses of the answers once that is closed.
    async fn sent(&self, service: Service, mode: Mode, id: &str) -> Vec<u16> {
        let places_it = self.send.contains("{canary}");
        let canary = if places_it { "" } else { "{canary}" };
        let before = if mode == Mode::Pipelined { request(&format!("first-{id}"), "") } else { String::new() };
        let bytes = before + &filled(&format!("{}{canary}", self.send), id);
        // A pipe of one byte is read byte by byte.
        let room = if mode == Mode::ByteByByte { 1 } else { 1 << 20 };
        let (ours, theirs) = tokio::io::duplex(room);
        let mut serving = JoinSet::new();
        serving.spawn(async move { service.serve(theirs).await });
        let (mut reading, mut writing) = tokio::io::split(ours);
        let mut answer = Vec::new();
        let write = async {
            // The gateway may close before all of it is written.
            let _ = writing.write_all(bytes.as_bytes()).await;
        };
        let read = async { reading.read_to_end(&mut answer).await };
        let what = format!("the connection of '{}' {mode:?} is closed", self.name);
        let ((), _) = soon(&what, async { tokio::join!(write, read) }).await;
        let text = String::from_utf8_lossy(&answer);
        let heads = text.match_indices("HTTP/1.").map(|(at, _)| &text[at + "HTTP/1.x ".len()..]);
        let statuses = heads.map(|head| head[..3].parse().unwrap());
        statuses.filter(|status| *status != 100).collect()
    }

    /// Whether what came of it is what must, in words if it is not.
    fn judged(&self, mode: Mode, id: &str, statuses: &[u16], got: &[Got]) -> Result<(), String> {
        let ids: Vec<&str> = got.iter().flat_map(|got| got.values("x-request-id")).collect();
        let (first, canary) = (format!("first-{id}"), format!("canary-{id}"));
        let before: &[&str] = if mode == Mode::Pipelined { &[&first] } else { &[] };
        let after: &[&str] = match self.expect {
            Expected::Refused => &[],
            Expected::One => &[id],
            Expected::Both => &[id, &canary],
        };
        let expected = [before, after].concat();
        if ids != expected {
            return Err(format!("the backend got {ids:?}"));
        }
        let (good, rest) = statuses.split_at(expected.len().min(statuses.len()));
        let refused = rest.iter().all(|status| (400..500).contains(status));
        let ends = self.expect != Expected::Refused || self.silent || !rest.is_empty();
        if good.len() != expected.len() || good.iter().any(|status| *status != 200) || !refused || !ends {
            return Err(format!("the client got {statuses:?}"));
        }
        got.iter().zip(&expected).try_for_each(|(got, of)| {
            let own = self.body.as_deref().filter(|_| *of == id);
            framed_anew(got, &filled(own.unwrap_or(BODY), id))
        })
    }
}

/// Whether a backend's request has one framing, the gateway's.
fn framed_anew(got: &Got, body: &str) -> Result<(), String> {
    let length = body.len().to_string();
    let lengths: &[&str] = if body.is_empty() { &[] } else { &[&length] };
    let own_host = got.values("host").len() == 1 && got.values("host")[0].starts_with("127.0.0.1:");
    if got.values("content-length") != lengths || got.body != body.as_bytes() || !own_host {
        return Err(format!("the backend got {got:?}"));
    }
    for name in
        ["transfer-encoding", "trailer", "te", "upgrade", "http2-settings", "expect", "connection", "keep-alive"]
    {
        if !got.values(name).is_empty() {
            return Err(format!("the backend got {name}: {}", got.head));
        }
    }
    if got.head.contains("evil") { Err(format!("the backend got {}", got.head)) } else { Ok(()) }
}

#[tokio::test]
async fn nothing_is_read_in_two_ways_and_no_second_request_hides_in_a_first() {
    let backend = RawBackend::start(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}".to_vec()
    })
    .await;
    let mut raw = settings(&backend.addr.to_string(), 1000);
    // Long enough to send all of them a byte at a time on a busy machine.
    raw.timeouts.header = Some("8s".into());
    raw.timeouts.body = Some("8s".into());
    let gateway = Gateway::start(raw.check().unwrap()).await.unwrap();
    let cases = cases();
    assert!(cases.len() >= 60 && cases.iter().any(|case| case.expect == Expected::Both));
    let mut trials = JoinSet::new();
    for (n, case) in cases.iter().enumerate() {
        for mode in [Mode::AtOnce, Mode::ByteByByte, Mode::Pipelined] {
            if case.alone && mode == Mode::Pipelined {
                continue;
            }
            let (service, case, id) = (gateway.service().clone(), case.clone(), format!("c{n}-{mode:?}"));
            trials.spawn(async move {
                let statuses = case.sent(service, mode, &id).await;
                (case, mode, id, statuses)
            });
        }
    }
    let ended = trials.join_all().await;
    let got = backend.got();
    let problems: Vec<String> = ended
        .iter()
        .filter_map(|(case, mode, id, statuses)| {
            let of_it = |got: &&Got| {
                let ids = got.values("x-request-id");
                ids.iter().any(|of| of.strip_prefix("first-").or(of.strip_prefix("canary-")).unwrap_or(of) == id)
            };
            let own: Vec<Got> = got.iter().filter(of_it).cloned().collect();
            case.judged(*mode, id, statuses, &own).err().map(|problem| format!("{} {mode:?}: {problem}", case.name))
        })
        .collect();
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), ended.len(), problems.join("\n"));
    // Whatever has no id of a trial would be a request that nobody sent.
    let known = |got: &&Got| {
        got.values("x-request-id").iter().any(|id| ["c", "first-c"].iter().any(|start| id.starts_with(start)))
    };
    assert_eq!(got.iter().filter(known).count(), got.len());
    assert!(ended.len() >= 180);
    assert_eq!(gateway.service().load().1, [(0, 1000)]);
    gateway.stop().await;
}
