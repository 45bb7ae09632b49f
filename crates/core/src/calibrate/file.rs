//! What was found, as a list and as a profile's file.

use std::fmt::Write;

use serde::Serialize;

use super::fit::Estimate;
use super::seats::Seats;
use super::{Assumed, Calibration};
use crate::engine::Profile;

/// How a parameter is known.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Fitted by least squares.
    Fitted,
    /// Counted or read off.
    Observed,
    /// Not known from outside, or not from these probes.
    Assumed,
}

/// A parameter of the profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// The table of the profile's file.
    pub table: &'static str,
    /// Its key there.
    pub key: &'static str,
    /// Its value in the profile.
    pub value: f64,
    /// Its unit, in words.
    pub unit: &'static str,
    /// How it is known.
    pub standing: Standing,
    /// With its uncertainty, if it was fitted.
    pub estimate: Option<Estimate>,
    /// What there is to say of it.
    pub note: String,
}

impl Calibration {
    /// Every parameter of a profile made with `assumed`, in the order of its file.
    #[must_use]
    pub fn parameters(&self, profile: &Profile, assumed: &Assumed) -> Vec<Parameter> {
        let mut all = self.step_parameters(profile);
        all.extend(self.overhead_parameters(profile, assumed));
        all.extend(self.engine_parameters(profile));
        all
    }

    fn step_parameters(&self, profile: &Profile) -> Vec<Parameter> {
        let fitted = &self.fitted;
        let of = |key, value, unit, estimate: Option<Estimate>, known: &str, unknown: &str| {
            let (standing, note) =
                if estimate.is_some() { (Standing::Fitted, known) } else { (Standing::Assumed, unknown) };
            Parameter { table: "step", key, value, unit, standing, estimate, note: note.to_owned() }
        };
        let lengths = "no cost of a prompt can be told from so few lengths";
        let beside = "not known apart: no prompt was computed beside running answers; it is part of the overhead";
        let kv = "contexts were too much alike to tell";
        let alike = "no cost of a sequence as such was seen";
        let bend = "the curve shows only with six lengths or more, up to 512 tokens and beyond";
        vec![
            of("base_ms", profile.base_ms, "ms", Some(fitted.base), "a step that only streams the weights", ""),
            of("kv_ms_per_token", profile.kv_ms_per_token, "ms", fitted.kv, "by KV token read", kv),
            of("sequence_ms", profile.sequence_ms, "ms", fitted.sequence, "by sequence that decodes", alike),
            of(
                "prefill_step_ms",
                profile.prefill_step_ms,
                "ms",
                fitted.prefill_step,
                "more for a step with any prefill",
                beside,
            ),
            of(
                "prefill_ms_per_token",
                profile.prefill_ms_per_token,
                "ms",
                fitted.prefill_token,
                "by prompt token beyond the roof",
                lengths,
            ),
            of("roof_tokens", profile.roof_tokens, "tokens", fitted.roof, "hidden under the weight stream", lengths),
            of("attention_ms", profile.attention_ms, "ms", fitted.attention, "by (1000 prompt tokens)^2", bend),
        ]
    }

    fn overhead_parameters(&self, profile: &Profile, assumed: &Assumed) -> [Parameter; 2] {
        let around = self.fitted.around;
        let note = |part: f64| format!("{:.0}% of {:.3} ms, which is known as a sum only", 100.0 * part, around.value);
        let of = |key, value, part| Parameter {
            table: "overhead",
            key,
            value,
            unit: "ms",
            standing: Standing::Assumed,
            estimate: None,
            note: note(part),
        };
        [
            of("in_ms", profile.overhead_in.as_millis_f64(), assumed.way_in),
            of("out_ms", profile.overhead_out.as_millis_f64(), 1.0 - assumed.way_in),
        ]
    }

    fn engine_parameters(&self, profile: &Profile) -> Vec<Parameter> {
        let of = |key, value: u32, unit, known: Option<String>, unknown: &str| Parameter {
            table: "engine",
            key,
            value: f64::from(value),
            unit,
            standing: if known.is_some() { Standing::Observed } else { Standing::Assumed },
            estimate: None,
            note: known.unwrap_or_else(|| unknown.to_owned()),
        };
        let seats = match self.seats {
            Some(Seats::Exactly(_)) => Some("no more ran however many were in flight".to_owned()),
            _ => None,
        };
        let more = match self.seats {
            Some(_) => "so many ran at once and more were not tried: raise --max-concurrency",
            None => "several at once were not tried",
        };
        let block =
            self.cache.and_then(|c| c.block).map(|_| "what the server counted as cached is a multiple".to_owned());
        let depth = self
            .pipeline_depth
            .map(|d| format!("seen of {} of {} requests that came into a running batch", d.votes, d.of));
        let cache = self.cache.filter(|c| c.works.is_some());
        let cache = cache.map(|c| {
            format!("a repeated prompt of {} tokens took {:.2} ms, a new one {:.2} ms", c.length, c.repeated, c.fresh)
        });
        vec![
            of("max_seqs", profile.max_seqs, "sequences", seats, more),
            of(
                "block_tokens",
                profile.block_tokens,
                "tokens",
                block,
                "the server does not count what it finds in its cache",
            ),
            of(
                "token_budget",
                profile.token_budget,
                "tokens",
                None,
                "not seen from outside; take what the server was started with",
            ),
            of("pipeline_depth", profile.pipeline_depth, "steps", depth, "no request came into a running batch"),
            of("prefix_cache", u32::from(profile.prefix_cache), "", cache, "prompts cost too little to tell"),
        ]
    }
}

/// The text of a profile's file: `head` as its first comment, then each parameter with what is known of it.
#[must_use]
pub fn profile_text(profile: &Profile, parameters: &[Parameter], head: &str) -> String {
    let mut text = String::new();
    for line in head.lines() {
        text += format!("# {line}").trim_end();
        text.push('\n');
    }
    // Quoted as TOML does, which takes JSON's strings.
    let quoted = |s: &str| serde_json::Value::from(s).to_string();
    let _ = write!(text, "\nname = {}\nmodel = {}\n", quoted(&profile.name), quoted(&profile.model));
    let mut table = "";
    for parameter in parameters {
        if parameter.table != table {
            table = parameter.table;
            let _ = write!(text, "\n[{table}]\n");
        }
        let _ =
            writeln!(text, "{:<32} # {}", format!("{} = {}", parameter.key, parameter.literal()), parameter.remark());
    }
    text
}

impl Parameter {
    /// The value as TOML.
    fn literal(&self) -> String {
        match (self.table, self.key) {
            (_, "prefix_cache") => (self.value > 0.0).to_string(),
            ("engine", _) => format!("{:.0}", self.value),
            _ => significant(self.value),
        }
    }

    /// What is known of it, in one line.
    #[must_use]
    pub fn remark(&self) -> String {
        let standing = match self.standing {
            Standing::Fitted => "fitted",
            Standing::Observed => "observed",
            Standing::Assumed => "assumed",
        };
        let spread = self.estimate.and_then(|e| Some((e.error?, e.interval?)));
        let spread = spread.map_or_else(String::new, |(error, (low, high))| {
            format!(" ± {}, 95% {} to {}", significant(error), significant(low), significant(high))
        });
        format!("{standing}{spread}: {}", self.note)
    }
}

/// Four significant digits: more than any measurement supports.
pub(super) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0.0".to_owned();
    }
    let decimals = (3.0 - libm::floor(libm::log10(value.abs()))).clamp(1.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    let trimmed = text.trim_end_matches('0');
    if trimmed.ends_with('.') { format!("{trimmed}0") } else { trimmed.to_owned() }
}
