//! Figures, text and documents from run folders; everything is recomputed from the ledger.
//!
//! ```text
//! manifest.json + ledger.ndjson ─ read_account ─> Account ─ Summary::of_account ─> Summary ─┬─> text, summary.json
//!                                                   └──────────── run_doc ──────────────────┴─> Doc ─> report.html, .md
//! ```
//!
//! Rules that hold in every figure:
//!
//! - Latencies are those of completed answers; every planned arrival stays in the denominator of every share.
//! - A quantile p is given where n · (1 − p) ≥ 1, see [`Distribution`]; n stands beside it.
//! - What was not measured is absent, never 0.
//! - A run that is not whole has counts only.

mod account;
mod blocks;
pub mod chart;
pub mod check;
mod class;
pub mod doc;
pub mod effects;
mod fairness;
#[cfg(test)]
mod fixture;
mod fmt;
pub mod foreign;
mod front;
mod grid;
mod omission;
mod parallel;
mod quantile;
mod read;
mod reconcile;
mod run_doc;
mod summary;
mod sweep;
mod table;
mod text;
mod unit;
mod verdict;
mod vllm;
mod write;

pub use account::{Account, Arrival};
pub use class::{Class, was_admitted};
pub use fairness::jain;
pub use front::{FrontLine, FrontPicture, FrontPoint, PolicyPage, PolicyTable, policies_doc};
pub use grid::grid;
pub use omission::{OmissionCase, OmissionPage, omission_doc};
pub use quantile::{Distribution, quantile};
pub use read::{FORMAT, MAX_LINE, MAX_MANIFEST, ReadError, Run, is_run_folder, read_account, read_run, runs_in};
pub use run_doc::run_doc;
pub use summary::{
    CachedTokens, Ending, Figures, Latencies, Limits, LowestTenant, MAX_DETAIL, MAX_ENDINGS, OutputTokens, Summary,
    TenantSummary,
};
pub use sweep::{MAX_LINES, SweepLine, SweepPage, SweepPoint, sweep_doc};
pub use text::text;
pub use unit::Unit;
pub use verdict::{finding, verdict_sentence};
pub use vllm::{vllm, write_vllm};
pub use write::{
    HTML_FILE, MARKDOWN_FILE, MAX_RUNS, SUMMARY_FILE, WriteError, write_comparison, write_file, write_run,
};
