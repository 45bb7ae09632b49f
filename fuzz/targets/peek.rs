//! Looking into a request never panics, and a limit that is taken is within its bounds.

#![no_main]

use elasticserve_core::openai::{MAX_OUTPUT_TOKENS, peek};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Ok(peek) = peek(body) {
        assert!(peek.max_tokens.is_none_or(|max| (1..=MAX_OUTPUT_TOKENS).contains(&max)));
    }
});
