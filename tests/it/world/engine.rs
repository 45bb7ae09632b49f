//! The engine model under random profiles, work and aborts.

use elasticserve_core::engine::{Emission, Engine, Profile, Prompt, SeqId, Work};
use elasticserve_core::rng::{Random, Stream};
use elasticserve_core::time::{Span, Tick};

/// A random engine: few seats, small blocks, a budget that chunks prompts. A token of prefill or decode
/// in a step with prefill takes a known time, so the length of a step tells how many there were.
pub(super) fn profile(random: &mut Random) -> Profile {
    let max_seqs = random.between(1, 6) as u32;
    let mut profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
    profile.base_ms = random.between(1, 40) as f64;
    profile.max_seqs = max_seqs;
    profile.block_tokens = random.between(1, 32) as u32;
    profile.token_budget = max_seqs + random.between(0, 300) as u32;
    profile.pipeline_depth = random.between(1, 3) as u32;
    profile.prefix_cache = random.between(0, 1) == 0;
    profile.overhead_in = Span::from_nanos(random.between(0, 1) * random.between(0, 9_000_000));
    profile.overhead_out = Span::from_nanos(random.between(0, 1) * random.between(0, 9_000_000));
    profile
}

#[test]
fn every_token_comes_once_in_order_and_in_time_whatever_is_submitted_and_aborted() {
    let (mut tokens, mut aborted) = (0, 0);
    for seed in 0..1_000 {
        let run = Run::new(seed).run();
        tokens += run.clients.iter().map(|c| u64::from(c.tokens)).sum::<u64>();
        aborted += run.clients.iter().filter(|c| c.aborted).count();
    }
    assert!(tokens > 50_000 && aborted > 1_000, "{tokens} tokens, {aborted} aborts");
}

/// An engine and its clients.
struct Run {
    seed: u64,
    engine: Engine,
    profile: Profile,
    now: Tick,
    clients: Vec<Client>,
    /// When the last step ended, if the next one began right there.
    step_began: Option<Tick>,
    steps: u64,
    /// The last emission, to see that time never goes back.
    last: Tick,
}

struct Client {
    work: Work,
    submit: Tick,
    abort: Option<Tick>,
    seq: Option<SeqId>,
    aborted: bool,
    tokens: u32,
    heard: Tick,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, Stream::Test);
        let mut profile = profile(&mut random);
        // One millisecond for each token of a step with prefill, nothing else beyond the base.
        profile.kv_ms_per_token = 0.0;
        profile.prefill_step_ms = 0.0;
        profile.prefill_ms_per_token = 1.0;
        profile.roof_tokens = 0.0;
        profile.attention_ms = 0.0;
        let client = |tag: u64| {
            let prompt = match random.between(0, 3) {
                0 => Prompt::Unique,
                1 => Prompt::Blocks((0..random.between(0, 4)).collect::<Vec<u64>>().into()),
                _ => Prompt::Family(random.between(0, 3)),
            };
            let (input, output) = (random.between(0, 700) as u32, random.between(0, 24) as u32);
            // Many at one tick; aborts before, during and after the answer.
            let submit = Tick::from_nanos(random.between(0, 20) * 50_000_000);
            let leaves = random.between(0, 3) == 0;
            let abort = leaves.then(|| submit + Span::from_nanos(random.between(0, 4_000) * 500_000));
            let work = Work { tag, prompt, input, output };
            Client { work, submit, abort, seq: None, aborted: false, tokens: 0, heard: submit }
        };
        let clients = (0..30).map(client).collect();
        let engine = Engine::new(&profile);
        Self { seed, engine, profile, now: Tick::ZERO, clients, step_began: None, steps: 0, last: Tick::ZERO }
    }

    fn run(mut self) -> Self {
        let seed = self.seed;
        let mut wakes = 0;
        while let Some(next) = self.next() {
            assert!(next >= self.now, "seed {seed}: time goes back from {:?} to {next:?}", self.now);
            self.now = next;
            self.listen();
            self.act();
            self.listen();
            self.look();
            wakes += 1;
            assert!(wakes < 20_000, "seed {seed}: wakes up without end");
        }
        let stats = self.engine.stats();
        assert_eq!((stats.running, stats.waiting, stats.kv_tokens), (0, 0, 0), "seed {seed}");
        let heard: u64 = self.clients.iter().map(|c| u64::from(c.tokens)).sum();
        assert!(stats.generated_tokens >= heard, "seed {seed}");
        for client in &self.clients {
            let (tokens, output) = (client.tokens, client.work.output.max(1));
            let exact = if client.aborted { tokens < output } else { tokens == output };
            assert!(exact, "seed {seed}: {tokens} of {output} tokens, aborted: {}", client.aborted);
        }
        self
    }

    fn next(&self) -> Option<Tick> {
        let submit = self.clients.iter().filter(|c| c.seq.is_none()).map(|c| c.submit);
        let abort = self.clients.iter().filter_map(|c| c.abort);
        submit.chain(abort).chain(self.engine.next_wake()).min()
    }

    fn act(&mut self) {
        for client in &mut self.clients {
            if client.seq.is_none() && client.submit == self.now {
                client.seq = Some(self.engine.submit(self.now, client.work.clone()).unwrap());
            }
            if let Some(seq) = client.seq
                && client.abort.take_if(|at| *at == self.now).is_some()
            {
                client.aborted = self.engine.abort(self.now, seq);
                assert!(!self.engine.abort(self.now, seq), "seed {}: aborted twice", self.seed);
            }
        }
    }

    fn listen(&mut self) {
        while let Some(Emission { tag, at, index, last, cached }) = self.engine.poll(self.now) {
            let (seed, profile) = (self.seed, &self.profile);
            let client = &mut self.clients[tag as usize];
            let (input, output) = (client.work.input.max(1), client.work.output.max(1));
            assert!(at <= self.now && at >= self.last, "seed {seed}: a token at {at:?}, now {:?}", self.now);
            assert!(!client.aborted, "seed {seed}: a token after the abort");
            assert_eq!(index, client.tokens + 1, "seed {seed}: of {tag}");
            assert_eq!(last, index == output, "seed {seed}: token {index} of {output}");
            assert!(cached < input && cached % profile.block_tokens == 0, "seed {seed}: {cached} cached of {input}");
            assert!(profile.prefix_cache || cached == 0, "seed {seed}: cached without a cache");
            let step = Span::from_millis_f64(profile.base_ms);
            let around = if index == 1 { profile.overhead_in + profile.overhead_out } else { Span::ZERO };
            assert!(at.since(client.heard) >= step + around, "seed {seed}: a token faster than a step");
            (client.tokens, client.heard, self.last) = (index, at, at);
        }
    }

    /// Seats and the tokens of the step that ended, from outside.
    fn look(&mut self) {
        let (seed, stats) = (self.seed, self.engine.stats());
        assert!(stats.running <= self.profile.max_seqs, "seed {seed}: {} seats", stats.running);
        let live = self.clients.iter().filter(|c| c.seq.is_some() && !c.aborted).count() as u32;
        assert!(stats.running + stats.waiting <= live, "seed {seed}: {stats:?}, {live} live");
        if stats.steps > self.steps {
            assert_eq!(stats.steps, self.steps + 1, "seed {seed}: two steps ended at one wake-up");
            if let Some(began) = self.step_began {
                let tokens = self.now.since(began).as_millis_f64() - self.profile.base_ms;
                assert!(tokens <= f64::from(self.profile.token_budget), "seed {seed}: {tokens} tokens in a step");
            }
            self.steps = stats.steps;
            // Whoever holds a seat has tokens to come, so the next step runs from here.
            self.step_began = (stats.running > 0).then_some(self.now);
        } else if stats.running == 0 {
            self.step_began = None;
        }
    }
}

#[test]
fn a_prompt_alone_takes_a_step_for_each_budget_and_each_further_token() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed, Stream::Test);
        let profile = profile(&mut random);
        let (input, output) = (random.between(1, 2_000) as u32, random.between(1, 20) as u32);
        let mut engine = Engine::new(&profile);
        let prompt = Prompt::Family(1);
        let warm = random.between(0, u64::from(input)) as u32;
        engine.warm(&prompt, warm);
        engine.submit(Tick::ZERO, Work { tag: 0, prompt, input, output }).unwrap();

        let whole = |tokens: u32| tokens / profile.block_tokens * profile.block_tokens;
        let cached = if profile.prefix_cache { whole(input - 1).min(whole(warm)) } else { 0 };
        let mut at = Tick::ZERO + profile.overhead_in + profile.overhead_out;
        let mut done = cached;
        while done < input {
            let chunk = (input - done).min(profile.token_budget);
            at = at + profile.step(u64::from(done), chunk, 0);
            done += chunk;
        }
        for index in 1..=output {
            if index > 1 {
                at = at + profile.step(u64::from(input) + u64::from(index) - 1, 0, 1);
            }
            let token = std::iter::from_fn(|| engine.next_wake().map(|at| engine.poll(at))).flatten().next();
            assert_eq!(token, Some(Emission { tag: 0, at, index, last: index == output, cached }), "seed {seed}");
        }
        assert_eq!(engine.next_wake(), None, "seed {seed}");
        let steps = u64::from((input - cached).div_ceil(profile.token_budget)) + u64::from(output) - 1;
        assert_eq!(engine.stats().steps, steps, "seed {seed}");
    }
}
