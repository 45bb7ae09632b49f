//! A request as the scheduler sees it: whose, how much work, and by when.

use elasticserve_core::ids::TenantId;
use elasticserve_core::openai::{InputTokens, Peek};
use elasticserve_core::sched::Offer;
use elasticserve_core::slo::Slo;

use crate::config::Config;
use crate::decisions::Known;
use crate::headers::Wishes;

/// Answer tokens of a request that neither states nor bounds them.
const ASSUMED_OUTPUT: u32 = 256;

/// What a request asks for.
pub(crate) struct Task {
    pub(crate) tenant: TenantId,
    /// Whether it named its tenant.
    pub(crate) named: bool,
    pub(crate) input: u32,
    /// At least 1.
    pub(crate) output: u32,
    /// The limits that make its answer useful: its tenant's, each replaced by its own if it states one.
    pub(crate) slo: Slo,
    /// The same, and what its client waits for at most.
    pub(crate) bound: Slo,
}

impl Task {
    pub(crate) fn of(config: &Config, wishes: &Wishes, peek: &Peek) -> Self {
        let tenant = wishes.tenant.unwrap_or(config.default_tenant);
        let slo = config.tenants[tenant.index()].slo.overridden_by(&wishes.slo);
        let within = |limit| [limit, wishes.patience].into_iter().flatten().min();
        // A read timeout runs to the first bytes of a stream, but to the end of an answer in one piece.
        let bound =
            if peek.stream { Slo { ttft: within(slo.ttft), ..slo } } else { Slo { e2e: within(slo.e2e), ..slo } };
        Self {
            tenant,
            named: wishes.tenant.is_some(),
            input: wishes.input.unwrap_or(peek.input.count()),
            output: wishes.output.or(peek.max_tokens).unwrap_or(ASSUMED_OUTPUT).max(1),
            slo,
            bound,
        }
    }

    pub(crate) fn offer(&self, wishes: &Wishes, bytes: u64) -> Offer {
        Offer {
            tenant: self.tenant,
            bytes,
            class: None,
            budget: wishes.budget,
            input: self.input,
            output: Some(self.output),
            hint: None,
            slo: self.bound,
        }
    }

    pub(crate) fn known(&self, wishes: &Wishes, peek: &Peek, offer: &Offer) -> Known {
        let input_from = match (wishes.input, peek.input) {
            (Some(_), _) => "header",
            (None, InputTokens::Exact(_)) => "token_ids",
            (None, InputTokens::Estimated(_)) => "estimate",
        };
        let output_from = match (wishes.output, peek.max_tokens) {
            (Some(_), _) => "header",
            (None, Some(_)) => "max_tokens",
            (None, None) => "assumed",
        };
        Known {
            input: self.input,
            input_from: input_from.to_owned(),
            output: self.output,
            output_from: output_from.to_owned(),
            bytes: offer.bytes,
            slo: (&self.slo).into(),
            slo_from: if wishes.slo == Slo::default() { "tenant" } else { "request" }.to_owned(),
            patience_ms: wishes.patience.map(|p| p.as_millis_f64()),
            budget_ms: wishes.budget.map(|b| b.as_millis_f64()),
        }
    }
}
