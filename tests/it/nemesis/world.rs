//! The processes, what is done to them, and the wait until all is well again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use elasticserve_core::ledger::{LEDGER_FILE, Row};
use elasticserve_core::outcome::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::checker::History;
use super::client::Clients;
use super::faults::{Fault, Plan, Step};
use super::proxy::{Proxy, Wire};
use crate::support::process::Process;
use crate::support::soon;

const CLIENTS: u64 = 16;
/// Permits of each engine, where no reload has changed them.
const PERMITS: u64 = 6;
/// Whole answers one after the other that show that it works again.
const WHOLE_IN_A_ROW: u64 = 20;

/// Questions about the models, which need no permit.
const PASSED_BY: &str = "passed_by";

/// What came of a plan.
pub(super) struct Told {
    pub(super) history: History,
    /// From the end of the last fault until everything was as before.
    pub(super) recovered: Duration,
}

/// An engine that runs as a process. It dies with this value.
struct Engine {
    child: Child,
    addr: SocketAddr,
}

impl Engine {
    async fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
        command.args(["mock", "--supervised", "--listen", "127.0.0.1:0", "--speed", "4", "--model", "m"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = soon("an engine listens", lines.next_line()).await.unwrap().unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        Self { child, addr: said["listen"].as_str().unwrap().parse().unwrap() }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().unwrap() as i32).unwrap(), signal).unwrap();
    }
}

/// A generator that sends beside the clients, and what its ledger says in the end.
struct Generator {
    child: Child,
    folder: tempfile::TempDir,
}

impl Generator {
    fn start(gateway: SocketAddr, plan: &Plan) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
        command.args(["load", "--url", &format!("http://{gateway}"), "--model", "m", "--measure-ceiling", "off"]);
        command.args(["--isl", "16", "--osl", "12", "--ignore-eos", "--request-rate", "10"]);
        command.args(["--duration", &plan.length.as_secs().to_string(), "--seed", &plan.seed.to_string()]);
        command.arg("--result-dir").arg(folder.path().join("run"));
        command.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        Self { child: command.spawn().unwrap(), folder }
    }

    /// The rows of what it has sent.
    async fn rows(mut self) -> Vec<Row> {
        soon("the generator ends", self.child.wait()).await.unwrap();
        let ledger = std::fs::read_to_string(self.folder.path().join("run").join(LEDGER_FILE)).unwrap();
        let rows = ledger.lines().map(|line| serde_json::from_str::<Row>(line).unwrap());
        rows.filter(|row| row.state.was_sent()).collect()
    }
}

/// What the gateway's file says.
struct Settings {
    engines: [SocketAddr; 2],
    permits: [u64; 2],
    gold: u64,
}

impl Settings {
    fn usual(engines: [SocketAddr; 2]) -> Self {
        Self { engines, permits: [PERMITS; 2], gold: 2 }
    }

    fn text(&self) -> String {
        let Self { engines: [a, b], permits: [of_a, of_b], gold } = self;
        format!(
            "[reload]\nwatch = false\n[log]\naccess = true\n[queue]\norder = 'wfq'\ndepth = 6\nbudget = '2s'\n\
             [health]\ninterval = '100ms'\ntimeout = '500ms'\nfailures = 3\nopen = '200ms'\nslow_start = '300ms'\n\
             [timeouts]\nconnect = '500ms'\nhead = '1500ms'\nidle = '1500ms'\n\
             [[tenants]]\nname = 'gold'\nweight = {gold}\n[[tenants]]\nname = 'batch'\n\
             [[backends]]\nurl = 'http://{a}'\npermits = {of_a}\n[[backends]]\nurl = 'http://{b}'\npermits = {of_b}\n"
        )
    }
}

/// Runs a plan from the start of all processes to their end.
pub(super) async fn run(plan: &Plan) -> Told {
    let mut engines = [Engine::start().await, Engine::start().await];
    let proxies = [Proxy::start(engines[0].addr).await, Proxy::start(engines[1].addr).await];
    let mut settings = Settings::usual([proxies[0].addr, proxies[1].addr]);
    let gateway = Process::start(&settings.text(), &[], &[]).await;
    soon("both engines are up", until_well(&gateway)).await;

    let clients = Arc::new(Clients {
        gateway: gateway.data,
        stop: AtomicBool::new(false),
        whole_in_a_row: AtomicU64::new(0),
        sent: Mutex::new(Vec::new()),
    });
    let mut asking = JoinSet::new();
    (0..CLIENTS).for_each(|number| drop(asking.spawn(Arc::clone(&clients).ask_on(number, plan.seed))));
    let generator = Generator::start(gateway.data, plan);
    let [first, second] = &mut engines;
    tokio::join!(
        harm_engine(first, &proxies[0].wire, &plan.engines[0]),
        harm_engine(second, &proxies[1].wire, &plan.engines[1]),
        harm_gateway(&gateway, &mut settings, &plan.gateway),
    );
    let ended = Instant::now();
    clients.whole_in_a_row.store(0, Ordering::Relaxed);
    soon("answers are whole again", async {
        until_well(&gateway).await;
        while clients.whole_in_a_row.load(Ordering::Relaxed) < WHOLE_IN_A_ROW {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let recovered = ended.elapsed();

    clients.stop.store(true, Ordering::Relaxed);
    while let Some(client) = asking.join_next().await {
        client.unwrap();
    }
    let generated = generator.rows().await;
    let whole = generated.iter().filter(|row| row.state == Terminal::Completed);
    let claimed: BTreeSet<String> = whole.map(|row| row.request_id.clone().unwrap()).collect();
    let sent = std::mem::take(&mut *clients.sent.lock().unwrap());
    let history = close_books(gateway).await;
    Told { history: History { sent, claimed, generated: generated.len() as u64, ..history }, recovered }
}

/// Waits until nothing runs any more, and takes down what the gateway says.
async fn close_books(gateway: Process) -> History {
    gateway.until_metric("elasticserve_connections", 0.0).await;
    let text = gateway.get("/metrics").await.1;
    for gauge in ["permits_in_use", "queue_depth", "queue_size_bytes"] {
        let values = series(&text, gauge);
        assert!(values.iter().all(|(_, value)| *value == 0) && !values.is_empty(), "{gauge}: {values:?}");
    }
    for counter in ["panics_total", "dropped_spans_total"] {
        assert_eq!(series(&text, counter), [("", 0)]);
    }
    let mut counters: BTreeMap<String, u64> = BTreeMap::new();
    for (labels, value) in series(&text, "requests_total") {
        let outcome = labels.split_once("outcome=\"").unwrap().1.split_once('"').unwrap().0;
        *counters.entry(outcome.to_owned()).or_default() += value;
    }
    counters.remove(PASSED_BY);
    let [turned_away, evicted] =
        ["refused_connections_total", "evicted_connections_total"].map(|name| series(&text, name)[0].1);
    let results = series(&text, "slo_results_total");
    let met = results.iter().filter(|(labels, _)| labels.contains("\"met\"")).map(|(_, value)| value).sum();
    gateway.signal("TERM").await;
    let (status, log) = gateway.ended().await;
    assert!(status.success(), "{status}");
    let mut endings = Vec::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_ne!(line["message"], "log lines were dropped", "the log cannot be believed");
        if line["target"] == "elasticserve::access" {
            let of = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            endings.push((of("request_id"), of("outcome")));
        }
    }
    endings.retain(|(_, outcome)| outcome != PASSED_BY);
    History { log: endings, counters, turned_away, evicted, met, ..History::default() }
}

/// The series of a metric: its labels as they stand there, and its value.
fn series<'a>(text: &'a str, name: &str) -> Vec<(&'a str, u64)> {
    let of = |line: &'a str| {
        let rest = line.strip_prefix("elasticserve_")?.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        // Another metric may begin like this one.
        (labels.is_empty() || labels.starts_with('{')).then(|| (labels, value.parse().unwrap()))
    };
    text.lines().filter_map(of).collect()
}

/// Waits until both engines may have all that they might have at the start.
async fn until_well(gateway: &Process) {
    let all_are = |text: &str, name: &str, wanted: u64| {
        let values = series(text, name);
        values.len() == 2 && values.iter().all(|(_, value)| *value == wanted)
    };
    loop {
        let text = gateway.get("/metrics").await.1;
        if all_are(&text, "backend_up", 1) && all_are(&text, "backend_breaker", 0) && all_are(&text, "permits", PERMITS)
        {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn harm_engine(engine: &mut Engine, wire: &Wire, steps: &[Step]) {
    for Step { pause, fault, lasts, number } in steps {
        sleep(*pause).await;
        match fault {
            Fault::Stop => {
                engine.signal(Signal::STOP);
                sleep(*lasts).await;
                engine.signal(Signal::CONT);
            }
            Fault::Kill => {
                engine.child.kill().await.unwrap();
                sleep(*lasts).await;
                *engine = Engine::start().await;
                wire.lead_to(engine.addr);
            }
            Fault::Reset => {
                wire.reset();
                sleep(*lasts).await;
            }
            Fault::Delay => {
                wire.be_late(Duration::from_millis(10 + number % 200));
                sleep(*lasts).await;
                wire.be_late(Duration::ZERO);
            }
            Fault::Refuse => {
                wire.refuse(true);
                sleep(*lasts).await;
                wire.refuse(false);
            }
            Fault::CutShort => {
                wire.cut_short(true);
                sleep(*lasts).await;
                wire.cut_short(false);
            }
            Fault::Squeeze | Fault::Reload | Fault::BadReload | Fault::Vanish => unreachable!("not an engine's"),
        }
    }
}

async fn harm_gateway(gateway: &Process, settings: &mut Settings, steps: &[Step]) {
    let (mut taken, mut refused) = (0.0, 0.0);
    let mut reload = async |right: bool| {
        gateway.signal("HUP").await;
        let (count, name) = if right { (&mut taken, "reloads") } else { (&mut refused, "reload_failures") };
        *count += 1.0;
        gateway.until_metric(&format!("elasticserve_config_{name}_total"), *count).await;
    };
    for Step { pause, fault, lasts, number } in steps {
        sleep(*pause).await;
        match fault {
            Fault::Squeeze => {
                gateway.limit_files(Some(gateway.files() + number % 4));
                sleep(*lasts).await;
                gateway.limit_files(None);
            }
            Fault::Reload => {
                (settings.permits, settings.gold) = ([1 + number % 8, 1 + number / 8 % 8], 1 + number / 64 % 5);
                gateway.write(&settings.text());
                reload(true).await;
            }
            Fault::BadReload => {
                gateway.write(&settings.text().replace("permits", "permit"));
                reload(false).await;
                gateway.write(&settings.text());
            }
            Fault::Vanish => {
                std::fs::remove_file(&gateway.file).unwrap();
                reload(false).await;
                gateway.write(&settings.text());
            }
            fault => unreachable!("{fault:?} is not the gateway's"),
        }
    }
    *settings = Settings::usual(settings.engines);
    gateway.write(&settings.text());
    reload(true).await;
}
