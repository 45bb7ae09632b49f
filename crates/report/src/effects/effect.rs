//! What a change did to one figure, over all pairs.

use elasticserve_core::stats::paired::{self, Tested, mean_interval, median_interval, sign_test};
use elasticserve_core::stats::power::{self, POWER, detectable, pairs_to_bound, pairs_to_show};
use elasticserve_core::stats::resample::{Bootstrap, Percentile, Statistic};
use elasticserve_core::stats::{deviation, mean, median, quartile_range};
use serde::Serialize;

use super::{Direction, Figure, Margin, Pair, Question, Side, Unit};

/// The fewest pairs that decide anything: the interval of four holds the median in 87.5 % of cases only.
pub const MIN_PAIRS: usize = 5;

/// What a change did to one figure, over all pairs in which both sides have it.
///
/// Shares are of 1, latencies in ms. A difference is the figure with the change less that without it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The figure.
    pub figure: Figure,
    /// What its numbers are.
    pub unit: Unit,
    /// Which way it should go.
    pub direction: Direction,
    /// Pairs of which both sides have the figure.
    pub n: usize,
    /// The difference of each of them, in the order of the pairs.
    pub differences: Vec<f64>,
    /// Without the change.
    pub base: Level,
    /// With it.
    pub changed: Level,
    /// The difference: of the pairs' differences, not of the two medians.
    pub difference: Level,
    /// The ratio of both sides, with over without, of each pair; `None` where a side without is not above 0.
    pub ratio: Option<Level>,
    /// The mean of the differences, with Student's interval.
    pub mean: Option<Mean>,
    /// The standard deviation of the differences.
    pub deviation: Option<f64>,
    /// The distance between their quartiles.
    pub quartile_range: Option<f64>,
    /// The two-sided sign test of the differences.
    pub sign_p: Option<f64>,
    /// The smallest difference that so many pairs show with a chance of 80 %; `None` for fewer than
    /// [`MIN_PAIRS`].
    pub detectable: Option<f64>,
    /// The difference up to which nothing is said to have changed.
    pub margin: f64,
    /// What the pairs say.
    pub finding: Finding,
    /// Where it is undecided: how many more pairs would decide it.
    pub more: Option<More>,
    /// How the difference goes with which side ran first and with time.
    pub order: Order,
}

/// A median with its intervals.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Level {
    /// The median of the pairs; `None` without a pair.
    pub median: Option<f64>,
    /// Between order statistics, interpolated; see [`median_interval`].
    pub interval: Option<Interval>,
    /// By the percentile bootstrap; `None` for the level of one side.
    pub bootstrap: Option<Resampled>,
}

/// An interval with its confidence.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// Below what was asked for where so few pairs allow no more.
    pub confidence: f64,
}

/// A percentile interval of the bootstrap.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Resampled {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// Whether every possible resample was taken.
    pub exhaustive: bool,
}

/// A mean with its intervals.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// The mean of the differences.
    pub value: f64,
    /// By Student's t.
    pub interval: Interval,
    /// By the percentile bootstrap.
    pub bootstrap: Option<Resampled>,
}

/// What the pairs say of a figure.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The whole interval lies on the better side.
    Better,
    /// The whole interval lies on the worse side.
    Worse,
    /// The whole interval lies above 0, which for this figure is neither.
    Higher,
    /// The whole interval lies below 0, which for this figure is neither.
    Lower,
    /// The whole interval lies within the margin.
    NoDifference,
    /// None of these, or there are fewer than [`MIN_PAIRS`].
    Undecided,
}

/// How many more pairs would decide, at a chance of 80 % and if the differences go on as they are.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum More {
    /// So many.
    Pairs(u32),
    /// More than this.
    MoreThan(u32),
}

/// How a difference goes with the order of the runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Order {
    /// By how much the difference is larger where the changed side ran first; `None` where it is not known, always
    /// the same, or the pairs are too few.
    pub changed_first: Option<Test>,
    /// By how much the difference grows from one pair to the next, in the order in which they ran.
    pub by_pair: Option<Test>,
}

/// A difference or slope with its two-sided p-value by Student's t.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct Test {
    /// The difference or slope, in the figure's unit.
    pub value: f64,
    /// How likely chance alone gives one as large.
    pub p: f64,
}

impl Effect {
    /// The effect on a figure.
    pub(super) fn of(figure: &Figure, margin: Option<Margin>, pairs: &[Pair], question: &Question) -> Self {
        let both: Vec<(f64, f64, Option<Side>)> =
            pairs.iter().filter_map(|p| Some((*p.base.get(figure)?, *p.changed.get(figure)?, p.first))).collect();
        let column = |of: fn(&(f64, f64, Option<Side>)) -> f64| both.iter().map(of).collect::<Vec<f64>>();
        let (base, changed) = (column(|p| p.0), column(|p| p.1));
        let differences = column(|p| p.1 - p.0);
        let change = |values: &[f64]| Level::of_change(values, question);
        let ratio = base.iter().all(|b| *b > 0.0).then(|| change(&column(|p| p.1 / p.0)));
        let without = Level::of_side(&base, question);
        let margin = margin.unwrap_or_else(|| figure.kind.margin()).at(without.median.unwrap_or(0.0));
        let mut effect = Self {
            figure: figure.clone(),
            unit: figure.kind.unit(),
            direction: figure.kind.direction(),
            n: both.len(),
            base: without,
            changed: Level::of_side(&changed, question),
            difference: change(&differences),
            ratio: ratio.filter(|r| r.median.is_some()),
            mean: Mean::of(&differences, question),
            deviation: deviation(&differences),
            quartile_range: quartile_range(&differences),
            sign_p: sign_test(&differences),
            detectable: None,
            margin,
            finding: Finding::Undecided,
            more: None,
            order: Order::of(&both),
            differences,
        };
        effect.decide(question.confidence);
        effect
    }

    fn decide(&mut self, confidence: f64) {
        let n = self.n as u32;
        let enough = self.n >= MIN_PAIRS;
        if let (true, Some(deviation)) = (enough, self.deviation) {
            self.detectable = detectable(n, deviation, confidence, POWER);
        }
        let decided = self.difference.interval.filter(|_| enough);
        self.finding = decided.map_or(Finding::Undecided, |i| self.finding_of(i.low, i.high));
        self.more = (self.finding == Finding::Undecided).then(|| self.more(n, confidence));
    }

    /// What an interval says of the figure. What lies within the margin is no difference, even if it is not 0.
    fn finding_of(&self, low: f64, high: f64) -> Finding {
        if low >= -self.margin && high <= self.margin {
            return Finding::NoDifference;
        }
        match (low > 0.0, high < 0.0, self.direction) {
            (true, _, Direction::Up) | (_, true, Direction::Down) => Finding::Better,
            (true, _, Direction::Down) | (_, true, Direction::Up) => Finding::Worse,
            (true, _, Direction::Open) => Finding::Higher,
            (_, true, Direction::Open) => Finding::Lower,
            (false, false, _) => Finding::Undecided,
        }
    }

    fn more(&self, n: u32, confidence: f64) -> More {
        let least = (n + 1).max(MIN_PAIRS as u32);
        let (Some(effect), Some(deviation)) = (self.difference.median, self.deviation) else {
            return More::Pairs(least - n);
        };
        let show = pairs_to_show(effect, deviation, confidence, POWER, least);
        let bound = pairs_to_bound(effect, self.margin, deviation, confidence, POWER, least);
        match show.into_iter().chain(bound).min() {
            Some(all) => More::Pairs(all - n),
            None => More::MoreThan(power::MAX_PAIRS.saturating_sub(n)),
        }
    }
}

impl Level {
    fn of_side(values: &[f64], question: &Question) -> Self {
        let interval = median_interval(values, question.confidence).map(Interval::from);
        Self { median: median(values), interval, bootstrap: None }
    }

    fn of_change(values: &[f64], question: &Question) -> Self {
        Self { bootstrap: resampled(values, Statistic::Median, question), ..Self::of_side(values, question) }
    }
}

impl Mean {
    fn of(values: &[f64], question: &Question) -> Option<Self> {
        Some(Self {
            value: mean(values)?,
            interval: mean_interval(values, question.confidence)?.into(),
            bootstrap: resampled(values, Statistic::Mean, question),
        })
    }
}

fn resampled(values: &[f64], of: Statistic, question: &Question) -> Option<Resampled> {
    let bootstrap = Bootstrap { seed: question.seed, resamples: question.resamples };
    let Percentile { low, high, exhaustive } = bootstrap.percentile(values, of, question.confidence)?;
    Some(Resampled { low, high, exhaustive })
}

impl From<paired::Interval> for Interval {
    fn from(i: paired::Interval) -> Self {
        Self { low: i.low, high: i.high, confidence: i.confidence }
    }
}

impl Order {
    fn of(pairs: &[(f64, f64, Option<Side>)]) -> Self {
        let where_first =
            |side: Side| -> Vec<f64> { pairs.iter().filter(|p| p.2 == Some(side)).map(|p| p.1 - p.0).collect() };
        let all: Vec<f64> = pairs.iter().map(|p| p.1 - p.0).collect();
        let test = |t: Option<Tested>| t.map(|t| Test { value: t.value, p: t.p });
        Self {
            changed_first: test(paired::between(&where_first(Side::Base), &where_first(Side::Changed))),
            by_pair: test(paired::trend(&all)),
        }
    }
}
