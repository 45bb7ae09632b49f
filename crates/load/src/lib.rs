//! The load generator: offers a frozen plan to a server and accounts for every arrival of it.
//!
//! [`run`] takes a [`LoadConfig`] and a [`elasticserve_core::work::Plan`] and writes a run folder with
//! the plan, the manifest and a ledger of exactly one row for each planned arrival, also for those that
//! were never sent. Arrivals happen when the plan says so, whatever the server does.
//!
//! | module | what it does |
//! |---|---|
//! | `offer` | a run from the first made request to its last row |
//! | `pacer` | the open model: sends each arrival at its planned time, never waits for an answer |
//! | `closed`, `sessions` | the models whose users wait for their answers |
//! | `field`, `slots`, `retry` | an arrival's way: its slot, its attempts, its rows |
//! | `prompt`, `history`, `body`, `request`, `maker` | prompts and requests, made shortly before they are due |
//! | `dial`, `tls` | connections, their pool, and the times at which the socket moved bytes |
//! | `exchange` | one request and its answer, with every time and every way to fail |
//! | `answer`, `judge` | what an answer holds, and the terminal state that follows |
//! | `record`, `tally` | the run folder; rows are on disk as soon as they are known, and counted |
//! | `ceiling`, `null` | what the generator keeps up with, against a server that costs nothing |
//! | `probe`, `ask`, `health` | what the server says of itself, and what the run cost the client |

mod answer;
mod ask;
mod body;
mod ceiling;
mod clock;
mod closed;
mod config;
mod dial;
mod exchange;
mod field;
mod health;
mod history;
mod judge;
mod maker;
mod null;
mod offer;
mod pacer;
mod probe;
mod progress;
mod prompt;
mod record;
mod request;
mod retry;
mod run;
mod sessions;
mod slots;
mod stop;
mod tally;
mod tls;
mod validate;

// A configuration names request headers with these types, a question its method and answer.
pub use http::{HeaderName, HeaderValue, Method, StatusCode, header};

pub use ask::ask;
pub use ceiling::CeilingCheck;
pub use config::{BaseUrl, Endpoint, LoadConfig, OnStart, PromptKind, Secret, Trust, UrlError};
pub use null::NullServer;
pub use progress::{Phase, Progress};
pub use record::FolderError;
pub use run::{LoadError, run};
pub use stop::Stop;
pub use validate::{Schema, Validator, ValidatorError};
