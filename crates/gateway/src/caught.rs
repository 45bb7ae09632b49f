//! A future whose panic ends it alone.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Gives `Err` in place of a panic, and drops what panicked: what it held goes back as if it had been cut.
pub(crate) struct Caught<F>(Option<Pin<Box<F>>>);

/// It panicked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl<F> Caught<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else { return Poll::Ready(Err(Panicked)) };
        // It is never polled again after a panic, so nobody sees it half done.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => {
                self.0 = None;
                Poll::Ready(Err(Panicked))
            }
        }
    }
}
