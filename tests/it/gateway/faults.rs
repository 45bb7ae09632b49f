//! Ways in which a backend fails on the wire: what a client sees of each from a backend alone, and beside a well one.

use std::net::SocketAddr;

use elasticserve_core::outcome::How;
use elasticserve_gateway::Gateway;
use elasticserve_gateway::config::RawConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::backend::header;
use crate::support::client::{Client, completion};
use crate::support::gateway::nowhere;
use crate::support::until;

const TRIALS: usize = 50;

/// What a backend does with a request.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Fault {
    Refuse,
    Reset,
    CloseMidHeader,
    CloseMidChunk,
    HalfClose,
    ShortLength,
    Stall,
    Garbage,
    EarlyHints,
    Status(u16),
    HugeHeader,
    WrongType,
    SlowAccept,
}

/// What a client sees of it.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Seen {
    /// A whole answer with this status.
    Whole(u16),
    /// A head, and a body that never ends cleanly.
    Aborted,
}

const FAULTS: [(Fault, Seen, Seen); 14] = [
    (Fault::Refuse, Seen::Whole(502), Seen::Whole(200)),
    (Fault::Reset, Seen::Whole(502), Seen::Whole(200)),
    (Fault::CloseMidHeader, Seen::Whole(502), Seen::Whole(200)),
    (Fault::CloseMidChunk, Seen::Aborted, Seen::Aborted),
    (Fault::HalfClose, Seen::Whole(502), Seen::Whole(200)),
    (Fault::ShortLength, Seen::Aborted, Seen::Aborted),
    (Fault::Stall, Seen::Whole(504), Seen::Whole(200)),
    (Fault::Garbage, Seen::Whole(502), Seen::Whole(200)),
    (Fault::EarlyHints, Seen::Whole(200), Seen::Whole(200)),
    (Fault::Status(500), Seen::Whole(500), Seen::Whole(200)),
    (Fault::Status(429), Seen::Whole(429), Seen::Whole(429)),
    (Fault::HugeHeader, Seen::Whole(502), Seen::Whole(200)),
    (Fault::WrongType, Seen::Whole(200), Seen::Whole(200)),
    (Fault::SlowAccept, Seen::Whole(200), Seen::Whole(200)),
];

const WELL: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 14\r\n\r\ndata: [DONE]\n\n";

#[tokio::test]
async fn every_fault_is_told_as_it_is_by_a_backend_alone_and_healed_beside_a_well_one_before_the_first_byte() {
    for (fault, alone, beside) in FAULTS {
        let mut servers = JoinSet::new();
        let bad = serve(&mut servers, fault).await;
        let well = serve(&mut servers, Fault::EarlyHints).await;
        for (backends, expected) in [(vec![bad], alone), (vec![bad, well], beside)] {
            let gateway = start(&backends).await;
            let mut clients = JoinSet::new();
            let addr = gateway.data_addr();
            for _ in 0..TRIALS {
                clients.spawn(async move { ask(addr).await });
            }
            let (mut of_bad, mut as_expected) = (0, 0);
            while let Some(answer) = clients.join_next().await {
                let (seen, backend) = answer.unwrap();
                let from_well = backend == "1";
                of_bad += usize::from(!from_well);
                // What the well one answers from the first is whole, whatever the other does.
                let good = seen == expected || from_well && seen == Seen::Whole(200);
                assert!(good, "{fault:?} of {} backends: {seen:?} by {backend}, not {expected:?}", backends.len());
                as_expected += usize::from(seen == expected);
            }
            assert!(as_expected >= TRIALS / 4, "{fault:?} of {} was seen {as_expected} times", backends.len());
            let heals = backends.len() == 2 && alone != expected;
            assert_eq!(of_bad == 0, heals, "{fault:?}: {of_bad} by the bad one of {}", backends.len());
            until("the permits are back", || gateway.service().load().1.iter().all(|(n, _)| *n == 0)).await;
            gateway.service().audit().unwrap();
            let totals = gateway.service().totals();
            assert_eq!(totals.moved > 0, heals, "{fault:?}: {totals:?}");
            let failed = totals.released.get(&How::BackendFailed).copied().unwrap_or(0);
            let fails = matches!(expected, Seen::Aborted | Seen::Whole(502 | 504));
            assert_eq!(failed, if fails { of_bad as u64 } else { 0 }, "{fault:?}: {totals:?}");
            gateway.stop().await;
        }
    }
}

async fn start(backends: &[SocketAddr]) -> Gateway {
    // Neither probes nor the breaker take a backend out here.
    let mut text = "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n\
         [health]\nprobes = 1000000\nfailures = 1000000\n[timeouts]\nhead = '2s'\nidle = '2s'\n"
        .to_owned();
    for addr in backends {
        text.push_str(&format!("[[backends]]\nurl = 'http://{addr}'\npermits = 64\n"));
    }
    Gateway::start(RawConfig::from_toml(&text).unwrap().check().unwrap()).await.unwrap()
}

async fn ask(addr: SocketAddr) -> (Seen, String) {
    let mut answer = Client::tcp(addr).await.send(completion("")).await.unwrap();
    let backend = header(&answer.headers, "x-elasticserve-backend").unwrap().to_owned();
    let (_, ended) = answer.rest().await;
    (if ended { Seen::Whole(answer.status.as_u16()) } else { Seen::Aborted }, backend)
}

/// A server with a fault, and its address.
async fn serve(servers: &mut JoinSet<()>, fault: Fault) -> SocketAddr {
    if fault == Fault::Refuse {
        return nowhere().await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    servers.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(connection(stream, fault));
        }
    });
    addr
}

async fn connection(mut stream: TcpStream, fault: Fault) {
    while let Some(head) = super::failures::read_request(&mut stream).await {
        let is_probe = head.starts_with("GET /health");
        if is_probe {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            continue;
        }
        let mut say = async |text: &str| stream.write_all(text.as_bytes()).await.is_ok();
        match fault {
            Fault::Refuse | Fault::Reset => {
                stream.set_zero_linger().unwrap();
                return;
            }
            Fault::CloseMidHeader => {
                say("HTTP/1.1 200 OK\r\ncontent-ty").await;
                return;
            }
            Fault::CloseMidChunk => {
                say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\ndata: {}").await;
                return;
            }
            Fault::HalfClose => {
                let _ = stream.shutdown().await;
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
                return;
            }
            Fault::ShortLength => {
                say("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"a\":1").await;
                return;
            }
            Fault::Stall => {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
                return;
            }
            Fault::Garbage => {
                say("\u{1}\u{2}what is this\r\n\r\n").await;
                return;
            }
            Fault::EarlyHints => {
                say(&format!("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n{WELL}")).await;
            }
            Fault::Status(status) => {
                say(&format!("HTTP/1.1 {status} Well\r\ncontent-length: 0\r\n\r\n")).await;
            }
            Fault::HugeHeader => {
                say(&format!("HTTP/1.1 200 OK\r\nx-huge: {}\r\n\r\n", "h".repeat(200_000))).await;
                return;
            }
            Fault::WrongType => {
                say("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 3\r\n\r\n<p>").await;
            }
            Fault::SlowAccept => {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                say(WELL).await;
            }
        }
    }
}
