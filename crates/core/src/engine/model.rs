//! The engine as a state machine: queue, steps, seats and tokens.

use std::collections::VecDeque;

use super::batch::{Seat, Step, Token};
use super::memory::Memory;
use super::seqs::{Seq, SeqId, Slab};
use super::{Profile, Prompt};
use crate::time::Tick;

/// Work for the engine.
#[derive(Clone, Debug)]
pub struct Work {
    /// The caller's own number, handed back with every token.
    pub tag: u64,
    /// What identifies the prompt's blocks.
    pub prompt: Prompt,
    /// Prompt tokens, at least 1.
    pub input: u32,
    /// Tokens to generate, at least 1.
    pub output: u32,
}

/// Why work is refused: not even an engine that does nothing else has room for it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{tokens} tokens of KV cache are needed, and the engine has room for {room}")]
pub struct TooLong {
    /// Prompt tokens and output tokens together, without the last one, which is never read.
    pub tokens: u64,
    /// What [`Profile::kv_room`] says.
    pub room: u64,
}

/// A token that has reached the client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Emission {
    /// The number given with the work.
    pub tag: u64,
    /// When it arrived.
    pub at: Tick,
    /// Its place among the output tokens, from 1.
    pub index: u32,
    /// Whether it is the last one.
    pub last: bool,
    /// Prompt tokens that came from the prefix cache.
    pub cached: u32,
}

/// What the engine is doing, in the terms of a server's metrics.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sequences that hold a seat.
    pub running: u32,
    /// Sequences that wait for one.
    pub waiting: u32,
    /// Tokens in the KV cache of running sequences.
    pub kv_tokens: u64,
    /// KV blocks in use, shared ones counted once; 0 if the profile sets no `kv_blocks`.
    pub kv_blocks: u32,
    /// Times that a sequence lost its seat because KV blocks ran out, so far.
    pub preemptions: u64,
    /// Prompt tokens looked up in the prefix cache so far; again after a preemption does not count.
    pub cache_queries: u64,
    /// Prompt tokens found in the prefix cache so far.
    pub cache_hits: u64,
    /// Prompt tokens of admitted sequences so far.
    pub prompt_tokens: u64,
    /// Tokens generated so far.
    pub generated_tokens: u64,
    /// Steps run so far.
    pub steps: u64,
}

/// A continuous-batching engine.
#[derive(Debug)]
pub struct Engine {
    pub(super) profile: Profile,
    now: Tick,
    pub(super) seqs: Slab,
    submitted: u64,
    /// On the way from the client to the engine's queue.
    arriving: VecDeque<(Tick, SeqId)>,
    pub(super) waiting: VecDeque<SeqId>,
    /// In order of admission.
    pub(super) seats: Vec<Seat>,
    /// Fixed steps; the first one runs and ends at `step_end`.
    steps: VecDeque<Step>,
    step_end: Tick,
    /// On the way from the engine to the clients; none is empty.
    leaving: VecDeque<Batch>,
    pub(super) memory: Memory,
    pub(super) stats: EngineStats,
    /// Memory to use again.
    pub(super) spare: Vec<Vec<Token>>,
    ends_only: bool,
    /// When tokens of the last steps reached their clients, if not every token is handed out.
    times: StepTimes,
}

/// The tokens of one step, on their way.
#[derive(Debug)]
struct Batch {
    at: Tick,
    tokens: Vec<Token>,
    /// Tokens handed out.
    taken: usize,
}

impl Engine {
    /// An idle engine with an empty prefix cache.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        Self {
            profile: profile.clone(),
            now: Tick::ZERO,
            seqs: Slab::default(),
            submitted: 0,
            arriving: VecDeque::new(),
            waiting: VecDeque::new(),
            seats: Vec::new(),
            steps: VecDeque::new(),
            step_end: Tick::MAX,
            leaving: VecDeque::new(),
            memory: Memory::new(profile),
            stats: EngineStats::default(),
            spare: Vec::new(),
            ends_only: false,
            times: StepTimes::default(),
        }
    }

    /// The same engine, handing out only the first and the last token of an answer, which is much faster;
    /// [`Engine::times`] has the others' times. No effect if the profile sets `kv_blocks`: only where
    /// nothing is preempted does an answer get a token from every step between its ends.
    #[must_use]
    pub fn with_ends_only(mut self) -> Self {
        self.ends_only = self.profile.kv_blocks.is_none();
        self
    }

    /// Whether only the first and the last token of an answer are handed out.
    #[must_use]
    pub const fn ends_only(&self) -> bool {
        self.ends_only
    }

    /// When the tokens of an answer reached the client: the last `count` of those up to `at`, which must be
    /// the time of its last token, just polled. None unless [`Engine::ends_only`].
    pub fn times(&self, at: Tick, count: u32) -> impl ExactSizeIterator<Item = Tick> + Clone {
        self.times.last(at, count)
    }

    /// The same engine with a prefix cache of at most `blocks` blocks instead of what its profile says.
    /// No effect if the profile sets `kv_blocks`, of which the cache is a part.
    #[must_use]
    pub fn with_cache_blocks(mut self, blocks: usize) -> Self {
        self.memory.set_cache_blocks(blocks);
        self
    }

    /// The engine's parameters.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Sends work at `now`, which must not go back; it reaches the queue after the profile's overhead.
    ///
    /// # Errors
    /// [`TooLong`] if the work could never have the KV blocks that it needs; then nothing has changed.
    pub fn submit(&mut self, now: Tick, mut work: Work) -> Result<SeqId, TooLong> {
        work.input = work.input.max(1);
        work.output = work.output.max(1);
        self.profile.check_room(work.input, work.output)?;
        // Events of this very tick wait, so that what is submitted together enters a step together.
        self.advance_while(|at| at < now);
        self.submitted += 1;
        self.times.longest = self.times.longest.max(work.output as usize);
        let id = self.seqs.insert(Seq { work, serial: self.submitted, scheduled: 0, cached: None });
        self.arriving.push_back((now + self.profile.overhead_in, id));
        Ok(id)
    }

    /// Gives up a sequence; its seat is free for the next step that is formed. False if it has ended.
    pub fn abort(&mut self, now: Tick, id: SeqId) -> bool {
        self.advance(now);
        if self.seqs.remove(id).is_none() {
            return false;
        }
        self.arriving.retain(|(_, other)| *other != id);
        self.waiting.retain(|other| *other != id);
        self.vacate_ended();
        // By number and not by tag, which the caller may use twice.
        for step in &mut self.steps {
            let before = step.tokens.len();
            step.tokens.retain(|token| token.id != id);
            step.yields -= (before - step.tokens.len()) as u32;
        }
        for batch in &mut self.leaving {
            batch.tokens.drain(..batch.taken);
            batch.taken = 0;
            batch.tokens.retain(|token| token.id != id);
        }
        self.leaving.retain(|batch| !batch.tokens.is_empty());
        true
    }

    /// The next token that has reached its client by `now`.
    pub fn poll(&mut self, now: Tick) -> Option<Emission> {
        self.advance(now);
        let batch = self.leaving.front_mut().filter(|batch| batch.at <= now)?;
        let at = batch.at;
        let &Token { tag, index, cached, last, .. } = batch.tokens.get(batch.taken)?;
        batch.taken += 1;
        if batch.taken == batch.tokens.len()
            && let Some(done) = self.leaving.pop_front()
        {
            self.keep_spare(done.tokens);
        }
        Some(Emission { tag, at, index, last, cached })
    }

    /// When `poll` may have something new, or [`Engine::stats`] may change, although nothing was
    /// submitted.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        let leaving = self.leaving.front().map(|batch| batch.at);
        [leaving, self.next_event()].into_iter().flatten().min()
    }

    /// The earliest time at which `poll` can have something new although nothing was submitted: what
    /// happens inside the engine until then is caught up with when it is asked.
    #[must_use]
    pub fn next_output(&self) -> Option<Tick> {
        let leaving = self.leaving.front().map(|batch| batch.at);
        leaving.or_else(|| {
            let running = (!self.steps.is_empty()).then_some(self.step_end);
            let event = running.or_else(|| self.arriving.front().map(|(at, _)| *at))?;
            Some(event + self.profile.overhead_out)
        })
    }

    /// What the engine is doing.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        EngineStats {
            running: self.seats.len() as u32,
            waiting: self.waiting.len() as u32,
            kv_tokens: self.seats.iter().map(|seat| u64::from(seat.kv_tokens())).sum(),
            kv_blocks: self.memory.used(),
            ..self.stats
        }
    }

    /// Forgets all cached prefixes.
    pub fn reset_prefix_cache(&mut self) {
        self.memory.forget();
    }

    /// Marks a prompt as seen before, as if another client had sent it.
    pub fn warm(&mut self, prompt: &Prompt, tokens: u32) {
        self.memory.warm(prompt, tokens);
    }

    fn next_event(&self) -> Option<Tick> {
        let arrival = self.arriving.front().map(|(at, _)| *at);
        let step = (!self.steps.is_empty()).then_some(self.step_end);
        [arrival, step].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Tick) {
        self.advance_while(|at| at <= now);
    }

    fn advance_while(&mut self, due: impl Fn(Tick) -> bool) {
        while let Some(at) = self.next_event().filter(|at| due(*at)) {
            self.now = at;
            // What arrives just as a step ends is seen by the step formed then.
            while let Some(&(_, id)) = self.arriving.front().filter(|(arrival, _)| *arrival <= at) {
                self.arriving.pop_front();
                self.waiting.push_back(id);
            }
            if !self.steps.is_empty() && self.step_end == at {
                self.end_step();
            }
            self.form_steps();
        }
    }

    /// Processes the running step: tokens leave, finished sequences give up their seats.
    fn end_step(&mut self) {
        let Some(step) = self.steps.pop_front() else { return };
        self.stats.steps += 1;
        self.stats.generated_tokens += u64::from(step.yields);
        if step.any_last {
            for token in step.tokens.iter().filter(|token| token.last) {
                self.seqs.remove(token.id);
            }
            self.vacate_ended();
        }
        let at = self.step_end + self.profile.overhead_out;
        if self.ends_only && step.yields > 0 {
            self.times.push(at, self.leaving.front().map_or(at, |batch| batch.at));
        }
        if step.tokens.is_empty() {
            self.keep_spare(step.tokens);
        } else {
            self.leaving.push_back(Batch { at, tokens: step.tokens, taken: 0 });
        }
        if let Some(next) = self.steps.front() {
            self.step_end = self.now + next.duration;
        }
    }

    /// Fixes steps until as many as the pipeline holds are fixed.
    fn form_steps(&mut self) {
        while self.steps.len() < self.profile.pipeline_depth as usize {
            let Some(step) = self.form_step() else { return };
            if self.steps.is_empty() {
                self.step_end = self.now + step.duration;
            }
            self.steps.push_back(step);
        }
    }

    /// Takes the seats and blocks of sequences that exist no more.
    fn vacate_ended(&mut self) {
        let Self { seats, seqs, memory, .. } = self;
        seats.retain_mut(|seat| {
            let stays = seqs.get(seat.id).is_some();
            if !stays {
                let computed = seat.computed();
                memory.release(&mut seat.blocks, computed);
            }
            stays
        });
    }

    fn keep_spare(&mut self, mut tokens: Vec<Token>) {
        tokens.clear();
        self.spare.push(tokens);
    }
}

/// When the tokens of the last steps that had any reached their clients, ascending.
#[derive(Debug, Default)]
struct StepTimes {
    times: VecDeque<Tick>,
    /// Tokens of the longest answer so far: as many steps may be asked for.
    longest: usize,
}

impl StepTimes {
    /// Adds a step. All up to `polled` may have been polled: of these only as many are kept as an answer has
    /// tokens.
    fn push(&mut self, at: Tick, polled: Tick) {
        self.times.push_back(at);
        let past = self.times.partition_point(|time| *time <= polled);
        self.times.drain(..past.saturating_sub(self.longest));
    }

    fn last(&self, at: Tick, count: u32) -> impl ExactSizeIterator<Item = Tick> + Clone {
        let end = self.times.partition_point(|time| *time <= at);
        self.times.range(end.saturating_sub(count as usize)..end).copied()
    }
}

#[cfg(test)]
mod tests;
