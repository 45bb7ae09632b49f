//! From the hash of a block to its place.

use std::hash::{BuildHasherDefault, Hasher};

use super::BlockHash;
use crate::rng::mix;

/// Places by block hash. Nothing can go over the entries, so their order shows nowhere; and it costs a
/// fraction of an ordered map, of which an engine under load asks millions of times.
#[derive(Clone, Debug, Default)]
#[expect(clippy::disallowed_types, reason = "looked up by key only, with a fixed hash function")]
pub(super) struct Index(std::collections::HashMap<BlockHash, u32, BuildHasherDefault<Spread>>);

impl Index {
    pub(super) fn get(&self, hash: BlockHash) -> Option<u32> {
        self.0.get(&hash).copied()
    }

    pub(super) fn contains(&self, hash: BlockHash) -> bool {
        self.0.contains_key(&hash)
    }

    pub(super) fn insert(&mut self, hash: BlockHash, place: u32) {
        self.0.insert(hash, place);
    }

    pub(super) fn remove(&mut self, hash: BlockHash) {
        self.0.remove(&hash);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The same function in every run and on every machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0, value);
    }
}
