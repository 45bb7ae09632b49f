//! The figures that are compared, and how far a simulated one may lie from the published one.

use serde::Serialize;

use crate::sim::Figures;
use crate::stats::jain;

/// A figure of a run, by its name in the files of measurements.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// Completions per second.
    Throughput,
    /// Answers within every limit per second.
    Goodput,
    /// Answers within every limit as a share of those offered.
    GoodputShare,
    /// The same, as the paired tables call it.
    Attainment,
    /// Answer tokens per second.
    OutputTokens,
    /// Prompt and answer tokens per second.
    TotalTokens,
    /// The most requests that touched one second.
    PeakConcurrency,
    /// Requests answered in full.
    Completed,
    /// Requests turned away.
    Rejected,
    /// Answers within every limit.
    SloPassing,
    /// Jain's index over the tenants' attainments.
    Jain,
    /// A percentile of the time to first token, in ms.
    Ttft(u8),
    /// A percentile of the time per output token, in ms.
    Tpot(u8),
    /// A percentile of the time to the end, in ms.
    E2e(u8),
}

const PLAIN: [(&str, Column); 11] = [
    ("throughput", Column::Throughput),
    ("goodput", Column::Goodput),
    ("goodput_share", Column::GoodputShare),
    ("attainment", Column::Attainment),
    ("output_tokens_per_s", Column::OutputTokens),
    ("total_tokens_per_s", Column::TotalTokens),
    ("peak_concurrency", Column::PeakConcurrency),
    ("completed", Column::Completed),
    ("rejected", Column::Rejected),
    ("slo_passing", Column::SloPassing),
    ("jain", Column::Jain),
];

impl Column {
    /// A figure by its name in the files of measurements.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some((_, column)) = PLAIN.iter().find(|(known, _)| *known == name) {
            return Some(*column);
        }
        let (metric, percentile) = name.split_once("_p")?;
        let p: u8 = percentile.parse().ok().filter(|p| *p <= 100)?;
        match metric {
            "ttft" => Some(Self::Ttft(p)),
            "tpot" => Some(Self::Tpot(p)),
            "e2e" => Some(Self::E2e(p)),
            _ => None,
        }
    }

    /// Every name, for messages.
    #[must_use]
    pub fn names() -> String {
        let plain: Vec<&str> = PLAIN.iter().map(|(name, _)| *name).collect();
        format!("{}, and ttft_p95, tpot_p95, e2e_p95 with any percentile", plain.join(", "))
    }

    /// The name in files and tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Ttft(p) => format!("ttft_p{p}"),
            Self::Tpot(p) => format!("tpot_p{p}"),
            Self::E2e(p) => format!("e2e_p{p}"),
            plain => PLAIN.iter().find(|(_, c)| *c == plain).map_or("", |(name, _)| name).to_owned(),
        }
    }

    /// The figure of a run, `None` where it has none.
    #[must_use]
    pub fn of(self, figures: &Figures) -> Option<f64> {
        let quantile = |p: u8| f64::from(p) / 100.0;
        match self {
            Self::Throughput => figures.throughput(),
            Self::Goodput => figures.goodput(),
            Self::GoodputShare | Self::Attainment => figures.attainment(),
            Self::OutputTokens => figures.output_tokens_per_s(),
            Self::TotalTokens => figures.total_tokens_per_s(),
            Self::PeakConcurrency => Some(f64::from(figures.peak_concurrency())),
            Self::Completed => Some(f64::from(figures.completed())),
            Self::Rejected => Some(f64::from(figures.rejected())),
            Self::SloPassing => Some(f64::from(figures.passing())),
            Self::Jain => jain(&figures.tenant_attainments().into_iter().flatten().collect::<Vec<_>>()),
            Self::Ttft(p) => figures.ttft(quantile(p)),
            Self::Tpot(p) => figures.tpot(quantile(p)),
            Self::E2e(p) => figures.e2e(quantile(p)),
        }
    }

    /// How far a simulated figure of `requests` requests may lie from the published one.
    ///
    /// Rows with tenants are pure prediction: no parameter was fitted to them, so they have a tolerance of
    /// their own, and their Jain indices and goodputs are held to it over all rows together or by the sign
    /// of their differences.
    #[must_use]
    pub fn rule(self, requests: u32, with_tenants: bool) -> Rule {
        if with_tenants {
            return match self {
                Self::Attainment => Rule::Absolute(0.10),
                _ => Rule::Shown,
            };
        }
        let three_of_200 = 3.0 / 200.0;
        match self {
            Self::Throughput | Self::OutputTokens | Self::TotalTokens => Rule::Relative(0.02),
            Self::Tpot(_) | Self::E2e(_) => Rule::Relative(0.035),
            Self::Ttft(_) => Rule::Relative(0.05),
            Self::Goodput => Rule::Relative(0.075),
            Self::Completed | Self::Rejected | Self::SloPassing => Rule::Absolute(three_of_200 * f64::from(requests)),
            Self::GoodputShare | Self::Attainment => Rule::Absolute(three_of_200),
            Self::PeakConcurrency => Rule::Absolute(1.0),
            Self::Jain => Rule::Shown,
        }
    }
}

/// How a simulated value is held against a published one.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// The error is a share of the published value, and at most so large.
    Relative(f64),
    /// The error is the difference, and at most so large.
    Absolute(f64),
    /// Both have the same sign.
    Sign,
    /// The simulated value lies between these.
    Within(f64, f64),
    /// Shown, and held to nothing.
    Shown,
}

impl Rule {
    /// The error, where both values exist.
    #[must_use]
    pub fn error(self, published: f64, simulated: f64) -> f64 {
        match self {
            Self::Relative(_) => (simulated - published) / published,
            Self::Absolute(_) | Self::Sign | Self::Within(..) | Self::Shown => simulated - published,
        }
    }

    /// The largest error that holds.
    #[must_use]
    pub const fn tolerance(self) -> Option<f64> {
        match self {
            Self::Relative(most) | Self::Absolute(most) => Some(most),
            Self::Sign | Self::Within(..) | Self::Shown => None,
        }
    }

    /// Whether the simulated value holds.
    #[must_use]
    pub fn holds(self, published: f64, simulated: f64) -> bool {
        match self {
            // A share of whole counts may lie on the limit itself, where floats may fall on either side.
            Self::Relative(most) | Self::Absolute(most) => self.error(published, simulated).abs() <= most + 1e-9,
            Self::Sign => published.total_cmp(&0.0) == simulated.total_cmp(&0.0),
            Self::Within(low, high) => (low..=high).contains(&simulated),
            Self::Shown => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_read_back_from_its_name() {
        for column in PLAIN.map(|(_, c)| c).into_iter().chain([Column::Ttft(95), Column::Tpot(50), Column::E2e(99)]) {
            assert_eq!(Column::from_name(&column.name()), Some(column));
        }
        assert_eq!(Column::from_name("ttft_p101"), None);
        assert_eq!(Column::from_name("ttft"), None);
    }

    #[test]
    fn a_tolerance_includes_its_end_and_not_more() {
        let p95 = Column::Ttft(95).rule(200, false);
        assert!(p95.holds(200.0, 210.0) && p95.holds(200.0, 190.0) && !p95.holds(200.0, 210.1));
        let counts = Column::Completed.rule(200, false);
        assert!(counts.holds(155.0, 152.0) && !counts.holds(155.0, 151.0));
        let share = Column::Attainment.rule(200, false);
        assert!(share.holds(0.645, 0.660) && !share.holds(0.645, 0.665));
        assert!(Rule::Within(-1.0, 2.0).holds(0.5, -0.5) && !Rule::Within(-1.0, 2.0).holds(0.5, 2.1));
        assert!(Rule::Sign.holds(-0.1, -5.0) && !Rule::Sign.holds(-0.1, 0.1) && !Rule::Sign.holds(0.1, -0.0));
    }
}
