//! Other rules for what waits.

use super::{Lane, Over, Queue, Waiting};
use crate::sched::order::Order;
use crate::sched::{Offer, TenantPolicy};
use crate::time::Span;

impl Waiting {
    /// The offer that it came as.
    pub(in crate::sched) fn offer(&self) -> Offer {
        Offer {
            tenant: self.tenant,
            bytes: self.bytes,
            class: self.asked.class,
            budget: self.asked.budget,
            input: self.need.input,
            output: self.declared,
            hint: self.hint,
            slo: self.need.slo,
            affinity: self.affinity,
            again: self.asked.again,
        }
    }
}

impl Lane {
    /// What waits and runs stays, also what is more than the new bounds.
    fn reload(&mut self, policy: &TenantPolicy) {
        let over = Over { permits: self.in_use, queued: self.waiting.len(), bytes: self.bytes };
        self.class = policy.class;
        self.max_permits = policy.max_permits;
        self.max_queued = policy.max_queued;
        self.max_queued_bytes = policy.max_queued_bytes;
        self.ranked_by = policy.slo;
        self.on_miss = policy.on_miss;
        self.over = over;
    }
}

impl Queue {
    /// Goes by other rules and tenants from here on, and hands out all that waits, to be put back as these see it.
    ///
    /// Tenants are known by their place: those that are not in the list stay as they are, further ones are added.
    pub(in crate::sched) fn reload(
        &mut self,
        order: Order,
        guard: Span,
        tenants: &[TenantPolicy],
    ) -> impl Iterator<Item = Waiting> + use<> {
        self.guard = guard;
        self.order.reload(order, tenants.iter().map(|t| t.weight));
        for (i, (lane, policy)) in self.lanes.iter_mut().zip(tenants).enumerate() {
            let held_back = !lane.may_start();
            lane.reload(policy);
            if held_back && lane.may_start() {
                // As when a permit comes back: its own cap earned it no credit.
                self.order.became_eligible(i);
            }
        }
        self.lanes.extend(tenants.iter().skip(self.lanes.len()).map(Lane::new));
        self.heads.clear();
        self.expiries.clear();
        self.work.clear();
        for lane in &mut self.lanes {
            lane.waiting.clear();
            lane.listed = None;
        }
        std::mem::take(&mut self.items).into_values()
    }

    /// Puts back what waits, as the rules of this moment see it.
    pub(in crate::sched) fn put_back(&mut self, all: Vec<Waiting>) {
        for waiting in all {
            self.index(self.lane_of(waiting.tenant), &waiting);
            self.items.insert(waiting.id, waiting);
        }
        for lane in 0..self.lanes.len() {
            self.relist(lane);
        }
    }

    /// Whether work of any tenant may be cut.
    pub(in crate::sched) fn aborts(&self) -> bool {
        self.lanes.iter().any(|lane| lane.on_miss == crate::sched::OnMiss::Abort)
    }
}
