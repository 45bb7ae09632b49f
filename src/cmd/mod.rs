//! One file per verb: arguments become a typed configuration, which goes to one library call.

pub(crate) mod calibrate;
pub(crate) mod capacity;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod experiment;
pub(crate) mod explain;
mod files;
pub(crate) mod gateway;
pub(crate) mod keys;
pub(crate) mod load;
pub(crate) mod mock;
mod notify;
pub(crate) mod page;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod selftest;
pub(crate) mod sim;
mod supervised;
pub(crate) mod sweep;

use std::io::Write;
use std::process::ExitCode;

/// Shown below `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    something failed while running; the message says what
  2    the command line is wrong; the message names the flag
  64   the configuration is wrong; nothing was started
  130  interrupted; what was measured so far is written";

/// The configuration is wrong and nothing was started: `EX_USAGE` of sysexits.
pub(crate) const BAD_CONFIG: u8 = 64;

/// The command line is wrong, as for what clap finds.
const BAD_USAGE: u8 = 2;

/// Says on stderr what went wrong, causes included.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let code = match error {
        error if error.is::<BadConfig>() => BAD_CONFIG,
        error if error.is::<BadUsage>() => BAD_USAGE,
        _ => 1,
    };
    say_error(&format!("error: {error:#}"));
    ExitCode::from(code)
}

/// A configuration that cannot be used. Exits with [`BAD_CONFIG`].
#[derive(Debug)]
pub(crate) struct BadConfig(pub(crate) String);

impl std::fmt::Display for BadConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadConfig {}

/// Flags that do not go together. Exits with 2, as clap does.
#[derive(Debug)]
pub(crate) struct BadUsage(pub(crate) String);

impl std::fmt::Display for BadUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// Prints a result on stdout. A reader that has gone is not an error.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints a message on stderr.
pub(crate) fn say_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Starts logging to stderr: JSON lines unless a person watches. `RUST_LOG` sets the level.
pub(crate) fn start_logging() {
    crate::log::start("info", None);
}
