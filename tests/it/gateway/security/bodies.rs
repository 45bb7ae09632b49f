//! Bodies that are too slow, too large, too many, or nonsense (S2, S3, S4, S16, S17).

use std::time::{Duration, Instant};

use elasticserve_core::openai::{MAX_OUTPUT_TOKENS, peek};
use elasticserve_core::rng::{Random, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::support::backend::{Backend, header};
use crate::support::client::{Client, completion, post};
use crate::support::gateway::Piped;
use crate::support::process::Process;
use crate::support::{soon, until};

const HEAD: &str = "POST /v1/completions HTTP/1.1\r\nhost: g\r\n";

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_given_up_at_its_deadline_and_has_held_no_place_and_no_permit() {
    let (mut gateway, backend) = Piped::start(1, |raw| raw.timeouts.body = Some("5s".into()));
    let mut random = Random::new(2, Stream::Test);
    for trial in 0..100 {
        let mut stream = gateway.connect();
        let chunked = trial % 2 == 0;
        let framing = if chunked { "transfer-encoding: chunked" } else { "content-length: 100000" };
        stream.write_all(format!("{HEAD}{framing}\r\n\r\n").as_bytes()).await.unwrap();
        let began = tokio::time::Instant::now();
        let (mut reading, mut writing) = tokio::io::split(stream);
        let gap = Duration::from_millis(random.between(1, 4_900));
        let drip = async {
            // The bytes come for ever, each in time after the one before.
            while writing.write_all(if chunked { b"1\r\nx\r\n" } else { b"x" }).await.is_ok() {
                tokio::time::sleep(gap).await;
                assert_eq!((gateway.queued(), gateway.in_use()), (0, 0));
            }
            std::future::pending::<()>().await;
        };
        let mut answer = Vec::new();
        tokio::select! {
            _ = reading.read_to_end(&mut answer) => {}
            () = drip => {}
        }
        let text = String::from_utf8_lossy(&answer);
        assert!(text.starts_with("HTTP/1.1 408 ") && text.contains("x-should-retry: false"), "{trial}: {text}");
        let waited = began.elapsed().as_millis();
        assert!((5_000..5_010).contains(&waited), "{trial}: {waited} ms");
    }
    assert_eq!((gateway.service.totals().offers, backend.has_call()), (0, false));
}

#[tokio::test(start_paused = true)]
async fn a_body_over_its_limit_is_refused_and_hardly_more_of_it_is_read_than_may_be() {
    let mut random = Random::new(3, Stream::Test);
    for trial in 0..30 {
        let limit = random.between(1, 300_000);
        let (gateway, backend) = Piped::start(1, |raw| raw.limits.body_bytes = Some(limit));
        // A pipe that holds little, so that what was written was read.
        let (mut ours, theirs) = tokio::io::duplex(512);
        let service = gateway.service.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move { service.serve(theirs).await });
        let kind = trial % 3;
        let framing = match kind {
            0 => format!("content-length: {}", limit + random.between(1, 1 << 40)),
            1 => "transfer-encoding: chunked".to_owned(),
            _ => format!("content-length: {limit}"),
        };
        ours.write_all(format!("{HEAD}{framing}\r\n\r\n").as_bytes()).await.unwrap();
        let (mut reading, mut writing) = tokio::io::split(ours);
        let size = random.between(1, 10_000) as usize;
        let piece = match kind {
            1 => format!("{size:x}\r\n{}\r\n", "x".repeat(size)),
            // What follows a body that was announced shorter is another request, and is none.
            _ => "x".repeat(size),
        };
        let mut written = 0u64;
        let flood = async {
            for byte in piece.as_bytes().chunks(64).cycle() {
                if writing.write_all(byte).await.is_err() {
                    break;
                }
                written += byte.len() as u64;
            }
        };
        let mut answer = Vec::new();
        let read = async { reading.read_to_end(&mut answer).await };
        let ((), _) = soon("the connection is closed", async { tokio::join!(flood, read) }).await;
        let text = String::from_utf8_lossy(&answer);
        let expected = if kind == 2 { "HTTP/1.1 400 " } else { "HTTP/1.1 413 " };
        assert!(text.starts_with(expected), "{trial} {framing}: {text}");
        // Frames of chunks are not counted as the body, but are small beside it.
        let frames = if kind == 1 { limit.div_ceil(size as u64) * 12 } else { 0 };
        assert!(written <= limit + frames + (64 << 10) + 1024, "{trial}: {written} of {limit}");
        assert!(!backend.has_call() && gateway.service.totals().offers == 0);
    }
}

/// The most memory that a process has had, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn a_thousand_bodies_take_no_more_memory_than_their_budget() {
    const BODY: usize = 1 << 20;
    const BUDGET: u64 = 128 << 20;
    let (mut backend, addr) = Backend::on_tcp().await;
    let text = format!(
        "[[backends]]\nurl = 'http://{addr}'\npermits = 1\n[queue]\ndepth = 2000\nbytes = 2000000000\n\
         [limits]\nbody_bytes = {BODY}\nbody_memory = {BUDGET}\n"
    );
    let program = Process::start(&text, &[], &[]).await;
    let before = peak_memory(program.pid());
    let prompt = "x".repeat(BODY - 64);
    let body = format!(r#"{{"prompt":"{prompt}","max_tokens":1}}"#);
    let mut asking = JoinSet::new();
    let data = program.data;
    for _ in 0..1000 {
        let request = post("/v1/completions", &body);
        asking.spawn(async move {
            let Ok(mut answer) = Client::tcp(data).await.send(request).await else { return None };
            let reason = header(&answer.headers, "x-elasticserve-reason").map(str::to_owned);
            let told = header(&answer.headers, "retry-after").is_some();
            answer.rest().await;
            Some((answer.status.as_u16(), reason, told))
        });
    }
    let running = backend.call().await;
    // Those that fit are held; all others are refused, or closed while they still send.
    let fit = (BUDGET / body.len() as u64) as usize;
    let mut refused = 0;
    while refused < 1000 - fit {
        let ended = soon("one that does not fit is refused", asking.join_next()).await.unwrap().unwrap();
        if let Some((status, reason, told)) = ended {
            assert_eq!((status, reason.as_deref(), told), (429, Some("memory_full"), true));
        }
        refused += 1;
    }
    let peak = peak_memory(program.pid()) - before;
    assert!(peak <= BUDGET * 3 / 2, "{} MiB of {} MiB", peak >> 20, BUDGET >> 20);
    assert!(peak >= BUDGET * 3 / 4, "only {} MiB: the bodies were not there", peak >> 20);
    let held = program.metric("elasticserve_body_memory_bytes").await.unwrap() as u64;
    assert!((BUDGET - (2 << 20)..=BUDGET).contains(&held), "{held}");
    // As soon as they are gone there is room again.
    asking.shutdown().await;
    drop(running);
    program.until_metric("elasticserve_body_memory_bytes", 0.0).await;
    let (answer, ()) =
        tokio::join!(Client::tcp(program.data).await.send(completion("")), async { backend.call().await.json("{}") });
    assert_eq!(answer.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn memory_is_taken_before_a_body_is_read_and_held_until_it_has_been_sent() {
    let (mut gateway, mut backend) = Piped::start(1, |raw| {
        raw.limits.body_bytes = Some(1000);
        raw.limits.body_memory = Some(1000);
    });
    let small = || post("/v1/completions", &format!(r#"{{"prompt":"{}"}}"#, "x".repeat(100)));
    let refused = |status: u16, answer: &crate::support::client::Answer| {
        assert_eq!(
            (answer.status.as_u16(), header(&answer.headers, "x-elasticserve-reason")),
            (status, Some("memory_full"))
        );
        assert_eq!(header(&answer.headers, "connection"), Some("close"));
    };
    // 950 are announced, and not one of them has come.
    let mut announcing = gateway.connect();
    announcing.write_all(format!("{HEAD}content-length: 950\r\n\r\n").as_bytes()).await.unwrap();
    until("it is announced", || gateway.service.body_memory() == 950).await;
    refused(429, &gateway.client().await.send(small()).await.unwrap());
    drop(announcing);
    until("it has gone", || gateway.service.body_memory() == 0).await;
    // Chunks are counted as they come.
    let mut chunked = gateway.connect();
    let chunk = format!("{HEAD}transfer-encoding: chunked\r\n\r\n384\r\n{}\r\n", "x".repeat(900));
    chunked.write_all(chunk.as_bytes()).await.unwrap();
    until("it has come", || gateway.service.body_memory() == 900).await;
    refused(429, &gateway.client().await.send(small()).await.unwrap());
    drop(chunked);
    until("it has gone", || gateway.service.body_memory() == 0).await;
    // One that waits holds its own until it has been sent.
    let (first, second) = (gateway.client().await, gateway.client().await);
    let mut asking = JoinSet::new();
    asking.spawn(async move { first.send(small()).await.unwrap().status.as_u16() });
    let running = backend.call().await;
    let large = post("/v1/completions", &format!(r#"{{"prompt":"{}"}}"#, "x".repeat(800)));
    asking.spawn(async move { second.send(large).await.unwrap().status.as_u16() });
    until("it waits", || gateway.queued() == 1).await;
    assert!(gateway.service.body_memory() >= 800);
    refused(
        429,
        &gateway
            .client()
            .await
            .send(post("/v1/completions", &format!(r#"{{"prompt":"{}"}}"#, "x".repeat(300))))
            .await
            .unwrap(),
    );
    running.json("{}");
    backend.call().await.json("{}");
    while let Some(status) = asking.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    until("all has gone", || gateway.service.body_memory() == 0).await;
}

/// The CPU time of this thread, in nanoseconds.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn nonsense_in_json_is_refused_soon_and_overflows_nothing() {
    let deep = |open: &str, close: &str| format!("{{\"messages\":{}{}}}", open.repeat(10_000), close.repeat(10_000));
    let nonsense = [
        deep("[", "]"),
        deep("{\"content\":", "}"),
        format!("{{\"unread\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000)),
        "[".repeat(10_000),
        "{\"model\":\"a\",\"model\":\"b\"}".into(),
        "{\"max_tokens\":1,\"max_tokens\":2}".into(),
        "\u{feff}{\"prompt\":\"x\"}".into(),
        "{\"prompt\":\"\\ud800\"}".into(),
        "{\"model\":\"\\udc00\\ud800\"}".into(),
        "{\"max_tokens\":NaN}".into(),
        "{\"max_tokens\":Infinity}".into(),
        "{\"max_tokens\":-Infinity}".into(),
        "{\"max_tokens\":1e999}".into(),
        "{\"prompt\":\"x\"".into(),
        "{\"prompt\":\"x\"}{}".into(),
        "{'prompt':'x'}".into(),
        "{\"prompt\":\"x\",}".into(),
        "null".into(),
        "\"text\"".into(),
        "\u{0}".into(),
    ];
    for _ in 0..5 {
        for body in &nonsense {
            let began = cpu_time();
            let shown: String = body.chars().take(40).collect();
            assert!(peek(body.as_bytes()).is_err(), "{shown}");
            let took = Duration::from_nanos(cpu_time() - began);
            assert!(took <= Duration::from_millis(50), "{shown}: {took:?}");
        }
    }
    // A million keys are one request with nothing in it that is asked for; two of the same stay an error.
    let many: String = (0..1_000_000).map(|n| format!("\"k{n}\":0,")).collect();
    let began = Instant::now();
    assert!(peek(format!("{{{many}\"prompt\":[1]}}").as_bytes()).is_ok());
    assert!(peek(format!("{{\"n\":1,{many}\"n\":1}}").as_bytes()).is_err());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn no_number_in_a_request_makes_its_cost_nothing_or_overflow() {
    let mut random = Random::new(17, Stream::Test);
    let mut taken = 0;
    for trial in 0..10_000 {
        let mut number = || match random.between(0, 11) {
            0 => "-1".to_owned(),
            1 => "0".to_owned(),
            2 => "9223372036854775808".to_owned(),
            3 => "1e309".to_owned(),
            4 => "\"5\"".to_owned(),
            5 => "1.5".to_owned(),
            6 => "null".to_owned(),
            7 => "true".to_owned(),
            8 => "18446744073709551616".to_owned(),
            9 => "[1]".to_owned(),
            10 => format!("{}", random.between(1, 1 << 30)),
            _ => format!("{}", random.between(1, 5)),
        };
        let fields = [("max_tokens", number()), ("max_completion_tokens", number()), ("n", number())];
        let body: Vec<String> =
            fields.iter().skip(trial % 3).map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let body = format!("{{\"prompt\":[1],{}}}", body.join(","));
        let Ok(peek) = peek(body.as_bytes()) else { continue };
        taken += 1;
        assert!(peek.max_tokens.is_none_or(|n| (1..=MAX_OUTPUT_TOKENS).contains(&n)), "{body}");
        assert!((1..=elasticserve_core::openai::MAX_CHOICES).contains(&peek.choices), "{body}");
        assert_eq!(peek.input.count(), 1, "{body}");
    }
    assert!(taken > 500, "{taken} of 10,000 were requests at all");
}
