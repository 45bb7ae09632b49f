//! An OpenAI-compatible engine server whose engine is a model.
//!
//! It speaks the HTTP of a vLLM server, and answers when a real deployment would: one thread runs
//! [`elasticserve_core::engine::Engine`] against the monotonic clock, and tokens leave when the model
//! says that they reach the client. No GPU, no weights; the text is made up, one word a token.
//!
//! What it does:
//!
//! | path | what it answers |
//! |---|---|
//! | `POST /v1/completions`, `POST /v1/chat/completions` | whole or streamed answers, with `usage` and cached tokens |
//! | `GET /v1/models`, `/health`, `/version` | as expected of an engine server |
//! | `GET /metrics` | vLLM's names, with the labels `model_name` and `engine` |
//! | `POST /tokenize` | the tokens of a prompt (see [below](self#tokens)) |
//! | `POST /reset_prefix_cache` | forgets all cached prompts |
//!
//! # Tokens
//! A text prompt is cut into chunks of 4 bytes, and each chunk is a token (its number holds the bytes,
//! the first one lowest). A prompt of token ids is taken as it is. Chat messages are written as
//! `role`, line feed, text, line feed, one after the other, with `assistant` and a line feed at the end.
//! Whole blocks of tokens identify a prompt in the prefix cache, each by its own tokens and all before.
//!
//! # Lengths
//! The model never ends early: it generates exactly `max_tokens` tokens and says `length`; 16 if a
//! text completion sets no limit. A chat without a limit ends by itself, `stop`, after 16 to 271
//! tokens, always as many for the same prompt; with `ignore_eos` it fills the context instead.
//!
//! # Text
//! Token `i` of the request with id `r` is [`word`]`(r, i)`, so a lost, doubled or foreign token shows.
//!
//! # Fields
//! `n` and `best_of` above 1 and several prompts are refused. `temperature`, `top_p`, `stop`, `seed` and
//! every other field of sampling is accepted and changes nothing.

mod answer;
mod driver;
mod metrics;
mod reply;
mod request;
mod route;
mod server;
mod tokens;

pub use driver::{Finished, Snapshot};
pub use server::{Limits, MockConfig, Server};
pub use tokens::word;
