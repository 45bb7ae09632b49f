//! The run folder: the plan, the manifest, and the ledger to which rows are added as they end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use elasticserve_core::ledger::{LEDGER_FILE, MANIFEST_FILE, Manifest, PLAN_FILE, Row};
use elasticserve_core::work::Plan;
use tokio::sync::{mpsc, oneshot};

use crate::tally::Tally;

/// Rows that may wait to be written; an exchange that has ended waits beyond that.
const MAX_WAITING: usize = 4096;
/// A buffer is written once it holds as much, or when nothing waits, or after [`FLUSH_EVERY`].
const BUFFER: usize = 64 << 10;
/// The longest that a row stays in memory while others keep coming.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Why a run folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It holds a ledger.
    #[error("{} already holds a run: choose another --result-dir", .0.display())]
    Taken(PathBuf),
    /// The system's answer.
    #[error("{}: {error}", path.display())]
    Io {
        /// What was tried.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
}

/// A folder of one run.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The folders that were made for it, the innermost first.
    made: Vec<PathBuf>,
}

impl Folder {
    /// Creates the folder, or takes an existing one that holds no ledger.
    pub(crate) fn create(path: &Path) -> Result<Self, FolderError> {
        if path.join(LEDGER_FILE).exists() {
            return Err(FolderError::Taken(path.to_owned()));
        }
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let made = path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        fs::create_dir_all(path).map_err(|error| FolderError::Io { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), made })
    }

    /// Takes back what was made of a run that never began: its files, and the folders that were made for
    /// it if nothing else is in them. A folder with a ledger is left alone.
    pub(crate) fn abandon(&self) {
        if self.path.join(LEDGER_FILE).exists() {
            return;
        }
        // What cannot be removed stays, and changes nothing.
        for name in [PLAN_FILE, MANIFEST_FILE] {
            let _ = fs::remove_file(self.path.join(name));
        }
        for folder in &self.made {
            let _ = fs::remove_dir(folder);
        }
    }

    /// Writes the plan.
    pub(crate) fn write_plan(&self, plan: &Plan) -> Result<(), FolderError> {
        self.replace(PLAN_FILE, plan.to_ndjson().as_bytes())
    }

    /// Writes the manifest, or replaces it.
    pub(crate) fn write_manifest(&self, manifest: &Manifest) -> Result<(), FolderError> {
        let mut text = serde_json::to_string_pretty(manifest).map_err(|e| self.error(MANIFEST_FILE, e.into()))?;
        text.push('\n');
        self.replace(MANIFEST_FILE, text.as_bytes())
    }

    /// A reader finds the old file or the new one, never a part.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
        let unfinished = self.path.join(format!("{name}.part"));
        let write = || {
            let mut file = File::create(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, self.path.join(name))
        };
        write().map_err(|error| self.error(name, error))
    }

    fn error(&self, name: &str, error: io::Error) -> FolderError {
        FolderError::Io { path: self.path.join(name), error }
    }

    /// Creates the ledger and starts the thread that writes it.
    pub(crate) fn start_ledger(&self, planned: u32) -> Result<(mpsc::Sender<Row>, Ledger), FolderError> {
        let path = self.path.join(LEDGER_FILE);
        let failed = |error| FolderError::Io { path: path.clone(), error };
        // Another run may have begun in this folder since it was looked at.
        let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(failed)?;
        let (rows, queue) = mpsc::channel(MAX_WAITING);
        let (tell, done) = oneshot::channel();
        let writer = move || {
            // Nobody may wait for it any more.
            let _ = tell.send(write(file, queue, planned));
        };
        thread::Builder::new().name("load-ledger".into()).spawn(writer).map_err(failed)?;
        Ok((rows, Ledger { path, done }))
    }
}

/// A ledger that is being written. It ends when the last sender of rows is gone.
pub(crate) struct Ledger {
    path: PathBuf,
    done: oneshot::Receiver<io::Result<Tally>>,
}

impl Ledger {
    /// Waits until the last row is on disk, or until writing fails. Cancel safe; to be awaited to its end
    /// once.
    pub(crate) async fn done(&mut self) -> Result<Tally, FolderError> {
        let result = (&mut self.done).await.unwrap_or_else(|_| Err(io::Error::other("the ledger's thread failed")));
        result.map_err(|error| FolderError::Io { path: self.path.clone(), error })
    }
}

fn write(mut file: File, mut queue: mpsc::Receiver<Row>, planned: u32) -> io::Result<Tally> {
    let mut tally = Tally::new(planned);
    // Only whole lines are handed to the system, so that a run that is killed leaves whole lines.
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut flushed = Instant::now();
    while let Some(row) = queue.blocking_recv() {
        tally.count(&row);
        serde_json::to_writer(&mut buffer, &row)?;
        buffer.push(b'\n');
        if queue.is_empty() || buffer.len() >= BUFFER || flushed.elapsed() >= FLUSH_EVERY {
            file.write_all(&buffer)?;
            buffer.clear();
            flushed = Instant::now();
        }
    }
    file.write_all(&buffer)?;
    file.sync_all()?;
    Ok(tally)
}
