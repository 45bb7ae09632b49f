//! Virtual time: a plan, the gateway's scheduler and engine models, without a clock.

mod world;

pub use world::{GatewaySetup, Setup, run};
