//! What goes before a newcomer.

use std::collections::BTreeSet;

use super::{Queue, Waiting};
use crate::ids::RequestId;
use crate::sched::estimate::Need;
use crate::sched::order::Order;
use crate::time::Span;

/// Places that differ only in so many low bits share a bucket: 0.27 s.
const BUCKET: u32 = 28;
/// So many bits tell the buckets of a larger one apart.
const DIGIT: u32 = 6;
/// With so many sizes of buckets the largest is everything.
const SIZES: u32 = (u64::BITS - BUCKET).div_ceil(DIGIT) + 1;

impl Queue {
    /// What goes before a newcomer, in order.
    pub(in crate::sched) fn needs_ahead_of(&self, newcomer: &Waiting) -> impl Iterator<Item = Need> {
        let mut ahead = match self.order.order() {
            Order::Wfq => self.ahead_by_tag(newcomer),
            _ => self.ahead_by_place(newcomer),
        };
        ahead.sort_unstable_by_key(|(at, id, _)| (*at, *id));
        ahead.into_iter().map(|(.., need)| need)
    }

    fn ahead_by_place(&self, newcomer: &Waiting) -> Vec<(u128, RequestId, Need)> {
        let place = self.place(newcomer);
        let placed = self.items.values().map(|w| (self.place(w), w)).filter(|(at, _)| *at <= place);
        placed.map(|(at, w)| (u128::from(at), w.id, w.need.with_output(w.few))).collect()
    }

    /// Under fair queueing: each tenant's requests follow one another's tags, the newcomer the last of its own, but
    /// before those that go behind if it does not.
    fn ahead_by_tag(&self, newcomer: &Waiting) -> Vec<(u128, RequestId, Need)> {
        let own = self.lane_of(newcomer.tenant);
        let mut last = self.order.start_tag_if_idle(own);
        let mut all = Vec::with_capacity(self.items.len());
        let lanes: BTreeSet<usize> = self.items.values().map(|w| self.lane_of(w.tenant)).collect();
        for lane in lanes {
            let mut tag = self.order.start_tag(lane);
            let goes_before = |w: &&Waiting| lane != own || newcomer.behind || !w.behind;
            let waiting = self.lanes[lane].waiting.iter().filter_map(|(_, id)| self.items.get(id));
            for w in waiting.take_while(goes_before) {
                all.push((tag.0, w.id, w.need.with_output(w.few)));
                tag = self.order.tag_after(lane, tag, w.cost);
            }
            if lane == own {
                last = tag;
            }
        }
        all.retain(|(tag, ..)| *tag <= last.0);
        all
    }

    /// The seat time of what goes before a newcomer, to within a bucket: of every size those that lie
    /// before the newcomer's within the next larger one, so at most 64 of each.
    pub(in crate::sched) fn work_ahead_of(&self, newcomer: &Waiting) -> Span {
        let bucket = self.place(newcomer) >> BUCKET;
        let own = self.work.get(&(0, bucket)).copied().unwrap_or_default();
        let before = |size: u32| {
            let place = bucket >> (DIGIT * size);
            let first = place >> DIGIT << DIGIT;
            self.work.range((size, first)..(size, place)).map(|(_, work)| *work).sum::<Span>()
        };
        own + (0..SIZES).map(before).sum::<Span>()
    }

    /// Where a request stands among all that wait, smaller first. Fair queueing interleaves tenants in a
    /// way that no single number tells; arrival stands for it, which is right on average.
    pub(super) fn place(&self, waiting: &Waiting) -> u64 {
        match self.order.order() {
            Order::Fcfs | Order::Wfq => waiting.placed(waiting.arrived.as_nanos()),
            Order::Priority => waiting.placed(self.guarded(waiting)),
            Order::LeastSlack | Order::ShortestFirst | Order::Value => self.item_key(waiting),
        }
    }

    /// The arrival, put back by the guard for each class.
    pub(super) fn guarded(&self, waiting: &Waiting) -> u64 {
        (waiting.arrived + self.guard * u64::from(waiting.class)).as_nanos()
    }

    pub(super) fn count_work(&mut self, waiting: &Waiting) {
        let bucket = self.place(waiting) >> BUCKET;
        for size in 0..SIZES {
            *self.work.entry((size, bucket >> (DIGIT * size))).or_default() += waiting.brief;
        }
    }

    /// Whether the work of all is that of what waits.
    pub(super) fn audit_work(&self) -> bool {
        let all = self.work.get(&(SIZES - 1, 0)).copied().unwrap_or_default();
        all == self.items.values().map(|w| w.brief).sum::<Span>()
    }

    pub(super) fn discount_work(&mut self, waiting: &Waiting) {
        let bucket = self.place(waiting) >> BUCKET;
        for size in 0..SIZES {
            let key = (size, bucket >> (DIGIT * size));
            if let Some(work) = self.work.get_mut(&key) {
                *work = work.saturating_sub(waiting.brief);
                if *work == Span::ZERO {
                    self.work.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TenantId;
    use crate::rng::{Random, Stream};
    use crate::slo::Slo;
    use crate::time::Tick;

    #[test]
    fn the_work_ahead_is_that_of_all_that_goes_before_to_within_a_bucket() {
        let mut random = Random::new(5, Stream::Test);
        let mut queue = Queue::new(Order::LeastSlack, Span::ZERO, &[]);
        let waiting = |id, random: &mut Random| Waiting {
            id: RequestId(id),
            tenant: TenantId(0),
            asked: super::super::Asked::default(),
            bytes: 0,
            cost: Span::from_nanos(1),
            class: 0,
            arrived: Tick::ZERO,
            budget_ends: None,
            need: Need { input: 1, output: 1, slo: Slo::default() },
            declared: Some(1),
            hint: None,
            reach: 1,
            few: 1,
            brief: Span::from_nanos(random.between(1, 1000)),
            latest: Some(Tick::from_nanos(random.next_u64() >> random.between(0, 40))),
            ranked_by: None,
            rank: None,
            affinity: None,
            behind: false,
        };
        for id in 0..600 {
            queue.push(waiting(id, &mut random));
            if id % 3 == 0 {
                queue.remove(RequestId(random.between(0, id)));
            }
            let newcomer = waiting(id + 1000, &mut random);
            let place = |w: &Waiting| queue.place(w) >> BUCKET;
            let ahead = queue.items.values().filter(|w| place(w) <= place(&newcomer)).map(|w| w.brief);
            assert_eq!(queue.work_ahead_of(&newcomer), ahead.sum::<Span>());
        }
        for id in 0..600 {
            queue.remove(RequestId(id));
        }
        assert!(queue.work.is_empty());
    }
}
