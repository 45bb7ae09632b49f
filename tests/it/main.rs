//! All integration tests, in one binary. Test names are sentences about behaviour.

mod bars;
mod calibrate;
mod capacity;
mod check;
mod compare;
mod engine;
mod experiment;
mod gateway;
mod load;
mod mock;
#[cfg(target_os = "linux")]
mod nemesis;
mod plans;
mod published;
mod report;
mod sched;
mod selftest;
mod sim;
mod support;
mod world;
