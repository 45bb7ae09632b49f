//! The backends of a scheduler: their seats, and which of them a request goes to.
//!
//! A request goes where the least predicted work is left for each seat, its own among it:
//!
//! ```text
//! wait(b) = (Σ left of what runs on b + own cost on b) / (permits · weight)
//! ```
//!
//! What is left of a running request is its expected seat time, less the tokens that were seen. A request with an
//! affinity goes to the backend that rendezvous hashing (Thaler and Ravishankar 1998) gives its key, if that one has a
//! free seat and a `wait` not longer than the least by more than the slack: consistent hashing with bounded loads
//! (Mirrokni, Thorup and Zadimoghaddam 2018), with the bound in time. Only backends with a free seat are looked at, so
//! no affinity keeps a seat empty.

use super::estimate::CostModel;
use super::types::{BackendPolicy, MAX_BACKENDS};
use crate::ids::BackendId;
use crate::rng::mix;
use crate::time::Span;

#[derive(Debug)]
struct Backend {
    policy: BackendPolicy,
    /// The permits that it may give now: fewer than the policy's while it comes back or others use it.
    permits: u32,
    up: bool,
    /// Whether it was removed. Its place is given to another one only when nothing runs on it any more.
    gone: bool,
    in_use: u32,
    /// The number of the last grant, so that equally loaded backends take turns.
    last_grant: u64,
    /// What is left of all that runs here, in nanoseconds.
    work: u128,
}

impl Backend {
    const fn new(policy: BackendPolicy) -> Self {
        Self { policy, permits: policy.permits, up: true, gone: false, in_use: 0, last_grant: 0, work: 0 }
    }

    const fn is_open(&self) -> bool {
        self.up && !self.gone && self.permits > 0
    }

    fn free(&self) -> u32 {
        if self.is_open() { self.permits.saturating_sub(self.in_use) } else { 0 }
    }
}

/// The time until a seat's share of the work is done: a fraction, so that nothing is lost in comparing.
#[derive(Copy, Clone)]
struct Wait {
    work: u128,
    seats: u128,
}

impl Wait {
    /// No product of the two overflows: the one has 64 bits, the other at most as many.
    fn is_less(self, other: Self) -> bool {
        self.work * other.seats < other.work * self.seats
    }

    fn span(self) -> Span {
        Span::from_nanos(clamp(self.work / self.seats))
    }
}

/// What a request asks of the choice.
#[derive(Copy, Clone, Debug)]
pub(super) struct Wanted {
    pub(super) input: u32,
    pub(super) output: u32,
    /// Requests of one key belong together.
    pub(super) affinity: Option<u64>,
    /// How much longer than the least wait it may be for the sake of its key.
    pub(super) slack: Span,
}

#[derive(Debug, Default)]
pub(super) struct Backends {
    all: Vec<Backend>,
    grants: u64,
}

impl Backends {
    pub(super) fn new(permits: &[u32]) -> Self {
        let policy = |(place, permits): (usize, &u32)| BackendPolicy::new(*permits, place as u64);
        let all = permits.iter().take(MAX_BACKENDS).enumerate().map(policy).map(Backend::new).collect();
        Self { all, grants: 0 }
    }

    /// The same backends under the same numbers, with nothing at work.
    pub(super) fn vacated(&self) -> Self {
        let vacated = |b: &Backend| Backend { in_use: 0, last_grant: 0, work: 0, ..*b };
        Self { all: self.all.iter().map(vacated).collect(), grants: 0 }
    }

    /// Gives a backend a place: that of a removed one on which nothing runs any more, or a new one.
    pub(super) fn add(&mut self, policy: BackendPolicy) -> Option<BackendId> {
        let vacant = self.all.iter().position(|b| b.gone && b.in_use == 0);
        let place = vacant.unwrap_or(self.all.len());
        let id = u16::try_from(place).ok().map(BackendId)?;
        match self.all.get_mut(place) {
            Some(old) => *old = Backend::new(policy),
            None => self.all.push(Backend::new(policy)),
        }
        Some(id)
    }

    pub(super) fn remove(&mut self, id: BackendId) {
        if let Some(backend) = self.all.get_mut(id.index()) {
            backend.gone = true;
            backend.permits = 0;
        }
    }

    pub(super) fn set(&mut self, id: BackendId, permits: u32, up: bool) {
        if let Some(backend) = self.all.get_mut(id.index()).filter(|b| !b.gone) {
            backend.permits = permits;
            backend.up = up;
        }
    }

    /// Sets the permits of the first ones.
    pub(super) fn reload(&mut self, permits: &[u32]) {
        for (backend, permits) in self.all.iter_mut().zip(permits).filter(|(b, _)| !b.gone) {
            (backend.permits, backend.policy.permits) = (*permits, *permits);
        }
    }

    pub(super) fn change(&mut self, id: BackendId, policy: BackendPolicy) {
        if let Some(backend) = self.all.get_mut(id.index()) {
            backend.policy = policy;
        }
    }

    /// Whether there is a choice between backends.
    pub(super) fn are_several(&self) -> bool {
        self.all.iter().filter(|b| !b.gone).nth(1).is_some()
    }

    pub(super) fn any_open(&self) -> bool {
        self.all.iter().any(Backend::is_open)
    }

    /// Whether there is an open one beside another.
    pub(super) fn any_open_but(&self, other: BackendId) -> bool {
        self.all.iter().enumerate().any(|(place, b)| place != other.index() && b.is_open())
    }

    pub(super) fn any_free(&self) -> bool {
        self.all.iter().any(|b| b.free() > 0)
    }

    pub(super) fn any_free_but(&self, other: BackendId) -> bool {
        self.all.iter().enumerate().any(|(place, b)| place != other.index() && b.free() > 0)
    }

    pub(super) fn free(&self) -> u32 {
        self.all.iter().map(Backend::free).fold(0, u32::saturating_add)
    }

    /// Permits in use and in total.
    pub(super) fn permits(&self, id: BackendId) -> (u32, u32) {
        self.all.get(id.index()).map_or((0, 0), |b| (b.in_use, b.permits))
    }

    /// What is left of all that runs there.
    pub(super) fn work(&self, id: BackendId) -> Span {
        self.all.get(id.index()).map_or(Span::ZERO, |b| Span::from_nanos(clamp(b.work)))
    }

    pub(super) fn in_use(&self) -> u32 {
        self.all.iter().map(|b| b.in_use).sum()
    }

    /// The cost model of a backend, `usual` if it has none of its own.
    pub(super) fn cost(&self, id: BackendId, usual: CostModel) -> CostModel {
        self.all.get(id.index()).and_then(|b| b.policy.cost).unwrap_or(usual)
    }

    /// The backend with a free seat to which a request goes; among equals the one that was not chosen for longest.
    /// `but` is left out.
    pub(super) fn pick(&self, wanted: &Wanted, usual: CostModel, but: Option<BackendId>) -> Option<BackendId> {
        let id = |place: usize| BackendId(place as u16);
        let open = || self.all.iter().enumerate().filter(move |(i, b)| b.free() > 0 && but != Some(id(*i)));
        let wait = |b: &Backend| {
            let own = b.policy.cost.unwrap_or(usual).seat_time(wanted.input, wanted.output);
            // One that is held to a few seats is compared as what it is, or nothing would find out how it fares.
            let seats = u128::from(b.policy.permits.max(b.permits)) * u128::from(b.policy.weight.get());
            Wait { work: u128::from(clamp(b.work + nanos(own))), seats }
        };
        let least = open().reduce(|best, next| {
            let (a, b) = (wait(best.1), wait(next.1));
            let earlier = !a.is_less(b) && next.1.last_grant < best.1.last_grant;
            if b.is_less(a) || earlier { next } else { best }
        })?;
        let Some(key) = wanted.affinity else { return Some(id(least.0)) };
        let bound = wait(least.1).span() + wanted.slack;
        let near = open().filter(|(_, b)| wait(b).span() <= bound);
        near.max_by_key(|(_, b)| mix(key, b.policy.identity)).map(|(i, _)| id(i))
    }

    /// A request starts there, of which so much is left.
    pub(super) fn started(&mut self, id: BackendId, left: Span) {
        self.grants += 1;
        if let Some(backend) = self.all.get_mut(id.index()) {
            backend.in_use += 1;
            backend.last_grant = self.grants;
            backend.work += nanos(left);
        }
    }

    /// Of a request that runs there so much is left now.
    pub(super) fn progressed(&mut self, id: BackendId, before: Span, after: Span) {
        if let Some(backend) = self.all.get_mut(id.index()) {
            backend.work = backend.work - nanos(before) + nanos(after);
        }
    }

    /// A request has left, of which so much was left.
    pub(super) fn ended(&mut self, id: BackendId, left: Span) {
        if let Some(backend) = self.all.get_mut(id.index()) {
            backend.in_use -= 1;
            backend.work -= nanos(left);
        }
    }

    /// Whether every backend holds exactly the permits and the work of what runs on it.
    pub(super) fn agree_with(&self, running: impl Iterator<Item = (BackendId, Span)>) -> bool {
        let mut counted = vec![(0u32, 0u128); self.all.len()];
        for (id, left) in running {
            let Some(entry) = counted.get_mut(id.index()) else { return false };
            *entry = (entry.0 + 1, entry.1 + nanos(left));
        }
        self.all.iter().zip(counted).all(|(b, counted)| (b.in_use, b.work) == counted)
    }
}

fn nanos(span: Span) -> u128 {
    u128::from(span.as_nanos())
}

fn clamp(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::rng::{Random, Stream};

    const USUAL: CostModel = CostModel {
        overhead: Span::ZERO,
        prefill_per_token: Span::from_nanos(1),
        first_token_steps: 0,
        idle_tpot: Span::from_nanos(10),
    };

    fn wanted(input: u32, affinity: Option<u64>, slack: u64) -> Wanted {
        Wanted { input, output: 1, affinity, slack: Span::from_nanos(slack) }
    }

    fn ns(n: u64) -> Span {
        Span::from_nanos(n)
    }

    fn id(n: u16) -> BackendId {
        BackendId(n)
    }

    #[test]
    fn a_request_goes_where_the_least_work_is_left_for_a_seat_its_own_among_it() {
        let mut random = Random::new(3, Stream::Test);
        for trial in 0..2_000 {
            let mut backends = Backends::default();
            let mut books = Vec::new();
            for place in 0..random.between(1, 5) {
                let permits = random.between(1, 9) as u32;
                let weight = NonZeroU32::MIN.saturating_add(random.between(0, 3) as u32);
                let slow = CostModel { prefill_per_token: ns(random.between(1, 4)), ..USUAL };
                let cost = (random.between(0, 2) == 0).then_some(slow);
                backends.add(BackendPolicy { permits, weight, cost, identity: place }).unwrap();
                let runs: Vec<u64> =
                    (0..random.between(0, u64::from(permits))).map(|_| random.between(1, 99)).collect();
                runs.iter().for_each(|left| backends.started(id(place as u16), ns(*left)));
                books.push((permits, weight.get(), cost.map_or(1, |c| c.prefill_per_token.as_nanos()), runs));
            }
            let input = random.between(1, 50);
            let wait = |(permits, weight, per_token, runs): &(u32, u32, u64, Vec<u64>)| {
                (runs.iter().sum::<u64>() + input * per_token) as f64 / f64::from(permits * weight)
            };
            let free = books.iter().filter(|b| b.3.len() < b.0 as usize);
            let least = free.map(wait).fold(f64::INFINITY, f64::min);
            match backends.pick(&wanted(input as u32, None, 0), USUAL, None) {
                Some(picked) => {
                    let book = &books[picked.index()];
                    assert!(book.3.len() < book.0 as usize, "trial {trial}: {picked:?} is full");
                    assert!((wait(book) - least).abs() < 1e-9, "trial {trial}: {picked:?} of {books:?}");
                }
                None => assert!(least.is_infinite(), "trial {trial}"),
            }
        }
    }

    #[test]
    fn a_backend_that_is_held_to_one_seat_still_gets_its_turn() {
        let mut backends = Backends::new(&[20, 20]);
        backends.set(id(0), 1, true);
        let next = |b: &Backends| b.pick(&wanted(5, None, 0), USUAL, None).unwrap();
        assert_eq!(next(&backends), id(0));
        backends.started(id(0), ns(5));
        assert_eq!(next(&backends), id(1), "its one seat is taken");
    }

    #[test]
    fn equally_loaded_backends_take_turns() {
        let mut backends = Backends::new(&[9, 9, 9]);
        let mut picked = Vec::new();
        for _ in 0..6 {
            let next = backends.pick(&wanted(5, None, 0), USUAL, None).unwrap();
            backends.started(next, ns(5));
            picked.push(next.0);
        }
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_key_keeps_its_backend_unless_that_is_full_or_its_wait_is_longer_by_more_than_the_slack() {
        let mut kept = [0; 3];
        for key in 0..300 {
            let mut backends = Backends::new(&[2, 2, 2]);
            let of_key = backends.pick(&wanted(4, Some(key), 100), USUAL, None).unwrap();
            kept[of_key.index()] += 1;
            // 40 ns for two seats are 20 more for each than the others have.
            backends.started(of_key, ns(40));
            let again = |slack| backends.pick(&wanted(4, Some(key), slack), USUAL, None).unwrap();
            assert_eq!(again(20), of_key);
            assert_ne!(again(19), of_key, "the slack is over");
            backends.started(of_key, ns(0));
            let full = backends.pick(&wanted(4, Some(key), 1_000), USUAL, None).unwrap();
            assert_ne!(full, of_key, "it is full");
        }
        assert!(kept.iter().all(|n| (70..130).contains(n)), "keys are spread: {kept:?}");
    }

    #[test]
    fn a_backend_that_comes_or_goes_moves_only_its_own_keys() {
        let pick = |backends: &Backends, key| backends.pick(&wanted(4, Some(key), 0), USUAL, None).unwrap();
        let (mut moved, mut stayed) = (0, 0);
        for key in 0..400 {
            let mut backends = Backends::new(&[1, 1, 1]);
            let before = pick(&backends, key);
            backends.remove(id(1));
            let without = pick(&backends, key);
            assert!(before == id(1) || without == before, "key {key} left a backend that stayed");
            let back = backends.add(BackendPolicy::new(1, 1)).unwrap();
            assert_eq!((back, pick(&backends, key)), (id(1), before), "it is the same backend again");
            moved += u32::from(without != before);
            stayed += u32::from(without == before);
        }
        assert!(moved > 90 && stayed > 200, "{moved} moved, {stayed} stayed");
    }

    #[test]
    fn a_number_is_not_given_to_another_backend_while_work_holds_it() {
        let mut backends = Backends::new(&[2]);
        backends.started(id(0), ns(7));
        backends.remove(id(0));
        assert_eq!(backends.permits(id(0)), (1, 0));
        assert_eq!(backends.add(BackendPolicy::new(3, 9)), Some(id(1)));
        backends.set(id(0), 5, true);
        assert_eq!(backends.free(), 3, "what is gone takes no more");
        backends.ended(id(0), ns(7));
        assert_eq!(backends.add(BackendPolicy::new(4, 9)), Some(id(0)));
        assert_eq!((backends.permits(id(0)), backends.work(id(0))), ((0, 4), Span::ZERO));
    }
}
