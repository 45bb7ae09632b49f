//! The engine as a state machine: queue, steps, seats and tokens.

use std::collections::VecDeque;

use super::{PrefixCache, Profile, Prompt};
use crate::time::{Span, Tick};

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

/// A sequence inside the engine. Numbers are not reused while they matter.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SeqId {
    slot: u32,
    generation: u32,
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
    /// Prompt tokens looked up in the prefix cache so far.
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
    profile: Profile,
    now: Tick,
    seqs: Slab,
    /// On the way from the client to the engine's queue.
    arriving: VecDeque<(Tick, SeqId)>,
    waiting: VecDeque<SeqId>,
    /// The seats, in order of admission.
    seats: Vec<SeqId>,
    /// Fixed steps; the first one runs and ends at `step_end`.
    steps: VecDeque<Step>,
    step_end: Tick,
    /// On the way from the engine to the client.
    leaving: VecDeque<(SeqId, Emission)>,
    cache: PrefixCache,
    stats: EngineStats,
    spare: Vec<Vec<SeqId>>,
}

#[derive(Debug)]
struct Step {
    duration: Span,
    /// The sequences that get a token out of this step.
    yields: Vec<SeqId>,
}

#[derive(Debug)]
struct Seq {
    work: Work,
    cached: u32,
    /// Prompt tokens that are cached or in fixed steps.
    prefilled: u32,
    /// Output tokens in fixed steps.
    scheduled: u32,
    /// Output tokens generated.
    generated: u32,
}

impl Engine {
    /// An idle engine with an empty prefix cache.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        Self {
            profile: profile.clone(),
            now: Tick::ZERO,
            seqs: Slab::default(),
            arriving: VecDeque::new(),
            waiting: VecDeque::new(),
            seats: Vec::new(),
            steps: VecDeque::new(),
            step_end: Tick::MAX,
            leaving: VecDeque::new(),
            cache: PrefixCache::new(None),
            stats: EngineStats::default(),
            spare: Vec::new(),
        }
    }

    /// The same engine with a prefix cache of at most `blocks` blocks; without this it has no bound,
    /// which suits a run of known size.
    #[must_use]
    pub fn with_cache_blocks(mut self, blocks: usize) -> Self {
        self.cache = PrefixCache::new(Some(blocks));
        self
    }

    /// The engine's parameters.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Sends work at `now`, which must not go back; it reaches the queue after the profile's overhead.
    pub fn submit(&mut self, now: Tick, mut work: Work) -> SeqId {
        // Events of this very tick wait, so that what is submitted together enters a step together.
        self.advance_while(|at| at < now);
        work.input = work.input.max(1);
        work.output = work.output.max(1);
        let id = self.seqs.insert(Seq { work, cached: 0, prefilled: 0, scheduled: 0, generated: 0 });
        self.arriving.push_back((now + self.profile.overhead_in, id));
        id
    }

    /// Gives up a sequence; its seat is free for the next step that is formed. False if it has ended.
    pub fn abort(&mut self, now: Tick, id: SeqId) -> bool {
        self.advance(now);
        if self.seqs.remove(id).is_none() {
            return false;
        }
        self.arriving.retain(|(_, other)| *other != id);
        self.waiting.retain(|other| *other != id);
        self.seats.retain(|other| *other != id);
        // By number and not by tag, which the caller may use twice.
        self.leaving.retain(|(other, _)| *other != id);
        true
    }

    /// The next token that has reached its client by `now`.
    pub fn poll(&mut self, now: Tick) -> Option<Emission> {
        self.advance(now);
        self.leaving.front().filter(|(_, e)| e.at <= now)?;
        self.leaving.pop_front().map(|(_, e)| e)
    }

    /// When `poll` may have something new although nothing was submitted.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        let leaving = self.leaving.front().map(|(_, e)| e.at);
        [leaving, self.next_event()].into_iter().flatten().min()
    }

    /// What the engine is doing.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let kv = self.seats.iter().filter_map(|&id| self.seqs.get(id));
        EngineStats {
            running: self.seats.len() as u32,
            waiting: self.waiting.len() as u32,
            kv_tokens: kv.map(|s| u64::from(s.prefilled) + u64::from(s.scheduled)).sum(),
            ..self.stats
        }
    }

    /// Forgets all cached prefixes.
    pub fn reset_prefix_cache(&mut self) {
        self.cache.clear();
    }

    /// Marks a prompt as seen before, as if another client had sent it.
    pub fn warm(&mut self, prompt: &Prompt, tokens: u32) {
        self.cache.insert(prompt, tokens, self.profile.block_tokens);
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
        let Some(mut step) = self.steps.pop_front() else { return };
        self.stats.steps += 1;
        let at = self.step_end + self.profile.overhead_out;
        let mut any_finished = false;
        for id in step.yields.drain(..) {
            let Some(seq) = self.seqs.get_mut(id) else { continue };
            seq.generated += 1;
            self.stats.generated_tokens += 1;
            let last = seq.generated == seq.work.output;
            let token = Emission { tag: seq.work.tag, at, index: seq.generated, last, cached: seq.cached };
            self.leaving.push_back((id, token));
            if last {
                any_finished = true;
                self.seqs.remove(id);
            }
        }
        if any_finished {
            let seqs = &self.seqs;
            self.seats.retain(|&id| seqs.get(id).is_some());
        }
        self.spare.push(step.yields);
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

    fn form_step(&mut self) -> Option<Step> {
        let mut yields = self.spare.pop().unwrap_or_default();
        let mut budget = self.profile.token_budget;
        let (mut decoding, mut prefill, mut kv) = (0, 0, 0);
        for &id in &self.seats {
            let Some(seq) = self.seqs.get_mut(id) else { continue };
            if seq.prefilled == seq.work.input && seq.scheduled < seq.work.output {
                kv += u64::from(seq.work.input) + u64::from(seq.scheduled);
                seq.scheduled += 1;
                decoding += 1;
                budget -= 1;
                yields.push(id);
            }
        }
        // Prompts whose first part is in an earlier step come before those that wait.
        for index in 0..self.seats.len() {
            prefill += self.prefill(self.seats[index], &mut budget, &mut kv, &mut yields);
        }
        while budget > 0 && self.seats.len() < self.profile.max_seqs as usize {
            let Some(id) = self.waiting.pop_front() else { break };
            self.seat(id);
            prefill += self.prefill(id, &mut budget, &mut kv, &mut yields);
        }
        if decoding == 0 && prefill == 0 {
            self.spare.push(yields);
            return None;
        }
        Some(Step { duration: self.profile.step(kv, prefill, decoding), yields })
    }

    /// Gives a waiting sequence a seat and what the prefix cache has of its prompt.
    fn seat(&mut self, id: SeqId) {
        let Some(seq) = self.seqs.get_mut(id) else { return };
        self.seats.push(id);
        self.stats.prompt_tokens += u64::from(seq.work.input);
        if self.profile.prefix_cache {
            let block = self.profile.block_tokens;
            seq.cached = self.cache.lookup(&seq.work.prompt, seq.work.input, block);
            self.cache.insert(&seq.work.prompt, seq.work.input, block);
            self.stats.cache_queries += u64::from(seq.work.input);
            self.stats.cache_hits += u64::from(seq.cached);
        }
        seq.prefilled = seq.cached;
    }

    /// Puts as much of the sequence's prompt into the step as the budget allows, and says how much.
    fn prefill(&mut self, id: SeqId, budget: &mut u32, kv: &mut u64, yields: &mut Vec<SeqId>) -> u32 {
        let Some(seq) = self.seqs.get_mut(id) else { return 0 };
        let chunk = (seq.work.input - seq.prefilled).min(*budget);
        if chunk == 0 {
            return 0;
        }
        *budget -= chunk;
        *kv += u64::from(seq.prefilled);
        seq.prefilled += chunk;
        if seq.prefilled == seq.work.input {
            seq.scheduled = 1;
            yields.push(id);
        }
        chunk
    }
}

/// Sequences by number; a number of a removed one finds nothing.
#[derive(Debug, Default)]
struct Slab {
    entries: Vec<(u32, Option<Seq>)>,
    free: Vec<u32>,
}

impl Slab {
    fn insert(&mut self, seq: Seq) -> SeqId {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[slot as usize];
            entry.1 = Some(seq);
            return SeqId { slot, generation: entry.0 };
        }
        self.entries.push((0, Some(seq)));
        SeqId { slot: (self.entries.len() - 1) as u32, generation: 0 }
    }

    fn get(&self, id: SeqId) -> Option<&Seq> {
        let (generation, seq) = self.entries.get(id.slot as usize)?;
        seq.as_ref().filter(|_| *generation == id.generation)
    }

    fn get_mut(&mut self, id: SeqId) -> Option<&mut Seq> {
        let (generation, seq) = self.entries.get_mut(id.slot as usize)?;
        if *generation == id.generation { seq.as_mut() } else { None }
    }

    fn remove(&mut self, id: SeqId) -> Option<Seq> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile::built_in("gb10-qwen3-8b-fp8").unwrap()
    }

    fn work(tag: u64, input: u32, output: u32) -> Work {
        Work { tag, prompt: Prompt::Unique, input, output }
    }

    fn run_to_end(engine: &mut Engine) -> Vec<Emission> {
        let mut all = Vec::new();
        while let Some(at) = engine.next_wake() {
            while let Some(e) = engine.poll(at) {
                all.push(e);
            }
        }
        all
    }

    #[test]
    fn an_idle_engine_answers_after_overheads_and_one_step() {
        let p = profile();
        let mut engine = Engine::new(&p);
        engine.submit(Tick::ZERO, work(1, 64, 3));
        let tokens = run_to_end(&mut engine);
        let first = Tick::ZERO + p.overhead_in + p.step(0, 64, 0) + p.overhead_out;
        assert_eq!(tokens[0], Emission { tag: 1, at: first, index: 1, last: false, cached: 0 });
        assert_eq!(tokens[1].at, first + p.step(65, 0, 1));
        assert_eq!(tokens[2].at, tokens[1].at + p.step(66, 0, 1));
        assert!(tokens[2].last);
    }

    #[test]
    fn a_request_that_arrives_during_a_step_enters_the_second_step_after_it() {
        let mut p = profile();
        p.overhead_in = Span::ZERO;
        p.overhead_out = Span::ZERO;
        let mut engine = Engine::new(&p);
        engine.submit(Tick::ZERO, work(1, 64, 100));
        engine.submit(Tick::from_nanos(1), work(2, 64, 1));
        let tokens = run_to_end(&mut engine);
        let end_of_first = Tick::ZERO + p.step(0, 64, 0);
        let end_of_second = end_of_first + p.step(65, 0, 1);
        let second = tokens.iter().find(|e| e.tag == 2).unwrap();
        assert_eq!(second.at, end_of_second + p.step(66, 64, 1));

        p.pipeline_depth = 1;
        let mut engine = Engine::new(&p);
        engine.submit(Tick::ZERO, work(1, 64, 100));
        engine.submit(Tick::from_nanos(1), work(2, 64, 1));
        let second = *run_to_end(&mut engine).iter().find(|e| e.tag == 2).unwrap();
        assert_eq!(second.at, end_of_first + p.step(65, 64, 1));
    }

    #[test]
    fn a_finished_sequence_keeps_its_seat_for_one_step_more_than_its_tokens() {
        let mut p = profile();
        p.max_seqs = 1;
        p.overhead_in = Span::ZERO;
        let mut engine = Engine::new(&p);
        engine.submit(Tick::ZERO, work(1, 64, 4));
        engine.submit(Tick::ZERO, work(2, 64, 4));
        let tokens = run_to_end(&mut engine);
        // The engine has nothing else to do in that step, so none is run: the seat passes on at once
        // when the last step has been processed, and the second prompt starts right there.
        let last = tokens.iter().find(|e| e.tag == 1 && e.last).unwrap().at;
        let first = tokens.iter().find(|e| e.tag == 2).unwrap().at;
        assert_eq!(first, last + p.step(0, 64, 0));

        p.max_seqs = 2;
        let mut engine = Engine::new(&p);
        engine.submit(Tick::ZERO, work(0, 64, 100));
        engine.submit(Tick::ZERO, work(1, 64, 4));
        engine.submit(Tick::ZERO, work(2, 64, 4));
        let tokens = run_to_end(&mut engine);
        let step_of = |tag, index| {
            let at = tokens.iter().find(|e| e.tag == tag && e.index == index).unwrap().at;
            tokens.iter().filter(|e| e.tag == 0 && e.at <= at).count()
        };
        // Tokens of 1 in steps 1 to 4; its seat in steps 1 to 5; so 2 starts in step 6.
        assert_eq!((step_of(1, 4), step_of(2, 1)), (4, 6));
    }

    #[test]
    fn a_prompt_beyond_the_budget_is_prefilled_in_chunks() {
        let mut p = profile();
        p.token_budget = 100;
        p.overhead_in = Span::ZERO;
        p.overhead_out = Span::ZERO;
        let mut engine = Engine::new(&p);
        engine.submit(Tick::ZERO, work(1, 250, 1));
        let tokens = run_to_end(&mut engine);
        let expected = Tick::ZERO + p.step(0, 100, 0) + p.step(100, 100, 0) + p.step(200, 50, 0);
        assert_eq!(tokens[0].at, expected);
    }

    #[test]
    fn an_abort_takes_no_token_of_another_sequence_with_the_same_tag() {
        let mut p = profile();
        p.overhead_in = Span::ZERO;
        let mut engine = Engine::new(&p);
        let first = engine.submit(Tick::ZERO, work(7, 64, 2));
        engine.submit(Tick::ZERO, work(7, 64, 2));
        // Both first tokens are on their way to the clients.
        let now = Tick::ZERO + p.step(0, 128, 0);
        assert!(engine.poll(now).is_none());
        assert!(engine.abort(now, first));
        assert_eq!(run_to_end(&mut engine).iter().map(|e| e.index).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_bounded_prefix_cache_forgets_the_oldest_prompt() {
        let p = profile();
        let cached_again = |mut engine: Engine| {
            for (tag, family) in [(1, 1), (2, 2), (3, 1)] {
                let now = engine.now;
                engine.submit(now, Work { tag, prompt: Prompt::Family(family), input: 64, output: 1 });
                run_to_end(&mut engine);
            }
            engine.stats().cache_hits
        };
        assert_eq!(cached_again(Engine::new(&p)), 48);
        assert_eq!(cached_again(Engine::new(&p).with_cache_blocks(4)), 0);
    }

    #[test]
    fn an_aborted_sequence_gives_up_its_seat_and_sends_nothing_more() {
        let mut p = profile();
        p.max_seqs = 1;
        let mut engine = Engine::new(&p);
        let first = engine.submit(Tick::ZERO, work(1, 64, 100));
        engine.submit(Tick::ZERO, work(2, 64, 1));
        let now = Tick::ZERO + Span::from_millis(200);
        while engine.poll(now).is_some() {}
        assert!(engine.abort(now, first));
        assert!(!engine.abort(now, first));
        let rest = run_to_end(&mut engine);
        assert_eq!(rest.iter().map(|e| e.tag).collect::<Vec<_>>(), [2]);
        assert_eq!(engine.stats().running, 0);
    }
}
