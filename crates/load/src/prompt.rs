//! The contents of prompts, from an arrival's prompt number and the run's salt.
//!
//! Equal numbers under one salt give the same endless text, cut to the arrival's length; a different
//! number or salt gives another text from its first token on, so no block of a prefix cache is shared.

use std::fmt::Write;

use elasticserve_core::rng::{Random, Stream, mix};

/// The lowest and highest token id in prompts. Below 1,000 lie special and single-byte tokens of the
/// common vocabularies; 30,000 lies within all of them (the smallest in wide use have 32,000 entries).
pub(crate) const TOKEN_IDS: (u64, u64) = (1_000, 29_999);

/// Words that the common vocabularies hold as one token each. With its space each is four bytes, which
/// is what a rule of thumb takes for a token.
const WORDS: [&str; 64] = [
    "the", "and", "for", "are", "but", "not", "you", "all", "any", "can", "had", "her", "was", "one", "our", "out",
    "day", "get", "has", "him", "his", "how", "man", "new", "now", "old", "see", "two", "way", "who", "boy", "did",
    "its", "let", "put", "say", "she", "too", "use", "dad", "mom", "big", "red", "car", "dog", "cat", "sun", "sea",
    "air", "ice", "oil", "sky", "box", "cup", "bed", "bag", "hat", "key", "map", "pen", "run", "sit", "top", "win",
];

/// The texts of one run.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Prompts {
    salt: u64,
}

impl Prompts {
    /// Texts under a salt, or those that every run shares.
    pub(crate) fn new(salt: Option<&str>) -> Self {
        Self { salt: salt.map_or(0, |text| mix(fnv1a(text.as_bytes()), 1)) }
    }

    fn random(self, prompt: u64) -> Random {
        Random::new(mix(prompt, self.salt), Stream::Prompts)
    }

    /// Appends `tokens` token ids, separated by commas.
    pub(crate) fn write_ids(self, out: &mut String, prompt: u64, tokens: u32) {
        let mut random = self.random(prompt);
        for i in 0..tokens {
            let comma = if i == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(out, "{comma}{}", random.between(TOKEN_IDS.0, TOKEN_IDS.1));
        }
    }

    /// Appends text of about `tokens` tokens that needs no escaping in JSON.
    pub(crate) fn write_text(self, out: &mut String, prompt: u64, tokens: u32) {
        let mut random = self.random(prompt);
        for i in 0..tokens {
            if i > 0 {
                out.push(' ');
            }
            out.push_str(WORDS[random.between(0, WORDS.len() as u64 - 1) as usize]);
        }
    }
}

/// The 64-bit FNV-1a hash (Fowler, Noll and Vo), the same on every machine.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(salt: Option<&str>, prompt: u64, tokens: u32) -> Vec<u64> {
        let mut text = String::new();
        Prompts::new(salt).write_ids(&mut text, prompt, tokens);
        text.split(',').map(|id| id.parse().unwrap()).collect()
    }

    #[test]
    fn equal_prompt_and_salt_share_their_leading_tokens() {
        assert_eq!(ids(Some("a"), 5, 64)[..16], ids(Some("a"), 5, 16)[..]);
        assert_eq!(ids(None, 5, 64), ids(None, 5, 64));
    }

    #[test]
    fn another_salt_or_prompt_differs_in_the_first_block() {
        let block = ids(Some("a"), 5, 16);
        for other in [ids(Some("b"), 5, 16), ids(None, 5, 16), ids(Some("a"), 6, 16)] {
            assert_ne!(block, other);
        }
    }

    #[test]
    fn ids_stay_in_the_safe_range_and_have_the_exact_number() {
        let ids = ids(Some("a"), 9, 5000);
        assert_eq!(ids.len(), 5000);
        assert!(ids.iter().all(|id| (TOKEN_IDS.0..=TOKEN_IDS.1).contains(id)));
    }

    #[test]
    fn text_has_a_word_for_each_token() {
        let mut text = String::new();
        Prompts::new(Some("a")).write_text(&mut text, 9, 300);
        assert_eq!(text.split(' ').count(), 300);
    }
}
