//! A backend that fails again and again is left alone, tried by one request at a time, and taken back by and by.

use std::time::Duration;

use tokio::time::sleep;

use crate::support::backend::Backend;
use crate::support::client::completion;
use crate::support::gateway::Piped;
use crate::support::until;

const TWO: &str = "
    [health]
    failures = 3
    open = '5s'
    slow_start = '10s'
    [[backends]]
    url = 'http://a'
    permits = 20
    [[backends]]
    url = 'http://b'
    permits = 20
";

/// Answers calls with a status, whichever backend they reach, until the client has its answer.
async fn answered(gateway: &mut Piped, backends: &mut [Backend], of_a: u16) -> u16 {
    let sending = gateway.send(completion(""));
    let answer = sending.answer();
    tokio::pin!(answer);
    let (a, b) = backends.split_at_mut(1);
    loop {
        tokio::select! {
            answer = &mut answer => return answer.status.as_u16(),
            call = a[0].call() => call.respond(of_a, &[]).finish(),
            call = b[0].call() => call.respond(200, &[]).finish(),
        }
    }
}

fn permits(gateway: &Piped) -> Vec<u32> {
    gateway.service.load().1.iter().map(|(_, total)| *total).collect()
}

/// Three requests fail at the first backend, all of which the other one answers.
async fn opened() -> (Piped, Vec<Backend>) {
    let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], TWO);
    while gateway.service.totals().moved < 3 {
        assert_eq!(answered(&mut gateway, &mut backends, 503).await, 200);
    }
    (gateway, backends)
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_in_a_row_gets_no_more_work_until_a_probe_of_one_request_succeeds() {
    let (mut gateway, mut backends) = opened().await;
    for _ in 0..20 {
        assert_eq!(answered(&mut gateway, &mut backends, 503).await, 200);
    }
    assert_eq!(gateway.service.totals().moved, 3, "the open breaker keeps work away");

    // Half-open: one seat. The probe fails, and the breaker is open for twice as long.
    sleep(Duration::from_millis(5_001)).await;
    assert_eq!(permits(&gateway), [1, 20]);
    while gateway.service.totals().moved < 4 {
        assert_eq!(answered(&mut gateway, &mut backends, 503).await, 200);
    }
    sleep(Duration::from_millis(9_900)).await;
    for _ in 0..20 {
        assert_eq!(answered(&mut gateway, &mut backends, 503).await, 200);
    }
    assert_eq!(gateway.service.totals().moved, 4);

    // The next probe succeeds, and the permits come back by and by.
    sleep(Duration::from_millis(200)).await;
    assert_eq!(permits(&gateway), [1, 20]);
    until("the probe is sent", || permits(&gateway)[0] == 1).await;
    while permits(&gateway)[0] == 1 {
        assert_eq!(answered(&mut gateway, &mut backends, 200).await, 200);
    }
    assert_eq!(permits(&gateway), [2, 20]);
    sleep(Duration::from_millis(5_100)).await;
    assert_eq!(permits(&gateway), [10, 20]);
    sleep(Duration::from_millis(5_000)).await;
    assert_eq!(permits(&gateway), [20, 20]);
    gateway.service.audit().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_busy_or_does_not_like_a_request_is_not_broken() {
    let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], TWO);
    let mut seen = 0;
    for n in 0..40 {
        let status = [429, 400, 404, 422][n % 4];
        seen += usize::from(answered(&mut gateway, &mut backends, status).await == status);
    }
    assert!(seen >= 20, "{seen} of them reached the client");
    assert_eq!((permits(&gateway), gateway.service.totals().moved), (vec![20, 20], 0));
}

#[tokio::test(start_paused = true)]
async fn a_429_to_the_probe_leaves_the_breaker_half_open_and_its_seat_is_never_lost() {
    let (mut gateway, mut backends) = opened().await;
    sleep(Duration::from_millis(5_001)).await;
    let mut probes = 0;
    while probes < 5 {
        probes += usize::from(answered(&mut gateway, &mut backends, 429).await == 429);
        until("the seat is back", || gateway.in_use() == 0).await;
        assert_eq!(permits(&gateway), [1, 20]);
    }
    // A client that leaves its probe gives the seat back, too.
    let mut probe = gateway.send(completion(""));
    while backends[1].has_call() || !backends[0].has_call() {
        sleep(Duration::from_millis(1)).await;
        if backends[1].has_call() {
            backends[1].call().await.respond(200, &[]).finish();
            probe.answer().await;
            probe = gateway.send(completion(""));
        }
    }
    drop(probe);
    until("the seat is back", || gateway.in_use() == 0).await;
    while permits(&gateway)[0] == 1 {
        assert_eq!(answered(&mut gateway, &mut backends, 200).await, 200);
    }
    assert_eq!(permits(&gateway), [2, 20]);
}

#[tokio::test(start_paused = true)]
async fn what_ran_before_the_breaker_opened_keeps_its_permit_and_does_not_keep_the_probe_out() {
    let (mut gateway, mut backends, _) = Piped::over(&["a", "b"], TWO);
    let mut streams = Vec::new();
    while streams.len() < 6 {
        let sending = gateway.send(completion(""));
        until("it has arrived", || backends.iter().any(Backend::has_call)).await;
        let place = usize::from(!backends[0].has_call());
        let responding = backends[place].call().await.stream();
        streams.push((place, responding, sending.answer().await));
    }
    let held = streams.iter().filter(|(place, ..)| *place == 0).count() as u32;
    while gateway.service.totals().moved < 3 {
        assert_eq!(answered(&mut gateway, &mut backends, 503).await, 200);
    }
    sleep(Duration::from_millis(5_001)).await;
    assert_eq!(gateway.service.load().1[0], (held, held + 1), "the streams' permits, and the probe's");
    for (_, responding, mut answer) in streams {
        responding.event("{}");
        responding.finish();
        assert!(answer.rest().await.1, "a stream that runs is not cut");
    }
    until("only the probe's is left", || permits(&gateway)[0] == 1).await;
    gateway.service.audit().unwrap();
}
