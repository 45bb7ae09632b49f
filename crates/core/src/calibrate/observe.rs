//! What one trial shows of the engine: first tokens of requests that were alone, and single steps.
//!
//! The clients' clock tells steps apart: all tokens of a step leave together, so tokens that came together are
//! those of one step, and the time to the tokens before is how long the step took. Who has a token there decoded,
//! and whose first token it is was prefilled. A step counts only if nothing that is not seen may have been in it:
//! no other request waits for its first token meanwhile, and nobody misses a token.

use std::collections::BTreeSet;

use super::seen::{Seen, Trial};
use crate::stats::median;
use crate::time::Tick;

/// The first token of a request that was alone.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct First {
    /// Prompt tokens.
    pub input: u32,
    /// Those that were computed, as far as the server says.
    pub computed: u32,
    /// From the send, in ms.
    pub ms: f64,
}

/// A step, or some that were alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// Prompt tokens computed in it.
    pub prefill: u32,
    /// Sequences that decoded.
    pub decoding: u32,
    /// KV tokens read; the mean of several steps.
    pub kv: f64,
    /// The duration; the mean of several steps.
    pub ms: f64,
}

/// When steps ended that a request waited through for its first token, beside others that decoded: ms from its send, the
/// last one is its own.
pub type Waited = Vec<f64>;

/// All that trials show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations {
    /// First tokens.
    pub firsts: Vec<First>,
    /// Steps.
    pub steps: Vec<Steps>,
    /// How requests came into a batch that was running.
    pub waited: Vec<Waited>,
}

/// Steps that are taken together at most: longer than that, the KV cache has grown too much.
const STRETCH: usize = 16;
/// Prompt tokens of a step beyond which it may hold only a part of them, the rest being in the step before.
const CHUNKED: u32 = 1024;
/// Steps before a first token that are kept at most.
const WAITED: usize = 8;
/// The share of a usual step within which tokens came together.
const TOGETHER: f64 = 0.4;

impl Observations {
    /// Adds what a trial shows.
    pub fn add(&mut self, trial: &Trial) {
        for (place, seen) in trial.seen.iter().enumerate() {
            // Repeated prompts are there to compare with each other.
            if !trial.repeats() && is_alone(&trial.seen, place) {
                let (input, computed) = (seen.input, seen.computed());
                self.firsts.push(First { input, computed, ms: seen.ttft().as_millis_f64() });
            }
        }
        let clusters = clusters(&trial.seen);
        self.add_stretches(&trial.seen, &clusters);
        self.add_mixed(&trial.seen, &clusters);
    }

    /// Adds runs of steps in which the same sequences decoded and nothing else happened.
    fn add_stretches(&mut self, seen: &[Seen], clusters: &[Cluster]) {
        let mut from = 0;
        while from + 1 < clusters.len() {
            let mut to = from;
            while to + 1 < clusters.len() && to - from < STRETCH && clusters[to + 1].goes_on(&clusters[to], seen) {
                to += 1;
            }
            if to > from {
                self.steps.push(stretch(seen, &clusters[from], &clusters[to], to - from));
            }
            from = to.max(from + 1);
        }
    }

    /// Adds steps that computed one or several prompts beside sequences that decoded.
    fn add_mixed(&mut self, seen: &[Seen], clusters: &[Cluster]) {
        for (place, pair) in clusters.windows(2).enumerate() {
            let (before, step) = (&pair[0], &pair[1]);
            let new: Vec<&Token> = step.tokens.iter().filter(|t| t.place == 0).collect();
            let old: Vec<&Token> = step.tokens.iter().filter(|t| t.place > 0).collect();
            let prefill = new.iter().map(|t| seen[t.who].computed()).sum();
            let in_parts = prefill > CHUNKED || before.tokens.iter().any(|t| t.place == 0);
            let unclear = in_parts || !step.is_whole(seen) || step.waiting(seen) > 0;
            if new.is_empty() || old.is_empty() || unclear {
                continue;
            }
            let gaps: Vec<f64> = old.iter().filter(|t| before.has(t.who, t.place - 1)).map(|t| t.gap(seen)).collect();
            // Who came with the step before is of another kind than who came earlier; all must have been there.
            if gaps.len() < old.len() {
                continue;
            }
            let Some(ms) = median(&gaps) else { continue };
            let cached: f64 = new.iter().map(|t| f64::from(seen[t.who].input - seen[t.who].computed())).sum();
            let kv = cached + old.iter().map(|t| t.kv(seen)).sum::<f64>();
            self.steps.push(Steps { prefill, decoding: old.len() as u32, kv, ms });
            if let [one] = new[..] {
                let since = |c: &Cluster| c.at.since(seen[one.who].sent).as_millis_f64();
                let ends = clusters[..=place + 1].iter().rev().take(WAITED).take_while(|c| c.at > seen[one.who].sent);
                self.waited.push(ends.map(since).collect::<Vec<_>>().into_iter().rev().collect());
            }
        }
    }
}

/// Whether no other request was open between a request's send and its first token.
fn is_alone(seen: &[Seen], place: usize) -> bool {
    let (sent, first) = (seen[place].sent, seen[place].first());
    let mut others = seen.iter().enumerate().filter(|(other, _)| *other != place);
    !others.any(|(_, other)| other.sent < first && other.end.max(other.last()) > sent)
}

/// A token of an answer.
#[derive(Copy, Clone, Debug)]
struct Token {
    who: usize,
    /// Its place among the tokens of the answer, from 0.
    place: usize,
}

impl Token {
    fn at(self, seen: &[Seen]) -> Tick {
        seen[self.who].tokens[self.place]
    }

    /// The time since the token before it, in ms.
    fn gap(self, seen: &[Seen]) -> f64 {
        self.at(seen).since(seen[self.who].tokens[self.place - 1]).as_millis_f64()
    }

    /// KV tokens that were read for it: the prompt and the tokens before it.
    fn kv(self, seen: &[Seen]) -> f64 {
        f64::from(seen[self.who].input) + self.place as f64
    }
}

/// Tokens that came together.
#[derive(Debug)]
struct Cluster {
    /// When the first of them came.
    at: Tick,
    tokens: Vec<Token>,
}

impl Cluster {
    fn has(&self, who: usize, place: usize) -> bool {
        self.tokens.iter().any(|t| (t.who, t.place) == (who, place))
    }

    /// Whether everybody who is between the first and the last token has one here, and only one.
    fn is_whole(&self, seen: &[Seen]) -> bool {
        let here: BTreeSet<usize> = self.tokens.iter().map(|t| t.who).collect();
        let missing =
            seen.iter().enumerate().any(|(who, s)| s.first() < self.at && self.at < s.last() && !here.contains(&who));
        here.len() == self.tokens.len() && !missing && self.tokens.iter().all(|t| seen[t.who].is_by_token())
    }

    /// Requests that have been sent and whose first token comes later.
    fn waiting(&self, seen: &[Seen]) -> usize {
        let last = self.tokens.iter().map(|t| t.at(seen)).max().unwrap_or(self.at);
        seen.iter().filter(|s| s.sent < self.at && s.first() > last).count()
    }

    /// Whether the same sequences decoded here as in the step before, and nothing else may have happened.
    fn goes_on(&self, before: &Self, seen: &[Seen]) -> bool {
        self.tokens.len() == before.tokens.len()
            && self.tokens.iter().all(|t| t.place > 0 && before.has(t.who, t.place - 1))
            && self.is_whole(seen)
            && self.waiting(seen) == 0
    }
}

/// The tokens of a trial by the steps that they came from, in order.
fn clusters(seen: &[Seen]) -> Vec<Cluster> {
    let mut all: Vec<Token> = seen
        .iter()
        .enumerate()
        .flat_map(|(who, s)| (0..s.tokens.len()).map(move |place| Token { who, place }))
        .collect();
    all.sort_by_key(|t| t.at(seen));
    let within = median_of(all.iter().filter(|t| t.place > 0).map(|t| t.gap(seen))).unwrap_or(0.0) * TOGETHER;
    let mut clusters: Vec<Cluster> = Vec::new();
    for token in all {
        let at = token.at(seen);
        match clusters.last_mut() {
            Some(last) if at.since(last.at).as_millis_f64() <= within => last.tokens.push(token),
            _ => clusters.push(Cluster { at, tokens: vec![token] }),
        }
    }
    clusters
}

/// The mean of `count` steps that end with the tokens of `to`; those of `from` came just before the first.
fn stretch(seen: &[Seen], from: &Cluster, to: &Cluster, count: usize) -> Steps {
    let spans = to.tokens.iter().map(|t| {
        let before = Token { place: t.place - count, ..*t };
        t.at(seen).since(before.at(seen)).as_millis_f64() / count as f64
    });
    let ms = median_of(spans).unwrap_or(0.0);
    // The first step read one token more than `from` did, the last what `to` says.
    let ends: f64 =
        to.tokens.iter().map(|t| t.kv(seen)).sum::<f64>() + from.tokens.iter().map(|t| t.kv(seen) + 1.0).sum::<f64>();
    Steps { prefill: 0, decoding: to.tokens.len() as u32, kv: ends / 2.0, ms }
}

/// The median; `None` of nothing.
pub(super) fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    median(&values.into_iter().collect::<Vec<_>>())
}
