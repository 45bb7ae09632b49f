//! The plans of probes.

use std::num::NonZeroU32;

use super::seen::REPEATED;
use crate::rng::{Random, Stream, mix};
use crate::slo::Slo;
use crate::time::Span;
use crate::work::{Arrival, Plan, PlanError, PlanTenant};

/// Makes plans whose prompts are all new.
#[derive(Clone, Debug)]
pub(super) struct Plans {
    seed: u64,
    /// All prompts are the beginning of one text.
    shared: bool,
    made: u64,
}

/// Where the plans come from, in their headers.
const SOURCE: &str = "calibrate";
/// Tokens of a prompt that is not to matter.
pub(super) const SHORT: u32 = 16;

impl Plans {
    pub(super) const fn new(seed: u64, shared: bool) -> Self {
        Self { seed, shared, made: 0 }
    }

    fn prompt(&mut self) -> u64 {
        self.made += 1;
        if self.shared { self.seed } else { mix(self.seed, self.made) }
    }

    fn arrival(&mut self, at: Span, input: u32, output: u32) -> Arrival {
        Arrival { index: 0, at, tenant: 0, input, output, prompt: self.prompt() }
    }

    /// One request after the other: prompts of these lengths.
    pub(super) fn one_by_one(&mut self, inputs: &[u32], output: u32) -> Result<Plan, PlanError> {
        let arrivals = inputs.iter().map(|input| self.arrival(Span::ZERO, *input, output)).collect();
        closed(arrivals, NonZeroU32::MIN)
    }

    /// One after the other, each prompt several times in a row.
    pub(super) fn repeated(&mut self, inputs: &[u32], output: u32) -> Result<Plan, PlanError> {
        // Whatever the grid does, these are known to be new.
        let shared = std::mem::replace(&mut self.shared, false);
        let once: Vec<Arrival> = inputs.iter().map(|input| self.arrival(Span::ZERO, *input, output)).collect();
        self.shared = shared;
        let arrivals = once.iter().flat_map(|arrival| (0..REPEATED).map(|_| *arrival)).collect();
        closed(arrivals, NonZeroU32::MIN)
    }

    /// So many workers, each with three requests one after the other, whose answers differ in length by half so that
    /// they do not stay in step.
    pub(super) fn crowd(&mut self, workers: NonZeroU32, input: u32, output: u32) -> Result<Plan, PlanError> {
        let mut random = Random::new(mix(self.seed, u64::from(workers.get())), Stream::Lengths);
        let (low, high) = (u64::from(output - output / 2), u64::from(output + output / 2));
        let length = |random: &mut Random| random.between(low, high) as u32;
        let arrivals = (0..3 * workers.get())
            .map(|_| length(&mut random))
            .map(|output| self.arrival(Span::ZERO, input, output))
            .collect();
        closed(arrivals, workers)
    }

    /// So many at once.
    pub(super) fn burst(&mut self, count: u32, input: u32, output: u32) -> Result<Plan, PlanError> {
        let arrivals = (0..count).map(|_| self.arrival(Span::ZERO, input, output)).collect();
        open(arrivals)
    }

    /// Answers that go on, and prompts for a single token that come beside them.
    pub(super) fn beside(&mut self, streams: u32, output: u32, prompts: &[(Span, u32)]) -> Result<Plan, PlanError> {
        let mut arrivals: Vec<Arrival> = (0..streams).map(|_| self.arrival(Span::ZERO, SHORT, output)).collect();
        arrivals.extend(prompts.iter().map(|(at, input)| self.arrival(*at, *input, 1)));
        open(arrivals)
    }

    /// The lengths in an order of chance, so that what drifts does not look like a slope; in their own if prompts are
    /// shared, when each adds to the one before.
    pub(super) fn shuffled(&self, lengths: &[u32], round: u32) -> Vec<u32> {
        let mut order = lengths.to_vec();
        if !self.shared {
            let mut random = Random::new(mix(self.seed, u64::from(round)), Stream::Texts);
            for last in (1..order.len()).rev() {
                order.swap(last, random.between(0, last as u64) as usize);
            }
        }
        order
    }
}

fn closed(arrivals: Vec<Arrival>, workers: NonZeroU32) -> Result<Plan, PlanError> {
    Ok(open(arrivals)?.as_supply(workers, None))
}

fn open(arrivals: Vec<Arrival>) -> Result<Plan, PlanError> {
    let last = arrivals.last().map_or(Span::ZERO, |a| a.at);
    let window = last.max(Span::from_millis(1));
    let tenants = vec![PlanTenant::new("default", 1.0, Slo::default())];
    let rate = arrivals.len() as f64 / window.as_secs_f64();
    Plan::recorded(SOURCE, rate, window, tenants, arrivals)
}
