//! The gateway: on a paused clock over pipes where time matters, over sockets where sockets do.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test that cannot go on says so")]

mod breaker;
mod connections;
mod determinism;
mod discovery;
mod endures;
mod engine;
mod failover;
mod failures;
mod faults;
mod field;
mod files;
mod idle;
mod jumps;
mod leaving;
mod ledger;
mod lifecycle;
mod limits;
mod logs;
mod missed;
mod operate;
mod overload;
mod panics;
mod permits;
mod phases;
mod pools;
mod rates;
mod reload;
mod replay;
mod restart;
mod retries;
pub(crate) mod security;
mod slow_readers;
mod state;
mod streaming;
mod tenants;
mod traces;
mod weights;
mod wire;
mod wrong;
