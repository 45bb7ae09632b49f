//! The rules of the endpoint, as a state machine.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::time::{Span, Tick};

/// How the endpoint behaves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Requests worked on at once.
    pub slots: usize,
    /// Requests waiting or in work; one more is turned away with 503.
    pub max_outstanding: usize,
    /// From the start of the work to the first byte of the body.
    pub delay: Span,
    /// The same for work that starts in the slow window.
    pub slow_delay: Span,
    /// From when to before when the endpoint is slow.
    pub slow_window: (Tick, Tick),
    /// From the first byte of the body to the second, which is the last.
    pub second_byte_after: Span,
}

impl Rules {
    /// Those of the published experiment.
    pub const PUBLISHED: Self = Self {
        slots: 2,
        max_outstanding: 8,
        delay: Span::from_millis(40),
        slow_delay: Span::from_millis(400),
        slow_window: (Tick::from_nanos(1_000_000_000), Tick::from_nanos(3_000_000_000)),
        second_byte_after: Span::from_millis(10),
    };

    /// Whether a time lies in the slow window.
    #[must_use]
    pub fn is_slow(&self, at: Tick) -> bool {
        at >= self.slow_window.0 && at < self.slow_window.1
    }
}

/// What happened to a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It arrived and was taken in.
    Received,
    /// It arrived and was turned away.
    Rejected,
    /// The work on it began.
    Started,
    /// The first byte of its answer is due.
    FirstByte,
    /// The last byte of its answer is due; its slot is free.
    Finished,
    /// Its client left before that.
    Left,
}

impl What {
    /// The name in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Rejected => "rejected",
            Self::Started => "started",
            Self::FirstByte => "first_byte",
            Self::Finished => "finished",
            Self::Left => "left",
        }
    }
}

/// Something that happened at the endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// To which request.
    pub request: u32,
    /// What.
    #[serde(rename = "event")]
    pub what: What,
}

/// The endpoint. Inputs are [`arrive`](Self::arrive) and [`leave`](Self::leave); after each, and at
/// [`next_wake`](Self::next_wake), [`poll`](Self::poll) tells what has happened until it gives `None`.
#[derive(Clone, Debug)]
pub struct Endpoint {
    rules: Rules,
    /// At most `max_outstanding` less what is in work.
    waiting: VecDeque<u32>,
    /// At most `slots`.
    working: BTreeMap<u32, Work>,
    told: VecDeque<Event>,
}

#[derive(Copy, Clone, Debug)]
struct Work {
    first_byte: Tick,
    is_first_told: bool,
}

impl Endpoint {
    /// An endpoint with nothing to do.
    #[must_use]
    pub const fn new(rules: Rules) -> Self {
        Self { rules, waiting: VecDeque::new(), working: BTreeMap::new(), told: VecDeque::new() }
    }

    /// Takes a request in, or turns it away. Its number must be free.
    pub fn arrive(&mut self, now: Tick, request: u32) {
        let is_full = self.outstanding() >= self.rules.max_outstanding;
        self.tell(now, request, if is_full { What::Rejected } else { What::Received });
        if !is_full {
            self.waiting.push_back(request);
            self.fill(now);
        }
    }

    /// Forgets a request whose client has left.
    pub fn leave(&mut self, now: Tick, request: u32) {
        let before = self.outstanding();
        self.waiting.retain(|waiting| *waiting != request);
        self.working.remove(&request);
        if self.outstanding() < before {
            self.tell(now, request, What::Left);
            self.fill(now);
        }
    }

    /// The next thing that has happened by now.
    pub fn poll(&mut self, now: Tick) -> Option<Event> {
        if self.told.is_empty()
            && let Some((due, request)) = self.next_due()
            && due <= now
        {
            self.advance(now, request);
        }
        self.told.pop_front()
    }

    /// When to poll again if nothing arrives or leaves.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        self.next_due().map(|(due, _)| due)
    }

    /// Requests waiting or in work.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.waiting.len() + self.working.len()
    }

    /// Whether a request is waiting or in work.
    #[must_use]
    pub fn holds(&self, request: u32) -> bool {
        self.working.contains_key(&request) || self.waiting.contains(&request)
    }

    fn next_due(&self) -> Option<(Tick, u32)> {
        let due =
            |work: &Work| work.first_byte + if work.is_first_told { self.rules.second_byte_after } else { Span::ZERO };
        self.working.iter().map(|(request, work)| (due(work), *request)).min()
    }

    fn advance(&mut self, now: Tick, request: u32) {
        let Some(work) = self.working.get_mut(&request) else { return };
        if !work.is_first_told {
            work.is_first_told = true;
            self.tell(now, request, What::FirstByte);
            return;
        }
        self.working.remove(&request);
        self.tell(now, request, What::Finished);
        self.fill(now);
    }

    fn fill(&mut self, now: Tick) {
        while self.working.len() < self.rules.slots
            && let Some(request) = self.waiting.pop_front()
        {
            let delay = if self.rules.is_slow(now) { self.rules.slow_delay } else { self.rules.delay };
            self.working.insert(request, Work { first_byte: now + delay, is_first_told: false });
            self.tell(now, request, What::Started);
        }
    }

    fn tell(&mut self, at: Tick, request: u32, what: What) {
        self.told.push_back(Event { at, request, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Tick {
        Tick::ZERO + Span::from_millis(n)
    }

    /// What happens up to a time, with the endpoint polled exactly when it asks for it.
    fn until(endpoint: &mut Endpoint, end: Tick) -> Vec<(u64, u32, What)> {
        let mut seen = Vec::new();
        let mut now = Tick::ZERO;
        loop {
            while let Some(event) = endpoint.poll(now) {
                seen.push((event.at.as_nanos() / 1_000_000, event.request, event.what));
            }
            match endpoint.next_wake() {
                Some(wake) if wake <= end => now = wake,
                _ => return seen,
            }
        }
    }

    #[test]
    fn two_are_in_work_six_wait_and_the_ninth_is_turned_away() {
        let mut endpoint = Endpoint::new(Rules::PUBLISHED);
        (0..9).for_each(|request| endpoint.arrive(Tick::ZERO, request));
        let seen = until(&mut endpoint, ms(1000));
        let of = |what| seen.iter().filter(|(_, _, w)| *w == what).map(|(at, r, _)| (*at, *r)).collect::<Vec<_>>();
        assert_eq!(of(What::Rejected), [(0, 8)]);
        assert_eq!(of(What::Started), [(0, 0), (0, 1), (50, 2), (50, 3), (100, 4), (100, 5), (150, 6), (150, 7)]);
        assert_eq!(of(What::FirstByte)[..2], [(40, 0), (40, 1)]);
        assert_eq!(of(What::Finished).last(), Some(&(200, 7)));
        assert_eq!(endpoint.outstanding(), 0);
    }

    #[test]
    fn what_starts_in_the_slow_window_is_slow_wherever_it_ends() {
        for (start, finish) in [(999, 1049), (1000, 1410), (2999, 3409), (3000, 3050)] {
            let mut endpoint = Endpoint::new(Rules::PUBLISHED);
            endpoint.arrive(ms(start), 0);
            let seen = until(&mut endpoint, ms(5000));
            assert_eq!(seen.last(), Some(&(finish, 0, What::Finished)), "{start}");
        }
    }

    #[test]
    fn one_that_leaves_gives_its_slot_to_the_next() {
        let mut endpoint = Endpoint::new(Rules::PUBLISHED);
        (0..4).for_each(|request| endpoint.arrive(Tick::ZERO, request));
        endpoint.leave(ms(5), 0);
        endpoint.leave(ms(5), 3);
        endpoint.leave(ms(5), 3);
        let seen = until(&mut endpoint, ms(1000));
        assert!(seen.contains(&(5, 2, What::Started)), "{seen:?}");
        assert_eq!(seen.iter().filter(|(_, _, w)| *w == What::Left).count(), 2);
        assert_eq!(seen.iter().filter(|(_, _, w)| *w == What::Finished).count(), 2);
    }
}
