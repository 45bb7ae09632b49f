//! Whether a rate meets a target, as probes come in: a test that may be looked at after each of them.

use libm::{exp, log};

use super::Trial;
use crate::stats::proportion::dispersion;

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
///
/// Attainment falls as the rate grows. So what a slightly higher rate meets, this one meets, and what a slightly lower
/// one misses, this one misses: half of each bet is placed on this rate's own probes, half on those too.
#[derive(Clone, Debug)]
pub struct Evidence {
    target: f64,
    /// The logarithm of a stake that is a verdict.
    needed: f64,
    /// The stakes on a miss by the probes of this rate, and by those of slightly lower ones too.
    against: [Stakes; 2],
    own: Vec<Trial>,
    above: Vec<Trial>,
}

/// Where a probe was made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this rate.
    Here,
    /// At a slightly higher one.
    Above,
    /// At a slightly lower one.
    Below,
}

/// Fractions of the largest stake, 1 / (1 − m), that a bet on a miss can place without the risk of ruin.
const STAKES: [f64; 8] = [0.01, 0.03, 0.08, 0.2, 0.4, 0.6, 0.8, 0.95];
/// The logarithms of the stakes of a mixture of bets.
type Stakes = [f64; STAKES.len()];
/// How far towards 1 the shares lie that a bet on meeting names.
const TOWARDS_ONE: [f64; 8] = [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.98];

impl Evidence {
    /// None yet, about a share of at least `target`, strictly between 0 and 1, with at most this chance of each
    /// wrong verdict.
    #[must_use]
    pub fn new(target: f64, error: f64) -> Self {
        Self { target, needed: -log(error), against: [[0.0; STAKES.len()]; 2], own: Vec::new(), above: Vec::new() }
    }

    /// A further probe.
    pub fn add(&mut self, place: Place, trial: Trial) {
        let share = trial.share();
        let [own, near] = self.against;
        self.against = match place {
            Place::Here => self.after(share),
            Place::Below => [own, self.staked(near, share)],
            Place::Above => [own, near],
        };
        match place {
            Place::Here => self.own.push(trial),
            Place::Above => self.above.push(trial),
            Place::Below => {}
        }
    }

    /// What all probes say together.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.missed() >= self.needed {
            Verdict::Missed
        } else if self.met() >= self.needed {
            Verdict::Met
        } else {
            Verdict::Open
        }
    }

    /// How far the better of both bets has come, as a part of what is needed for a verdict.
    #[must_use]
    pub fn progress(&self) -> f64 {
        self.missed().max(self.met()) / self.needed
    }

    /// Whether a further probe of at most this share makes it a miss.
    #[must_use]
    pub fn would_miss(&self, share: f64) -> bool {
        half_each(self.after(share).map(|stakes| mixture(&stakes))) >= self.needed
    }

    /// The probes of this rate.
    #[must_use]
    pub fn trials(&self) -> &[Trial] {
        &self.own
    }

    /// Arrivals of the probes of this rate.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.own.iter().map(|t| t.n).sum()
    }

    /// Hits as a share of all arrivals of this rate; `None` without any.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        let n = self.arrivals();
        (n > 0).then(|| self.own.iter().map(|t| t.hits).sum::<u64>() as f64 / n as f64)
    }

    /// As how many independent arrivals those of this rate count.
    #[must_use]
    pub fn counts_as(&self) -> f64 {
        Pool::of(self.own.iter()).map_or(0.0, |pool| pool.counts_as)
    }

    /// The stakes on a miss after a further probe of this rate.
    fn after(&self, share: f64) -> [Stakes; 2] {
        self.against.map(|stakes| self.staked(stakes, share))
    }

    fn staked(&self, mut stakes: Stakes, share: f64) -> Stakes {
        for (stake, part) in stakes.iter_mut().zip(STAKES) {
            *stake += log(1.0 + part / (1.0 - self.target) * (self.target - share));
        }
        stakes
    }

    /// The logarithm of the stake of the bet on a miss.
    fn missed(&self) -> f64 {
        half_each(self.against.map(|stakes| mixture(&stakes)))
    }

    /// The logarithm of the stake of the bet on meeting.
    fn met(&self) -> f64 {
        let stake = |pool: Option<Pool>| pool.map_or(0.0, |pool| pool.stake_on_meeting(self.target));
        half_each([stake(Pool::of(self.own.iter())), stake(Pool::of(self.own.iter().chain(&self.above)))])
    }
}

/// Probes taken together.
struct Pool {
    share: f64,
    counts_as: f64,
}

impl Pool {
    fn of<'a>(trials: impl Iterator<Item = &'a Trial>) -> Option<Self> {
        let (counts, lengths): (Vec<(u64, u64)>, Vec<f64>) =
            trials.map(|t| ((t.hits, t.n), t.run_length * t.n as f64)).unzip();
        let (hits, n) = counts.iter().fold((0, 0), |sum, (hits, n)| (sum.0 + hits, sum.1 + n));
        let n_all = n as f64;
        // The mean over arrivals: a single probe knows little of how long its runs are.
        let run_length = (lengths.iter().sum::<f64>() / n_all).max(dispersion(&counts));
        (n > 0).then(|| Self { share: hits as f64 / n_all, counts_as: n_all / run_length.min(n_all) })
    }

    fn stake_on_meeting(&self, m: f64) -> f64 {
        mixture(&TOWARDS_ONE.map(|part| {
            let p = m + part * (1.0 - m);
            self.counts_as * (self.share * log(p / m) + (1.0 - self.share) * log((1.0 - p) / (1.0 - m)))
        }))
    }
}

/// The logarithm of two stakes together, each of half of what there was at first.
fn half_each(stakes: [f64; 2]) -> f64 {
    mixture(&stakes)
}

/// The logarithm of the mean of what these are the logarithms of.
fn mixture(logs: &[f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + log(logs.iter().map(|l| exp(l - most)).sum::<f64>() / logs.len() as f64)
}
