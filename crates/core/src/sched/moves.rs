//! Backends that come, change and go, and requests that go from one to another.

use super::backends::Wanted;
use super::estimate::Need;
use super::{Action, BackendPolicy, Scheduler, Ticket, Used};
use crate::ids::BackendId;
use crate::outcome::How;
use crate::time::{Span, Tick};

impl Scheduler {
    /// Takes a ticket back whose backend has failed before anything of the answer came, and gives the request another
    /// backend as soon as there is a free permit: it goes before all that waits. It is granted again, stranded, or
    /// withdrawn; its tenant is charged once.
    ///
    /// # Errors
    /// The ticket, if no other backend takes work.
    pub fn fail_over(&mut self, now: Tick, ticket: Ticket) -> Result<(), Ticket> {
        if !self.backends.any_open_but(ticket.backend) {
            return Err(ticket);
        }
        if let Some((backend, left)) = self.running.fail(ticket.id) {
            self.backends.ended(backend, left);
        }
        if let Some(forecast) = &mut self.forecast {
            forecast.restarted(now, ticket.id);
        }
        Ok(())
    }

    /// Changes what a backend may be given now: its permits, and whether new work may go there. Work that runs keeps its
    /// permit; a backend that holds more than it now may gets no more until enough has ended.
    pub fn set_backend(&mut self, _now: Tick, id: BackendId, permits: u32, up: bool) {
        self.backends.set(id, permits, up);
    }

    /// Changes how a backend is compared with the others. What it may be given now is for
    /// [`Scheduler::set_backend`] to say.
    pub fn change_backend(&mut self, _now: Tick, id: BackendId, policy: BackendPolicy) {
        self.backends.change(id, policy);
    }

    /// Adds a backend that is up. `None` if there are [`MAX_BACKENDS`](super::MAX_BACKENDS) already.
    pub fn add_backend(&mut self, _now: Tick, policy: BackendPolicy) -> Option<BackendId> {
        self.backends.add(policy)
    }

    /// Removes a backend: it gets no more work, and what runs there may end. Its number means it until then, and may
    /// then be that of another one.
    pub fn remove_backend(&mut self, _now: Tick, id: BackendId) {
        self.backends.remove(id);
    }

    /// Permits in use and in total, of one backend; zero of zero for one that does not exist.
    #[must_use]
    pub fn permits(&self, id: BackendId) -> (u32, u32) {
        self.backends.permits(id)
    }

    /// The predicted seat time that is left of all that runs on one backend.
    #[must_use]
    pub fn work_on(&self, id: BackendId) -> Span {
        self.backends.work(id)
    }

    /// Gives the next request that failed over another backend, or up if there is none.
    pub(super) fn find_another(&mut self, now: Tick) -> Option<Action> {
        let may_go = |backend| self.backends.any_free_but(backend) || !self.backends.any_open_but(backend);
        let (id, work) = self.running.moving().find(|(_, work)| may_go(work.backend))?;
        let (tenant, waited) = (work.tenant, now.since(work.arrived));
        // Where its session or its prompt is known, it has just failed.
        let Need { input, output, .. } = work.need;
        let wanted = Wanted { input, output, affinity: None, slack: Span::ZERO };
        let Some(backend) = self.backends.pick(&wanted, self.cost, Some(work.backend)) else {
            self.end(now, id, How::BackendFailed, Used::default());
            return Some(Action::Strand(id));
        };
        let left = self.backends.cost(backend, self.cost).seat_time(wanted.input, wanted.output);
        self.backends.started(backend, left);
        self.running.place(id, backend, left);
        self.totals.moved += 1;
        Some(Action::Grant(Ticket { id, backend, tenant, granted: now, waited, moved: true }))
    }
}

#[cfg(test)]
mod tests;
