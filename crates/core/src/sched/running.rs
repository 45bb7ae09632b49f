//! The requests that hold a ticket, and the deadlines of those that are to be cut when they are lost.

use std::collections::{BTreeMap, BTreeSet};

use super::OnMiss;
use super::estimate::Need;
use super::lengths::{Lengths, Tracked};
use super::order::Charge;
use super::queue::Waiting;
use crate::ids::{BackendId, RequestId, TenantId};
use crate::time::{Span, Tick};

/// A request that runs.
#[derive(Debug)]
pub(super) struct Work {
    /// Where it runs, or has failed.
    pub(super) backend: BackendId,
    /// Whether it has failed there and has no other place yet.
    pub(super) moving: bool,
    pub(super) tenant: TenantId,
    pub(super) charge: Charge,
    /// Answer tokens that were observed.
    pub(super) seen: u32,
    /// The seat time that is left of it, as expected.
    pub(super) left: Span,
    pub(super) tracked: Tracked,
    pub(super) arrived: Tick,
    pub(super) need: Need,
    /// Answer tokens, where it declared them.
    pub(super) declared: Option<u32>,
    pub(super) hint: Option<u32>,
    /// When it must have ended.
    ends_by: Option<Tick>,
    /// Its entry among the deadlines.
    armed: Option<Tick>,
}

/// All that runs.
#[derive(Debug, Default)]
pub(super) struct Running {
    all: BTreeMap<RequestId, Work>,
    /// When deadlines are lost: one nanosecond after the last moment at which they could be met.
    lost: BTreeSet<(Tick, RequestId)>,
    /// Those that have failed on one backend and wait for another.
    moving: BTreeSet<RequestId>,
}

impl Running {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Requests that wait for another backend.
    pub(super) fn moving(&self) -> impl Iterator<Item = (RequestId, &Work)> {
        self.moving.iter().filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// What holds a permit: where, and what is left of it.
    pub(super) fn placed(&self) -> impl Iterator<Item = (BackendId, Span)> {
        self.all.values().filter(|w| !w.moving).map(|w| (w.backend, w.left))
    }

    pub(super) fn start(
        &mut self,
        waiting: &Waiting,
        backend: BackendId,
        left: Span,
        charge: Charge,
        on_miss: OnMiss,
        tracked: Tracked,
    ) {
        let arrived = waiting.arrived;
        let lost = |limit: Option<Span>| limit.filter(|_| on_miss == OnMiss::Abort).map(|l| arrived + l + NANOSECOND);
        let (first, ends_by) = (lost(waiting.need.slo.ttft), lost(waiting.need.slo.e2e));
        let Waiting { tenant, need, declared, hint, .. } = *waiting;
        let armed = [first, ends_by].into_iter().flatten().min();
        self.lost.extend(armed.map(|at| (at, waiting.id)));
        let (moving, seen) = (false, 0);
        let work = Work {
            backend,
            moving,
            tenant,
            charge,
            seen,
            left,
            tracked,
            arrived,
            need,
            declared,
            hint,
            ends_by,
            armed,
        };
        self.all.insert(waiting.id, work);
    }

    /// Answer tokens came. Tells where, what was left before and what is now, if any did.
    pub(super) fn observe(
        &mut self,
        id: RequestId,
        tokens: u32,
        lengths: &mut Lengths,
        pace: impl FnOnce(BackendId) -> Span,
    ) -> Option<(BackendId, Span, Span)> {
        let work = self.all.get_mut(&id)?;
        let first = work.seen == 0 && tokens > 0;
        work.seen = work.seen.saturating_add(tokens);
        lengths.seen(&mut work.tracked, work.seen);
        if first && let Some(at) = work.armed {
            self.lost.remove(&(at, id));
            work.armed = work.ends_by;
            self.lost.extend(work.armed.map(|at| (at, id)));
        }
        if tokens == 0 || work.moving {
            return None;
        }
        // What gives more than expected is taken to be at its last token.
        let left = pace(work.backend) * u64::from(work.need.output.saturating_sub(work.seen).max(1));
        let before = std::mem::replace(&mut work.left, left);
        Some((work.backend, before, left))
    }

    /// It has failed where it ran, and waits for another place.
    pub(super) fn fail(&mut self, id: RequestId) -> Option<(BackendId, Span)> {
        let work = self.all.get_mut(&id)?;
        work.moving = true;
        self.moving.insert(id);
        Some((work.backend, work.left))
    }

    /// It has another place, where so much is left of it.
    pub(super) fn place(&mut self, id: RequestId, backend: BackendId, left: Span) {
        self.moving.remove(&id);
        if let Some(work) = self.all.get_mut(&id) {
            (work.moving, work.backend, work.left) = (false, backend, left);
        }
    }

    pub(super) fn is_moving(&self, id: RequestId) -> bool {
        self.moving.contains(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&RequestId, &Work)> {
        self.all.iter()
    }

    pub(super) fn end(&mut self, id: RequestId) -> Option<Work> {
        let work = self.all.remove(&id)?;
        self.moving.remove(&id);
        if let Some(at) = work.armed {
            self.lost.remove(&(at, id));
        }
        Some(work)
    }

    /// When the next deadline is lost.
    pub(super) fn next_lost(&self) -> Option<Tick> {
        self.lost.first().map(|(at, _)| *at)
    }

    /// Takes the deadline that was lost first, so that it is told once.
    pub(super) fn pop_lost(&mut self, now: Tick) -> Option<RequestId> {
        let &(at, id) = self.lost.first().filter(|(at, _)| *at <= now)?;
        self.lost.remove(&(at, id));
        if let Some(work) = self.all.get_mut(&id) {
            (work.armed, work.ends_by) = (None, None);
        }
        Some(id)
    }

    /// Whether every deadline is that of work that runs, and all that moves is known to.
    pub(super) fn audit(&self) -> bool {
        let moves = |id: &RequestId| self.all.get(id).is_some_and(|w| w.moving);
        let moving = self.all.values().filter(|w| w.moving).count();
        if moving != self.moving.len() || !self.moving.iter().all(moves) {
            return false;
        }
        let armed = self.all.values().filter(|w| w.armed.is_some()).count();
        let of_work = |(at, id): &(Tick, RequestId)| self.all.get(id).is_some_and(|w| w.armed == Some(*at));
        armed == self.lost.len() && self.lost.iter().all(of_work)
    }
}

const NANOSECOND: Span = Span::from_nanos(1);
