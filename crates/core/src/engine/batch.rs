//! How a step is formed: who decodes, who is prefilled, who gets a seat, and who loses one.

use super::blocks::BlockId;
use super::memory::Owner;
use super::seqs::SeqId;
use super::{Engine, Profile};
use crate::time::Span;

/// A fixed step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) duration: Span,
    /// The tokens that come out of it and are handed out.
    pub(super) tokens: Vec<Token>,
    /// How many come out of it.
    pub(super) yields: u32,
    /// Whether one of them is a last one.
    pub(super) any_last: bool,
}

/// An output token of a fixed step.
#[derive(Copy, Clone, Debug)]
pub(super) struct Token {
    pub(super) id: SeqId,
    pub(super) tag: u64,
    pub(super) index: u32,
    pub(super) cached: u32,
    pub(super) last: bool,
}

/// A place in the batch and who holds it. All counts include the steps that are fixed.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) id: SeqId,
    tag: u64,
    cached: u32,
    input: u32,
    /// Tokens still to prefill: prompt tokens, and after a preemption what was generated before it.
    prefill_left: u32,
    /// Output tokens scheduled, and to be generated.
    scheduled: u32,
    output: u32,
    /// Tokens that its blocks have room for.
    room: u32,
    pub(super) blocks: Vec<BlockId>,
}

impl Seat {
    /// Its tokens in the KV cache.
    pub(super) const fn kv_tokens(&self) -> u32 {
        self.input + self.scheduled - self.prefill_left
    }

    /// Its tokens that the fixed steps compute: all in the cache, but the token that was generated last.
    pub(super) const fn computed(&self) -> u32 {
        self.kv_tokens() - (self.prefill_left == 0) as u32
    }

    const fn decodes(&self) -> bool {
        self.prefill_left == 0 && self.scheduled < self.output
    }

    const fn has_work(&self) -> bool {
        self.prefill_left > 0 || self.scheduled < self.output
    }

    /// The token that was scheduled last.
    const fn latest(&self) -> Token {
        let (index, last) = (self.scheduled, self.scheduled == self.output);
        Token { id: self.id, tag: self.tag, index, cached: self.cached, last }
    }
}

/// A step in the making.
struct Draft {
    budget: u32,
    decoding: u32,
    prefill: u32,
    kv_tokens: u64,
    tokens: Vec<Token>,
    any_last: bool,
    first_tokens: u32,
    /// Whether tokens between the first and the last one of an answer are left out of `tokens`.
    ends_only: bool,
}

impl Draft {
    fn decode(&mut self, seat: &mut Seat) {
        self.kv_tokens += u64::from(seat.kv_tokens());
        self.decoding += 1;
        self.budget -= 1;
        seat.scheduled += 1;
        if !self.ends_only || seat.scheduled == seat.output {
            self.hand_out(seat);
        }
    }

    /// Puts as much of what is left to prefill into the step as the budget allows.
    fn prefill(&mut self, seat: &mut Seat) {
        let chunk = seat.prefill_left.min(self.budget);
        if chunk == 0 {
            return;
        }
        self.kv_tokens += u64::from(seat.kv_tokens());
        self.budget -= chunk;
        self.prefill += chunk;
        seat.prefill_left -= chunk;
        if seat.prefill_left == 0 {
            seat.scheduled += 1;
            self.first_tokens += 1;
            self.hand_out(seat);
        }
    }

    fn hand_out(&mut self, seat: &Seat) {
        let token = seat.latest();
        self.any_last |= token.last;
        self.tokens.push(token);
    }

    fn finish(self, profile: &Profile) -> Step {
        let duration = profile.step(self.kv_tokens, self.prefill, self.decoding);
        let yields = self.decoding + self.first_tokens;
        Step { duration, tokens: self.tokens, yields, any_last: self.any_last }
    }
}

impl Engine {
    /// The next step, or nothing if there is nothing to do.
    pub(super) fn form_step(&mut self) -> Option<Step> {
        let tokens = self.spare.pop().unwrap_or_default();
        let mut draft = Draft {
            budget: self.profile.token_budget,
            decoding: 0,
            prefill: 0,
            kv_tokens: 0,
            tokens,
            any_last: false,
            first_tokens: 0,
            ends_only: self.ends_only(),
        };
        self.decode(&mut draft);
        // Prompts whose first part is in an earlier step come before those that wait.
        for seat in &mut self.seats {
            draft.prefill(seat);
        }
        // Who has just lost its seat stands first and does not fit: one of its blocks is taken.
        self.let_in(&mut draft);
        if draft.decoding == 0 && draft.prefill == 0 {
            self.spare.push(draft.tokens);
            return None;
        }
        Some(draft.finish(&self.profile))
    }

    /// Every sequence whose prompt is done gets one more token, unless it has to give up its seat.
    fn decode(&mut self, draft: &mut Draft) {
        let mut place = 0;
        while let Some(seat) = self.seats.get_mut(place) {
            if seat.decodes() {
                // The token that is fed in is kept, the one that comes out is not yet.
                if seat.kv_tokens() <= seat.room {
                    draft.decode(seat);
                } else if self.make_room(place) {
                    draft.decode(&mut self.seats[place]);
                } else {
                    break;
                }
            }
            place += 1;
        }
    }

    /// A further block for the sequence in this place, taken from the sequences admitted last if none is
    /// free. False if it was its own turn to go.
    fn make_room(&mut self, place: usize) -> bool {
        loop {
            let seat = &mut self.seats[place];
            if self.memory.grow(&mut seat.blocks) {
                seat.room = seat.room.saturating_add(self.profile.block_tokens);
                return true;
            }
            // Whose tokens are all scheduled needs no more and is gone soon.
            let last = self.seats.iter().rposition(Seat::has_work).unwrap_or(place);
            self.preempt(last);
            if last == place {
                return false;
            }
        }
    }

    /// Takes a seat and its blocks away; what it was generating is computed again, as part of the
    /// prompt, when it gets a seat again. It is the first to get one.
    fn preempt(&mut self, place: usize) {
        let mut seat = self.seats.remove(place);
        if let Some(seq) = self.seqs.get_mut(seat.id) {
            let owner = Owner { prompt: &seq.work.prompt, input: seat.input, serial: seq.serial };
            self.memory.remember(owner, &seat.blocks, seat.computed());
            seq.scheduled = seat.scheduled;
            self.waiting.push_front(seat.id);
            self.stats.preemptions += 1;
        }
        let computed = seat.computed();
        self.memory.release(&mut seat.blocks, computed);
    }

    /// Gives the seats that are left to those that wait, while the budget and the blocks last.
    fn let_in(&mut self, draft: &mut Draft) {
        while draft.budget > 0 && self.seats.len() < self.profile.max_seqs as usize {
            let Some(&id) = self.waiting.front() else { return };
            let Some(mut seat) = self.seat(id) else { return };
            self.waiting.pop_front();
            draft.prefill(&mut seat);
            self.seats.push(seat);
        }
    }

    /// A seat for a waiting sequence, with what the prefix cache has of its prompt; nothing if the blocks
    /// that are free do not hold it.
    fn seat(&mut self, id: SeqId) -> Option<Seat> {
        let seq = self.seqs.get_mut(id)?;
        let (input, scheduled) = (seq.work.input, seq.scheduled);
        let owner = Owner { prompt: &seq.work.prompt, input, serial: seq.serial };
        let holding = self.memory.admit(owner, input + scheduled)?;
        if seq.cached.is_none() {
            seq.cached = Some(holding.cached);
            self.stats.prompt_tokens += u64::from(input);
            if self.profile.prefix_cache {
                self.stats.cache_queries += u64::from(input);
                self.stats.cache_hits += u64::from(holding.cached);
            }
        }
        Some(Seat {
            id,
            tag: seq.work.tag,
            cached: seq.cached.unwrap_or(0),
            input,
            prefill_left: input + scheduled - holding.cached,
            scheduled,
            output: seq.work.output,
            room: self.memory.room(&holding.blocks),
            blocks: holding.blocks,
        })
    }
}
