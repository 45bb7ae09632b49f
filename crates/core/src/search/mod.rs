//! The search for the knee: the highest rate of an open load at which a target is still met.
//!
//! ```text
//! Search ── next ──> Probe(rate, number) ── a run ──> observe(rate, one Trial for each target) ──> … ──> Answer
//! ```
//!
//! The rate grows until it misses, or falls until it meets, and the bracket is then halved in the rate's logarithm.
//! At each rate probes go on until [`Evidence`] has a verdict, or the rate's allowance is used up; then rates beside
//! it are tried, which lie further from the knee and are easier to tell. The result is an interval, the highest rate
//! shown to meet and the lowest shown to miss, and where it stays wider than was asked for it says why.
//!
//! The same spec and the same observations give the same proposals, on every machine.

use std::cmp::Ordering;

mod evidence;
mod knee;
#[cfg(test)]
mod synthetic;
mod trial;

pub use evidence::{Evidence, Place, Verdict};
pub use knee::{crossing, knee};
pub use trial::{Series, Trial, misses_that_doom};

/// What is searched for, and how hard.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The shares that must be reached, each strictly between 0 and 1, at least one. All must be.
    pub targets: Vec<f64>,
    /// The chance of each wrong verdict about a rate, at most, strictly between 0 and 1.
    pub error: f64,
    /// The first rate, in requests per second.
    pub start: f64,
    /// No rate below it is tried.
    pub lowest: f64,
    /// No rate above it is tried.
    pub highest: f64,
    /// By how much the rate grows or falls until the knee is between two rates, above 1.
    pub growth: f64,
    /// How much higher than its lower end the upper end of the interval may be, as a part of it, above 0.
    pub precision: f64,
    /// Probes of a rate before rates beside it are tried, at least 1.
    pub allowance: u32,
    /// Probes in all.
    pub probes: u32,
}

/// A run to make.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Probe {
    /// Requests per second.
    pub rate: f64,
    /// Its place among all probes, from 0: no two share a seed.
    pub number: u32,
}

/// A rate and what is known of it.
#[derive(Clone, Debug)]
pub struct Tested {
    /// Requests per second.
    pub rate: f64,
    /// The verdict over all targets.
    pub verdict: Verdict,
    /// One for each target.
    pub evidence: Vec<Evidence>,
    allowance: u32,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The highest rate shown to meet every target, with no lower one shown to miss.
    pub met: Option<f64>,
    /// The lowest rate shown to miss a target.
    pub missed: Option<f64>,
    /// Where the shares seen cross the targets, by a falling curve through them. It comes without an interval.
    pub estimate: Option<f64>,
    /// Why the interval is wider than was asked for; `None` where it is not.
    pub unresolved: Option<Unresolved>,
}

/// Why a knee is not as narrow as was asked for.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Unresolved {
    /// The targets are met at the highest rate that may be tried.
    MetAtHighest,
    /// A target is missed at the lowest rate that may be tried.
    MissedAtLowest,
    /// A rate was shown to meet although a lower one was shown to miss: there is no single knee.
    NotMonotone {
        /// The lower one.
        missed: f64,
        /// The higher one.
        met: f64,
    },
    /// The probes are used up. At this rate, if there is one, they were too few to tell.
    OutOfProbes {
        /// The rate without a verdict that was probed most.
        open: Option<f64>,
    },
    /// The search was ended from outside.
    Stopped(Stop),
}

/// Why a search was ended from outside.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Stop {
    /// Its time is over.
    Time,
    /// Somebody stopped it.
    Interrupted,
    /// The generator could not offer this rate within its tolerances.
    Generator(f64),
    /// The server does not answer any more.
    Server,
}

/// Invalid probes one after the other that end a search.
pub const MAX_INVALID: u32 = 3;

/// A rate that has come so far towards a verdict gets [`PATIENCE`] times as many probes before others are tried.
const NEAR: f64 = 0.3;
/// See [`NEAR`].
const PATIENCE: u32 = 4;

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    spec: Spec,
    /// By rate.
    tested: Vec<Tested>,
    /// Probes that were proposed, counted or not.
    made: u32,
    /// The last ones that did not count.
    invalid: u32,
    stopped: Option<Stop>,
}

impl Search {
    /// Nothing is known yet. The start is moved between the bounds.
    #[must_use]
    pub const fn new(spec: Spec) -> Self {
        Self { spec, tested: Vec::new(), made: 0, invalid: 0, stopped: None }
    }

    /// The next probe; `None` once there is an answer. Each call is a further probe.
    pub fn next_probe(&mut self) -> Option<Probe> {
        if self.made >= self.spec.probes {
            return None;
        }
        let rate = self.next_rate()?;
        let probe = Probe { rate, number: self.made };
        self.made += 1;
        Some(probe)
    }

    /// What a probe showed: one trial for each target, in their order.
    pub fn observe(&mut self, rate: f64, trials: &[Trial]) {
        self.invalid = 0;
        self.place(rate);
        let near = 1.0 + self.spec.precision;
        for tested in &mut self.tested {
            if let Some(place) = seen_from(tested.rate, rate, near) {
                tested.add(place, trials);
            }
        }
    }

    /// A probe that says nothing about the server, for the generator was at fault. It is made again with another
    /// seed; after [`MAX_INVALID`] in a row the search ends.
    pub fn observe_invalid(&mut self, rate: f64) {
        self.invalid += 1;
        if self.invalid >= MAX_INVALID {
            self.stop(Stop::Generator(rate));
        }
    }

    /// Ends the search with what is known.
    pub fn stop(&mut self, why: Stop) {
        self.stopped.get_or_insert(why);
    }

    /// The share of the first target at or below which a probe of this rate need not be finished: it then either
    /// makes the rate a miss by itself, or is at most half the target. The probe is then taken for the best that it
    /// could still become, which can only delay a verdict.
    #[must_use]
    pub fn hopeless(&self, rate: f64) -> f64 {
        let target = self.spec.targets.first().copied().unwrap_or(0.0);
        let Some(evidence) = self.at(rate).and_then(|t| t.evidence.first()) else { return target / 2.0 };
        let (mut low, mut high) = (target / 2.0, target);
        if !evidence.would_miss(low) {
            return low;
        }
        for _ in 0..30 {
            let middle = f64::midpoint(low, high);
            if evidence.would_miss(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The rates that were tried, by rate.
    #[must_use]
    pub fn tested(&self) -> &[Tested] {
        &self.tested
    }

    /// What is known of a rate.
    #[must_use]
    pub fn at(&self, rate: f64) -> Option<&Tested> {
        self.tested.iter().find(|t| t.rate.total_cmp(&rate).is_eq())
    }

    /// What is found so far.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let missed = self.lowest_missed();
        let met = self.tested.iter().rev().find(|t| t.verdict == Verdict::Met).map(|t| t.rate);
        let contradiction = missed.zip(met).filter(|(missed, met)| missed < met);
        let met_below = |missed: Option<f64>| {
            let below = |t: &&Tested| t.verdict == Verdict::Met && missed.is_none_or(|m| t.rate < m);
            self.tested.iter().rev().find(below).map(|t| t.rate)
        };
        let unresolved = match contradiction {
            Some((missed, met)) => Some(Unresolved::NotMonotone { missed, met }),
            None => self.why_open(met, missed),
        };
        Answer { met: met_below(missed), missed, estimate: self.estimate(), unresolved }
    }

    fn lowest_missed(&self) -> Option<f64> {
        self.tested.iter().find(|t| t.verdict == Verdict::Missed).map(|t| t.rate)
    }

    fn why_open(&self, met: Option<f64>, missed: Option<f64>) -> Option<Unresolved> {
        if met.zip(missed).is_some_and(|(met, missed)| self.is_narrow(met, missed)) {
            return None;
        }
        if let Some(why) = self.stopped {
            return Some(Unresolved::Stopped(why));
        }
        if missed.is_none() && met == Some(self.spec.highest) {
            return Some(Unresolved::MetAtHighest);
        }
        if met.is_none() && missed == Some(self.spec.lowest) {
            return Some(Unresolved::MissedAtLowest);
        }
        let open = self.tested.iter().filter(|t| t.verdict == Verdict::Open);
        Some(Unresolved::OutOfProbes { open: open.max_by_key(|t| t.probes()).map(|t| t.rate) })
    }

    fn is_narrow(&self, met: f64, missed: f64) -> bool {
        missed <= met * (1.0 + self.spec.precision)
    }

    fn estimate(&self) -> Option<f64> {
        let of = |(place, target): (usize, &f64)| {
            let points = self.tested.iter().filter_map(|t| {
                let evidence = t.evidence.get(place)?;
                Some((t.rate, evidence.share()?, evidence.arrivals() as f64))
            });
            crossing(&points.collect::<Vec<_>>(), *target)
        };
        self.spec.targets.iter().enumerate().filter_map(of).min_by(f64::total_cmp)
    }

    /// Makes a rate one of those tested. Probes of rates beside it count for it too.
    fn place(&mut self, rate: f64) {
        let place = self.tested.partition_point(|t| t.rate.total_cmp(&rate).is_lt());
        if self.tested.get(place).is_some_and(|t| t.rate.total_cmp(&rate).is_eq()) {
            return;
        }
        let evidence = self.spec.targets.iter().map(|target| Evidence::new(*target, self.spec.error)).collect();
        let mut new = Tested { rate, verdict: Verdict::Open, evidence, allowance: self.spec.allowance };
        for other in &self.tested {
            let Some(place) = seen_from(rate, other.rate, 1.0 + self.spec.precision) else { continue };
            for (evidence, others) in new.evidence.iter_mut().zip(&other.evidence) {
                others.trials().iter().for_each(|trial| evidence.add(place, *trial));
            }
        }
        self.tested.insert(place, new);
    }

    fn next_rate(&mut self) -> Option<f64> {
        if self.stopped.is_some() {
            return None;
        }
        if self.tested.is_empty() {
            return Some(self.spec.start.clamp(self.spec.lowest, self.spec.highest));
        }
        if let Some(going) = self.tested.iter().find(|t| t.is_going()) {
            return Some(going.rate);
        }
        let first_missed = self.tested.iter().position(|t| t.verdict == Verdict::Missed);
        let last_met = self.tested.iter().rposition(|t| t.verdict == Verdict::Met);
        match (last_met, first_missed) {
            (Some(met), Some(missed)) => self.between(met, missed),
            // What lies below a rate that met, or above one that missed, is told by it.
            (met, None) => self.above().or_else(|| self.deepen(met.map_or(0, |p| p + 1)..self.tested.len())),
            (None, Some(missed)) => self.below().or_else(|| self.deepen(0..missed)),
        }
    }

    /// A rate above all, as none has missed.
    fn above(&self) -> Option<f64> {
        let top = self.tested.last().map(|t| t.rate).filter(|top| *top < self.spec.highest)?;
        Some(round(top * self.spec.growth).min(self.spec.highest))
    }

    /// A rate below all, as none has met.
    fn below(&self) -> Option<f64> {
        let bottom = self.tested.first().map(|t| t.rate).filter(|bottom| *bottom > self.spec.lowest)?;
        Some(round(bottom / self.spec.growth).max(self.spec.lowest))
    }

    /// A rate between the last that met and the first that missed; between them may be open ones.
    fn between(&mut self, met: usize, missed: usize) -> Option<f64> {
        let rate = |place: usize| self.tested[place].rate;
        if met > missed || self.is_narrow(rate(met), rate(missed)) {
            return None;
        }
        // Each gap with its inner end.
        let gaps = [(rate(met), rate(met + 1), met + 1), (rate(missed - 1), rate(missed), missed - 1)];
        let width = |(low, high, inner): &(f64, f64, usize)| libm::log(high / low) / libm::log(self.narrow(*inner));
        let [below, above] = &gaps;
        let widest = if width(above) > width(below) { above } else { below };
        let middle = round((widest.0 * widest.1).sqrt());
        if width(widest) > 1.0 && middle > widest.0 && middle < widest.1 {
            return Some(middle);
        }
        self.deepen(met + 1..missed)
    }

    /// How far apart a rate with a verdict and this one beside it may be, as a ratio. With open rates in the middle both
    /// gaps together may be as wide as was asked for; where many probes do not tell, a rate that lies further out and is
    /// nearer than that is easier to tell.
    fn narrow(&self, place: usize) -> f64 {
        let tested = &self.tested[place];
        let rounds = tested.probes() / self.spec.allowance.max(1);
        let parts = match (tested.verdict, rounds) {
            (Verdict::Met | Verdict::Missed, _) => 1.0,
            (Verdict::Open, ..=7) => 2.0,
            (Verdict::Open, ..=31) => 4.0,
            (Verdict::Open, _) => 8.0,
        };
        libm::pow(1.0 + self.spec.precision, 1.0 / parts)
    }

    /// More probes for an open rate: the outermost ones are the easiest to tell.
    fn deepen(&mut self, places: std::ops::Range<usize>) -> Option<f64> {
        let open = || self.tested.iter().enumerate().filter(|(p, t)| places.contains(p) && t.verdict == Verdict::Open);
        let outer = [open().next(), open().next_back()].into_iter().flatten();
        let place = outer.min_by_key(|(_, t)| t.probes())?.0;
        let tested = &mut self.tested[place];
        tested.allowance = tested.probes().saturating_add(self.spec.allowance);
        Some(tested.rate)
    }
}

impl Tested {
    /// Probes of this rate.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.evidence.first().map_or(0, |e| e.trials().len() as u32)
    }

    /// Whether probes of it go on: it has some left, or it is well on its way to a verdict, which costs less than to
    /// begin with another rate.
    fn is_going(&self) -> bool {
        let is_near = || self.evidence.iter().any(|e| e.progress() >= NEAR);
        self.verdict == Verdict::Open
            && (self.probes() < self.allowance
                || (self.probes() < self.allowance.saturating_mul(PATIENCE) && is_near()))
    }

    fn add(&mut self, place: Place, trials: &[Trial]) {
        for (evidence, trial) in self.evidence.iter_mut().zip(trials) {
            evidence.add(place, *trial);
        }
        // What has been decided stays: a verdict is about all probes up to it.
        if self.verdict == Verdict::Open {
            // All targets must be met, one that is missed is enough.
            self.verdict = self.evidence.iter().map(Evidence::verdict).max().unwrap_or(Verdict::Open);
        }
    }
}

/// How a probe of the rate `other` looks from `rate`, if it is at most `near` times away.
fn seen_from(rate: f64, other: f64, near: f64) -> Option<Place> {
    match other.total_cmp(&rate) {
        Ordering::Equal => Some(Place::Here),
        Ordering::Greater => (other <= rate * near).then_some(Place::Above),
        Ordering::Less => (rate <= other * near).then_some(Place::Below),
    }
}

/// A rate of four decimal digits, so that it reads as it is.
fn round(rate: f64) -> f64 {
    let digits = 3 - libm::floor(libm::log10(rate)) as i32;
    let scale = libm::pow(10.0, f64::from(digits.abs()));
    if digits >= 0 { (rate * scale).round() / scale } else { (rate / scale).round() * scale }
}

#[cfg(test)]
mod tests;
