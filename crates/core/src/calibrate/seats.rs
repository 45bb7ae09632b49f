//! Seats and the batching knee: how many requests at once are of use.

use std::collections::BTreeMap;

use serde::Serialize;

use super::observe::median_of;
use super::seen::Trial;
use crate::time::Tick;

/// What one load of several requests at once shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crowd {
    /// The name of its trial.
    pub trial: String,
    /// Requests in flight at once.
    pub offered: u32,
    /// The most that were between their first and their last token but one at once, for the time of some steps.
    pub running: u32,
    /// Answer tokens by second while all of the offered were in flight; of closed loads only.
    pub tokens_per_s: Option<f64>,
    /// Answers without an error.
    pub answers: u32,
}

/// How many sequences the engine runs at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seats {
    /// So many: with more in flight no more ran.
    Exactly(u32),
    /// So many ran at once, and nothing more was tried.
    AtLeast(u32),
}

impl Seats {
    /// The number.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::Exactly(count) | Self::AtLeast(count) => count,
        }
    }
}

/// The highest useful permits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// The fewest requests at once that bring the throughput within [`NEAR`] of the highest, at most the seats.
    pub permits: u32,
    /// The next smaller number that was tried and did not; the knee lies above it.
    pub above: u32,
    /// The highest throughput up to the seats, in answer tokens by second.
    pub best: f64,
    /// The share of it that is left at the most requests at once that were tried, if that is more than the seats.
    pub beyond: Option<f64>,
}

/// Steps, in usual gaps between tokens, for which answers must have run at once in all.
const LASTING: f64 = 3.0;
/// The share of the highest throughput that counts as the highest.
pub const NEAR: f64 = 0.95;

impl Crowd {
    /// What a trial of several requests at once shows; `None` of others.
    #[must_use]
    pub fn of(trial: &Trial) -> Option<Self> {
        let offered = trial.workers.unwrap_or(trial.seen.len() as u32);
        let together = trial.seen.iter().map(|s| s.sent).max()?.since(trial.seen.iter().map(|s| s.sent).min()?);
        let is_burst = trial.workers.is_none() && trial.seen.iter().all(|s| s.ttft() > together);
        if offered < 2 || !(trial.workers.is_some() || is_burst) {
            return None;
        }
        Some(Self {
            trial: trial.name.clone(),
            offered,
            running: running(trial),
            tokens_per_s: trial.workers.and_then(|workers| throughput(trial, workers)),
            answers: trial.seen.len() as u32,
        })
    }

    /// Whether more were in flight than ran.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.running < self.offered
    }
}

/// The most answers that were between their first and their last token but one at once, for the time of some steps in all:
/// a seat that is free has its next first token a step later, and a busy client sees times in disorder, but not for long.
fn running(trial: &Trial) -> u32 {
    let gaps = trial.seen.iter().flat_map(|s| s.tokens.windows(2)).map(|pair| pair[1].since(pair[0]).as_millis_f64());
    let enough = LASTING * median_of(gaps).unwrap_or(0.0);
    let streams = trial.seen.iter().filter_map(|s| Some((s.first(), *s.tokens.iter().nth_back(1)?)));
    let mut edges: Vec<(Tick, i32)> = streams.flat_map(|(first, last)| [(first, 1), (last, -1)]).collect();
    // Of two at one time the end comes last: an answer of two tokens ran too.
    edges.sort_unstable_by_key(|(at, change)| (*at, -change));
    let (mut now, mut times) = (0, BTreeMap::new());
    for pair in edges.windows(2) {
        now += pair[0].1;
        *times.entry(now).or_insert(0.0) += pair[1].0.since(pair[0].0).as_millis_f64();
    }
    let mut lasted = 0.0;
    let most = times.iter().rev().find(|(_, time)| {
        lasted += **time;
        lasted >= enough
    });
    most.map_or(0, |(count, _)| count.unsigned_abs())
}

/// Tokens by second from the time when half of the first answers had ended, so that they no longer run in step, until
/// the last request had been sent.
fn throughput(trial: &Trial, workers: u32) -> Option<f64> {
    let mut ends: Vec<Tick> = trial.seen.iter().map(|s| s.end).collect();
    ends.sort_unstable();
    let from = *ends.get((workers as usize).div_ceil(2) - 1)?;
    let to = trial.seen.iter().map(|s| s.sent).max()?;
    let within = |t: &Tick| from < *t && *t <= to;
    let counted = trial.seen.iter().map(|s| {
        let events = s.tokens.iter().filter(|t| within(t)).count() as f64;
        // Where an event holds several tokens, all hold as many.
        events * f64::from(s.output) / s.tokens.len().max(1) as f64
    });
    let seconds = to.since(from).as_secs_f64();
    (seconds > 0.0).then(|| counted.sum::<f64>() / seconds)
}

/// The seats, from all that was tried.
pub(super) fn seats(crowds: &[Crowd]) -> Option<Seats> {
    let most = crowds.iter().map(|c| c.running).max()?;
    // One that was full with fewer running had its seats refilled too late: it does not count against more elsewhere.
    let full = crowds.iter().any(|c| c.is_full() && c.running == most);
    Some(if full { Seats::Exactly(most) } else { Seats::AtLeast(most) })
}

/// The knee, from closed loads and what one request at a time brings.
pub(super) fn knee(crowds: &[Crowd], seats: Seats, alone: Option<f64>) -> Option<Knee> {
    let alone = alone.map(|tokens| (1, tokens));
    let mut tried: Vec<(u32, f64)> =
        alone.into_iter().chain(crowds.iter().filter_map(|c| Some((c.offered, c.tokens_per_s?)))).collect();
    tried.sort_by_key(|(offered, _)| *offered);
    let within = |(offered, _): &&(u32, f64)| *offered <= seats.count();
    let best = tried.iter().filter(within).map(|(_, tokens)| *tokens).fold(0.0, f64::max);
    let place = tried.iter().position(|(offered, tokens)| *offered <= seats.count() && *tokens >= NEAR * best)?;
    let beyond = tried.last().filter(|last| last.0 > seats.count()).map(|(_, tokens)| tokens / best);
    let above = place.checked_sub(1).map_or(0, |before| tried[before].0);
    Some(Knee { permits: tried[place].0, above, best, beyond })
}

#[cfg(test)]
mod tests {
    use super::super::seen::Seen;
    use super::*;

    fn ms(n: u64) -> Tick {
        Tick::from_nanos(n * 1_000_000)
    }

    /// An answer with a token every 10 ms.
    fn answer(index: u32, sent: u64, first: u64, count: u64) -> Seen {
        let tokens: Vec<Tick> = (0..count).map(|i| ms(first + 10 * i)).collect();
        let (end, output) = (ms(first + 10 * (count - 1)), count as u32);
        Seen { index, input: 8, cached: None, asked: output, output, sent: ms(sent), tokens, end, counted: true }
    }

    fn trial(workers: Option<u32>, seen: Vec<Seen>) -> Trial {
        Trial { name: "t".into(), workers, seen, ..Trial::default() }
    }

    #[test]
    fn a_seat_that_is_taken_over_at_once_is_one_seat() {
        // Two seats, three requests: the third gets its first token when the first has its last.
        let crowd =
            Crowd::of(&trial(None, vec![answer(0, 0, 20, 5), answer(1, 0, 20, 9), answer(2, 0, 60, 5)])).unwrap();
        assert_eq!((crowd.offered, crowd.running, crowd.is_full()), (3, 2, true));
        assert_eq!(seats(&[crowd]), Some(Seats::Exactly(2)));
        let roomy = Crowd::of(&trial(None, vec![answer(0, 0, 20, 5), answer(1, 0, 20, 9)])).unwrap();
        assert_eq!(seats(&[roomy]), Some(Seats::AtLeast(2)));
    }

    #[test]
    fn what_seems_to_run_for_less_than_some_steps_does_not_count() {
        // The third's first token is seen 12 ms before the first's last but one.
        let seen = vec![answer(0, 0, 20, 9), answer(1, 0, 20, 20), answer(2, 0, 78, 9)];
        assert_eq!(Crowd::of(&trial(None, seen)).unwrap().running, 2);
    }

    #[test]
    fn arrivals_spread_over_time_are_no_crowd() {
        assert_eq!(Crowd::of(&trial(None, vec![answer(0, 0, 20, 5), answer(1, 500, 520, 5)])), None);
    }

    #[test]
    fn throughput_counts_what_came_while_all_were_in_flight() {
        // Two workers, six answers of 10 tokens, each 100 ms from send to end: 2 · 10 tokens / 0.1 s.
        let seen = (0..6).map(|i| answer(i, 100 * u64::from(i / 2), 100 * u64::from(i / 2) + 10, 10)).collect();
        let crowd = Crowd::of(&trial(Some(2), seen)).unwrap();
        assert!((crowd.tokens_per_s.unwrap() - 200.0).abs() < 1e-9, "{crowd:?}");
    }

    #[test]
    fn the_knee_is_the_fewest_that_bring_nearly_all_and_never_more_than_the_seats() {
        let crowd = |offered: u32, running, tokens| Crowd {
            trial: String::new(),
            offered,
            running,
            tokens_per_s: Some(tokens),
            answers: 1,
        };
        let tried = [crowd(2, 2, 50.0), crowd(4, 4, 96.0), crowd(8, 8, 99.0), crowd(16, 8, 70.0)];
        let found = knee(&tried, Seats::Exactly(8), Some(26.0)).unwrap();
        assert_eq!((found.permits, found.above, found.best), (4, 2, 99.0));
        assert!((found.beyond.unwrap() - 70.0 / 99.0).abs() < 1e-12);
        let growing = [crowd(2, 2, 50.0), crowd(4, 4, 96.0), crowd(8, 4, 120.0)];
        assert_eq!(knee(&growing, Seats::Exactly(4), None).unwrap().permits, 4);
    }
}
