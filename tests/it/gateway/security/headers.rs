//! Headers that claim what is not so (S7, S8).

use std::io::Write;
use std::sync::{Arc, Mutex};

use elasticserve_core::rng::{Random, Stream as Seeds};
use elasticserve_gateway::config::{RawConfig, RawTenant};
use elasticserve_gateway::{Dial, DialFuture, Service, Stream};
use http::uri::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::{GOLD, bearer, with, with_keys};
use crate::support::backend::header;
use crate::support::client::{Client, completion};
use crate::support::gateway::{Piped, on_sockets, settings};
use crate::support::soon;

const HEAD: &str = "POST /v1/completions HTTP/1.1\r\nhost: g\r\n";
const BODY: &str = r#"{"prompt":[1],"max_tokens":1}"#;

/// A key of the gateway's own in a file of the test's.
fn own_key() -> (tempfile::NamedTempFile, &'static str) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"sk-own-key\n").unwrap();
    (file, "Bearer sk-own-key")
}

fn own(raw: &mut RawConfig, file: &tempfile::NamedTempFile) {
    raw.backends.as_mut().unwrap()[0].key_file = Some(file.path().to_owned());
}

#[tokio::test]
async fn a_backend_sees_the_gateways_own_key_and_nothing_that_a_client_claims() {
    let (file, own_header) = own_key();
    let (gateway, mut backend) = on_sockets(4, |raw| {
        with_keys(raw);
        own(raw, &file);
    })
    .await;
    let (name, value) = bearer(GOLD);
    for spoof in [
        ("x-elasticserve-tenant", "batch"),
        ("x-llm-d-inference-fairness-id", "batch"),
        ("x-gateway-inference-fairness-id", "batch"),
        ("x-elasticserve-backend", "7"),
        ("x-elasticserve-priority", "1"),
        ("X-ElasticServe-Anything", "1"),
        ("api-key", GOLD),
        ("proxy-authorization", GOLD),
        ("connection", "authorization, x-request-id, close"),
        ("connection", "x-hop"),
        ("keep-alive", "timeout=1"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-host", "evil"),
        ("x-real-ip", "10.0.0.1"),
        ("forwarded", "for=10.0.0.1"),
        ("host", "evil"),
        ("x-hop", "1"),
        ("traceparent", "00-a"),
    ] {
        for shown in ["authorization", "x-api-key"] {
            let value = if shown == name { value.as_str() } else { GOLD };
            let mut request = with(completion(""), &[(shown, value), ("x-request-id", "kept")]);
            if spoof.0 == "host" {
                request.headers_mut().remove("host");
            }
            let (claim, said) = spoof;
            let request = with(request, &[(claim, said)]);
            let (answer, call) = tokio::join!(Client::tcp(gateway.data_addr()).await.send(request), async {
                let call = backend.call().await;
                let head = call.head.headers.clone();
                call.json("{}");
                head
            });
            let answer = answer.unwrap();
            assert_eq!(answer.status, 200, "{spoof:?}");
            assert_eq!(call.get_all("authorization").iter().collect::<Vec<_>>(), [own_header], "{spoof:?}");
            assert_eq!(header(&call, "x-request-id"), Some("kept"), "{spoof:?}");
            let passes = matches!(claim, "x-hop" | "traceparent" | "host");
            assert_eq!(call.contains_key(&claim.to_lowercase()[..]), passes, "{spoof:?}: {call:?}");
            assert!(header(&call, "host").is_some_and(|host| host.starts_with("127.0.0.1")), "{call:?}");
            assert!(call.values().all(|v| !v.as_bytes().windows(GOLD.len()).any(|w| w == GOLD.as_bytes())), "{call:?}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn without_keys_a_clients_authorization_goes_along_unless_the_backend_has_a_key_of_its_own() {
    let (file, own_header) = own_key();
    for (has_own, arrives) in [(false, "Bearer sk-clients"), (true, own_header)] {
        let (gateway, mut backend) = on_sockets(1, |raw| {
            if has_own {
                own(raw, &file);
            }
        })
        .await;
        let request = with(completion(""), &[("authorization", "Bearer sk-clients"), ("x-forwarded-for", "10.0.0.1")]);
        let (answer, head) = tokio::join!(Client::tcp(gateway.data_addr()).await.send(request), async {
            let call = backend.call().await;
            let head = call.head.headers.clone();
            call.json("{}");
            head
        });
        assert_eq!((answer.unwrap().status.as_u16(), header(&head, "authorization")), (200, Some(arrives)));
        assert_eq!(header(&head, "x-forwarded-for"), Some("10.0.0.1"));
        gateway.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_keys_a_backend_without_one_of_its_own_sees_none() {
    let (mut gateway, mut backend) = Piped::start(1, with_keys);
    let (name, value) = bearer(GOLD);
    for shown in [(name, value.as_str()), ("x-api-key", GOLD)] {
        let client = gateway.client().await;
        let sending = client.send(with(completion(""), &[shown, ("api-key", "another")]));
        let (answer, head) = tokio::join!(sending, async {
            let call = backend.call().await;
            let head = call.head.headers.clone();
            call.json("{}");
            head
        });
        assert_eq!(answer.unwrap().status, 200);
        for name in ["authorization", "x-api-key", "api-key"] {
            assert!(!head.contains_key(name), "{name}: {head:?}");
        }
    }
}

/// Asks as `headers` say from 127.0.0.1, and tells the status and the tenant, by what its bound says.
async fn asked(proxies: &str, keys: bool, headers: &[(&str, &str)]) -> (u16, String) {
    let (gateway, _backend) = on_sockets(1, |raw| {
        if keys {
            with_keys(raw);
        } else {
            let tenant = |name: &str| RawTenant { name: name.into(), ..RawTenant::default() };
            raw.tenants = Some(vec![tenant("gold"), tenant("batch")]);
            raw.default_tenant = Some("batch".into());
        }
        raw.trusted_proxies = (!proxies.is_empty()).then(|| vec![proxies.into()]);
        raw.queue.depth = Some(9);
        // Nothing of any tenant may run or wait, so that a refusal names it.
        raw.tenants.iter_mut().flatten().for_each(|t| t.max_queued_bytes = Some(1));
        raw.tenants.iter_mut().flatten().for_each(|t| t.max_permits = Some(1));
    })
    .await;
    let addr = gateway.data_addr();
    let mut running = JoinSet::new();
    for name in ["gold", "batch"] {
        let key = if name == "gold" { GOLD } else { super::BATCH };
        let request = with(completion(""), &[("x-elasticserve-tenant", name), ("x-api-key", key)]);
        running.spawn(async move { Client::tcp(addr).await.send(request).await.map(|_| ()) });
    }
    let service = gateway.service().clone();
    crate::support::until("the permit is taken", || service.load().1[0].0 == 1).await;
    let mut answer = Client::tcp(addr).await.send(with(completion(""), headers)).await.unwrap();
    let error = answer.json().await["error"].clone();
    let message = error["message"].as_str().unwrap_or_default();
    let tenant = ["gold", "batch"].into_iter().find(|name| message.contains(&format!("of {name} ")));
    running.abort_all();
    (answer.status.as_u16(), tenant.unwrap_or("nobody").to_owned())
}

#[tokio::test]
async fn a_header_names_the_tenant_only_where_its_sender_is_believed() {
    let gold = ("x-elasticserve-tenant", "gold");
    let batch_key = ("x-api-key", super::BATCH);
    for (proxies, keys, headers, expected) in [
        // Without keys and proxies everybody is believed; with proxies, only they are.
        ("", false, vec![gold], (429, "gold")),
        ("127.0.0.0/8", false, vec![gold], (429, "gold")),
        ("10.0.0.0/8", false, vec![gold], (429, "batch")),
        // With keys, the key decides, unless a proxy that is believed says otherwise.
        ("", true, vec![gold, batch_key], (429, "batch")),
        ("10.0.0.0/8", true, vec![gold, batch_key], (429, "batch")),
        ("127.0.0.1", true, vec![gold, batch_key], (429, "gold")),
        ("127.0.0.1", true, vec![gold], (429, "gold")),
        ("10.0.0.0/8", true, vec![gold], (401, "nobody")),
        ("127.0.0.1", true, vec![], (401, "nobody")),
        ("127.0.0.1", true, vec![("x-elasticserve-tenant", "unknown")], (401, "nobody")),
        ("127.0.0.1", true, vec![gold, ("x-api-key", "esk-not-a-key-0123456789")], (401, "nobody")),
        // What a client says of the hops before it makes nobody believed.
        ("10.0.0.0/8", true, vec![gold, ("x-forwarded-for", "10.0.0.1")], (401, "nobody")),
    ] {
        let (status, tenant) = asked(proxies, keys, &headers).await;
        assert_eq!((status, tenant.as_str()), expected, "{proxies} {keys} {headers:?}");
    }
}

/// A backend that answers the first request of every connection with the same bytes.
struct Fixed {
    answer: Vec<u8>,
    tasks: Mutex<JoinSet<()>>,
}

impl Dial for Fixed {
    fn dial(&self, _: &Authority) -> DialFuture {
        let (ours, mut theirs) = tokio::io::duplex(64 << 10);
        let answer = self.answer.clone();
        self.tasks.lock().unwrap().spawn(async move {
            let mut asked = [0; 4096];
            let _ = theirs.read(&mut asked).await;
            let _ = theirs.write_all(&answer).await;
            while theirs.read(&mut asked).await.is_ok_and(|n| n > 0) {}
        });
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Stream>) })
    }
}

/// Sends bytes over a connection of their own and reads all that comes back.
async fn exchange(service: &Service, bytes: &[u8]) -> String {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let service = service.clone();
    let mut serving = JoinSet::new();
    serving.spawn(async move { service.serve(theirs).await });
    ours.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    soon("the connection is closed", ours.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The values of a header in the head of an answer.
fn values<'a>(answer: &'a str, name: &str) -> Vec<&'a str> {
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_id_is_taken_only_if_it_is_harmless_and_never_makes_a_header() {
    let (gateway, _backend) = Piped::start(1, |raw| raw.queue.depth = Some(0));
    let mut random = Random::new(8, Seeds::Test);
    for trial in 0..200_u64 {
        let alphabet: &[u8] = match trial % 4 {
            0 => b"abcXYZ019._-",
            1 => b"ab\r\n:x ",
            2 => b"a<>&\"';{}\t\\",
            _ => b"\x00\x7f\xc3\xa9\x1b[a",
        };
        let length = if trial % 10 == 9 { 10_000 } else { random.between(0, 80) as usize };
        let id: Vec<u8> =
            (0..length).map(|_| alphabet[random.between(0, alphabet.len() as u64 - 1) as usize]).collect();
        // It is refused for its path, so that the answer is the gateway's own and comes at once.
        let request =
            [b"POST /nowhere HTTP/1.1\r\nhost: g\r\nconnection: close\r\nx-request-id: ", &id[..], b"\r\n\r\n"];
        let answer = exchange(&gateway.service, &request.concat()).await;
        let told = values(&answer, "x-request-id");
        let allowed = |text: &[u8]| {
            (1..=64).contains(&text.len()) && text.iter().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
        };
        let ends_lines = id.iter().any(|b| b"\r\n".contains(b));
        if answer.starts_with("HTTP/1.1 400 ") {
            // What is not HTTP is refused before there is a request.
            assert!(told.is_empty() && !allowed(&id), "{answer}");
        } else if ends_lines {
            // What follows the end of a line is not this value any more.
            assert!(told.len() == 1 && allowed(told[0].as_bytes()), "{answer}");
        } else if allowed(id.trim_ascii()) {
            assert_eq!(told, [std::str::from_utf8(id.trim_ascii()).unwrap()], "{answer}");
        } else {
            assert!(told.len() == 1 && told[0].starts_with("es-"), "{:?}: {answer}", String::from_utf8_lossy(&id));
        }
        assert!(values(&answer, "set-cookie").is_empty(), "{answer}");
        let known = ["content-type", "x-request-id", "x-elasticserve-reason", "x-elasticserve-outcome"];
        let own = ["connection", "content-length", "date"];
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        for line in head.lines().skip(1) {
            let name = line.split(':').next().unwrap_or_default();
            assert!(known.contains(&name) || own.contains(&name), "{line:?} in {answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_hostile_backend_puts_into_its_head_reaches_no_client_as_the_gateways_word() {
    let ask = format!("{HEAD}x-request-id: mine\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{BODY}", BODY.len());
    for (head, broken) in [
        ("x-request-id: forged\r\nx-request-id: twice\r\n", false),
        ("x-elasticserve-outcome: admitted\r\nx-elasticserve-queue-ms: 9\r\n", false),
        ("X-Elasticserve-Backend: 99\r\nx-elasticserve-made-up: 1\r\n", false),
        ("connection: x-request-id, x-elasticserve-outcome\r\n", false),
        ("connection: x-secret\r\nx-secret: 1\r\n", false),
        ("keep-alive: timeout=5\r\nproxy-authenticate: Basic\r\nupgrade: h2c\r\n", false),
        ("x-folded: a\r\n b\r\n", true),
        ("x-bare: a\rb\r\n", true),
        ("x nul: a\r\n", true),
        ("x-nul: a\0b\r\n", true),
        (": nameless\r\n", true),
        ("content-length: 2\r\ncontent-length: 3\r\n", true),
        ("content-length: -2\r\n", true),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{head}content-length: 2\r\n\r\n{{}}");
        let raw = settings("backend", 1);
        let service = Service::new(
            raw.check().unwrap(),
            Arc::new(Fixed { answer: answer.into_bytes(), tasks: Mutex::default() }),
        );
        let told = exchange(&service, ask.as_bytes()).await;
        let status = if broken { "HTTP/1.1 502 " } else { "HTTP/1.1 200 " };
        assert!(told.starts_with(status), "{head:?}: {told}");
        assert_eq!(values(&told, "x-request-id"), ["mine"], "{head:?}: {told}");
        let outcome = if broken { "failed" } else { "admitted" };
        assert_eq!(values(&told, "x-elasticserve-outcome"), [outcome], "{head:?}: {told}");
        assert_eq!(values(&told, "x-elasticserve-backend"), ["0"], "{head:?}: {told}");
        for name in [
            "x-elasticserve-made-up",
            "x-secret",
            "keep-alive",
            "proxy-authenticate",
            "upgrade",
            "x-folded",
            "x-bare",
            "x-nul",
        ] {
            assert!(values(&told, name).is_empty(), "{head:?}: {told}");
        }
    }
}
