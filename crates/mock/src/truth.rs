//! The server's own times of each token, for whoever checks what a client measured.
//!
//! A row is told when an answer ends, however it ends. Its times are nanoseconds from the moment when the
//! request's head had been read, on the mock's monotonic clock, so they can be held against a client's
//! times from its send without comparing two clocks. A client's row is found by the request id.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use elasticserve_core::time::Tick;
use serde::{Deserialize, Serialize};

/// Rows that may wait for the writer of a file; further ones are left out and counted.
const MAX_WAITING: usize = 65_536;

/// What the server says of one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthRow {
    /// The request's id, as in its `x-request-id`.
    pub id: String,
    /// The path that was asked.
    pub path: String,
    /// Whether the answer was streamed.
    pub stream: bool,
    /// When the request's head had been read, in nanoseconds since 1970 on the wall clock: the origin of
    /// the times below.
    pub arrived_unix_ns: u64,
    /// When the request's body had been read.
    pub body_ns: u64,
    /// When each token was due by the engine model.
    pub due_ns: Vec<u64>,
    /// When each token was handed to its socket; for an answer that is not streamed, all at the end.
    pub written_ns: Vec<u64>,
    /// Whether the answer was given to its end.
    pub whole: bool,
    /// Rows that were left out before this one because nobody took them in time.
    pub lost_before: u64,
}

/// Where rows go.
#[derive(Clone, Debug)]
pub struct Truth {
    rows: SyncSender<TruthRow>,
    lost: Arc<AtomicU64>,
}

impl Truth {
    /// Rows over a channel that holds `capacity` of them; what finds no room is left out and counted.
    #[must_use]
    pub fn channel(capacity: usize) -> (Self, Receiver<TruthRow>) {
        let (rows, taken) = sync_channel(capacity);
        (Self { rows, lost: Arc::new(AtomicU64::new(0)) }, taken)
    }

    pub(crate) fn record(&self, id: &str, path: &'static str, arrived: Arrived) -> Record {
        let row = TruthRow {
            id: id.to_owned(),
            path: path.to_owned(),
            stream: false,
            arrived_unix_ns: arrived.unix_ns,
            body_ns: 0,
            due_ns: Vec::new(),
            written_ns: Vec::new(),
            whole: false,
            lost_before: 0,
        };
        Record { truth: self.clone(), origin: arrived.at, row }
    }

    fn tell(&self, mut row: TruthRow) {
        row.lost_before = self.lost.load(Ordering::Relaxed);
        if self.rows.try_send(row).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A file of rows, one line of JSON each.
#[derive(Debug)]
pub struct TruthFile {
    truth: Truth,
    writer: JoinHandle<io::Result<()>>,
}

impl TruthFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// If the file cannot be written or the system has no thread to give.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let (truth, rows) = Truth::channel(MAX_WAITING);
        let writer = std::thread::Builder::new().name("mock-truth".into()).spawn(move || write_rows(&rows, file))?;
        Ok(Self { truth, writer })
    }

    /// What a server takes.
    #[must_use]
    pub const fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Waits until all rows are written. The server must have been shut down before: it waits for every
    /// clone of [`TruthFile::truth`] to be gone.
    ///
    /// # Errors
    /// If rows could not be written.
    pub fn finish(self) -> io::Result<()> {
        drop(self.truth);
        self.writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer of the truth has panicked")))
    }
}

fn write_rows(rows: &Receiver<TruthRow>, mut file: impl Write) -> io::Result<()> {
    while let Ok(row) = rows.recv() {
        write_row(&mut file, &row)?;
        while let Ok(row) = rows.try_recv() {
            write_row(&mut file, &row)?;
        }
        // Nothing waits, so whoever reads along sees whole lines.
        file.flush()?;
    }
    Ok(())
}

fn write_row(file: &mut impl Write, row: &TruthRow) -> io::Result<()> {
    serde_json::to_writer(&mut *file, row)?;
    file.write_all(b"\n")
}

/// When a request came, on both clocks.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) at: Tick,
    unix_ns: u64,
}

impl Arrived {
    pub(crate) fn now(at: Tick) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at, unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
    }
}

/// The row of an answer under way. It is told when it is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    truth: Truth,
    origin: Tick,
    row: TruthRow,
}

impl Record {
    pub(crate) fn body_read(&mut self, at: Tick, stream: bool) {
        self.row.body_ns = at.since(self.origin).as_nanos();
        self.row.stream = stream;
    }

    /// A token that was due at `due` and is written at `at`.
    pub(crate) fn token(&mut self, due: Tick, at: Tick) {
        self.row.due_ns.push(due.since(self.origin).as_nanos());
        self.row.written_ns.push(at.since(self.origin).as_nanos());
    }

    pub(crate) const fn whole(&mut self) {
        self.row.whole = true;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let empty = TruthRow {
            id: String::new(),
            path: String::new(),
            stream: false,
            arrived_unix_ns: 0,
            body_ns: 0,
            due_ns: Vec::new(),
            written_ns: Vec::new(),
            whole: false,
            lost_before: 0,
        };
        self.truth.tell(std::mem::replace(&mut self.row, empty));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(truth: &Truth, id: &str) {
        let mut record = truth.record(id, "/v1/completions", Arrived { at: Tick::from_nanos(100), unix_ns: 7 });
        record.body_read(Tick::from_nanos(130), true);
        record.token(Tick::from_nanos(200), Tick::from_nanos(250));
        record.whole();
    }

    #[test]
    fn a_row_holds_times_from_the_arrival_of_its_request() {
        let (truth, rows) = Truth::channel(4);
        tell(&truth, "a");
        let row = rows.recv().unwrap();
        assert_eq!((row.body_ns, row.due_ns, row.written_ns), (30, vec![100], vec![150]));
        assert_eq!((row.id.as_str(), row.stream, row.whole, row.lost_before), ("a", true, true, 0));
    }

    #[test]
    fn rows_that_nobody_takes_are_counted() {
        let (truth, rows) = Truth::channel(1);
        for id in ["a", "b", "c"] {
            tell(&truth, id);
        }
        assert_eq!(rows.recv().unwrap().id, "a");
        tell(&truth, "d");
        let row = rows.recv().unwrap();
        assert_eq!((row.id.as_str(), row.lost_before), ("d", 2));
    }

    #[test]
    fn a_finished_file_holds_every_row_as_a_line() {
        let folder = std::env::temp_dir().join(format!("elasticserve-truth-{}", std::process::id()));
        let file = TruthFile::create(&folder).unwrap();
        for id in 0..100 {
            tell(file.truth(), &id.to_string());
        }
        file.finish().unwrap();
        let text = std::fs::read_to_string(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        let ids: Vec<String> = text.lines().map(|l| serde_json::from_str::<TruthRow>(l).unwrap().id).collect();
        assert_eq!(ids, (0..100).map(|id| id.to_string()).collect::<Vec<_>>());
    }
}
