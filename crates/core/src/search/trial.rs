//! What one probe says: a share, and as how many independent arrivals it counts.

use libm::floor;

/// The arrivals of one probe in order of arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Whether each arrival was served as the target asks.
    pub hits: Vec<bool>,
    /// How badly each was served, in any unit that grows with it, such as its latency as a part of its limit;
    /// infinite for one that was not served at all.
    pub severity: Vec<f64>,
}

/// What one probe says about a target.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Trial {
    /// Arrivals that were served as the target asks.
    pub hits: u64,
    /// Arrivals, at least one.
    pub n: u64,
    /// How many arrivals in a row count as one independent arrival, from 1 to `n`.
    pub run_length: f64,
}

impl Series {
    /// Adds the next arrival.
    pub fn push(&mut self, hit: bool, severity: f64) {
        self.hits.push(hit);
        self.severity.push(severity);
    }

    /// What the series says; `None` of nothing.
    #[must_use]
    pub fn trial(&self) -> Option<Trial> {
        let n = self.hits.len() as u64;
        let hits = self.hits.iter().filter(|hit| **hit).count() as u64;
        (n > 0).then(|| Trial { hits, n, run_length: run_length(&self.severity).clamp(1.0, n as f64) })
    }
}

impl Trial {
    /// A probe that was not finished: so many misses were seen of `n` arrivals, and all others are taken for hits. It
    /// counts as one arrival.
    #[must_use]
    pub fn cut_short(n: u64, misses: u64) -> Self {
        Self { hits: n.saturating_sub(misses), n, run_length: n as f64 }
    }

    /// Hits as a share of the arrivals.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.hits as f64 / self.n.max(1) as f64
    }
}

/// Correlations further apart than this are taken for none.
const MAX_LAG: usize = 20_000;
/// Severities beyond this count as this: how much too late is too late is no matter of memory.
const MAX_SEVERITY: f64 = 4.0;
/// By how much rare misses may come in longer runs than the severities show.
const SAFETY: f64 = 2.0;

/// How many arrivals in a row count as one: twice the integrated autocorrelation time of the severities, or of their
/// ranks if that is longer.
///
/// Arrivals beside each other share a queue, so they share their fate, and where no limit was missed the hits alone
/// do not show it: the severities do. For a Gaussian sequence no function of its values is more correlated than the
/// values are (Gebelein 1941, Lancaster 1957), so that their time bounds that of the hits, whatever the limit. A
/// queue's peaks last longer than that, about twice as long in an M/M/1 queue whose attainment is 95 %.
fn run_length(severity: &[f64]) -> f64 {
    let capped: Vec<f64> = severity.iter().map(|s| s.min(MAX_SEVERITY)).collect();
    SAFETY * autocorrelation_time(&centred(&capped)).max(autocorrelation_time(&centred(&ranks(severity))))
}

/// The variance of the mean of a sequence as a multiple of what it would be if its values were independent. The sum of
/// the autocorrelations ends where that of two neighbours is no longer above 0: the initial positive sequence of Geyer
/// (1992, "Practical Markov chain Monte Carlo"). The values are about their mean.
fn autocorrelation_time(values: &[f64]) -> f64 {
    let covariance = |lag: usize| -> f64 { values.iter().zip(&values[lag..]).map(|(a, b)| a * b).sum() };
    let variance = covariance(0);
    if variance <= 0.0 {
        return 1.0;
    }
    let mut sum = -variance;
    let last = (values.len() / 2).min(MAX_LAG);
    for lag in (0..last).step_by(2) {
        let pair = covariance(lag) + covariance(lag + 1);
        if pair <= 0.0 {
            break;
        }
        sum += 2.0 * pair;
    }
    sum / variance
}

fn centred(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|v| v - mean).collect()
}

/// Ranks from 0; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    for equal in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let shared = from as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|place| ranks[*place] = shared);
        from += equal.len();
    }
    ranks
}

/// How many of `n` arrivals may miss before the share of hits is at most `most`, whatever the rest do.
#[must_use]
pub fn misses_that_doom(n: u32, most: f64) -> u32 {
    n - (floor(f64::from(n) * most.clamp(0.0, 1.0) + 1e-9) as u32).min(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Random, Stream};

    /// An autoregressive sequence of order 1, whose autocorrelation time is (1 + φ) / (1 − φ).
    fn autoregressive(phi: f64, n: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed, Stream::Test);
        let mut x = random.normal();
        let step = (1.0 - phi * phi).sqrt();
        let next = move |_| {
            x = phi * x + step * random.normal();
            x
        };
        (0..n).map(next).collect()
    }

    #[test]
    fn the_autocorrelation_time_is_that_of_a_known_process() {
        for (phi, within) in [(0.0, 0.2), (0.5, 0.2), (0.9, 0.2), (0.95, 0.2)] {
            let time = |seed| autocorrelation_time(&centred(&autoregressive(phi, 4000, seed)));
            let got = (0..60).map(time).sum::<f64>() / 60.0;
            let right = (1.0 + phi) / (1.0 - phi);
            assert!((got / right - 1.0).abs() < within, "φ {phi}: {got} where {right} is right");
        }
    }

    #[test]
    fn hits_that_are_all_alike_still_count_as_few_where_the_severities_are_correlated() {
        let severity = autoregressive(0.95, 1000, 7);
        let trial = Series { hits: vec![true; 1000], severity }.trial().unwrap();
        assert_eq!((trial.share(), trial.n), (1.0, 1000));
        // (1 + 0.95) / (1 − 0.95) = 39, twice.
        assert!((30.0..160.0).contains(&trial.run_length), "{trial:?}");
    }

    #[test]
    fn a_sequence_that_never_changes_is_no_reason_to_count_it_as_less() {
        let same = Series { hits: vec![true; 9], severity: vec![f64::INFINITY; 9] };
        assert_eq!(same.trial(), Some(Trial { hits: 9, n: 9, run_length: 2.0 }));
        assert_eq!(Series::default().trial(), None);
        let one = Series { hits: vec![false], severity: vec![1.0] };
        assert_eq!(one.trial(), Some(Trial { hits: 0, n: 1, run_length: 1.0 }));
    }

    #[test]
    fn equal_severities_share_a_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, f64::INFINITY]), [1.5, 0.0, 1.5, 3.0]);
    }

    #[test]
    fn a_probe_is_doomed_by_as_many_misses_as_leave_too_few() {
        // 200 arrivals, at most 95 hits: 105 misses.
        assert_eq!(misses_that_doom(200, 0.475), 105);
        assert_eq!((misses_that_doom(200, 1.0), misses_that_doom(200, 0.0), misses_that_doom(0, 0.5)), (0, 200, 0));
    }
}
