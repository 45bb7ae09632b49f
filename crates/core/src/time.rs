//! Points in time and lengths of time, as integer nanoseconds.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since an origin that the caller chose, such as the start of a run.
///
/// Arithmetic saturates, so a clock that jumps cannot make a negative or wrapped value.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tick(u64);

/// A length of time in nanoseconds; never negative.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(u64);

impl Tick {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every other point.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `ns` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here, zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The point `span` before this one, the origin at the earliest.
    #[must_use]
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than every other length.
    pub const MAX: Self = Self(u64::MAX);

    /// A length in nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// A length in whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// A length in whole seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// A length in milliseconds, rounded to the nanosecond; negative and NaN become zero.
    #[must_use]
    pub fn from_millis_f64(ms: f64) -> Self {
        // A float cast saturates and maps NaN to zero.
        Self((ms * 1e6).round() as u64)
    }

    /// A length in seconds, rounded to the nanosecond; negative and NaN become zero.
    #[must_use]
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9).round() as u64)
    }

    /// Nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whole seconds, rounded up.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// Whole milliseconds, rounded up.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// This length less `other`, zero at least.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This length less `other`, `None` if that is less than nothing.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(ns) => Some(Self(ns)),
            None => None,
        }
    }

    /// This length divided by a positive factor, rounded to the nanosecond: how scaled time is made.
    #[must_use]
    pub fn scaled_down(self, factor: f64) -> Self {
        Self((self.0 as f64 / factor).round() as u64)
    }

    /// The same length for the standard library and tokio.
    #[must_use]
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }

    /// A length from the standard library, saturating after 584 years.
    #[must_use]
    pub fn from_std(d: std::time::Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add<Span> for Tick {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl Span {
    /// In the greatest unit that holds it whole, such as `750ms`; reading it gives the same length again.
    #[must_use]
    pub fn exact(self) -> String {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let (scale, unit) = units.into_iter().find(|(scale, _)| self.0.is_multiple_of(*scale)).unwrap_or((1, "ns"));
        format!("{}{unit}", self.0 / scale)
    }
}

impl fmt::Display for Span {
    /// The shortest unit that needs no more than three decimals, such as `750 ms` or `12.5 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            0 => return f.write_str("0 s"),
            1..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1e3, "us"),
            1_000_000..1_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        let text = format!("{:.3}", self.0 as f64 / scale);
        write!(f, "{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Why a text is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpanParseError {
    /// The number before the unit does not parse, or is negative.
    #[error("'{0}' is not a length of time: write a number and a unit, such as 750ms, 4s or 2m")]
    Number(String),
    /// No unit, or one that is not known.
    #[error("'{0}' needs a unit: one of ns, us, ms, s, m, h, such as 750ms")]
    Unit(String),
}

impl FromStr for Span {
    type Err = SpanParseError;

    /// Reads `750ms`, `4s`, `1.5 s`, `2m`; a bare `0` needs no unit.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        if trimmed == "0" {
            return Ok(Self::ZERO);
        }
        let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let value: f64 = number.trim().parse().map_err(|_| SpanParseError::Number(text.to_owned()))?;
        if !value.is_finite() || value < 0.0 {
            return Err(SpanParseError::Number(text.to_owned()));
        }
        let nanos = match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3600e9,
            _ => return Err(SpanParseError::Unit(text.to_owned())),
        };
        Ok(Self((value * nanos).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_back_gives_zero_not_a_wrapped_length() {
        assert_eq!(Tick::from_nanos(5).since(Tick::from_nanos(9)), Span::ZERO);
        assert_eq!(Tick::from_nanos(5).before(Span::from_nanos(9)), Tick::ZERO);
        assert_eq!(Tick::MAX + Span::from_secs(1), Tick::MAX);
    }

    #[test]
    fn lengths_of_time_parse_with_units_only() {
        assert_eq!("750ms".parse(), Ok(Span::from_millis(750)));
        assert_eq!("1.5 s".parse(), Ok(Span::from_millis(1500)));
        assert_eq!("2m".parse(), Ok(Span::from_secs(120)));
        assert_eq!("0".parse(), Ok(Span::ZERO));
        assert_eq!("750".parse::<Span>(), Err(SpanParseError::Unit("750".into())));
        assert_eq!("-1s".parse::<Span>(), Err(SpanParseError::Number("-1s".into())));
        assert_eq!("fast".parse::<Span>(), Err(SpanParseError::Number("fast".into())));
    }

    #[test]
    fn lengths_print_in_a_unit_people_read() {
        assert_eq!(Span::from_millis(750).to_string(), "750 ms");
        assert_eq!(Span::from_millis(12_500).to_string(), "12.5 s");
        assert_eq!(Span::ZERO.to_string(), "0 s");
    }
}
