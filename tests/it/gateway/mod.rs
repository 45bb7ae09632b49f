//! The gateway: on a paused clock over pipes where time matters, over sockets where sockets do.

mod failures;
mod leaving;
mod lifecycle;
mod permits;
mod streaming;
mod wire;
