//! Reading a run folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use elasticserve_core::ledger::{LEDGER_FILE, MANIFEST_FILE, Manifest, Row};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::{Span, Tick};

use crate::account::{Account, Gatherer, Parsed, due, tenant_places};
use crate::blocks::{Stop, each_line};

/// The longest line that a ledger may hold, in bytes: room for the gaps of half a million tokens.
pub const MAX_LINE: u64 = 8 << 20;
/// The largest manifest, in bytes: room for every tenant that a plan may have.
pub const MAX_MANIFEST: u64 = 16 << 20;
/// The fewest bytes of a row.
const LEAST_ROW: u64 = 64;
/// The format of manifest and ledger that this version reads.
pub const FORMAT: u32 = 1;

/// A run as its folder tells it.
///
/// What [`read_run`] gives holds each (index, attempt) at most once, only indices of the plan and only
/// tenants of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What was run.
    pub manifest: Manifest,
    /// The rows in the order of the ledger: that of their ends.
    pub rows: Vec<Row>,
    /// Whether the last line was cut off and left out, as after a kill.
    pub torn: bool,
}

/// Why a folder cannot be read as a run.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not a run folder.
    #[error(
        "{} is not a run folder: {problem}. A run folder holds {MANIFEST_FILE} and {LEDGER_FILE}, as `load` and `demo` write them",
        folder.display()
    )]
    NotARun {
        /// The folder.
        folder: PathBuf,
        /// What is missing.
        problem: String,
    },
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest is not what it should be.
    #[error("{}: {problem}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A line of the ledger is not what it should be.
    #[error("{} line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
}

/// Reads manifest and ledger of a run folder, with every row as it stands: for what needs gaps and words, of runs that
/// fit into memory so. Everything else needs a [`read_account`] only.
///
/// A last line without its newline that does not parse is what a kill in the middle of a write leaves: it
/// is left out and [`Run::torn`] says so.
///
/// # Errors
/// [`ReadError`] for a folder that is not a run, for any other line that does not parse, for an arrival
/// that is there twice and for one that the plan does not have.
pub fn read_run(folder: &Path) -> Result<Run, ReadError> {
    let manifest = read_manifest(folder)?;
    let mut rows: Vec<Row> = Vec::new();
    let mut seen = BTreeSet::new();
    let take = |_, row: Row| {
        let key = (row.index, row.attempt);
        if !seen.insert(key) {
            return Err(key);
        }
        rows.push(row);
        Ok(())
    };
    let torn = each_row(folder, &manifest, |row| row, take)?;
    Ok(Run { manifest, rows, torn })
}

/// Reads a run folder into an account: about 80 bytes an arrival, on every core.
///
/// # Errors
/// As [`read_run`].
pub fn read_account(folder: &Path) -> Result<Account, ReadError> {
    let manifest = read_manifest(folder)?;
    let length = fs::metadata(folder.join(LEDGER_FILE)).map_or(0, |m| m.len());
    let mut gathered = Gatherer::new(&manifest, (length / LEAST_ROW).min(manifest.plan.count.into()) as usize);
    let tenants = tenant_places(&manifest);
    let of = |row: Row| Parsed::of(&row, tenants.get(&row.tenant).copied().unwrap_or(u32::MAX));
    let take = |_, row: Parsed| {
        if gathered.holds(row.key()) {
            return Err(row.key());
        }
        gathered.add(row);
        Ok(())
    };
    let torn = each_row(folder, &manifest, of, take)?;
    Ok(gathered.finish(torn))
}

/// Whether a folder claims to be a run: it has a manifest.
#[must_use]
pub fn is_run_folder(folder: &Path) -> bool {
    folder.join(MANIFEST_FILE).is_file()
}

impl Run {
    /// How each arrival that has a row ended, in order of the plan: the row of its last attempt.
    #[must_use]
    pub fn outcomes(&self) -> Vec<&Row> {
        let mut last: BTreeMap<u32, &Row> = BTreeMap::new();
        for row in &self.rows {
            let kept = last.entry(row.index).or_insert(row);
            if row.attempt > kept.attempt {
                *kept = row;
            }
        }
        last.into_values().collect()
    }

    /// How many arrivals were due: those of the plan, or of a plan that is a supply those that were drawn.
    #[must_use]
    pub fn due(&self) -> u32 {
        due(&self.manifest)
    }

    /// The time that rates divide by: the plan's window, or where the plan fixes none (closed loads, sessions)
    /// the time until the last request ended.
    #[must_use]
    pub fn window(&self) -> Span {
        let last = || self.rows.iter().filter_map(|r| r.end).max().map_or(Span::ZERO, |end| end.since(Tick::ZERO));
        self.manifest.plan.window.unwrap_or_else(last)
    }

    /// The limits of a row's tenant.
    #[must_use]
    pub fn slo(&self, row: &Row) -> Slo {
        self.manifest.plan.tenants.iter().find(|t| t.name == row.tenant).map_or_else(Slo::default, |t| t.slo)
    }
}

fn read_manifest(folder: &Path) -> Result<Manifest, ReadError> {
    let path = folder.join(MANIFEST_FILE);
    if !folder.is_dir() {
        let problem = if folder.exists() { "it is a file" } else { "it does not exist" };
        return Err(ReadError::NotARun { folder: folder.to_owned(), problem: problem.into() });
    }
    let file = File::open(&path).map_err(|e| not_found(folder, &path, MANIFEST_FILE, e))?;
    let mut text = String::new();
    let read = file.take(MAX_MANIFEST + 1).read_to_string(&mut text);
    read.map_err(|source| ReadError::Io { path: path.clone(), source })?;
    let wrong = |problem: String| ReadError::Manifest { path: path.clone(), problem };
    if text.len() as u64 > MAX_MANIFEST {
        return Err(wrong(format!("longer than {MAX_MANIFEST} bytes")));
    }
    let manifest: Manifest = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    if manifest.format != FORMAT {
        return Err(wrong(format!("format {} where this version reads format {FORMAT}", manifest.format)));
    }
    if !(manifest.time_scale > 0.0 && manifest.time_scale.is_finite()) {
        return Err(wrong(format!("time_scale must be above 0, not {}", manifest.time_scale)));
    }
    Ok(manifest)
}

fn not_found(folder: &Path, path: &Path, what: &str, source: io::Error) -> ReadError {
    if source.kind() == io::ErrorKind::NotFound {
        return ReadError::NotARun { folder: folder.to_owned(), problem: format!("there is no {what} in it") };
    }
    ReadError::Io { path: path.to_owned(), source }
}

/// Reads the rows one after the other, parsed on every core. Says whether the last line was cut off.
fn each_row<T: Send>(
    folder: &Path,
    manifest: &Manifest,
    of: impl Fn(Row) -> T + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), (u32, u32)>,
) -> Result<bool, ReadError> {
    let path = folder.join(LEDGER_FILE);
    let file = File::open(&path).map_err(|e| not_found(folder, &path, LEDGER_FILE, e))?;
    let tenants: BTreeSet<&str> = manifest.plan.tenants.iter().map(|t| t.name.as_str()).collect();
    let parse = |line: &[u8]| -> Result<Result<T, String>, String> {
        let row: Row = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        Ok(match row_problem(manifest.plan.count, &tenants, &row) {
            None => Ok(of(row)),
            // A row of another plan is wrong even where the file ends.
            Some(problem) => Err(problem),
        })
    };
    let twice = |(index, attempt): (u32, u32)| {
        let first =
            line_of(&file, index, attempt).map_or_else(|| "an earlier line".to_owned(), |l| format!("line {l}"));
        format!("arrival {index} attempt {attempt} is already in {first}")
    };
    let taken = |line: usize, row: Result<T, String>| take(line, row?).map_err(twice);
    each_line(&file, parse, taken).map_err(|stop| match stop {
        Stop::Io(source) => ReadError::Io { path: path.clone(), source },
        Stop::Line(line, problem) => ReadError::Line { path: path.clone(), line, problem },
    })
}

/// The line in which an attempt stands first.
fn line_of(file: &File, index: u32, attempt: u32) -> Option<usize> {
    let mut found = None;
    let parse = |line: &[u8]| serde_json::from_slice::<Row>(line).map_err(|e| e.to_string());
    let look = |line, row: Row| {
        if (row.index, row.attempt) == (index, attempt) {
            found = Some(line);
            return Err(String::new());
        }
        Ok(())
    };
    // It stops at the line that is looked for.
    let _ = each_line(file, parse, look);
    found
}

fn row_problem(planned: u32, tenants: &BTreeSet<&str>, row: &Row) -> Option<String> {
    if row.index >= planned {
        return Some(format!("arrival {} is not in the plan, which has {planned} from 0", row.index));
    }
    if !tenants.contains(row.tenant.as_str()) {
        return Some(format!("tenant '{}' is not in the plan", row.tenant));
    }
    None
}

/// The run folders directly in a folder, by name.
///
/// # Errors
/// [`ReadError::Io`] if the folder cannot be listed.
pub fn runs_in(parent: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let failed = |source| ReadError::Io { path: parent.to_owned(), source };
    let mut folders = Vec::new();
    for entry in fs::read_dir(parent).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_run_folder(&path) {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn write(folder: &Path, ledger: &str) {
        let run = fixture::mixed();
        fs::write(folder.join(MANIFEST_FILE), serde_json::to_string(&run.manifest).unwrap()).unwrap();
        fs::write(folder.join(LEDGER_FILE), ledger).unwrap();
    }

    fn lines() -> Vec<String> {
        fixture::mixed().rows.iter().map(|r| serde_json::to_string(r).unwrap()).collect()
    }

    #[test]
    fn a_folder_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &(lines().join("\n") + "\n"));
        assert_eq!(read_run(folder.path()).unwrap(), fixture::mixed());
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_counted_wherever_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let whole = lines();
        let (last, before) = whole.split_last().unwrap();
        for cut in 1..last.len() {
            write(folder.path(), &format!("{}\n{}", before.join("\n"), &last[..cut]));
            let run = read_run(folder.path()).unwrap();
            assert!(run.torn, "cut at {cut}");
            assert_eq!(run.rows.len(), before.len(), "cut at {cut}");
        }
        // A row that only lacks its newline is a whole row.
        write(folder.path(), &whole.join("\n"));
        let run = read_run(folder.path()).unwrap();
        assert!(!run.torn && run.rows.len() == whole.len());
    }

    #[test]
    fn any_other_bad_line_is_an_error_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let good = lines();
        let outside = good[0].replacen("\"index\":0", "\"index\":4000", 1);
        let stranger =
            good[1].replace("\"tenant\":\"a\"", "\"tenant\":\"zz\"").replace("\"tenant\":\"b\"", "\"tenant\":\"zz\"");
        for (bad, says) in [
            (good[0][..20].to_owned(), "EOF"),
            (String::new(), "EOF"),
            (good[0].clone(), "already in line 1"),
            (outside, "not in the plan"),
            (stranger, "tenant 'zz'"),
        ] {
            write(folder.path(), &format!("{}\n{bad}\n{}\n", good[0], good[2]));
            let error = read_run(folder.path()).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(says), "{bad}: {error}");
        }
    }

    #[test]
    fn a_folder_that_is_no_run_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let says = |folder: &Path| read_run(folder).unwrap_err().to_string();
        assert!(says(folder.path()).contains("no manifest.json"));
        assert!(says(&folder.path().join("nowhere")).contains("does not exist"));
        write(folder.path(), "");
        fs::remove_file(folder.path().join(LEDGER_FILE)).unwrap();
        assert!(says(folder.path()).contains("no ledger.ndjson"));
        fs::write(folder.path().join(MANIFEST_FILE), "{\"format\":1}").unwrap();
        assert!(says(folder.path()).contains("manifest.json: missing field"));
    }
}
