//! Probes against the engine model on virtual time.

use std::collections::VecDeque;

use super::campaign::Probe;
use super::seen::{Seen, Trial};
use crate::engine::{Emission, Engine, Profile, Prompt, Work};
use crate::rng::mix;
use crate::time::Tick;
use crate::work::{Arrival, LoadModel};

/// An engine that probes are played against, one after the other; it remembers their prompts.
#[derive(Debug)]
pub struct Bench {
    engine: Engine,
    now: Tick,
    /// Probes so far: each has a salt of its own.
    probes: u64,
    /// Whether answers say how much of their prompts was cached.
    counts_cached: bool,
}

impl Bench {
    /// An idle engine.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        Self { engine: Engine::new(profile), now: Tick::ZERO, probes: 0, counts_cached: true }
    }

    /// The same, with answers that do not say how much of their prompts was cached, as many servers leave it out.
    #[must_use]
    pub const fn without_cached_counts(mut self) -> Self {
        self.counts_cached = false;
        self
    }

    /// How long everything took so far.
    #[must_use]
    pub const fn now(&self) -> Tick {
        self.now
    }

    /// Plays a probe from now to its last token.
    pub fn play(&mut self, probe: &Probe) -> Trial {
        self.probes += 1;
        let plan = &probe.plan;
        let salt = if probe.salted { mix(self.probes, 0) } else { 0 };
        let (open, waiting) = match plan.header().model {
            LoadModel::Closed { workers } => {
                plan.arrivals().split_at((workers.get() as usize).min(plan.arrivals().len()))
            }
            _ => (plan.arrivals(), &[][..]),
        };
        let mut scene = Scene {
            due: open.iter().map(|a| (self.now + a.at, *a)).collect(),
            supply: waiting.iter(),
            seen: plan.arrivals().iter().map(|_| None).collect(),
            failed: 0,
            salt,
            counts_cached: self.counts_cached,
        };
        scene.run(&mut self.engine, &mut self.now);
        let workers = match plan.header().model {
            LoadModel::Closed { workers } => Some(workers.get()),
            _ => None,
        };
        let seen = scene.seen.into_iter().flatten().collect();
        let failure = (scene.failed > 0).then(|| "too long for the engine's KV cache".to_owned());
        Trial { name: probe.name.clone(), workers, seen, failed: scene.failed, failure }
    }
}

/// One probe in progress.
struct Scene<'a> {
    /// In order of time.
    due: VecDeque<(Tick, Arrival)>,
    supply: std::slice::Iter<'a, Arrival>,
    /// By place in the plan.
    seen: Vec<Option<Seen>>,
    failed: u32,
    salt: u64,
    counts_cached: bool,
}

impl Scene<'_> {
    fn run(&mut self, engine: &mut Engine, now: &mut Tick) {
        while let Some(next) = [self.due.front().map(|(at, _)| *at), engine.next_wake()].into_iter().flatten().min() {
            *now = next.max(*now);
            while let Some(token) = engine.poll(*now) {
                self.take(token);
            }
            while let Some((_, arrival)) = self.due.front().copied().filter(|(at, _)| *at <= *now) {
                self.due.pop_front();
                self.submit(engine, *now, &arrival);
            }
        }
    }

    fn submit(&mut self, engine: &mut Engine, at: Tick, arrival: &Arrival) {
        let prompt = Prompt::Family(mix(arrival.prompt, self.salt));
        let work = Work { tag: u64::from(arrival.index), prompt, input: arrival.input, output: arrival.output };
        if engine.submit(at, work).is_err() {
            self.failed += 1;
            self.next(at);
            return;
        }
        self.seen[arrival.index as usize] = Some(Seen {
            index: arrival.index,
            input: arrival.input,
            cached: None,
            asked: arrival.output,
            output: arrival.output,
            sent: at,
            tokens: Vec::with_capacity(arrival.output as usize),
            end: at,
            counted: true,
        });
    }

    fn take(&mut self, token: Emission) {
        let Some(seen) = self.seen.get_mut(token.tag as usize).and_then(Option::as_mut) else { return };
        seen.tokens.push(token.at);
        seen.end = token.at;
        seen.cached = self.counts_cached.then_some(token.cached);
        if token.last {
            self.next(token.at);
        }
    }

    /// A worker is free.
    fn next(&mut self, at: Tick) {
        self.due.extend(self.supply.next().map(|arrival| (at, *arrival)));
    }
}
