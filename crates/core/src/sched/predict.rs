//! Admission by prediction: a request is admitted only while it can still meet its limits.
//!
//! ```text
//! slo_infeasible   not even with an engine that has nothing else to do
//! predicted_late   not at the pace of now, or not behind what goes first
//! queue_expired    its latest start passed while it waited
//! ```
//!
//! The pace is the live time per output token. When it moves, the latest start of everything that
//! waits is computed anew.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::estimate::{Caution, CostModel, LiveTpot, Need};
use super::queue::{Queue, Waiting};
use crate::ids::RequestId;
use crate::outcome::RejectReason;
use crate::time::{Span, Tick};

/// What admission by prediction goes by.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Predict {
    /// What a request takes.
    pub cost: CostModel,
    /// How careful the prediction is.
    pub caution: Caution,
}

/// Answer tokens that were seen of running work.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// How many.
    pub tokens: u32,
    /// The time since the last one before them; `None` for the first ones of an answer.
    pub gap: Option<Span>,
}

/// What is predicted of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The time per output token that it goes by.
    pub tpot: Span,
    /// The latest start that keeps the request's limits with due caution; `None` if none does.
    pub latest_start: Option<Tick>,
    /// When a seat will be free for it.
    pub start: Tick,
}

/// The prediction's memory.
#[derive(Debug)]
pub(super) struct Forecast {
    settings: Predict,
    tpot: LiveTpot,
    /// The time per token at which what waits was judged last.
    judged: Span,
    running: BTreeMap<RequestId, Running>,
    /// Tokens that running work still has to give.
    tokens_left: u64,
}

#[derive(Debug)]
struct Running {
    need: Need,
    /// Tokens that came.
    seen: u32,
    /// When the last one came, or the permit was granted.
    last: Tick,
}

/// Up to so many waiting and running requests the virtual schedule is exact; beyond, work is taken as
/// a fluid, whose error is small against a wait that long.
const EXACT_WAITING: usize = 32;
const EXACT_RUNNING: usize = 256;
/// What waits is judged anew when the time per token has moved by one part in this many.
const REJUDGE: u64 = 50;

impl Forecast {
    pub(super) fn new(settings: Predict) -> Self {
        let idle = settings.cost.idle_tpot;
        Self { settings, tpot: LiveTpot::new(idle), judged: idle, running: BTreeMap::new(), tokens_left: 0 }
    }

    pub(super) fn tpot(&self) -> Span {
        self.tpot.get()
    }

    /// The latest start of a newcomer, or why it is turned away.
    pub(super) fn judge(&self, now: Tick, newcomer: &Waiting, queue: &Queue, free: u32) -> Result<Tick, RejectReason> {
        let Predict { cost, caution } = &self.settings;
        let latest = |tpot| cost.latest_start(newcomer.arrived, &newcomer.need, tpot, caution).filter(|at| *at >= now);
        let tpot = self.tpot.get();
        latest(cost.idle_tpot.min(tpot)).ok_or(RejectReason::SloInfeasible)?;
        let live = latest(tpot).ok_or(RejectReason::PredictedLate)?;
        let judged = Waiting { latest: Some(live), ..newcomer.clone() };
        if self.predicted_start(now, &judged, queue, free) > live {
            return Err(RejectReason::PredictedLate);
        }
        Ok(live)
    }

    /// What would be known of a newcomer.
    pub(super) fn predict(&self, now: Tick, newcomer: &Waiting, queue: &Queue, free: u32) -> Prediction {
        let Predict { cost, caution } = &self.settings;
        let tpot = self.tpot.get();
        let latest_start = cost.latest_start(newcomer.arrived, &newcomer.need, tpot, caution);
        let placed = Waiting { latest: latest_start, rank: self.rank(newcomer), ..newcomer.clone() };
        Prediction { tpot, latest_start, start: self.predicted_start(now, &placed, queue, free) }
    }

    /// The latest start by the limits that a request is ranked by, where those are not its own.
    pub(super) fn rank(&self, waiting: &Waiting) -> Option<Tick> {
        let Predict { cost, caution } = &self.settings;
        let need = Need { slo: waiting.ranked_by?, ..waiting.need };
        cost.latest_start(waiting.arrived, &need, self.tpot.get(), caution)
    }

    /// When a seat will be free for the newcomer.
    fn predicted_start(&self, now: Tick, newcomer: &Waiting, queue: &Queue, free: u32) -> Tick {
        if free > 0 && !queue.has_eligible() {
            return now;
        }
        if queue.len() <= EXACT_WAITING && self.running.len() <= EXACT_RUNNING {
            self.virtual_schedule(now, newcomer, queue, free)
        } else {
            let tpot = self.tpot.get();
            let seats = (self.running.len() as u64 + u64::from(free)).max(1);
            let work = tpot * self.tokens_left + queue.work_ahead_of(newcomer);
            now + Span::from_nanos(work.as_nanos() / seats)
        }
    }

    /// Seats are freed as running work ends at the present pace, and taken by what goes first.
    fn virtual_schedule(&self, now: Tick, newcomer: &Waiting, queue: &Queue, free: u32) -> Tick {
        let tpot = self.tpot.get();
        let cost = &self.settings.cost;
        let ends = self.running.values().map(|r| Reverse(r.end(cost, tpot).max(now)));
        let mut seats: BinaryHeap<Reverse<Tick>> = ends.chain((0..free).map(|_| Reverse(now))).collect();
        for need in queue.needs_ahead_of(newcomer) {
            if let Some(Reverse(start)) = seats.pop() {
                seats.push(Reverse(start + cost.e2e(&need, tpot)));
            }
        }
        seats.peek().map_or(now, |Reverse(at)| *at)
    }

    pub(super) fn started(&mut self, now: Tick, id: RequestId, need: Need) {
        self.tokens_left += u64::from(need.output);
        self.running.insert(id, Running { need, seen: 0, last: now });
    }

    pub(super) fn observe(&mut self, now: Tick, id: RequestId, observation: Observation, queue: &mut Queue) {
        let streams = self.running.len();
        let Some(running) = self.running.get_mut(&id) else { return };
        let before = running.left();
        running.seen = running.seen.saturating_add(observation.tokens);
        running.last = now;
        self.tokens_left -= u64::from(before - running.left());
        if let Some(gap) = observation.gap
            && observation.tokens > 0
        {
            self.tpot.observe(Span::from_nanos(gap.as_nanos() / u64::from(observation.tokens)), streams);
            self.rejudge_if_moved(queue);
        }
    }

    pub(super) fn ended(&mut self, id: RequestId, queue: &mut Queue) {
        let Some(running) = self.running.remove(&id) else { return };
        self.tokens_left -= u64::from(running.left());
        if self.running.is_empty() {
            // The next one finds an idle engine.
            self.tpot.reset();
            self.rejudge_if_moved(queue);
        }
    }

    fn rejudge_if_moved(&mut self, queue: &mut Queue) {
        let tpot = self.tpot.get();
        if tpot.as_nanos().abs_diff(self.judged.as_nanos()) <= self.judged.as_nanos() / REJUDGE {
            return;
        }
        self.judged = tpot;
        let Predict { cost, caution } = &self.settings;
        // What cannot make it any more expires at once.
        queue.rejudge(|w| {
            let latest = cost.latest_start(w.arrived, &w.need, tpot, caution).unwrap_or(Tick::ZERO);
            (Some(latest), self.rank(w))
        });
    }
}

impl Running {
    fn left(&self) -> u32 {
        self.need.output.saturating_sub(self.seen)
    }

    /// When its seat will be free.
    fn end(&self, cost: &CostModel, tpot: Span) -> Tick {
        // A server that gives more than was declared is taken to be at its last token.
        let left = u64::from(self.left().max(1));
        if self.seen == 0 {
            self.last + cost.ttft(&self.need, tpot) + tpot * (left - 1)
        } else {
            self.last + tpot * left
        }
    }
}
