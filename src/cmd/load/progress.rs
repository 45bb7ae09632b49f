//! The progress of a run on stderr: a line that renews itself on a terminal, else one every few seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use elasticserve_core::time::Span;
use elasticserve_load::{Phase, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cmd::say_error;

/// Between two looks on a terminal.
const LOOK: Duration = Duration::from_millis(100);
/// Between two lines elsewhere.
const LINE: Duration = Duration::from_secs(5);

/// Shows the progress of a run whose arrivals take `window`, until the run has ended. Dropping it
/// takes the line off the terminal.
pub(crate) async fn show(progress: &Progress, window: Span) {
    let on_terminal = std::io::stderr().is_terminal();
    let bar = on_terminal.then(|| Bar::new(progress));
    let mut since = None;
    let mut ticks = tokio::time::interval(if on_terminal { LOOK } else { LINE });
    // The first tick comes at once, when there is nothing to say yet.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let phase = progress.phase();
        if phase == Phase::Running && since.is_none() {
            since = Some(Instant::now());
        }
        let left = since.map_or(window.to_std(), |s: Instant| window.to_std().saturating_sub(s.elapsed()));
        let line = line(progress, left);
        match &bar {
            _ if phase == Phase::Ended => return,
            Some(bar) => bar.show(progress, &line),
            None => say_error(&line),
        }
    }
}

/// A bar that leaves no trace when it is dropped.
struct Bar(ProgressBar);

impl Bar {
    fn new(progress: &Progress) -> Self {
        let bar = ProgressBar::new(u64::from(progress.planned()));
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self, progress: &Progress, line: &str) {
        self.0.set_length(u64::from(progress.planned()));
        self.0.set_position(u64::from(progress.offered()));
        self.0.set_message(line.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn line(progress: &Progress, left: Duration) -> String {
    let doing = match progress.phase() {
        Phase::WaitingForServer => return "waiting for the server".to_owned(),
        Phase::WarmingUp => return "warming up".to_owned(),
        Phase::Running => format!("{:.0} s left", left.as_secs_f64().ceil()),
        Phase::Draining => "waiting for the last answers".to_owned(),
        Phase::Ended => "ended".to_owned(),
    };
    let other = match progress.other() {
        0 => String::new(),
        n => format!(", failed {n}"),
    };
    format!(
        "offered {}/{}, in flight {}, good {}, refused {}{other}, {doing}",
        progress.offered(),
        progress.planned(),
        progress.in_flight(),
        progress.good(),
        progress.refused(),
    )
}
