//! Answers as their clients saw them: what a calibration is made of.

use crate::ledger::Row;
use crate::outcome::Terminal;
use crate::time::{Span, Tick};

/// The prefix of the names of trials that send each prompt several times in a row.
pub const REPEATS: &str = "repeats";
/// How often such a trial sends each prompt.
pub const REPEATED: u32 = 3;

/// One load that was offered, and its answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// What it was for, such as `grid-1`.
    pub name: String,
    /// Users of a closed load; absent for arrivals at planned times.
    pub workers: Option<u32>,
    /// The answers in the order of the plan.
    pub seen: Vec<Seen>,
    /// Requests without a whole answer.
    pub failed: u32,
    /// What went wrong with the first of them.
    pub failure: Option<String>,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Its place in the plan.
    pub index: u32,
    /// Prompt tokens: as the server counted them, else as planned.
    pub input: u32,
    /// Prompt tokens from the prefix cache, if the server says so.
    pub cached: Option<u32>,
    /// Answer tokens that were asked for.
    pub asked: u32,
    /// Answer tokens: as the server counted them, else the events with content.
    pub output: u32,
    /// When the request began on an open connection.
    pub sent: Tick,
    /// When each event with content came, ascending; at least one.
    pub tokens: Vec<Tick>,
    /// When the answer ended.
    pub end: Tick,
    /// Whether the server counted the prompt.
    pub counted: bool,
}

impl Trial {
    /// A trial from the rows of its ledger, whatever their order.
    #[must_use]
    pub fn of_rows(name: &str, workers: Option<u32>, rows: &[Row]) -> Self {
        let mut trial = Self { name: name.to_owned(), workers, ..Self::default() };
        for row in rows.iter().filter(|row| row.state.was_sent()) {
            if let Some(seen) = Seen::of_row(row) {
                trial.seen.push(seen);
            } else {
                trial.failed += 1;
                trial.failure.get_or_insert_with(|| why(row));
            }
        }
        trial.seen.sort_by_key(|seen| seen.index);
        trial
    }

    /// Whether each prompt was sent [`REPEATED`] times in a row.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.name.starts_with(REPEATS)
    }
}

impl Seen {
    /// The answer of a row; `None` if it has no whole one, or its tokens have no times. One that is shorter than
    /// asked counts: its times are as good.
    fn of_row(row: &Row) -> Option<Self> {
        if !matches!(row.state, Terminal::Completed | Terminal::LengthShortfall) {
            return None;
        }
        let first = row.first_content?;
        let mut tokens = Vec::with_capacity(row.gaps.len() + 1);
        tokens.push(first);
        let mut at = first;
        for gap in &row.gaps {
            at = at + *gap;
            tokens.push(at);
        }
        Some(Self {
            index: row.index,
            input: row.input_tokens.unwrap_or(row.input_planned),
            cached: row.cached_tokens,
            asked: row.output_planned,
            output: row.output_tokens.unwrap_or(tokens.len() as u32),
            // A handshake is no part of the engine's time.
            sent: row.connected.max(row.send_started)?,
            end: row.end.unwrap_or(at),
            counted: row.input_tokens.is_some(),
            tokens,
        })
    }

    /// Prompt tokens that were computed for it, as far as the server says.
    #[must_use]
    pub fn computed(&self) -> u32 {
        self.input.saturating_sub(self.cached.unwrap_or(0)).max(1)
    }

    /// When the first token came.
    #[must_use]
    pub fn first(&self) -> Tick {
        self.tokens.first().copied().unwrap_or(self.end)
    }

    /// When the last token came.
    #[must_use]
    pub fn last(&self) -> Tick {
        self.tokens.last().copied().unwrap_or(self.end)
    }

    /// From the send to the first token.
    #[must_use]
    pub fn ttft(&self) -> Span {
        self.first().since(self.sent)
    }

    /// Whether each event held one token, so that the times of tokens are known.
    #[must_use]
    pub fn is_by_token(&self) -> bool {
        self.tokens.len() == self.output as usize
    }
}

fn why(row: &Row) -> String {
    let mut text = row.state.to_string();
    for more in [row.status.map(|status| format!("HTTP {status}")), row.error.clone(), row.reason.clone()] {
        if let Some(more) = more.filter(|more| !text.contains(more.as_str())) {
            text += &format!(", {more}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Tick {
        Tick::from_nanos(n * 1_000_000)
    }

    fn row() -> Row {
        let mut row = Row::new(3, "t", ms(10), 100, 3);
        row.state = Terminal::Completed;
        (row.send_started, row.connected) = (Some(ms(11)), Some(ms(13)));
        row.first_content = Some(ms(50));
        row.gaps = vec![Span::from_millis(40), Span::from_millis(41)];
        row.end = Some(ms(132));
        row
    }

    #[test]
    fn an_answer_counts_from_its_connection_and_has_the_time_of_every_token() {
        let trial = Trial::of_rows("x", None, &[row()]);
        let seen = &trial.seen[0];
        assert_eq!((seen.ttft(), seen.last(), seen.is_by_token()), (Span::from_millis(37), ms(131), true));
        assert_eq!((seen.input, seen.computed(), seen.counted), (100, 100, false));
        let told = Row { input_tokens: Some(90), cached_tokens: Some(64), output_tokens: Some(4), ..row() };
        let seen = &Trial::of_rows("x", None, &[told]).seen[0];
        assert_eq!((seen.input, seen.computed(), seen.is_by_token()), (90, 26, false));
    }

    #[test]
    fn what_has_no_whole_answer_is_counted_with_its_reason_and_what_was_never_sent_is_not() {
        let refused = Row { state: Terminal::HttpError, status: Some(400), ..row() };
        let unsent = Row { state: Terminal::UnsentAbort, ..row() };
        let short = Row { state: Terminal::LengthShortfall, ..row() };
        let trial = Trial::of_rows("x", Some(2), &[refused, unsent, short]);
        assert_eq!((trial.seen.len(), trial.failed), (1, 1));
        assert_eq!(trial.failure.as_deref(), Some("http_error, HTTP 400"));
    }
}
