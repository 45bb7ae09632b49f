//! The contents of prompts, from the numbers in a plan and the run's salt.
//!
//! A number under a salt stands for an endless text of tokens. A prompt is one or several *pieces* of such
//! texts: its own alone; a shared prefix and then its own; or the blocks of a trace, each by its hash. Equal
//! numbers under one salt give equal leading tokens; a different number or salt gives other tokens from the
//! first one on, so no block of a prefix cache is shared with another run.

use elasticserve_core::engine::Prompt;
use elasticserve_core::rng::{Random, Stream, mix};
use elasticserve_core::work::{Arrival, Plan};

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

/// Keep families and blocks apart from prompts of the same number.
const FAMILY: u64 = 0x6661_6d69_6c79_2d31;
const BLOCK: u64 = 0x626c_6f63_6b2d_2d31;

/// The texts of one run.
#[derive(Clone, Debug)]
pub(crate) struct Prompts {
    salt: u64,
    /// Stands in front of texts that are not made here; empty without a salt.
    mark: String,
}

/// The first `tokens` tokens of the text that a number stands for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    number: u64,
    tokens: u32,
}

impl Piece {
    /// A prompt of its own.
    pub(crate) const fn of(arrival: &Arrival) -> Self {
        Self { number: arrival.prompt, tokens: arrival.input }
    }
}

/// The pieces of a planned prompt, in order.
pub(crate) fn pieces(plan: &Plan, arrival: &Arrival) -> Vec<Piece> {
    let own = |tokens| Piece { number: arrival.prompt, tokens };
    if let Some(prefix) = plan.prefix(arrival) {
        let shared = Piece { number: mix(prefix.family, FAMILY), tokens: prefix.tokens };
        return vec![shared, own(arrival.input.saturating_sub(prefix.tokens))];
    }
    let mut left = arrival.input;
    let mut pieces: Vec<Piece> = Vec::new();
    for hash in plan.blocks(arrival) {
        let tokens = left.min(Prompt::CHUNK_TOKENS);
        pieces.push(Piece { number: mix(*hash, BLOCK), tokens });
        left -= tokens;
    }
    pieces.push(own(left));
    pieces
}

impl Prompts {
    /// Texts under a salt, or those that every run shares.
    pub(crate) fn new(salt: Option<&str>) -> Self {
        let number = salt.map_or(0, |text| mix(fnv1a(text.as_bytes()), 1));
        Self { salt: number, mark: salt.map(|_| format!("{number:016x} ")).unwrap_or_default() }
    }

    /// What stands in front of a text that is not made here, so that no other run has met it; the same
    /// throughout a run, so that texts still share what they share.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    fn random(&self, number: u64) -> Random {
        Random::new(mix(number, self.salt), Stream::Prompts)
    }

    /// Appends the pieces as token ids, separated by commas.
    pub(crate) fn write_ids(&self, out: &mut String, pieces: &[Piece]) {
        let mut first = true;
        for piece in pieces {
            let mut random = self.random(piece.number);
            for _ in 0..piece.tokens {
                if !first {
                    out.push(',');
                }
                first = false;
                push_number(out, random.between(TOKEN_IDS.0, TOKEN_IDS.1));
            }
        }
    }

    /// Appends the pieces as text of about as many tokens that needs no escaping in JSON.
    pub(crate) fn write_text(&self, out: &mut String, pieces: &[Piece]) {
        let mut first = true;
        for piece in pieces {
            let mut random = self.random(piece.number);
            for _ in 0..piece.tokens {
                if !first {
                    out.push(' ');
                }
                first = false;
                out.push_str(WORDS[random.between(0, WORDS.len() as u64 - 1) as usize]);
            }
        }
    }
}

/// Appends a number below 100,000: prompts of 200,000 tokens are mostly this.
fn push_number(out: &mut String, number: u64) {
    let mut divisor = 10_000;
    while divisor > 1 && number < divisor {
        divisor /= 10;
    }
    while divisor > 0 {
        out.push(char::from(b'0' + (number / divisor % 10) as u8));
        divisor /= 10;
    }
}

/// The 64-bit FNV-1a hash (Fowler, Noll and Vo), the same on every machine.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids_of(salt: Option<&str>, pieces: &[Piece]) -> Vec<u64> {
        let mut text = String::new();
        Prompts::new(salt).write_ids(&mut text, pieces);
        text.split(',').map(|id| id.parse().unwrap()).collect()
    }

    fn ids(salt: Option<&str>, number: u64, tokens: u32) -> Vec<u64> {
        ids_of(salt, &[Piece { number, tokens }])
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
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for number in [0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10_000, 29_999, 99_999] {
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
    }

    #[test]
    fn pieces_follow_each_other_without_a_seam() {
        let pieces = [Piece { number: 1, tokens: 10 }, Piece { number: 2, tokens: 0 }, Piece { number: 3, tokens: 5 }];
        assert_eq!(ids_of(None, &pieces), [ids(None, 1, 10), ids(None, 3, 5)].concat());
        let mut text = String::new();
        Prompts::new(Some("a")).write_text(&mut text, &pieces);
        assert_eq!(text.split(' ').filter(|word| word.len() == 3).count(), 15);
    }

    /// How long the longest prompts take: `cargo test --release -p elasticserve-load -- --ignored --nocapture longest`.
    #[test]
    #[ignore = "a measurement"]
    #[expect(clippy::print_stdout, reason = "its result")]
    fn the_longest_prompts_in_milliseconds() {
        let prompts = Prompts::new(Some("a"));
        for (name, write) in
            [("ids", Prompts::write_ids as fn(&Prompts, &mut String, &[Piece])), ("text", Prompts::write_text)]
        {
            let started = std::time::Instant::now();
            let mut bytes = 0;
            for number in 0..100 {
                let mut text = String::with_capacity(1_200_000);
                write(&prompts, &mut text, &[Piece { number, tokens: 200_000 }]);
                bytes += text.len();
            }
            println!(
                "200,000 tokens as {name}: {:.2} ms, {} bytes",
                started.elapsed().as_secs_f64() * 10.0,
                bytes / 100
            );
        }
    }
}
