//! What a number counts, which says how it is written: one rule of rounding for tables, pictures and sentences.

use crate::fmt;

/// A unit and its rounding.
///
/// | unit | value | written |
/// |---|---|---|
/// | share | from 0 to 1 | percent, one decimal |
/// | points | a difference of shares | percentage points, one decimal |
/// | per second | a rate | two decimals |
/// | milliseconds | | three digits, whole from 100 on |
/// | seconds | | two decimals |
/// | count | | whole, thousands apart |
///
/// An interval is written with the decimals that the largest of its numbers gets, so that all three have the same.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share of a whole.
    Share,
    /// A difference of two shares.
    Points,
    /// So many per second.
    PerSecond,
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Whole things.
    Count,
    /// A number without a unit, with so many decimals.
    Plain(u8),
    /// A unit by its name, such as `ms/token`, with so many decimals.
    Named(&'static str, u8),
}

impl Unit {
    /// What stands behind a number, with its space.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Share => "%",
            Self::Points => " points",
            Self::PerSecond => "/s",
            Self::Millis => " ms",
            Self::Seconds => " s",
            Self::Count | Self::Plain(_) => "",
            Self::Named(name, _) => name,
        }
    }

    /// A value as it is drawn and written: shares as percent.
    #[must_use]
    pub fn scaled(self, value: f64) -> f64 {
        if matches!(self, Self::Share | Self::Points) { value * 100.0 } else { value }
    }

    /// The decimals that numbers of this unit get when they stand together.
    #[must_use]
    pub fn decimals(self, values: &[f64]) -> usize {
        match self {
            Self::Share | Self::Points => 1,
            Self::PerSecond | Self::Seconds => 2,
            Self::Count => 0,
            Self::Plain(decimals) | Self::Named(_, decimals) => decimals as usize,
            Self::Millis => {
                let largest = values.iter().filter(|v| v.is_finite()).fold(0.0, |most: f64, v| most.max(v.abs()));
                match largest {
                    v if v >= 100.0 || v == 0.0 => 0,
                    v if v >= 10.0 => 1,
                    v if v >= 1.0 => 2,
                    _ => 3,
                }
            }
        }
    }

    /// A value without its unit.
    #[must_use]
    pub fn number(self, value: f64) -> String {
        self.with_decimals(value, self.decimals(&[value]))
    }

    /// A value without its unit, with so many decimals; thousands apart.
    #[must_use]
    pub fn with_decimals(self, value: f64, decimals: usize) -> String {
        if !value.is_finite() {
            return fmt::MISSING.to_owned();
        }
        let text = format!("{:.decimals$}", self.scaled(value).abs());
        let (whole, rest) = text.split_once('.').map_or((text.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
        let whole = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), fmt::count);
        let sign = if value < 0.0 && text.bytes().any(|b| b.is_ascii_digit() && b != b'0') { "−" } else { "" };
        format!("{sign}{whole}{rest}")
    }

    /// A value with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        self.joined(self.number(value))
    }

    /// A value with its unit, with so many decimals.
    #[must_use]
    pub fn rounded(self, value: f64, decimals: usize) -> String {
        self.joined(self.with_decimals(value, decimals))
    }

    /// A difference with its sign and its unit: `+8.25/s`, `−1.5 points`.
    #[must_use]
    pub fn signed(self, value: f64) -> String {
        self.joined(self.signed_number(value, self.decimals(&[value])))
    }

    /// A difference with its sign, without its unit.
    #[must_use]
    pub fn signed_number(self, value: f64, decimals: usize) -> String {
        let text = self.with_decimals(value, decimals);
        let plus = if value > 0.0 && value.is_finite() { "+" } else { "" };
        format!("{plus}{text}")
    }

    /// A value and its interval: `44.0% (37.3% to 50.9%)`. An end that the sample does not have is `unbounded`.
    #[must_use]
    pub fn interval(self, value: Option<f64>, [low, high]: [Option<f64>; 2]) -> String {
        let known: Vec<f64> = [value, low, high].into_iter().flatten().collect();
        let decimals = self.decimals(&known);
        let one = |v: Option<f64>, none: &str| {
            v.filter(|v| v.is_finite())
                .map_or_else(|| none.to_owned(), |v| self.joined(self.with_decimals(v, decimals)))
        };
        format!("{} ({} to {})", one(value, fmt::MISSING), one(low, "unbounded"), one(high, "unbounded"))
    }

    fn joined(self, number: String) -> String {
        match self {
            _ if number == fmt::MISSING => number,
            Self::Named(name, _) if !name.is_empty() => format!("{number} {name}"),
            _ => number + self.suffix(),
        }
    }

    /// What stands in a table's head for numbers without their unit; empty if there is nothing to say.
    #[must_use]
    pub const fn head(self) -> &'static str {
        match self {
            Self::Share => "%",
            Self::Points => "points",
            Self::PerSecond => "/s",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Count | Self::Plain(_) => "",
            Self::Named(name, _) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_has_one_rounding() {
        assert_eq!([Unit::Share.text(0.44), Unit::Share.text(1.0)], ["44.0%", "100.0%"]);
        assert_eq!([Unit::Points.signed(0.6), Unit::Points.signed(-0.015)], ["+60.0 points", "−1.5 points"]);
        assert_eq!([Unit::PerSecond.signed(8.25), Unit::PerSecond.text(1234.5)], ["+8.25/s", "1,234.50/s"]);
        assert_eq!([Unit::Millis.text(6118.7), Unit::Millis.text(73.24)], ["6,119 ms", "73.2 ms"]);
        assert_eq!([Unit::Count.text(1e6), Unit::Plain(3).text(0.1526)], ["1,000,000", "0.153"]);
        assert_eq!(Unit::Named("ms/token", 4).text(0.0732), "0.0732 ms/token");
    }

    #[test]
    fn the_numbers_of_an_interval_have_the_same_decimals() {
        let shown = Unit::Share.interval(Some(0.44), [Some(0.373), Some(0.5093)]);
        assert_eq!(shown, "44.0% (37.3% to 50.9%)");
        let shown = Unit::Millis.interval(Some(98.44), [Some(9.126), Some(104.2)]);
        assert_eq!(shown, "98 ms (9 ms to 104 ms)");
        assert_eq!(Unit::Millis.interval(None, [Some(12.0), None]), "– (12.0 ms to unbounded)");
    }

    #[test]
    fn what_rounds_to_nothing_has_no_sign_and_what_is_no_number_is_missing() {
        assert_eq!([Unit::Points.signed(-0.0001), Unit::Points.signed(0.0)], ["0.0 points", "0.0 points"]);
        assert_eq!([Unit::Millis.text(f64::INFINITY), Unit::Count.text(f64::NAN)], ["–", "–"]);
    }
}
