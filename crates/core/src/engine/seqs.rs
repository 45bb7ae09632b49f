//! Sequences by number.

use super::Work;

/// A sequence inside the engine. Numbers are not reused while they matter.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SeqId {
    slot: u32,
    generation: u32,
}

#[derive(Debug)]
pub(super) struct Seq {
    pub(super) work: Work,
    /// Counts all sequences ever.
    pub(super) serial: u64,
    /// Output tokens in fixed steps when it last lost its seat.
    pub(super) scheduled: u32,
    /// Prompt tokens that were in the prefix cache when it got its first seat.
    pub(super) cached: Option<u32>,
}

/// A number of a removed sequence finds nothing.
#[derive(Debug, Default)]
pub(super) struct Slab {
    entries: Vec<(u32, Option<Seq>)>,
    free: Vec<u32>,
}

impl Slab {
    pub(super) fn insert(&mut self, seq: Seq) -> SeqId {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[slot as usize];
            entry.1 = Some(seq);
            return SeqId { slot, generation: entry.0 };
        }
        self.entries.push((0, Some(seq)));
        SeqId { slot: (self.entries.len() - 1) as u32, generation: 0 }
    }

    pub(super) fn get(&self, id: SeqId) -> Option<&Seq> {
        let (generation, seq) = self.entries.get(id.slot as usize)?;
        seq.as_ref().filter(|_| *generation == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: SeqId) -> Option<&mut Seq> {
        let (generation, seq) = self.entries.get_mut(id.slot as usize)?;
        if *generation == id.generation { seq.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, id: SeqId) -> Option<Seq> {
        let (generation, seq) = self.entries.get_mut(id.slot as usize)?;
        if *generation != id.generation {
            return None;
        }
        let taken = seq.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(taken)
    }
}
