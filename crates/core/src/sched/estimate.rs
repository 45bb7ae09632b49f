//! What a request will take: a cost model, and the live time per output token.

use crate::engine::Profile;
use crate::slo::Slo;
use crate::time::{Span, Tick};

/// The time that an engine takes for a request, apart from the time per output token, which is observed.
///
/// ```text
/// ttft = overhead + first_token_steps · tpot + prefill_per_token · input
/// e2e  = ttft + (output − 1) · tpot · (1 + margin)
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CostModel {
    /// Both ways between here and the engine's queue.
    pub overhead: Span,
    /// Computing one prompt token.
    pub prefill_per_token: Span,
    /// Steps from a free seat to the first token: the rest of the running step, those that are fixed
    /// already, and the request's own.
    pub first_token_steps: u64,
    /// Time per output token of an engine with nothing else to do; what is assumed before the first
    /// observation.
    pub idle_tpot: Span,
}

impl Default for CostModel {
    /// For orders that compare requests only: a step of 40 ms, in which a prompt of 500 tokens is computed.
    fn default() -> Self {
        Self {
            overhead: Span::ZERO,
            prefill_per_token: Span::from_nanos(80_000),
            first_token_steps: 3,
            idle_tpot: Span::from_millis(40),
        }
    }
}

/// How careful a prediction is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Caution {
    /// Kept free before every limit.
    pub pad: Span,
    /// Added to the time per output token, in thousandths.
    pub margin_permille: u64,
}

impl Default for Caution {
    /// What holds on an engine whose step time moves by some percent while a request runs.
    fn default() -> Self {
        Self { pad: Span::from_millis(30), margin_permille: 50 }
    }
}

impl Caution {
    /// None: for what a limit allows at best.
    pub(super) const NONE: Self = Self { pad: Span::ZERO, margin_permille: 0 };
}

/// What a request asks of an engine, as far as its time is concerned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) input: u32,
    /// Answer tokens, at least 1: as declared, or as expected.
    pub(super) output: u32,
    pub(super) slo: Slo,
}

impl Need {
    /// The same with another length of the answer.
    pub(super) const fn with_output(self, output: u32) -> Self {
        Self { output, ..self }
    }
}

impl CostModel {
    /// The cost model of an engine whose profile is known.
    ///
    /// A request that comes while a step runs waits for the rest of it and for the steps that are fixed
    /// already, and then for its own: the depth of the pipeline and one more, at most. The time per token
    /// is that of a step that reads no KV cache.
    #[must_use]
    pub fn from_profile(profile: &Profile) -> Self {
        Self {
            overhead: profile.overhead_in + profile.overhead_out,
            prefill_per_token: Span::from_millis_f64(profile.prefill_ms_per_token),
            first_token_steps: u64::from(profile.pipeline_depth) + 1,
            idle_tpot: profile.step(0, 0, 1),
        }
    }

    /// The same engine with nothing else to do and the prompt in its prefix cache: what no request can
    /// beat. Its first token takes one step, and the prompt nothing.
    pub(super) fn at_best(&self) -> Self {
        Self { prefill_per_token: Span::ZERO, first_token_steps: self.first_token_steps.min(1), ..*self }
    }

    /// The time for which a request of so many tokens holds a seat of an engine that does nothing else; at least
    /// one nanosecond.
    #[must_use]
    pub fn seat_time(&self, input: u32, output: u32) -> Span {
        let need = Need { input, output: output.max(1), slo: Slo::default() };
        self.e2e(&need, self.idle_tpot).max(Span::from_nanos(1))
    }

    /// From a free seat to the first token.
    pub(super) fn ttft(&self, need: &Need, tpot: Span) -> Span {
        self.overhead + tpot * self.first_token_steps + self.prefill_per_token * u64::from(need.input)
    }

    /// From a free seat to the last token.
    pub(super) fn e2e(&self, need: &Need, tpot: Span) -> Span {
        self.ttft(need, tpot) + tpot * u64::from(need.output - 1)
    }

    /// The longest mean time per token with which a request that starts when it comes meets its limits, in ms.
    pub(super) fn tolerated_ms(&self, need: &Need, caution: &Caution) -> f64 {
        let fixed = self.overhead + self.prefill_per_token * u64::from(need.input) + caution.pad;
        let room = |limit: Option<Span>, steps: f64| {
            limit.map_or(f64::INFINITY, |l| (l.as_millis_f64() - fixed.as_millis_f64()) / steps)
        };
        let steps = self.first_token_steps as f64;
        let whole = room(need.slo.e2e, f64::from(need.output - 1) + steps);
        let pace = need.slo.tpot.map_or(f64::INFINITY, Span::as_millis_f64);
        let margin = 1.0 + caution.margin_permille as f64 / 1000.0;
        whole.min(room(need.slo.ttft, steps)).min(pace) / margin
    }

    /// The tokens that a request that came at `arrived` and starts at `start` can have within its limits, with the
    /// last of them at the pace of `tpot`; [`u32::MAX`] without limits.
    pub(super) fn tokens_in_time(&self, arrived: Tick, start: Tick, need: &Need, tpot: Span) -> u32 {
        let first = start + self.ttft(need, tpot);
        let late = |limit: Option<Span>| limit.is_some_and(|l| arrived + l < first);
        if late(need.slo.ttft) || late(need.slo.e2e) {
            return 0;
        }
        let Some(e2e) = need.slo.e2e else { return u32::MAX };
        let further = (arrived + e2e).since(first).as_nanos() / tpot.as_nanos().max(1);
        u32::try_from(further).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// The latest time at which a request that came at `arrived` can be given a seat and still meet its
    /// limits, `None` if even a seat at arrival is too late; [`Tick::MAX`] without limits.
    pub(super) fn latest_start(&self, arrived: Tick, need: &Need, tpot: Span, caution: &Caution) -> Option<Tick> {
        let careful = Span::from_nanos(tpot.as_nanos().saturating_mul(1000 + caution.margin_permille) / 1000);
        let room = |limit: Option<Span>, service: Span| match limit {
            None => Some(Span::MAX),
            Some(limit) => limit.checked_sub(service + caution.pad),
        };
        let ttft = room(need.slo.ttft, self.ttft(need, tpot))?;
        let e2e = room(need.slo.e2e, self.ttft(need, tpot) + careful * u64::from(need.output - 1))?;
        // Seats and steps change under a request while it runs; its mean pace must keep the limit too.
        let pace_holds = need.slo.tpot.is_none_or(|limit| need.output == 1 || careful <= limit);
        pace_holds.then(|| arrived + ttft.min(e2e))
    }
}

/// The live time per output token: an exponentially weighted mean over the gaps of all running streams.
#[derive(Debug)]
pub(super) struct LiveTpot {
    idle: Span,
    mean: u64,
}

impl LiveTpot {
    /// The gaps of one step, over all running streams, count for one part in this many.
    const MEMORY: u64 = 50;

    pub(super) fn new(idle: Span) -> Self {
        Self { idle, mean: idle.as_nanos() }
    }

    /// One of `streams` running streams has had a gap.
    pub(super) fn observe(&mut self, gap: Span, streams: usize) {
        let memory = u128::from(Self::MEMORY) * streams.max(1) as u128;
        let weighted = u128::from(self.mean) * (memory - 1) + u128::from(gap.as_nanos());
        self.mean = u64::try_from(weighted / memory).unwrap_or(u64::MAX);
    }

    /// Nothing runs: the next request will find an idle engine.
    pub(super) fn reset(&mut self) {
        self.mean = self.idle.as_nanos();
    }

    /// The idle engine is another one; what was measured stays.
    pub(super) fn idles_at(&mut self, idle: Span) {
        self.idle = idle;
    }

    pub(super) fn set(&mut self, mean: Span) {
        self.mean = mean.as_nanos();
    }

    pub(super) fn get(&self) -> Span {
        Span::from_nanos(self.mean)
    }
}
