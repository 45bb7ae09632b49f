//! The rows of a ledger, counted as they are written.

use elasticserve_core::health::{Lateness, LatenessCounts};
use elasticserve_core::ledger::Row;
use elasticserve_core::time::Tick;

/// The longest run whose sends are counted by the second: some 12 days.
const MAX_SECONDS: usize = 1 << 20;

/// What the rows so far add up to.
#[derive(Debug)]
pub(crate) struct Tally {
    /// By arrival.
    last: Vec<Last>,
    surplus: u32,
    send_lag: LatenessCounts,
    sends: Vec<u32>,
    reused: u32,
    answered: u32,
}

/// The last row of an arrival so far.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Last {
    None,
    Sent { attempts: u16 },
    Unsent { attempts: u16 },
}

/// Arrivals by their last row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) sent: u32,
    pub(crate) unsent: u32,
    /// Rows of an arrival that is not in the plan, or of an attempt out of its order.
    pub(crate) surplus: u32,
}

impl Tally {
    /// Nothing counted, of a plan of so many arrivals.
    pub(crate) fn new(planned: u32) -> Self {
        let last = vec![Last::None; planned as usize];
        Self { last, surplus: 0, send_lag: LatenessCounts::new(), sends: Vec::new(), reused: 0, answered: 0 }
    }

    /// Counts a row.
    pub(crate) fn count(&mut self, row: &Row) {
        match self.last.get_mut(row.index as usize) {
            Some(last) if last.attempts() == row.attempt => {
                let attempts = u16::try_from(row.attempt + 1).unwrap_or(u16::MAX);
                *last = if row.state.was_sent() { Last::Sent { attempts } } else { Last::Unsent { attempts } };
            }
            _ => self.surplus += 1,
        }
        self.answered += u32::from(row.status == Some(200));
        self.reused += u32::from(row.reused_connection == Some(true));
        if let Some(sent) = row.send_started {
            if row.attempt == 0 {
                self.send_lag.add(sent.since(row.planned));
            }
            self.count_send(sent);
        }
    }

    fn count_send(&mut self, at: Tick) {
        let second = (at.as_nanos() / 1_000_000_000) as usize;
        if second < MAX_SECONDS {
            self.sends.resize(self.sends.len().max(second + 1), 0);
            self.sends[second] += 1;
        }
    }

    /// What the arrivals add up to.
    pub(crate) fn sums(&self) -> Sums {
        let of = |which: fn(&Last) -> bool| self.last.iter().filter(|l| which(l)).count() as u32;
        Sums {
            sent: of(|l| matches!(l, Last::Sent { .. })),
            unsent: of(|l| matches!(l, Last::Unsent { .. })),
            surplus: self.surplus,
        }
    }

    /// How late first attempts were sent.
    pub(crate) fn send_lag(&self) -> Lateness {
        self.send_lag.lateness()
    }

    /// Attempts sent in the busiest second.
    pub(crate) fn peak_sends(&self) -> u32 {
        self.sends.iter().copied().max().unwrap_or(0)
    }

    /// Attempts that got an answer.
    pub(crate) const fn answered(&self) -> u32 {
        self.answered
    }

    /// Attempts over a connection that had been used before.
    pub(crate) const fn reused(&self) -> u32 {
        self.reused
    }
}

impl Last {
    const fn attempts(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Sent { attempts } | Self::Unsent { attempts } => attempts as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_core::outcome::Terminal;
    use elasticserve_core::time::Span;

    fn row(index: u32, attempt: u32, state: Terminal, sent_ms: u64) -> Row {
        let mut row = Row::new(index, "t", Tick::ZERO + Span::from_millis(10), 1, 1);
        (row.attempt, row.state) = (attempt, state);
        row.send_started = state.was_sent().then(|| Tick::ZERO + Span::from_millis(sent_ms));
        row
    }

    #[test]
    fn an_arrival_counts_once_by_its_last_attempt() {
        let mut tally = Tally::new(3);
        tally.count(&row(0, 0, Terminal::Rejected, 12));
        tally.count(&row(1, 0, Terminal::UnsentAbort, 0));
        tally.count(&row(0, 1, Terminal::Completed, 900));
        assert_eq!(tally.sums(), Sums { sent: 1, unsent: 1, surplus: 0 });
        assert_eq!((tally.send_lag().n, tally.send_lag().max), (1, Some(Span::from_millis(2))), "no retry is late");
        assert_eq!(tally.peak_sends(), 2);
        tally.count(&row(2, 0, Terminal::Completed, 1000));
        assert_eq!(tally.peak_sends(), 2, "the next second is another one");
        tally.count(&row(2, 2, Terminal::Completed, 1000));
        tally.count(&row(2, 0, Terminal::Completed, 1000));
        tally.count(&row(3, 0, Terminal::Completed, 1000));
        assert_eq!(tally.sums(), Sums { sent: 2, unsent: 1, surplus: 3 });
    }
}
