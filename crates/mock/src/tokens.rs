//! Text to tokens, tokens to the identity of a prompt, and the words of an answer.

use std::sync::Arc;

use elasticserve_core::engine::Prompt;
use elasticserve_core::rng::mix;

/// Bytes of text in a token; the last token of a text may hold fewer.
pub(crate) const TEXT_BYTES: usize = 4;

/// The tokens of a text: its bytes, four to a token, the first byte lowest.
pub(crate) fn tokenize(text: &str) -> Vec<u32> {
    let token = |chunk: &[u8]| chunk.iter().rev().fold(0, |token, &byte| (token << 8) | u32::from(byte));
    text.as_bytes().chunks(TEXT_BYTES).map(token).collect()
}

/// The text of the tokens of a text. Zero bytes at its very end are lost.
pub(crate) fn untokenize(tokens: &[u32]) -> String {
    let mut bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The identity of a prompt: one hash for each whole block, over its tokens and all before them.
pub(crate) fn identity(tokens: &[u32], block_tokens: u32) -> Prompt {
    let mut hash = 0;
    let blocks: Arc<[u64]> = tokens
        .chunks_exact(block_tokens.max(1) as usize)
        .map(|block| {
            hash = digest(hash, block);
            hash
        })
        .collect();
    Prompt::Blocks(blocks)
}

/// One hash of a list of tokens that follows on `before`.
pub(crate) fn digest(before: u64, tokens: &[u32]) -> u64 {
    tokens.iter().fold(before, |hash, &token| mix(hash, u64::from(token)))
}

/// The words of one request's answer.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Voice(u32);

impl Voice {
    /// The voice of the request with this id.
    pub(crate) fn of(request: &str) -> Self {
        Self(request.bytes().fold(0, |hash, byte| mix(hash, u64::from(byte))) as u32)
    }

    /// The text of the token at `index`, from 1. Every word but the first starts with its space.
    pub(crate) fn word(self, index: u32) -> String {
        let space = if index > 1 { " " } else { "" };
        format!("{space}{:08x}.{index}", self.0)
    }
}

/// The text of output token `index`, from 1, of the request with this id: the value of its
/// `x-request-id`, or what follows `cmpl-`, `chatcmpl-` or `resp_` in the answer's id. A further choice at place `c` has the
/// id `r/c`. It is made of a hash of the
/// id and the index, so the texts of two requests do not mix unseen.
#[must_use]
pub fn word(request: &str, index: u32) -> String {
    Voice::of(request).word(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(tokens: &[u32]) -> Vec<u64> {
        match identity(tokens, 2) {
            Prompt::Blocks(hashes) => hashes.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_text_has_a_token_for_every_four_bytes_and_one_for_the_rest() {
        assert_eq!(tokenize(""), Vec::<u32>::new());
        assert_eq!(tokenize("ab"), [0x6261]);
        assert_eq!(tokenize("abcde"), [0x6463_6261, 0x65]);
        // Bytes, not characters.
        assert_eq!(tokenize("äöü").len(), 2);
    }

    #[test]
    fn the_tokens_of_a_text_give_it_back() {
        for text in ["", "a", "abcd", "abcde", "ä € 語"] {
            assert_eq!(untokenize(&tokenize(text)), text);
        }
    }

    #[test]
    fn prompts_share_their_leading_whole_blocks_and_nothing_after_a_difference() {
        let (a, b) = (blocks(&[1, 2, 3, 4, 5]), blocks(&[1, 2, 3, 9, 5, 6]));
        assert_eq!((a.len(), b.len()), (2, 3));
        assert_eq!(a[0], b[0]);
        assert_ne!(a[1], b[1]);
        // The same block in another place is another block.
        assert_ne!(blocks(&[1, 2, 1, 2])[0], blocks(&[1, 2, 1, 2])[1]);
    }

    #[test]
    fn every_token_of_every_request_has_its_own_word() {
        let words: std::collections::BTreeSet<String> =
            ["a", "b", "ab", "ba"].iter().flat_map(|id| (1..50).map(|i| word(id, i))).collect();
        assert_eq!(words.len(), 4 * 49);
        assert_eq!(word("a", 2).trim_start().split_once('.').map(|(_, index)| index), Some("2"));
    }
}
