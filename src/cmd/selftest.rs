//! `elasticserve selftest`.

mod case;
mod parser;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::{BadConfig, say};
use case::Case;
use parser::{Command, read_all};

const AFTER_HELP: &str = "\
The corpus holds streams of server-sent events as they occur in the field, as bytes, and the right
reading of each: which events it has, and what answer they are. Our own reader, the one that the
generator measures with, reads each stream whole, byte by byte, split in every place, and in random
pieces; the readings must be equal to the corpus's.

--parser holds another reader to the same corpus. It is run by the shell once for each case, gets the
stream's bytes on stdin, and prints one JSON object: `events`, a list of {event, data}; if it likes
`comments`, their number; and `answer`, of which every field that it prints is compared. What these
are is told in tests/corpus/sse/README.md. `elasticserve selftest --read` is such a command.

Examples:
  elasticserve selftest
  elasticserve selftest --parser 'python3 my_reader.py'

Exit codes:
  0    every reading is right
  1    a reading differs; each one that does is shown
  2    the command line is wrong; the message names the flag
  64   the corpus cannot be read";

/// The corpus of this version, by file.
const CORPUS: [(&str, &str); 5] = [
    ("lines", include_str!("../../tests/corpus/sse/lines.json")),
    ("chat", include_str!("../../tests/corpus/sse/chat.json")),
    ("completions", include_str!("../../tests/corpus/sse/completions.json")),
    ("responses", include_str!("../../tests/corpus/sse/responses.json")),
    ("failures", include_str!("../../tests/corpus/sse/failures.json")),
];

/// Arguments of `elasticserve selftest`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Cases from the .json files of this folder, in place of the built-in ones.
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Test this shell command instead of our own reader.
    #[arg(long, value_name = "CMD")]
    parser: Option<String>,
    /// Read a stream from stdin and print its reading; no test.
    #[arg(long, conflicts_with_all = ["corpus", "parser"])]
    read: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.read {
        let reading = read_all(&mut std::io::stdin().lock()).context("stdin")?;
        say(&reading.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let cases = match &args.corpus {
        Some(folder) => from_folder(folder)?,
        None => built_in()?,
    };
    let mut wrong = 0;
    for case in &cases {
        let problem = match &args.parser {
            Some(command) => Command(command).check(case),
            None => case.check_own_reader(),
        };
        if let Some(problem) = problem {
            wrong += 1;
            say(&format!("wrong: {}: {}\n  {}", case.name, case.why, problem.replace('\n', "\n  ")));
        }
    }
    let right = cases.len() - wrong;
    say(&format!("{right} of {} cases are read right", cases.len()));
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many cases of the built-in corpus our own reader reads rightly, of how many.
pub(crate) fn own_reader() -> anyhow::Result<(usize, usize)> {
    let cases = built_in()?;
    Ok((cases.iter().filter(|case| case.check_own_reader().is_none()).count(), cases.len()))
}

fn built_in() -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (name, text) in CORPUS {
        cases.extend(Case::read(name, text)?);
    }
    Ok(cases)
}

fn from_folder(folder: &Path) -> anyhow::Result<Vec<Case>> {
    let bad = |problem: String| BadConfig(format!("--corpus {}: {problem}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(|error| bad(error.to_string()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
    files.retain(|file| file.extension().is_some_and(|e| e == "json"));
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| bad(error.to_string()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        cases.extend(Case::read(&name, &text)?);
    }
    if cases.is_empty() {
        return Err(bad("it holds no .json file with cases".to_owned()).into());
    }
    Ok(cases)
}
