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
    /// The most value lost by waiting for one more second first, by weight and expected seat time; see
    /// [`Settings::predict`](super::Settings::predict), without which nothing is known to be lost.
    Value,
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
            Self::Value => "value",
        }
    }

    /// Whether it goes by predictions.
    #[must_use]
    pub const fn predicts(self) -> bool {
        matches!(self, Self::LeastSlack | Self::Value)
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

/// What a tenant was charged at a dispatch.
#[derive(Copy, Clone, Debug)]
pub(super) struct Charge {
    pub(super) cost: Span,
    /// Its weight then.
    weight: NonZeroU32,
    /// The tenant's turn at being eligible in which that was.
    turn: u64,
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

/// The finish tag of a tenant's last dispatched request, which is where its next one starts:
/// `max(floor, base) + since`.
///
/// It is kept in parts, because real costs become known after later dispatches: what is settled then must not
/// move the tag below where the tenant became eligible.
#[derive(Debug)]
struct Tags {
    weight: NonZeroU32,
    /// Where the tenant became eligible last.
    floor: VirtualTime,
    /// Its finish tag then.
    base: VirtualTime,
    /// What it was charged since.
    since: VirtualTime,
    /// How often it became eligible.
    turn: u64,
}

impl Tags {
    fn new(weight: NonZeroU32) -> Self {
        let zero = VirtualTime::default();
        Self { weight, floor: zero, base: zero, since: zero, turn: 0 }
    }

    fn turn_begins(&mut self, now: VirtualTime) {
        self.base = self.next();
        (self.floor, self.since) = (now, VirtualTime::default());
        self.turn += 1;
    }

    fn next(&self) -> VirtualTime {
        VirtualTime(self.floor.max(self.base).0.saturating_add(self.since.0))
    }
}

impl OrderState {
    pub(super) fn new(order: Order, weights: impl Iterator<Item = NonZeroU32>) -> Self {
        let zero = VirtualTime::default();
        Self { order, now: zero, latest: zero, lanes: weights.map(Tags::new).collect() }
    }

    /// Goes by another rule and other weights from here on. Lanes that have no weight yet are added; those for which
    /// there is none any more keep theirs.
    ///
    /// Under the same rule what each tenant has had still counts. Another rule finds all of them level: what was
    /// shared out by other rules is neither a credit nor a debt.
    pub(super) fn reload(&mut self, order: Order, mut weights: impl Iterator<Item = NonZeroU32>) {
        for (tags, weight) in self.lanes.iter_mut().zip(&mut weights) {
            tags.weight = weight;
        }
        self.lanes.extend(weights.map(Tags::new));
        if std::mem::replace(&mut self.order, order) == order {
            return;
        }
        self.now = self.now.max(self.latest);
        for tags in &mut self.lanes {
            tags.turn_begins(self.now);
        }
    }

    /// Nothing runs or waits: a busy period is over, and what was used in it took nothing from anybody
    /// who comes later.
    pub(super) fn became_idle(&mut self) {
        self.now = self.now.max(self.latest);
    }

    /// The tenant's queue was empty, or the tenant at its cap, and is not any more.
    pub(super) fn became_eligible(&mut self, lane: usize) {
        self.lanes[lane].turn_begins(self.now);
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn weight(&self, lane: usize) -> NonZeroU32 {
        self.lanes[lane].weight
    }

    /// The start tag of a tenant's first waiting request.
    pub(super) fn start_tag(&self, lane: usize) -> VirtualTime {
        self.lanes[lane].next()
    }

    /// Where the next request of a tenant would start that has none waiting.
    pub(super) fn start_tag_if_idle(&self, lane: usize) -> VirtualTime {
        self.now.max(self.lanes[lane].next())
    }

    /// Where a tenant's request starts that comes after one of so much.
    pub(super) fn tag_after(&self, lane: usize, tag: VirtualTime, cost: Span) -> VirtualTime {
        tag.after(cost, self.lanes[lane].weight)
    }

    /// The tenant's head is dispatched and costs so much.
    pub(super) fn dispatched(&mut self, lane: usize, cost: Span) -> Charge {
        let tags = &mut self.lanes[lane];
        self.now = self.now.max(tags.next());
        tags.since = tags.since.after(cost, tags.weight);
        self.latest = self.latest.max(tags.next());
        Charge { cost, weight: tags.weight, turn: tags.turn }
    }

    /// What was charged turned out to cost so much: the difference goes on the tenant's tag, up or down.
    ///
    /// Between two tenants the bound of fair queueing then holds for real costs, wider by the differences of what
    /// runs at one moment.
    pub(super) fn settle(&mut self, lane: usize, charge: Charge, cost: Span) {
        let tags = &mut self.lanes[lane];
        let part = if charge.turn == tags.turn { &mut tags.since } else { &mut tags.base };
        let (was, is) = (VirtualTime::default().after(charge.cost, charge.weight), part.after(cost, charge.weight));
        *part = VirtualTime(is.0.saturating_sub(was.0));
        self.latest = self.latest.max(tags.next());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    fn ns(n: u64) -> Span {
        Span::from_nanos(n)
    }

    fn tag(n: u64) -> VirtualTime {
        VirtualTime::default().after(ns(n), ONE)
    }

    /// Tenant 0 was charged 10 ns, had nothing for a while, and waits again from virtual time 100 on.
    fn back_at_100() -> (OrderState, Charge) {
        let mut state = OrderState::new(Order::Wfq, [ONE, ONE].into_iter());
        state.became_eligible(0);
        let charge = state.dispatched(0, ns(10));
        state.became_eligible(1);
        state.dispatched(1, ns(100));
        state.dispatched(1, ns(100));
        state.became_eligible(0);
        assert_eq!(state.start_tag(0), tag(100));
        (state, charge)
    }

    #[test]
    fn what_is_settled_of_an_earlier_turn_counts_only_beyond_where_the_tenant_came_back() {
        for (cost, next) in [(1, 100), (60, 100), (100, 100), (130, 130)] {
            let (mut state, charge) = back_at_100();
            state.settle(0, charge, ns(cost));
            assert_eq!(state.start_tag(0), tag(next), "10 ns turned out to be {cost}");
        }
    }

    #[test]
    fn what_is_settled_of_an_earlier_turn_takes_nothing_from_what_was_charged_since() {
        for (cost, next) in [(1, 130), (60, 130), (130, 160)] {
            let (mut state, charge) = back_at_100();
            let own = state.dispatched(0, ns(30));
            state.settle(0, charge, ns(cost));
            assert_eq!(state.start_tag(0), tag(next), "10 ns turned out to be {cost}");
            state.settle(0, own, ns(20));
            assert_eq!(state.start_tag(0), tag(next - 10));
        }
    }
}
