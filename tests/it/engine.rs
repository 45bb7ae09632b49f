//! The engine model under KV pressure, and the simulator held against itself.

#![cfg(test)]

mod golden;
mod simulated;

use std::collections::BTreeMap;

use elasticserve_core::engine::{Emission, Engine, Profile, Prompt, SeqId, Work};
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::time::{Span, Tick};

/// A random engine whose every step takes the same time, and whose clients wait for nothing else.
fn profile(random: &mut Random) -> Profile {
    let mut p = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    p.base_ms = random.between(1, 40) as f64;
    (p.kv_ms_per_token, p.prefill_step_ms, p.prefill_ms_per_token, p.attention_ms) = (0.0, 0.0, 0.0, 0.0);
    (p.overhead_in, p.overhead_out) = (Span::ZERO, Span::ZERO);
    p.max_seqs = random.between(1, 8) as u32;
    p.block_tokens = random.between(1, 16) as u32;
    p.token_budget = [p.max_seqs + random.between(1, 200) as u32, AMPLE][random.between(0, 1) as usize];
    p.pipeline_depth = random.between(1, 3) as u32;
    p.prefix_cache = random.between(0, 1) == 0;
    p
}

/// More tokens than all clients of a run need in one step.
const AMPLE: u32 = 100_000;

fn work(random: &mut Random, tag: u64) -> Work {
    let prompt = match random.between(0, 3) {
        0 => Prompt::Unique,
        1 => Prompt::Blocks((0..random.between(0, 4)).collect::<Vec<u64>>().into()),
        _ => Prompt::Family(random.between(0, 2)),
    };
    Work { tag, prompt, input: random.between(1, 120) as u32, output: random.between(1, 60) as u32 }
}

#[test]
fn under_kv_pressure_every_token_comes_once_blocks_keep_their_bound_and_no_step_is_wasted() {
    let (mut preemptions, mut tokens, mut refused, mut aborted) = (0, 0, 0, 0);
    for seed in 0..1_500 {
        let mut random = Random::new(seed, Stream::Test);
        let kv_blocks = Some(random.between(1, 60) as u32);
        let run = Run::new(seed, Profile { kv_blocks, ..profile(&mut random) }, &mut random).run();
        preemptions += run.engine.stats().preemptions;
        tokens += run.engine.stats().generated_tokens;
        refused += run.clients.iter().filter(|c| c.seq.is_none()).count();
        aborted += run.clients.iter().filter(|c| c.aborted).count();
    }
    assert!(preemptions > 5_000 && tokens > 200_000, "{preemptions} preemptions, {tokens} tokens");
    assert!(refused > 5_000 && aborted > 1_000, "{refused} refused, {aborted} aborted");
}

#[test]
fn without_a_limit_nothing_is_preempted_or_refused_and_no_step_is_wasted() {
    for seed in 0..500 {
        let mut random = Random::new(seed, Stream::Test);
        let run = Run::new(seed, profile(&mut random), &mut random).run();
        assert_eq!((run.engine.stats().preemptions, run.engine.stats().kv_blocks), (0, 0), "seed {seed}");
        assert!(run.clients.iter().all(|c| c.seq.is_some()), "seed {seed}");
    }
}

/// An engine and clients that all come at the start.
struct Run {
    seed: u64,
    profile: Profile,
    engine: Engine,
    clients: Vec<Client>,
    now: Tick,
    steps: u64,
    preemptions: u64,
}

struct Client {
    work: Work,
    /// None if it was refused.
    seq: Option<SeqId>,
    abort: Option<Tick>,
    aborted: bool,
    tokens: u32,
    cached: Option<u32>,
}

impl Client {
    fn is_live(&self) -> bool {
        self.seq.is_some() && !self.aborted && self.tokens < self.work.output
    }
}

impl Run {
    fn new(seed: u64, profile: Profile, random: &mut Random) -> Self {
        let mut engine = Engine::new(&profile);
        if random.between(0, 1) == 0 {
            engine.warm(&Prompt::Family(0), random.between(0, 400) as u32);
        }
        let client = |tag| {
            let work = work(random, tag);
            let leaves = random.between(0, 5) == 0;
            let abort = leaves.then(|| Tick::from_nanos(random.between(0, 2_000) * 1_000_000));
            let fits = u64::from(work.input + work.output) - 1 <= profile.kv_room();
            let seq = engine.submit(Tick::ZERO, work.clone());
            assert_eq!(seq.is_ok(), fits, "seed {seed}: {work:?}");
            Client { work, seq: seq.ok(), abort, aborted: false, tokens: 0, cached: None }
        };
        let clients = (0..30).map(client).collect();
        Self { seed, profile, engine, clients, now: Tick::ZERO, steps: 0, preemptions: 0 }
    }

    fn run(mut self) -> Self {
        let seed = self.seed;
        while let Some(next) = self.engine.next_wake().into_iter().chain(self.aborts()).min() {
            assert!(next >= self.now, "seed {seed}: time goes back");
            self.now = next;
            self.listen();
            self.look();
            self.leave();
        }
        let stats = self.engine.stats();
        assert_eq!((stats.running, stats.waiting, stats.kv_tokens, stats.kv_blocks), (0, 0, 0, 0), "seed {seed}");
        for client in self.clients.iter().filter(|c| c.seq.is_some() && !c.aborted) {
            assert_eq!(client.tokens, client.work.output, "seed {seed}: {:?}", client.work);
        }
        let heard: u64 = self.clients.iter().map(|c| u64::from(c.tokens)).sum();
        assert!(stats.generated_tokens >= heard, "seed {seed}");
        if self.clients.iter().all(|c| !c.aborted) {
            assert_eq!(stats.generated_tokens, heard, "seed {seed}");
        }
        self
    }

    fn aborts(&self) -> impl Iterator<Item = Tick> {
        self.clients.iter().filter_map(|c| c.abort)
    }

    fn listen(&mut self) {
        let seed = self.seed;
        while let Some(Emission { tag, at, index, last, cached }) = self.engine.poll(self.now) {
            assert_eq!(at, self.now, "seed {seed}: nothing is on its way in this engine");
            let client = &mut self.clients[tag as usize];
            assert!(client.is_live(), "seed {seed}: a token for {tag}, which has ended");
            client.tokens += 1;
            assert_eq!((index, last), (client.tokens, client.tokens == client.work.output), "seed {seed}: of {tag}");
            assert!(cached < client.work.input, "seed {seed}: {cached} cached of {}", client.work.input);
            assert_eq!(*client.cached.get_or_insert(cached), cached, "seed {seed}: of {tag}");
        }
    }

    /// What must hold whenever a step has ended and the next one was formed.
    fn look(&mut self) {
        let (seed, stats) = (self.seed, self.engine.stats());
        let live: Vec<&Client> = self.clients.iter().filter(|c| c.is_live()).collect();
        assert_eq!((stats.running + stats.waiting) as usize, live.len(), "seed {seed}: {stats:?}");
        assert!(stats.running <= self.profile.max_seqs, "seed {seed}: {stats:?}");
        let blocks = self.profile.kv_blocks.unwrap_or(u32::MAX);
        assert!(stats.kv_blocks <= blocks, "seed {seed}: {stats:?}");
        if self.profile.kv_blocks.is_some() && !self.profile.prefix_cache {
            let room = u64::from(stats.kv_blocks) * u64::from(self.profile.block_tokens);
            // The token that a finished sequence generated last is in no block.
            assert!(room + u64::from(stats.running) >= stats.kv_tokens, "seed {seed}: {stats:?}");
        }
        if stats.steps > self.steps || self.now == Tick::ZERO {
            let step = Span::from_millis_f64(self.profile.base_ms);
            assert_eq!(self.now, Tick::ZERO + step * stats.steps, "seed {seed}: a pause between two steps");
            let seats_left = stats.running < self.profile.max_seqs && self.profile.token_budget == AMPLE;
            if seats_left && stats.waiting > 0 && stats.preemptions == self.preemptions {
                let need = |c: &&Client| (c.work.input + c.work.output).div_ceil(self.profile.block_tokens);
                let most = live.iter().map(need).max().unwrap_or(0);
                assert!(blocks - stats.kv_blocks < most, "seed {seed}: a seat stays free: {stats:?}");
            }
            (self.steps, self.preemptions) = (stats.steps, stats.preemptions);
        }
        if !live.is_empty() {
            let wake = self.engine.next_wake();
            assert!(wake.is_some_and(|at| at > self.now), "seed {seed}: nothing runs and {} wait", live.len());
        }
    }

    fn leave(&mut self) {
        for client in &mut self.clients {
            if client.abort.take_if(|at| *at <= self.now).is_some()
                && let Some(seq) = client.seq
            {
                let live = client.is_live();
                client.aborted = self.engine.abort(self.now, seq);
                assert_eq!(client.aborted, live, "seed {}", self.seed);
            }
        }
    }
}

#[test]
fn an_engine_that_hands_out_only_ends_has_the_same_times() {
    let mut answers = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed, Stream::Test);
        let mut p = profile(&mut random);
        // Steps short and long, and answers that are on their way for many of them.
        p.base_ms = random.between(1, 3_000) as f64 / 100.0;
        p.prefill_ms_per_token = random.unit() * 0.1;
        p.overhead_in = Span::from_nanos(random.between(0, 1) * random.between(0, 50_000_000));
        p.overhead_out = Span::from_nanos(random.between(0, 1) * random.between(0, 500_000_000));
        let mut full = Engine::new(&p);
        let mut ends = Engine::new(&p).with_ends_only();
        let mut start = Tick::ZERO;
        for tag in 0..40 {
            start = start + Span::from_nanos(random.between(0, 40_000_000));
            let work = work(&mut random, tag);
            full.submit(start, work.clone()).unwrap();
            ends.submit(start, work).unwrap();
        }
        let mut all: BTreeMap<u64, Vec<Emission>> = BTreeMap::new();
        while let Some(at) = full.next_wake() {
            all_due(&mut full, at, |e| all.entry(e.tag).or_default().push(e));
        }
        while let Some(at) = ends.next_output() {
            while let Some(e) = ends.poll(at) {
                assert_eq!(e.at, at, "seed {seed}: polled late");
                let tokens = &all[&e.tag];
                assert!(e == tokens[0] || e == *tokens.last().unwrap(), "seed {seed}: {e:?}");
                if e.last {
                    let times: Vec<Tick> = ends.times(e.at, e.index).collect();
                    assert_eq!(times, tokens.iter().map(|t| t.at).collect::<Vec<_>>(), "seed {seed}: of {}", e.tag);
                    answers += 1;
                }
            }
        }
        assert_eq!(full.stats(), ends.stats(), "seed {seed}");
    }
    assert_eq!(answers, 300 * 40);
}

fn all_due(engine: &mut Engine, at: Tick, mut take: impl FnMut(Emission)) {
    while let Some(emission) = engine.poll(at) {
        take(emission);
    }
}
