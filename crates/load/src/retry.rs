//! Whether and when a request is tried again: as the OpenAI SDKs do it.
//!
//! The server's `x-should-retry` decides where it is sent; else 408, 409, 429 and 5xx are tried again, and
//! what failed before the head of an answer. The wait is what `retry-after-ms` or `retry-after` says, if
//! that is above 0 and at most a minute; else half a second, doubled with each attempt up to 8 s, less up
//! to a quarter at random. (openai-python, `_base_client.py`: `_should_retry`, `_calculate_retry_timeout`.)

use elasticserve_core::ledger::Row;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::rng::{Random, Stream, mix};
use elasticserve_core::time::Span;

/// The longest wait that is taken from the server.
const MAX_TOLD: Span = Span::from_secs(60);
const FIRST_WAIT: Span = Span::from_millis(500);
const LONGEST_WAIT: Span = Span::from_secs(8);

/// What a run does about attempts that failed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Retries {
    /// Further attempts at most.
    pub(crate) most: u32,
    /// Of the spread of waits.
    pub(crate) seed: u64,
}

impl Retries {
    /// How long to wait after an attempt before the next one; `None` if there is none.
    pub(crate) fn wait_after(self, row: &Row) -> Option<Span> {
        if row.attempt >= self.most || !is_worth_it(row) {
            return None;
        }
        let told = row.retry_after.filter(|wait| *wait > Span::ZERO && *wait <= MAX_TOLD);
        Some(told.unwrap_or_else(|| self.backoff(row)))
    }

    fn backoff(self, row: &Row) -> Span {
        let doubled = FIRST_WAIT * (1u64 << row.attempt.min(10));
        let arrival = mix(self.seed, u64::from(row.index));
        let less = Random::new(mix(arrival, u64::from(row.attempt)), Stream::Jitter).unit() / 4.0;
        doubled.min(LONGEST_WAIT).scaled_down(1.0 / (1.0 - less))
    }
}

fn is_worth_it(row: &Row) -> bool {
    match (row.status, row.should_retry) {
        (Some(200..300), _) => false,
        (Some(_), Some(told)) => told,
        (Some(status), None) => matches!(status, 408 | 409 | 429 | 500..),
        (None, _) => row.state.was_sent() && !matches!(row.state, Terminal::Censored | Terminal::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_core::time::Tick;

    const RETRIES: Retries = Retries { most: 2, seed: 7 };

    fn rejected(status: u16) -> Row {
        let mut row = Row::new(3, "t", Tick::ZERO, 1, 1);
        row.state = if matches!(status, 429 | 503) { Terminal::Rejected } else { Terminal::HttpError };
        row.status = Some(status);
        row
    }

    #[test]
    fn the_servers_word_comes_before_the_status() {
        for (status, told, tried) in [
            (429, None, true),
            (503, None, true),
            (500, None, true),
            (408, None, true),
            (409, None, true),
            (400, None, false),
            (422, None, false),
            (429, Some(false), false),
            (400, Some(true), true),
            (200, Some(true), false),
        ] {
            let row = Row { should_retry: told, ..rejected(status) };
            assert_eq!(RETRIES.wait_after(&row).is_some(), tried, "{status} {told:?}");
        }
    }

    #[test]
    fn what_failed_before_an_answer_is_tried_again_and_what_the_run_ended_is_not() {
        for (state, tried) in [
            (Terminal::Refused, true),
            (Terminal::TimeoutConnect, true),
            (Terminal::TimeoutTtft, true),
            (Terminal::Truncated, true),
            (Terminal::Censored, false),
            (Terminal::UnsentClientCap, false),
        ] {
            let mut row = Row::new(0, "t", Tick::ZERO, 1, 1);
            row.state = state;
            assert_eq!(RETRIES.wait_after(&row).is_some(), tried, "{state}");
        }
    }

    #[test]
    fn the_number_of_attempts_is_bounded_and_off_by_default() {
        let at = |attempt| Row { attempt, ..rejected(429) };
        assert!(RETRIES.wait_after(&at(1)).is_some() && RETRIES.wait_after(&at(2)).is_none());
        assert!(Retries { most: 0, seed: 7 }.wait_after(&at(0)).is_none());
    }

    #[test]
    fn a_told_wait_is_kept_to_the_millisecond_unless_it_is_beyond_a_minute() {
        let after = |wait| RETRIES.wait_after(&Row { retry_after: Some(wait), ..rejected(429) }).unwrap();
        assert_eq!(after(Span::from_millis(1234)), Span::from_millis(1234));
        assert_eq!(after(Span::from_secs(60)), Span::from_secs(60));
        for wait in [Span::ZERO, Span::from_secs(61)] {
            assert!(after(wait) <= FIRST_WAIT);
        }
    }

    #[test]
    fn the_wait_doubles_up_to_eight_seconds_less_at_most_a_quarter_and_repeats_exactly() {
        let many = Retries { most: 20, seed: 7 };
        for (attempt, full_ms) in [(0, 500.0), (1, 1000.0), (4, 8000.0), (19, 8000.0)] {
            let waits: Vec<f64> = (0..200)
                .map(|index| Row { attempt, index, ..rejected(503) })
                .map(|row| {
                    assert_eq!(many.wait_after(&row), many.wait_after(&row));
                    many.wait_after(&row).unwrap().as_millis_f64()
                })
                .collect();
            let (least, most) = waits.iter().fold((f64::MAX, 0.0f64), |(l, m), w| (l.min(*w), m.max(*w)));
            assert!(least >= full_ms * 0.75 - 1e-3 && most <= full_ms, "{least} to {most} of {full_ms}");
            assert!(least < full_ms * 0.8 && most > full_ms * 0.95, "{least} to {most} of {full_ms}: hardly spread");
        }
    }
}
