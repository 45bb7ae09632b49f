//! Lines on their way to stderr. Whoever logs never waits: what finds no room is dropped, counted and told.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const MAX_UNWRITTEN: usize = 8192;
/// How long the end of the program waits for a reader that does not read.
const PATIENCE: Duration = Duration::from_secs(1);

static SENDER: OnceLock<SyncSender<Message>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Makes writers of lines.
#[derive(Clone)]
pub(super) struct Lines(SyncSender<Message>);

/// Takes one line.
pub(super) struct Line(SyncSender<Message>);

impl Lines {
    /// Lines to stderr, written by a thread of their own for as long as the program runs.
    pub(super) fn to_stderr() -> Self {
        let sender = SENDER.get_or_init(|| {
            let (sender, lines) = sync_channel(MAX_UNWRITTEN);
            // Without a thread every line is dropped; there is nowhere to say so.
            let _ = std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&lines));
            sender
        });
        Self(sender.clone())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.0.clone())
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.try_send(Message::Line(bytes.to_vec())).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until what was logged before has been written, if somebody reads it.
pub(super) fn flush() {
    let Some(sender) = SENDER.get() else { return };
    let (done, written) = sync_channel(1);
    if sender.try_send(Message::Flush(done)).is_ok() {
        let _ = written.recv_timeout(PATIENCE);
    }
}

fn write_all(lines: &Receiver<Message>) {
    let mut err = io::stderr();
    while let Ok(message) = lines.recv() {
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let told = format!("{{\"level\":\"WARN\",\"message\":\"log lines were dropped\",\"lines\":{dropped}}}\n");
            // A reader that has gone misses this too.
            let _ = err.write_all(told.as_bytes());
        }
        match message {
            Message::Line(bytes) => _ = err.write_all(&bytes),
            Message::Flush(done) => _ = done.try_send(()),
        }
    }
}
