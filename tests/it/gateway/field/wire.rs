//! Bytes and their framing, as other gateways got them wrong.

use elasticserve_core::rng::{Random, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::backend::header;
use crate::support::client::post;
use crate::support::gateway::Piped;
use crate::support::soon;

const BODY: &str = r#"{"model":"m","prompt":[1,2,3],"max_tokens":8}"#;

#[tokio::test(start_paused = true)]
async fn an_answer_in_one_piece_reaches_its_client_byte_for_byte_with_its_length() {
    let odd = "{ \"b\":1,\"a\":1e2, \"choices\":[{\"text\":\"\\u00e9 é \\/ 🦀\"}],\t\"b\":2 }\r\n".to_owned();
    for seed in 0..100 {
        let mut random = Random::new(seed, Stream::Test);
        // Half of them are no JSON, nor even text.
        let body: Vec<u8> = if seed % 2 == 0 {
            odd.repeat(random.between(1, 40) as usize).into_bytes()
        } else {
            (0..random.between(1, 5_000)).map(|_| random.between(0, 255) as u8).collect()
        };
        let status = [200, 201, 400, 422][random.between(0, 3) as usize];
        let (mut gateway, mut backend) = Piped::start(1, |_| {});
        let sending = gateway.send(post("/v1/completions", BODY));
        let call = backend.call().await;
        assert_eq!(call.body, BODY);
        let length = body.len().to_string();
        let responding = call.respond(
            status,
            &[("content-type", "application/json"), ("content-length", &length), ("x-engine", "kept")],
        );
        let mut rest = &body[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(random.between(1, rest.len() as u64) as usize);
            responding.chunk(now);
            rest = later;
        }
        responding.finish();
        let mut answer = sending.answer().await;
        assert_eq!((answer.status.as_u16(), header(&answer.headers, "x-engine")), (status, Some("kept")));
        assert_eq!(header(&answer.headers, "content-length"), Some(length.as_str()));
        assert_eq!(answer.rest().await, (body, true), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_one_framing_that_its_client_understands_whatever_the_backends_was() {
    for (version, chunked) in [("1.1", true), ("1.0", false)] {
        let (mut gateway, mut backend) = Piped::start(1, |_| {});
        let mut stream = gateway.connect();
        let head = format!("POST /v1/completions HTTP/{version}\r\nhost: g\r\nconnection: close\r\n");
        stream.write_all(format!("{head}content-length: {}\r\n\r\n{BODY}", BODY.len()).as_bytes()).await.unwrap();
        // The backend sends chunks.
        let responding = backend.call().await.respond(200, &[("content-type", "application/json")]);
        responding.chunk(b"{\"a\":");
        responding.chunk(b"1}");
        responding.finish();
        let mut bytes = Vec::new();
        soon("the answer ends", stream.read_to_end(&mut bytes)).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let count = |name: &str| head.lines().filter(|l| l.to_ascii_lowercase().starts_with(name)).count();
        assert_eq!(count("transfer-encoding:"), usize::from(chunked), "{text}");
        assert_eq!(count("content-length:"), 0, "{text}");
        // What is said of the framing is what the body has, once.
        let expected = if chunked { "5\r\n{\"a\":\r\n2\r\n1}\r\n0\r\n\r\n" } else { "{\"a\":1}" };
        assert_eq!(body, expected, "HTTP/{version}");
    }
}
