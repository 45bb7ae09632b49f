//! Virtual time: a plan, the gateway's scheduler and engine models, without a clock.

mod declares;
mod figures;
pub mod fit;
pub mod policies;
mod record;
pub mod reproduce;
mod single_worker;
pub mod sweep;
mod world;

pub use declares::Declares;
pub use figures::{Figures, Tally};
pub use record::{Ending, Gaps, Record};
pub use single_worker::{SingleWorker, SingleWorkerError, single_worker};
pub use world::{GatewaySetup, Setup, run, run_arrivals};
