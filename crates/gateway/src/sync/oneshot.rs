//! A channel for one value over loom's lock, with as much of `tokio::sync::oneshot` as admission uses.
//!
//! As there: sending to a receiver that is gone gives the value back, a value that was sent and not taken goes
//! with the receiver, and a sender that is dropped unsent ends the wait.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::sync::{Arc, Mutex};

/// A channel for one value.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, waker: None, sender: true, receiver: true }));
    (Sender(Arc::clone(&slot)), Receiver(slot))
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// Whether the sender may still send.
    sender: bool,
    receiver: bool,
}

#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Mutex<Slot<T>>>);

impl<T> Sender<T> {
    /// Sends the value, or gives it back if nobody can receive it.
    pub(crate) fn send(self, value: T) -> Result<(), T> {
        let mut slot = self.0.lock().unwrap();
        if !slot.receiver {
            return Err(value);
        }
        slot.value = Some(value);
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.lock().unwrap();
            slot.sender = false;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The sender was dropped unsent.
#[derive(Debug)]
pub(crate) struct RecvError;

#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Mutex<Slot<T>>>);

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.0.lock().unwrap();
        match slot.value.take() {
            Some(value) => Poll::Ready(Ok(value)),
            None if slot.sender => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(Err(RecvError)),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let left = {
            let mut slot = self.0.lock().unwrap();
            slot.receiver = false;
            (slot.value.take(), slot.waker.take())
        };
        // A permit that is dropped takes other locks, so this one must be free by now.
        drop(left);
    }
}
