//! The load generator against servers that answer, hang, refuse and break.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test that cannot go on says so")]

mod command;
mod content;
mod models;
mod omission;
mod scenario;
pub(crate) mod server;
mod states;
mod tls;
mod truth;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elasticserve_core::ledger::{LEDGER_FILE, MANIFEST_FILE, Manifest, Row, Timeouts};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{Arrival, Plan, PlanTenant};
use elasticserve_load::{LoadConfig, LoadError, Progress, Stop};
use tempfile::TempDir;

use server::{Act, Received, Server, answer};

const HOUR: Span = Span::from_secs(3600);
/// Long enough for a busy machine; reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A plan of arrivals at the given times, of 16 input and 2 output tokens.
fn plan(times: impl IntoIterator<Item = Span>) -> Plan {
    let arrival = |(prompt, at)| Arrival { index: 0, at, tenant: 0, input: 16, output: 2, prompt };
    let arrivals: Vec<Arrival> = (100u64..).zip(times).map(arrival).collect();
    let tenant = PlanTenant::new("default", 1.0, Slo::default());
    Plan::recorded("test", 1.0, Span::from_millis(1), vec![tenant], arrivals).unwrap()
}

fn at_once(count: usize) -> Plan {
    plan(std::iter::repeat_n(Span::ZERO, count))
}

/// A run against `server` that gives up on nothing by itself.
fn config(server: &Server) -> LoadConfig {
    let mut config = LoadConfig::new("test", format!("http://{}", server.addr).parse().unwrap(), "m");
    config.ignore_eos = true;
    config.timeouts = Timeouts { connect: HOUR, ttft: HOUR, idle: HOUR, total: HOUR, drain: HOUR };
    config
}

/// A run that can be watched and stopped while it goes.
struct Load {
    folder: TempDir,
    progress: Arc<Progress>,
    stop: Stop,
}

impl Load {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), progress: Arc::new(Progress::new()), stop: Stop::new() }
    }

    async fn run(&self, config: &LoadConfig, plan: &Plan) -> Result<Manifest, LoadError> {
        let run =
            elasticserve_load::run(config, plan, self.folder.path(), Arc::clone(&self.progress), self.stop.clone());
        tokio::time::timeout(PATIENCE, run).await.expect("the run does not end")
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.folder.path())
    }
}

/// The rows of a ledger in the order of the plan. Every line must be whole.
fn rows(folder: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(folder.join(LEDGER_FILE)).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is not complete: {text}");
    let mut rows: Vec<Row> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.sort_by_key(|row| row.index);
    rows
}

fn states(rows: &[Row]) -> Vec<Terminal> {
    rows.iter().map(|row| row.state).collect()
}

/// Runs a plan to its end.
async fn ended(config: &LoadConfig, plan: &Plan) -> (Manifest, Vec<Row>) {
    let load = Load::new();
    let manifest = load.run(config, plan).await.unwrap();
    let indices: Vec<u32> = load.rows().iter().map(|row| row.index).collect();
    assert_eq!(indices, (0..plan.header().count).collect::<Vec<_>>(), "each arrival has one row");
    (manifest, load.rows())
}

fn hang(_: &Received) -> Vec<Act> {
    vec![Act::Hang]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answers_gets_every_request_and_a_second_interrupt_cuts_them() {
    let server = Server::start(hang).await;
    let (load, config) = (Load::new(), config(&server));
    let plan = plan((0..40).map(Span::from_millis));
    let interrupt = async {
        server.has_received(40).await;
        load.stop.press();
        load.stop.press();
    };
    let (manifest, ()) = tokio::join!(load.run(&config, &plan), interrupt);
    let end = manifest.unwrap().end.unwrap();
    assert!(end.interrupted);
    assert_eq!((end.peak_in_flight, end.connections), (40, 40));
    let rows = load.rows();
    assert_eq!(states(&rows), vec![Terminal::Censored; 40]);
    for row in &rows {
        assert_eq!(row.planned.as_nanos(), u64::from(row.index) * 1_000_000, "a planned time never moves");
        assert!(row.planned <= row.send_started.unwrap() && row.send_started <= row.end);
        assert!(row.request_written.is_some() && row.first_byte.is_none(), "{row:?}");
    }
}

#[tokio::test]
async fn what_is_open_when_the_drain_ends_is_censored() {
    let server = Server::start(hang).await;
    let mut config = config(&server);
    config.timeouts.drain = Span::from_millis(50);
    let (manifest, rows) = ended(&config, &at_once(3)).await;
    assert!(!manifest.end.unwrap().interrupted);
    assert_eq!(states(&rows), [Terminal::Censored; 3]);
}

#[tokio::test]
async fn an_interrupt_lets_open_answers_end_and_accounts_for_what_was_never_sent() {
    let server = Server::start(|_| answer()).await;
    let (load, config) = (Load::new(), config(&server));
    let plan = plan([Span::ZERO, Span::ZERO, Span::ZERO, HOUR, HOUR]);
    let interrupt = async {
        server.has_received(3).await;
        load.stop.press();
    };
    let (manifest, ()) = tokio::join!(load.run(&config, &plan), interrupt);
    assert!(manifest.unwrap().end.unwrap().interrupted);
    let rows = load.rows();
    use Terminal::{Completed, UnsentAbort};
    assert_eq!(states(&rows), [Completed, Completed, Completed, UnsentAbort, UnsentAbort]);
    assert_eq!((rows[4].send_started, rows[4].end, rows[4].planned.as_nanos()), (None, None, HOUR.as_nanos()));
    assert_eq!((load.progress.offered(), load.progress.completed(), load.progress.in_flight()), (3, 3, 0));
}

#[tokio::test]
async fn a_row_is_a_whole_line_on_disk_while_the_run_goes_on() {
    let server = Server::start(|_| answer()).await;
    let (load, config) = (Load::new(), config(&server));
    let plan = plan([Span::ZERO, HOUR]);
    let look = async {
        while load.rows().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(states(&load.rows()), [Terminal::Completed]);
        let manifest = std::fs::read_to_string(load.folder.path().join(MANIFEST_FILE)).unwrap();
        let manifest: Manifest = serde_json::from_str(&manifest).unwrap();
        assert_eq!((manifest.end, manifest.plan.count), (None, 2), "the manifest does not claim an end");
        load.stop.press();
    };
    let (ended, ()) = tokio::join!(load.run(&config, &plan), look);
    ended.unwrap();
    assert_eq!(load.rows().len(), 2);
}

#[tokio::test]
async fn late_arrivals_are_sent_at_once_and_their_lag_is_recorded() {
    // One thread runs everything, and the first request holds it up.
    let block = Duration::from_millis(300);
    let server = Server::start(move |request| {
        let wait = (request.index() == 0).then_some(Act::BlockThread(block));
        wait.into_iter().chain(answer()).collect()
    })
    .await;
    let plan = plan((0..100).map(|i| Span::from_millis(5 * i)));
    let (_, rows) = ended(&config(&server), &plan).await;
    assert_eq!(states(&rows), vec![Terminal::Completed; 100]);
    let most = rows.iter().map(|row| row.send_lag().unwrap()).max().unwrap();
    assert!(most >= Span::from_millis(100), "{most}");
    let waits = |row: &Row| row.ttft().unwrap() >= row.ttft_from_send().unwrap() + row.send_lag().unwrap();
    assert!(rows.iter().all(waits), "latency from the plan holds the lag");
}

#[tokio::test]
async fn a_plan_run_twice_has_one_hash_and_one_set_of_bodies_unless_salted() {
    let server = Server::start(|_| answer()).await;
    let plain = config(&server);
    let mut hashes = Vec::new();
    let mut prompts = Vec::new();
    for salt in [None, None, Some("a"), Some("b")] {
        let config = LoadConfig { salt: salt.map(str::to_owned), ..plain.clone() };
        let before = server.received().len();
        let (manifest, _) = ended(&config, &at_once(8)).await;
        assert_eq!(manifest.prompts_salted, salt.is_some());
        hashes.push(manifest.plan_hash);
        let mut received = server.received()[before..].to_vec();
        received.sort_by_key(Received::index);
        prompts.push(received.into_iter().map(|r| r.body).collect::<Vec<_>>());
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]));
    assert_eq!(prompts[0], prompts[1]);
    // 16 tokens are one block of a prefix cache: none is shared.
    let mut blocks: Vec<&String> = prompts[1..].iter().flatten().collect();
    blocks.sort();
    blocks.dedup();
    assert_eq!(blocks.len(), 3 * 8);
}

#[tokio::test]
async fn warm_ups_come_before_the_run_have_prompts_of_their_own_and_are_in_no_row() {
    let server = Server::start(|_| answer()).await;
    let config = LoadConfig { warmups: 4, ..config(&server) };
    let (manifest, rows) = ended(&config, &at_once(3)).await;
    let received = server.received();
    assert_eq!(
        received.iter().map(Received::is_warmup).collect::<Vec<_>>(),
        [true, true, true, true, false, false, false]
    );
    let mut prompts: Vec<String> = received.iter().map(|r| r.json()["prompt"].to_string()).collect();
    prompts.sort();
    prompts.dedup();
    assert_eq!((prompts.len(), rows.len(), manifest.warmups), (7, 3, 4));
    let opened = rows.iter().filter(|row| row.reused_connection == Some(false)).count();
    assert_eq!(manifest.end.unwrap().connections as usize, opened, "connections of the warm-ups are not counted");
}

#[tokio::test]
async fn a_kept_connection_that_the_server_has_closed_is_replaced_once() {
    // Every second request of a connection meets a close without a byte.
    let server = Server::start(|request| if request.before == 0 { answer() } else { vec![Act::Close] }).await;
    let (_, rows) = ended(&config(&server), &plan((0..30).map(|i| Span::from_millis(20 * i)))).await;
    assert_eq!(states(&rows), vec![Terminal::Completed; 30]);
    let resent: Vec<&Row> = rows.iter().filter(|row| row.error.is_some()).collect();
    assert!(!resent.is_empty(), "no connection was used twice");
    assert!(resent.iter().all(|row| row.reused_connection == Some(false)));
    assert_eq!(server.received().len(), 30 + resent.len());
}

#[tokio::test]
async fn a_new_connection_that_breaks_is_not_replaced() {
    let server = Server::start(|_| vec![Act::Close]).await;
    let (_, rows) = ended(&config(&server), &at_once(4)).await;
    assert_eq!(states(&rows), [Terminal::Truncated; 4]);
    assert_eq!(server.received().len(), 4);
}

#[tokio::test]
async fn connections_are_kept_for_a_short_pause_but_not_until_servers_close_them() {
    let server = Server::start(|_| answer()).await;
    let mut times: Vec<Span> = (0..20).map(|i| Span::from_millis(20 * i)).collect();
    times.push(Span::from_millis(5500));
    let (manifest, rows) = ended(&config(&server), &plan(times)).await;
    assert!(rows[1..20].iter().any(|row| row.reused_connection == Some(true)));
    assert_eq!(rows[20].reused_connection, Some(false), "it was idle for 5 s");
    let opened = rows.iter().filter(|row| row.reused_connection == Some(false)).count();
    assert_eq!(manifest.end.unwrap().connections as usize, opened);
}

#[tokio::test]
async fn a_folder_that_holds_a_run_is_refused_and_left_alone() {
    let server = Server::start(|_| answer()).await;
    let (load, config) = (Load::new(), config(&server));
    load.run(&config, &at_once(2)).await.unwrap();
    let before = load.rows();
    let error = load.run(&config, &at_once(5)).await.unwrap_err();
    assert!(error.to_string().contains("--result-dir"), "{error}");
    assert_eq!(load.rows(), before);
    assert_eq!(server.received().len(), 2);
}

#[tokio::test]
async fn a_run_that_never_begins_leaves_no_folder_and_nothing_in_one_that_was_there() {
    let parent = tempfile::tempdir().unwrap();
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = LoadConfig::new("test", format!("http://{nowhere}").parse().unwrap(), "");
    config.timeouts.connect = Span::from_millis(200);
    let stop = Stop::new();
    for folder in [parent.path().join("runs/deep/first"), parent.path().to_owned()] {
        let progress = Arc::new(Progress::new());
        let error = elasticserve_load::run(&config, &at_once(1), &folder, progress, stop.clone()).await.unwrap_err();
        assert!(matches!(error, LoadError::NoModel(_)), "{error}");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "{}", folder.display());
    }
    assert!(parent.path().exists(), "a folder that was there stays");
}

#[tokio::test]
async fn a_run_that_is_dropped_closes_its_connections() {
    let server = Server::start(hang).await;
    let (load, config) = (Load::new(), config(&server));
    let plan = plan([Span::ZERO, Span::ZERO, HOUR]);
    tokio::select! {
        ended = load.run(&config, &plan) => panic!("{ended:?}"),
        () = server.has_received(2) => {}
    }
    tokio::time::timeout(PATIENCE, server.was_left(2)).await.expect("the connections stay open");
}
