//! The gateway: on a paused clock over pipes where time matters, over sockets where sockets do.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test that cannot go on says so")]

mod determinism;
mod failures;
mod leaving;
mod lifecycle;
mod limits;
mod missed;
mod permits;
mod replay;
mod state;
mod streaming;
mod tenants;
mod wire;
