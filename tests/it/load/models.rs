//! Load models and what an arrival goes through: caps, workers, sessions, retries.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use elasticserve_core::time::Tick;
use elasticserve_core::work::Turn;

use super::server::whole;
use super::*;

/// A server that holds each answer until so many requests are there or have been, then answers all.
async fn barrier(count: usize) -> Server {
    Server::start(move |_| vec![Act::AwaitRequests(count)].into_iter().chain(answer()).collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_starts_as_a_whole_before_a_single_answer() {
    // Nothing is answered before all have come, so a generator that waited for anything would hang.
    let server = barrier(300).await;
    let (manifest, rows) = ended(&config(&server), &at_once(300)).await;
    assert_eq!(states(&rows), vec![Terminal::Completed; 300]);
    assert_eq!(manifest.end.unwrap().peak_in_flight, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_never_sees_more_than_the_cap_and_all_else_has_its_row() {
    const CAP: usize = 5;
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at_server, seen) = (Arc::clone(&open), Arc::clone(&most));
    let server = Server::start(move |_| {
        seen.fetch_max(at_server.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let mut acts = answer();
        // The last act ends the answer: the request is counted as gone just before.
        let last = acts.pop().unwrap();
        let (gone, work) = (Arc::clone(&at_server), Duration::from_millis(7));
        acts.extend([
            Act::Pause(work),
            Act::Do(Arc::new(move || {
                gone.fetch_sub(1, Ordering::SeqCst);
            })),
            last,
        ]);
        acts
    })
    .await;
    let config = LoadConfig { max_in_flight: Some(CAP as u32), ..config(&server) };
    let (manifest, rows) = ended(&config, &plan((0..400).map(Span::from_millis))).await;
    assert_eq!(most.load(Ordering::SeqCst), CAP, "the cap is reached and never passed");
    let (sent, unsent): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.state.was_sent());
    assert_eq!(server.received().len(), sent.len());
    assert!(sent.iter().all(|row| row.state == Terminal::Completed));
    assert!(!unsent.is_empty() && unsent.iter().all(|row| row.state == Terminal::UnsentClientCap));
    for row in &rows {
        assert_eq!(row.planned.as_nanos(), u64::from(row.index) * 1_000_000, "a planned time never moves");
        assert_eq!(row.send_started.is_some(), row.state.was_sent());
    }
    let end = manifest.end.unwrap();
    assert!(!end.interrupted && end.peak_in_flight == CAP as u32 && manifest.max_in_flight == Some(CAP as u32));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_of_one_sends_the_first_of_a_burst_and_nothing_waits_for_its_turn() {
    let server = Server::start(|_| answer()).await;
    let config = LoadConfig { max_in_flight: Some(1), ..config(&server) };
    let (_, rows) = ended(&config, &at_once(20)).await;
    assert_eq!(rows[0].state, Terminal::Completed, "slots go in the order of the plan");
    assert!(states(&rows[1..]).contains(&Terminal::UnsentClientCap));
}

fn closed(workers: u32, count: usize, window: Option<Span>) -> Plan {
    at_once(count).as_supply(NonZeroU32::new(workers).unwrap(), window)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_workers_send_after_their_answers_and_plan_each_arrival_for_when_they_became_free() {
    let server = Server::start(|_| vec![Act::Pause(Duration::from_millis(10))].into_iter().chain(answer()).collect());
    let server = server.await;
    let (manifest, rows) = ended(&config(&server), &closed(3, 30, None)).await;
    assert_eq!(states(&rows), vec![Terminal::Completed; 30]);
    let end = manifest.end.unwrap();
    assert_eq!((end.peak_in_flight, end.drawn), (3, Some(30)));
    let ends: Vec<Tick> = rows.iter().map(|row| row.end.unwrap()).collect();
    assert!(rows[..3].iter().all(|row| row.planned == Tick::ZERO));
    for row in &rows[3..] {
        assert!(ends.contains(&row.planned), "arrival {} is planned for the end of an answer", row.index);
        assert!(row.send_started.unwrap() >= row.planned);
    }
    let mut planned: Vec<Tick> = rows[3..].iter().map(|row| row.planned).collect();
    planned.sort();
    planned.dedup();
    assert_eq!(planned.len(), 27, "each answer frees one worker for one arrival");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_closed_workers_did_not_draw_in_their_window_is_no_arrival() {
    let server = Server::start(|_| vec![Act::Pause(Duration::from_millis(20))].into_iter().chain(answer()).collect());
    let server = server.await;
    let load = Load::new();
    let window = Span::from_millis(300);
    let manifest = load.run(&config(&server), &closed(2, 5000, Some(window))).await.unwrap();
    let (end, rows) = (manifest.end.unwrap(), load.rows());
    // A request takes 20 ms or more, so two workers draw 2 * 15 at most.
    assert!(rows.len() >= 2 && rows.len() <= 30, "{}", rows.len());
    assert_eq!((end.drawn, end.interrupted), (Some(rows.len() as u32), false));
    assert!(rows.iter().all(|row| row.state == Terminal::Completed && row.planned < Tick::ZERO + window));
    let indices: Vec<u32> = rows.iter().map(|row| row.index).collect();
    assert_eq!(indices, (0..rows.len() as u32).collect::<Vec<_>>(), "the first of the supply");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answers_gets_one_request_of_each_closed_worker_and_does_not_hang_the_run() {
    let server = Server::start(hang).await;
    let load = Load::new();
    let mut config = config(&server);
    config.timeouts.drain = Span::from_millis(50);
    let manifest = load.run(&config, &closed(4, 100, Some(Span::from_millis(100)))).await.unwrap();
    assert_eq!((manifest.end.unwrap().drawn, states(&load.rows())), (Some(4), vec![Terminal::Censored; 4]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_ends_the_drawing_and_says_so() {
    let server = Server::start(|_| answer()).await;
    let (load, config, plan) = (Load::new(), config(&server), closed(2, 1_000_000, None));
    let interrupt = async {
        server.has_received(20).await;
        load.stop.press();
    };
    let (manifest, ()) = tokio::join!(load.run(&config, &plan), interrupt);
    let (end, rows) = (manifest.unwrap().end.unwrap(), load.rows());
    assert!(end.interrupted && rows.len() >= 20 && rows.len() < 1_000_000);
    assert_eq!(end.drawn, Some(rows.len() as u32));
}

/// Sessions of three turns each, with the think times given, all begun at once.
fn sessions(users: u32, think: Span, window: Option<Span>) -> Plan {
    let plan = at_once(3 * users as usize);
    let turn = |i| Turn { session: i / 3, place: i % 3, think: if i % 3 == 0 { Span::ZERO } else { think } };
    let turns = (0..3 * users).map(turn).collect();
    let plan = plan.with_turns(NonZeroU32::new(users).unwrap(), false, turns).unwrap();
    let (old, new) = (r#""window_ns":1000000,"#, window.map(|w| format!(r#""window_ns":{},"#, w.as_nanos())));
    Plan::from_ndjson(&plan.to_ndjson().replacen(old, &new.unwrap_or_default(), 1)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_turn_is_planned_for_its_think_time_after_the_answer_before() {
    let server = Server::start(|_| answer()).await;
    let think = Span::from_millis(30);
    let (manifest, rows) = ended(&config(&server), &sessions(4, think, None)).await;
    assert_eq!(states(&rows), vec![Terminal::Completed; 12]);
    assert_eq!(manifest.end.unwrap().drawn, Some(12));
    for turns in rows.chunks(3) {
        assert_eq!(turns[0].planned, Tick::ZERO);
        for pair in turns.windows(2) {
            assert_eq!(pair[1].planned, pair[0].end.unwrap() + think);
            assert!(pair[1].send_started.unwrap() >= pair[1].planned);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_after_one_that_failed_are_never_sent_and_their_rows_say_why() {
    // The second turn of the first session, arrival 1, is turned away.
    let server = Server::start(|request| match request.index() {
        1 => whole("429 Too Many Requests", "", "{}"),
        _ => answer(),
    })
    .await;
    let (manifest, rows) = ended(&config(&server), &sessions(2, Span::from_millis(1), None)).await;
    use Terminal::{Completed, Rejected, UnsentAbort};
    assert_eq!(states(&rows), [Completed, Rejected, UnsentAbort, Completed, Completed, Completed]);
    assert_eq!(rows[2].error.as_deref(), Some("the turn before it ended as rejected"));
    assert_eq!(rows[2].planned, rows[1].end.unwrap() + Span::from_millis(1));
    assert!(!manifest.end.unwrap().interrupted, "it is a finding about the server");
    let run = elasticserve_report::Run { manifest, rows, torn: false };
    let summary = elasticserve_report::Summary::of(&run);
    assert!(summary.reconciled && summary.complete, "{:?}", summary.problems);
    assert!(!summary.invalid_because.iter().any(|why| why.contains("stopped")), "{:?}", summary.invalid_because);
    assert_eq!((summary.figures.planned, summary.figures.unsent), (6, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_sessions_account_for_every_turn() {
    let server = Server::start(|_| answer()).await;
    let (load, config, plan) = (Load::new(), config(&server), sessions(5, HOUR, None));
    let interrupt = async {
        while load.progress.completed() < 5 {
            tokio::task::yield_now().await;
        }
        load.stop.press();
    };
    let (manifest, ()) = tokio::join!(load.run(&config, &plan), interrupt);
    let (end, rows) = (manifest.unwrap().end.unwrap(), load.rows());
    assert!(end.interrupted);
    assert_eq!((rows.len(), end.drawn), (15, Some(15)));
    assert_eq!(rows.iter().filter(|row| row.state == Terminal::UnsentAbort).count(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_would_come_due_after_the_window_is_no_arrival() {
    let server = Server::start(|_| answer()).await;
    let load = Load::new();
    let plan = sessions(3, HOUR, Some(Span::from_secs(60)));
    let manifest = load.run(&config(&server), &plan).await.unwrap();
    let (end, rows) = (manifest.end.unwrap(), load.rows());
    assert_eq!((end.drawn, end.interrupted, states(&rows)), (Some(3), false, vec![Terminal::Completed; 3]));
    let mut run = elasticserve_report::Run { manifest, rows, torn: false };
    let summary = elasticserve_report::Summary::of(&run);
    assert!(summary.reconciled && summary.complete, "{:?}", summary.problems);
    run.rows.pop();
    assert!(!elasticserve_report::Summary::of(&run).reconciled, "a row that is gone is missed");
}

#[tokio::test]
async fn a_cap_belongs_to_an_open_plan() {
    let server = Server::start(|_| answer()).await;
    let config = LoadConfig { max_in_flight: Some(2), ..config(&server) };
    let load = Load::new();
    let error = load.run(&config, &closed(2, 10, None)).await.unwrap_err().to_string();
    assert!(error.contains("open plan") && error.contains("closed"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_are_rows_of_their_own_with_one_planned_time_and_wait_as_told() {
    let server = Server::start(|request| {
        let tries = request.header("x-stainless-retry-count").map_or(0, |n| n.parse().unwrap());
        let wait = "retry-after-ms: 120\r\nretry-after: 5\r\n";
        match (request.index(), tries) {
            (0, 0 | 1) => whole("429 Too Many Requests", wait, "{}"),
            (1, _) => whole("503 Service Unavailable", "retry-after-ms: 1\r\n", "{}"),
            (2, _) => whole("429 Too Many Requests", "x-should-retry: false\r\n", "{}"),
            _ => answer(),
        }
    })
    .await;
    let config = LoadConfig { retries: 2, ..config(&server) };
    let load = Load::new();
    let manifest = load.run(&config, &at_once(4)).await.unwrap();
    assert_eq!((manifest.retries, manifest.end.unwrap().interrupted), (2, false));
    let mut rows = load.rows();
    rows.sort_by_key(|row| (row.index, row.attempt));
    let told: Vec<(u32, u32, Terminal)> = rows.iter().map(|row| (row.index, row.attempt, row.state)).collect();
    use Terminal::{Completed, Rejected};
    let expected = [
        (0, 0, Rejected),
        (0, 1, Rejected),
        (0, 2, Completed),
        (1, 0, Rejected),
        (1, 1, Rejected),
        (1, 2, Rejected),
        (2, 0, Rejected),
        (3, 0, Completed),
    ];
    assert_eq!(told, expected);
    assert!(rows.iter().all(|row| row.planned == Tick::ZERO), "a planned time never moves");
    for pair in rows[..3].windows(2) {
        assert!(pair[1].send_started.unwrap() >= pair[0].end.unwrap() + Span::from_millis(120));
    }
    assert!(rows[2].ttft().unwrap() >= Span::from_millis(240), "latency from the plan holds the waits");
    assert_eq!(server.received().len(), 8);
    assert_eq!((load.progress.offered(), load.progress.completed(), load.progress.in_flight()), (4, 2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_retried_unless_asked_or_once_the_run_is_stopped() {
    let refuse = |_: &Received| whole("429 Too Many Requests", "retry-after: 60\r\n", "{}");
    let server = Server::start(refuse).await;
    let (_, rows) = ended(&config(&server), &at_once(3)).await;
    assert_eq!(states(&rows), [Terminal::Rejected; 3]);
    let server = Server::start(refuse).await;
    let (load, config, plan) = (Load::new(), LoadConfig { retries: 5, ..config(&server) }, plan([Span::ZERO, HOUR]));
    let interrupt = async {
        while load.progress.refused() < 1 {
            tokio::task::yield_now().await;
        }
        load.stop.press();
    };
    let (manifest, ()) = tokio::join!(load.run(&config, &plan), interrupt);
    assert!(manifest.unwrap().end.unwrap().interrupted);
    assert_eq!(states(&load.rows()), [Terminal::Rejected, Terminal::UnsentAbort]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_finds_no_slot_is_a_row_too() {
    // Arrival 0 is turned away and may come back 1.5 s later; by then arrival 1 has the only slot.
    let server = Server::start(|request| match request.index() {
        0 => whole("429 Too Many Requests", "retry-after-ms: 1500\r\n", "{}"),
        _ => vec![Act::AwaitSignal].into_iter().chain(answer()).collect(),
    })
    .await;
    let load = Load::new();
    let config = LoadConfig { retries: 1, max_in_flight: Some(1), ..config(&server) };
    let plan = plan([Span::ZERO, Span::from_millis(500)]);
    let release = async {
        while load.rows().len() < 2 {
            tokio::task::yield_now().await;
        }
        server.signal();
    };
    let (manifest, ()) = tokio::join!(load.run(&config, &plan), release);
    manifest.unwrap();
    let mut rows = load.rows();
    rows.sort_by_key(|row| (row.index, row.attempt));
    use Terminal::{Completed, Rejected, UnsentClientCap};
    assert_eq!(states(&rows), [Rejected, UnsentClientCap, Completed]);
    assert_eq!((rows[1].attempt, rows[1].send_started), (1, None));
}
