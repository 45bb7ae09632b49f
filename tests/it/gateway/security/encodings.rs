//! Bodies that are compressed (S15).

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::with;
use crate::support::backend::header;
use crate::support::client::{completion, post};
use crate::support::gateway::Piped;
use crate::support::soon;

/// The bits of one block of DEFLATE (RFC 1951, section 3.2.7) that say over and over, in two bits each, to repeat the
/// last byte 258 times: a thousand bytes from one.
fn bomb(bytes: usize) -> Vec<u8> {
    // Codes: literal 0 and the length 258 (symbol 285) and the end of the block (256), distance 1.
    let mut bits: Vec<u8> = Vec::new();
    let mut put = |value: u32, count: u32| (0..count).for_each(|n| bits.push((value >> n & 1) as u8));
    // The last block, with codes of its own: 286 literals and lengths, 1 distance, 18 lengths of codes.
    put(1, 1);
    put(2, 2);
    put(29, 5);
    put(0, 5);
    put(14, 4);
    // In the order 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1: only 18, 2 and 1 are used.
    for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1] {
        put(
            match symbol {
                18 => 1,
                1 | 2 => 2,
                _ => 0,
            },
            3,
        );
    }
    // Canonical: 18 is `0`, 1 is `10`, 2 is `11`, each with its first bit first.
    let (zeros, one, two) = ([0].as_slice(), [1, 0].as_slice(), [1, 1].as_slice());
    let code = |put: &mut dyn FnMut(u32, u32), bits: &[u32]| bits.iter().for_each(|bit| put(*bit, 1));
    code(&mut put, two);
    // 255 lengths of nothing, 138 and 117 at a time.
    for run in [138_u32, 117] {
        code(&mut put, zeros);
        put(run - 11, 7);
    }
    code(&mut put, two);
    // 28 more, and then 285 and the one distance.
    code(&mut put, zeros);
    put(28 - 11, 7);
    code(&mut put, one);
    code(&mut put, one);
    // `10` is literal 0; `0` is 285, and its distance `0`.
    code(&mut put, &[1, 0]);
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    out.extend(bits.chunks(8).map(|byte| byte.iter().enumerate().fold(0, |sum, (n, bit)| sum | bit << n)));
    out.resize(bytes, 0);
    out
}

#[tokio::test(start_paused = true)]
async fn a_compressed_body_is_refused_unread_and_nothing_is_made_larger() {
    let (mut gateway, backend) = Piped::start(1, |_| {});
    let ten_megabytes = bomb(10_000_000);
    let cases: [(&[&str], Vec<u8>); 12] = [
        (&["gzip"], ten_megabytes.clone()),
        (&["GZIP"], ten_megabytes.clone()),
        (&["x-gzip"], ten_megabytes.clone()),
        (&["deflate"], ten_megabytes[10..].to_vec()),
        (&["br"], ten_megabytes.clone()),
        (&["zstd"], ten_megabytes.clone()),
        (&["gzip, gzip"], ten_megabytes.clone()),
        (&["identity, gzip"], ten_megabytes.clone()),
        (&["identity", "gzip"], ten_megabytes.clone()),
        (&["gzip", "identity"], ten_megabytes.clone()),
        (&["compress"], ten_megabytes.clone()),
        (&["\u{e9}"], ten_megabytes.clone()),
    ];
    for (encodings, body) in cases {
        let mut client = gateway.connect();
        let said: String = encodings.iter().map(|encoding| format!("content-encoding: {encoding}\r\n")).collect();
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: g\r\n{said}content-length: {}\r\n\r\n", body.len());
        client.write_all(head.as_bytes()).await.unwrap();
        // It is answered by its head: not a byte of its body has been sent, and no memory is taken for it.
        let mut answer = vec![0; 4096];
        let n = soon("it is refused", client.read(&mut answer)).await.unwrap();
        let text = String::from_utf8_lossy(&answer[..n]);
        assert!(text.starts_with("HTTP/1.1 415 ") && text.contains("unsupported_encoding"), "{encodings:?}: {text}");
        assert_eq!(gateway.service.body_memory(), 0);
        // Who sends it all the same is not listened to.
        let (mut reading, mut writing) = tokio::io::split(client);
        let write = async {
            let mut sent = 0;
            for piece in body.chunks(1000) {
                if writing.write_all(piece).await.is_err() {
                    break;
                }
                sent += piece.len();
            }
            sent
        };
        let mut rest = Vec::new();
        let (sent, _) =
            soon("the connection is closed", async { tokio::join!(write, reading.read_to_end(&mut rest)) }).await;
        assert!(sent < 1 << 20, "{encodings:?}: {sent}");
        assert_eq!(gateway.service.body_memory(), 0);
    }
    assert!(!backend.has_call() && gateway.service.totals().offers == 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_says_it_is_not_compressed_is_read_and_an_answer_that_is_passes_untouched() {
    let (mut gateway, mut backend) = Piped::start(1, |_| {});
    let squeezed = &bomb(5_000)[..];
    for encoding in ["gzip", "br", "zstd", "gzip, br", "deflate", "dcz"] {
        let client = gateway.client().await;
        let request = with(completion(""), &[("content-encoding", "identity"), ("accept-encoding", encoding)]);
        let (answer, asked) = tokio::join!(client.send(request), async {
            let call = backend.call().await;
            let asked = header(&call.head.headers, "accept-encoding").map(str::to_owned);
            let length = squeezed.len().to_string();
            let told = [("content-encoding", encoding), ("content-length", &*length), ("vary", "accept-encoding")];
            let responding = call.respond(200, &told);
            squeezed.chunks(777).for_each(|piece| responding.chunk(piece));
            responding.finish();
            asked
        });
        let mut answer = answer.unwrap();
        assert_eq!(asked.as_deref(), Some(encoding));
        assert_eq!(header(&answer.headers, "content-encoding"), Some(encoding));
        assert_eq!(header(&answer.headers, "vary"), Some("accept-encoding"));
        assert_eq!(answer.rest().await, (squeezed.to_vec(), true), "{encoding}");
    }
    // What is not said to be compressed is not taken for it either, whatever it looks like.
    let client = gateway.client().await;
    let mut refused = client.send(post("/v1/completions", "\u{1f}\u{8b}\u{8}")).await.unwrap();
    assert_eq!((refused.status.as_u16(), refused.json().await["error"]["code"].as_str()), (400, Some("bad_body")));
    tokio::time::sleep(Duration::ZERO).await;
    assert!(!backend.has_call());
}
