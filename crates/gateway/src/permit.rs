//! The right to one seat of one backend, as a value.

use std::sync::Arc;

use elasticserve_core::ids::BackendId;
use elasticserve_core::outcome::How;
use elasticserve_core::sched::{Observation, Ticket, Used};
use elasticserve_core::time::Span;

use crate::admit::Admission;

/// A permit. Released by [`Permit::release`], or by being dropped: a future or body that is dropped
/// unfinished means that the client has gone.
#[derive(Debug)]
#[must_use = "dropping a permit gives it back"]
pub(crate) struct Permit {
    ticket: Option<Ticket>,
    backend: BackendId,
    waited: Span,
    admission: Arc<Admission>,
}

impl Permit {
    pub(crate) fn new(ticket: Ticket, admission: Arc<Admission>) -> Self {
        Self { backend: ticket.backend(), waited: ticket.waited(), ticket: Some(ticket), admission }
    }

    pub(crate) fn backend(&self) -> BackendId {
        self.backend
    }

    pub(crate) fn waited(&self) -> Span {
        self.waited
    }

    /// Answer tokens came, so long after the ones before them.
    pub(crate) fn observe(&self, tokens: u32, gap: Option<Span>) {
        if let Some(ticket) = &self.ticket {
            self.admission.observe(ticket.id(), Observation { tokens, gap });
        }
    }

    /// Gives the permit back and says how its work ended and what it took.
    pub(crate) fn release(mut self, how: How, used: Used) {
        self.give_back(how, used);
    }

    fn give_back(&mut self, how: How, used: Used) {
        if let Some(ticket) = self.ticket.take() {
            self.admission.release(ticket, how, used);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { How::Abandoned } else { How::ClientGone };
        self.give_back(how, Used::default());
    }
}
