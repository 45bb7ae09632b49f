//! The gateway: stands in front of OpenAI-compatible servers and admits what can be answered in time.
//!
//! ```text
//! socket → connection limits → route → read body → Offer → Scheduler → Permit → backend → body → socket
//! ```
//!
//! A request becomes an offer, an offer becomes a permit or a refusal, and a permit lives exactly as
//! long as the response body: it is a field of the body. Whoever drops the body, for whatever reason,
//! gives the permit back.
//!
//! | module | its part of the flow |
//! |---|---|
//! | [`config`] | the file and the flags become one checked [`config::Config`] |
//! | `live`, `reload` | the configuration in effect; what replaces it while the gateway runs |
//! | `listen`, `connection` | accept loop, connection cap, HTTP/1 limits, drain |
//! | `ahead`, `patient` | a client that leaves while more of what it sent waits; one that does not read |
//! | `caught` | a panic that ends one request alone |
//! | `framing` | which heads may be read in one way only |
//! | `files` | how many files the process may have open, and how many clients that is enough for |
//! | `route` | which paths are scheduled, pass by, or do not exist |
//! | `proxy` | the story of one request |
//! | `auth`, [`secret`] | whose a request is; keys and their digests |
//! | `task` | how much work it is and by when: the offer |
//! | [`decisions`] | one line about each scheduled request |
//! | `limits` | requests and tokens per minute |
//! | `memory` | a budget for bodies |
//! | `form` | the model in an upload |
//! | `headers`, `body` | what is read, forwarded and left out |
//! | `model`, `pool`, `endpoint` | which pool serves a model; its backends and what each is given |
//! | `attempt`, `affinity` | sending, once more elsewhere if need be; what belongs together |
//! | `discovery`, `engine` | addresses by name; what engines say of the work of others |
//! | `catalog` | the list of models of several pools |
//! | `admit`, `permit` | the scheduler behind one lock; the right to a seat as a value |
//! | `sync` | what that lock and the answers are made of, so that loom can stand in |
//! | `upstream`, `health` | connections to the backends; whether they are up |
//! | [`tls`] | certificates of the listener, and whom to trust among backends |
//! | `relay` | the response body that carries the permit |
//! | `reply` | every answer that the gateway gives itself |
//! | `record`, `trace` | what is known of a request once it has ended: the access log, and spans for a collector |
//! | `state` | what was learned, over a restart |
//! | `admin`, `metrics` | probes and figures on a listener of their own |

mod admin;
mod admit;
mod affinity;
mod ahead;
mod attempt;
mod auth;
mod body;
mod catalog;
mod caught;
mod clock;
pub mod config;
mod connection;
mod crowd;
pub mod decisions;
mod discovery;
mod endpoint;
mod engine;
mod files;
mod form;
mod framing;
mod gateway;
mod headers;
mod health;
mod limits;
mod listen;
mod live;
mod memory;
mod metrics;
mod model;
mod patient;
mod permit;
mod pool;
mod proxy;
mod record;
mod relay;
mod reload;
mod reply;
mod route;
pub mod secret;
mod state;
mod sync;
mod task;
pub mod tls;
mod trace;
mod upstream;

pub use discovery::{Resolve, ResolveFuture};
pub use gateway::{Drained, Gateway, Service, StartError};
pub use live::ReloadError;
pub use reload::{Source, Why};
pub use upstream::{Dial, DialFuture, Stream};
