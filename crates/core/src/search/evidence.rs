//! Whether a rate meets a target, as probes come in: a test that may be looked at after each of them.

use libm::{exp, log};

use super::Trial;

/// What probes say about a rate.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The target is met.
    Met,
    /// It cannot be told yet.
    Open,
    /// The target is missed.
    Missed,
}

/// Evidence about one target at one rate.
///
/// Two bets are placed, both fair if the share of hits is exactly the target `m`:
///
/// - *that it is missed*: each probe is one observation X, its share. The stake grows by 1 + λ · (m − X), a mixture
///   over λ (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"). Nothing is
///   assumed of the arrivals of a probe; probes are independent, as each has its own seed and starts on an idle
///   server.
/// - *that it is met*: near 1 the same bet hardly grows, for a probe could always have been a disaster that did not
///   happen: at m = 0.95 it takes 72 probes without a single miss. So here a probe counts as several: as the number
///   of its arrivals divided by [`Trial::run_length`], and no more than agrees with the spread between probes. The
///   stake grows by the likelihood ratio of that many arrivals, (p / m)^hits · ((1 − p) / (1 − m))^misses, a mixture
///   over p above m (Robbins 1970, "Statistical methods related to the law of the iterated logarithm").
///
/// Who bets on what is not so multiplies his stake by 1 / `error` with a chance of at most `error`, however often he
/// looks (Ville 1939). A bet that has come that far is a verdict. The second bet holds as far as its count of
/// independent arrivals does; the tests measure it against a queue whose attainment is known exactly.
#[derive(Clone, Debug)]
pub struct Evidence {
    target: f64,
    needed: f64,
    against: [f64; STAKES.len()],
    trials: Vec<Trial>,
}

/// Fractions of the largest stake, 1 / (1 − m), that a bet on a miss can place without the risk of ruin.
const STAKES: [f64; 8] = [0.01, 0.03, 0.08, 0.2, 0.4, 0.6, 0.8, 0.95];
/// How far towards 1 the shares lie that a bet on meeting names.
const TOWARDS_ONE: [f64; 8] = [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.98];

impl Evidence {
    /// None yet, about a share of at least `target`, strictly between 0 and 1, with at most this chance of each
    /// wrong verdict.
    #[must_use]
    pub fn new(target: f64, error: f64) -> Self {
        Self { target, needed: -log(error), against: [0.0; STAKES.len()], trials: Vec::new() }
    }

    /// A further probe.
    pub fn add(&mut self, trial: Trial) {
        self.against = self.after(trial.share);
        self.trials.push(trial);
    }

    /// What all probes say together.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if mixture(&self.against) >= self.needed {
            Verdict::Missed
        } else if self.met() >= self.needed {
            Verdict::Met
        } else {
            Verdict::Open
        }
    }

    /// Whether a further probe of at most this share makes it a miss.
    #[must_use]
    pub fn would_miss(&self, share: f64) -> bool {
        mixture(&self.after(share)) >= self.needed
    }

    /// Probes.
    #[must_use]
    pub fn probes(&self) -> usize {
        self.trials.len()
    }

    /// Arrivals of all probes.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.trials.iter().map(|t| t.n).sum()
    }

    /// Hits as a share of all arrivals; `None` without any.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let n = self.arrivals();
        (n > 0).then(|| self.trials.iter().map(|t| t.share * t.n as f64).sum::<f64>() / n as f64)
    }

    /// The smallest and the largest share of a probe.
    #[must_use]
    pub fn range(&self) -> Option<[f64; 2]> {
        let shares = || self.trials.iter().map(|t| t.share);
        Some([shares().min_by(f64::total_cmp)?, shares().max_by(f64::total_cmp)?])
    }

    /// As how many independent arrivals all count.
    #[must_use]
    pub fn counts_as(&self) -> f64 {
        let n = self.arrivals() as f64;
        if n <= 0.0 {
            return 0.0;
        }
        // The mean over arrivals: a single probe knows little of how long its runs are.
        let run_length = self.trials.iter().map(|t| t.run_length * t.n as f64).sum::<f64>() / n;
        n / run_length.max(self.dispersion())
    }

    /// By how much the shares of the probes differ more than those of independent arrivals would: Pearson's
    /// dispersion, at least 1.
    fn dispersion(&self) -> f64 {
        let share = self.share().unwrap_or(0.0);
        let variance = share * (1.0 - share);
        if self.trials.len() < 2 || variance <= 0.0 {
            return 1.0;
        }
        let squares = self.trials.iter().map(|t| (t.share - share) * (t.share - share) * t.n as f64 / variance);
        (squares.sum::<f64>() / (self.trials.len() - 1) as f64).max(1.0)
    }

    /// The logarithm of each stake of the bet on a miss, after a further probe.
    fn after(&self, share: f64) -> [f64; STAKES.len()] {
        let mut stakes = self.against;
        for (stake, part) in stakes.iter_mut().zip(STAKES) {
            *stake += log(1.0 + part / (1.0 - self.target) * (self.target - share));
        }
        stakes
    }

    /// The logarithm of the stake of the bet on meeting.
    fn met(&self) -> f64 {
        let (Some(share), n) = (self.share(), self.counts_as()) else { return 0.0 };
        let m = self.target;
        mixture(&TOWARDS_ONE.map(|part| {
            let p = m + part * (1.0 - m);
            n * (share * log(p / m) + (1.0 - share) * log((1.0 - p) / (1.0 - m)))
        }))
    }
}

/// The logarithm of the mean of what these are the logarithms of.
fn mixture(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + log(logs.iter().map(|l| exp(l - most)).sum::<f64>() / logs.len() as f64)
}
