//! Probes at rates: what `capacity` and `sweep` have in common.

mod probe;
mod stand;

pub(crate) use probe::{Prober, Taken};
pub(crate) use stand::StandArgs;
