//! A model of a continuous-batching engine: a server of language models in ten parameters.
//!
//! Time advances in steps. In every step each running sequence decodes one token, and waiting
//! prompts are prefilled as seats and the token budget allow. Scheduling runs ahead: while step *j*
//! runs, step *j + 1* is already fixed, so a request that arrives during *j* enters *j + 2*
//! ([`Profile::pipeline_depth`] of 2). A finished sequence keeps its seat until its last step has been
//! processed.
//!
//! The KV cache may have a limit ([`Profile::kv_blocks`]). Then a waiting prompt gets a seat only when
//! blocks are free for all of it, less what it shares with others; every sequence takes another block
//! when its last one is full; and when none is free, the sequence that was admitted last loses its
//! seat. It goes to the front of the queue and is computed again, prompt and what it had generated,
//! while the tokens that the client has are not sent again. A block that nobody uses keeps its prefix
//! and counts as free. vLLM's scheduler does the same, but for chunked prompts, whose blocks it takes
//! chunk by chunk.
//!
//! Like the scheduler, the engine is a state machine without a clock: [`Engine::submit`] and
//! [`Engine::abort`] go in, [`Engine::poll`] gives the tokens that have reached the client by `now`,
//! and [`Engine::next_wake`] says when to look again. The simulator jumps from one wake-up to the
//! next; the mock server sleeps until it.

mod batch;
mod blocks;
mod cache;
mod index;
mod lru;
mod memory;
mod model;
mod profile;
mod seqs;

pub use cache::{BlockHash, PrefixCache, Prompt};
pub use model::{Emission, Engine, EngineStats, TooLong, Work};
pub use profile::{AtBest, MAX_KV_BLOCKS, Profile, ProfileError};
pub use seqs::SeqId;
