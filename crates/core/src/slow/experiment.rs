//! The three load models on the endpoint, on virtual time: the same every time, to the nanosecond.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Endpoint, Event, Rules, What};
use crate::time::{Span, Tick};

/// What is asked of each load model.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Terms {
    /// For how long requests arrive.
    pub window: Span,
    /// After the window, for what is still open.
    pub drain: Span,
    /// From the planned arrival to the end of an answer that still counts.
    pub limit: Span,
    /// Arrivals per second of the open and the capped model, evenly spaced.
    pub rate: u32,
    /// Workers of the closed model, and the cap of the capped one.
    pub clients: u32,
    /// On virtual time, how long a request or an answer is under way.
    pub transit: Span,
}

impl Terms {
    /// Those of the published experiment.
    ///
    /// Any time under way will do that is short and not 0: with none, a slot of the capped model becomes free
    /// at the very moment of an arrival, which no network does.
    pub const PUBLISHED: Self = Self {
        window: Span::from_secs(4),
        drain: Span::from_secs(2),
        limit: Span::from_millis(250),
        rate: 40,
        clients: 2,
        transit: Span::from_nanos(250_000),
    };

    /// The planned times of the open and the capped model.
    pub fn planned(self) -> impl Iterator<Item = Tick> {
        let gap = Span::from_nanos(1_000_000_000 / u64::from(self.rate.max(1)));
        let count = self.window.as_nanos() / gap.as_nanos().max(1);
        (1..=count).map(move |i| Tick::ZERO + gap * i)
    }
}

/// A load model.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Workers that each wait for their answer: they claim no arrivals.
    Closed,
    /// Arrivals on schedule, whatever the server does.
    Open,
    /// The same schedule with a cap: what finds no slot is never sent.
    Capped,
}

impl Case {
    /// All, in the order in which they are told.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::Capped];

    /// The name in tables and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Capped => "capped",
        }
    }
}

/// An arrival as its client saw it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it was to be sent.
    pub planned: Tick,
    /// When it was.
    pub sent: Option<Tick>,
    /// When the answer had come.
    pub end: Option<Tick>,
    /// Whether it was a whole answer.
    pub completed: bool,
    /// Whether it was turned away.
    pub rejected: bool,
}

/// What a case comes to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Planned arrivals; none for the closed model, which plans none.
    pub planned: Option<u32>,
    /// Requests that were sent.
    pub sent: u32,
    /// Of these, in the slow window.
    pub sent_in_slow_window: u32,
    /// Whole answers.
    pub completed: u32,
    /// Turned away.
    pub rejected: u32,
    /// Planned and never sent.
    pub unsent: u32,
    /// Whole answers within the limit, from the planned arrival.
    pub within_limit: u32,
    /// Sent and without an end when the drain was over.
    pub pending: u32,
}

impl Counts {
    /// Counts what was seen.
    #[must_use]
    pub fn of(case: Case, rules: &Rules, terms: &Terms, seen: &[Seen]) -> Self {
        let count = |which: &dyn Fn(&Seen) -> bool| seen.iter().filter(|s| which(s)).count() as u32;
        Self {
            planned: (case != Case::Closed).then_some(seen.len() as u32),
            sent: count(&|s| s.sent.is_some()),
            sent_in_slow_window: count(&|s| s.sent.is_some_and(|at| rules.is_slow(at))),
            completed: count(&|s| s.completed),
            rejected: count(&|s| s.rejected),
            unsent: count(&|s| s.sent.is_none()),
            within_limit: count(&|s| s.completed && s.end.is_some_and(|end| end.since(s.planned) <= terms.limit)),
            pending: count(&|s| s.sent.is_some() && !s.completed && !s.rejected),
        }
    }
}

/// Runs a case on virtual time, without a network: what its client saw, and the endpoint's log.
#[must_use]
pub fn run(case: Case, rules: Rules, terms: Terms) -> (Vec<Seen>, Vec<Event>) {
    let mut world = World {
        case,
        terms,
        endpoint: Endpoint::new(rules),
        next: BTreeSet::new(),
        seen: Vec::new(),
        log: Vec::new(),
        open: 0,
    };
    match case {
        Case::Closed => (0..terms.clients).for_each(|_| world.plan(Tick::ZERO)),
        Case::Open | Case::Capped => terms.planned().for_each(|at| world.plan(at)),
    }
    world.run();
    (world.seen, world.log)
}

struct World {
    case: Case,
    terms: Terms,
    endpoint: Endpoint,
    /// What comes next, by time, kind and place.
    next: BTreeSet<(Tick, Next, u32)>,
    seen: Vec<Seen>,
    log: Vec<Event>,
    open: u32,
}

/// What can come next. At the same time what comes first here goes first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// A whole answer is there.
    Answer,
    /// A refusal is there.
    Refusal,
    /// A request reaches the endpoint.
    Request,
    /// An arrival is due.
    Due,
}

impl World {
    fn plan(&mut self, planned: Tick) {
        let place = self.seen.len() as u32;
        self.seen.push(Seen { planned, sent: None, end: None, completed: false, rejected: false });
        self.next.insert((planned, Next::Due, place));
    }

    fn run(&mut self) {
        let end = Tick::ZERO + self.terms.window + self.terms.drain;
        loop {
            let wake = self.endpoint.next_wake();
            match (wake, self.next.first().copied()) {
                (Some(wake), next) if next.is_none_or(|(at, ..)| wake <= at) => {
                    if wake > end {
                        return;
                    }
                    self.listen(wake);
                }
                (_, Some(first)) if first.0 <= end => {
                    self.next.remove(&first);
                    self.step(first);
                }
                _ => return,
            }
        }
    }

    fn step(&mut self, (now, next, place): (Tick, Next, u32)) {
        let seen = &mut self.seen[place as usize];
        match next {
            Next::Due if self.case == Case::Capped && self.open >= self.terms.clients => {}
            Next::Due => {
                seen.sent = Some(now);
                self.open += 1;
                self.next.insert((now + self.terms.transit, Next::Request, place));
            }
            Next::Request => {
                self.endpoint.arrive(now, place);
                self.listen(now);
            }
            Next::Answer | Next::Refusal => {
                (seen.completed, seen.rejected) = (next == Next::Answer, next == Next::Refusal);
                seen.end = Some(now);
                self.open -= 1;
                if self.case == Case::Closed && now < Tick::ZERO + self.terms.window {
                    self.plan(now);
                }
            }
        }
    }

    fn listen(&mut self, now: Tick) {
        while let Some(event) = self.endpoint.poll(now) {
            self.log.push(event);
            let told = match event.what {
                What::Finished => Next::Answer,
                What::Rejected => Next::Refusal,
                What::Received | What::Started | What::FirstByte | What::Left => continue,
            };
            self.next.insert((now + self.terms.transit, told, event.request));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(case: Case) -> Counts {
        let (rules, terms) = (Rules::PUBLISHED, Terms::PUBLISHED);
        Counts::of(case, &rules, &terms, &run(case, rules, terms).0)
    }

    /// The published counts of one real run: within the limit 76, 75 and 50; sent in the slow window 10, 80
    /// and 10. An ideal endpoint comes within 4 and 2 of them.
    #[test]
    fn each_model_comes_to_the_published_counts() {
        for (case, slow, within) in [(Case::Closed, 10, 76), (Case::Open, 80, 75), (Case::Capped, 10, 50)] {
            let found = counts(case);
            assert!(found.sent_in_slow_window.abs_diff(slow) <= if case == Case::Open { 0 } else { 2 }, "{found:?}");
            assert!(found.within_limit.abs_diff(within) <= 4, "{case:?} {found:?}");
            assert_eq!(found.pending, 0);
            assert_eq!(found.sent, found.completed + found.rejected);
        }
    }

    /// By hand: a worker takes 50.5 ms, 20 times up to 1,010 ms; then 410.5 ms, 5 times up to 3,062.5 ms; then
    /// 50.5 ms again, 19 times, the last one begun at 3,971.5 ms.
    #[test]
    fn the_closed_model_sends_what_two_workers_can() {
        let found = counts(Case::Closed);
        let by_hand = Counts {
            planned: None,
            sent: 88,
            sent_in_slow_window: 10,
            completed: 88,
            rejected: 0,
            unsent: 0,
            within_limit: 78,
            pending: 0,
        };
        assert_eq!(found, by_hand);
    }

    #[test]
    fn planned_arrivals_are_sent_or_unsent_and_only_the_cap_leaves_any_unsent() {
        let (open, capped) = (counts(Case::Open), counts(Case::Capped));
        assert_eq!((open.planned, open.sent, open.unsent), (Some(160), 160, 0));
        assert!(open.rejected > 0);
        assert_eq!((capped.planned, capped.sent + capped.unsent), (Some(160), 160));
        assert!(capped.unsent > 0 && capped.rejected == 0);
    }

    #[test]
    fn a_run_repeats_exactly() {
        for case in Case::ALL {
            let once = run(case, Rules::PUBLISHED, Terms::PUBLISHED);
            assert_eq!(once, run(case, Rules::PUBLISHED, Terms::PUBLISHED));
        }
    }
}
