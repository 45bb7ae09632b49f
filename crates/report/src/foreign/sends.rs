//! What the times of the sends tell of the load that was offered.

use serde::Serialize;

use super::{Declared, Export, Process, Sent};

/// A send that comes so soon after the end of another request is said to follow it, in seconds.
const FOLLOWS: f64 = 0.010;
/// The modified Kolmogorov-Smirnov statistic that exponential gaps of an estimated mean exceed once in a hundred times
/// (Stephens 1974; D'Agostino and Stephens, *Goodness-of-Fit Techniques*, table 4.11).
pub(crate) const CRITICAL: f64 = 1.308;
/// The coefficient of variation that even gaps may have.
pub(crate) const EVEN: f64 = 0.2;

/// The sends of an export.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sends {
    /// How many.
    pub n: usize,
    /// From the first to the last, in seconds.
    pub span_s: f64,
    /// Sends per second of that time; `None` for fewer than two.
    pub rate: Option<f64>,
    /// The coefficient of variation of the gaps: 0 for even ones, about 1 for independent arrivals; `None` for fewer
    /// than three sends.
    pub gap_cv: Option<f64>,
    /// How far the gaps are from exponential ones of their mean: Stephens' modified statistic, 1.308 at the 1 % level;
    /// `None` for fewer than twenty sends.
    pub exponential_ks: Option<f64>,
    /// Share of the sends that follow the end of another request within 10 ms.
    pub following: f64,
    /// What that share would be if sends had nothing to do with ends.
    pub following_by_chance: f64,
    /// The most requests in flight at once.
    pub peak: usize,
    /// Share of the time from first to last send during which as many were in flight as the declared cap allows;
    /// `None` without one.
    pub at_cap: Option<f64>,
}

impl Sends {
    pub(crate) fn of(export: &Export) -> Self {
        let times: Vec<f64> = export.sent.iter().map(|s| s.at).collect();
        let (first, last) = (times.first().copied().unwrap_or(0.0), times.last().copied().unwrap_or(0.0));
        let span = last - first;
        let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let (following, by_chance) = following(&export.sent, span);
        let (peak, at_cap) = in_flight(&export.sent, export.declared.cap, span);
        Self {
            n: times.len(),
            span_s: span,
            rate: Some(gaps.len() as f64 / span).filter(|r| r.is_finite()),
            gap_cv: variation(&gaps),
            exponential_ks: (times.len() >= 20).then(|| exponential(&gaps)),
            following,
            following_by_chance: by_chance,
            peak,
            at_cap,
        }
    }

    /// Whether sends follow ends far more often than chance would have it.
    pub(crate) fn follow_ends(&self) -> bool {
        self.n >= 20 && self.following > 0.5 && self.following > 3.0 * self.following_by_chance
    }
}

/// Of a declared load, how many arrivals it has: the number that was asked for, or rate times duration.
pub(crate) fn arrivals(declared: &Declared) -> Option<f64> {
    let by_time = || declared.rate.zip(declared.seconds).map(|(r, s)| r * s);
    declared.count.map(|n| n as f64).or_else(by_time)
}

/// How many fewer than declared there may be by chance: none of a number, one of an even process (its last arrival may
/// fall on the end), three standard deviations of a random one.
pub(crate) fn chance(declared: &Declared, arrivals: f64) -> f64 {
    match (declared.count, declared.process) {
        (Some(_), _) => 0.0,
        (None, Some(Process::Constant)) => 1.0,
        (None, Some(Process::Gamma(burstiness))) => 3.0 * (arrivals / burstiness).sqrt(),
        (None, _) => 3.0 * arrivals.sqrt(),
    }
}

fn variation(gaps: &[f64]) -> Option<f64> {
    let n = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / n;
    let square = gaps.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / n;
    (gaps.len() >= 2 && mean > 0.0).then(|| square.sqrt() / mean)
}

/// Stephens' modified statistic of gaps against the exponential distribution of their mean.
fn exponential(gaps: &[f64]) -> f64 {
    let n = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / n;
    let mut sorted = gaps.to_vec();
    sorted.sort_by(f64::total_cmp);
    let distance = (0u32..).zip(&sorted).map(|(i, gap)| {
        let (expected, i) = (1.0 - (-gap / mean).exp(), f64::from(i));
        f64::max((i + 1.0) / n - expected, expected - i / n)
    });
    (distance.fold(0.0, f64::max) - 0.2 / n) * (n.sqrt() + 0.26 + 0.5 / n.sqrt())
}

fn end(sent: &Sent) -> Option<f64> {
    Some(sent.at + sent.e2e.filter(|ms| *ms > 0.0)? / 1e3)
}

/// The share of sends that follow an end, and what chance would give: 1 − e^(−ends per second · the time looked at).
fn following(sent: &[Sent], span: f64) -> (f64, f64) {
    let mut ends: Vec<f64> = sent.iter().filter_map(end).collect();
    ends.sort_by(f64::total_cmp);
    let follows = |s: &&Sent| {
        let before = ends.partition_point(|e| *e <= s.at);
        before.checked_sub(1).is_some_and(|i| s.at - ends[i] <= FOLLOWS)
    };
    let n = sent.iter().filter(follows).count();
    let last = sent.iter().map(|s| s.at).fold(f64::NEG_INFINITY, f64::max);
    let within = ends.iter().filter(|e| **e <= last).count();
    let by_chance = if span > 0.0 { 1.0 - (-FOLLOWS * within as f64 / span).exp() } else { 0.0 };
    (n as f64 / sent.len().max(1) as f64, by_chance)
}

/// The most in flight, and the share of the time in which the cap was reached. What has no end stays in flight.
fn in_flight(sent: &[Sent], cap: Option<u64>, span: f64) -> (usize, Option<f64>) {
    let mut changes: Vec<(f64, bool)> =
        sent.iter().flat_map(|s| [Some((s.at, true)), end(s).map(|e| (e, false))]).flatten().collect();
    // At one moment what ends makes room before what begins.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let last = sent.iter().map(|s| s.at).fold(f64::NEG_INFINITY, f64::max);
    // What has no end, such as a refusal without one, was in flight for an unknown time and is left out.
    let unknown: std::collections::BTreeSet<u64> =
        sent.iter().filter(|s| end(s).is_none()).map(|s| s.at.to_bits()).collect();
    let (mut open, mut peak, mut full, mut since) = (0usize, 0, 0.0, 0.0);
    for (at, begins) in changes {
        if begins && unknown.contains(&at.to_bits()) {
            continue;
        }
        if cap.is_some_and(|cap| open as u64 >= cap) {
            full += at.min(last) - f64::min(since, last);
        }
        open = if begins { open + 1 } else { open.saturating_sub(1) };
        peak = peak.max(open);
        since = at;
    }
    (peak, cap.map(|_| if span > 0.0 { (full / span).min(1.0) } else { 0.0 }))
}

#[cfg(test)]
mod tests {
    use super::super::{Tool, has};
    use super::*;

    fn export(times: &[(f64, f64)], declared: Declared) -> Export {
        let sent = |(at, e2e): &(f64, f64)| Sent { at: *at, e2e: Some(e2e * 1e3), ..Sent::default() };
        Export {
            tool: Tool::VllmBench,
            version: None,
            name: "x".into(),
            model: None,
            declared,
            sent: times.iter().map(sent).collect(),
            schema: const { &[has("send", "x")] },
            lag: None,
            remarks: Vec::new(),
            reported: Vec::new(),
        }
    }

    /// Made with SciPy 1.18.1 (NumPy 2.5.5):
    ///
    /// ```text
    /// g = np.random.default_rng(7).exponential(1 / 6, 30).round(4); x = np.sort(g); n = 30
    /// d = scipy.stats.kstest(x, "expon", args=(0, x.mean())).statistic
    /// print(list(map(float, g)), d, (d - .2 / n) * (n**.5 + .26 + .5 / n**.5), g.std() / g.mean())
    /// ```
    #[test]
    fn the_statistic_of_the_gaps_is_that_of_scipy() {
        assert!((exponential(&GAPS) - MODIFIED).abs() < 1e-9, "{}", exponential(&GAPS));
        assert!((variation(&GAPS).unwrap() - CV).abs() < 1e-9);
        assert!(exponential(&GAPS) < CRITICAL);
        assert!(exponential(&[0.1; 30]) > CRITICAL, "even gaps are not exponential");
    }

    const GAPS: [f64; 30] = [
        0.1179, 0.1709, 0.0948, 0.1492, 0.0344, 0.5639, 0.0016, 0.4682, 0.0959, 0.0501, 0.0902, 0.052, 0.15, 0.179,
        0.314, 0.037, 0.5241, 0.1226, 0.0581, 0.1473, 0.0125, 0.01, 0.2039, 0.1288, 0.366, 0.0792, 0.0869, 0.1968,
        0.0878, 0.0037,
    ];
    const MODIFIED: f64 = 0.5651079050767589;
    const CV: f64 = 0.962763827836264;

    #[test]
    fn sends_that_wait_for_ends_are_told_from_those_that_do_not() {
        // Two workers, each sends 1 ms after its last answer, which took 100 ms.
        let closed: Vec<(f64, f64)> =
            (0..40).map(|i| (f64::from(i / 2) * 0.101 + f64::from(i % 2) * 0.05, 0.1)).collect();
        let found = Sends::of(&export(&closed, Declared { cap: Some(2), ..Declared::default() }));
        assert!(found.follow_ends() && found.peak == 2, "{found:?}");
        assert!(found.at_cap.unwrap() > 0.9, "{found:?}");
        // The same answers to requests every 50 ms whatever comes back: 30 ms after an end.
        let open: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i) * 0.05, 0.17)).collect();
        let found = Sends::of(&export(&open, Declared::default()));
        assert!(!found.follow_ends() && found.peak == 4 && found.at_cap.is_none(), "{found:?}");
        assert!((found.rate.unwrap() - 20.0).abs() < 1e-9 && found.gap_cv.unwrap() < EVEN);
    }

    #[test]
    fn refusals_without_a_time_of_their_end_follow_nothing_and_are_not_in_flight() {
        let refused: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i) * 0.05, 0.0)).collect();
        let found = Sends::of(&export(&refused, Declared::default()));
        assert_eq!((found.following, found.peak), (0.0, 0));
    }

    #[test]
    fn how_many_may_be_missing_by_chance_depends_on_how_they_were_asked_for() {
        let declared = |process, count, seconds| Declared { rate: Some(20.0), process, count, seconds, cap: None };
        let by_time = |process| declared(Some(process), None, Some(8.0));
        assert_eq!(arrivals(&by_time(Process::Poisson)), Some(160.0));
        assert_eq!(arrivals(&declared(None, Some(100), Some(8.0))), Some(100.0));
        assert_eq!(chance(&by_time(Process::Constant), 160.0), 1.0);
        assert!((chance(&by_time(Process::Poisson), 160.0) - 37.947_331_922_020_55).abs() < 1e-12);
        assert_eq!(chance(&declared(Some(Process::Poisson), Some(100), None), 100.0), 0.0);
    }
}
