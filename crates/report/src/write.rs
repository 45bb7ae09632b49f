//! Writing what was computed into the run folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::read::{ReadError, read_account};
use crate::run_doc;
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

/// Recomputes a run from its ledger and writes `summary.json`, `report.html` and `report.md` into its folder.
///
/// # Errors
/// [`WriteError`] if the run cannot be read or a file cannot be written.
pub fn write_run(folder: &Path) -> Result<Summary, WriteError> {
    let run = read_account(folder)?;
    let summary = Summary::of_account(&run);
    write_file(&folder.join(SUMMARY_FILE), &(serde_json::to_string_pretty(&summary)? + "\n"))?;
    run_doc::run_doc(&run.manifest.name, &[&run], std::slice::from_ref(&summary)).write_into(folder)?;
    Ok(summary)
}

/// Writes the document that compares the given run folders into the files that are wanted. The first run is the
/// baseline.
///
/// # Errors
/// [`WriteError`] if a run cannot be read or a file cannot be written.
pub fn write_comparison(
    html: Option<&Path>,
    markdown: Option<&Path>,
    title: &str,
    folders: &[PathBuf],
) -> Result<Vec<Summary>, WriteError> {
    let runs: Vec<Account> = folders.iter().map(|f| read_account(f)).collect::<Result<_, _>>()?;
    let summaries: Vec<Summary> = runs.iter().map(Summary::of_account).collect();
    run_doc::run_doc(title, &runs.iter().collect::<Vec<_>>(), &summaries).write(html, markdown)?;
    Ok(summaries)
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
