//! Names that clients make up never become series (S12).

use bytes::Bytes;
use elasticserve_core::rng::{Random, Stream};
use elasticserve_gateway::Gateway;
use elasticserve_gateway::config::{RawPool, RawTenant};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::{GOLD, with_keys};
use crate::support::client::{Client, get};
use crate::support::gateway::settings;
use crate::support::raw::RawBackend;

const REQUESTS: usize = 10_000;
const CONNECTIONS: usize = 10;
/// What every made-up name begins with, and nothing else holds.
const MARK: &str = "zq";
/// The most bytes of `/metrics`.
const BOUND: usize = 256 << 10;

fn made_up(random: &mut Random) -> String {
    let length = random.between(1, 40);
    let letters = (0..length).map(|_| char::from(b"abcXYZ019._-"[random.between(0, 11) as usize]));
    format!("{MARK}{}", letters.collect::<String>())
}

/// A request of which something is made up, or all of it.
fn request(random: &mut Random) -> Request<Full<Bytes>> {
    let name = |random: &mut Random| made_up(random);
    let path = match random.between(0, 4) {
        0 => format!("/{}", name(random)),
        1 => format!("/v1/models/{}", name(random)),
        2 => format!("/v1/completions?{}", name(random)),
        3 => "/v1/models".to_owned(),
        _ => "/v1/completions".to_owned(),
    };
    let method = match random.between(0, 3) {
        0 => name(random).to_uppercase().replace(['.', '_'], "-"),
        1 => "GET".to_owned(),
        _ => "POST".to_owned(),
    };
    let body = format!(r#"{{"model":"{}","prompt":[1],"max_tokens":1,"user":"{}"}}"#, name(random), name(random));
    let body = if random.between(0, 9) == 0 { name(random) } else { body };
    let mut request = Request::builder().method(&*method).uri(path).header("host", "g");
    for header in [
        "x-elasticserve-tenant",
        "x-llm-d-inference-fairness-id",
        "x-elasticserve-class",
        "x-request-id",
        "user-agent",
        "content-encoding",
        "x-elasticserve-queue-budget-ms",
        "traceparent",
        "x-forwarded-for",
    ] {
        if random.between(0, 7) == 0 {
            request = request.header(header, name(random));
        }
    }
    let key = if random.between(0, 4) == 0 { name(random) } else { GOLD.to_owned() };
    request.header("authorization", format!("Bearer {key}")).body(Full::from(body)).unwrap()
}

/// Sends so many requests over a few connections, one after the other on each.
async fn send(gateway: &Gateway, count: usize, seed: u64) {
    let mut sending = JoinSet::new();
    for n in 0..CONNECTIONS {
        let stream = tokio::net::TcpStream::connect(gateway.data_addr()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        sending.spawn(async move {
            let mut random = Random::new(seed + n as u64, Stream::Test);
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            let mut driver = JoinSet::new();
            driver.spawn(connection);
            for _ in 0..count / CONNECTIONS {
                sender.ready().await.unwrap();
                let answer = sender.send_request(request(&mut random)).await.unwrap();
                answer.into_body().collect().await.unwrap();
            }
        });
    }
    sending.join_all().await;
}

async fn metrics(gateway: &Gateway) -> String {
    let mut answer = Client::tcp(gateway.admin_addr()).await.send(get("/metrics")).await.unwrap();
    String::from_utf8(answer.rest().await.0).unwrap()
}

/// The series, without their values.
fn series(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap().0).collect()
}

#[tokio::test]
async fn no_name_that_a_client_makes_up_becomes_a_series_or_is_told_anywhere_else() {
    for pools in [false, true] {
        let backend = RawBackend::start(|_| {
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}".to_vec()
        })
        .await;
        let mut raw = settings(&backend.addr.to_string(), 4);
        with_keys(&mut raw);
        let more = (0..20).map(|n| RawTenant { name: format!("t{n}"), ..RawTenant::default() });
        raw.tenants.as_mut().unwrap().extend(more);
        if pools {
            raw.backends.as_mut().unwrap()[0].pool = Some("a".into());
            let pool = RawPool { name: "a".into(), models: Some(vec!["m".into()]), ..RawPool::default() };
            raw.pools = Some(vec![pool]);
        }
        let gateway = Gateway::start(raw.check().unwrap()).await.unwrap();
        send(&gateway, REQUESTS / 10, 1).await;
        let before = metrics(&gateway).await;
        send(&gateway, REQUESTS - REQUESTS / 10, 1_000).await;
        let after = metrics(&gateway).await;
        // All the ways to be refused were met in the first tenth; from there on nothing is added.
        assert_eq!(series(&before), series(&after));
        assert!(after.len() <= BOUND, "{} bytes", after.len());
        let told = after.lines().find(|line| line.to_lowercase().contains(MARK));
        assert!(told.is_none(), "{told:?}");
        let mut state = Client::tcp(gateway.admin_addr()).await.send(get("/admin/state")).await.unwrap();
        state.rest().await;
        let ended = |outcome: &str| {
            let lines = after.lines().filter(|line| line.contains(&format!("outcome=\"{outcome}\"")));
            lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum::<f64>()
        };
        let outcomes = ["not_found", "method_not_allowed", "invalid_api_key", "unsupported_encoding", "bad_header"];
        for outcome in outcomes {
            assert!(ended(outcome) > 10.0, "{outcome}: {after}");
        }
        assert!(ended(if pools { "model_not_found" } else { "finished" }) > 100.0, "{after}");
        gateway.stop().await;
    }
}
