//! The parameters of an engine, read from a file.

use serde::Deserialize;

use super::TooLong;
use crate::slo::Slo;
use crate::time::Span;

/// The parameters of an engine. See `config/engines/` for a commented file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawProfile")]
pub struct Profile {
    /// The profile's name.
    pub name: String,
    /// The name of the model that the engine serves.
    pub model: String,
    /// Duration of a step that does nothing but stream the weights, in ms.
    pub base_ms: f64,
    /// Added per token of KV cache that is read, in ms.
    pub kv_ms_per_token: f64,
    /// Added per sequence that decodes, whatever its context, in ms.
    pub sequence_ms: f64,
    /// Added to a step with any prefill, in ms.
    pub prefill_step_ms: f64,
    /// Added per token in a step with prefill beyond the roof, in ms.
    pub prefill_ms_per_token: f64,
    /// Tokens hidden under the weight stream.
    pub roof_tokens: f64,
    /// Added per (1000 prefill tokens)² in a step, in ms.
    pub attention_ms: f64,
    /// From the client's send to the engine's queue.
    pub overhead_in: Span,
    /// From the engine's token to the client.
    pub overhead_out: Span,
    /// Sequences in the batch.
    pub max_seqs: u32,
    /// Tokens in a block of the prefix cache.
    pub block_tokens: u32,
    /// Tokens in one step, prefill and decode together.
    pub token_budget: u32,
    /// Steps that are fixed at once, the running one included; 1 is synchronous scheduling.
    pub pipeline_depth: u32,
    /// Whether blocks of prompts seen before are free.
    pub prefix_cache: bool,
    /// Blocks of KV cache for what runs and for prefixes together; without a limit if absent.
    pub kv_blocks: Option<u32>,
    /// Blocks of the prefix cache where `kv_blocks` is absent; about a million if this is too.
    pub cache_blocks: Option<u32>,
}

/// The most KV blocks that can be modelled.
pub const MAX_KV_BLOCKS: u32 = 1 << 24;

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Not TOML, an unknown key, a missing key or a wrong type.
    #[error("engine profile: {0}")]
    Parse(#[from] toml::de::Error),
    /// No built-in profile of that name.
    #[error("no built-in engine profile is called '{0}'; there are: {1}")]
    Unknown(String, String),
}

const BUILT_IN: [(&str, &str); 2] = [
    ("gb10-qwen3-8b-fp8", include_str!("../../../../config/engines/gb10-qwen3-8b-fp8.toml")),
    ("single-worker", include_str!("../../../../config/engines/single-worker.toml")),
];

impl Profile {
    /// Reads a profile from the text of its file.
    ///
    /// # Errors
    /// [`ProfileError::Parse`], which names the key and the line.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        Ok(toml::from_str(text)?)
    }

    /// The names of the profiles that come with the program.
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A profile that comes with the program.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`] if there is none of that name.
    pub fn built_in(name: &str) -> Result<Self, ProfileError> {
        Self::from_toml(Self::built_in_text(name)?)
    }

    /// The text of the file of a profile that comes with the program.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`] if there is none of that name.
    pub fn built_in_text(name: &str) -> Result<&'static str, ProfileError> {
        BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text).ok_or_else(|| {
            let names: Vec<&str> = Self::built_in_names().collect();
            ProfileError::Unknown(name.to_owned(), names.join(", "))
        })
    }

    /// The same engine with everything `factor` times faster.
    #[must_use]
    pub fn sped_up(&self, factor: f64) -> Self {
        Self {
            base_ms: self.base_ms / factor,
            kv_ms_per_token: self.kv_ms_per_token / factor,
            sequence_ms: self.sequence_ms / factor,
            prefill_step_ms: self.prefill_step_ms / factor,
            prefill_ms_per_token: self.prefill_ms_per_token / factor,
            attention_ms: self.attention_ms / factor,
            overhead_in: self.overhead_in.scaled_down(factor),
            overhead_out: self.overhead_out.scaled_down(factor),
            ..self.clone()
        }
    }

    /// The tokens that the whole KV cache has room for.
    #[must_use]
    pub fn kv_room(&self) -> u64 {
        self.kv_blocks.map_or(u64::from(u32::MAX), |blocks| u64::from(blocks) * u64::from(self.block_tokens))
    }

    /// Whether an otherwise idle engine can serve this.
    ///
    /// # Errors
    /// [`TooLong`] says what is needed and what there is.
    pub fn check_room(&self, input: u32, output: u32) -> Result<(), TooLong> {
        let tokens = u64::from(input.max(1)) + u64::from(output.max(1)) - 1;
        let room = self.kv_room();
        if tokens <= room { Ok(()) } else { Err(TooLong { tokens, room }) }
    }

    /// The duration of a step, at least one nanosecond.
    ///
    /// `kv_tokens` are the tokens of KV cache read, `prefill_tokens` the prompt tokens computed and
    /// `decoding` the sequences that decode.
    #[must_use]
    pub fn step(&self, kv_tokens: u64, prefill_tokens: u32, decoding: u32) -> Span {
        let mut ms = self.base_ms + self.kv_ms_per_token * kv_tokens as f64 + self.sequence_ms * f64::from(decoding);
        if prefill_tokens > 0 {
            let beyond_roof = (f64::from(prefill_tokens) + f64::from(decoding) - self.roof_tokens).max(0.0);
            let thousands = f64::from(prefill_tokens) / 1000.0;
            ms += self.prefill_step_ms
                + self.prefill_ms_per_token * beyond_roof
                + self.attention_ms * thousands * thousands;
        }
        Span::from_millis_f64(ms).max(Span::from_nanos(1))
    }

    /// What a request of so many tokens takes of an engine that does nothing else and, where there is a prefix cache,
    /// has the prompt in it but for its last token. No order and no admission makes it faster.
    ///
    /// ```text
    /// ttft = overheads + step(0, computed, 0)
    /// e2e  = ttft + Σ step(input + k, 0, 1),  k = 1 … output − 1
    /// ```
    #[must_use]
    pub fn at_best(&self, input: u32, output: u32) -> AtBest {
        let computed = if self.prefix_cache { 1 } else { input.max(1) };
        let ttft = self.overhead_in + self.step(0, computed, 0) + self.overhead_out;
        let further = output.max(1) - 1;
        let steps = f64::from(further);
        let read = steps * f64::from(input.max(1)) + steps * (steps + 1.0) / 2.0;
        let decoding = Span::from_millis_f64((self.base_ms + self.sequence_ms) * steps + self.kv_ms_per_token * read);
        let tpot = (further > 0).then(|| Span::from_nanos(decoding.as_nanos() / u64::from(further)));
        AtBest { ttft, tpot, e2e: ttft + decoding }
    }
}

/// The least latencies of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AtBest {
    /// To the first token.
    pub ttft: Span,
    /// Between two tokens, a mean over the answer; `None` for an answer of one token.
    pub tpot: Option<Span>,
    /// To the last token.
    pub e2e: Span,
}

impl AtBest {
    /// Whether no policy could keep these limits.
    #[must_use]
    pub fn misses(&self, slo: &Slo) -> bool {
        !slo.is_met(Some(self.ttft), self.tpot, Some(self.e2e), self.tpot.is_none().then_some(1))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    name: String,
    model: String,
    step: RawStep,
    overhead: RawOverhead,
    engine: RawEngine,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    base_ms: f64,
    kv_ms_per_token: f64,
    #[serde(default)]
    sequence_ms: f64,
    prefill_step_ms: f64,
    prefill_ms_per_token: f64,
    roof_tokens: f64,
    attention_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverhead {
    in_ms: f64,
    out_ms: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEngine {
    max_seqs: u32,
    block_tokens: u32,
    token_budget: u32,
    pipeline_depth: u32,
    prefix_cache: bool,
    kv_blocks: Option<u32>,
    cache_blocks: Option<u32>,
}

impl TryFrom<RawProfile> for Profile {
    type Error = String;

    fn try_from(raw: RawProfile) -> Result<Self, Self::Error> {
        let RawProfile { name, model, step, overhead, engine } = raw;
        if !(step.base_ms > 0.0 && step.base_ms.is_finite()) {
            return Err(format!("step.base_ms must be above 0, not {}", step.base_ms));
        }
        for (key, value) in [
            ("step.kv_ms_per_token", step.kv_ms_per_token),
            ("step.sequence_ms", step.sequence_ms),
            ("step.prefill_step_ms", step.prefill_step_ms),
            ("step.prefill_ms_per_token", step.prefill_ms_per_token),
            ("step.roof_tokens", step.roof_tokens),
            ("step.attention_ms", step.attention_ms),
            ("overhead.in_ms", overhead.in_ms),
            ("overhead.out_ms", overhead.out_ms),
        ] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(format!("{key} must be 0 or more, not {value}"));
            }
        }
        for (key, value) in [
            ("engine.max_seqs", engine.max_seqs),
            ("engine.block_tokens", engine.block_tokens),
            ("engine.pipeline_depth", engine.pipeline_depth),
        ] {
            if value == 0 {
                return Err(format!("{key} must be 1 or more"));
            }
        }
        if engine.kv_blocks.is_some_and(|blocks| blocks == 0 || blocks > MAX_KV_BLOCKS) {
            return Err(format!("engine.kv_blocks must be 1 to {MAX_KV_BLOCKS}; leave it out for no limit"));
        }
        if engine.kv_blocks.is_some() && engine.cache_blocks.is_some() {
            return Err(
                "engine.cache_blocks has no meaning beside engine.kv_blocks: prefixes live in what is free of \
                those blocks"
                    .into(),
            );
        }
        if engine.token_budget <= engine.max_seqs {
            return Err(format!(
                "engine.token_budget must be above engine.max_seqs ({}), not {}: each running sequence takes one token of it",
                engine.max_seqs, engine.token_budget
            ));
        }
        Ok(Self {
            name,
            model,
            base_ms: step.base_ms,
            kv_ms_per_token: step.kv_ms_per_token,
            sequence_ms: step.sequence_ms,
            prefill_step_ms: step.prefill_step_ms,
            prefill_ms_per_token: step.prefill_ms_per_token,
            roof_tokens: step.roof_tokens,
            attention_ms: step.attention_ms,
            overhead_in: Span::from_millis_f64(overhead.in_ms),
            overhead_out: Span::from_millis_f64(overhead.out_ms),
            max_seqs: engine.max_seqs,
            block_tokens: engine.block_tokens,
            token_budget: engine.token_budget,
            pipeline_depth: engine.pipeline_depth,
            prefix_cache: engine.prefix_cache,
            kv_blocks: engine.kv_blocks,
            cache_blocks: engine.cache_blocks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_profile_is_refused_with_the_key_that_is_wrong() {
        let good = BUILT_IN[0].1;
        for (from, to, key) in [
            ("base_ms = 40.09", "base_ms = 0", "step.base_ms"),
            ("max_seqs = 32", "max_seqs = 0", "engine.max_seqs"),
            ("token_budget = 8192", "token_budget = 32", "engine.token_budget"),
            ("in_ms = 6.20", "in_ms = -1", "overhead.in_ms"),
            ("prefix_cache = true", "prefix_cach = true", "prefix_cach"),
            ("prefix_cache = true", "prefix_cache = true\nkv_blocks = 0", "engine.kv_blocks"),
            ("prefix_cache = true", "prefix_cache = true\nkv_blocks = 99999999", "engine.kv_blocks"),
            ("prefix_cache = true", "prefix_cache = true\nkv_blocks = 9\ncache_blocks = 9", "engine.cache_blocks"),
        ] {
            let error = Profile::from_toml(&good.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(key), "{key}: {error}");
        }
        assert!(Profile::built_in("h100").unwrap_err().to_string().contains("gb10-qwen3-8b-fp8"));
    }

    #[test]
    fn a_step_costs_what_the_formula_says() {
        let p = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
        assert_eq!(p.step(0, 0, 32), Span::from_millis_f64(40.09));
        // 40.09 + 0.000254 * 1000 + 1.41 + 0.0746 * (256 + 31 - 68.6) + 5.86 * 0.256^2
        assert_eq!(p.step(1000, 256, 31), Span::from_millis_f64(58.430_680_96));
        let with = Profile { sequence_ms: 0.25, ..p };
        assert_eq!(with.step(1000, 0, 31), Span::from_millis_f64(40.09 + 0.254 + 0.25 * 31.0));
        assert_eq!(with.sped_up(2.0).step(1000, 0, 31), Span::from_millis_f64((40.09 + 0.254 + 0.25 * 31.0) / 2.0));
        let steps = (1..4).fold(Span::ZERO, |sum, k| sum + with.step(100 + k, 0, 1));
        let best = with.at_best(100, 4);
        assert!(best.e2e.saturating_sub(best.ttft).as_nanos().abs_diff(steps.as_nanos()) <= 3);
    }
}
