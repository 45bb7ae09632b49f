//! Arrivals as columns of integers.

use elasticserve_core::ledger::CountSource;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::{Span, Tick};

use super::Arrival;

/// A column of integers that may be absent. What is absent at its start takes no room, so neither does a column in
/// which everything is.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sparse<T> {
    absent: usize,
    rest: Vec<T>,
}

/// An integer with a value that stands for none. It is beyond every time of a run and every count of tokens.
trait Cell: Copy + PartialEq {
    const NONE: Self;
}

impl Cell for u64 {
    const NONE: Self = Self::MAX;
}

impl Cell for u32 {
    const NONE: Self = Self::MAX;
}

impl<T: Cell> Sparse<T> {
    fn push(&mut self, value: Option<T>) {
        match value {
            None if self.rest.is_empty() => self.absent += 1,
            value => self.rest.push(value.unwrap_or(T::NONE)),
        }
    }

    fn get(&self, place: usize) -> Option<T> {
        let value = *self.rest.get(place.checked_sub(self.absent)?)?;
        (value != T::NONE).then_some(value)
    }

    fn picked(&self, places: &[u32]) -> Self {
        let mut out = Self { absent: 0, rest: Vec::new() };
        if !self.rest.is_empty() {
            out.rest.reserve_exact(places.len());
        }
        for place in places {
            out.push(self.get(*place as usize));
        }
        out
    }
}

/// The columns. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Columns {
    index: Vec<u32>,
    tenant: Vec<u32>,
    state: Vec<Terminal>,
    flags: Vec<u8>,
    planned: Vec<u64>,
    send_started: Sparse<u64>,
    first_content: Sparse<u64>,
    end: Sparse<u64>,
    tpot: Sparse<u64>,
    longest_gap: Sparse<u64>,
    queue: Sparse<u64>,
    content_after_head: Sparse<u64>,
    gaps: Vec<u32>,
    input_planned: Vec<u32>,
    output_planned: Vec<u32>,
    input_tokens: Sparse<u32>,
    output_tokens: Sparse<u32>,
    cached_tokens: Sparse<u32>,
    ending: Sparse<u32>,
}

const ADMITTED: u8 = 1;
const EARLY_EVENT: u8 = 2;
const REASONED: u8 = 4;
const BY_USAGE: u8 = 8;
const BY_EVENTS: u8 = 16;
const CONNECTED: u8 = 32;
const REUSED: u8 = 64;

impl Columns {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn push(&mut self, a: &Arrival) {
        let tick = |t: Option<Tick>| t.map(Tick::as_nanos);
        let span = |s: Option<Span>| s.map(Span::as_nanos);
        self.index.push(a.index);
        self.tenant.push(a.tenant);
        self.state.push(a.state);
        self.flags.push(flags(a));
        self.planned.push(a.planned.as_nanos());
        self.send_started.push(tick(a.send_started));
        self.first_content.push(tick(a.first_content));
        self.end.push(tick(a.end));
        self.tpot.push(span(a.tpot));
        self.longest_gap.push(span(a.longest_gap));
        self.queue.push(span(a.queue));
        self.content_after_head.push(span(a.content_after_head));
        self.gaps.push(a.gaps);
        self.input_planned.push(a.input_planned);
        self.output_planned.push(a.output_planned);
        self.input_tokens.push(a.input_tokens);
        self.output_tokens.push(a.output_tokens);
        self.cached_tokens.push(a.cached_tokens);
        self.ending.push(a.ending);
    }

    pub(super) fn get(&self, i: usize) -> Arrival {
        let tick = |t: &Sparse<u64>| t.get(i).map(Tick::from_nanos);
        let span = |s: &Sparse<u64>| s.get(i).map(Span::from_nanos);
        let flag = |bit: u8| self.flags[i] & bit != 0;
        Arrival {
            index: self.index[i],
            tenant: self.tenant[i],
            state: self.state[i],
            admitted: flag(ADMITTED),
            planned: Tick::from_nanos(self.planned[i]),
            send_started: tick(&self.send_started),
            first_content: tick(&self.first_content),
            end: tick(&self.end),
            tpot: span(&self.tpot),
            longest_gap: span(&self.longest_gap),
            queue: span(&self.queue),
            content_after_head: span(&self.content_after_head),
            gaps: self.gaps[i],
            input_planned: self.input_planned[i],
            output_planned: self.output_planned[i],
            input_tokens: self.input_tokens.get(i),
            output_tokens: self.output_tokens.get(i),
            cached_tokens: self.cached_tokens.get(i),
            output_tokens_from: match (flag(BY_USAGE), flag(BY_EVENTS)) {
                (true, _) => Some(CountSource::Usage),
                (_, true) => Some(CountSource::Events),
                _ => None,
            },
            reused_connection: flag(CONNECTED).then(|| flag(REUSED)),
            event_before_content: flag(EARLY_EVENT),
            reasoned: flag(REASONED),
            ending: self.ending.get(i),
        }
    }

    pub(super) fn index(&self, i: usize) -> u32 {
        self.index[i]
    }

    /// The rows at the given places, in that order; one column after the other, so that little is there twice.
    pub(super) fn pick(&mut self, places: &[u32]) {
        fn dense<T: Copy>(column: &mut Vec<T>, places: &[u32]) {
            *column = places.iter().map(|p| column[*p as usize]).collect();
        }
        fn sparse<T: Cell>(column: &mut Sparse<T>, places: &[u32]) {
            *column = column.picked(places);
        }
        for column in
            [&mut self.index, &mut self.tenant, &mut self.gaps, &mut self.input_planned, &mut self.output_planned]
        {
            dense(column, places);
        }
        dense(&mut self.state, places);
        dense(&mut self.flags, places);
        dense(&mut self.planned, places);
        for column in [
            &mut self.send_started,
            &mut self.first_content,
            &mut self.end,
            &mut self.tpot,
            &mut self.longest_gap,
            &mut self.queue,
            &mut self.content_after_head,
        ] {
            sparse(column, places);
        }
        for column in [&mut self.input_tokens, &mut self.output_tokens, &mut self.cached_tokens, &mut self.ending] {
            sparse(column, places);
        }
    }
}

fn flags(a: &Arrival) -> u8 {
    let source = match a.output_tokens_from {
        Some(CountSource::Usage) => BY_USAGE,
        Some(CountSource::Events) => BY_EVENTS,
        None => 0,
    };
    let connection = match a.reused_connection {
        Some(true) => CONNECTED | REUSED,
        Some(false) => CONNECTED,
        None => 0,
    };
    let when = |holds: bool, bit: u8| if holds { bit } else { 0 };
    when(a.admitted, ADMITTED)
        | when(a.event_before_content, EARLY_EVENT)
        | when(a.reasoned, REASONED)
        | source
        | connection
}
