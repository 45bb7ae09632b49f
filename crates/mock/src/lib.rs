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
//! | `POST /v1/completions`, `/v1/chat/completions`, `/v1/responses` | whole or streamed answers, with `usage` and cached tokens |
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
//! `stop` ends an answer before the first of its texts; as the text is known beforehand, no token is held
//! back. `n` choices take `n` seats and have texts of their own; their events come as their tokens do.
//! `echo` puts a prompt of text in front of a completion.
//!
//! # Responses
//! `input` is text or a list of messages, `instructions` come before it as a system message. An answer
//! that reached `max_output_tokens` is `incomplete`. Without a limit it ends as a chat does.
//!
//! # Fields
//! `best_of` above 1 and several prompts are refused. `temperature`, `top_p`, `seed` and every other field
//! of sampling is accepted and changes nothing.
//!
//! # Truth
//! A server bound with a [`Truth`] tells when it was asked and when it wrote each token, by its own clock,
//! so that a client's times can be checked.

mod answer;
mod driver;
mod lane;
mod metrics;
mod reply;
mod request;
mod response;
mod route;
mod server;
pub mod slow;
mod stream;
mod tokens;
mod truth;

pub use driver::{Finished, Snapshot};
pub use server::{Limits, MockConfig, Server};
pub use tokens::word;
pub use truth::{Truth, TruthFile, TruthRow};
