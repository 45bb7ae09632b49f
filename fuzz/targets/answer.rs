//! Reading an answer never panics, and a stream that can be read to its end is read alike however it is split.

#![no_main]

use elasticserve_core::openai::{Reader, Reading, read_piece};
use libfuzzer_sys::fuzz_target;

fn read<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Option<Reading> {
    let mut reader = Reader::keeping_text();
    for chunk in chunks {
        reader.feed(chunk, |_| {}).ok()?;
    }
    reader.finish(|_| {}).ok()?;
    Some(reader.into_reading())
}

fuzz_target!(|input: &[u8]| {
    let _ = read_piece(input);
    assert_eq!(read(input.chunks(1)), read(std::iter::once(input)));
});
