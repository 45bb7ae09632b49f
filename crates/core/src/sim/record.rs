//! How a simulated arrival ended, without anything on the heap.

use crate::engine::{Engine, TooLong};
use crate::ledger::{CountSource, Row};
use crate::outcome::{How, RejectReason, Terminal};
use crate::time::{Span, Tick};
use crate::work::Arrival;

/// The end of an arrival: all that a ledger's row says, in the simulator's own terms.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// What was planned.
    pub arrival: Arrival,
    /// Whose it was.
    pub tenant: &'a str,
    /// How long it waited in the gateway, if it was granted a permit.
    pub queue: Option<Span>,
    /// The backend that served it, if a gateway chose one.
    pub backend: Option<u16>,
    /// How it ended.
    pub ending: Ending<'a>,
}

/// How a simulated arrival ends.
#[derive(Clone, Debug)]
pub enum Ending<'a> {
    /// With a whole answer.
    Completed {
        /// When its first token came.
        first: Tick,
        /// When its last token came.
        last: Tick,
        /// Prompt tokens that came from the prefix cache.
        cached: u32,
        /// The gaps between its tokens.
        gaps: Gaps<'a>,
    },
    /// Cut by the gateway because its deadline was lost.
    Cut {
        /// When the client learned it.
        at: Tick,
        /// When its first and its last token came, if any did.
        content: Option<(Tick, Tick)>,
        /// Tokens that came.
        tokens: u32,
    },
    /// Turned away by the gateway.
    Rejected {
        /// When the client learned it.
        at: Tick,
        /// Why.
        reason: RejectReason,
    },
    /// Refused by the engine as a bad request.
    TooLong {
        /// When the client learned it.
        at: Tick,
        /// What was needed and what there was.
        why: TooLong,
    },
}

/// The gaps between the tokens of an answer, worked out when they are asked for.
#[derive(Copy, Clone, Debug)]
pub struct Gaps<'a>(pub(super) GapsFrom<'a>);

/// Where gaps come from.
#[derive(Copy, Clone, Debug)]
pub(super) enum GapsFrom<'a> {
    /// They were kept.
    Kept(&'a [Span]),
    /// The engine's steps that gave so many tokens, the last one at this time.
    Steps { engine: &'a Engine, at: Tick, tokens: u32 },
}

impl Gaps<'_> {
    /// The gaps in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Span> {
        match self.0 {
            GapsFrom::Kept(gaps) => gaps.to_vec(),
            GapsFrom::Steps { engine, at, tokens } => {
                let times = engine.times(at, tokens);
                times.clone().zip(times.skip(1)).map(|(before, after)| after.since(before)).collect()
            }
        }
    }
}

impl Record<'_> {
    /// When it was sent: as planned.
    #[must_use]
    pub fn planned(&self) -> Tick {
        Tick::ZERO + self.arrival.at
    }

    /// The row for the ledger.
    #[must_use]
    pub fn to_row(&self) -> Row {
        let Arrival { index, input, output, .. } = self.arrival;
        let mut row = Row::new(index, self.tenant, self.planned(), input, output);
        row.send_started = Some(self.planned());
        row.queue = self.queue;
        row.backend = self.backend.map(|b| b.to_string());
        match &self.ending {
            Ending::Completed { first, last, cached, gaps } => {
                row.state = Terminal::Completed;
                row.status = Some(200);
                (row.head, row.first_event, row.first_content) = (Some(*first), Some(*first), Some(*first));
                (row.last_content, row.end) = (Some(*last), Some(*last));
                row.gaps = gaps.to_vec();
                row.input_tokens = Some(input);
                row.output_tokens = Some(output);
                row.output_tokens_from = Some(CountSource::Usage);
                row.cached_tokens = Some(*cached);
            }
            Ending::Rejected { at, reason } => {
                row.state = Terminal::Rejected;
                row.status = Some(match reason {
                    RejectReason::SloInfeasible
                    | RejectReason::PredictedLate
                    | RejectReason::QueueFull
                    | RejectReason::TenantLimit
                    | RejectReason::QueueExpired => 429,
                    RejectReason::NoBackend | RejectReason::Draining => 503,
                });
                row.reason = Some(reason.name().to_owned());
                (row.head, row.end) = (Some(*at), Some(*at));
            }
            Ending::Cut { at, content, tokens } => {
                row.state = if content.is_some() { Terminal::StreamError } else { Terminal::HttpError };
                row.status = Some(if content.is_some() { 200 } else { 504 });
                let first = content.map(|(first, _)| first);
                row.head = Some(first.unwrap_or(*at));
                (row.first_event, row.first_content) = (first, first);
                (row.last_content, row.end) = (content.map(|(_, last)| last), Some(*at));
                row.output_tokens = Some(*tokens).filter(|n| *n > 0);
                row.output_tokens_from = row.output_tokens.map(|_| CountSource::Events);
                row.error = Some(format!("cut by the gateway: {}", How::Aborted));
            }
            Ending::TooLong { at, why } => {
                row.state = Terminal::HttpError;
                row.status = Some(400);
                row.error = Some(why.to_string());
                (row.head, row.end) = (Some(*at), Some(*at));
            }
        }
        row
    }
}
