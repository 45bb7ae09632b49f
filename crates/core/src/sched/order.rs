//! Who goes next among the tenants' first waiting requests.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// A rule for who goes next.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// First come, first served, over all tenants.
    #[default]
    Fcfs,
    /// Start-time fair queueing over tenants by weight (Goyal, Vin and Cheng 1996; with several seats
    /// Jin, Chase and Kaur 2004), the cost being the seat time of a request.
    ///
    /// Tags belong to a tenant's place at the head, not to a request, and are charged at dispatch. So
    /// requests that are cancelled, expire or are refused leave nothing to refund.
    Wfq,
    /// Strict by the tenants' classes, but nothing waits behind later arrivals for longer than its class
    /// times [`Settings::guard`](super::Settings::guard).
    Priority,
    /// The earliest latest start first.
    LeastSlack,
    /// The least seat time first, for deep overload.
    ShortestFirst,
}

impl Order {
    /// The name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Wfq => "wfq",
            Self::Priority => "priority",
            Self::LeastSlack => "least-slack",
            Self::ShortestFirst => "shortest-first",
        }
    }

    /// Whether it goes by predictions.
    #[must_use]
    pub const fn predicts(self) -> bool {
        matches!(self, Self::LeastSlack)
    }
}

/// A point in the virtual time of fair queueing: nanoseconds of seat time per unit of weight, times
/// [`VirtualTime::SCALE`] so that division by a weight loses nothing that matters and even one
/// nanosecond for the greatest weight moves it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VirtualTime(pub(super) u128);

impl VirtualTime {
    const SCALE: u128 = 1 << 32;

    fn after(self, cost: Span, weight: NonZeroU32) -> Self {
        let step = u128::from(cost.as_nanos()) * Self::SCALE / u128::from(weight.get());
        Self(self.0.saturating_add(step))
    }
}

/// The rule's memory: nothing for [`Order::Fcfs`], the tags for [`Order::Wfq`].
#[derive(Debug)]
pub(super) struct OrderState {
    order: Order,
    /// The start tag of the last dispatched request.
    now: VirtualTime,
    /// The greatest finish tag so far.
    latest: VirtualTime,
    lanes: Vec<Tags>,
}

#[derive(Debug)]
struct Tags {
    weight: NonZeroU32,
    /// Where the tenant's next request may start at the earliest.
    finish: VirtualTime,
    /// Where the tenant's first waiting request starts.
    start: VirtualTime,
}

impl OrderState {
    pub(super) fn new(order: Order, weights: impl Iterator<Item = NonZeroU32>) -> Self {
        let tags = |weight| Tags { weight, finish: VirtualTime::default(), start: VirtualTime::default() };
        Self { order, now: VirtualTime::default(), latest: VirtualTime::default(), lanes: weights.map(tags).collect() }
    }

    /// Nothing runs or waits: a busy period is over, and what was used in it took nothing from anybody
    /// who comes later.
    pub(super) fn became_idle(&mut self) {
        self.now = self.now.max(self.latest);
    }

    /// The tenant's queue was empty, or the tenant at its cap, and is not any more.
    pub(super) fn became_eligible(&mut self, lane: usize) {
        let now = self.now;
        let tags = &mut self.lanes[lane];
        tags.start = now.max(tags.finish);
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// The start tag of a tenant's first waiting request.
    pub(super) fn start_tag(&self, lane: usize) -> VirtualTime {
        self.lanes[lane].start
    }

    /// The tenant's head is dispatched and costs so much.
    pub(super) fn dispatched(&mut self, lane: usize, cost: Span) {
        let tags = &mut self.lanes[lane];
        self.now = self.now.max(tags.start);
        tags.finish = tags.start.after(cost, tags.weight);
        self.latest = self.latest.max(tags.finish);
        // Valid only while more waits; `became_eligible` sets it anew otherwise.
        tags.start = tags.finish;
    }
}
