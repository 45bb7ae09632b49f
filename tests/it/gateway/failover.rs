//! What fails before anything of its answer came goes to another backend, once.

use std::time::Duration;

use elasticserve_core::outcome::How;

use crate::support::backend::{Backend, header};
use crate::support::client::completion;
use crate::support::gateway::Piped;
use crate::support::until;

/// Two backends; the first is taken first.
fn two(permits: u32, more: &str) -> String {
    format!(
        "{more}
        [[backends]]
        url = 'http://a'
        permits = {permits}
        [[backends]]
        url = 'http://b'
        permits = {permits}"
    )
}

/// How a backend may fail before it answers.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Fault {
    Refuses,
    Breaks,
    Silent,
    Status(u16),
}

impl Fault {
    async fn happen(self, backend: &mut Backend) {
        match self {
            Self::Refuses => {}
            // Dropped without an answer, which closes the connection.
            Self::Breaks => drop(backend.call().await),
            Self::Silent => {
                let mut call = backend.call().await;
                call.abandoned().await;
            }
            Self::Status(status) => backend.call().await.respond(status, &[]).finish(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_backend_fails_before_it_answers_is_answered_by_another() {
    let faults = [500, 502, 503, 504].map(Fault::Status);
    for fault in [Fault::Refuses, Fault::Breaks, Fault::Silent].into_iter().chain(faults) {
        let (mut gateway, mut backends, dial) = Piped::over(&["a", "b"], &two(4, "[timeouts]\nhead = '5s'"));
        dial.refuse("a", fault == Fault::Refuses);
        let sending = gateway.send(completion(""));
        fault.happen(&mut backends[0]).await;
        let call = backends[1].call().await;
        assert!(call.body.starts_with(b"{\"model\""), "{fault:?}: the body is whole");
        assert_eq!(gateway.service.load().1, [(0, 4), (1, 4)], "{fault:?}: one permit, of the other backend");
        call.json("{\"from\":\"b\"}");
        let mut answer = sending.answer().await;
        assert_eq!(answer.status, 200, "{fault:?}");
        assert_eq!(header(&answer.headers, "x-elasticserve-backend"), Some("1"));
        assert_eq!(answer.json().await["from"], "b");
        until("the permit is back", || gateway.in_use() == 0).await;
        let totals = gateway.service.totals();
        assert_eq!((totals.offers, totals.granted, totals.moved, totals.released[&How::Finished]), (1, 1, 1, 1));
        gateway.service.audit().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_is_to_blame_for_and_a_busy_backend_are_passed_on() {
    for status in [400, 404, 408, 422, 429, 501] {
        let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], &two(4, ""));
        let sending = gateway.send(completion(""));
        backends[0].call().await.respond(status, &[("retry-after", "7")]).finish();
        let answer = sending.answer().await;
        assert_eq!((answer.status.as_u16(), header(&answer.headers, "retry-after")), (status, Some("7")));
        assert!(!backends[1].has_call() && gateway.service.totals().moved == 0, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again_once_the_head_of_an_answer_has_come() {
    let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], &two(4, ""));
    let sending = gateway.send(completion(""));
    let responding = backends[0].call().await.stream();
    let mut answer = sending.answer().await;
    responding.break_off();
    let (text, ended) = answer.rest().await;
    assert!(!ended && String::from_utf8(text).unwrap().contains("backend_failed"));
    until("the permit is back", || gateway.in_use() == 0).await;
    assert!(!backends[1].has_call() && gateway.service.totals().moved == 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_tried_at_two_backends_at_most_and_the_last_word_is_passed_on() {
    let third = "[[backends]]\nurl = 'http://c'\npermits = 4";
    for (last, status) in [(Fault::Status(503), 503), (Fault::Breaks, 502)] {
        let text = format!("{}\n{third}", two(4, ""));
        let (mut gateway, mut backends, dial) = Piped::over(&["a", "b", "c"], &text);
        dial.refuse("a", true);
        let sending = gateway.send(completion(""));
        last.happen(&mut backends[1]).await;
        let answer = sending.answer().await;
        assert_eq!(answer.status, status);
        assert_eq!(header(&answer.headers, "x-elasticserve-backend"), Some("1"));
        assert!(!backends[2].has_call());
        until("the permit is back", || gateway.in_use() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_alone_has_its_own_error_passed_on() {
    let (mut gateway, mut backends, _) = Piped::over(&["a"], "[[backends]]\nurl = 'http://a'\n");
    let sending = gateway.send(completion(""));
    backends[0].call().await.respond(503, &[("x-own", "1")]).finish();
    let answer = sending.answer().await;
    assert_eq!((answer.status.as_u16(), header(&answer.headers, "x-own")), (503, Some("1")));
}

#[tokio::test(start_paused = true)]
async fn what_failed_waits_for_the_next_seat_of_another_backend_before_all_that_waits() {
    let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], &two(1, ""));
    let unlucky = gateway.send(completion(",\"seed\":1"));
    let failing = backends[0].call().await;
    let running = gateway.send(completion(",\"seed\":2"));
    let holding = backends[1].call().await;
    let waiting = gateway.send(completion(",\"seed\":3"));
    until("one waits", || gateway.queued() == 1).await;
    failing.respond(503, &[]).finish();
    // The seat that it left goes to what waits; its own turn is the other backend's next seat.
    let next = backends[0].call().await;
    assert!(String::from_utf8_lossy(&next.body).contains("\"seed\":3"));
    let late = gateway.send(completion(",\"seed\":4"));
    until("another waits", || gateway.queued() == 1).await;
    holding.json("{}");
    let moved = backends[1].call().await;
    assert!(String::from_utf8_lossy(&moved.body).contains("\"seed\":1"));
    moved.json("{}");
    next.json("{}");
    backends[1].call().await.json("{}");
    for sending in [unlucky, running, waiting, late] {
        assert_eq!(sending.answer().await.status, 200);
    }
    gateway.service.audit().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_its_request_waits_for_another_backend_leaves_nothing() {
    let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], &two(1, ""));
    let unlucky = gateway.send(completion(""));
    let failing = backends[0].call().await;
    let running = gateway.send(completion(""));
    let holding = backends[1].call().await;
    failing.respond(503, &[]).finish();
    until("it has left its seat", || gateway.in_use() == 1).await;
    drop(unlucky);
    until("it is withdrawn", || gateway.service.totals().released.get(&How::ClientGone) == Some(&1)).await;
    holding.json("{}");
    assert_eq!(running.answer().await.status, 200);
    until("nothing runs", || gateway.in_use() == 0).await;
    assert!(!backends[1].has_call());
    gateway.service.audit().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_lost_while_a_request_waits_for_another_backend_ends_it() {
    let text = two(1, "[queue]\non_miss = 'abort'");
    let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], &text);
    let mut request = completion("");
    request.headers_mut().insert("x-slo-ttft-ms", "2000".parse().unwrap());
    let unlucky = gateway.send(request);
    let failing = backends[0].call().await;
    let _running = gateway.send(completion(""));
    let _holding = backends[1].call().await;
    failing.respond(503, &[]).finish();
    let asked = tokio::time::Instant::now();
    let answer = unlucky.answer().await;
    assert_eq!(answer.status, 502);
    assert!(asked.elapsed() <= Duration::from_millis(2_010), "{:?}", asked.elapsed());
    gateway.service.audit().unwrap();
}
