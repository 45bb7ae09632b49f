//! The run's one clock, and the wall clock, which only the manifest shows.

use std::time::{Duration, Instant, SystemTime};

use elasticserve_core::time::{Span, Tick};

/// A monotonic clock that counts from the start of the run. Before the start it stands at zero.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts to count in `lead` from now.
    pub(crate) fn starting_in(lead: Duration) -> Self {
        Self { origin: Instant::now() + lead }
    }

    /// The instant at which it starts to count.
    pub(crate) const fn origin(self) -> Instant {
        self.origin
    }

    /// The time of the run.
    pub(crate) fn now(self) -> Tick {
        Tick::ZERO + Span::from_std(Instant::now().saturating_duration_since(self.origin))
    }

    /// A time of the run on the machine's clock; far in the future if it cannot be represented.
    pub(crate) fn instant(self, tick: Tick) -> Instant {
        const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
        self.origin + Duration::from_nanos(tick.as_nanos()).min(FAR)
    }
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

    #[test]
    fn the_clock_stands_at_zero_until_it_starts_and_then_counts() {
        assert_eq!(Clock::starting_in(Duration::from_secs(3600)).now(), Tick::ZERO);
        let clock = Clock { origin: Instant::now().checked_sub(Duration::from_millis(5)).unwrap() };
        let (first, second) = (clock.now(), clock.now());
        assert!(Tick::from_nanos(5_000_000) <= first && first <= second, "{first:?}, {second:?}");
        assert!(clock.instant(second) <= Instant::now());
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
