//! The pure core of ElasticServe: scheduler, engine model, plan of arrivals, ledger and stream parser.
//!
//! Nothing in this crate opens a socket, reads a clock, starts a thread or depends on the order of a
//! hash map. Time enters every function as a [`time::Tick`] argument, randomness as a seed, and the
//! same inputs give the same outputs on every machine. That is what lets the gateway, the simulator
//! and the tests share one scheduler and one engine model.
//!
//! | module | what it holds |
//! |---|---|
//! | [`time`] | integer nanoseconds: a point ([`time::Tick`]) and a length ([`time::Span`]) |
//! | [`slo`] | service-level objectives and when an answer meets them |
//! | [`outcome`] | closed lists of how a request can end |
//! | [`sched`] | who goes next, who is refused, and which backend serves |
//! | [`engine`] | a continuous-batching server as a deterministic state machine |
//! | [`work`] | arrival processes, lengths, recorded traces and the immutable [`work::Plan`] |
//! | [`ledger`] | the row that every planned arrival ends as |
//! | [`gate`] | how much work a backend is given: health, circuit breaker, slow start |
//! | [`health`] | what a run shows of the generator itself, and what is tolerated |
//! | [`sse`], [`openai`] | reading event streams and OpenAI-shaped bodies |
//! | [`limit`] | requests and tokens per minute, reserved and settled |
//! | [`config`] | strict reading of TOML |
//! | [`search`] | the knee of an open load: which rate next, and when it is known |
//! | [`stats`] | quantiles, intervals, paired effects, and how many pairs a decision needs |
//! | [`calibrate`] | from a server's answers to the parameters of its engine |
//! | [`slow`] | a slow endpoint, and what three load models say about it |
//! | [`sim`] | a plan, a scheduler and engine models on virtual time |

pub mod calibrate;
pub mod config;
pub mod engine;
pub mod gate;
pub mod health;
pub mod ids;
pub mod ledger;
pub mod limit;
pub mod openai;
pub mod outcome;
pub mod rng;
pub mod sched;
pub mod search;
pub mod sim;
pub mod slo;
pub mod slow;
pub mod sse;
pub mod stats;
pub mod time;
pub mod work;
