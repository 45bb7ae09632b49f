//! What an engine keeps in its KV cache: blocks of what runs, prefixes of what was seen before.

use super::blocks::{BlockId, BlockPool};
use super::{BlockHash, PrefixCache, Profile, Prompt};
use crate::rng::mix;

/// Blocks of the prefix cache where a profile sets neither `kv_blocks` nor `cache_blocks`: more than a
/// run of some hours fills, and few enough that memory stays bounded.
pub(super) const DEFAULT_CACHE_BLOCKS: u32 = 1 << 20;

/// The KV cache.
#[derive(Debug)]
pub(super) struct Memory {
    block_tokens: u32,
    prefix_cache: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Room for whatever runs, and a prefix cache beside it.
    Unlimited(PrefixCache),
    /// What runs and the prefix cache share these blocks.
    Limited(BlockPool),
}

/// What a sequence holds when it is let in.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// Leading tokens that need no computing.
    pub(super) cached: u32,
    /// Its blocks in order; empty where blocks are not counted.
    pub(super) blocks: Vec<BlockId>,
}

/// Whose blocks they are.
#[derive(Copy, Clone, Debug)]
pub(super) struct Owner<'a> {
    pub(super) prompt: &'a Prompt,
    /// Prompt tokens: whole blocks of these may be shared.
    pub(super) input: u32,
    /// A number that no other sequence has: what it generates is found by itself alone.
    pub(super) serial: u64,
}

impl Owner<'_> {
    fn block(&self, index: u32, block_tokens: u32) -> BlockHash {
        let shared = if index < self.input / block_tokens { self.prompt.block(index, block_tokens) } else { None };
        // A second round of mixing keeps these away from what prompts are identified by.
        shared.unwrap_or_else(|| mix(mix(self.serial, u64::MAX), u64::from(index)))
    }
}

impl Memory {
    pub(super) fn new(profile: &Profile) -> Self {
        let kind = match profile.kv_blocks {
            Some(count) => Kind::Limited(BlockPool::new(count)),
            None => Kind::Unlimited(PrefixCache::new(profile.cache_blocks.unwrap_or(DEFAULT_CACHE_BLOCKS) as usize)),
        };
        Self { block_tokens: profile.block_tokens, prefix_cache: profile.prefix_cache, kind }
    }

    /// Bounds the prefix cache anew, where it is not part of a limited number of blocks, and empties it.
    pub(super) fn set_cache_blocks(&mut self, blocks: usize) {
        if let Kind::Unlimited(cache) = &mut self.kind {
            *cache = PrefixCache::new(blocks);
        }
    }

    /// Blocks in use; 0 where they are not counted.
    pub(super) fn used(&self) -> u32 {
        match &self.kind {
            Kind::Unlimited(_) => 0,
            Kind::Limited(pool) => pool.used(),
        }
    }

    /// Lets a sequence in whose first `tokens` tokens, prompt and what it generated before, must be in
    /// the cache: `None` if there is no room for all of them now.
    pub(super) fn admit(&mut self, owner: Owner<'_>, tokens: u32) -> Option<Holding> {
        let block_tokens = self.block_tokens;
        match &mut self.kind {
            Kind::Unlimited(_) if !self.prefix_cache => Some(Holding::default()),
            Kind::Unlimited(cache) => {
                let cached = cache.admit(owner.prompt, tokens, block_tokens);
                Some(Holding { cached, blocks: Vec::new() })
            }
            Kind::Limited(pool) => {
                let mut blocks = Vec::new();
                if self.prefix_cache {
                    let whole = (tokens - 1) / block_tokens;
                    blocks.extend((0..whole).map_while(|index| pool.find(owner.block(index, block_tokens))));
                }
                // What is found free would not be free any more.
                let revived = blocks.iter().filter(|&&id| pool.is_free(id)).count() as u32;
                let needed = tokens.div_ceil(block_tokens);
                if needed - blocks.len() as u32 > pool.free() - revived {
                    return None;
                }
                let cached = blocks.len() as u32 * block_tokens;
                blocks.iter().for_each(|&id| pool.share(id));
                while (blocks.len() as u32) < needed
                    && let Some(id) = pool.take()
                {
                    let index = blocks.len() as u32;
                    if self.prefix_cache && index < tokens / block_tokens {
                        pool.name(id, owner.block(index, block_tokens));
                    }
                    blocks.push(id);
                }
                Some(Holding { cached, blocks })
            }
        }
    }

    /// Adds a block to a sequence whose blocks are full: false if none is free.
    pub(super) fn grow(&mut self, blocks: &mut Vec<BlockId>) -> bool {
        let Kind::Limited(pool) = &mut self.kind else { return true };
        let Some(id) = pool.take() else { return false };
        blocks.push(id);
        true
    }

    /// Tokens that these blocks have room for; no bound where blocks are not counted.
    pub(super) fn room(&self, blocks: &[BlockId]) -> u32 {
        match self.kind {
            Kind::Unlimited(_) => u32::MAX,
            Kind::Limited(_) => (blocks.len() as u32).saturating_mul(self.block_tokens),
        }
    }

    /// Keeps what a sequence has computed, its first `tokens` tokens, for when it comes back.
    pub(super) fn remember(&mut self, owner: Owner<'_>, blocks: &[BlockId], tokens: u32) {
        let Kind::Limited(pool) = &mut self.kind else { return };
        if self.prefix_cache {
            for (index, &id) in (0..tokens / self.block_tokens).zip(blocks) {
                pool.name(id, owner.block(index, self.block_tokens));
            }
        }
    }

    /// Takes back what a sequence held, of which only the first `tokens` tokens were ever computed.
    pub(super) fn release(&mut self, blocks: &mut Vec<BlockId>, tokens: u32) {
        let Kind::Limited(pool) = &mut self.kind else { return };
        for &id in blocks.iter().skip((tokens / self.block_tokens) as usize) {
            pool.unname(id);
        }
        pool.release(blocks);
    }

    /// Marks a prompt as seen before.
    pub(super) fn warm(&mut self, prompt: &Prompt, tokens: u32) {
        match &mut self.kind {
            Kind::Unlimited(cache) => cache.insert(prompt, tokens, self.block_tokens),
            Kind::Limited(_) => {
                // As much of it as there is room for; its own number finds nothing later.
                let whole = (tokens / self.block_tokens).min(self.free()) * self.block_tokens;
                let owner = Owner { prompt, input: whole, serial: u64::MAX };
                if whole > 0
                    && let Some(mut holding) = self.admit(owner, whole)
                {
                    self.release(&mut holding.blocks, whole);
                }
            }
        }
    }

    /// Forgets all prefixes; what runs keeps its blocks.
    pub(super) fn forget(&mut self) {
        match &mut self.kind {
            Kind::Unlimited(cache) => cache.clear(),
            Kind::Limited(pool) => pool.forget(),
        }
    }

    fn free(&self) -> u32 {
        match &self.kind {
            Kind::Unlimited(_) => u32::MAX,
            Kind::Limited(pool) => pool.free(),
        }
    }
}
