//! Bytes pass through as they come, untouched and at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::sse::Parser;
use elasticserve_gateway::Gateway;

use crate::support::backend::{Backend, header};
use crate::support::client::{Client, completion, post};
use crate::support::gateway::{Piped, settings};
use crate::support::tell;

/// Tokens of a stream in lock-step.
const TOKENS: usize = 1_000;

/// How a token's event is cut into writes.
#[derive(Copy, Clone, Debug)]
enum Cut {
    Whole,
    InTwo,
    InBytes,
}

#[tokio::test]
async fn every_token_arrives_before_the_next_one_is_made() {
    for cut in [Cut::Whole, Cut::InTwo, Cut::InBytes] {
        let (mut backend, addr) = Backend::on_tcp().await;
        let direct = lock_step(addr, &mut backend, cut).await;
        let gateway = Gateway::start(settings(&addr.to_string(), 1).check().unwrap()).await.unwrap();
        let through = lock_step(gateway.data_addr(), &mut backend, cut).await;
        gateway.stop().await;
        let (longest, added) = (through[TOKENS - 1], through[TOKENS / 2].saturating_sub(direct[TOKENS / 2]));
        tell(&format!("{cut:?}: p50 direct {:?}, added {added:?}; the longest {longest:?}", direct[TOKENS / 2]));
        // Held back by a timer or by Nagle's algorithm, every token would come tens of milliseconds later.
        assert!(
            added < Duration::from_millis(20) && longest < Duration::from_secs(5),
            "{cut:?}: {added:?} {longest:?}"
        );
    }
}

/// A stream of which each token is sent only after the client has the one before; how long each took, in order of
/// length.
async fn lock_step(addr: SocketAddr, backend: &mut Backend, cut: Cut) -> Vec<Duration> {
    let client = Client::tcp(addr).await;
    let (answer, responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
    let (mut answer, mut parser, mut times) = (answer.unwrap(), Parser::new(), Vec::new());
    for token in 0..TOKENS {
        let event = format!("data: {{\"choices\":[{{\"text\":\"t{token}\"}}]}}\n\n");
        let sent = Instant::now();
        match cut {
            Cut::Whole => responding.chunk(event.as_bytes()),
            Cut::InTwo => {
                responding.chunk(&event.as_bytes()[..7]);
                responding.chunk(&event.as_bytes()[7..]);
            }
            Cut::InBytes => event.as_bytes().iter().for_each(|b| responding.chunk(&[*b])),
        }
        // `chunk` fails if it never comes.
        let mut got = None;
        while got.is_none() {
            let bytes = answer.chunk().await.unwrap().unwrap();
            parser.feed(&bytes, |e| got = Some(String::from_utf8_lossy(e.data).into_owned()));
        }
        times.push(sent.elapsed());
        assert!(got.unwrap().contains(&format!("\"t{token}\"")), "{cut:?} {token}");
    }
    responding.finish();
    assert!(answer.rest().await.1);
    times.sort();
    times
}

#[tokio::test(start_paused = true)]
async fn the_first_token_of_a_slow_stream_is_not_held_back() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let client = gateway.client().await;
    let (answer, responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
    let mut answer = answer.unwrap();
    let sent = tokio::time::Instant::now();
    responding.event("{}");
    answer.chunk().await.unwrap().unwrap();
    // On a paused clock any timer that held it back would show in full.
    assert_eq!(sent.elapsed().as_millis(), 0);
    responding.finish();
}

/// A stream with everything that a careless proxy breaks.
fn awkward_stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(": keep-alive\r\n\r\ndata:no space\n\n".as_bytes());
    bytes.extend_from_slice("data: grüße 🦀 \u{2028}\r\rid: 7\revent: x\rdata: a\rdata: b\r\r".as_bytes());
    bytes.extend_from_slice(b"event: y\r\ndata: one\r\ndata: two\r\n\r\n");
    bytes.extend_from_slice(format!("data: {}\n\n", "x".repeat(9_000)).as_bytes());
    bytes.extend_from_slice(b"data: [DONE]\n\ndata: last without its blank line");
    bytes
}

#[tokio::test(start_paused = true)]
async fn bytes_come_out_as_they_went_in_however_they_are_cut() {
    let whole = awkward_stream();
    for seed in 0..200 {
        let mut random = Random::new(seed, Stream::Test);
        let (mut gateway, mut backend) = Piped::start(1, |_| {});
        let client = gateway.client().await;
        let (answer, responding) = tokio::join!(client.send(completion("")), async { backend.call().await.stream() });
        let mut rest = &whole[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(random.between(1, rest.len().min(300) as u64) as usize);
            responding.chunk(now);
            rest = later;
            if random.between(0, 3) == 0 {
                tokio::task::yield_now().await;
            }
        }
        responding.finish();
        let (bytes, ended) = answer.unwrap().rest().await;
        assert!(ended && bytes == whole, "seed {seed}");
    }
}

#[test]
fn the_parser_reads_the_same_events_however_a_stream_is_cut() {
    let whole = awkward_stream();
    let events = |cuts: &[usize]| {
        let mut parser = Parser::new();
        let mut events: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut start = 0;
        for &end in cuts.iter().chain([&whole.len()]) {
            parser.feed(&whole[start..end], |e| events.push((e.kind.to_vec(), e.data.to_vec())));
            start = end;
        }
        parser.finish(|e| events.push((e.kind.to_vec(), e.data.to_vec())));
        (events, parser.counts())
    };
    let expected = events(&[]);
    assert_eq!(expected.0.len(), 7);
    assert_eq!(expected.1.comments, 1);
    for seed in 0..5000 {
        let mut random = Random::new(seed, Stream::Test);
        let mut cuts: Vec<usize> =
            (0..random.between(1, 40)).map(|_| random.between(0, whole.len() as u64) as usize).collect();
        cuts.sort_unstable();
        assert_eq!(events(&cuts), expected, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_bodies_reach_the_backend_byte_for_byte() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    // Odd spacing, duplicate and unknown keys, escaped characters must all survive.
    let body = "{ \"model\":\"m\" ,\"x\":1,\"prompt\":\"\\u00e9\\n\",\t\"x\":1e2, \"max_tokens\": 3}";
    let client = gateway.client().await;
    let (answer, ()) = tokio::join!(client.send(post("/v1/completions?debug=1", body)), async {
        let call = backend.call().await;
        assert_eq!(call.body, body.as_bytes());
        assert_eq!(call.head.uri.path_and_query().unwrap(), "/v1/completions?debug=1");
        assert_eq!(header(&call.head.headers, "content-length"), Some(body.len().to_string().as_str()));
        call.json("{}");
    });
    assert_eq!(answer.unwrap().rest().await, (b"{}".to_vec(), true));
}

#[tokio::test(start_paused = true)]
async fn an_encoded_answer_is_passed_on_encoded() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let client = gateway.client().await;
    let (answer, ()) = tokio::join!(client.send(completion("")), async {
        let headers = [("content-type", "application/json"), ("content-encoding", "gzip"), ("content-length", "4")];
        let responding = backend.call().await.respond(200, &headers);
        responding.chunk(&[0x1f, 0x8b, 0, 1]);
        responding.finish();
    });
    let mut answer = answer.unwrap();
    assert_eq!(header(&answer.headers, "content-encoding"), Some("gzip"));
    assert_eq!(answer.rest().await, (vec![0x1f, 0x8b, 0, 1], true));
}
