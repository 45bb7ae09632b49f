//! Validators: whether an answer that is whole is also right.
//!
//! They judge completed answers only, after the answer's end and its slot are done with, so they are in no
//! latency. They run off the reactor, a bounded number at a time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use elasticserve_core::ledger::{CountSource, Row};
use regex::{Regex, RegexBuilder};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use crate::answer::Texts;

/// Answers that are judged at once at most; others wait.
const MAX_AT_ONCE: usize = 4;
/// How long a command may take for one text.
const COMMAND_TIME: Duration = Duration::from_secs(10);
/// The most bytes of a compiled pattern.
const MAX_PATTERN: usize = 4 << 20;
/// The most characters of a reason.
const MAX_REASON: usize = 200;

/// What an answer must be to be valid.
#[derive(Clone, Debug)]
pub enum Validator {
    /// Its text matches a pattern somewhere.
    Regex(Regex),
    /// Its text is JSON that a schema accepts.
    Schema(Schema),
    /// It has exactly as many tokens as planned, by the server's own count.
    ExactLength,
    /// A shell command that gets its text on stdin ends with 0.
    Command(String),
}

/// A JSON schema from a file.
#[derive(Clone)]
pub struct Schema {
    file: PathBuf,
    compiled: Arc<jsonschema::Validator>,
}

/// Why a text is no validator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValidatorError {
    /// Of no known kind.
    #[error("write regex:PATTERN, json-schema:FILE, length:exact or command:CMD")]
    Kind,
    /// A pattern that cannot be used.
    #[error("{0}")]
    Pattern(String),
    /// A schema that cannot be used.
    #[error("{file}: {problem}", file = file.display())]
    Schema {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl FromStr for Validator {
    type Err = ValidatorError;

    /// Reads `regex:PATTERN`, `json-schema:FILE`, `length:exact` or `command:CMD`.
    fn from_str(text: &str) -> Result<Self, ValidatorError> {
        match text.split_once(':').ok_or(ValidatorError::Kind)? {
            ("regex", pattern) if !pattern.is_empty() => {
                let regex = RegexBuilder::new(pattern).size_limit(MAX_PATTERN).build();
                regex.map(Self::Regex).map_err(|error| ValidatorError::Pattern(error.to_string()))
            }
            ("json-schema", file) if !file.is_empty() => Schema::read(Path::new(file)).map(Self::Schema),
            ("length", "exact") => Ok(Self::ExactLength),
            ("command", command) if !command.trim().is_empty() => Ok(Self::Command(command.to_owned())),
            _ => Err(ValidatorError::Kind),
        }
    }
}

impl fmt::Display for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regex(regex) => write!(f, "regex:{regex}"),
            Self::Schema(schema) => write!(f, "json-schema:{}", schema.file.display()),
            Self::ExactLength => f.write_str("length:exact"),
            Self::Command(command) => write!(f, "command:{command}"),
        }
    }
}

impl Schema {
    fn read(file: &Path) -> Result<Self, ValidatorError> {
        let bad = |problem: String| ValidatorError::Schema { file: file.to_owned(), problem };
        let text = std::fs::read_to_string(file).map_err(|e| bad(e.to_string()))?;
        let schema: Value = serde_json::from_str(&text).map_err(|e| bad(format!("not JSON: {e}")))?;
        let compiled = jsonschema::validator_for(&schema).map_err(|e| bad(format!("not a schema: {e}")))?;
        Ok(Self { file: file.to_owned(), compiled: Arc::new(compiled) })
    }

    /// Why the schema does not accept a text, if it does not.
    fn problem(&self, text: &str) -> Option<String> {
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(error) => return Some(format!("not JSON: {error}")),
        };
        let error = self.compiled.iter_errors(&value).next()?;
        Some(format!("{error} at '{}'", error.instance_path()))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.file).finish()
    }
}

impl Validator {
    /// Whether it looks at the text of an answer.
    pub(crate) const fn needs_text(&self) -> bool {
        !matches!(self, Self::ExactLength)
    }
}

/// The validators of a run.
pub(crate) struct Validators {
    list: Arc<[Validator]>,
    turns: Semaphore,
}

impl Validators {
    pub(crate) fn new(list: &[Validator]) -> Self {
        Self { list: list.into(), turns: Semaphore::new(MAX_AT_ONCE) }
    }

    /// Why a completed answer is not valid, if it is not: what the first validator says that it fails.
    pub(crate) async fn problem(&self, row: &Row, texts: &Texts) -> Option<String> {
        if self.list.is_empty() {
            return None;
        }
        // It is closed by nobody.
        let _turn = self.turns.acquire().await.ok()?;
        // An answer without text, such as a tool call, is judged as an empty one.
        let texts: Arc<[String]> =
            if texts.is_empty() { Arc::new([String::new()]) } else { texts.values().cloned().collect() };
        for (place, validator) in self.list.iter().enumerate() {
            let problem = match validator {
                Validator::ExactLength => length_problem(row),
                Validator::Command(command) => command_problem(command, &texts).await,
                Validator::Regex(_) | Validator::Schema(_) => {
                    let (list, texts) = (Arc::clone(&self.list), Arc::clone(&texts));
                    let judged = tokio::task::spawn_blocking(move || text_problem(&list[place], &texts)).await;
                    judged.unwrap_or_else(|error| Some(format!("it could not be judged: {error}")))
                }
            };
            if let Some(problem) = problem {
                return Some(shortened(&format!("{validator}: {problem}")));
            }
        }
        None
    }
}

fn length_problem(row: &Row) -> Option<String> {
    let planned = row.output_planned;
    match (row.output_tokens, row.output_tokens_from) {
        (Some(tokens), Some(CountSource::Usage)) if tokens == planned => None,
        (Some(tokens), Some(CountSource::Usage)) => Some(format!("{tokens} tokens where {planned} were planned")),
        _ => Some("the server did not say how many tokens it gave".to_owned()),
    }
}

fn text_problem(validator: &Validator, texts: &[String]) -> Option<String> {
    texts.iter().find_map(|text| match validator {
        Validator::Regex(regex) if !regex.is_match(text) => Some("no match".to_owned()),
        Validator::Schema(schema) => schema.problem(text),
        _ => None,
    })
}

async fn command_problem(command: &str, texts: &[String]) -> Option<String> {
    for text in texts {
        let judged = tokio::time::timeout(COMMAND_TIME, judge(command, text)).await;
        // A command that is not waited for any more is killed when it is dropped.
        let problem = judged.unwrap_or_else(|_| Some(format!("it did not end within {} s", COMMAND_TIME.as_secs())));
        if problem.is_some() {
            return problem;
        }
    }
    None
}

async fn judge(command: &str, text: &str) -> Option<String> {
    let mut child = Command::new("sh");
    child.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = match child.spawn() {
        Ok(child) => child,
        Err(error) => return Some(format!("it could not be run: {error}")),
    };
    let stdin = child.stdin.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command need not read all of it.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    };
    let ((), said) = tokio::join!(write, first_words(&mut child));
    match child.wait().await {
        Ok(status) if status.success() => None,
        Ok(status) if said.is_empty() => Some(status.to_string()),
        Ok(_) => Some(said),
        Err(error) => Some(format!("it was lost: {error}")),
    }
}

/// The first line that a command says on stderr; all of it is read, so that the command never waits.
async fn first_words(child: &mut Child) -> String {
    const KEPT: usize = 4096;
    let Some(mut stderr) = child.stderr.take() else { return String::new() };
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        let room = KEPT - kept.len();
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
    String::from_utf8_lossy(&kept).trim().lines().next().unwrap_or_default().to_owned()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_REASON) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_core::time::Tick;

    fn row(tokens: Option<u32>) -> Row {
        let mut row = Row::new(0, "t", Tick::ZERO, 4, 3);
        (row.output_tokens, row.output_tokens_from) = (tokens, Some(CountSource::Usage));
        row
    }

    async fn problem(rules: &[&str], texts: &[&str]) -> Option<String> {
        let list: Vec<Validator> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let texts = (0..).zip(texts).map(|(i, text)| (i, (*text).to_owned())).collect();
        Validators::new(&list).problem(&row(Some(3)), &texts).await
    }

    #[tokio::test]
    async fn a_pattern_must_match_every_choice() {
        assert_eq!(problem(&["regex:^yes|no$"], &["yes!"]).await, None);
        assert_eq!(problem(&["regex:^yes"], &["yes", "oh yes"]).await.as_deref(), Some("regex:^yes: no match"));
        assert_eq!(problem(&["regex:a"], &[]).await.as_deref(), Some("regex:a: no match"));
    }

    #[tokio::test]
    async fn a_schema_says_what_is_wrong_and_where() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("schema.json");
        let schema =
            r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}},"required":["a"]}"#;
        std::fs::write(&file, schema).unwrap();
        let rule = format!("json-schema:{}", file.display());
        assert_eq!(problem(&[&rule], &[r#"{"a":[1,2]}"#]).await, None);
        let wrong = problem(&[&rule], &[r#"{"a":[1,"x"]}"#]).await.unwrap();
        assert!(wrong.contains("/a/1") && wrong.contains("integer"), "{wrong}");
        assert!(problem(&[&rule], &["{}"]).await.unwrap().contains("required"));
        assert!(problem(&[&rule], &["Sure! {}"]).await.unwrap().contains("not JSON"));
    }

    #[tokio::test]
    async fn a_command_gets_the_text_and_says_why_on_stderr() {
        assert_eq!(problem(&["command:grep -q 'right'"], &["all right"]).await, None);
        let wrong = problem(&["command:grep -q right || { echo 'not right' >&2; exit 7; }"], &["wrong"]).await.unwrap();
        assert!(wrong.ends_with(": not right"), "{wrong}");
        assert!(problem(&["command:exit 7"], &["x"]).await.unwrap().contains('7'));
        let long = "x".repeat(1 << 20);
        assert_eq!(problem(&["command:exit 0"], &[&long]).await, None, "it need not read its input");
        assert_eq!(problem(&[r#"command:test "$(wc -c)" -eq 1048576"#], &[&long]).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_does_not_end_is_given_up() {
        let wrong = problem(&["command:exec sleep 3600"], &["x"]).await.unwrap();
        assert!(wrong.contains("within 10 s"), "{wrong}");
    }

    #[tokio::test]
    async fn the_first_validator_that_fails_is_named_and_all_must_hold() {
        assert_eq!(problem(&["regex:a", "length:exact", "command:grep -q b"], &["ab"]).await, None);
        assert!(problem(&["regex:a", "command:grep -q c"], &["ab"]).await.unwrap().starts_with("command:"));
    }

    #[test]
    fn an_exact_length_needs_the_servers_own_count() {
        assert_eq!(length_problem(&row(Some(3))), None);
        assert_eq!(length_problem(&row(Some(4))).as_deref(), Some("4 tokens where 3 were planned"));
        assert!(length_problem(&row(None)).unwrap().contains("did not say"));
        let counted = Row { output_tokens_from: Some(CountSource::Events), ..row(Some(3)) };
        assert!(length_problem(&counted).unwrap().contains("did not say"));
    }

    #[test]
    fn what_is_no_validator_is_refused_with_the_reason() {
        let refuse = |text: &str| text.parse::<Validator>().unwrap_err().to_string();
        for text in ["", "regex", "regex:", "length:about", "command: ", "xml:a"] {
            assert!(refuse(text).contains("write regex:"), "{text}");
        }
        assert!(refuse("regex:(").contains("unclosed"));
        assert!(refuse("json-schema:/no/such/file").contains("/no/such/file"));
    }
}
