//! What the run cost the client, and the wall clock.

use std::time::SystemTime;

use elasticserve_core::time::Span;

/// CPU time of this process so far, user and system; absent where the system does not say.
pub(crate) fn cpu_time() -> Option<Span> {
    parse_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Linux counts CPU time for user space in hundredths of a second on every architecture.
const TICK_MS: u64 = 10;

/// `utime` and `stime` are fields 14 and 15; field 2 is the program's name in parentheses and may hold
/// anything, so counting starts after its last one (proc(5)).
fn parse_stat(text: &str) -> Option<Span> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Span::from_millis((user + system) * TICK_MS))
}

/// A time of the wall clock as RFC 3339 in UTC, to the millisecond.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The date of a day counted from 1970-01-01: in years that start in March, so that a leap day is the
/// last day of one, and eras of 400 years, which all have 146,097 days.
const fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month, date)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn cpu_time_is_read_behind_any_program_name() {
        let stat = "17 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0 99";
        assert_eq!(parse_stat(stat), Some(Span::from_secs(3)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn wall_clock_times_are_calendar_dates() {
        let at = |s| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59.000Z");
        assert_eq!(at(4_102_444_800), "2100-01-01T00:00:00.000Z");
    }
}
