//! How long answers are whose length is not declared: learned from those that ended, were cut and run.
//!
//! ```text
//! prior ─> all tenants ─> tenant ─> hint of a tenant        each drawn towards the one before it
//! ```
//!
//! A declared length is a distribution too, with one step: the same code judges both.

mod curve;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use curve::{Curve, Samples, bucket};
pub use state::{Learned, LearnedError, LengthSummary};

/// Tenants whose lengths are kept apart; further ones go by what is known of all.
const MAX_TENANTS: usize = 4096;
/// Hints of one tenant that are kept apart. A further one takes the place of the one with the fewest samples.
const MAX_HINTS: usize = 16;
/// Hints that are kept apart over all tenants.
const MAX_HINTS_IN_ALL: usize = 4096;
/// A distribution is worked out anew when so many parts of its samples have come since.
const ANEW: f64 = 16.0;
/// With fewer samples a distribution follows every change of the larger group's.
const LEANS: f64 = 64.0;
/// The part of answers that are shorter than those behind them are told.
const EARLY: f64 = 0.1;
/// Running answers that pass into another bucket count as one sample when they are so many.
const PASSES: f64 = 64.0;

/// What is learned.
#[derive(Clone, Debug)]
pub(super) struct Lengths {
    prior: Curve,
    all: Node,
    tenants: BTreeMap<usize, Tenant>,
    /// Hints over all tenants.
    hints: usize,
}

#[derive(Clone, Debug)]
struct Tenant {
    node: Node,
    hints: BTreeMap<u32, Node>,
}

/// Samples and what they say.
#[derive(Clone, Debug)]
struct Node {
    samples: Samples,
    curve: Curve,
    /// Whether anybody asked: else samples are counted only.
    asked: bool,
    /// Samples since the curve was worked out.
    fresh: f64,
    /// How often it was worked out.
    version: u64,
    /// The version of the parent that it was worked out with.
    of_parent: u64,
}

/// What is known of the length of an answer.
#[derive(Copy, Clone, Debug)]
pub(super) enum Length<'a> {
    /// It was declared.
    Declared(u32),
    /// Its distribution was learned.
    Learned(&'a Curve),
}

/// A running answer's place in the samples.
#[derive(Copy, Clone, Debug)]
pub(super) struct Tracked {
    lane: usize,
    hint: Option<u32>,
    bucket: Option<usize>,
}

impl Length<'_> {
    /// The chance that the answer is no longer than so many tokens.
    pub(super) fn within(&self, tokens: u32) -> f64 {
        match self {
            Self::Declared(length) => f64::from(u8::from(*length <= tokens)),
            Self::Learned(curve) => 1.0 - curve.longer_than(tokens),
        }
    }

    /// The expected length, of which no more than so many tokens count.
    pub(super) fn mean_within(&self, tokens: u32) -> f64 {
        match self {
            Self::Declared(length) => f64::from((*length).min(tokens)),
            Self::Learned(curve) => curve.mean_within(tokens),
        }
    }

    /// The expected length in whole tokens.
    pub(super) fn mean(&self) -> u32 {
        match self {
            Self::Declared(length) => *length,
            Self::Learned(curve) => libm::round(curve.mean()) as u32,
        }
    }

    /// The tokens that nine in ten answers still have to come after so many, at least one: who gives more than was
    /// declared is taken to be at the last.
    pub(super) fn few_after(&self, tokens: u32) -> u32 {
        let few = match self {
            Self::Declared(length) => *length,
            Self::Learned(curve) => curve.quantile(1.0 - curve.longer_than(tokens) * (1.0 - EARLY)),
        };
        few.saturating_sub(tokens).max(1)
    }

    /// The least length that an answer keeps to with so high a chance.
    pub(super) fn quantile(&self, share: f64) -> u32 {
        match self {
            Self::Declared(length) => *length,
            Self::Learned(curve) => curve.quantile(share),
        }
    }
}

impl Node {
    fn new(curve: Curve, of_parent: u64) -> Self {
        Self { samples: Samples::default(), curve, asked: false, fresh: 0.0, version: 0, of_parent }
    }

    /// Works the curve out anew if enough has come since.
    fn refresh(&mut self, version: u64, parent: impl FnOnce() -> Curve) {
        let weight = self.samples.weight;
        let leans = self.of_parent != version && weight < LEANS;
        if self.asked && (leans || self.fresh > 0.0 && self.fresh * ANEW >= weight) {
            self.curve = Curve::estimate(&self.samples, &parent());
            self.fresh = 0.0;
            self.version += 1;
            self.of_parent = version;
        }
    }

    fn ended(&mut self, tracked: &Tracked, length: u32, finished: bool) {
        self.samples.moved(tracked.bucket, None);
        // What was cut before its first token says nothing.
        if length > 0 {
            self.samples.add(length, finished);
            self.fresh += 1.0;
        }
    }

    fn moved(&mut self, from: Option<usize>, to: Option<usize>) {
        self.samples.moved(from, to);
        self.fresh += 1.0 / PASSES;
    }
}

impl Tenant {
    fn refresh(&mut self, all: &Node, hint: Option<u32>) {
        self.node.refresh(all.version, || all.curve.clone());
        let node = &self.node;
        if let Some((hint, hinted)) = hint.and_then(|hint| Some((hint, self.hints.get_mut(&hint)?))) {
            hinted.refresh(node.version, || node.curve.up_to(hint));
        }
    }

    /// A place for a hint, that of the one with the fewest samples if there is no other; whether there is one more.
    fn make_room(&mut self, hint: u32, room: bool) -> bool {
        if self.hints.contains_key(&hint) {
            return false;
        }
        let full = self.hints.len() >= MAX_HINTS || !room;
        if full {
            let weight = |node: &Node| (node.samples.weight * 1024.0) as u64;
            let Some(least) = self.hints.iter().min_by_key(|(_, n)| weight(n)).map(|(h, _)| *h) else { return false };
            self.hints.remove(&least);
        }
        let mut node = Node::new(self.node.curve.up_to(hint), self.node.version);
        node.asked = true;
        self.hints.insert(hint, node);
        !full
    }
}

impl Lengths {
    pub(super) fn new() -> Self {
        let prior = Curve::prior();
        Self { all: Node::new(prior.clone(), 0), prior, tenants: BTreeMap::new(), hints: 0 }
    }

    /// What is known of an answer.
    pub(super) fn of(&self, lane: usize, declared: Option<u32>, hint: Option<u32>) -> Length<'_> {
        if let Some(length) = declared {
            return Length::Declared(length);
        }
        let Some(tenant) = self.tenants.get(&lane) else { return Length::Learned(&self.all.curve) };
        let node = hint.and_then(|hint| tenant.hints.get(&hint)).unwrap_or(&tenant.node);
        Length::Learned(&node.curve)
    }

    /// A tenant offers work whose length it does not declare: from here on its lengths are worked out.
    pub(super) fn ask(&mut self, lane: usize, hint: Option<u32>) {
        self.all.asked = true;
        self.all.refresh(0, || self.prior.clone());
        self.enter(lane);
        let Some(tenant) = self.tenants.get_mut(&lane) else { return };
        tenant.node.asked = true;
        if let Some(hint) = hint {
            self.hints += usize::from(tenant.make_room(hint, self.hints < MAX_HINTS_IN_ALL));
        }
        tenant.refresh(&self.all, hint);
    }

    /// An answer begins.
    pub(super) fn started(&mut self, lane: usize, hint: Option<u32>) -> Tracked {
        self.enter(lane);
        Tracked { lane, hint, bucket: None }
    }

    /// So many tokens of a running answer came.
    pub(super) fn seen(&mut self, tracked: &mut Tracked, tokens: u32) {
        let to = Some(bucket(tokens));
        if tokens == 0 || tracked.bucket == to {
            return;
        }
        let from = std::mem::replace(&mut tracked.bucket, to);
        self.each(tracked, |node| node.moved(from, to));
    }

    /// An answer ended after so many tokens, or was cut there.
    pub(super) fn ended(&mut self, tracked: &Tracked, length: u32, finished: bool) {
        self.each(tracked, |node| node.ended(tracked, length, finished));
    }

    fn each(&mut self, tracked: &Tracked, change: impl Fn(&mut Node)) {
        change(&mut self.all);
        self.all.refresh(0, || self.prior.clone());
        let Some(tenant) = self.tenants.get_mut(&tracked.lane) else { return };
        change(&mut tenant.node);
        if let Some(node) = tracked.hint.and_then(|hint| tenant.hints.get_mut(&hint)) {
            change(node);
        }
        tenant.refresh(&self.all, tracked.hint);
    }

    /// Keeps a tenant apart from here on, if there is room.
    fn enter(&mut self, lane: usize) {
        if self.tenants.len() < MAX_TENANTS || self.tenants.contains_key(&lane) {
            let all = &self.all;
            let tenant = || Tenant { node: Node::new(all.curve.clone(), all.version), hints: BTreeMap::new() };
            self.tenants.entry(lane).or_insert_with(tenant);
        }
    }
}
