//! Reading what other load generators wrote.
//!
//! ```text
//! export ─ its schema ─> Export: requests with the times that there are ─┬─ recomputed figures
//!                                                                        └─ five checks, verdict
//! ```
//!
//! An export tells what was sent. Whether that is what was to be offered is told by few of them, so each says which
//! moments and states its schema has, and a verdict is given only where the offered load can be shown.

mod aiperf;
mod checks;
mod figures;
mod guidellm;
mod inference_perf;
mod sends;
mod vllm;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use figures::ExportFigures;

/// The largest file of an export that is read, in bytes.
pub const MAX_EXPORT: u64 = 1 << 30;

/// The tool that wrote an export.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// `vllm bench serve --save-result --save-detailed`.
    VllmBench,
    /// AIPerf: `profile_export.jsonl`, with `profile_export_aiperf.json` beside it.
    Aiperf,
    /// GuideLLM's JSON output.
    Guidellm,
    /// inference-perf: `per_request_lifecycle_metrics.json`, with `stage_0_lifecycle_metrics.json` beside it.
    InferencePerf,
}

impl Tool {
    /// The tool's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::VllmBench => "vllm bench serve",
            Self::Aiperf => "AIPerf",
            Self::Guidellm => "GuideLLM",
            Self::InferencePerf => "inference-perf",
        }
    }
}

/// What another tool wrote about a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Export {
    /// Who wrote it.
    pub tool: Tool,
    /// The tool's version, where the export has it.
    pub version: Option<String>,
    /// What it is called: the file's or folder's name.
    pub name: String,
    /// The model asked for.
    pub model: Option<String>,
    pub(crate) declared: Declared,
    /// What was sent, in the order of the sends.
    pub(crate) sent: Vec<Sent>,
    /// What the schema has and what it lacks.
    pub(crate) schema: &'static [Moment],
    /// How late its sends were, p99 and most in ms, where the tool keeps no planned times but says that.
    pub(crate) lag: Option<[f64; 2]>,
    /// What is known of how this tool measures, and of what this export shows of it.
    pub(crate) remarks: Vec<String>,
    /// The tool's own figures, to hold the recomputed ones against.
    pub(crate) reported: Vec<Reported>,
}

/// The load that the tool was told to make.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Declared {
    /// Requests per second.
    pub(crate) rate: Option<f64>,
    pub(crate) process: Option<Process>,
    /// Arrivals, where a number was asked for.
    pub(crate) count: Option<u64>,
    /// For how long, in seconds, where a time was asked for.
    pub(crate) seconds: Option<f64>,
    /// The most requests in flight.
    pub(crate) cap: Option<u64>,
}

/// How arrivals were to be spaced.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Process {
    Constant,
    Poisson,
    /// Gaps with a coefficient of variation other than 1.
    Gamma(f64),
}

/// A request that was sent. Times are in seconds on the export's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sent {
    /// When it was to be sent, where the tool keeps that.
    pub(crate) planned: Option<f64>,
    pub(crate) at: f64,
    /// From the send to the first content, in ms.
    pub(crate) ttft: Option<f64>,
    /// From the send to the end, in ms; of an answer that failed only where the tool has it.
    pub(crate) e2e: Option<f64>,
    /// Per output token after the first, in ms.
    pub(crate) tpot: Option<f64>,
    pub(crate) longest_gap: Option<f64>,
    pub(crate) output_tokens: Option<u32>,
    pub(crate) state: State,
}

/// How a request ended, as far as the export tells.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Completed,
    /// 429 or 503.
    Rejected,
    Failed,
    /// Cut off by the tool when its time was over.
    Cut,
}

/// A moment, a state or a quantity, whether a schema has it, and how.
pub(crate) struct Moment {
    pub(crate) what: &'static str,
    pub(crate) has: bool,
    pub(crate) how: &'static str,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.what == other.what && self.has == other.has
    }
}

impl std::fmt::Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.has)
    }
}

pub(crate) const fn has(what: &'static str, how: &'static str) -> Moment {
    Moment { what, has: true, how }
}

pub(crate) const fn lacks(what: &'static str, how: &'static str) -> Moment {
    Moment { what, has: false, how }
}

/// A figure that the tool reported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reported {
    pub(crate) figure: Figure,
    /// In ms.
    pub(crate) value: f64,
}

/// Figures of the requests that both sides know.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    TtftP50,
    TtftP99,
    E2eP50,
    E2eP99,
    TpotP50,
}

/// Why an export cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not an export that is known, or not what it should be.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong and what would be right.
        problem: String,
    },
}

const AIPERF_ROWS: &str = "profile_export.jsonl";
const INFERENCE_PERF_ROWS: &str = "per_request_lifecycle_metrics.json";
const KNOWN: &str = "known are the JSON of `vllm bench serve --save-result --save-detailed`, AIPerf's profile_export.jsonl, \
                     GuideLLM's JSON, and inference-perf's per_request_lifecycle_metrics.json";

/// Whether a path claims to be an export: a file, or a folder with a file of a name that other tools give.
#[must_use]
pub fn is_export(path: &Path) -> bool {
    path.is_file() || [AIPERF_ROWS, INFERENCE_PERF_ROWS].iter().any(|name| path.join(name).is_file())
}

/// Reads an export, whichever tool wrote it.
///
/// # Errors
/// [`ExportError`] if it cannot be read, is of no known tool, or lacks the requests one by one.
pub fn read_export(path: &Path) -> Result<Export, ExportError> {
    let rows = |name: &str| Some(path.join(name)).filter(|p| p.is_file());
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let file = rows(AIPERF_ROWS).or_else(|| rows(INFERENCE_PERF_ROWS)).unwrap_or_else(|| path.to_owned());
    let text = read(&file)?;
    let wrong = |problem: String| ExportError::Content { path: file.clone(), problem };
    let beside = |name: &str| match read(&file.with_file_name(name)) {
        Ok(text) => Ok(Some(text)),
        Err(ExportError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let mut export = match kind(&text).ok_or_else(|| wrong(format!("this is no export that is known: {KNOWN}")))? {
        Tool::VllmBench => vllm::read(&text).map_err(wrong)?,
        Tool::Guidellm => guidellm::read(&text).map_err(wrong)?,
        Tool::Aiperf => aiperf::read(&text, beside("profile_export_aiperf.json")?.as_deref()).map_err(wrong)?,
        Tool::InferencePerf => {
            inference_perf::read(&text, beside("stage_0_lifecycle_metrics.json")?.as_deref()).map_err(wrong)?
        }
    };
    let finite = |s: &Sent| s.at.is_finite() && s.planned.is_none_or(f64::is_finite);
    if export.sent.is_empty() || !export.sent.iter().all(finite) {
        return Err(wrong("it holds no requests with a time of sending".to_owned()));
    }
    export.sent.sort_by(|a, b| a.at.total_cmp(&b.at));
    export.name = name;
    Ok(export)
}

fn read(path: &Path) -> Result<String, ExportError> {
    let failed = |source| ExportError::Io { path: path.to_owned(), source };
    let mut text = String::new();
    File::open(path).map_err(failed)?.take(MAX_EXPORT + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_EXPORT {
        let problem = format!("longer than {MAX_EXPORT} bytes");
        return Err(ExportError::Content { path: path.to_owned(), problem });
    }
    Ok(text)
}

/// Which tool wrote a text, by names that only it uses. Lines of JSON are looked at by the first.
fn kind(text: &str) -> Option<Tool> {
    let whole: Result<serde_json::Value, _> = serde_json::from_str(text);
    let first = whole.or_else(|_| serde_json::from_str(text.lines().next().unwrap_or_default())).ok()?;
    let is = |path: &str| first.pointer(path).is_some();
    if is("/metadata/guidellm_version") && is("/benchmarks") {
        Some(Tool::Guidellm)
    } else if is("/metadata/request_start_ns") {
        Some(Tool::Aiperf)
    } else if is("/num_prompts") && is("/request_throughput") {
        Some(Tool::VllmBench)
    } else if is("/0/start_time") && is("/0/info") {
        Some(Tool::InferencePerf)
    } else {
        None
    }
}

/// The mean time per token after the first, in ms: from the first content to the last, divided by the gaps.
fn tpot(first_to_last_ms: Option<f64>, tokens: Option<u32>) -> Option<f64> {
    let gaps = tokens?.checked_sub(1).filter(|n| *n > 0)?;
    Some(first_to_last_ms? / f64::from(gaps))
}

fn largest(gaps_ms: impl IntoIterator<Item = f64>) -> Option<f64> {
    gaps_ms.into_iter().reduce(f64::max)
}

/// Whether an error's text tells of a status by which servers turn requests away.
fn turned_away(error: &str) -> bool {
    ["429", "503", "Too Many Requests", "Service Unavailable"].iter().any(|told| error.contains(told))
}
