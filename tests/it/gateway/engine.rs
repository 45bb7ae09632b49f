//! Permits corrected by what an engine says of the work of others.

use std::sync::{Arc, Mutex};

use elasticserve_gateway::Gateway;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::support::backend::{Backend, Call};
use crate::support::client::{Client, completion, get};
use crate::support::gateway::settings;
use crate::support::until;

/// What `/metrics` answers, and how often it was asked.
type Shown = Arc<Mutex<(u16, String, usize)>>;

/// A backend that shows metrics; other requests come out of the channel.
async fn engine() -> (std::net::SocketAddr, Shown, mpsc::UnboundedReceiver<Call>, JoinSet<()>) {
    let (mut backend, addr) = Backend::on_tcp().await;
    let shown: Shown = Arc::new(Mutex::new((200, gauges(0, 0), 0)));
    let (sender, calls) = mpsc::unbounded_channel();
    let (says, mut task) = (Arc::clone(&shown), JoinSet::new());
    task.spawn(async move {
        while let Some(call) = backend.next_call().await {
            if call.head.uri.path() == "/metrics" {
                let (status, text) = {
                    let mut says = says.lock().unwrap();
                    says.2 += 1;
                    (says.0, says.1.clone())
                };
                let responding = call.respond(status, &[]);
                responding.chunk(text.as_bytes());
                responding.finish();
            } else {
                let _ = sender.send(call);
            }
        }
    });
    (addr, shown, calls, task)
}

fn gauges(running: u32, waiting: u32) -> String {
    format!(
        "vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} {running}.0\n\
         vllm:num_requests_waiting{{engine=\"0\",model_name=\"m\"}} {waiting}.0\n"
    )
}

fn show(shown: &Shown, status: u16, text: &str) {
    let mut says = shown.lock().unwrap();
    (says.0, says.1) = (status, text.to_owned());
}

/// Returns once what is shown has been read twice.
async fn read(shown: &Shown) {
    let before = shown.lock().unwrap().2;
    until("it is read again", || shown.lock().unwrap().2 >= before + 3).await;
}

async fn start(addr: std::net::SocketAddr) -> Gateway {
    let mut raw = settings(&addr.to_string(), 10);
    raw.backends.as_mut().unwrap()[0].engine = Some("vllm".into());
    raw.health.metrics_interval = Some("20ms".into());
    Gateway::start(raw.check().unwrap()).await.unwrap()
}

#[tokio::test]
async fn what_others_have_sent_to_an_engine_takes_permits_and_own_work_does_not() {
    let (addr, shown, mut calls, _task) = engine().await;
    let gateway = start(addr).await;
    let load = || gateway.service().load().1;
    assert_eq!(load(), [(0, 10)]);
    show(&shown, 200, &gauges(4, 2));
    until("six are others'", || load() == [(0, 4)]).await;

    // Two of our own are among what the engine shows from here on.
    let mut answers = JoinSet::new();
    let mut held = Vec::new();
    for _ in 0..2 {
        let client = Client::tcp(gateway.data_addr()).await;
        answers.spawn(async move { client.send(completion("")).await.unwrap().status });
        held.push(calls.recv().await.unwrap());
    }
    show(&shown, 200, &gauges(8, 0));
    read(&shown).await;
    assert_eq!(load(), [(2, 4)]);
    show(&shown, 200, &gauges(2, 0));
    until("only our own are left", || load() == [(2, 10)]).await;
    held.into_iter().for_each(|call| call.json("{}"));
    while let Some(status) = answers.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }

    // However much others send, one permit is left.
    show(&shown, 200, &gauges(5_000, 70));
    until("one is left", || load() == [(0, 1)]).await;
    let client = Client::tcp(gateway.data_addr()).await;
    let (answer, ()) = tokio::join!(client.send(completion("")), async { calls.recv().await.unwrap().json("{}") });
    assert_eq!(answer.unwrap().status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn metrics_that_are_missing_or_old_never_stop_dispatch_and_their_age_is_shown() {
    let (addr, shown, mut calls, _task) = engine().await;
    let gateway = start(addr).await;
    let load = || gateway.service().load().1;
    for (status, text) in [(500, ""), (200, "no such gauge 1\n"), (200, "vllm:num_requests_running NaN\n")] {
        show(&shown, 200, &gauges(9, 9));
        until("one is left", || load() == [(0, 1)]).await;
        show(&shown, status, text);
        until("what is old is not believed", || load() == [(0, 10)]).await;
    }
    let client = Client::tcp(gateway.data_addr()).await;
    let (answer, ()) = tokio::join!(client.send(completion("")), async { calls.recv().await.unwrap().json("{}") });
    assert_eq!(answer.unwrap().status, 200);
    let mut answer = Client::tcp(gateway.admin_addr()).await.send(get("/metrics")).await.unwrap();
    let text = String::from_utf8(answer.rest().await.0).unwrap();
    let age = text.lines().find(|l| l.starts_with("elasticserve_backend_metrics_age_seconds{")).unwrap();
    assert!(age.rsplit(' ').next().unwrap().parse::<f64>().unwrap() > 0.1, "{age}");
    gateway.stop().await;
}
