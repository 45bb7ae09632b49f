//! Service-level objectives: the limits that make an answer useful.

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// Upper limits on the latencies of one request; a limit that is absent always holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slo {
    /// Time to first token: from the planned arrival to the first usable content.
    #[serde(rename = "ttft_ns", skip_serializing_if = "Option::is_none", default)]
    pub ttft: Option<Span>,
    /// Time per output token after the first, a mean over one request.
    #[serde(rename = "tpot_ns", skip_serializing_if = "Option::is_none", default)]
    pub tpot: Option<Span>,
    /// End-to-end: from the planned arrival to the end of the answer.
    #[serde(rename = "e2e_ns", skip_serializing_if = "Option::is_none", default)]
    pub e2e: Option<Span>,
}

impl Slo {
    /// Whether the measured latencies keep every limit. A limit whose latency could not be measured
    /// is not kept; TPOT of an answer of one token has no gap to measure and is passed as `None`
    /// together with `output_tokens` of 1, which keeps it.
    #[must_use]
    pub fn is_met(
        &self,
        ttft: Option<Span>,
        tpot: Option<Span>,
        e2e: Option<Span>,
        output_tokens: Option<u32>,
    ) -> bool {
        let holds = |limit: Option<Span>, value: Option<Span>| limit.is_none_or(|l| value.is_some_and(|v| v <= l));
        let single = output_tokens == Some(1) && tpot.is_none();
        holds(self.ttft, ttft) && (single || holds(self.tpot, tpot)) && holds(self.e2e, e2e)
    }

    /// The looser of both sets of limits, each for itself; a limit that either lacks is none.
    #[must_use]
    pub fn or_looser(&self, other: &Self) -> Self {
        let looser = |a: Option<Span>, b: Option<Span>| a.zip(b).map(|(a, b)| a.max(b));
        Self {
            ttft: looser(self.ttft, other.ttft),
            tpot: looser(self.tpot, other.tpot),
            e2e: looser(self.e2e, other.e2e),
        }
    }

    /// These limits with those of `over` in their place where it has any.
    #[must_use]
    pub fn overridden_by(&self, over: &Self) -> Self {
        Self { ttft: over.ttft.or(self.ttft), tpot: over.tpot.or(self.tpot), e2e: over.e2e.or(self.e2e) }
    }

    /// The same limits in time that runs `factor` times faster.
    #[must_use]
    pub fn scaled_down(&self, factor: f64) -> Self {
        let scale = |limit: Option<Span>| limit.map(|l| l.scaled_down(factor));
        Self { ttft: scale(self.ttft), tpot: scale(self.tpot), e2e: scale(self.e2e) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    #[test]
    fn an_unmeasured_latency_does_not_meet_its_limit() {
        let slo = Slo { ttft: Some(MS(1000)), tpot: None, e2e: None };
        assert!(slo.is_met(Some(MS(1000)), None, None, Some(64)));
        assert!(!slo.is_met(Some(MS(1001)), None, None, Some(64)));
        assert!(!slo.is_met(None, None, None, Some(64)));
    }

    #[test]
    fn an_answer_of_one_token_has_no_tpot_to_miss() {
        let slo = Slo { ttft: None, tpot: Some(MS(100)), e2e: None };
        assert!(slo.is_met(None, None, None, Some(1)));
        assert!(!slo.is_met(None, None, None, Some(2)));
    }
}
