//! Writing what was computed into the run folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::read::{ReadError, Run, read_run};
use crate::summary::Summary;

/// The name of the summary in a run folder.
pub const SUMMARY_FILE: &str = "summary.json";
/// The name of the page in a run folder, and in a folder of runs.
pub const HTML_FILE: &str = "report.html";
/// The name of the page's twin in Markdown.
pub const MARKDOWN_FILE: &str = "report.md";
/// The most runs that one page or table compares.
pub const MAX_RUNS: usize = 16;

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The summary could not be turned into JSON.
    #[error("summary: {0}")]
    Json(#[from] serde_json::Error),
}

/// Recomputes a run from its ledger and writes `summary.json` and `report.html` into its folder.
///
/// # Errors
/// [`WriteError`] if the run cannot be read or a file cannot be written.
pub fn write_run(folder: &Path) -> Result<Summary, WriteError> {
    let run = read_run(folder)?;
    let summary = Summary::of(&run);
    write_file(&folder.join(SUMMARY_FILE), &(serde_json::to_string_pretty(&summary)? + "\n"))?;
    write_file(&folder.join(HTML_FILE), &crate::html(&run.manifest.name, &[&run]))?;
    Ok(summary)
}

/// Writes the page that compares the given run folders into `file`. The first run is the baseline.
///
/// # Errors
/// [`WriteError`] if a run cannot be read or the file cannot be written.
pub fn write_comparison(file: &Path, title: &str, folders: &[PathBuf]) -> Result<Vec<Summary>, WriteError> {
    let runs: Vec<Run> = folders.iter().map(|f| read_run(f)).collect::<Result<_, _>>()?;
    write_file(file, &crate::html(title, &runs.iter().collect::<Vec<_>>()))?;
    Ok(runs.iter().map(Summary::of).collect())
}

/// Writes a file as a whole or not at all: beside its place first, then moved there.
///
/// # Errors
/// [`WriteError::Io`] with the file's name.
pub fn write_file(path: &Path, text: &str) -> Result<(), WriteError> {
    let failed = |source| WriteError::Io { path: path.to_owned(), source };
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(|source| {
        // What is left of a failed write is of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(&beside);
        failed(source)
    })
}
