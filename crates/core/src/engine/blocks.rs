//! A limited number of KV blocks, shared between sequences.

use super::BlockHash;
use super::index::Index;
use super::lru::Lru;

/// The number of a block.
pub(super) type BlockId = u32;

/// The KV blocks of an engine.
///
/// A block is in use by one sequence or several, or free. A free block keeps its contents until it is
/// taken for others: then the longest free one goes first. So all that is not in use is a prefix cache,
/// and counts as free.
#[derive(Clone, Debug)]
pub(super) struct BlockPool {
    blocks: Vec<Block>,
    index: Index,
    free: Lru,
    used: u32,
}

#[derive(Clone, Debug, Default)]
struct Block {
    users: u32,
    /// What it holds, if another prompt may find it.
    hash: Option<BlockHash>,
}

impl BlockPool {
    /// So many free blocks that hold nothing.
    pub(super) fn new(count: u32) -> Self {
        let mut free = Lru::new();
        (0..count).for_each(|id| free.push(id));
        Self { blocks: vec![Block::default(); count as usize], index: Index::default(), free, used: 0 }
    }

    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn free(&self) -> u32 {
        self.blocks.len() as u32 - self.used
    }

    /// The block that holds this.
    pub(super) fn find(&self, hash: BlockHash) -> Option<BlockId> {
        self.index.get(hash)
    }

    pub(super) fn is_free(&self, id: BlockId) -> bool {
        self.blocks[id as usize].users == 0
    }

    /// Adds a user to a block that was found.
    pub(super) fn share(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        if block.users == 0 {
            self.free.remove(id);
            self.used += 1;
        }
        block.users += 1;
    }

    /// The longest free block for new contents; what it held is forgotten.
    pub(super) fn take(&mut self) -> Option<BlockId> {
        let id = self.free.oldest()?;
        self.unname(id);
        self.share(id);
        Some(id)
    }

    /// Says what a block holds. Of two blocks with the same contents the first one is found.
    pub(super) fn name(&mut self, id: BlockId, hash: BlockHash) {
        if !self.index.contains(hash) {
            self.blocks[id as usize].hash = Some(hash);
            self.index.insert(hash, id);
        }
    }

    /// Takes a sequence's blocks back and empties the list. A block without those before it is of no
    /// use, so the last one counts as free for longest.
    pub(super) fn release(&mut self, ids: &mut Vec<BlockId>) {
        while let Some(id) = ids.pop() {
            let block = &mut self.blocks[id as usize];
            block.users -= 1;
            if block.users == 0 {
                self.used -= 1;
                self.free.push(id);
            }
        }
    }

    /// Forgets what a block holds.
    pub(super) fn unname(&mut self, id: BlockId) {
        if let Some(hash) = self.blocks[id as usize].hash.take() {
            self.index.remove(hash);
        }
    }

    /// Forgets what all blocks hold.
    pub(super) fn forget(&mut self) {
        self.index.clear();
        self.blocks.iter_mut().for_each(|b| b.hash = None);
    }
}
