//! Whether the runs are enough to decide on: repeats, spread, drain and timeouts, a baseline.

use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::Tick;

use super::evaluate::Finding;
use super::evidence::Gathered;
use super::rule::Rule;
use crate::account::{Account, Arrival};
use crate::fmt;
use crate::summary::Summary;
use crate::verdict::verdict_sentence;

/// What is needed before anything can be accepted, whatever the targets say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// More of the same: a target that is missed already stays missed.
    More(String),
    /// Something else.
    Other(String),
}

/// The evidence of the release check, and what is needed before anything can be accepted.
pub(crate) fn release(
    runs: &[&Account],
    summaries: &[Summary],
    rule: &Rule,
    findings: &[Finding],
) -> (Gathered, Vec<Lack>) {
    let (mut found, mut lacks) = (Gathered::default(), Vec::new());
    repeats(runs.len() as u32, rule, &mut found, &mut lacks);
    for finding in findings.iter().filter(|_| runs.len() > 1) {
        spread(finding, &mut found);
    }
    let planned: u32 = summaries.iter().map(|s| s.figures.planned).sum();
    sizes(planned, summaries, rule, &mut found, &mut lacks);
    if summaries.iter().any(|s| s.simulated) && !rule.allow_simulated {
        found.fail("Simulated: it says what a model would do. A release is decided on a measured run.");
        lacks.push(Lack::Other(REAL.to_owned()));
    }
    found.extend(ends(runs));
    (found, lacks)
}

const REAL: &str = "a run against the server itself (or --allow-simulated, if the model is what is judged)";

pub(crate) fn repeats(runs: u32, rule: &Rule, found: &mut Gathered, lacks: &mut Vec<Lack>) {
    if runs < rule.repeats {
        found.fail(format!("{} where the rule asks for {}.", fmt::counted(runs, "run"), rule.repeats));
        lacks.push(Lack::More(format!("{} with other seeds", fmt::counted(rule.repeats - runs, "more run"))));
    } else if runs == 1 {
        found.warn("One run shows no spread between runs: repeat it with other seeds.");
    } else {
        found.pass(format!("{} repeats.", fmt::count(u64::from(runs))));
    }
}

pub(crate) fn spread(finding: &Finding, found: &mut Gathered) {
    let values: Vec<f64> = finding.repeats.iter().flatten().copied().collect();
    let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    if values.is_empty() {
        return;
    }
    let (unit, decimals) = (finding.of.unit(), finding.of.unit().decimals(&values));
    let shown = |v| unit.rounded(v, decimals);
    let counted = if finding.counts_as < finding.n as f64 * 0.99 {
        format!(" Together they count as {} independent requests.", fmt::count(finding.counts_as.floor() as u64))
    } else {
        String::new()
    };
    found.pass(format!("{} of the repeats: {} to {}.{counted}", finding.target, shown(low), shown(high)));
}

fn sizes(planned: u32, summaries: &[Summary], rule: &Rule, found: &mut Gathered, lacks: &mut Vec<Lack>) {
    let mut held = |who: &str, have: u32, least: u32| {
        if have >= least {
            found.pass(format!(
                "{}{who}, at least {} asked for.",
                fmt::counted(have, "arrival"),
                fmt::count(u64::from(least))
            ));
        } else {
            found.fail(format!(
                "{}{who} where the rule asks for {}.",
                fmt::counted(have, "arrival"),
                fmt::count(u64::from(least))
            ));
            lacks.push(Lack::More(format!("{}{who}", fmt::counted(least - have, "more arrival"))));
        }
    };
    if rule.min_requests > 0 {
        held("", planned, rule.min_requests);
    }
    for (name, least) in &rule.tenant_min_requests {
        let of_tenant = summaries.iter().flat_map(|s| &s.tenants).filter(|t| t.name == *name);
        held(&format!(" of {}", fmt::one_line(name, 40)), of_tenant.map(|t| t.figures.planned).sum(), *least);
    }
}

/// What the drain and the timeouts did.
fn ends(runs: &[&Account]) -> Gathered {
    let mut found = Gathered::default();
    let (mut open, mut censored, mut timed_out) = (0, 0, 0);
    for run in runs {
        let window = Tick::ZERO + run.window();
        let count = |which: &dyn Fn(&Arrival) -> bool| run.arrivals().filter(|r| which(r)).count() as u32;
        open += count(&|r| r.end.is_some_and(|end| end > window) && r.state.was_sent());
        censored += count(&|r| r.state == Terminal::Censored);
        timed_out += count(&|r| {
            matches!(
                r.state,
                Terminal::TimeoutConnect | Terminal::TimeoutTtft | Terminal::TimeoutIdle | Terminal::TimeoutTotal
            )
        });
    }
    match (open, censored) {
        (0, _) => found.warn("No request was open when the arrivals ended: the drain was not exercised."),
        (open, 0) => found.pass(format!(
            "Drain exercised: {} open when the arrivals ended, all of them seen to their end.",
            fmt::counted(open, "request")
        )),
        (open, cut) => found.warn(format!(
            "Drain too short: {} open when the arrivals ended, {cut} still open when it was over.",
            fmt::counted(open, "request")
        )),
    }
    if timed_out == 0 {
        found.warn("No request reached a timeout: what happens then was not seen.");
    } else {
        found.pass(format!("Timeouts exercised: {} ended by one.", fmt::counted(timed_out, "request")));
    }
    found
}

/// What the baseline says, or that there is none.
pub(crate) fn baseline(baseline: Option<&Summary>, runs: &[Summary]) -> Gathered {
    let mut found = Gathered::default();
    match baseline {
        None => found.warn("No baseline to fall back to is named (--baseline DIR)."),
        Some(b) => match runs.iter().find(|r| r.plan_hash == b.plan_hash) {
            Some(run) => found.pass(format!("Baseline {}: {}", fmt::one_line(&b.name, 40), verdict_sentence(b, run))),
            None => found.warn(format!(
                "Baseline {}: attainment {} of {}, but it was offered other work (another plan), so it is no pair.",
                fmt::one_line(&b.name, 40),
                fmt::percent(b.figures.attainment),
                fmt::counted(b.figures.planned, "arrival")
            )),
        },
    }
    found
}

/// In what runs differ that are to be repeats of each other.
pub(crate) fn differences(runs: &[&Account]) -> Vec<&'static str> {
    let [first, rest @ ..] = runs else { return Vec::new() };
    type Same = fn(&Account, &Account) -> bool;
    let must: [(&str, Same); 9] = [
        ("being simulated", |a, b| a.manifest.simulated == b.manifest.simulated),
        ("time scale", |a, b| a.manifest.time_scale == b.manifest.time_scale),
        ("target", |a, b| {
            a.manifest.target.url == b.manifest.target.url && a.manifest.target.endpoint == b.manifest.target.endpoint
        }),
        ("model", |a, b| a.manifest.target.model == b.manifest.target.model),
        ("server version", |a, b| a.manifest.target.version == b.manifest.target.version),
        ("streaming", |a, b| a.manifest.target.streaming == b.manifest.target.streaming),
        ("load", |a, b| {
            let (a, b) = (&a.manifest.plan, &b.manifest.plan);
            a.model == b.model && a.process == b.process && a.window == b.window
        }),
        ("tenants or limits", |a, b| a.manifest.plan.tenants == b.manifest.plan.tenants),
        ("salting of prompts", |a, b| a.manifest.prompts_salted == b.manifest.prompts_salted),
    ];
    must.iter().filter(|(_, same)| rest.iter().any(|r| !same(first, r))).map(|(what, _)| *what).collect()
}
