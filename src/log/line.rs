//! One event as one line of JSON, of bounded length whatever its values are.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The longest line, its end included.
const MAX_LINE: usize = 2048;
/// The longest value as it is written, without quotes and the mark of what was left out.
const MAX_VALUE: usize = 512;
/// Kept free for the end of the line and the mark that fields are missing.
const RESERVE: usize = 64;

/// Formats events.
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let data = event.metadata();
        let mut line = Line::new(&time, data.level().as_str(), data.target());
        event.record(&mut line);
        writer.write_str(&line.finish())
    }
}

/// A line that is being written.
struct Line {
    text: String,
    /// Something found no room.
    cut: bool,
}

impl Line {
    fn new(time: &str, level: &str, target: &str) -> Self {
        let mut line = Self { text: String::with_capacity(256), cut: false };
        line.text.push('{');
        line.string("time", time);
        line.string("level", level);
        line.string("target", target);
        line
    }

    fn finish(mut self) -> String {
        if self.cut {
            self.text.push_str(",\"truncated\":true");
        }
        self.text.push_str("}\n");
        self.text
    }

    /// The room that is left; `None`, from then on, if it is too little for a field of that name.
    fn room(&mut self, name: &str) -> Option<usize> {
        let used = self.text.len() + RESERVE + name.len() + 4;
        let room = MAX_LINE.checked_sub(used).filter(|room| *room >= RESERVE && !self.cut);
        self.cut |= room.is_none();
        room
    }

    fn name(&mut self, name: &str) {
        if !self.text.ends_with('{') {
            self.text.push(',');
        }
        // Names are written in the source, so they need no escapes.
        self.text.push('"');
        self.text.push_str(name);
        self.text.push_str("\":");
    }

    fn string(&mut self, name: &str, value: &str) {
        let Some(room) = self.room(name) else { return };
        let room = room.min(MAX_VALUE + MARK).saturating_sub(MARK);
        self.name(name);
        self.text.push('"');
        let start = self.text.len();
        for (at, c) in value.char_indices() {
            let before = self.text.len();
            escape(c, &mut self.text);
            if self.text.len() - start > room {
                self.text.truncate(before);
                // Writing to a string does not fail.
                let _ = write!(self.text, "…(+{} bytes)", value.len() - at);
                break;
            }
        }
        self.text.push('"');
    }

    /// A number or a truth value.
    fn bare(&mut self, name: &str, value: fmt::Arguments<'_>) {
        if self.room(name).is_some() {
            self.name(name);
            let _ = write!(self.text, "{value}");
        }
    }
}

/// Room for the mark of what was left out, for any length.
const MARK: usize = "…(+18446744073709551615 bytes)".len();

/// A character so that neither a reader of JSON nor one of lines or terminals takes it for anything else.
fn escape(c: char, out: &mut String) {
    let hidden = c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        // All of these have one unit of UTF-16.
        c if hidden => _ = write!(out, "\\u{:04x}", u32::from(c)),
        c => out.push(c),
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.string(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field.name(), format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field.name(), format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no other numbers.
        if value.is_finite() {
            self.bare(field.name(), format_args!("{value}"));
        } else {
            self.string(field.name(), &value.to_string());
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field.name(), format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.string(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S13.
    #[test]
    fn hostile_values_make_one_valid_line_of_bounded_length_and_say_what_was_left_out() {
        let pieces = [
            "\n",
            "\r\n",
            "\u{1b}[31m",
            "\u{2028}",
            "\u{2029}",
            "\u{0}",
            "\"",
            "\\",
            "é",
            "𝄞",
            "\u{202e}",
            "\u{7f}",
            "\u{9b}31m",
            "plain",
            "}{",
            "\",\"level\":\"ERROR",
            "\u{fffd}",
            "\u{2066}",
        ];
        let mut cut = 0;
        for n in 0..2_000usize {
            let times = [0, 1, 3, 40, 700, 10_000][n % 6];
            let value: String = (0..times).map(|i| pieces[(n / 6 + i * (1 + n % 5)) % pieces.len()]).collect();
            let mut line = Line::new("2026-01-01T00:00:00Z", "INFO", "elasticserve");
            for name in ["message", "tenant", "model", "path", "agent", "reason"].iter().take(1 + n % 6) {
                line.string(name, &value);
            }
            line.bare("n", format_args!("{n}"));
            let text = line.finish();
            assert!(text.len() <= MAX_LINE && text.ends_with("}\n"), "{n}: {}", text.len());
            let inner = &text[..text.len() - 1];
            assert!(
                !inner
                    .chars()
                    .any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202e}' | '\u{2066}')),
                "{n}"
            );
            let read: serde_json::Value = serde_json::from_str(inner).unwrap_or_else(|e| panic!("{n}: {e}: {inner}"));
            assert_eq!(read["level"], "INFO", "{n}");
            let message = read["message"].as_str().unwrap();
            match message.split_once("…(+") {
                None => assert_eq!(message, value, "{n}"),
                Some((kept, rest)) => {
                    let left: usize = rest.strip_suffix(" bytes)").unwrap().parse().unwrap();
                    assert_eq!((kept, kept.len() + left), (&value[..kept.len()], value.len()), "{n}");
                    cut += 1;
                }
            }
            if read["truncated"].is_null() {
                assert_eq!(read["n"], n);
            }
        }
        assert!(cut > 500, "{cut}");
    }
}
