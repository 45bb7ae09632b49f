//! Azure's traces, in CSV.

use super::{TraceError, TraceRow, csv, line, tokens_field};
use crate::time::Span;

pub(super) const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Reads the rows; time counts from the first of them.
pub(super) fn read(text: &str, limit: usize) -> Result<Vec<TraceRow>, TraceError> {
    let mut start = None;
    let mut rows = Vec::new();
    for row in csv(text, HEADER)?.take(limit) {
        let (number, [timestamp, input, output]) = row?;
        let Some(at) = nanoseconds(timestamp) else {
            let problem = format!("TIMESTAMP is '{timestamp}', not a time such as 2023-11-16 18:15:46.6805900");
            return Err(line(number, problem));
        };
        let start = *start.get_or_insert(at);
        let Some(at) = at.checked_sub(start) else {
            return Err(line(number, format!("TIMESTAMP {timestamp} lies before the first one")));
        };
        rows.push(TraceRow {
            line: number,
            at: Span::from_nanos(at),
            tenant: None,
            input: tokens_field(number, "ContextTokens", input)?,
            output: tokens_field(number, "GeneratedTokens", output)?,
            blocks: Vec::new(),
        });
    }
    Ok(rows)
}

/// Nanoseconds since 1970 of `2023-11-16 18:15:46.6805900`, or with `T` between, and in UTC with `Z` or
/// `+00:00` at its end.
fn nanoseconds(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00")).unwrap_or(text);
    let (date, time) = text.split_once([' ', 'T'])?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    if !(1970..=2500).contains(&year) || !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let years: u64 = (1970..year).map(|y| if is_leap(y) { 366 } else { 365 }).sum();
    let months: u64 = (1..month).map(|m| days_in(year, m)).sum();
    let seconds = (((years + months + day - 1) * 24 + hour) * 60 + minute) * 60 + second;
    let nanos = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    Some(seconds * 1_000_000_000 + nanos)
}

fn numbers(text: &str, separator: char, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == length && digits(part))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_read_to_the_nanosecond_and_over_leap_days() {
        let seconds = |text: &str| nanoseconds(text).map(|ns| ns / 1_000_000_000);
        assert_eq!(seconds("1970-01-01 00:00:00"), Some(0));
        // From `date -u -d ... +%s`.
        assert_eq!(seconds("2023-11-16 18:15:46.6805900"), Some(1_700_158_546));
        assert_eq!(seconds("2024-03-01T00:00:00Z"), Some(1_709_251_200));
        assert_eq!(nanoseconds("1970-01-01 00:00:01.5+00:00"), Some(1_500_000_000));
        for bad in ["", "2023-11-16", "2023-13-01 00:00:00", "2023-02-29 00:00:00", "2023-11-16 24:00:00"] {
            assert_eq!(nanoseconds(bad), None, "{bad}");
        }
        for bad in ["2023-1-16 18:15:46", "2023-11-16 18:15:46.", "2023-11-16 18:15:+6", "2023-11-16 18:15:46+02:00"] {
            assert_eq!(nanoseconds(bad), None, "{bad}");
        }
    }
}
