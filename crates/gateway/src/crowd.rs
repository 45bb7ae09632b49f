//! The client connections that are idle, for the moment when there is no room for another one.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

/// All idle connections. There are no more than connections may be, which bounds it.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// By when they became idle, the one that has been for longest first.
    idle: Mutex<BTreeMap<u64, CancellationToken>>,
    turn: AtomicU64,
}

/// A connection: idle, but while it holds a [`Busy`].
#[derive(Debug)]
pub(crate) struct Member {
    crowd: Arc<Crowd>,
    leave: CancellationToken,
    /// Its key among the idle ones.
    place: AtomicU64,
}

/// A connection works: from a request's head to the end of its answer.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Member>);

/// The body of an answer; its connection is idle again once it is dropped.
pub(crate) struct Answering<B> {
    body: B,
    _busy: Busy,
}

impl Crowd {
    /// Another connection, over which nothing has been said yet.
    pub(crate) fn join(self: &Arc<Self>) -> Arc<Member> {
        let member = Member { crowd: Arc::clone(self), leave: CancellationToken::new(), place: AtomicU64::new(0) };
        member.rest();
        Arc::new(member)
    }

    /// Asks the connection to leave that has been idle for longest; false if none is.
    pub(crate) fn make_room(&self) -> bool {
        let first = self.lock().pop_first();
        first.map(|(_, leave)| leave.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Ends once the connection is to leave after what it does now.
    pub(crate) async fn asked_to_leave(&self) {
        self.leave.cancelled().await;
    }

    /// A request has come.
    pub(crate) fn work(self: &Arc<Self>) -> Busy {
        self.take_out();
        Busy(Arc::clone(self))
    }

    fn rest(&self) {
        // Who was asked already leaves after this answer.
        if self.leave.is_cancelled() {
            return;
        }
        let place = self.crowd.turn.fetch_add(1, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.crowd.lock().insert(place, self.leave.clone());
    }

    fn take_out(&self) {
        self.crowd.lock().remove(&self.place.load(Ordering::Relaxed));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.take_out();
    }
}

impl Busy {
    /// The body of the answer to the request.
    pub(crate) fn until_the_end_of<B>(self, body: B) -> Answering<B> {
        Answering { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.rest();
    }
}

impl<B: Body + Unpin> Body for Answering<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_been_idle_for_longest_is_asked_first_and_who_works_is_not() {
        let crowd = Arc::new(Crowd::default());
        let members: Vec<_> = (0..4).map(|_| crowd.join()).collect();
        let asked = || members.iter().map(|m| m.leave.is_cancelled()).collect::<Vec<_>>();
        let (first, third) = (members[0].work(), members[2].work());
        // The first is idle again, and was so last.
        drop(first);
        assert!(crowd.make_room());
        assert_eq!(asked(), [false, true, false, false]);
        assert!(crowd.make_room() && crowd.make_room() && !crowd.make_room());
        assert_eq!(asked(), [true, true, false, true]);
        drop(third);
        drop(members);
        assert!(!crowd.make_room(), "who is gone is not asked");
    }
}
