//! Logs to stderr: one line for each event, without waiting for whoever reads them.

mod line;
mod writer;

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use line::Json;
use writer::Lines;

/// How lines look.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// For a person.
    Text,
    /// One JSON object on each line.
    Json,
}

/// Starts logging at a level, or by directives such as `info,elasticserve_gateway=debug`; `RUST_LOG` wins. Without a
/// look, lines are for a person on a terminal and JSON elsewhere.
pub(crate) fn start(level: &str, look: Option<Look>) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let terminal = stderr().is_terminal();
    let look = look.unwrap_or(if terminal { Look::Text } else { Look::Json });
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Lines::to_stderr());
    // A subscriber that is set already stays.
    let _ = match look {
        Look::Text => builder.with_ansi(terminal && !plain).try_init(),
        Look::Json => builder.event_format(Json).try_init(),
    };
    std::panic::set_hook(Box::new(|panic| {
        // What it says may hold a piece of a request; where it happened does not.
        let place = panic.location().map_or_else(|| "?".to_owned(), ToString::to_string);
        tracing::error!(place, "a defect: panic");
    }));
}

/// Waits until what was logged has been written.
pub(crate) fn flush() {
    writer::flush();
}
