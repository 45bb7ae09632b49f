//! What a generator must not do: wait for the server, lose an arrival, or flatter itself.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use elasticserve_core::health::Tolerances;
use elasticserve_core::ids::TenantId;
use elasticserve_core::outcome::How;
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sched::{Action, Offer, Scheduler, Settings, Used};
use elasticserve_core::slow::{Endpoint, Rules};
use elasticserve_core::time::Tick;
use elasticserve_core::work::{ArrivalProcess, Extent, Lengths, PlanSpec};
use elasticserve_load::CeilingCheck;
use elasticserve_report::{Run, Summary};
use tokio::task::JoinSet;

use super::*;
use crate::support::tell;

/// A server that answers nothing from `from` to `to` of the run's clock, and a run's configuration for it.
async fn freezing(from: Span, to: Span) -> (Server, LoadConfig) {
    let origin: Arc<OnceLock<Instant>> = Arc::default();
    let at_server = Arc::clone(&origin);
    let server = Server::start(move |_| {
        let run = at_server.get().map_or(Span::ZERO, |origin| Span::from_std(origin.elapsed()));
        let frozen = (run >= from && run < to).then(|| Act::Pause(to.saturating_sub(run).to_std()));
        frozen.into_iter().chain(answer()).collect()
    })
    .await;
    let mut config = config(&server);
    config.on_start = Some(Arc::new(move |instant| {
        origin.set(instant).unwrap();
    }));
    (server, config)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_of_400_ms_shows_in_full_in_the_latency_from_the_plan() {
    let (from, to) = (Span::from_millis(300), Span::from_millis(700));
    let (_server, config) = freezing(from, to).await;
    let (_, rows) = ended(&config, &plan((0..200).map(|i| Span::from_millis(5 * i)))).await;
    let frozen: Vec<&Row> =
        rows.iter().filter(|row| row.planned >= Tick::ZERO + from && row.planned < Tick::ZERO + to).collect();
    assert_eq!(frozen.len(), 80);
    for row in &frozen {
        let wait = (Tick::ZERO + to).since(row.planned);
        assert!(row.e2e().unwrap() >= wait && row.ttft().unwrap() >= wait, "{row:?}");
    }
    let sent_meanwhile = frozen.iter().filter(|row| row.send_started.unwrap() < Tick::ZERO + to).count();
    assert!(sent_meanwhile >= 40, "only {sent_meanwhile} of 80 were sent while the server was frozen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_runs_over_a_freeze_of_2_s_account_for_every_arrival_with_and_without_a_cap() {
    let times = || (1..=60).map(|i| Span::from_millis(50 * i));
    let mut runs = JoinSet::new();
    for run in 0..40 {
        runs.spawn(async move {
            let (_server, mut config) = freezing(Span::from_millis(500), Span::from_millis(2500)).await;
            config.max_in_flight = (run % 2 == 1).then_some(2);
            let (_, rows) = ended(&config, &plan(times())).await;
            let unsent = rows.iter().filter(|row| row.state == Terminal::UnsentClientCap).count();
            let completed = rows.iter().filter(|row| row.state == Terminal::Completed).count();
            assert_eq!(completed + unsent, 60, "planned = sent + unsent");
            assert!(rows.iter().zip(times()).all(|(row, at)| row.planned == Tick::ZERO + at));
            if config.max_in_flight.is_none() {
                assert_eq!(unsent, 0);
            } else {
                // 40 arrivals fall into the freeze, and two of them have the slots.
                assert!(unsent >= 30, "{unsent}");
            }
            // A generator that waits for its server is late by most of the freeze.
            let lags: Vec<Span> = rows.iter().filter_map(Row::send_lag).collect();
            assert!(lags.iter().all(|lag| *lag < Span::from_secs(1)), "{lags:?}");
            lags
        });
    }
    let mut lags = runs.join_all().await.concat();
    lags.sort_unstable();
    let p99 = lags[lags.len() * 99 / 100];
    let (p50, sends) = (lags[lags.len() / 2], lags.len());
    tell(&format!("the sends' lag: p50 {p50}, p99 {p99}, of {sends} sends in 40 runs at once"));
    // What a quiet machine shows is far below this; half a second is a busy one's.
    assert!(p99 < Span::from_millis(500), "{p99}");
}

#[test]
fn the_arrivals_sent_are_those_planned_whatever_the_number_of_threads() {
    for rate in [10.0, 1000.0] {
        let plan = Plan::generate(&PlanSpec {
            seed: 7,
            process: ArrivalProcess::Poisson { rate },
            extent: Extent::Count(if rate < 100.0 { 10 } else { 1000 }),
            input: Lengths::around(16, 0.0),
            output: Lengths::around(2, 0.0),
            tenants: vec![PlanTenant { name: "default".into(), share: 1.0, ..PlanTenant::default() }],
        });
        let plan = plan.unwrap();
        for threads in [1, 2, 4] {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
            let (manifest, rows) = runtime.unwrap().block_on(async {
                let server = Server::start(|_| answer()).await;
                ended(&config(&server), &plan).await
            });
            assert_eq!(manifest.plan_hash, plan.hash());
            let planned: Vec<Tick> = plan.arrivals().iter().map(|a| Tick::ZERO + a.at).collect();
            assert_eq!(rows.iter().map(|row| row.planned).collect::<Vec<_>>(), planned, "{threads} threads");
            assert_eq!(states(&rows), vec![Terminal::Completed; planned.len()], "{threads} threads");
            assert!(rows.iter().all(|row| row.send_started.unwrap() >= row.planned), "nothing is sent too early");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_of_200_000_tokens_do_not_delay_the_sends() {
    const LONG: u32 = 200_000;
    let server = Server::start(|_| answer()).await;
    let long = |i: u64| i < 40;
    let arrivals = (0..60).map(|i| Arrival {
        index: 0,
        at: Span::ZERO,
        tenant: 0,
        input: if long(i) { LONG } else { 16 },
        output: 2,
        prompt: i,
    });
    let tenant = PlanTenant { name: "default".into(), share: 1.0, ..PlanTenant::default() };
    let plan = Plan::recorded("test", 1.0, Span::from_millis(1), vec![tenant], arrivals.collect()).unwrap();
    let (_, rows) = ended(&config(&server), &plan).await;
    assert_eq!(states(&rows), vec![Terminal::Completed; 60]);
    let longest = server.received().iter().map(|request| request.body.len()).max().unwrap();
    assert!(longest > LONG as usize * 4, "{longest}");
    // Making them takes longer than this, so it cannot have been between the sends.
    let lag = rows.iter().filter_map(Row::send_lag).max().unwrap();
    assert!(lag < Span::from_millis(300), "{lag}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_streams_are_open_at_once_and_all_end() {
    let server = Server::start(|_| {
        let mut acts = vec![super::server::head("200 OK", super::server::STREAM), super::server::token()];
        acts.push(Act::AwaitSignal);
        acts.push(super::server::token());
        acts.extend(super::server::finish(2));
        acts
    })
    .await;
    let (load, config, plan) = (Load::new(), config(&server), at_once(500));
    let release = async {
        server.has_received(500).await;
        assert_eq!(load.progress.in_flight(), 500);
        server.signal();
    };
    let (manifest, ()) = tokio::join!(load.run(&config, &plan), release);
    assert_eq!(manifest.unwrap().end.unwrap().peak_in_flight, 500);
    assert_eq!(states(&load.rows()), vec![Terminal::Completed; 500]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_above_half_of_what_the_generator_was_shown_to_keep_is_not_valid() {
    let server = Server::start(|_| answer()).await;
    let (usual, minute) = (Tolerances::default().of_ceiling, Span::from_secs(60));
    assert_eq!(usual, 0.5);
    // With no lag at all nothing is clean; with a minute everything is, and 200 a second are tried, of which the plan's
    // busiest second is a quarter.
    for (lag, of_ceiling, sound) in [(Span::ZERO, usual, false), (minute, usual, true), (minute, 0.2, false)] {
        let mut config = config(&server);
        config.ceiling = CeilingCheck::Quick;
        config.tolerances = Tolerances { cpu: 1.0, of_ceiling, ..Tolerances::of_lateness(lag) };
        let load = Load::new();
        let manifest = load.run(&config, &at_once(50)).await.unwrap();
        let ceiling = manifest.ceiling.unwrap();
        assert_eq!((ceiling.clean_lag, ceiling.per_s > 0.0), (lag, lag == minute));
        assert_eq!(server.received().len() % 50, 0, "trials do not go to the server");
        let summary = elasticserve_report::write_run(load.folder.path()).unwrap();
        let said = summary.invalid_because.iter().any(|why| why.contains("was shown to keep"));
        assert_eq!(said, !sound, "{:?}", summary.invalid_because);
        let health = manifest.end.unwrap().health.unwrap();
        assert_eq!((health.send_lag.n, health.peak_sends_per_s), (50, 50));
        assert!(health.descriptors_peak.is_some() && health.descriptors_limit.is_some() && health.cores >= 1);
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generator_killed_at_any_time_leaves_counts_and_no_quantiles() {
    let mut random = Random::new(15, Stream::Test);
    for trial in 0..50 {
        let server = Server::start(|_| answer()).await;
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("run");
        let mut command = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
        command.args(["load", "--url", &format!("http://{}", server.addr), "--model", "m"]);
        command.args(["--random-input-len", "16", "--random-output-len", "2", "--measure-ceiling", "off"]);
        command.args(["--request-rate", "500", "--num-prompts", "50000", "--result-dir"]).arg(&folder);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        server.has_received(1 + random.between(0, 120) as usize).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let ledger = std::fs::read_to_string(folder.join(LEDGER_FILE)).unwrap();
        let whole = ledger.rfind('\n').map_or("", |end| &ledger[..=end]);
        let read: Vec<Row> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut report = Command::new(env!("CARGO_BIN_EXE_elasticserve"));
        let told = report.args(["report", "--json"]).arg(&folder).output().unwrap();
        assert_eq!(told.status.code(), Some(1), "trial {trial}");
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let run = &told["runs"][0];
        assert_eq!((&run["complete"], &run["planned"]), (&false.into(), &50_000.into()), "trial {trial}");
        assert_eq!(run["sent"], read.len() as u64, "trial {trial}");
        for latency in ["ttft", "tpot", "e2e"] {
            let quantiles = &run["latencies"][latency];
            assert!(quantiles["p50"].is_null() && quantiles["p99"].is_null(), "trial {trial}: {quantiles}");
        }
        assert!(run["attainment"].is_null() && run["goodput_per_s"].is_null(), "trial {trial}");
    }
}

/// A clock that mostly goes on and sometimes jumps, in either direction.
fn jumping(random: &mut Random, now: Tick) -> Tick {
    let by = Span::from_nanos(random.between(0, 4_000_000_000));
    match random.between(0, 9) {
        0 => now.before(by),
        1 => now + by * 1000,
        2 => Tick::from_nanos(random.next_u64()),
        _ => now + Span::from_nanos(random.between(0, 5_000_000)),
    }
}

#[test]
fn a_clock_that_jumps_makes_no_negative_time_and_breaks_nothing() {
    for seed in 0..1000 {
        let mut random = Random::new(seed, Stream::Test);
        ledger_under_jumps(&mut random);
        scheduler_under_jumps(&mut random);
        endpoint_under_jumps(&mut random);
    }
}

fn ledger_under_jumps(random: &mut Random) {
    let plan = plan((0..20).map(Span::from_millis));
    let mut now = Tick::ZERO;
    let rows = plan.arrivals().iter().map(|arrival| {
        let mut row = Row::new(arrival.index, "default", Tick::ZERO + arrival.at, 16, 2);
        row.state = Terminal::ALL[random.between(0, 17) as usize];
        let times = [&mut row.first_content, &mut row.last_content, &mut row.end];
        for time in times {
            now = jumping(random, now);
            *time = Some(now);
        }
        now = jumping(random, now);
        row.send_started = row.state.was_sent().then_some(now);
        row.output_tokens = Some(random.between(0, 3) as u32);
        row
    });
    let rows: Vec<Row> = rows.collect();
    for row in &rows {
        let _ = row.is_good(&Slo::default());
        // A length that went below zero and wrapped is greater than the time at which it ends.
        let latest = row.end.max(row.last_content).unwrap();
        for (span, end) in [
            (row.ttft(), row.first_content),
            (row.ttft_from_send(), row.first_content),
            (row.tpot(), Some(latest)),
            (row.e2e(), row.end),
            (row.send_lag(), row.send_started),
        ] {
            assert!(span.is_none_or(|span| span <= end.unwrap().since(Tick::ZERO)), "{span:?} in {row:?}");
        }
    }
    let run = Run { manifest: manifest_of(&plan), rows, torn: false };
    let summary = serde_json::to_value(Summary::of(&run)).unwrap();
    assert_no_negative(&summary);
}

fn manifest_of(plan: &Plan) -> Manifest {
    let header = serde_json::to_value(plan.header()).unwrap();
    let text = serde_json::json!({
        "format": 1, "name": "t", "simulated": false, "tool_version": "0", "plan_hash": plan.hash(), "plan": header,
        "time_scale": 1.0, "target": {"url": "", "endpoint": "", "model": "", "streaming": true}, "warmups": 0,
        "prompts_salted": false, "timeouts": Timeouts::default(), "tolerances": Tolerances::default(),
        "end": {"at_ns": 1, "interrupted": false, "peak_in_flight": 1, "connections": 1},
    });
    serde_json::from_value(text).unwrap()
}

fn assert_no_negative(value: &serde_json::Value) {
    match value {
        serde_json::Value::Number(n) => assert!(n.as_f64().unwrap() >= 0.0, "{n}"),
        serde_json::Value::Array(all) => all.iter().for_each(assert_no_negative),
        serde_json::Value::Object(all) => all.values().for_each(assert_no_negative),
        _ => {}
    }
}

fn scheduler_under_jumps(random: &mut Random) {
    let mut scheduler = Scheduler::new(&Settings { budget: Some(Span::from_millis(20)), ..Settings::fcfs(vec![2]) });
    let (mut now, mut tickets) = (Tick::ZERO, Vec::new());
    for _ in 0..60 {
        now = jumping(random, now);
        match random.between(0, 2) {
            0 => {
                let offer = Offer { tenant: TenantId(0), bytes: 1, input: 5, ..Offer::default() };
                let _ = scheduler.offer(now, offer);
            }
            1 if !tickets.is_empty() => scheduler.release(now, tickets.remove(0), How::Finished, Used::default()),
            _ => {}
        }
        while let Some(action) = scheduler.poll(now) {
            if let Action::Grant(ticket) = action {
                tickets.push(ticket);
            }
        }
        assert_eq!(scheduler.audit(), Ok(()));
        assert!(tickets.len() <= 2);
    }
}

fn endpoint_under_jumps(random: &mut Random) {
    let mut endpoint = Endpoint::new(Rules::PUBLISHED);
    let (mut now, mut told) = (Tick::ZERO, 0);
    for request in 0..60 {
        now = jumping(random, now);
        endpoint.arrive(now, request);
        while endpoint.poll(now).is_some() {
            told += 1;
        }
        assert!(endpoint.outstanding() <= Rules::PUBLISHED.max_outstanding);
    }
    assert!(told >= 60);
}
