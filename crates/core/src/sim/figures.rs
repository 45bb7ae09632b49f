//! The figures of a run as common load generators print them.

use crate::ledger::Row;
use crate::outcome::Terminal;
use crate::slo::Slo;
use crate::stats::quantile;
use crate::time::{Span, Tick};

/// What is kept of the rows of a run: a few numbers each.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    ttft: Vec<f64>,
    tpot: Vec<f64>,
    e2e: Vec<f64>,
    touched: Vec<(u64, u64)>,
    completed: Vec<u32>,
    offered: u32,
    rejected: u32,
    passing: u32,
    input_tokens: u64,
    output_tokens: u64,
    last_completion: Span,
    tenants: Vec<(u32, u32)>,
}

impl Tally {
    /// An empty tally of so many tenants.
    #[must_use]
    pub fn new(tenants: usize) -> Self {
        Self { tenants: vec![(0, 0); tenants], ..Self::default() }
    }

    /// Counts a row of the tenant in this place, held to these limits.
    pub fn add(&mut self, row: &Row, tenant: usize, slo: &Slo) {
        let good = row.is_good(slo);
        self.offered += 1;
        self.passing += u32::from(good);
        self.rejected += u32::from(row.state == Terminal::Rejected);
        if let Some((offered, passing)) = self.tenants.get_mut(tenant) {
            *offered += 1;
            *passing += u32::from(good);
        }
        if row.state != Terminal::Completed {
            return;
        }
        self.completed.push(row.index);
        let push = |list: &mut Vec<f64>, span: Option<Span>| list.extend(span.map(Span::as_millis_f64));
        push(&mut self.ttft, row.ttft());
        push(&mut self.tpot, row.tpot());
        push(&mut self.e2e, row.e2e());
        self.input_tokens += u64::from(row.input_tokens.unwrap_or(0));
        self.output_tokens += u64::from(row.output_tokens.unwrap_or(0));
        if let Some(end) = row.end {
            let second = |at: Tick| at.as_nanos() / 1_000_000_000;
            self.touched.push((second(row.planned), second(end)));
            self.last_completion = self.last_completion.max(end.since(Tick::ZERO));
        }
    }

    /// The figures of what was counted.
    #[must_use]
    pub fn finish(mut self) -> Figures {
        for list in [&mut self.ttft, &mut self.tpot, &mut self.e2e] {
            list.sort_by(f64::total_cmp);
        }
        self.completed.sort_unstable();
        let peak_concurrency = peak(&self.touched);
        Figures { tally: self, peak_concurrency }
    }
}

/// The figures of a run. Times are in ms; rates divide by the time of the last completion, which is what
/// the usual load generators print and is not a rate over the arrival window.
#[derive(Clone, Debug)]
pub struct Figures {
    tally: Tally,
    peak_concurrency: u32,
}

impl Figures {
    /// Requests offered.
    #[must_use]
    pub const fn offered(&self) -> u32 {
        self.tally.offered
    }
    /// Requests answered in full.
    #[must_use]
    pub fn completed(&self) -> u32 {
        self.tally.completed.len() as u32
    }
    /// The places in the plan of the requests answered in full, ascending.
    #[must_use]
    pub fn completed_indices(&self) -> &[u32] {
        &self.tally.completed
    }
    /// Requests turned away.
    #[must_use]
    pub const fn rejected(&self) -> u32 {
        self.tally.rejected
    }
    /// Answers within every limit.
    #[must_use]
    pub const fn passing(&self) -> u32 {
        self.tally.passing
    }
    /// Answers within every limit as a share of all that was offered.
    #[must_use]
    pub fn attainment(&self) -> Option<f64> {
        share(self.tally.passing, self.tally.offered)
    }
    /// The attainment of each tenant, `None` for one that offered nothing.
    #[must_use]
    pub fn tenant_attainments(&self) -> Vec<Option<f64>> {
        self.tally.tenants.iter().map(|(offered, passing)| share(*passing, *offered)).collect()
    }
    /// Completions per second.
    #[must_use]
    pub fn throughput(&self) -> Option<f64> {
        self.per_second(f64::from(self.completed()))
    }
    /// Answers within every limit per second.
    #[must_use]
    pub fn goodput(&self) -> Option<f64> {
        self.per_second(f64::from(self.passing()))
    }
    /// Answer tokens per second.
    #[must_use]
    pub fn output_tokens_per_s(&self) -> Option<f64> {
        self.per_second(self.tally.output_tokens as f64)
    }
    /// Prompt and answer tokens per second.
    #[must_use]
    pub fn total_tokens_per_s(&self) -> Option<f64> {
        self.per_second((self.tally.input_tokens + self.tally.output_tokens) as f64)
    }
    /// The most completed requests that touched one whole second.
    #[must_use]
    pub const fn peak_concurrency(&self) -> u32 {
        self.peak_concurrency
    }
    /// A quantile of the time to first token.
    #[must_use]
    pub fn ttft(&self, p: f64) -> Option<f64> {
        quantile(&self.tally.ttft, p)
    }
    /// A quantile of the time per output token.
    #[must_use]
    pub fn tpot(&self, p: f64) -> Option<f64> {
        quantile(&self.tally.tpot, p)
    }
    /// A quantile of the time to the end.
    #[must_use]
    pub fn e2e(&self, p: f64) -> Option<f64> {
        quantile(&self.tally.e2e, p)
    }

    fn per_second(&self, amount: f64) -> Option<f64> {
        let seconds = self.tally.last_completion.as_secs_f64();
        (seconds > 0.0).then(|| amount / seconds)
    }
}

fn share(part: u32, whole: u32) -> Option<f64> {
    (whole > 0).then(|| f64::from(part) / f64::from(whole))
}

/// The most stretches of whole seconds, ends included, that hold one second.
fn peak(touched: &[(u64, u64)]) -> u32 {
    let mut edges: Vec<(u64, i32)> = touched.iter().flat_map(|(from, to)| [(*from, 1), (to + 1, -1)]).collect();
    // What ends before a second is taken off before what starts in it is counted.
    edges.sort_unstable();
    let mut now = 0;
    let counts = edges.iter().map(|(_, change)| {
        now += change;
        now
    });
    counts.max().unwrap_or(0).max(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(index: u32, planned_ms: u64, end_ms: u64) -> Row {
        let ms = |n: u64| Tick::from_nanos(n * 1_000_000);
        let mut row = Row::new(index, "default", ms(planned_ms), 10, 5);
        row.state = Terminal::Completed;
        (row.first_content, row.last_content, row.end) =
            (Some(ms(planned_ms + 100)), Some(ms(end_ms)), Some(ms(end_ms)));
        (row.input_tokens, row.output_tokens) = (Some(10), Some(5));
        row
    }

    #[test]
    fn rates_divide_by_the_last_completion_and_shares_by_all_that_was_offered() {
        let slo = Slo { ttft: None, tpot: None, e2e: Some(Span::from_millis(1500)) };
        let mut tally = Tally::new(2);
        tally.add(&row(0, 0, 1000), 0, &slo);
        tally.add(&row(1, 0, 4000), 1, &slo);
        let mut refused = Row::new(2, "default", Tick::ZERO, 10, 5);
        refused.state = Terminal::Rejected;
        tally.add(&refused, 1, &slo);
        let figures = tally.finish();
        assert_eq!((figures.throughput(), figures.goodput()), (Some(0.5), Some(0.25)));
        assert_eq!((figures.output_tokens_per_s(), figures.total_tokens_per_s()), (Some(2.5), Some(7.5)));
        assert_eq!((figures.offered(), figures.completed(), figures.rejected(), figures.passing()), (3, 2, 1, 1));
        assert_eq!(figures.attainment(), Some(1.0 / 3.0));
        assert_eq!(figures.tenant_attainments(), [Some(1.0), Some(0.0)]);
        assert_eq!(figures.completed_indices(), [0, 1]);
        assert_eq!(figures.e2e(0.5), Some(2500.0));
    }

    #[test]
    fn a_request_counts_in_every_second_that_it_touches() {
        let mut tally = Tally::new(1);
        // Seconds 0 to 1, 1 to 1, 1 to 2 and 3.
        for (index, (from, to)) in (0..).zip([(900, 1100), (1200, 1300), (1900, 2100), (3000, 3500)]) {
            tally.add(&row(index, from, to), 0, &Slo::default());
        }
        assert_eq!(tally.finish().peak_concurrency(), 3);
        assert_eq!(Tally::new(1).finish().peak_concurrency(), 0);
    }
}
