//! What admission shares between threads: the lock and the way of an answer to who waits for it.
//!
//! Under `cfg(loom_models)` loom's types stand in, so that the models run admission itself in every order.
//! The name is not loom's usual one because tokio's sockets do not exist under that.

#[cfg(not(all(test, loom_models)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(not(all(test, loom_models)))]
pub(crate) use tokio::sync::oneshot;

#[cfg(all(test, loom_models))]
pub(crate) use loom::sync::{Mutex, MutexGuard};

#[cfg(all(test, loom_models))]
pub(crate) mod model_time;
#[cfg(all(test, loom_models))]
pub(crate) mod oneshot;
