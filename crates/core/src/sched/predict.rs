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
use std::num::NonZeroU32;

use super::OnMiss;
use super::estimate::{Caution, CostModel, LiveTpot, Need};
use super::lengths::{Length, Lengths};
use super::price::{InFlight, Market, Price, Quote};
use super::queue::{Queue, Waiting};
use super::running::Work;
use crate::ids::RequestId;
use crate::outcome::RejectReason;
use crate::time::{Span, Tick};
use serde::{Deserialize, Serialize};

/// What admission by prediction goes by, beside [`Settings::cost`](super::Settings::cost).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Predict {
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
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The time per output token that it goes by.
    pub tpot: Span,
    /// The latest start that keeps the request's limits with due caution; `None` if none does.
    pub latest_start: Option<Tick>,
    /// When a seat will be free for it. Answers of unknown length that go first are taken to be as short as one
    /// in ten of them, so nobody is refused for what may yet be over soon.
    pub start: Tick,
    /// What the length of its answer is known by.
    pub basis: Basis,
    /// The chance that it keeps its limits if it starts then, in thousandths.
    pub chance_permille: u16,
    /// What it is worth and what it costs the others, before it is counted itself; `None` without a price.
    pub quote: Option<Quote>,
}

/// What the length of an answer is known by.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// It was declared.
    Declared,
    /// It was learned from the tenant's answers with the same hint.
    Hinted,
    /// It was learned.
    Learned,
}

impl Basis {
    /// The name in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Hinted => "hinted",
            Self::Learned => "learned",
        }
    }
}

/// The prediction's memory.
#[derive(Debug)]
pub(super) struct Forecast {
    cost: CostModel,
    caution: Caution,
    tpot: LiveTpot,
    /// Whether that is measured elsewhere.
    follows: bool,
    /// The time per token at which what waits was judged last.
    judged: Span,
    /// What waits and is still to be judged, and the next of it.
    unjudged: usize,
    next_judged: RequestId,
    running: BTreeMap<RequestId, Running>,
    /// Tokens that running work still has to give.
    tokens_left: u64,
    market: Option<Market>,
}

#[derive(Debug)]
struct Running {
    lane: usize,
    arrived: Tick,
    need: Need,
    declared: Option<u32>,
    hint: Option<u32>,
    /// Tokens that came.
    seen: u32,
    /// Tokens that are still to come at least, as declared or as most answers have.
    left: u32,
    /// When the last one came, or the permit was granted.
    last: Tick,
}

/// Up to so many waiting and running requests the virtual schedule is exact; beyond, work is taken as
/// a fluid, whose error is small against a wait that long.
const EXACT_WAITING: usize = 32;
const EXACT_RUNNING: usize = 256;
/// What waiting loses is looked at over so many tokens' time.
const VALUE_STEP: u64 = 20;
/// A value of 1 in the integers that they are compared by.
const VALUE_SCALE: f64 = (1u64 << 40) as f64;
/// What waits is judged anew when the time per token has moved by one part in this many.
const REJUDGE: u64 = 50;
/// So many at once, and then so many with every observation.
const AT_ONCE: usize = 256;
const AT_A_TIME: usize = 32;
const FIRST: RequestId = RequestId(0);

impl Forecast {
    pub(super) fn new(cost: CostModel, predict: Predict, price: Option<Price>) -> Self {
        let idle = cost.idle_tpot;
        Self {
            cost,
            caution: predict.caution,
            tpot: LiveTpot::new(idle),
            follows: false,
            judged: idle,
            unjudged: 0,
            next_judged: FIRST,
            running: BTreeMap::new(),
            tokens_left: 0,
            market: price.map(|price| Market::new(price, &cost)),
        }
    }

    /// Goes by other settings from here on; what was measured stays. All that waits is to be judged anew.
    pub(super) fn reload(&mut self, cost: CostModel, predict: Predict, price: Option<Price>) {
        (self.cost, self.caution) = (cost, predict.caution);
        self.tpot.idles_at(cost.idle_tpot);
        if self.running.is_empty() && !self.follows {
            self.tpot.reset();
        }
        (self.judged, self.unjudged) = (self.tpot.get(), 0);
        let before = self.market.take();
        self.market = price.map(|price| match before {
            Some(market) if market.is_of(&price, &cost) => market,
            _ => Market::new(price, &cost),
        });
    }

    /// Takes over work that runs already, and of which so many tokens were seen.
    pub(super) fn adopt(&mut self, now: Tick, id: RequestId, work: &Work, lane: usize, lengths: &Lengths) {
        let Work { arrived, need, declared, hint, seen, .. } = *work;
        let left = tokens_left(declared, lane, hint, seen, lengths);
        self.tokens_left += u64::from(left);
        self.running.insert(id, Running { lane, arrived, need, declared, hint, seen, left, last: now });
    }

    /// The latest start of what waits, at the pace of now, and that by which it is ranked. What cannot make it any
    /// more expires at once.
    pub(super) fn rejudge(&self, waiting: &Waiting, lane: usize) -> (Option<Tick>, Option<Tick>) {
        let latest = self.cost.latest_start(waiting.arrived, &waiting.promised(), self.promised(lane), &self.caution);
        (Some(latest.unwrap_or(Tick::ZERO)), self.rank(waiting))
    }

    pub(super) fn tpot(&self) -> Span {
        self.tpot.get()
    }

    /// The latest start of a newcomer, or why it is turned away.
    pub(super) fn judge(
        &mut self,
        now: Tick,
        newcomer: &Waiting,
        queue: &Queue,
        free: u32,
    ) -> Result<Tick, RejectReason> {
        let lane = queue.lane_of(newcomer.tenant);
        if let Some(market) = &mut self.market {
            market.offered(now, lane, &newcomer.need, &self.cost, &self.caution);
        }
        let latest = self.admit(now, newcomer, queue, free)?;
        if let Some(market) = &mut self.market {
            market.admitted(lane, &newcomer.need);
        }
        Ok(latest)
    }

    fn admit(&self, now: Tick, newcomer: &Waiting, queue: &Queue, free: u32) -> Result<Tick, RejectReason> {
        let tpot = self.tpot.get();
        let at_best = self.latest_at_best(newcomer, tpot).filter(|at| *at >= now).ok_or(RejectReason::SloInfeasible)?;
        if self.running.is_empty() && queue.is_empty() && free > 0 {
            // It harms nobody, and an engine that idles helps nobody.
            return Ok(at_best);
        }
        let live = self.latest(newcomer, queue).filter(|at| *at >= now).ok_or(RejectReason::PredictedLate)?;
        let judged = Waiting { latest: Some(live), ..newcomer.clone() };
        if self.predicted_start(now, &judged, queue, free) > live || !self.is_worth(now, newcomer, queue) {
            return Err(RejectReason::PredictedLate);
        }
        Ok(live)
    }

    /// The latest start at the pace of now.
    fn latest(&self, waiting: &Waiting, queue: &Queue) -> Option<Tick> {
        let tpot = self.promised(queue.lane_of(waiting.tenant));
        self.cost.latest_start(waiting.arrived, &waiting.promised(), tpot, &self.caution)
    }

    /// The time per token at which a tenant is judged.
    fn promised(&self, lane: usize) -> Span {
        let tpot = self.tpot.get();
        match &self.market {
            // No promise goes below what an idle engine takes.
            Some(market) => {
                let promised = Span::from_nanos((tpot.as_nanos() as f64 * market.promise(lane)) as u64);
                promised.max(self.cost.idle_tpot.min(tpot))
            }
            None => tpot,
        }
    }

    fn is_worth(&self, now: Tick, newcomer: &Waiting, queue: &Queue) -> bool {
        self.quote(now, newcomer, queue).is_none_or(|quote| quote.worth >= quote.cost)
    }

    fn quote(&self, now: Tick, newcomer: &Waiting, queue: &Queue) -> Option<Quote> {
        let market = self.market.as_ref()?;
        let tpot = self.tpot.get();
        let in_flight = |r: &Running| {
            let end = r.end(&self.cost, tpot).max(now);
            let limit = r.arrived + r.need.slo.e2e?;
            let slack_ms = limit.since(end).as_millis_f64() - end.since(limit).as_millis_f64();
            Some(InFlight { lane: r.lane, slack_ms, left_ms: end.since(now).as_millis_f64() })
        };
        let running = self.running.values().filter_map(in_flight);
        Some(market.quote(now, queue.lane_of(newcomer.tenant), &newcomer.need, tpot, running))
    }

    /// The latest start by what no request can beat: without caution, on an engine that does nothing else.
    fn latest_at_best(&self, newcomer: &Waiting, tpot: Span) -> Option<Tick> {
        let cost = self.cost.at_best();
        cost.latest_start(
            newcomer.arrived,
            &newcomer.need.with_output(newcomer.declared.unwrap_or(1)),
            cost.idle_tpot.min(tpot),
            &Caution::NONE,
        )
    }

    /// What would be known of a newcomer.
    pub(super) fn predict(
        &self,
        now: Tick,
        newcomer: &Waiting,
        queue: &Queue,
        free: u32,
        length: &Length<'_>,
    ) -> Prediction {
        let tpot = self.tpot.get();
        let latest_start = self.latest(newcomer, queue);
        let placed = Waiting { latest: latest_start, rank: self.rank(newcomer), ..newcomer.clone() };
        let start = self.predicted_start(now, &placed, queue, free);
        let in_time = self.cost.tokens_in_time(newcomer.arrived, start, &newcomer.need, tpot);
        let basis = match (newcomer.declared, newcomer.hint) {
            (Some(_), _) => Basis::Declared,
            (None, Some(_)) => Basis::Hinted,
            (None, None) => Basis::Learned,
        };
        let chance_permille = (length.within(in_time) * 1000.0) as u16;
        let quote = self.quote(now, newcomer, queue);
        Prediction { tpot, latest_start, start, basis, chance_permille, quote }
    }

    /// The latest start by the limits that a request is ranked by, where those are not its own.
    pub(super) fn rank(&self, waiting: &Waiting) -> Option<Tick> {
        let need = Need { slo: waiting.ranked_by?, ..waiting.promised() };
        self.cost.latest_start(waiting.arrived, &need, self.tpot.get(), &self.caution)
    }

    /// What is lost if a waiting request waits for the time of some tokens more: its weight times what its chance to end in
    /// time falls by, for each expected second of a seat.
    pub(super) fn value(
        &self,
        now: Tick,
        waiting: &Waiting,
        length: &Length<'_>,
        weight: NonZeroU32,
        on_miss: OnMiss,
    ) -> u128 {
        let tpot = self.tpot.get();
        let tokens = |start| self.cost.tokens_in_time(waiting.arrived, start, &waiting.need, tpot);
        let (soon, later) = (tokens(now), tokens(now + tpot * VALUE_STEP));
        let lost = (length.within(soon) - length.within(later)).max(0.0);
        let takes = match on_miss {
            OnMiss::Finish => length.mean_within(u32::MAX),
            OnMiss::Abort => length.mean_within(soon),
        };
        // Its prompt also holds up all that runs.
        let stall = self.cost.prefill_per_token * (u64::from(waiting.need.input) * self.running.len() as u64);
        let first = (self.cost.ttft(&waiting.need, tpot) + stall).as_secs_f64();
        let seat = first + (takes - 1.0).max(0.0) * tpot.as_secs_f64();
        (lost * f64::from(weight.get()) / seat * VALUE_SCALE) as u128
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
        let cost = &self.cost;
        let ends = self.running.values().map(|r| Reverse(r.end(cost, tpot).max(now)));
        let mut seats: BinaryHeap<Reverse<Tick>> = ends.chain((0..free).map(|_| Reverse(now))).collect();
        for need in queue.needs_ahead_of(newcomer) {
            if let Some(Reverse(start)) = seats.pop() {
                seats.push(Reverse(start + cost.e2e(&need, tpot)));
            }
        }
        seats.peek().map_or(now, |Reverse(at)| *at)
    }

    pub(super) fn started(&mut self, now: Tick, waiting: &Waiting, lane: usize) {
        let need = waiting.need;
        self.tokens_left += u64::from(waiting.few);
        let (declared, hint, left) = (waiting.declared, waiting.hint, waiting.few);
        let running = Running { lane, arrived: waiting.arrived, need, declared, hint, seen: 0, left, last: now };
        self.running.insert(waiting.id, running);
    }

    /// It starts anew, elsewhere.
    pub(super) fn restarted(&mut self, now: Tick, id: RequestId) {
        if let Some(running) = self.running.get_mut(&id) {
            running.last = now;
        }
    }

    pub(super) fn observe(
        &mut self,
        now: Tick,
        id: RequestId,
        observation: Observation,
        queue: &mut Queue,
        lengths: &Lengths,
    ) {
        let streams = self.running.len();
        let Some(running) = self.running.get_mut(&id) else { return };
        running.seen = running.seen.saturating_add(observation.tokens);
        running.last = now;
        let left = tokens_left(running.declared, running.lane, running.hint, running.seen, lengths);
        self.tokens_left = self.tokens_left - u64::from(running.left) + u64::from(left);
        running.left = left;
        if let Some(gap) = observation.gap
            && observation.tokens > 0
            && !self.follows
        {
            self.tpot.observe(Span::from_nanos(gap.as_nanos() / u64::from(observation.tokens)), streams);
            self.rejudge_if_moved(queue);
        }
    }

    /// From here on goes by a pace that is measured elsewhere.
    pub(super) fn follow(&mut self, pace: Span, queue: &mut Queue) {
        self.follows = true;
        self.tpot.set(pace);
        self.rejudge_if_moved(queue);
    }

    pub(super) fn ended(&mut self, id: RequestId, queue: &mut Queue) {
        let Some(running) = self.running.remove(&id) else { return };
        self.tokens_left -= u64::from(running.left);
        if self.running.is_empty() && !self.follows {
            // The next one finds an idle engine.
            self.tpot.reset();
        }
        self.rejudge_if_moved(queue);
    }

    /// Judges what waits anew if the pace has moved: a part of it now, and the rest with later inputs, so that none
    /// takes long. What has not had its turn goes by the pace before.
    fn rejudge_if_moved(&mut self, queue: &mut Queue) {
        let tpot = self.tpot.get();
        let mut count = AT_A_TIME;
        if tpot.as_nanos().abs_diff(self.judged.as_nanos()) > self.judged.as_nanos() / REJUDGE {
            self.judged = tpot;
            self.unjudged = queue.len();
            count = AT_ONCE;
        }
        let mut count = count.min(self.unjudged).min(queue.len());
        self.unjudged = self.unjudged.min(queue.len()) - count;
        let judge = |lane, w: &Waiting| self.rejudge(w, lane);
        let mut from = self.next_judged;
        while count > 0 {
            let (done, next) = queue.rejudge_some(from, count, judge);
            count -= done;
            // After the last the first is next.
            from = next.unwrap_or(FIRST);
        }
        self.next_judged = from;
    }
}

/// Tokens that a running answer still has to give, as declared or as most answers have.
fn tokens_left(declared: Option<u32>, lane: usize, hint: Option<u32>, seen: u32, lengths: &Lengths) -> u32 {
    match declared {
        Some(length) => length.saturating_sub(seen),
        None => lengths.of(lane, None, hint).few_after(seen),
    }
}

impl Running {
    /// When its seat will be free.
    fn end(&self, cost: &CostModel, tpot: Span) -> Tick {
        // A server that gives more than was declared is taken to be at its last token.
        let left = u64::from(self.left.max(1));
        if self.seen == 0 {
            self.last + cost.ttft(&self.need, tpot) + tpot * (left - 1)
        } else {
            self.last + tpot * left
        }
    }
}
