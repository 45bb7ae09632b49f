//! Whether runs may be believed, and what they say about a release: five checks and a verdict.
//!
//! ```text
//! runs ─┬─ five checks, each with evidence ─────────────────┐
//!       └─ targets ─ interval of each ─ met, open, missed ──┴─> accept | retest | resize
//! ```

pub(crate) mod cohort;
mod document;
pub(crate) mod evaluate;
pub(crate) mod evidence;
pub(crate) mod own;
pub(crate) mod release;
mod rule;
mod series;
mod target;
pub(crate) mod text;
pub(crate) mod verdict;

use serde::Serialize;

use crate::account::Account;
use crate::fmt;
use crate::foreign::ExportFigures;
use crate::summary::Summary;
use crate::table;
use cohort::Cohort;
use evaluate::evaluate;
use evidence::Gathered;

pub use document::{check_doc, exports_doc};
pub use evaluate::{Finding, MAX_MORE, Outcome};
pub use evidence::{Checked, Evidence, Mark};
pub use rule::{RawRule, Rule, RuleError};
pub use target::{Latency, Metric, Quantile, Share, Target, TargetError};
pub use text::check_text;
pub use verdict::Verdict;

/// The most runs that are checked as repeats of each other.
pub const MAX_REPEATS: u32 = 16;

/// What was found about runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The format's version, 1.
    pub format: u32,
    /// What was checked.
    pub title: String,
    /// What was offered, in a line.
    pub load: String,
    /// What to do.
    pub verdict: Verdict,
    /// Whether the run is a finding about the generator and not about the server.
    pub invalid: bool,
    /// Why, in a sentence or two.
    pub sentence: String,
    /// What would decide it.
    pub needed: Vec<String>,
    /// The two-sided confidence of the intervals.
    pub confidence: f64,
    /// Whether no target was named, and the default was taken.
    pub default_target: bool,
    /// What was found of each target.
    pub findings: Vec<Finding>,
    /// The five checks.
    pub checks: [Checked; 5],
    /// The figures of each run.
    pub runs: Vec<Summary>,
    /// The figures of each export of another tool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<ExportFigures>,
    /// The place of each among the runs that were given.
    #[serde(skip)]
    pub(crate) places: Vec<usize>,
}

/// Why nothing can be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// There is nothing to check.
    #[error("there is no run to check beside the baseline")]
    NoRuns,
    /// More than a page can hold.
    #[error("{0} runs where at most {MAX_REPEATS} can be checked as repeats")]
    TooMany(usize),
    /// A target or a rule names a tenant that the plan does not have.
    #[error("the rule names tenant '{name}', which the plan does not have: it has {known}")]
    NoTenant {
        /// The name.
        name: String,
        /// Those that it has.
        known: String,
    },
    /// The rule names a baseline that is not among the runs.
    #[error("the rule's baseline '{name}' is none of the runs: they are {known}")]
    NoBaseline {
        /// The name.
        name: String,
        /// The runs' names.
        known: String,
    },
}

/// What is known beside the runs themselves.
#[derive(Copy, Clone, Debug, Default)]
pub struct Beside<'a> {
    /// A run to fall back to, to compare with.
    pub baseline: Option<&'a Account>,
    /// How this program's reader of streams did on its corpus.
    pub reader: Option<Reader>,
}

/// How a reader of streams did on a corpus.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The program's version.
    pub version: &'static str,
    /// Cases that it read rightly.
    pub right: usize,
    /// Cases.
    pub all: usize,
}

impl Check {
    /// The exit code that says the verdict: 0 accept, 3 retest, 4 resize, 5 not valid.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self.verdict {
            _ if self.invalid => 5,
            Verdict::Accept => 0,
            Verdict::Retest => 3,
            Verdict::Resize => 4,
        }
    }

    /// Checks runs as repeats of each other. A run whose name is that of the rule's baseline is compared with and is no
    /// repeat; [`Beside::baseline`] is one that was given apart.
    ///
    /// # Errors
    /// [`CheckError`] if a name of the rule is in none of the runs, or there is nothing to check.
    pub fn of(title: &str, runs: &[&Account], beside: &Beside, rule: &Rule) -> Result<Self, CheckError> {
        let (places, baseline) = split(runs, beside.baseline, rule)?;
        let repeats: Vec<&Account> = places.iter().map(|i| runs[*i]).collect();
        known_tenants(&repeats, rule)?;
        let summaries: Vec<Summary> = repeats.iter().map(|r| Summary::of_account(r)).collect();
        let differences = release::differences(&repeats);
        let findings = findings(&repeats, &summaries, rule, !differences.is_empty());
        let labels = table::labels(&summaries);
        let each = |of: &dyn Fn(&Account, &Summary) -> Gathered| {
            Gathered::merged(&labels, repeats.iter().zip(&summaries).map(|(r, s)| of(r, s)).collect())
        };
        let mut load = Gathered::default();
        if !differences.is_empty() {
            load.fail(format!("These runs are not repeats of each other: they differ in {}.", differences.join(", ")));
        }
        for finding in findings.iter().filter(|f| f.outcome == Outcome::Missed) {
            if let Some(said) = missed_by_cap(finding, &repeats, rule) {
                load.fail(said);
            }
        }
        load.extend(each(&own::load));
        let (mut release, lacks) = release::release(&repeats, &summaries, rule, &findings);
        release.extend(release::baseline(baseline.map(Summary::of_account).as_ref(), &summaries));
        let checks = [
            load.into_check(0),
            each(&own::generator).into_check(1),
            each(&|_, s| own::results(s)).into_check(2),
            each(&|r, s| own::streaming(r, s, beside.reader)).into_check(3),
            release.into_check(4),
        ];
        let load = repeats.first().map_or_else(String::new, |r| crate::run_doc::load(&r.manifest));
        Ok(Self { runs: summaries, places, ..Self::judged(title, load, rule, findings, checks, lacks) })
    }

    /// What findings and checks come to, without figures. `load` is what was offered, in a line; `lacks` are what the
    /// release still needs.
    pub(crate) fn judged(
        title: &str,
        load: String,
        rule: &Rule,
        findings: Vec<Finding>,
        checks: [Checked; 5],
        lacks: Vec<release::Lack>,
    ) -> Self {
        let judged = verdict::judge(&findings, &checks, lacks);
        Self {
            format: 1,
            title: title.to_owned(),
            load,
            verdict: judged.verdict,
            invalid: judged.invalid,
            sentence: judged.sentence,
            needed: judged.needed,
            confidence: rule.confidence,
            default_target: rule.targets.is_empty(),
            findings,
            checks,
            runs: Vec::new(),
            exports: Vec::new(),
            places: Vec::new(),
        }
    }
}

/// The places of the repeats, and the run to compare with.
fn split<'a>(
    runs: &[&'a Account],
    apart: Option<&'a Account>,
    rule: &Rule,
) -> Result<(Vec<usize>, Option<&'a Account>), CheckError> {
    let is_baseline = |r: &&Account| apart.is_none() && rule.baseline.as_ref().is_some_and(|b| *b == r.manifest.name);
    let named = runs.iter().copied().find(|r| is_baseline(r));
    let repeats: Vec<usize> = (0..runs.len()).filter(|i| !is_baseline(&runs[*i])).collect();
    let found = apart.or(named);
    if let (Some(name), None) = (&rule.baseline, found) {
        let known: Vec<String> = runs.iter().map(|r| fmt::one_line(&r.manifest.name, 40)).collect();
        return Err(CheckError::NoBaseline { name: name.clone(), known: known.join(", ") });
    }
    match repeats.len() {
        0 => Err(CheckError::NoRuns),
        n if n > MAX_REPEATS as usize => Err(CheckError::TooMany(n)),
        _ => Ok((repeats, found)),
    }
}

fn known_tenants(runs: &[&Account], rule: &Rule) -> Result<(), CheckError> {
    let known: Vec<&str> = runs.iter().flat_map(|r| &r.manifest.plan.tenants).map(|t| t.name.as_str()).collect();
    let named = rule.targets.iter().filter_map(|t| t.tenant.as_ref()).chain(rule.tenant_min_requests.keys());
    match named.into_iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let mut known: Vec<String> = known.iter().map(|n| fmt::one_line(n, 40)).collect();
            known.dedup();
            Err(CheckError::NoTenant { name: name.clone(), known: known.join(", ") })
        }
    }
}

/// That a target is missed only by what the client's own cap kept from being sent, if so: it is no finding about the
/// server.
fn missed_by_cap(missed: &Finding, runs: &[&Account], rule: &Rule) -> Option<String> {
    let target = &missed.of;
    let sent: Vec<Cohort> = runs.iter().map(|r| Cohort::of(r, target.tenant.as_deref()).uncapped()).collect();
    let without = evaluate(target, rule.confidence, &sent);
    let unsent = missed.n.saturating_sub(without.n);
    (unsent > 0 && without.outcome != Outcome::Missed).then(|| {
        format!(
            "{} is missed only by {} arrivals that found none of the client's own slots: raise --max-concurrency.",
            missed.target,
            fmt::count(unsent)
        )
    })
}

/// What the repeats say of each target. Runs that are not whole, or are no repeats of each other, say nothing.
fn findings(runs: &[&Account], summaries: &[Summary], rule: &Rule, mixed: bool) -> Vec<Finding> {
    let usable = !mixed && summaries.iter().all(|s| s.complete);
    let cohorts = |tenant: Option<&str>| -> Vec<Cohort> {
        runs.iter().map(|r| if usable { Cohort::of(r, tenant) } else { Cohort::default() }).collect()
    };
    let found = |target: &Target| {
        let mut found = evaluate(target, rule.confidence, &cohorts(target.tenant.as_deref()));
        if mixed {
            found.shown = "not pooled: the runs differ".to_owned();
        }
        found
    };
    rule.targets_or_default().iter().map(found).collect()
}

#[cfg(test)]
mod tests;
