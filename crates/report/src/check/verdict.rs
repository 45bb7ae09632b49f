//! From findings and checks to a verdict.

use serde::Serialize;

use super::evaluate::{Finding, Outcome};
use super::evidence::{Checked, Mark};
use super::release::Lack;
use crate::fmt;

/// What to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every target is met, and nothing stands against believing it.
    Accept,
    /// It cannot be told yet.
    Retest,
    /// A target is missed.
    Resize,
}

impl Verdict {
    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Retest => "retest",
            Self::Resize => "resize",
        }
    }
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// Whether the generator check failed: the run is a finding about the generator, not about the server.
    pub(crate) invalid: bool,
    /// Why, in a sentence or two.
    pub(crate) sentence: String,
    /// What would decide it.
    pub(crate) needed: Vec<String>,
}

/// The places of checks.
const GENERATOR: usize = 1;
const RELEASE: usize = 4;

/// The verdict: `retest` if the generator was at fault, else `resize` if a target is missed by valid figures, else
/// `retest` if anything is open or stands against it, else `accept`.
pub(crate) fn judge(findings: &[Finding], checks: &[Checked; 5], lacks: Vec<Lack>) -> Judgement {
    let failed = |c: &Checked| c.mark == Mark::Fail;
    let first_failure = |c: &Checked| c.evidence.iter().find(|e| e.mark == Mark::Fail).map(|e| e.said.clone());
    let of = |outcome| findings.iter().filter(move |f| f.outcome == outcome).collect::<Vec<_>>();
    let (missed, open) = (of(Outcome::Missed), of(Outcome::Open));
    let blocked = checks.iter().find(|c| failed(c)).map(|c| (c.name, first_failure(c).unwrap_or_default()));
    if failed(&checks[GENERATOR]) {
        let why = first_failure(&checks[GENERATOR]).unwrap_or_default();
        return Judgement {
            verdict: Verdict::Retest,
            invalid: true,
            sentence: format!("The run is not valid, so it says nothing about the server. {why}"),
            needed: vec!["a run in which the generator keeps its tolerances and accounts for every arrival".to_owned()],
        };
    }
    // The release check asks for more of the same; what has been missed stays missed.
    let unusable = checks[..RELEASE].iter().any(failed)
        || (failed(&checks[RELEASE]) && lacks.iter().any(|l| matches!(l, Lack::Other(_))));
    if let (false, Some(worst)) = (unusable, missed.first()) {
        return Judgement {
            verdict: Verdict::Resize,
            invalid: false,
            sentence: format!(
                "{} is missed{}: it is {} at n={}.",
                worst.target,
                others(missed.len()),
                worst.shown,
                fmt::count(worst.n)
            ),
            needed: vec!["more capacity, less load, or another limit".to_owned()],
        };
    }
    let mut needed: Vec<String> = lacks.into_iter().map(|(Lack::More(what) | Lack::Other(what))| what).collect();
    needed.extend(open.iter().map(|f| decides(f)));
    if let Some((name, why)) = blocked {
        return Judgement {
            verdict: Verdict::Retest,
            invalid: false,
            sentence: format!("The {name} check failed. {why}"),
            needed,
        };
    }
    if let Some(first) = open.first() {
        let sentence = format!(
            "{} cannot be told yet{}: it is {} at n={}.",
            first.target,
            others(open.len()),
            first.shown,
            fmt::count(first.n)
        );
        return Judgement { verdict: Verdict::Retest, invalid: false, sentence, needed };
    }
    let held: Vec<String> =
        findings.iter().map(|f| format!("{}: {} at n={}", f.target, f.shown, fmt::count(f.n))).collect();
    Judgement {
        verdict: Verdict::Accept,
        invalid: false,
        sentence: format!("Every target is met. {}.", held.join("; ")),
        needed,
    }
}

fn others(n: usize) -> String {
    if n > 1 { format!(" (and {} more)", n - 1) } else { String::new() }
}

/// What would decide an open target.
fn decides(f: &Finding) -> String {
    match (f.more, f.n, f.value) {
        (Some(more), ..) => format!("{}: about {} more requests like these", f.target, fmt::count(more)),
        (None, 0, _) => format!("{}: a run in which it is measured", f.target),
        (None, _, None) if f.shown == "not measured" => format!("{}: a run in which it is measured", f.target),
        _ => format!("{}: the figure is too close to the target for any number of requests to tell", f.target),
    }
}
