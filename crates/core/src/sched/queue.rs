//! The requests that wait: one lane per tenant, ordered within and between.
//!
//! All operations cost the logarithm of what waits. Nothing dead is kept: what is cancelled or
//! expires leaves every index at once.

mod ahead;
mod reload;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use super::estimate::Need;
use super::order::{Charge, Order, OrderState, VirtualTime};
use super::rate::ReleaseRate;
use super::{AuditError, OnMiss, TenantLimit, TenantLoad, TenantPolicy};
use crate::ids::{RequestId, TenantId};
use crate::slo::Slo;
use crate::time::{Span, Tick};

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) id: RequestId,
    pub(super) tenant: TenantId,
    pub(super) asked: Asked,
    pub(super) bytes: u64,
    pub(super) cost: Span,
    /// 0 the first, never before its tenant's.
    pub(super) class: u32,
    pub(super) arrived: Tick,
    /// When its wait limit ends.
    pub(super) budget_ends: Option<Tick>,
    pub(super) need: Need,
    /// Answer tokens, where it declares them.
    pub(super) declared: Option<u32>,
    pub(super) hint: Option<u32>,
    /// The answer tokens that it must have time for.
    pub(super) reach: u32,
    /// The answer tokens that it is taken to have when others are told what goes before them.
    pub(super) few: u32,
    /// How long it is then taken to hold a seat.
    pub(super) brief: Span,
    /// When a start becomes too late for its limits, at the pace of the last look.
    pub(super) latest: Option<Tick>,
    /// The limits that its place under [`Order::LeastSlack`] goes by, if not its own.
    pub(super) ranked_by: Option<Slo>,
    /// When a start becomes too late for those.
    pub(super) rank: Option<Tick>,
    /// What it shares with others that are better off on the same backend.
    pub(super) affinity: Option<u64>,
    /// Whether it goes after all of its tenant's that do not.
    pub(super) behind: bool,
}

/// What a request asks for, of which its tenant and the settings make what it gets.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) class: Option<u32>,
    pub(super) budget: Option<Span>,
    pub(super) again: bool,
}

/// What was above its bounds when these were lowered, and may be until it has ended.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Over {
    pub(super) permits: u32,
    pub(super) queued: usize,
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct Lane {
    /// In the order in which they go.
    waiting: BTreeSet<(u64, RequestId)>,
    class: u32,
    in_use: u32,
    /// How fast its permits come back while it waits for more.
    releases: ReleaseRate,
    max_permits: Option<u32>,
    max_queued: Option<u32>,
    max_queued_bytes: Option<u64>,
    /// Bytes of bodies that wait.
    bytes: u64,
    ranked_by: Option<Slo>,
    on_miss: OnMiss,
    over: Over,
    /// This lane's entry in `heads`, if it has one.
    listed: Option<Head>,
}

/// Requests that are looked at for each grant under [`Order::Value`].
const LOOKED_AT: usize = 256;
/// Set in the place of what goes behind. Other places end before it, which is 292 years away.
const BEHIND: u64 = 1 << 63;

type Head = (VirtualTime, RequestId, TenantId);

impl Waiting {
    /// What it must have time for.
    pub(super) fn promised(&self) -> Need {
        self.need.with_output(self.reach)
    }

    /// Its place, given the one that it had if it did not go behind.
    fn placed(&self, place: u64) -> u64 {
        place.min(BEHIND - 1) | if self.behind { BEHIND } else { 0 }
    }

    fn expires(&self) -> Option<Tick> {
        [self.budget_ends, self.latest].into_iter().flatten().min()
    }
}

impl Over {
    pub(super) fn fell(&mut self, permits: u32, queued: usize, bytes: u64) {
        self.permits = self.permits.min(permits);
        self.queued = self.queued.min(queued);
        self.bytes = self.bytes.min(bytes);
    }
}

impl Lane {
    fn new(policy: &TenantPolicy) -> Self {
        Self {
            waiting: BTreeSet::new(),
            class: policy.class,
            in_use: 0,
            releases: ReleaseRate::default(),
            max_permits: policy.max_permits,
            max_queued: policy.max_queued,
            max_queued_bytes: policy.max_queued_bytes,
            bytes: 0,
            ranked_by: policy.slo,
            on_miss: policy.on_miss,
            over: Over::default(),
            listed: None,
        }
    }

    /// Something of it ended: what is above the bounds still, at most.
    fn fell(&mut self) {
        self.over.fell(self.in_use, self.waiting.len(), self.bytes);
    }

    fn may_start(&self) -> bool {
        self.max_permits.is_none_or(|max| self.in_use < max)
    }

    fn is_within_bounds(&self) -> bool {
        self.max_permits.is_none_or(|max| self.in_use <= max.max(self.over.permits))
            && self.max_queued.is_none_or(|max| self.waiting.len() <= (max as usize).max(self.over.queued))
            && self.max_queued_bytes.is_none_or(|max| self.bytes <= max.max(self.over.bytes))
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    items: BTreeMap<RequestId, Waiting>,
    lanes: Vec<Lane>,
    /// The first request of each tenant that may start one.
    heads: BTreeSet<Head>,
    expiries: BTreeSet<(Tick, RequestId)>,
    order: OrderState,
    /// How long a class may hold back what came before it.
    guard: Span,
    /// The seat time of what waits, by size of bucket and bucket of their places.
    work: BTreeMap<(u32, u64), Span>,
    bytes: u64,
    /// Permits in use, over all tenants.
    running: u32,
}

impl Queue {
    pub(super) fn new(order: Order, guard: Span, tenants: &[TenantPolicy]) -> Self {
        // There is always a lane for a tenant that is not in the list.
        let fallback = [TenantPolicy::default()];
        let tenants = if tenants.is_empty() { &fallback[..] } else { tenants };
        Self {
            items: BTreeMap::new(),
            lanes: tenants.iter().map(Lane::new).collect(),
            heads: BTreeSet::new(),
            expiries: BTreeSet::new(),
            order: OrderState::new(order, tenants.iter().map(|t| t.weight)),
            guard,
            work: BTreeMap::new(),
            bytes: 0,
            running: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn load(&self, tenant: TenantId) -> TenantLoad {
        let lane = &self.lanes[self.lane_of(tenant)];
        TenantLoad { queued: lane.waiting.len(), queued_bytes: lane.bytes, in_use: lane.in_use }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn next_expiry(&self) -> Option<Tick> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Whether a request of `tenant` would be granted the next free permit.
    pub(super) fn would_be_next(&self, tenant: TenantId) -> bool {
        self.heads.is_empty() && self.lanes[self.lane_of(tenant)].may_start()
    }

    /// The limits by which a request is ranked: the looser ones of its own and its tenant's.
    pub(super) fn ranked_by(&self, tenant: TenantId, own: &Slo) -> Option<Slo> {
        self.lanes[self.lane_of(tenant)].ranked_by.map(|tenants| tenants.or_looser(own))
    }

    pub(super) fn on_miss(&self, tenant: TenantId) -> OnMiss {
        self.lanes[self.lane_of(tenant)].on_miss
    }

    /// The class of a tenant's request that asks for one.
    pub(super) fn class(&self, tenant: TenantId, asked: Option<u32>) -> u32 {
        let own = self.lanes[self.lane_of(tenant)].class;
        asked.map_or(own, |asked| asked.max(own))
    }

    /// Whether the tenant may hold a permit at all.
    pub(super) fn may_ever_start(&self, tenant: TenantId) -> bool {
        self.lanes[self.lane_of(tenant)].max_permits != Some(0)
    }

    /// The bound of its own that a tenant would exceed with one more waiting request of so many bytes.
    pub(super) fn limit_reached(&self, tenant: TenantId, bytes: u64) -> Option<TenantLimit> {
        let lane = &self.lanes[self.lane_of(tenant)];
        let requests = lane.max_queued.filter(|max| lane.waiting.len() >= *max as usize);
        let bytes = lane.max_queued_bytes.filter(|max| lane.bytes.saturating_add(bytes) > *max);
        requests.map(TenantLimit::Queued).or(bytes.map(TenantLimit::QueuedBytes))
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        let lane = self.lane_of(waiting.tenant);
        if self.items.is_empty() && self.running == 0 {
            self.order.became_idle();
        }
        self.bytes += waiting.bytes;
        self.lanes[lane].bytes += waiting.bytes;
        if self.lanes[lane].waiting.is_empty() {
            if self.lanes[lane].in_use == 0 {
                self.lanes[lane].releases.interrupt();
            }
            self.order.became_eligible(lane);
        }
        self.index(lane, &waiting);
        self.items.insert(waiting.id, waiting);
        self.relist(lane);
    }

    pub(super) fn remove(&mut self, id: RequestId) -> Option<Waiting> {
        let waiting = self.items.remove(&id)?;
        self.bytes -= waiting.bytes;
        let lane = self.lane_of(waiting.tenant);
        self.unindex(lane, &waiting);
        self.lanes[lane].bytes -= waiting.bytes;
        self.lanes[lane].fell();
        self.relist(lane);
        Some(waiting)
    }

    /// Takes the request that goes next, or under [`Order::Value`] the one of those that expire first for which
    /// `value` is greatest, and counts a permit as held by its tenant.
    pub(super) fn pop(
        &mut self,
        value: impl Fn(&Waiting, usize, NonZeroU32, OnMiss) -> u128,
    ) -> Option<(Waiting, Charge)> {
        let &(_, first, _) = self.heads.first()?;
        let id = match self.order.order() {
            Order::Value => self.most_valuable(value).unwrap_or(first),
            _ => first,
        };
        let waiting = self.items.get(&id)?;
        let (lane, cost) = (self.lane_of(waiting.tenant), waiting.cost);
        let charge = self.order.dispatched(lane, cost);
        self.lanes[lane].in_use += 1;
        self.running += 1;
        self.remove(id).map(|waiting| (waiting, charge))
    }

    /// Of equals, the one that expires first; what goes behind only if there is nothing else.
    fn most_valuable(&self, value: impl Fn(&Waiting, usize, NonZeroU32, OnMiss) -> u128) -> Option<RequestId> {
        let looked_at = self.expiries.iter().take(LOOKED_AT).filter_map(|(_, id)| self.items.get(id));
        let may_start = looked_at.filter(|w| self.lanes[self.lane_of(w.tenant)].may_start());
        let valued = may_start.map(|w| {
            let lane = self.lane_of(w.tenant);
            ((!w.behind, value(w, lane, self.order.weight(lane), self.lanes[lane].on_miss)), w.id)
        });
        valued.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, id)| id)
    }

    /// Charges a tenant what its work turned out to cost.
    pub(super) fn settle(&mut self, tenant: TenantId, charge: Charge, cost: Span) {
        let lane = self.lane_of(tenant);
        self.order.settle(lane, charge, cost);
        self.relist(lane);
    }

    /// Takes the request that expires first.
    pub(super) fn pop_expired(&mut self) -> Option<Waiting> {
        let &(_, id) = self.expiries.first()?;
        self.remove(id)
    }

    /// Takes the request that came first.
    pub(super) fn pop_any(&mut self) -> Option<Waiting> {
        let id = *self.items.first_key_value()?.0;
        self.remove(id)
    }

    /// A permit of the tenant came back.
    pub(super) fn permit_returned(&mut self, now: Tick, tenant: TenantId) {
        let lane = self.lane_of(tenant);
        let more_waits = !self.lanes[lane].waiting.is_empty();
        self.lanes[lane].releases.record(now, more_waits);
        let held_back = !self.lanes[lane].may_start();
        self.lanes[lane].in_use -= 1;
        self.lanes[lane].fell();
        self.running -= 1;
        if held_back {
            // What its own cap kept a tenant from is no credit against the others.
            self.order.became_eligible(lane);
        }
        self.relist(lane);
    }

    /// When a further request of the tenant would get a permit, by the rate at which the tenant's own permits
    /// come back; `None` before that is known.
    pub(super) fn time_for_one_more(&self, tenant: TenantId) -> Option<Span> {
        let lane = &self.lanes[self.lane_of(tenant)];
        lane.releases.time_for(lane.waiting.len() as u64 + 1)
    }

    pub(super) fn lane_of(&self, tenant: TenantId) -> usize {
        tenant.index().min(self.lanes.len() - 1)
    }

    /// The order within a lane; equals go in order of arrival.
    fn item_key(&self, waiting: &Waiting) -> u64 {
        let key = match self.order.order() {
            Order::Fcfs | Order::Wfq => 0,
            Order::Priority => self.guarded(waiting),
            Order::LeastSlack | Order::Value => waiting.rank.or(waiting.latest).unwrap_or(Tick::MAX).as_nanos(),
            Order::ShortestFirst => waiting.cost.as_nanos(),
        };
        waiting.placed(key)
    }

    /// The order between lanes; equals go in order of arrival. What goes behind does so within its own lane only.
    fn head_key(&self, lane: usize, key: u64) -> VirtualTime {
        match self.order.order() {
            Order::Fcfs => VirtualTime::default(),
            Order::Wfq => self.order.start_tag(lane),
            Order::Priority | Order::LeastSlack | Order::ShortestFirst | Order::Value => {
                VirtualTime(u128::from(key & !BEHIND))
            }
        }
    }

    /// Judges so many anew from a request on, and says how many there were and where to go on; `None` after the last.
    /// `judge` gives the latest start of a request, and its rank.
    pub(super) fn rejudge_some(
        &mut self,
        from: RequestId,
        count: usize,
        judge: impl Fn(usize, &Waiting) -> (Option<Tick>, Option<Tick>),
    ) -> (usize, Option<RequestId>) {
        let mut ids: Vec<RequestId> = self.items.range(from..).take(count + 1).map(|(id, _)| *id).collect();
        let next = if ids.len() > count { ids.pop() } else { None };
        let done = ids.len();
        for id in ids {
            let Some(mut waiting) = self.items.remove(&id) else { continue };
            let lane = self.lane_of(waiting.tenant);
            let judged = judge(lane, &waiting);
            if judged != (waiting.latest, waiting.rank) {
                self.unindex(lane, &waiting);
                (waiting.latest, waiting.rank) = judged;
                self.index(lane, &waiting);
            }
            self.items.insert(id, waiting);
            self.relist(lane);
        }
        (done, next)
    }

    /// Enters a request into all that is ordered.
    fn index(&mut self, lane: usize, waiting: &Waiting) {
        if let Some(at) = waiting.expires() {
            self.expiries.insert((at, waiting.id));
        }
        let key = self.item_key(waiting);
        self.lanes[lane].waiting.insert((key, waiting.id));
        self.count_work(waiting);
    }

    /// Takes a request out of all that is ordered.
    fn unindex(&mut self, lane: usize, waiting: &Waiting) {
        if let Some(at) = waiting.expires() {
            self.expiries.remove(&(at, waiting.id));
        }
        let key = self.item_key(waiting);
        self.lanes[lane].waiting.remove(&(key, waiting.id));
        self.discount_work(waiting);
    }

    /// Brings the lane's entry in `heads` up to date.
    fn relist(&mut self, index: usize) {
        let lane = &self.lanes[index];
        let head = lane.waiting.first().filter(|_| lane.may_start());
        let entry = head.map(|&(key, id)| (self.head_key(index, key), id, TenantId(index as u16)));
        if entry == lane.listed {
            return;
        }
        if let Some(old) = lane.listed {
            self.heads.remove(&old);
        }
        if let Some(new) = entry {
            self.heads.insert(new);
        }
        self.lanes[index].listed = entry;
    }

    /// How many go by a pace, without caution.
    #[cfg(test)]
    pub(super) fn judged_by(&self, tpot: Span, cost: &super::CostModel) -> usize {
        let none = super::Caution { pad: Span::ZERO, margin_permille: 0 };
        let latest = |w: &Waiting| cost.latest_start(w.arrived, &w.promised(), tpot, &none);
        self.items.values().filter(|w| w.latest == latest(w)).count()
    }

    /// Whether every index agrees with the items.
    pub(super) fn audit(&self) -> Result<(), AuditError> {
        let bytes: u64 = self.items.values().map(|w| w.bytes).sum();
        let waiting: usize = self.lanes.iter().map(|l| l.waiting.len()).sum();
        let timed = self.items.values().filter(|w| w.expires().is_some()).count();
        let due = |&(at, id): &(Tick, RequestId)| self.items.get(&id).is_some_and(|w| w.expires() == Some(at));
        let listed = self.lanes.iter().filter(|l| l.may_start() && !l.waiting.is_empty()).count();
        let first = |head: &Head| {
            let lane = &self.lanes[self.lane_of(head.2)];
            let key = lane.waiting.first().map(|(key, _)| self.head_key(self.lane_of(head.2), *key));
            lane.listed == Some(*head)
                && key == Some(head.0)
                && lane.waiting.first().is_some_and(|(_, id)| *id == head.1)
                && self.items.contains_key(&head.1)
        };
        let agrees = bytes == self.bytes
            && self.audit_work()
            && waiting == self.items.len()
            && timed == self.expiries.len()
            && self.expiries.iter().all(due)
            && listed == self.heads.len()
            && self.heads.iter().all(first)
            && self.lanes.iter().map(|l| l.in_use).sum::<u32>() == self.running
            && self.lanes.iter().map(|l| l.bytes).sum::<u64>() == self.bytes
            && self.lanes.iter().all(Lane::is_within_bounds);
        if agrees { Ok(()) } else { Err(AuditError::IndexesDisagree) }
    }

    pub(super) fn has_eligible(&self) -> bool {
        !self.heads.is_empty()
    }

    pub(super) fn in_use(&self) -> u32 {
        self.running
    }
}
