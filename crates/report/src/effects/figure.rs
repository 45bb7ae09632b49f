//! The figures of a run that effects are told of.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::check::Latency;
use crate::fmt::{one_line, trimmed};

/// Figures of a run. A figure that the run does not have is not in it.
pub type Values = BTreeMap<Figure, f64>;

/// A figure of a run, or of one tenant in it.
///
/// As text: `attainment`, `goodput`, `completed_ttft_p95`; of a tenant `attainment[NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Figure {
    /// The tenant it is about; `None` for all arrivals.
    pub tenant: Option<String>,
    /// What is told.
    pub kind: Kind,
}

/// What a figure tells.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Good answers as a share of all planned arrivals.
    Attainment,
    /// Good answers as a share of the arrivals whose limits an idle engine could keep.
    FeasibleAttainment,
    /// Good answers per second of the arrival window.
    Goodput,
    /// Completed answers per second until the last one.
    Throughput,
    /// Arrivals turned away with 429 or 503, as a share of the planned ones.
    Rejected,
    /// Arrivals sent and neither answered in full nor turned away, as a share of the planned ones.
    Failed,
    /// A percentile of a latency of completed answers, in ms.
    Latency(Latency, u8),
    /// Jain's index over the tenants' attainments.
    Jain,
    /// The lowest attainment of a tenant.
    LowestTenant,
}

/// What a figure's number is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A share of 1; differences are told in percentage points.
    Share,
    /// Per second.
    PerSecond,
    /// Milliseconds.
    Ms,
    /// A number from 0 to 1 without a unit.
    Index,
}

/// Which way a figure should go.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// More is better.
    Up,
    /// Less is better.
    Down,
    /// Neither is better in itself: a share that is turned away may be what keeps the rest in time.
    Open,
}

/// A difference that is too small to matter.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Margin {
    /// In the figure's own unit; 0.02 of a share is 2 percentage points.
    Absolute(f64),
    /// As a share of the median without the change.
    Relative(f64),
}

/// Why a text is not a figure or not a margin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {what}")]
pub struct FigureError {
    text: String,
    what: &'static str,
}

const FIGURES: &str = "a figure: use attainment, feasible_attainment, goodput, throughput, rejected, failed, jain, \
    lowest_tenant, or completed_ttft, completed_tpot, completed_e2e or completed_longest_gap with a percentile, as \
    completed_ttft_p95; of a tenant attainment[NAME]";
const MARGINS: &str = "a margin: write a number of 0 or more in the figure's own unit, or a percentage (of a share \
    percentage points, of other figures a part of what it is without the change)";

const PLAIN: [(Kind, &str); 8] = [
    (Kind::Attainment, "attainment"),
    (Kind::FeasibleAttainment, "feasible_attainment"),
    (Kind::Goodput, "goodput"),
    (Kind::Throughput, "throughput"),
    (Kind::Rejected, "rejected"),
    (Kind::Failed, "failed"),
    (Kind::Jain, "jain"),
    (Kind::LowestTenant, "lowest_tenant"),
];
const LATENCIES: [Latency; 4] = [Latency::Ttft, Latency::Tpot, Latency::E2e, Latency::LongestGap];

impl Figure {
    /// A figure over all arrivals.
    #[must_use]
    pub const fn all(kind: Kind) -> Self {
        Self { tenant: None, kind }
    }

    /// A tenant's figure.
    #[must_use]
    pub fn of(tenant: &str, kind: Kind) -> Self {
        Self { tenant: Some(tenant.to_owned()), kind }
    }

    /// As tables call it.
    #[must_use]
    pub fn label(&self) -> String {
        let what = match self.kind {
            Kind::Attainment => "attainment".to_owned(),
            Kind::FeasibleAttainment => "attainment of feasible".to_owned(),
            Kind::Goodput => "goodput".to_owned(),
            Kind::Throughput => "throughput".to_owned(),
            Kind::Rejected => "rejected".to_owned(),
            Kind::Failed => "failed".to_owned(),
            Kind::Latency(Latency::LongestGap, p) => format!("longest gap p{p}"),
            Kind::Latency(of, p) => format!("{} p{p}", of.name().to_uppercase()),
            Kind::Jain => "Jain's index".to_owned(),
            Kind::LowestTenant => "lowest tenant".to_owned(),
        };
        match &self.tenant {
            Some(tenant) => format!("{} · {what}", one_line(tenant, 40)),
            None => what,
        }
    }
}

impl Kind {
    /// What its number is.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::Attainment | Self::FeasibleAttainment | Self::Rejected | Self::Failed | Self::LowestTenant => {
                Unit::Share
            }
            Self::Goodput | Self::Throughput => Unit::PerSecond,
            Self::Latency(..) => Unit::Ms,
            Self::Jain => Unit::Index,
        }
    }

    /// Which way it should go.
    #[must_use]
    pub const fn direction(self) -> Direction {
        match self {
            Self::Attainment | Self::FeasibleAttainment | Self::Goodput | Self::Throughput => Direction::Up,
            Self::Jain | Self::LowestTenant => Direction::Up,
            Self::Failed | Self::Latency(..) => Direction::Down,
            Self::Rejected => Direction::Open,
        }
    }

    /// What is too small to matter where nothing else is said: 2 percentage points, 0.02 of an index, 5 % of a rate
    /// or a latency.
    #[must_use]
    pub const fn margin(self) -> Margin {
        match self.unit() {
            Unit::Share | Unit::Index => Margin::Absolute(0.02),
            Unit::PerSecond | Unit::Ms => Margin::Relative(0.05),
        }
    }
}

impl Unit {
    /// How its values are written.
    #[must_use]
    pub const fn of_values(self) -> crate::Unit {
        match self {
            Self::Share => crate::Unit::Share,
            Self::PerSecond => crate::Unit::PerSecond,
            Self::Ms => crate::Unit::Millis,
            Self::Index => crate::Unit::Plain(3),
        }
    }

    /// How its differences are written: those of shares in percentage points.
    #[must_use]
    pub const fn of_differences(self) -> crate::Unit {
        match self {
            Self::Share => crate::Unit::Points,
            other => other.of_values(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency(of, p) => write!(f, "completed_{}_p{p}", of.name()),
            plain => f.write_str(PLAIN.iter().find(|(kind, _)| kind == plain).map_or("", |(_, name)| name)),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        match &self.tenant {
            Some(tenant) => write!(f, "[{tenant}]"),
            None => Ok(()),
        }
    }
}

impl FromStr for Figure {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<Self, FigureError> {
        let wrong = || FigureError { text: text.to_owned(), what: FIGURES };
        let (name, tenant) = match text.split_once('[') {
            Some((name, rest)) => {
                let tenant = rest.strip_suffix(']').filter(|t| !t.is_empty()).ok_or_else(wrong)?;
                (name, Some(tenant.to_owned()))
            }
            None => (text, None),
        };
        let plain = PLAIN.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
        let kind = plain.or_else(|| latency(name)).ok_or_else(wrong)?;
        Ok(Self { tenant, kind })
    }
}

fn latency(name: &str) -> Option<Kind> {
    let (latency, percent) = name.strip_prefix("completed_")?.rsplit_once("_p")?;
    let of = LATENCIES.into_iter().find(|l| l.name() == latency)?;
    let p: u8 = percent.parse().ok().filter(|p| (1..=99).contains(p))?;
    Some(Kind::Latency(of, p))
}

impl serde::Serialize for Figure {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Margin {
    /// In the figure's own unit, where it is so much without the change.
    #[must_use]
    pub fn at(self, without: f64) -> f64 {
        match self {
            Self::Absolute(margin) => margin,
            Self::Relative(part) => part * without.abs(),
        }
    }

    /// Reads a number in the unit of a figure, or a percentage.
    ///
    /// # Errors
    /// [`FigureError`] says what would be right.
    pub fn parse(text: &str, of: Kind) -> Result<Self, FigureError> {
        let wrong = || FigureError { text: text.to_owned(), what: MARGINS };
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
        match (text.strip_suffix('%'), of.unit()) {
            (Some(percent), Unit::Share) => number(percent).map(|v| Self::Absolute(v / 100.0)),
            (Some(percent), _) => number(percent).map(|v| Self::Relative(v / 100.0)),
            (None, _) => number(text).map(Self::Absolute),
        }
        .ok_or_else(wrong)
    }
}

/// A confidence as a percentage.
pub(super) fn percent(confidence: f64) -> String {
    format!("{}%", trimmed(confidence * 100.0, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_reads_as_it_is_written() {
        let names = "attainment feasible_attainment[gold] goodput throughput rejected[batch] failed jain lowest_tenant \
            completed_ttft_p95 completed_longest_gap_p99 completed_tpot_p50[a]";
        for name in names.split(' ') {
            assert_eq!(name.parse::<Figure>().unwrap().to_string(), name);
        }
        for bad in ["ttft_p95", "completed_ttft_p0", "completed_ttft_p100", "attainment[", "attainment[]", "good", ""] {
            let error = bad.parse::<Figure>().unwrap_err().to_string();
            assert!(error.contains("completed_ttft_p95") && error.contains(bad), "{error}");
        }
    }

    #[test]
    fn a_margin_is_points_of_a_share_and_a_part_of_other_figures() {
        let parse = |text| [Kind::Attainment, Kind::Goodput].map(|kind| Margin::parse(text, kind).ok());
        assert_eq!(parse("3%"), [Some(Margin::Absolute(0.03)), Some(Margin::Relative(0.03))]);
        assert_eq!(parse("0.5"), [Some(Margin::Absolute(0.5)); 2]);
        assert_eq!(parse("-1"), [None, None]);
        assert_eq!((Margin::Relative(0.05).at(-8.0), Margin::Absolute(0.02).at(0.9)), (0.4, 0.02));
        assert!(Margin::parse("wide", Kind::Jain).unwrap_err().to_string().contains("percentage points"));
    }
}
