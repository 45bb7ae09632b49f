//! What is offered: when requests arrive, how long they are, and whose they are.
//!
//! A [`Plan`] is fixed before a run and never changes. It depends on its seed and its specification
//! alone, so the load generator and the simulator offer the same work.

mod arrival;
mod dataset;
mod detail;
mod length;
mod mix;
mod model;
mod plan;
mod spec;
mod tenant;
mod trace;

pub use arrival::{ArrivalProcess, Extent, Step};
pub use dataset::{Conversation, Dataset, DatasetError, DatasetInfo};
pub use detail::{Prefix, TextRef};
pub use length::{Length, Lengths, Pairs, Sizes};
pub use mix::{Class, MAX_ARRIVALS, Mix, Offering, SessionSpec, SharedPrefix, TextBounds, Texts, Think};
pub use model::{LoadModel, Turn};
pub use plan::{Arrival, Plan, PlanError, PlanHeader};
pub use spec::PlanSpec;
pub use tenant::PlanTenant;
pub use trace::{TraceError, TraceFormat, TraceOptions, read_trace};
