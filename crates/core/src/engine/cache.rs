//! The prefix cache: which leading blocks of a prompt need no computing.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// The hashes of its whole blocks.
    Blocks(Arc<[BlockHash]>),
}

impl Prompt {
    fn block(&self, index: u32) -> Option<BlockHash> {
        match self {
            Self::Unique => None,
            Self::Family(key) => Some(mix(*key, u64::from(index))),
            Self::Blocks(hashes) => hashes.get(index as usize).copied(),
        }
    }
}

/// Blocks of prompts seen before, the longest unused evicted first.
#[derive(Clone, Debug, Default)]
pub struct PrefixCache {
    used: BTreeMap<BlockHash, u64>,
    by_age: BTreeMap<u64, BlockHash>,
    capacity: Option<usize>,
    clock: u64,
}

impl PrefixCache {
    /// An empty cache of at most `capacity` blocks, without a bound if there is none.
    #[must_use]
    pub fn new(capacity: Option<usize>) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// The leading tokens of a prompt that need no computing. At least the last token always does, so
    /// of a prompt that is known in full `floor((tokens − 1) / block) · block` are free.
    pub fn lookup(&mut self, prompt: &Prompt, tokens: u32, block_tokens: u32) -> u32 {
        let whole = tokens.saturating_sub(1) / block_tokens;
        let mut hits = 0;
        while hits < whole {
            match prompt.block(hits) {
                Some(hash) if self.used.contains_key(&hash) => self.touch(hash),
                _ => break,
            }
            hits += 1;
        }
        hits * block_tokens
    }

    /// Keeps the prompt's whole blocks. A block without those before it is of no use, so the last
    /// block counts as the longest unused of them.
    pub fn insert(&mut self, prompt: &Prompt, tokens: u32, block_tokens: u32) {
        for index in (0..tokens / block_tokens).rev() {
            if let Some(hash) = prompt.block(index) {
                self.touch(hash);
            }
        }
        while self.capacity.is_some_and(|max| self.used.len() > max) {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.used.remove(&oldest);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.used.clear();
        self.by_age.clear();
    }

    fn touch(&mut self, hash: BlockHash) {
        self.clock += 1;
        if let Some(before) = self.used.insert(hash, self.clock) {
            self.by_age.remove(&before);
        }
        self.by_age.insert(self.clock, hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_known_prompt_all_whole_blocks_before_the_last_token_are_free() {
        let mut cache = PrefixCache::new(None);
        let prompt = Prompt::Family(1);
        assert_eq!(cache.lookup(&prompt, 256, 16), 0);
        cache.insert(&prompt, 256, 16);
        assert_eq!(cache.lookup(&prompt, 256, 16), 240);
        assert_eq!(cache.lookup(&prompt, 257, 16), 256);
        assert_eq!(cache.lookup(&prompt, 960, 16), 256);
        assert_eq!(cache.lookup(&Prompt::Family(2), 256, 16), 0);
        assert_eq!(cache.lookup(&Prompt::Unique, 256, 16), 0);
    }

    #[test]
    fn of_a_prompt_the_last_blocks_go_first() {
        let mut cache = PrefixCache::new(Some(3));
        cache.insert(&Prompt::Family(1), 64, 16);
        assert_eq!(cache.lookup(&Prompt::Family(1), 65, 16), 48);
    }

    #[test]
    fn a_prompt_with_fewer_blocks_than_tokens_keeps_the_bound() {
        let mut cache = PrefixCache::new(Some(1));
        cache.insert(&Prompt::Blocks(Arc::from([1, 2])), 64, 16);
        assert_eq!(cache.used.len(), 1);
    }

    #[test]
    fn the_longest_unused_block_goes_first() {
        let mut cache = PrefixCache::new(Some(2));
        let prompt = |h: u64| Prompt::Blocks(Arc::from([h]));
        cache.insert(&prompt(1), 16, 16);
        cache.insert(&prompt(2), 16, 16);
        assert_eq!(cache.lookup(&prompt(1), 17, 16), 16);
        cache.insert(&prompt(3), 16, 16);
        assert_eq!(cache.lookup(&prompt(2), 17, 16), 0);
        assert_eq!(cache.lookup(&prompt(1), 17, 16), 16);
    }
}
