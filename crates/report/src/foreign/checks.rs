//! The five checks of an export.

use super::figures::ExportFigures;
use super::sends::{CRITICAL, EVEN};
use super::{Export, Process};
use crate::check::evaluate::evaluate;
use crate::check::evidence::{Gathered, Mark};
use crate::check::release::{Lack, repeats, spread};
use crate::check::{Check, CheckError, Finding, MAX_REPEATS, Rule};
use crate::fmt;
use elasticserve_core::slo::Slo;

/// Exports declare no tolerance for their sends' lag: from the first it is remarked on, past the second the run is not
/// valid. In ms.
const LAG: [f64; 2] = [10.0, 50.0];
/// The share of the time for which a cap may be reached before the load counts as shaped by it.
const AT_CAP: f64 = 0.05;
/// How far a figure of the tool's may be from the recomputed one.
const SAME: f64 = 0.01;

impl Check {
    /// Checks exports of other tools as repeats of each other. Latencies count from the planned time where an export
    /// has it, else from the send; the limits of a good answer are the rule's.
    ///
    /// # Errors
    /// [`CheckError`] if there is nothing to check, or the rule names a tenant: exports have none.
    pub fn of_exports(title: &str, exports: &[Export], rule: &Rule) -> Result<Self, CheckError> {
        if exports.is_empty() {
            return Err(CheckError::NoRuns);
        }
        if exports.len() > MAX_REPEATS as usize {
            return Err(CheckError::TooMany(exports.len()));
        }
        let named =
            rule.targets.iter().find_map(|t| t.tenant.as_ref()).or_else(|| rule.tenant_min_requests.keys().next());
        if let Some(name) = named {
            return Err(CheckError::NoTenant {
                name: name.clone(),
                known: "none, as exports do not tell tenants apart".into(),
            });
        }
        let figures: Vec<ExportFigures> = exports.iter().map(ExportFigures::of).collect();
        let cohorts: Vec<_> = exports.iter().map(|e| e.cohort(&rule.slo)).collect();
        let findings: Vec<Finding> =
            rule.targets_or_default().iter().map(|t| evaluate(t, rule.confidence, &cohorts)).collect();
        let labels = fmt::labels(&exports.iter().map(|e| e.name.as_str()).collect::<Vec<_>>());
        let each = |of: &dyn Fn(&Export, &ExportFigures) -> Gathered| {
            Gathered::merged(&labels, exports.iter().zip(&figures).map(|(e, f)| of(e, f)).collect())
        };
        let (release, lacks) = release(&figures, rule, &findings);
        let mut offered = Gathered::default();
        let differences = differences(exports);
        if !differences.is_empty() {
            offered.fail(format!(
                "These exports are not repeats of each other: they differ in {}.",
                differences.join(", ")
            ));
        }
        offered.extend(each(&|e, f| load(e, f, rule)));
        let checks = [
            offered.into_check(0),
            each(&generator).into_check(1),
            each(&results).into_check(2),
            each(&streaming).into_check(3),
            release.into_check(4),
        ];
        let load = told(&exports[0], &figures[0]);
        Ok(Self { exports: figures, ..Self::judged(title, load, rule, findings, checks, lacks) })
    }
}

/// In what exports differ that are to be repeats of each other.
fn differences(exports: &[Export]) -> Vec<&'static str> {
    type Same = fn(&Export, &Export) -> bool;
    let must: [(&str, Same); 3] = [
        ("tool", |a, b| a.tool == b.tool && a.version == b.version),
        ("model", |a, b| a.model == b.model),
        ("declared load", |a, b| a.declared == b.declared),
    ];
    let Some(first) = exports.first() else { return Vec::new() };
    must.iter().filter(|(_, same)| exports.iter().any(|e| !same(first, e))).map(|(what, _)| *what).collect()
}

fn told(export: &Export, figures: &ExportFigures) -> String {
    let version = export.version.as_deref().map_or_else(String::new, |v| format!(" {}", fmt::one_line(v, 20)));
    let model = export.model.as_deref().map_or_else(String::new, |m| format!("; model {}", fmt::one_line(m, 60)));
    format!("{}{version}: {}{model}.", export.tool.name(), figures.declared)
}

/// Whether the load that was declared is the one that was offered.
fn load(export: &Export, f: &ExportFigures, rule: &Rule) -> Gathered {
    let mut found = Gathered::default();
    found.pass(told(export, f));
    arrivals(f, &mut found);
    spacing(export, f, &mut found);
    shaped(export, f, &mut found);
    if rule.slo == Slo::default() {
        found.warn("No limits are set (slo in the rule file, or --goodput): every answer counts as good.");
    }
    found.warn(
        "Whether an earlier run had warmed the prefix cache, and whether attempts were repeated, is not in the export.",
    );
    found
}

fn arrivals(f: &ExportFigures, found: &mut Gathered) {
    let sent = fmt::counted(f.sent, "request");
    match f.arrivals {
        Some(n) if f.missing > 0 => found.fail(format!(
            "About {} arrivals were declared and {sent} are in the export: {} were never sent and are in none of the tool's figures. Here they stay in the denominators.",
            fmt::trimmed(n, 0),
            fmt::count(u64::from(f.missing))
        )),
        Some(n) => found.pass(format!("About {} arrivals were declared and {sent} are in the export.", fmt::trimmed(n, 0))),
        None => found.warn(format!("How many arrivals were declared is not in the export; {sent} are.")),
    }
}

/// Whether the sends came at the declared rate and in the declared way.
fn spacing(export: &Export, f: &ExportFigures, found: &mut Gathered) {
    let Some(declared) = export.declared.rate else {
        match export.declared.cap {
            Some(cap) => found.warn(format!(
                "A closed load of {cap} in flight: no arrival rate is claimed, and the load slows down with the server."
            )),
            None => found.fail("What load was asked for is not in the export."),
        }
        return;
    };
    let Some(rate) = f.sends.rate else {
        found.fail("One request shows no rate.");
        return;
    };
    let n = f.sends.n as f64;
    // Evenly spaced sends have the rate exactly; that of random ones varies by 1/√n, three of which chance may take.
    let room = if export.declared.process == Some(Process::Constant) { 0.05 } else { (3.0 / n.sqrt()).max(0.05) };
    let said = format!(
        "{}/s were declared; sends came at {}/s over {} s.",
        fmt::trimmed(declared, 2),
        fmt::trimmed(rate, 2),
        fmt::trimmed(f.sends.span_s, 1)
    );
    if (rate / declared - 1.0).abs() > room {
        found.fail(said);
        return;
    }
    found.pass(said);
    distribution(export.declared.process, f, found);
}

fn distribution(process: Option<Process>, f: &ExportFigures, found: &mut Gathered) {
    match (process, f.sends.exponential_ks, f.sends.gap_cv) {
        (Some(Process::Poisson), Some(ks), _) => {
            let mark = if ks > CRITICAL { Mark::Fail } else { Mark::Pass };
            let is = if ks > CRITICAL { "are not" } else { "may well be" };
            found.add(mark, format!("The gaps between sends {is} those of independent arrivals (Kolmogorov-Smirnov, modified by Stephens: {ks:.2} where {CRITICAL} is the 1% level)."));
        }
        (Some(Process::Constant), _, Some(cv)) => {
            let mark = if cv > EVEN { Mark::Fail } else { Mark::Pass };
            found.add(mark, format!("The gaps between sends vary by {} of their mean; {} is allowed to evenly spaced ones.", fmt::percent(Some(cv)), fmt::percent(Some(EVEN))));
        }
        (Some(Process::Gamma(b)), _, Some(cv)) => found.warn(format!(
            "The gaps between sends have a coefficient of variation of {cv:.2}; burstiness {} has {:.2}. Their distribution is not tested.",
            fmt::trimmed(b, 2),
            1.0 / b.sqrt()
        )),
        (None, ..) => found.warn("How arrivals were to be spaced is not in the export, so it cannot be held against the sends."),
        _ => found.warn(format!("{} are too few to test how they are spaced.", fmt::counted(f.sent, "send"))),
    }
}

/// Whether the server's pace shaped the load.
fn shaped(export: &Export, f: &ExportFigures, found: &mut Gathered) {
    let s = &f.sends;
    if let Some((cap, share)) = export.declared.cap.zip(s.at_cap) {
        let said = format!("The cap of {cap} in flight was reached for {} of the time", fmt::percent(Some(share)));
        // A closed load is at its cap by intent.
        if share > AT_CAP && export.declared.rate.is_some() {
            found.fail(format!("{said}: arrivals of that time were put off or left out."));
        } else {
            found.pass(format!("{said}."));
        }
    }
    let said = format!(
        "{} of the sends come within 10 ms after another request's end; by chance it would be {}",
        fmt::percent(Some(s.following)),
        fmt::percent(Some(s.following_by_chance))
    );
    if s.follow_ends() && export.declared.rate.is_some() {
        found.fail(format!("{said}: the sends wait for the server (coordinated omission)."));
    } else {
        found.pass(format!("{said}."));
    }
}

fn generator(export: &Export, f: &ExportFigures) -> Gathered {
    let mut found = Gathered::default();
    let known = if f.send_lag.n > 0 {
        f.send_lag.p99.or(f.send_lag.max).zip(f.send_lag.max)
    } else {
        export.lag.map(|l| (l[0], l[1]))
    };
    match known {
        None => found.warn("Planned times are not kept, so it cannot be seen how late the sends were."),
        Some((p99, max)) => {
            let said = format!("Sends were {} late at p99, {} at most.", fmt::duration(p99), fmt::duration(max));
            let [remarked, refused] = LAG;
            // A cap that puts requests off is the load's finding.
            if p99 > refused && export.declared.cap.is_none() {
                found.fail(format!("{said} More than {refused} ms is taken as the generator's own delay."));
            } else if p99 > remarked {
                found.warn(said);
            } else {
                found.pass(said);
            }
        }
    }
    found.warn("CPU, timers and sockets of the generator are not in the export.");
    found
}

fn results(export: &Export, f: &ExportFigures) -> Gathered {
    let mut found = Gathered::default();
    let of = |n: u32| fmt::part(n, f.sent);
    found.pass(format!(
        "Of {} sent: {} completed, {} rejected, {} failed, {} cut off by the tool.",
        fmt::count(u64::from(f.sent)),
        of(f.completed),
        of(f.rejected),
        of(f.failed),
        of(f.cut)
    ));
    if f.ttft.n > 0 {
        found.pass("Latencies count from the planned time, which this tool's own do not.");
    } else {
        found.warn("Latencies count from the send: what waited before it is in none of them.");
    }
    for reported in &export.reported {
        if let (name, Some(ours)) = f.counterpart(reported.figure) {
            let same = (reported.value - ours).abs() <= SAME * ours.abs();
            let said = format!(
                "{name} from the send: {} by the tool, {} recomputed.",
                fmt::duration(reported.value),
                fmt::duration(ours)
            );
            found.add(if same { Mark::Pass } else { Mark::Warn }, said);
        }
    }
    if f.completed < 100 {
        found.warn(format!("{} support no p99 (it takes 100).", fmt::counted(f.completed, "answer")));
    }
    for remark in &export.remarks {
        found.warn(fmt::one_line(remark, 400));
    }
    found
}

fn streaming(export: &Export, f: &ExportFigures) -> Gathered {
    let mut found = Gathered::default();
    for moment in export.schema {
        let mark = if moment.has { Mark::Pass } else { Mark::Warn };
        let said = if moment.has { "in the export" } else { "not in the export" };
        found.add(mark, format!("{}: {said}; {}.", capital(moment.what), moment.how));
    }
    if f.completed > 0 && f.ttft_from_send.n == 0 {
        found.fail("No answer has a time of its first content: was it streamed?");
    }
    if let Some(max) = f.longest_gap.max {
        found.pass(format!(
            "Longest silence within an answer: {} at most (n={}).",
            fmt::duration(max),
            f.longest_gap.n
        ));
    }
    found
}

fn capital(text: &str) -> String {
    crate::check::own::capital(text)
}

fn release(figures: &[ExportFigures], rule: &Rule, findings: &[Finding]) -> (Gathered, Vec<Lack>) {
    let (mut found, mut lacks) = (Gathered::default(), Vec::new());
    repeats(figures.len() as u32, rule, &mut found, &mut lacks);
    for finding in findings.iter().filter(|_| figures.len() > 1) {
        spread(finding, &mut found);
    }
    let sent: u32 = figures.iter().map(|f| f.sent).sum();
    if sent < rule.min_requests {
        found.fail(format!(
            "{} where the rule asks for {}.",
            fmt::counted(sent, "request"),
            fmt::count(u64::from(rule.min_requests))
        ));
        lacks.push(Lack::More(fmt::counted(rule.min_requests - sent, "more request")));
    }
    let cut: u32 = figures.iter().map(|f| f.cut).sum();
    if cut > 0 {
        found.warn(format!("{} were cut off at the end: there was no drain.", fmt::counted(cut, "request")));
    }
    found.warn("No baseline: exports are not compared with each other.");
    (found, lacks)
}
