//! A request as the scheduler sees it: whose, how much work, and by when.

use elasticserve_core::ids::TenantId;
use elasticserve_core::openai::{InputTokens, Peek};
use elasticserve_core::sched::Offer;
use elasticserve_core::slo::Slo;

use crate::auth::Caller;
use crate::config::{Config, Lengths};
use crate::decisions::Known;
use crate::headers::Wishes;

/// What a request asks for.
pub(crate) struct Task {
    pub(crate) tenant: TenantId,
    /// How the tenant is known.
    pub(crate) tenant_from: &'static str,
    input: u32,
    /// How many answers it asks for.
    choices: u32,
    /// How many tokens its answer has, and where that comes from.
    output: Output,
    /// The limits that make its answer useful: its tenant's, each replaced by its own if it states one.
    pub(crate) slo: Slo,
    /// The same, and what its client waits for at most.
    bound: Slo,
}

/// What is known of the length of an answer.
enum Output {
    /// Exactly so many tokens, by the header, or because the engine is told to fill the limit.
    Declared(u32, &'static str),
    /// No more than so many, which tells requests apart.
    Limited(u32),
    Unknown,
}

impl Task {
    pub(crate) fn of(config: &Config, caller: &Caller, wishes: &Wishes, peek: &Peek) -> Self {
        let tenant = caller.tenant.unwrap_or(config.default_tenant);
        let mut slo = config.tenants[tenant.index()].slo.overridden_by(&wishes.slo);
        let within = |limit| [limit, wishes.patience].into_iter().flatten().min();
        // A read timeout runs to the first bytes of a stream, but to the end of an answer in one piece, whose
        // first token nobody sees.
        let bound = if peek.stream {
            Slo { ttft: within(slo.ttft), ..slo }
        } else {
            slo.ttft = None;
            Slo { e2e: within(slo.e2e), ..slo }
        };
        let output = match (wishes.output, peek.max_tokens) {
            (Some(exact), _) => Output::Declared(exact, "header"),
            (None, Some(limit)) if peek.to_the_limit => Output::Declared(limit, "ignore_eos"),
            (None, Some(limit)) if config.lengths == Lengths::Declared => Output::Declared(limit, "max_tokens"),
            (None, Some(limit)) => Output::Limited(limit),
            (None, None) => Output::Unknown,
        };
        let input = wishes.input.unwrap_or(peek.input.count());
        Self { tenant, tenant_from: caller.known_by, input, choices: peek.choices, output, slo, bound }
    }

    /// Prompt tokens, as far as they are known.
    pub(crate) const fn input(&self) -> u32 {
        self.input
    }

    /// How many answers it asks for.
    pub(crate) const fn choices(&self) -> u32 {
        self.choices
    }

    /// Answer tokens, if they are declared.
    pub(crate) const fn declared_output(&self) -> Option<u32> {
        if let Output::Declared(tokens, _) = self.output { Some(tokens) } else { None }
    }

    /// What limits the answer, if it is not its length.
    pub(crate) const fn output_limit(&self) -> Option<u32> {
        if let Output::Limited(limit) = self.output { Some(limit) } else { None }
    }

    pub(crate) fn offer(&self, wishes: &Wishes, bytes: u64, affinity: Option<u64>) -> Offer {
        let (output, hint) = match self.output {
            Output::Declared(tokens, _) => (Some(tokens.max(1)), None),
            Output::Limited(limit) => (None, Some(limit)),
            Output::Unknown => (None, None),
        };
        Offer {
            tenant: self.tenant,
            bytes,
            class: wishes.class,
            budget: wishes.budget,
            input: self.input,
            output,
            hint,
            slo: self.bound,
            affinity,
            again: wishes.retry > 0,
        }
    }

    pub(crate) fn known(&self, wishes: &Wishes, peek: &Peek, offer: &Offer) -> Known {
        let input_from = match (wishes.input, peek.input) {
            (Some(_), _) => "header",
            (None, InputTokens::Exact(_)) => "token_ids",
            (None, InputTokens::Estimated(_)) => "estimate",
        };
        let (output, output_from) = match self.output {
            Output::Declared(tokens, from) => (Some(tokens), from),
            Output::Limited(limit) => (Some(limit), "hint"),
            Output::Unknown => (None, "unknown"),
        };
        Known {
            input: self.input,
            input_from: input_from.to_owned(),
            output,
            output_from: output_from.to_owned(),
            bytes: offer.bytes,
            class: wishes.class,
            slo: (&self.slo).into(),
            slo_from: if wishes.slo == Slo::default() { "tenant" } else { "request" }.to_owned(),
            patience_ms: wishes.patience.map(|p| p.as_millis_f64()),
            budget_ms: wishes.budget.map(|b| b.as_millis_f64()),
            retry: Some(wishes.retry).filter(|retry| *retry > 0),
        }
    }
}
