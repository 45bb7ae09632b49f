//! `[predict]`: what a request takes.

use serde::{Deserialize, Serialize};

/// A cost model as it is written: an engine profile, single values, or both; values win.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPredict {
    /// A built-in engine profile, or a file that ends in `.toml`, relative to this one.
    pub profile: Option<String>,
    /// Both ways between the gateway and the engine's queue.
    pub overhead: Option<String>,
    /// Computing one prompt token.
    pub prefill_per_token: Option<String>,
    /// Steps from a free seat to the first token.
    pub first_token_steps: Option<u64>,
    /// Time per output token of an idle engine.
    pub idle_tpot: Option<String>,
    /// Kept free before every limit.
    pub pad: Option<String>,
    /// Added to the time per output token, as a fraction of it.
    pub margin: Option<f64>,
    /// What lengths of answers are taken from.
    pub lengths: Option<Lengths>,
    /// What a request takes from the others, where it is not the profile's.
    pub stall: Option<RawStall>,
}

/// How lengths of answers are known.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// As a request declares it exactly; else as they were before, `max_tokens` telling requests apart.
    #[default]
    Learned,
    /// As a request declares it exactly; else `max_tokens` is taken for the length.
    Declared,
}

/// The stall of a request as it is written, all of it needed but the last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawStall {
    /// Of a prompt token beyond those that are free, in ms.
    pub per_token_ms: f64,
    /// Prompt tokens that a full batch's steps hide.
    pub free_tokens: f64,
    /// Of (1000 prompt tokens)², in ms.
    pub attention_ms: f64,
    /// Of reading one token of KV cache once, in ms.
    pub kv_ms_per_token: f64,
    /// Of running for one step, whatever the context, in ms; 0 if it is not there.
    #[serde(default)]
    pub sequence_ms: f64,
}
