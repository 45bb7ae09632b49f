//! What is offered: when requests arrive, how long they are, and whose they are.
//!
//! A [`Plan`] is fixed before a run and never changes. It depends on its seed and its specification
//! alone, so the load generator and the simulator offer the same work.

mod arrival;
mod length;
mod plan;
mod trace;

pub use arrival::{ArrivalProcess, Extent};
pub use length::Lengths;
pub use plan::{Arrival, Plan, PlanError, PlanHeader, PlanSpec, PlanTenant};
pub use trace::{TraceError, TraceFormat, TraceOptions, read_trace};
