//! What the runs say: figures by arm, effects over pairs, the published beside them, and what stands against them.

use std::collections::BTreeMap;

use elasticserve_core::stats::median;
use elasticserve_report::effects::{Difference, Effects, Figure, Kind, Pair, Question, Side, differences};
use serde::Serialize;

use super::design::{Design, Workload};
use super::measure::{Measured, compared};
use super::published::{Beside, pairs, tenants};
use super::raw::RawSalt;

/// Everything that is found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Findings {
    pub(super) name: String,
    pub(super) title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<String>,
    pub(super) stand: BTreeMap<String, String>,
    /// In a sentence.
    pub(super) answer: String,
    pub(super) workloads: Vec<WorkloadFindings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) published: Option<PublishedFindings>,
    pub(super) runs: Vec<RunFindings>,
    /// What has to be known before the figures are used.
    pub(super) warnings: Vec<String>,
    /// Why runs or pairs are left out.
    pub(super) problems: Vec<String>,
}

/// One workload.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WorkloadFindings {
    pub(super) name: String,
    /// The figures in the order of tables.
    #[serde(skip)]
    pub(super) figures: Vec<Figure>,
    pub(super) arms: Vec<ArmFindings>,
    /// Of every arm but the first against the first.
    pub(super) effects: Vec<Effects>,
}

/// An arm on a workload.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ArmFindings {
    pub(super) arm: String,
    pub(super) runs: usize,
    pub(super) figures: BTreeMap<String, Spread>,
}

/// A figure over runs.
#[derive(Copy, Clone, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) n: usize,
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// The published values.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PublishedFindings {
    pub(super) source: String,
    pub(super) values: Vec<Beside>,
    /// Of those that are held to something, how many are within it.
    pub(super) within: usize,
    pub(super) held: usize,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunFindings {
    pub(super) folder: String,
    pub(super) workload: String,
    pub(super) arm: String,
    pub(super) seed: u64,
    /// Its place in the order of the runs, from 1.
    pub(super) turn: usize,
    pub(super) valid: bool,
    pub(super) plan_hash: String,
    pub(super) offered: u32,
    pub(super) completed: u32,
    pub(super) rejected: u32,
    pub(super) good: u32,
    /// Prompt tokens from the prefix cache as a share of the prompts of whole answers.
    pub(super) cached_share: Option<f64>,
    pub(super) figures: BTreeMap<String, f64>,
    /// The same as usual load generators count: rates until the last completion.
    pub(super) counted: BTreeMap<String, f64>,
}

impl Findings {
    pub(super) fn of(design: &Design, stand: BTreeMap<String, String>, all: &[Measured]) -> Self {
        let mut problems: Vec<String> = all.iter().filter(|r| !r.counts()).map(left_out).collect();
        let valid: Vec<&Measured> = all.iter().filter(|r| r.counts()).collect();
        let refused = incomparable(design, &valid);
        problems.extend(refused.iter().map(|(_, problem)| problem.clone()));
        let mut warnings = contaminated(design, &valid);
        let comparable = |workload: usize| !refused.iter().any(|(w, _)| *w == workload);
        let workloads: Vec<WorkloadFindings> =
            (0..design.workloads.len()).map(|w| of_workload(design, w, &valid, comparable(w))).collect();
        for workload in &workloads {
            for effects in &workload.effects {
                let arm = if design.arms.len() > 2 { format!("{}: ", effects.changed) } else { String::new() };
                let name = if workloads.len() > 1 { format!("{}: ", workload.name) } else { String::new() };
                warnings.extend(effects.warnings.iter().map(|w| format!("{name}{arm}{w}")));
            }
        }
        let published = design.published.as_ref().map(|published| {
            let arms: Vec<String> = design.arms.iter().map(|a| a.name.clone()).collect();
            let values = published.beside(&valid, &arms, &design.workloads.iter().collect::<Vec<_>>());
            let held = values.iter().filter(|v| v.within.is_some()).count();
            let within = values.iter().filter(|v| v.within == Some(true)).count();
            PublishedFindings { source: published.source.clone(), values, within, held }
        });
        let runs = all.iter().map(|run| of_run(design, run)).collect();
        let (name, title) = (design.name.clone(), design.title.clone());
        let answer = answer(&workloads, published.as_ref(), &problems);
        Self {
            name,
            title,
            question: design.question.clone(),
            stand,
            answer,
            workloads,
            published,
            runs,
            warnings,
            problems,
        }
    }
}

fn of_workload(design: &Design, place: usize, runs: &[&Measured], comparable: bool) -> WorkloadFindings {
    let workload = &design.workloads[place];
    let figures = compared(&tenants(workload));
    let arms = design.arms.iter().enumerate().map(|(arm, of)| {
        let of_arm: Vec<&&Measured> = runs.iter().filter(|r| (r.place.workload, r.place.arm) == (place, arm)).collect();
        let spread = |figure: &Figure| {
            let values: Vec<f64> = of_arm.iter().filter_map(|r| r.values.get(figure).copied()).collect();
            Some((figure.to_string(), Spread::of(&values)?))
        };
        ArmFindings { arm: of.name.clone(), runs: of_arm.len(), figures: figures.iter().filter_map(spread).collect() }
    });
    let others = if comparable { 1..design.arms.len() } else { 0..0 };
    let effects = others.map(|arm| effects(design, workload, &pairs(runs, place, arm), arm));
    WorkloadFindings { name: workload.name.clone(), arms: arms.collect(), effects: effects.collect(), figures }
}

fn effects(design: &Design, workload: &Workload, found: &[(&Measured, &Measured)], arm: usize) -> Effects {
    let mut found = found.to_vec();
    found.sort_by_key(|(a, b)| a.turn.min(b.turn));
    let pair = |(without, with): &(&Measured, &Measured)| {
        let seed = workload.plans.get(without.place.seed).map_or(0, |(seed, _)| *seed);
        let mut pair = Pair::new(format!("seed {seed}"));
        (pair.base, pair.changed) = (without.values.clone(), with.values.clone());
        pair.first = Some(if without.turn < with.turn { Side::Base } else { Side::Changed });
        pair
    };
    let pairs: Vec<Pair> = found.iter().map(pair).collect();
    let question = Question::of(Figure::all(Kind::Attainment));
    Effects::of(&design.arms[0].name, &design.arms[arm].name, &pairs, &question)
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        let most = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { n: values.len(), median: median(values)?, least, most })
    }
}

fn of_run(design: &Design, run: &Measured) -> RunFindings {
    use elasticserve_core::sim::reproduce::Column;
    const COUNTED: [Column; 11] = [
        Column::Throughput,
        Column::Goodput,
        Column::Attainment,
        Column::Completed,
        Column::Rejected,
        Column::SloPassing,
        Column::PeakConcurrency,
        Column::Jain,
        Column::Ttft(95),
        Column::Tpot(95),
        Column::E2e(95),
    ];
    let figures = &run.summary.figures;
    let share = |c: &elasticserve_report::CachedTokens| c.tokens as f64 / c.input_tokens.max(1) as f64;
    RunFindings {
        folder: run.folder.clone(),
        workload: design.workloads[run.place.workload].name.clone(),
        arm: design.arms[run.place.arm].name.clone(),
        seed: design.seed(run.place),
        turn: run.turn + 1,
        valid: run.counts(),
        plan_hash: run.manifest.plan_hash.clone(),
        offered: figures.planned,
        completed: figures.completed,
        rejected: figures.rejected,
        good: figures.good,
        cached_share: run.summary.cached.as_ref().map(share),
        figures: run.values.iter().map(|(figure, value)| (figure.to_string(), *value)).collect(),
        counted: COUNTED.into_iter().filter_map(|c| Some((c.name(), c.of(&run.counted)?))).collect(),
    }
}

fn left_out(run: &Measured) -> String {
    let why: Vec<String> = run.summary.invalid_because.iter().chain(&run.summary.problems).cloned().collect();
    format!(
        "{} is left out: {}",
        run.folder,
        if why.is_empty() { "it is not whole".to_owned() } else { why.join("; ") }
    )
}

/// Workloads whose runs were not made alike, and in what they differ.
fn incomparable(design: &Design, runs: &[&Measured]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for workload in 0..design.workloads.len() {
        for arm in 1..design.arms.len() {
            for (without, with) in pairs(runs, workload, arm) {
                let allowed = |key: &str| design.allow.iter().any(|a| a == key);
                let differs = differences(&without.manifest, &with.manifest);
                if let Some(found_one) = differs.into_iter().find(|d| d.matters && !allowed(&d.key)) {
                    let Difference { key, base, changed, .. } = found_one;
                    let problem = format!(
                        "{} and {} are not compared: {key} is '{base}' and '{changed}'; say allow = [\"{key}\"] in the file if \
                         that is what the experiment is about",
                        without.folder, with.folder
                    );
                    found.push((workload, problem));
                }
            }
        }
    }
    found
}

/// Pairs whose two runs did not find the same in the prefix cache: requests that both answered, and of which they took
/// different numbers of prompt tokens from it.
fn contaminated(design: &Design, runs: &[&Measured]) -> Vec<String> {
    let mut found = Vec::new();
    for (workload, of) in design.workloads.iter().enumerate() {
        for arm in 1..design.arms.len() {
            let all = pairs(runs, workload, arm);
            let differs = |(a, b): &&(&Measured, &Measured)| {
                let both = a.cached.iter().filter_map(|(index, cached)| Some((cached, b.cached.get(index)?)));
                let (same, other): (Vec<_>, Vec<_>) = both.partition(|(a, b)| a == b);
                let apart: u64 = other.iter().map(|(a, b)| u64::from(a.abs_diff(**b))).sum();
                let prompts = |run: &Measured| run.summary.cached.as_ref().map_or(0, |c| c.input_tokens);
                // A block more or less in one request of a hundred is no state of a cache, nor are a few tokens of a
                // template in each.
                other.len() * 100 > same.len() + other.len() && apart * 200 > prompts(a).max(prompts(b))
            };
            let pairs: Vec<&(&Measured, &Measured)> = all.iter().filter(differs).collect();
            if pairs.is_empty() {
                continue;
            }
            let told = pairs.iter().map(|(a, b)| told(design, of, a, b)).collect::<Vec<_>>().join("; ");
            let why = match design.salt {
                RawSalt::Own => "the engine's cache held them in spite of the salts",
                RawSalt::Pair | RawSalt::None => {
                    "their prompts are shared, so the later run meets what the earlier one sent"
                }
            };
            found.push(format!(
                "Cache contamination: in {} of {} pairs of '{}' and '{}' the two sides did not find the same in the prefix \
                 cache ({why}): {told}.",
                pairs.len(),
                all.len(),
                design.arms[0].name,
                design.arms[arm].name
            ));
        }
    }
    found
}

fn told(design: &Design, workload: &Workload, a: &Measured, b: &Measured) -> String {
    let seed = workload.plans.get(a.place.seed).map_or(0, |(seed, _)| *seed);
    let (first, second) = if a.turn < b.turn { (a, b) } else { (b, a) };
    let share = |run: &Measured| {
        let of = run.summary.cached.as_ref();
        of.map_or_else(|| "–".to_owned(), |c| format!("{:.0}%", c.tokens as f64 * 100.0 / c.input_tokens.max(1) as f64))
    };
    let name = |run: &Measured| design.arms[run.place.arm].name.clone();
    format!("seed {seed}: first '{}' {}, then '{}' {}", name(first), share(first), name(second), share(second))
}

/// The answer in a few sentences.
fn answer(workloads: &[WorkloadFindings], published: Option<&PublishedFindings>, problems: &[String]) -> String {
    let mut said: Vec<String> = Vec::new();
    let several = workloads.len() > 1;
    for workload in workloads {
        let prefix = if several { format!("{}: ", workload.name) } else { String::new() };
        match workload.effects.as_slice() {
            [only] => said.push(format!("{prefix}{}", only.sentence)),
            effects => said.push(format!("{prefix}{}{}.", levels(workload), verdicts(effects))),
        }
    }
    if let Some(published) = published.filter(|p| p.held > 0) {
        said.push(format!("{} of {} published values are within their tolerance.", published.within, published.held));
    }
    if !problems.is_empty() {
        said.push("Something was left out or refused; see below.".to_owned());
    }
    said.join(" ")
}

/// What each arm is worth against the baseline, where there are pairs enough to say so.
fn verdicts(effects: &[Effects]) -> String {
    let told = effects.iter().filter_map(|of| {
        let effect = of.effect(&of.figure).filter(|e| e.n > 1)?;
        let difference = effect.unit.of_differences().signed(effect.difference.median?);
        Some(format!("{} {} ({difference})", of.changed, of.verdict.word()))
    });
    let told: Vec<String> = told.collect();
    let base = effects.first().map_or("", |e| e.base.as_str());
    if told.is_empty() { String::new() } else { format!("; against {base}: {}", told.join(", ")) }
}

/// The attainment of each arm.
fn levels(workload: &WorkloadFindings) -> String {
    let name = Figure::all(Kind::Attainment).to_string();
    let levels = workload.arms.iter().map(|arm| {
        let unit = Kind::Attainment.unit().of_values();
        let value = arm.figures.get(&name).map_or_else(|| "–".to_owned(), |s| unit.text(s.median));
        format!("{} {value}", arm.arm)
    });
    format!("attainment {}", levels.collect::<Vec<_>>().join(", "))
}
