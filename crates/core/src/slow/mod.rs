//! A slow HTTP endpoint, and what three load models say about it: the published teaching experiment on
//! coordinated omission.
//!
//! The endpoint works on a few requests at once, lets a few more wait and turns the rest away. For a while
//! in the middle it is ten times slower. [`Endpoint`] holds these rules without a clock; a server on
//! sockets and the run on virtual time ([`experiment`]) share it.

mod endpoint;
pub mod experiment;

pub use endpoint::{Endpoint, Event, Rules, What};
