//! The account of one request, from its offer to its end.

use std::sync::Arc;

use elasticserve_core::ids::TenantId;
use elasticserve_core::openai::Usage;
use elasticserve_core::outcome::How;
use elasticserve_core::sched::{Used, Word};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};

use http::StatusCode;

use super::Metrics;
use crate::clock::Clock;
use crate::decisions::{Decided, Decision, DecisionLog, Happened};
use crate::limits::Charge;
use crate::record::Follow;

/// A decision whose end is not known yet, and where it goes then.
pub(crate) struct Draft {
    pub(crate) decision: Decision,
    pub(crate) log: DecisionLog,
}

/// Whose a request is, when it came, and by what it is judged.
pub(crate) struct Account {
    pub(crate) tenant: TenantId,
    pub(crate) arrived: Tick,
    pub(crate) slo: Slo,
    /// Whether its client asks again after a first attempt.
    pub(crate) again: bool,
    pub(crate) draft: Option<Box<Draft>>,
    /// What it has taken of limits per minute.
    pub(crate) charge: Option<Charge>,
    /// What is told of it once it has ended, if anything is.
    pub(crate) follow: Option<Box<Follow>>,
}

/// The account of one scheduled request. Dropped without an end, it counts the client as gone.
pub(crate) struct Meter {
    metrics: Arc<Metrics>,
    clock: Clock,
    account: Account,
    first_content: Option<Tick>,
    last_content: Option<Tick>,
    content_events: u32,
    usage: Option<Usage>,
    ended: bool,
    /// Whether it got a permit.
    granted: bool,
    /// Whether its answer comes in pieces, so that its tokens can be counted on the way.
    streams: bool,
    /// Whether its answer is an error.
    is_error: bool,
}

/// What was measured of an answer.
struct Measured {
    ttft: Option<Span>,
    tpot: Option<Span>,
    e2e: Span,
    output: Option<u32>,
}

impl Meter {
    pub(crate) fn start(metrics: Arc<Metrics>, clock: Clock, account: Account) -> Self {
        Self {
            metrics,
            clock,
            account,
            first_content: None,
            last_content: None,
            content_events: 0,
            usage: None,
            ended: false,
            granted: false,
            streams: false,
            is_error: false,
        }
    }

    /// It has taken something of limits per minute, which is settled at its end.
    pub(crate) fn charge(&mut self, charge: Option<Charge>, streams: bool) {
        self.account.charge = charge;
        self.streams = streams;
    }

    /// It has failed by no fault of its client's, so it has cost nothing of any limit.
    pub(crate) fn excuse(&mut self) {
        self.account.charge = None;
    }

    /// It got a permit after so long a wait.
    pub(crate) fn granted(&mut self, waited: Span) {
        self.granted = true;
        self.metrics.waited(self.account.tenant, waited);
        if let Some(follow) = &mut self.account.follow {
            follow.record.waited = Some(waited);
        }
        let at_ms = self.so_far().as_millis_f64();
        if let Some(draft) = &mut self.account.draft {
            draft.decision.decided = Decided { granted: true, reason: None, at_ms, backend: None };
        }
    }

    /// It goes to that backend, maybe because another one failed.
    pub(crate) fn sent_to(&mut self, backend: u32) {
        if let Some(follow) = &mut self.account.follow {
            follow.record.backend = Some(backend);
        }
        if let Some(draft) = &mut self.account.draft {
            draft.decision.decided.backend = Some(backend);
        }
    }

    /// Its answer has that status.
    pub(crate) fn status(&mut self, status: StatusCode) {
        if let Some(follow) = &mut self.account.follow {
            follow.record.status = Some(status.as_u16());
        }
    }

    /// Content came, in so many events; the time since the content before.
    pub(crate) fn content(&mut self, events: u32) -> Option<Span> {
        let now = self.clock.now();
        self.first_content.get_or_insert(now);
        self.content_events += events;
        self.last_content.replace(now).map(|before| now.since(before))
    }

    pub(crate) fn has_content(&self) -> bool {
        self.first_content.is_some()
    }

    pub(crate) fn usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// The tokens that it took, as far as they are known: the backend's counts, else the events counted here.
    pub(crate) fn used(&self) -> Used {
        let counted = Some(self.content_events).filter(|n| *n > 0);
        Used {
            input: self.usage.and_then(|u| u.prompt_tokens),
            output: self.usage.and_then(|u| u.completion_tokens).or(counted),
        }
    }

    /// What the shadow policy had decided by the end.
    pub(crate) fn shadowed(&mut self, word: Option<Word>) {
        if let Some(draft) = &mut self.account.draft {
            draft.decision.shadow = word.map(Into::into);
        }
    }

    /// The request was turned away.
    pub(crate) fn refused(mut self, code: &'static str) {
        self.end(code, "rejected", None);
    }

    /// The backend gave no answer.
    pub(crate) fn failed(mut self, code: &'static str) {
        self.excuse();
        self.end(code, "missed", None);
    }

    /// The answer ended. `success` is false for an answer that is an error of the backend's.
    pub(crate) fn answered(mut self, how: How, success: bool) {
        let measured = self.measured();
        self.is_error = !success;
        if how != How::Finished || !success {
            let outcome = if how == How::Finished { "backend_error" } else { how.name() };
            self.end(outcome, "missed", Some(measured));
            return;
        }
        if let Some(figures) = self.metrics.of(self.account.tenant) {
            let spans = [(&figures.ttft, measured.ttft), (&figures.tpot, measured.tpot)];
            for (histogram, span) in spans.into_iter().chain([(&figures.e2e, Some(measured.e2e))]) {
                if let Some(span) = span {
                    histogram.observe(span.as_secs_f64());
                }
            }
        }
        let output = measured.output.unwrap_or(0);
        self.metrics.count_tokens(self.account.tenant, "output", output);
        if let Some(input) = self.usage.and_then(|usage| usage.prompt_tokens) {
            self.metrics.count_tokens(self.account.tenant, "input", input);
        }
        let met = self.account.slo.is_met(measured.ttft, measured.tpot, Some(measured.e2e), Some(output));
        self.end(how.name(), if met { "met" } else { "missed" }, Some(measured));
    }

    fn so_far(&self) -> Span {
        self.clock.now().since(self.account.arrived)
    }

    fn measured(&self) -> Measured {
        let counted = self.first_content.map(|_| self.content_events);
        let output = self.usage.and_then(|u| u.completion_tokens).or(counted);
        let content = self.first_content.zip(self.last_content).map(|(a, b)| b.since(a));
        let gaps = output.map_or(0, |n| u64::from(n.saturating_sub(1)));
        Measured {
            ttft: self.first_content.map(|t| t.since(self.account.arrived)),
            tpot: content.filter(|_| gaps > 0).map(|c| Span::from_nanos(c.as_nanos() / gaps)),
            e2e: self.so_far(),
            output,
        }
    }

    /// Pays for what was used. What never got a permit has cost nothing; an answer of which no counts came, and of
    /// which none could be counted, costs what was expected.
    fn settle(&mut self) {
        let Some(charge) = self.account.charge.take().filter(|_| self.granted) else { return };
        let usage = self.usage.unwrap_or_default();
        let counted = (self.streams || self.is_error).then_some(self.content_events);
        let prompt = if self.is_error { Some(0) } else { None };
        let used = match usage.completion_tokens.or(counted) {
            Some(output) => {
                let input = usage.prompt_tokens.or(prompt).map_or(charge.expected().input(), u64::from);
                input + u64::from(output)
            }
            None => usage.prompt_tokens.map_or(charge.expected().total(), u64::from),
        };
        charge.settle(used);
    }

    fn follow_to_the_end(&mut self, outcome: &'static str, result: &'static str, measured: Option<&Measured>) {
        let Some(mut follow) = self.account.follow.take() else { return };
        let own = measured.is_none().then(|| self.measured());
        let (record, used) = (&mut follow.record, self.used());
        if let Some(measured) = measured.or(own.as_ref()) {
            (record.ttft, record.e2e) = (measured.ttft, measured.e2e);
        }
        (record.outcome, record.result) = (outcome, result);
        (record.input, record.output) = (used.input, used.output);
        follow.end(&self.metrics);
    }

    /// Counts the end, once, and writes the decision down.
    fn end(&mut self, outcome: &'static str, result: &'static str, measured: Option<Measured>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.settle();
        self.metrics.ended_of(self.account.tenant, outcome);
        self.metrics.slo(self.account.tenant, result, self.account.again);
        self.follow_to_the_end(outcome, result, measured.as_ref());
        let Some(draft) = self.account.draft.take() else { return };
        let Draft { mut decision, log } = *draft;
        let measured = measured.unwrap_or_else(|| self.measured());
        let ms = |span: Option<Span>| span.map(Span::as_millis_f64);
        decision.result = result.to_owned();
        if decision.decided.granted {
            decision.happened = Some(Happened {
                how: outcome.to_owned(),
                ttft_ms: ms(measured.ttft),
                tpot_ms: ms(measured.tpot),
                e2e_ms: measured.e2e.as_millis_f64(),
                output_tokens: measured.output,
            });
        } else {
            decision.decided.reason = Some(outcome.to_owned());
            decision.decided.at_ms = measured.e2e.as_millis_f64();
        }
        log.add(decision, &self.metrics);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { How::Abandoned } else { How::ClientGone };
        self.end(how.name(), "cancelled", None);
    }
}
