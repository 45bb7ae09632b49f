//! A run's ledger in columns: how each arrival ended, in order of the plan.
//!
//! Figures, checks and pictures need a few numbers of each arrival and none of its strings and gaps. An [`Account`]
//! keeps those, about 80 bytes an arrival, so that a ledger of ten million rows fits into memory.

mod columns;
mod gather;

use elasticserve_core::ledger::{CountSource, Manifest, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};

use crate::read::Run;
use columns::Columns;
pub(crate) use gather::{Gatherer, MAX_EXAMPLES, Offenders, Parsed, Problems, is_in_order, tenant_places};

/// A run as its folder tells it, a record of fixed size for each arrival.
///
/// Each arrival is there at most once, as its last attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// What was run.
    pub manifest: Manifest,
    /// Whether the ledger's last line was cut off and left out, as after a kill.
    pub torn: bool,
    columns: Columns,
    /// What was said at the end of those that were not completed, by the number in [`Arrival::ending`].
    endings: Vec<Words>,
    /// Rows beyond the first of their arrival.
    pub(crate) retries: u32,
    /// Rows that were sent.
    pub(crate) attempts: u32,
    /// How late the first attempts were sent, in order of the ledger.
    pub(crate) first_lags: Vec<Span>,
    last_end: Option<Tick>,
    pub(crate) problems: Problems,
    /// The limits of each tenant of the plan.
    slos: Vec<Slo>,
}

/// Why an arrival was not completed: the status, and the server's reason or the client's error.
pub(crate) type Words = (Option<u16>, Option<String>);

/// How an arrival ended: what figures need of its last row.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Its place in the plan.
    pub index: u32,
    /// The place of its tenant in the plan.
    pub tenant: u32,
    /// How it ended.
    pub state: Terminal,
    /// Whether the head of the answer said success.
    pub admitted: bool,
    /// When it was to be sent.
    pub planned: Tick,
    /// When the generator began to send it.
    pub send_started: Option<Tick>,
    /// When the first usable content came.
    pub first_content: Option<Tick>,
    /// When it ended.
    pub end: Option<Tick>,
    /// Time per output token after the first.
    pub tpot: Option<Span>,
    /// The longest gap between two content events.
    pub longest_gap: Option<Span>,
    /// The wait in the gateway, by the gateway's header.
    pub queue: Option<Span>,
    /// From the answer's head to the first content.
    pub content_after_head: Option<Span>,
    /// Gaps between content events.
    pub gaps: u32,
    /// Prompt tokens in the plan.
    pub input_planned: u32,
    /// Answer tokens in the plan.
    pub output_planned: u32,
    /// Prompt tokens as the server counted them.
    pub input_tokens: Option<u32>,
    /// Answer tokens.
    pub output_tokens: Option<u32>,
    /// Prompt tokens from the prefix cache.
    pub cached_tokens: Option<u32>,
    /// Where the count of answer tokens comes from.
    pub output_tokens_from: Option<CountSource>,
    /// Whether it went over a connection that had been used before.
    pub reused_connection: Option<bool>,
    /// Whether an event without content came before the first content.
    pub event_before_content: bool,
    /// Whether the answer began with reasoning.
    pub reasoned: bool,
    /// The place of what was said at its end; `None` if it was completed.
    pub(crate) ending: Option<u32>,
}

impl Arrival {
    /// What a row says of its arrival, which belongs to the tenant of the given place.
    pub(crate) fn of(row: &Row, tenant: u32) -> Self {
        Self {
            index: row.index,
            tenant,
            state: row.state,
            admitted: crate::was_admitted(row),
            planned: row.planned,
            send_started: row.send_started,
            first_content: row.first_content,
            end: row.end,
            tpot: row.tpot(),
            longest_gap: row.gaps.iter().copied().max(),
            queue: row.queue,
            content_after_head: row.first_content.zip(row.head).map(|(content, head)| content.since(head)),
            gaps: row.gaps.len() as u32,
            input_planned: row.input_planned,
            output_planned: row.output_planned,
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            cached_tokens: row.cached_tokens,
            output_tokens_from: row.output_tokens_from,
            reused_connection: row.reused_connection,
            event_before_content: row.first_event.zip(row.first_content).is_some_and(|(e, c)| e < c),
            reasoned: row.first_reasoning.is_some(),
            ending: None,
        }
    }

    /// Time to first token from the plan.
    #[must_use]
    pub fn ttft(&self) -> Option<Span> {
        self.first_content.map(|t| t.since(self.planned))
    }

    /// Time to first token from the send.
    #[must_use]
    pub fn ttft_from_send(&self) -> Option<Span> {
        Some(self.first_content?.since(self.send_started?))
    }

    /// End to end from the plan.
    #[must_use]
    pub fn e2e(&self) -> Option<Span> {
        self.end.map(|t| t.since(self.planned))
    }

    /// End to end from the send.
    #[must_use]
    pub fn e2e_from_send(&self) -> Option<Span> {
        Some(self.end?.since(self.send_started?))
    }

    /// Whether it is a whole answer within every limit.
    #[must_use]
    pub fn is_good(&self, slo: &Slo) -> bool {
        self.state == Terminal::Completed && slo.is_met(self.ttft(), self.tpot, self.e2e(), self.output_tokens)
    }
}

impl Account {
    /// The account of a run whose rows are at hand.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let mut gathered = Gatherer::new(&run.manifest, run.rows.len());
        for row in &run.rows {
            let tenant = gathered.tenant(&row.tenant).unwrap_or(u32::MAX);
            gathered.add(Parsed::of(row, tenant));
        }
        gathered.finish(run.torn)
    }

    /// How many arrivals the ledger accounts for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether the ledger accounts for no arrival.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arrivals that have a row, in order of the plan.
    pub fn arrivals(&self) -> impl ExactSizeIterator<Item = Arrival> + Clone + '_ {
        (0..self.columns.len()).map(|i| self.columns.get(i))
    }

    /// The arrival at a place among those that have a row.
    pub(crate) fn arrival(&self, place: usize) -> Arrival {
        self.columns.get(place)
    }

    /// The limits of an arrival's tenant.
    #[must_use]
    pub fn slo(&self, arrival: &Arrival) -> Slo {
        self.slos.get(arrival.tenant as usize).copied().unwrap_or_default()
    }

    /// What was said at the end of an arrival that was not completed.
    pub(crate) fn words(&self, arrival: &Arrival) -> Option<&Words> {
        self.endings.get(arrival.ending? as usize)
    }

    /// How many arrivals were due: those of the plan, or of a plan that is a supply those that were drawn.
    #[must_use]
    pub fn due(&self) -> u32 {
        due(&self.manifest)
    }

    /// The time that rates divide by: the plan's window, or where the plan fixes none (closed loads, sessions)
    /// the time until the last request ended.
    #[must_use]
    pub fn window(&self) -> Span {
        let last = || self.last_end.map_or(Span::ZERO, |end| end.since(Tick::ZERO));
        self.manifest.plan.window.unwrap_or_else(last)
    }
}

pub(crate) fn due(manifest: &Manifest) -> u32 {
    let planned = manifest.plan.count;
    manifest.end.and_then(|end| end.drawn).map_or(planned, |drawn| drawn.min(planned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_arrival_is_there_once_in_the_order_of_the_plan_as_its_last_attempt_ended() {
        let mut run = fixture::mixed();
        run.rows.reverse();
        let mut again = fixture::answered(3, "b", 1500, 900);
        again.attempt = 1;
        run.rows.insert(0, again);
        let account = Account::of(&run);
        let indexes: Vec<u32> = account.arrivals().map(|a| a.index).collect();
        assert_eq!(indexes, (0..8).collect::<Vec<_>>());
        let third = account.arrival(3);
        assert_eq!((third.state, third.ttft()), (Terminal::Completed, Some(Span::from_millis(900))));
        assert_eq!((account.retries, account.attempts, account.first_lags.len()), (1, 8, 7));
    }

    #[test]
    fn what_a_row_does_not_hold_stays_absent_in_the_columns() {
        let run = fixture::mixed();
        let account = Account::of(&run);
        for (row, arrival) in run.rows.iter().zip(account.arrivals()) {
            let tenant = run.manifest.plan.tenants.iter().position(|t| t.name == row.tenant).unwrap() as u32;
            assert_eq!(Arrival { ending: None, ..arrival }, Arrival::of(row, tenant));
            assert_eq!(arrival.is_good(&account.slo(&arrival)), row.is_good(&run.slo(row)));
        }
        let rejected = account.arrival(3);
        assert_eq!(account.words(&rejected), Some(&(Some(429), Some("queue_full".to_owned()))));
        assert_eq!(account.words(&account.arrival(0)), None);
    }
}
