//! All integration tests, in one binary. Test names are sentences about behaviour.

mod mock;
mod sched;
mod world;
