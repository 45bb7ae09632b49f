//! The right to one seat of one backend, as a value.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use elasticserve_core::ids::BackendId;
use elasticserve_core::outcome::How;
use elasticserve_core::sched::{Observation, Ticket, Used, Word};
use elasticserve_core::time::Span;

use crate::admit::{Admission, Waiting};
use crate::sync::oneshot;

/// A permit. Released by [`Permit::release`], or by being dropped: a future or body that is dropped
/// unfinished means that the client has gone.
#[derive(Debug)]
#[must_use = "dropping a permit gives it back"]
pub(crate) struct Permit {
    ticket: Option<Ticket>,
    backend: BackendId,
    waited: Span,
    /// Comes when the deadline of its work is lost and the work is to be cut.
    lost: Option<oneshot::Receiver<()>>,
    admission: Arc<Admission>,
}

impl Permit {
    pub(crate) fn new(ticket: Ticket, lost: Option<oneshot::Receiver<()>>, admission: Arc<Admission>) -> Self {
        Self { backend: ticket.backend(), waited: ticket.waited(), ticket: Some(ticket), lost, admission }
    }

    pub(crate) fn backend(&self) -> BackendId {
        self.backend
    }

    pub(crate) fn waited(&self) -> Span {
        self.waited
    }

    /// Gives the permit back because its backend failed before anything of the answer came, and waits for one of
    /// another backend.
    ///
    /// # Errors
    /// The permit, if no other backend takes work.
    pub(crate) fn fail_over(mut self) -> Result<Waiting, Self> {
        let Some(ticket) = self.ticket.take() else { return Err(self) };
        self.admission.fail_over(ticket).map_err(|ticket| {
            self.ticket = Some(ticket);
            self
        })
    }

    /// Answer tokens came, so long after the ones before them.
    pub(crate) fn observe(&self, tokens: u32, gap: Option<Span>) {
        if let Some(ticket) = &self.ticket {
            self.admission.observe(ticket.id(), Observation { tokens, gap });
        }
    }

    /// Ready once its work is to be cut.
    pub(crate) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(lost) = &mut self.lost else { return Poll::Pending };
        match Pin::new(lost).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(_)) => {
                self.lost = None;
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Gives the permit back, says how its work ended and what it took, and tells what the shadow policy had
    /// decided by then.
    pub(crate) fn release(mut self, how: How, used: Used) -> Option<Word> {
        self.give_back(how, used)
    }

    fn give_back(&mut self, how: How, used: Used) -> Option<Word> {
        self.ticket.take().and_then(|ticket| self.admission.release(ticket, how, used))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { How::Abandoned } else { How::ClientGone };
        self.give_back(how, Used::default());
    }
}
