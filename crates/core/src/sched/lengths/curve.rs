//! The distribution of answer lengths from finished and cut answers: Kaplan and Meier's estimate (1958), drawn
//! towards that of a larger group where there is little to go by.
//!
//! ```text
//! hazard  h = (finished + 8 · parent's h) / (at risk + 8)        of each bucket of lengths
//! S(k)      = Π (1 − h) over the buckets up to k                 an answer is longer than k
//! E[min(L, k)] = Σ S(j), j < k
//! ```
//!
//! An answer that was cut after k tokens, or runs and has given k, is at risk up to k and no event. Leaving it out
//! would make answers look short: the long ones are those that are cut, and those that still run.

/// Lengths up to this have buckets of their own; above, each octave has as many buckets.
const FINE: u32 = 16;
const FINE_BITS: u32 = FINE.trailing_zeros();
/// Lengths from here on are one bucket.
const LONGEST_BITS: u32 = 17;
/// Buckets of lengths: beyond 16 each is 4 to 6 % wide.
pub(super) const BUCKETS: usize = ((LONGEST_BITS - FINE_BITS + 1) * FINE) as usize;
/// What a parent's hazard counts beside what was seen, in answers.
const SHRINKAGE: f64 = 8.0;
/// Where nothing was seen, an answer ends after each token with a chance of one in so many.
const PRIOR_MEAN: f64 = 256.0;
/// With so many samples all are halved, so that what is old fades.
pub(super) const MEMORY: f64 = 2048.0;

/// The bucket of a length of at least 1; 0 counts as 1.
pub(super) fn bucket(length: u32) -> usize {
    let before = length.saturating_sub(1).min((1 << LONGEST_BITS) - 1);
    if before < FINE {
        return before as usize;
    }
    let octave = before.ilog2() - FINE_BITS;
    (octave * FINE + (before >> octave)) as usize
}

/// One less than the least length of a bucket: the tokens that come before any in it.
pub(super) fn before(bucket: usize) -> u32 {
    let bucket = bucket as u32;
    let octave = (bucket / FINE).saturating_sub(1);
    (bucket - octave * FINE) << octave
}

/// The greatest length that is told apart.
pub(super) const fn longest() -> u32 {
    1 << LONGEST_BITS
}

fn width(bucket: usize) -> f64 {
    f64::from(before(bucket + 1) - before(bucket))
}

/// What was seen of answers: how many ended, were cut and run, by bucket of length.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    pub(super) finished: Vec<f64>,
    pub(super) cut: Vec<f64>,
    pub(super) running: Vec<u32>,
    /// Ended and cut, with what has faded taken off.
    pub(super) weight: f64,
    /// Ended and cut, in all.
    pub(super) counts: (u64, u64),
}

impl Samples {
    pub(super) fn add(&mut self, length: u32, finished: bool) {
        let (of, count) =
            if finished { (&mut self.finished, &mut self.counts.0) } else { (&mut self.cut, &mut self.counts.1) };
        *at(of, bucket(length)) += 1.0;
        *count += 1;
        self.weight += 1.0;
        if self.weight >= MEMORY {
            self.weight /= 2.0;
            self.finished.iter_mut().chain(&mut self.cut).for_each(|n| *n /= 2.0);
        }
    }

    /// A running answer moved from one bucket to another; `None` for before it began and after it ended.
    pub(super) fn moved(&mut self, from: Option<usize>, to: Option<usize>) {
        if let Some(count) = from.and_then(|b| self.running.get_mut(b)) {
            *count = count.saturating_sub(1);
        }
        if let Some(to) = to {
            *at(&mut self.running, to) += 1;
        }
    }
}

pub(super) fn at<T: Clone + Default>(all: &mut Vec<T>, place: usize) -> &mut T {
    if all.len() <= place {
        all.resize(place + 1, T::default());
    }
    &mut all[place]
}

/// A distribution of lengths.
#[derive(Clone, Debug)]
pub(in crate::sched) struct Curve {
    hazard: Vec<f64>,
    /// The chance to be as long as any length in a bucket; one more than there are buckets.
    survival: Vec<f64>,
    /// The sum of the survival at all lengths before a bucket; one more than there are buckets.
    area: Vec<f64>,
}

impl Curve {
    /// What is assumed before anything was seen.
    pub(super) fn prior() -> Self {
        let stays = 1.0 - 1.0 / PRIOR_MEAN;
        Self::of((0..BUCKETS).map(|b| 1.0 - libm::pow(stays, width(b))).collect())
    }

    /// The estimate from samples, by a larger group's.
    pub(super) fn estimate(samples: &Samples, parent: &Self) -> Self {
        let mut hazard = parent.hazard.clone();
        let mut at_risk = 0.0;
        for (b, h) in hazard.iter_mut().enumerate().rev() {
            let of = |all: &[f64]| all.get(b).copied().unwrap_or(0.0);
            let ended = of(&samples.finished);
            let open = of(&samples.cut) + f64::from(samples.running.get(b).copied().unwrap_or(0));
            // Who was cut within a bucket was at risk in about half of it, or in all of it if that is one length.
            let part = (width(b) + 1.0) / (2.0 * width(b));
            *h = ((ended + SHRINKAGE * *h) / (at_risk + ended + open * part + SHRINKAGE)).min(1.0);
            at_risk += ended + open;
        }
        Self::of(hazard)
    }

    /// The same, but all that is longer than `most` is as long as that. What would be longer still keeps its
    /// hazards, for those samples that are.
    pub(super) fn up_to(&self, most: u32) -> Self {
        let last = bucket(most);
        let hazard = self.hazard.iter().enumerate().map(|(b, h)| if b == last { 1.0 } else { *h });
        Self::of(hazard.collect())
    }

    fn of(hazard: Vec<f64>) -> Self {
        let (mut survival, mut area) = (Vec::with_capacity(BUCKETS + 1), Vec::with_capacity(BUCKETS + 1));
        let (mut s, mut sum) = (1.0, 0.0);
        survival.push(s);
        area.push(sum);
        for (b, h) in hazard.iter().enumerate() {
            let next = s * (1.0 - h);
            // Within a bucket survival falls in a straight line.
            let n = width(b);
            sum += n * s - (s - next) * (n - 1.0) / 2.0;
            s = next;
            survival.push(s);
            area.push(sum);
        }
        Self { hazard, survival, area }
    }

    /// The chance that an answer is longer than so many tokens.
    pub(super) fn longer_than(&self, tokens: u32) -> f64 {
        let (b, n) = place(tokens);
        self.survival[b] - (self.survival[b] - self.survival[b + 1]) * n / width(b)
    }

    /// The expected length, of which no more than so many tokens count.
    pub(super) fn mean_within(&self, tokens: u32) -> f64 {
        let (b, n) = place(tokens);
        let fall = (self.survival[b] - self.survival[b + 1]) / width(b);
        self.area[b] + n * self.survival[b] - fall * n * (n - 1.0) / 2.0
    }

    /// The expected length.
    pub(super) fn mean(&self) -> f64 {
        self.area[BUCKETS]
    }

    /// The least length that no more than `1 − share` of answers exceed.
    pub(super) fn quantile(&self, share: f64) -> u32 {
        let rest = 1.0 - share;
        let b = self.survival.partition_point(|s| *s > rest).saturating_sub(1).min(BUCKETS - 1);
        let fall = (self.survival[b] - self.survival[b + 1]) / width(b);
        let n = if fall > 0.0 { libm::ceil((self.survival[b] - rest) / fall).clamp(1.0, width(b)) } else { width(b) };
        before(b) + n as u32
    }
}

/// The bucket after so many tokens, and how many of them lie in it.
fn place(tokens: u32) -> (usize, f64) {
    let b = bucket(tokens.saturating_add(1));
    (b, f64::from(tokens.min(before(BUCKETS)) - before(b)))
}
