//! How much work a backend is given: its health, a circuit breaker, a slow start and the work of others on it.
//!
//! A state machine without a clock, as the scheduler is: inputs carry `now`, [`Gate::standing`] tells what holds, and
//! [`Gate::next_change`] when to look again.
//!
//! ```text
//!            failures in a row                 time is over
//!   closed ───────────────────> open ───────────────────────────> half-open
//!      ^                          ^                                  │   │
//!      │                          └── the probe fails: twice as long ┘   │
//!      └───────────────────────────── the probe succeeds ────────────────┘
//! ```
//!
//! The probe of a half-open breaker is a request like any other, of which one at a time is let through. It holds a
//! [`Pass`], as every request does; only one that was given out since the breaker opened decides about it, so what
//! ran before cannot. What says nothing about the backend, such as 429 or a client that leaves, changes nothing.

#[cfg(test)]
mod tests;

use crate::time::{Span, Tick};

/// The rules of a gate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct GateRules {
    /// Failed probes in a row after which a backend counts as down; at least 1.
    pub probes: u32,
    /// Failed requests in a row after which its breaker opens; at least 1.
    pub failures: u32,
    /// How long the breaker stays open the first time; twice as long after each failed probe, [`MAX_OPEN`] at most.
    pub open: Span,
    /// How long it takes until a backend that has come back may have all its permits; zero for at once.
    pub slow_start: Span,
}

impl Default for GateRules {
    fn default() -> Self {
        Self { probes: 2, failures: 5, open: Span::from_secs(5), slow_start: Span::from_secs(10) }
    }
}

/// The longest time for which a breaker stays open.
pub const MAX_OPEN: Span = Span::from_secs(60);
/// The part of its permits, one in so many, with which a backend starts that comes back.
const FIRST_PART: u64 = 10;

/// What is known of a backend by its probes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has not been probed yet.
    Unknown,
    /// It answers.
    Up,
    /// It does not.
    Down,
}

/// What a request says about its backend.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It answered.
    Works,
    /// It gave no answer, or one that says that it cannot.
    Fails,
    /// Nothing.
    Neutral,
}

/// The state of a breaker.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Breaker {
    /// Work flows.
    Closed,
    /// None does.
    Open,
    /// One request at a time finds out.
    HalfOpen,
}

impl Breaker {
    /// The name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What a backend may be given.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether it takes work at all.
    pub up: bool,
    /// How much.
    pub permits: u32,
}

/// The right to tell how a request fared, given out with its permit; goes back through [`Gate::left`].
#[derive(Debug)]
#[must_use = "a pass is counted until it is given back"]
pub struct Pass {
    era: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    Closed {
        /// Failures in a row.
        failed: u32,
    },
    Open {
        until: Tick,
        /// How often a probe has failed.
        times: u32,
    },
}

/// The gate of one backend.
#[derive(Debug)]
pub struct Gate {
    rules: GateRules,
    permits: u32,
    health: Health,
    failed_probes: u32,
    state: State,
    /// How often the breaker has opened: the era of passes.
    era: u64,
    /// Passes of this era and of all before that are out.
    current: u32,
    earlier: u32,
    /// Since when it has been coming back.
    returning: Option<Tick>,
    /// Requests of others that it works on, and until when that is believed.
    foreign: Option<(u32, Tick)>,
}

impl Gate {
    /// The gate of a backend of which nothing is known: it is offered work.
    #[must_use]
    pub const fn new(rules: GateRules, permits: u32) -> Self {
        let state = State::Closed { failed: 0 };
        let (health, failed_probes, returning, foreign) = (Health::Unknown, 0, None, None);
        Self { rules, permits, health, failed_probes, state, era: 0, current: 0, earlier: 0, returning, foreign }
    }

    /// Changes the rules and the permits.
    pub const fn set(&mut self, rules: GateRules, permits: u32) {
        self.rules = rules;
        self.permits = permits;
    }

    /// Starts slowly from here on.
    pub const fn start_slowly(&mut self, now: Tick) {
        self.returning = Some(now);
    }

    /// A probe was answered well or not. `alone` is whether no other backend could take its work meanwhile: then it
    /// does not start slowly.
    pub fn probed(&mut self, now: Tick, well: bool, alone: bool) {
        if well {
            if self.health == Health::Down && !alone {
                self.returning = Some(now);
            }
            (self.health, self.failed_probes) = (Health::Up, 0);
            return;
        }
        self.failed_probes = self.failed_probes.saturating_add(1);
        if self.failed_probes >= self.rules.probes {
            self.health = Health::Down;
        }
    }

    /// A request goes to the backend.
    pub const fn enter(&mut self) -> Pass {
        self.current += 1;
        Pass { era: self.era }
    }

    /// How a request fared that holds a pass. `alone` as for [`Gate::probed`].
    pub fn judge(&mut self, now: Tick, pass: &Pass, verdict: Verdict, alone: bool) {
        // What began before the breaker opened says nothing about the backend of now.
        if pass.era != self.era || verdict == Verdict::Neutral {
            return;
        }
        match (self.state, verdict) {
            (State::Closed { .. }, Verdict::Works) => self.state = State::Closed { failed: 0 },
            (State::Closed { failed }, _) => {
                let failed = failed.saturating_add(1);
                self.state = State::Closed { failed };
                if failed >= self.rules.failures {
                    self.open(now, 0);
                }
            }
            (State::Open { .. }, Verdict::Works) => {
                self.state = State::Closed { failed: 0 };
                self.returning = Some(now).filter(|_| !alone);
            }
            (State::Open { times, .. }, _) => self.open(now, times.saturating_add(1)),
        }
    }

    /// A request has left the backend, however it ended.
    #[expect(clippy::needless_pass_by_value, reason = "a pass that went back must not be used again")]
    pub const fn left(&mut self, pass: Pass) {
        let count = if pass.era == self.era { &mut self.current } else { &mut self.earlier };
        *count = count.saturating_sub(1);
    }

    /// Others have so many requests there, which is believed for so long.
    pub fn shared_with(&mut self, now: Tick, foreign: u32, fresh: Span) {
        self.foreign = Some((foreign, now + fresh));
    }

    /// What the backend may be given now.
    #[must_use]
    pub fn standing(&self, now: Tick) -> Standing {
        let up = self.health != Health::Down;
        match self.breaker(now) {
            Breaker::Open => Standing { up: false, permits: self.permits },
            // What ran before holds permits that do not keep the probe out.
            Breaker::HalfOpen => Standing { up, permits: self.permits.min(self.earlier.saturating_add(1)) },
            Breaker::Closed => Standing { up, permits: self.usable(now) },
        }
    }

    /// When the standing changes although no input comes.
    #[must_use]
    pub fn next_change(&self, now: Tick) -> Option<Tick> {
        let opens = match self.state {
            State::Open { until, .. } => Some(until),
            State::Closed { .. } => None,
        };
        let stale = self.foreign.filter(|(n, _)| *n > 0).map(|(_, until)| until);
        let step = self.returning.map(|since| self.next_step(since, now));
        [opens, stale, step].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// What is known by probes.
    #[must_use]
    pub const fn health(&self) -> Health {
        self.health
    }

    /// The state of the breaker.
    #[must_use]
    pub fn breaker(&self, now: Tick) -> Breaker {
        match self.state {
            State::Closed { .. } => Breaker::Closed,
            State::Open { until, .. } if now < until => Breaker::Open,
            State::Open { .. } => Breaker::HalfOpen,
        }
    }

    /// Requests of others that are believed to be there.
    #[must_use]
    pub fn foreign(&self, now: Tick) -> u32 {
        self.foreign.filter(|(_, until)| now < *until).map_or(0, |(n, _)| n)
    }

    fn open(&mut self, now: Tick, times: u32) {
        let open = Span::from_nanos(self.rules.open.as_nanos().saturating_mul(1 << times.min(32)));
        self.state = State::Open { until: now + open.min(MAX_OPEN.max(self.rules.open)), times };
        self.era += 1;
        self.earlier = self.earlier.saturating_add(self.current);
        self.current = 0;
        self.returning = None;
    }

    /// All permits, less what the slow start holds back and others use. One is always left: an estimate must not stop
    /// dispatch.
    fn usable(&self, now: Tick) -> u32 {
        let started = self.returning.map_or(self.permits, |since| self.started(since, now));
        started.min(self.permits.saturating_sub(self.foreign(now))).max(self.permits.min(1))
    }

    /// The permits of a backend that has been coming back since then: a tenth at first, and then as the time goes.
    fn started(&self, since: Tick, now: Tick) -> u32 {
        let (whole, passed) = (u128::from(self.rules.slow_start.as_nanos()), u128::from(now.since(since).as_nanos()));
        if passed >= whole {
            return self.permits;
        }
        let share = (u128::from(self.permits) * passed / whole) as u32;
        share.max(self.first()).min(self.permits)
    }

    fn first(&self) -> u32 {
        (u64::from(self.permits) / FIRST_PART).max(1) as u32
    }

    /// When the slow start gives the next permit.
    fn next_step(&self, since: Tick, now: Tick) -> Tick {
        let next = u128::from(self.started(since, now)) + 1;
        let whole = u128::from(self.rules.slow_start.as_nanos());
        let after = (whole * next).div_ceil(u128::from(self.permits.max(1))).min(whole);
        since + Span::from_nanos(after as u64)
    }
}
