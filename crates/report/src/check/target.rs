//! Targets: what a run must reach, as `attainment>=0.95` or `ttft_p99<=1000`.

use std::fmt;
use std::str::FromStr;

use elasticserve_core::time::Span;

use crate::fmt::{duration, trimmed};
use crate::unit::Unit;

/// A bound on a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The tenant it is about; `None` for all arrivals.
    pub tenant: Option<String>,
    /// The figure.
    pub metric: Metric,
    /// The bound: a share from 0 to 1, good answers per second, or milliseconds. Shares and rates of good things
    /// must reach it, the others must not pass it.
    pub limit: f64,
}

/// A figure that a target can bound.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Metric {
    /// A share of all planned arrivals.
    Share(Share),
    /// Good answers per second of the arrival window.
    Goodput,
    /// A quantile of a latency.
    Quantile(Quantile),
}

/// A share of all planned arrivals.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// Whole answers within every limit.
    Attainment,
    /// Whole answers.
    Completed,
    /// Turned away with 429 or 503.
    Rejected,
    /// Sent, and neither answered in full nor rejected.
    Failed,
}

/// A quantile of a latency.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Quantile {
    /// The latency.
    pub of: Latency,
    /// Which quantile, strictly between 0 and 1.
    pub p: f64,
    /// Whether it is over completed answers alone. Else it is over all planned arrivals, and what was never
    /// answered in full is later than any limit: a server cannot improve it by failing.
    pub completed_only: bool,
}

/// A latency of an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Latency {
    /// Time to first token, from the plan.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// End to end, from the plan.
    E2e,
    /// The longest gap between two content events.
    LongestGap,
}

/// Why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("target '{text}': {problem}")]
pub struct TargetError {
    /// What was given.
    pub text: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

const METRICS: &str = "attainment, completed, rejected, failed, goodput, or ttft, tpot, e2e or longest_gap with a quantile, such as ttft_p99";

impl Target {
    /// What is bounded when nothing else is said: 95 % of all planned arrivals are answered within their limits.
    pub const DEFAULT: Self = Self { tenant: None, metric: Metric::Share(Share::Attainment), limit: 0.95 };

    /// Whether the figure must reach the limit, rather than not pass it.
    #[must_use]
    pub const fn is_floor(&self) -> bool {
        matches!(self.metric, Metric::Share(Share::Attainment | Share::Completed) | Metric::Goodput)
    }

    /// The same for a tenant.
    #[must_use]
    pub fn of_tenant(self, name: &str) -> Self {
        Self { tenant: Some(name.to_owned()), ..self }
    }

    /// The unit in which the figure is measured.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        match self.metric {
            Metric::Share(_) => Unit::Share,
            Metric::Goodput => Unit::PerSecond,
            Metric::Quantile(_) => Unit::Millis,
        }
    }

    /// The bound with its unit, exactly as it was set.
    fn bound(&self) -> String {
        match self.metric {
            Metric::Share(_) => format!("{}%", trimmed(self.limit * 100.0, 4)),
            Metric::Goodput => format!("{}/s", trimmed(self.limit, 4)),
            Metric::Quantile(_) => duration(self.limit),
        }
    }
}

impl Metric {
    /// The figure's name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Share(share) => share.name().to_owned(),
            Self::Goodput => "goodput".to_owned(),
            Self::Quantile(q) => {
                let over = if q.completed_only { "completed_" } else { "" };
                format!("{over}{}_p{}", q.of.name(), trimmed(q.p * 100.0, 3))
            }
        }
    }
}

impl Share {
    const ALL: [Self; 4] = [Self::Attainment, Self::Completed, Self::Rejected, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Attainment => "attainment",
            Self::Completed => "completed",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

impl Latency {
    const ALL: [Self; 4] = [Self::Ttft, Self::Tpot, Self::E2e, Self::LongestGap];

    /// The name in a target.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::E2e => "e2e",
            Self::LongestGap => "longest_gap",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.metric.name())?;
        if let Some(tenant) = &self.tenant {
            write!(f, "[{}]", crate::fmt::one_line(tenant, 40))?;
        }
        write!(f, " {} {}", if self.is_floor() { "≥" } else { "≤" }, self.bound())
    }
}

impl FromStr for Target {
    type Err = TargetError;

    /// Reads `FIGURE>=BOUND` or `FIGURE<=BOUND`, for a tenant `FIGURE[NAME]>=BOUND`.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = |problem: String| TargetError { text: text.to_owned(), problem };
        let Some(at) = text.find(">=").or_else(|| text.find("<=")) else {
            return Err(wrong("write FIGURE>=BOUND or FIGURE<=BOUND, such as attainment>=0.95".to_owned()));
        };
        let (figure, floor, bound) = (text[..at].trim(), &text[at..at + 2] == ">=", text[at + 2..].trim());
        let (name, tenant) = match figure.split_once('[') {
            Some((name, rest)) => {
                let tenant = rest.strip_suffix(']').filter(|t| !t.is_empty());
                (name, Some(tenant.ok_or_else(|| wrong("write the tenant as attainment[NAME]".to_owned()))?.to_owned()))
            }
            None => (figure, None),
        };
        let metric = parse_metric(name.trim()).map_err(&wrong)?;
        let limit = parse_limit(&metric, bound).map_err(&wrong)?;
        let target = Self { tenant, metric, limit };
        if target.is_floor() != floor {
            let right = if target.is_floor() { ">=" } else { "<=" };
            return Err(wrong(format!("{} is bounded with {right}", metric.name())));
        }
        Ok(target)
    }
}

fn parse_metric(name: &str) -> Result<Metric, String> {
    if let Some(share) = Share::ALL.into_iter().find(|s| s.name() == name) {
        return Ok(Metric::Share(share));
    }
    if name == "goodput" {
        return Ok(Metric::Goodput);
    }
    let (completed_only, rest) = match name.strip_prefix("completed_") {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let unknown = || format!("'{name}' is not a figure: use {METRICS}");
    let (latency, percent) = rest.rsplit_once("_p").ok_or_else(unknown)?;
    let of = Latency::ALL.into_iter().find(|l| l.name() == latency).ok_or_else(unknown)?;
    let p = percent.parse::<f64>().ok().filter(|p| *p > 0.0 && *p < 100.0);
    let p =
        p.ok_or_else(|| format!("p{percent} is not a quantile: write a percentage above 0 and below 100, as p99"))?;
    Ok(Metric::Quantile(Quantile { of, p: p / 100.0, completed_only }))
}

fn parse_limit(metric: &Metric, text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
    match metric {
        Metric::Share(_) => {
            let share = match text.strip_suffix('%') {
                Some(percent) => number(percent).map(|v| v / 100.0),
                None => number(text),
            };
            share.filter(|s| *s <= 1.0).ok_or_else(|| format!("'{text}' is not a share: write 0.95 or 95%"))
        }
        Metric::Goodput => number(text.strip_suffix("/s").unwrap_or(text))
            .ok_or_else(|| format!("'{text}' is not a rate: write good answers per second, such as 9.5")),
        // A bare number is milliseconds, as in --goodput; a unit may be given.
        Metric::Quantile(_) => number(text)
            .or_else(|| text.parse::<Span>().ok().map(Span::as_millis_f64))
            .ok_or_else(|| format!("'{text}' is not a length of time: write milliseconds, or a unit as in 1.5s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn targets_read_as_they_are_said() {
        for (text, shown) in [
            ("attainment>=0.95", "attainment ≥ 95%"),
            (" attainment [gold] >= 99.5%", "attainment[gold] ≥ 99.5%"),
            ("goodput>=9.5", "goodput ≥ 9.5/s"),
            ("rejected<=5%", "rejected ≤ 5%"),
            ("ttft_p99<=1000", "ttft_p99 ≤ 1 s"),
            ("completed_e2e_p99.9<=1.5s", "completed_e2e_p99.9 ≤ 1.5 s"),
            ("longest_gap_p50<=250ms", "longest_gap_p50 ≤ 250 ms"),
        ] {
            assert_eq!(parse(text).to_string(), shown, "{text}");
        }
        assert_eq!(parse("attainment>=0.95"), Target::DEFAULT);
    }

    #[test]
    fn what_is_no_target_is_refused_with_what_would_be_right() {
        for (text, says) in [
            ("attainment", "such as attainment>=0.95"),
            ("attainment<=0.9", "bounded with >="),
            ("ttft_p99>=1000", "bounded with <="),
            ("attainment>=95", "write 0.95 or 95%"),
            ("attainment>=-1", "write 0.95 or 95%"),
            ("attainment[>=0.9", "attainment[NAME]"),
            ("attainment[]>=0.9", "attainment[NAME]"),
            ("ttft<=1000", "ttft_p99"),
            ("ttft_p100<=1000", "below 100"),
            ("ttft_p0<=1000", "above 0"),
            ("latency_p99<=1000", "'latency_p99' is not a figure"),
            ("e2e_p50<=soon", "a unit as in 1.5s"),
            ("e2e_p50<=NaN", "a unit as in 1.5s"),
            ("goodput>=lots", "good answers per second"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(text), "{error}");
        }
    }
}
