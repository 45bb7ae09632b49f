//! A stream's events do not depend on how it is split. The first byte says how.

#![no_main]

use elasticserve_core::sse::{Counts, Parser};
use libfuzzer_sys::fuzz_target;

type Reading = (Vec<(Vec<u8>, Vec<u8>)>, Counts);

fn read<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Reading {
    let mut parser = Parser::new();
    let mut events = Vec::new();
    for chunk in chunks {
        parser.feed(chunk, |event| events.push((event.kind.to_vec(), event.data.to_vec())));
    }
    parser.finish(|event| events.push((event.kind.to_vec(), event.data.to_vec())));
    (events, parser.counts())
}

fuzz_target!(|input: &[u8]| {
    let Some((&size, stream)) = input.split_first() else { return };
    let whole = read(std::iter::once(stream));
    assert_eq!(read(stream.chunks(1)), whole);
    assert_eq!(read(stream.chunks(usize::from(size).max(1))), whole);
});
