//! The prefix cache: which leading blocks of a prompt need no computing.

use std::sync::Arc;

use super::index::Index;
use super::lru::Lru;
use crate::rng::mix;

/// The identity of a block: its own tokens and all that come before.
pub type BlockHash = u64;

/// What identifies a prompt's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Shares nothing with any other prompt.
    Unique,
    /// The leading tokens of an endless text of this number: two prompts of one family share as many
    /// blocks as the shorter one has.
    Family(u64),
    /// Leading tokens that prompts of one family share, then a text of its own.
    Prefixed {
        /// The identity of what is shared.
        family: u64,
        /// How many tokens that are; a block that straddles their end is not shared.
        tokens: u32,
        /// The identity of the rest.
        own: u64,
    },
    /// The hashes of its whole blocks.
    Blocks(Arc<[BlockHash]>),
    /// The hashes of its chunks of [`Prompt::CHUNK_TOKENS`], the last one of which may be shorter: what a
    /// trace says of a prompt without knowing the engine's blocks.
    Chunks(Arc<[BlockHash]>),
}

impl Prompt {
    /// Tokens in a chunk of [`Prompt::Chunks`], as the Mooncake traces count.
    pub const CHUNK_TOKENS: u32 = 512;

    /// The identity of block `index` of `block_tokens` each, if it may be shared.
    pub(super) fn block(&self, index: u32, block_tokens: u32) -> Option<BlockHash> {
        match self {
            Self::Unique => None,
            Self::Family(key) => Some(mix(*key, u64::from(index))),
            Self::Prefixed { family, tokens, own } => {
                let end = u64::from(index + 1) * u64::from(block_tokens);
                let key = if end <= u64::from(*tokens) { family } else { own };
                Some(mix(*key, u64::from(index)))
            }
            Self::Blocks(hashes) => hashes.get(index as usize).copied(),
            Self::Chunks(hashes) => {
                // A chunk's hash stands for all before it too, so the chunk of the last token decides.
                let last = u64::from(index + 1) * u64::from(block_tokens) - 1;
                let chunk = hashes.get((last / u64::from(Self::CHUNK_TOKENS)) as usize)?;
                Some(mix(*chunk, u64::from(index)))
            }
        }
    }
}

/// Blocks of prompts seen before, the longest unused evicted first.
///
/// The cache of an engine without a limit on KV blocks: what runs takes no room in it. A
/// [`Prompt::Family`] is one entry whatever its length: a use of a shorter prompt refreshes the rest of
/// the text too.
#[derive(Clone, Debug)]
pub struct PrefixCache {
    entries: Vec<Entry>,
    unused: Vec<u32>,
    index: Index,
    by_age: Lru,
    /// Blocks in all entries.
    blocks: u64,
    capacity: u64,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    key: BlockHash,
    blocks: u32,
}

impl PrefixCache {
    /// An empty cache of at most `capacity` blocks.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let (index, by_age) = (Index::default(), Lru::new());
        Self { entries: Vec::new(), unused: Vec::new(), index, by_age, blocks: 0, capacity: capacity as u64 }
    }

    /// The leading tokens of a prompt that need no computing, all of whose whole blocks are kept from now on.
    /// At least the last token always needs computing, so of a prompt that is known in full
    /// `floor((tokens − 1) / block) · block` are free.
    pub fn admit(&mut self, prompt: &Prompt, tokens: u32, block_tokens: u32) -> u32 {
        let whole = tokens.saturating_sub(1) / block_tokens;
        let known = match prompt {
            // One entry: found and kept at once.
            Prompt::Family(key) => self.keep(family(*key), tokens / block_tokens),
            _ => {
                let found = |&index: &u32| prompt.block(index, block_tokens).is_some_and(|h| self.index.contains(h));
                let known = (0..whole).take_while(found).count() as u32;
                self.insert(prompt, tokens, block_tokens);
                known
            }
        };
        self.evict();
        known.min(whole) * block_tokens
    }

    /// Keeps the prompt's whole blocks. A block without those before it is of no use, so the last
    /// block counts as the longest unused of them.
    pub fn insert(&mut self, prompt: &Prompt, tokens: u32, block_tokens: u32) {
        let whole = tokens / block_tokens;
        if let Prompt::Family(key) = prompt {
            self.keep(family(*key), whole);
        } else {
            for index in (0..whole).rev() {
                if let Some(hash) = prompt.block(index, block_tokens) {
                    self.keep(hash, 1);
                }
            }
        }
        self.evict();
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.capacity as usize);
    }

    /// Makes an entry the newest and no shorter than this, and says how long it was.
    fn keep(&mut self, key: BlockHash, blocks: u32) -> u32 {
        if let Some(place) = self.index.get(key) {
            self.by_age.touch(place);
            let entry = &mut self.entries[place as usize];
            let before = entry.blocks;
            entry.blocks = before.max(blocks);
            self.blocks += u64::from(entry.blocks - before);
            return before;
        }
        if blocks == 0 {
            return 0;
        }
        let entry = Entry { key, blocks };
        let place = if let Some(place) = self.unused.pop() {
            self.entries[place as usize] = entry;
            place
        } else {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        };
        self.index.insert(key, place);
        self.by_age.push(place);
        self.blocks += u64::from(blocks);
        0
    }

    fn evict(&mut self) {
        while self.blocks > self.capacity {
            let Some(place) = self.by_age.oldest() else { return };
            let entry = &mut self.entries[place as usize];
            let excess = self.blocks - self.capacity;
            if u64::from(entry.blocks) > excess {
                entry.blocks -= excess as u32;
                self.blocks = self.capacity;
                return;
            }
            self.blocks -= u64::from(entry.blocks);
            self.index.remove(entry.key);
            self.by_age.remove(place);
            self.unused.push(place);
        }
    }
}

/// The key of a family's entry, away from the hashes of blocks.
const fn family(key: u64) -> BlockHash {
    mix(key, u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would be free, without a change to the cache.
    fn known(cache: &PrefixCache, prompt: &Prompt, tokens: u32, block_tokens: u32) -> u32 {
        cache.clone().admit(prompt, tokens, block_tokens)
    }

    #[test]
    fn of_a_known_prompt_all_whole_blocks_before_the_last_token_are_free() {
        let mut cache = PrefixCache::new(1 << 20);
        let prompt = Prompt::Family(1);
        assert_eq!(known(&cache, &prompt, 256, 16), 0);
        cache.insert(&prompt, 256, 16);
        assert_eq!(known(&cache, &prompt, 256, 16), 240);
        assert_eq!(known(&cache, &prompt, 257, 16), 256);
        assert_eq!(known(&cache, &prompt, 960, 16), 256);
        assert_eq!(known(&cache, &Prompt::Family(2), 256, 16), 0);
        assert_eq!(known(&cache, &Prompt::Unique, 256, 16), 0);
    }

    #[test]
    fn of_a_prompt_the_last_blocks_go_first() {
        for prompt in [Prompt::Family(1), Prompt::Blocks(Arc::from([1, 2, 3, 4]))] {
            let mut cache = PrefixCache::new(3);
            cache.insert(&prompt, 64, 16);
            assert_eq!(known(&cache, &prompt, 65, 16), 48);
            assert_eq!(cache.blocks, 3);
        }
    }

    #[test]
    fn a_prompt_with_fewer_blocks_than_tokens_keeps_the_bound() {
        let mut cache = PrefixCache::new(1);
        cache.insert(&Prompt::Blocks(Arc::from([1, 2])), 64, 16);
        assert_eq!(cache.blocks, 1);
    }

    #[test]
    fn the_longest_unused_block_goes_first() {
        for prompt in [Prompt::Family as fn(u64) -> Prompt, |h| Prompt::Blocks(Arc::from([h]))] {
            let mut cache = PrefixCache::new(2);
            cache.insert(&prompt(1), 16, 16);
            cache.insert(&prompt(2), 16, 16);
            assert_eq!(cache.admit(&prompt(1), 17, 16), 16);
            cache.insert(&prompt(3), 16, 16);
            assert_eq!(known(&cache, &prompt(2), 17, 16), 0);
            assert_eq!(known(&cache, &prompt(1), 17, 16), 16);
        }
    }

    #[test]
    fn a_family_grows_with_its_longest_prompt_and_memory_is_used_again() {
        let mut cache = PrefixCache::new(8);
        for (tokens, blocks) in [(32, 2), (80, 5), (16, 5)] {
            cache.insert(&Prompt::Family(1), tokens, 16);
            assert_eq!(cache.blocks, blocks);
        }
        for key in 2..1_000 {
            cache.insert(&Prompt::Family(key), 64, 16);
            assert!(cache.blocks <= 8);
        }
        assert!(cache.entries.len() <= 4, "{} entries", cache.entries.len());
    }

    #[test]
    fn of_a_shared_prefix_the_whole_blocks_are_free_and_nothing_after_them() {
        let mut cache = PrefixCache::new(1 << 20);
        let prompt = |family, own| Prompt::Prefixed { family, tokens: 100, own };
        cache.insert(&prompt(1, 10), 300, 16);
        assert_eq!(known(&cache, &prompt(1, 11), 300, 16), 96);
        assert_eq!(known(&cache, &prompt(1, 10), 300, 16), 288);
        assert_eq!(known(&cache, &prompt(2, 10), 300, 16), 0);
        assert_eq!(known(&cache, &prompt(1, 11), 50, 16), 48);
    }

    #[test]
    fn chunks_are_shared_as_far_as_their_hashes_agree() {
        let mut cache = PrefixCache::new(1 << 20);
        let chunks = |ids: &[u64]| Prompt::Chunks(Arc::from(ids));
        cache.insert(&chunks(&[1, 2]), 1024, 16);
        assert_eq!(known(&cache, &chunks(&[1, 2, 3]), 1536, 16), 1024);
        assert_eq!(known(&cache, &chunks(&[1, 4]), 1024, 16), 512);
        assert_eq!(known(&cache, &chunks(&[5, 2]), 1024, 16), 0);
        // Blocks of 100 tokens: the sixth straddles the first chunk's end.
        cache.clear();
        cache.insert(&chunks(&[1, 2]), 1024, 100);
        assert_eq!(known(&cache, &chunks(&[1, 4]), 1024, 100), 500);
    }
}
