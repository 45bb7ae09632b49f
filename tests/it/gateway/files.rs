//! A gateway that has hardly any files left to open (R16).

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::failures::read_request;
use crate::support::backend::Backend;
use crate::support::client::{Client, Lasting, completion};
use crate::support::process::Process;
use crate::support::soon;

const TRIALS: usize = 5;
const CONNECTIONS: usize = 200;
/// How long they are held.
const HELD: Duration = Duration::from_secs(5);

/// Where there is room for 16 clients: half of what 64 files leave beyond a half.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_few_files_clients_beyond_them_are_turned_away_and_streams_and_probes_go_on() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // This process holds the other ends.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let mut trials = JoinSet::new();
    for _ in 0..TRIALS {
        trials.spawn(crowd());
    }
    while let Some(trial) = trials.join_next().await {
        trial.unwrap();
    }
}

async fn crowd() {
    let (mut backend, addr) = Backend::on_tcp().await;
    let text = format!("[[backends]]\nurl = 'http://{addr}'\n");
    let gateway = Process::start_by("ulimit -n 64; exec \"$0\" \"$@\"", &text, true).await;
    let data = gateway.data;
    let mut live = JoinSet::new();
    live.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().rest().await });
    let streaming = backend.call().await.stream();
    streaming.event("1");

    let (cpu, began) = (gateway.cpu(), Instant::now());
    let mut crowd = JoinSet::new();
    for _ in 0..CONNECTIONS {
        crowd.spawn(async move {
            let mut stream = TcpStream::connect(data).await.unwrap();
            let mut said = String::new();
            // One that finds room stays until another one needs it.
            let _ = stream.read_to_string(&mut said).await;
            said
        });
    }
    for _ in 0..CONNECTIONS - 15 {
        let said = soon("who finds no room is told", crowd.join_next()).await.unwrap().unwrap();
        assert!(said.is_empty() || said.contains("too_many_connections"), "{said}");
    }
    let of = async |name: &str| gateway.metric(&format!("elasticserve_{name}")).await.unwrap();
    // One that is told makes one leave that says nothing, for who comes next.
    let told = of("refused_connections_total").await + of("evicted_connections_total").await;
    assert!(told >= (CONNECTIONS - 15) as f64, "{told}");
    soon("no more than there is room for are open", async { while of("connections").await > 16.0 {} }).await;
    tokio::time::sleep(HELD.saturating_sub(began.elapsed())).await;
    streaming.event("2");
    assert_eq!(gateway.get("/readyz").await.0, 200);
    let (used, held) = (gateway.cpu() - cpu, began.elapsed());
    assert!(used < held / 5, "{used:?} of CPU in {held:?}");

    drop(crowd);
    gateway.until_metric("elasticserve_connections", 1.0).await;
    let mut again = JoinSet::new();
    again.spawn(async move { Client::tcp(data).await.send(completion("")).await.unwrap().status });
    backend.call().await.json("{}");
    assert_eq!(soon("it serves again", again.join_next()).await.unwrap().unwrap(), 200);
    streaming.event("[DONE]");
    streaming.finish();
    let (bytes, whole) = soon("the stream ends", live.join_next()).await.unwrap().unwrap();
    assert!(whole && bytes == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n");
    gateway.signal("TERM").await;
    let (status, log) = gateway.ended().await;
    assert!(status.success() && log.contains("open files are limited"), "{log}");
}

#[tokio::test]
async fn a_backend_is_not_blamed_for_a_gateway_without_a_file_for_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut backend = JoinSet::new();
    // Each request and each probe needs a connection of its own.
    backend.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if read_request(&mut stream).await.is_some() {
                let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
                stream.write_all(answer).await.unwrap();
            }
        }
    });
    let text = format!(
        "[[backends]]\nurl = 'http://{addr}'\n[health]\nfailures = 2\nprobes = 1\ninterval = '10ms'\nopen = '60s'\n"
    );
    let gateway = Process::start(&text, &[], &[]).await;
    let mut client = Lasting::tcp(gateway.data).await;
    let mut ask = async || {
        let answer = client.ask(completion("")).await.unwrap();
        let (status, body) = (answer.status().as_u16(), answer.into_body().collect().await.unwrap().to_bytes());
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    assert_eq!(ask().await, (200, "{}".to_owned()));
    // Whatever is open stays so; nothing is added.
    gateway.limit_files(Some(3));
    for _ in 0..10 {
        let (status, said) = ask().await;
        assert!(status == 502 && said.contains("Too many open files"), "{status} {said}");
        // Time for a probe or two.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.limit_files(None);
    assert_eq!(ask().await.0, 200);
    let of = |name: &str| format!("elasticserve_backend_{name}{{pool=\"default\",backend=\"{addr}\"}}");
    assert_eq!(gateway.metric(&of("breaker")).await, Some(0.0));
    assert_eq!(gateway.metric(&of("up")).await, Some(1.0));
}
