//! Findings as text and as a document.

use elasticserve_report::chart::{Better, Effect as Drawn, EffectGroup, Effects as Forest};
use elasticserve_report::doc::{Block, Doc, Section, Table, Tone};
use elasticserve_report::effects::{Direction, Effect, Effects, Figure, Finding};
use elasticserve_report::grid;

use super::findings::{ArmFindings, Findings, PublishedFindings, WorkloadFindings};
use super::published::Beside;
use crate::cmd::sim::{short, signed};

const MISSING: &str = "–";

/// The findings as tables for a terminal.
pub(super) fn text(findings: &Findings) -> String {
    let mut out = format!("{}\n", findings.title);
    if let Some(question) = &findings.question {
        out += &format!("{question}\n");
    }
    out += &format!("{}\n\n{}\n", stand(findings), findings.answer);
    for workload in &findings.workloads {
        let (columns, rows) = levels(workload);
        out += &format!("\n{}", grid(&workload.name, &columns, &rows));
        for effects in &workload.effects {
            let title = format!("{} against {}", effects.changed, effects.base);
            let columns = EFFECT_COLUMNS.map(str::to_owned);
            out += &format!("\n{}", grid(&title, &columns, &effect_rows(effects, &workload.figures)));
        }
    }
    if let Some(published) = &findings.published {
        out += &format!("\n{}", grid("published", &PUBLISHED_COLUMNS.map(str::to_owned), &published_rows(published)));
        out += &format!("source: {}\n", published.source);
    }
    for warning in &findings.warnings {
        out += &format!("\nwarning: {warning}\n");
    }
    for problem in &findings.problems {
        out += &format!("\nproblem: {problem}\n");
    }
    out
}

/// The findings as a document.
pub(super) fn doc(findings: &Findings, source: &str) -> Doc {
    let mut doc = Doc::new("experiment", &findings.title, &findings.answer).subject(stand(findings));
    if let Some(question) = &findings.question {
        doc = doc.answer(question.clone());
    }
    if findings.stand.get("stand").is_some_and(|s| s == "simulator") {
        doc = doc.badge("simulated: no server was measured");
    }
    if let Some(speed) = findings.stand.get("speed").filter(|s| *s != "1") {
        doc = doc.badge(format!("made {speed} times faster than real time; figures are in real time"));
    }
    for warning in &findings.warnings {
        doc = doc.point(Tone::Warn, warning.clone());
    }
    for problem in &findings.problems {
        doc = doc.point(Tone::Bad, problem.clone());
    }
    for workload in &findings.workloads {
        doc = doc.section(section(workload, findings.workloads.len() > 1));
    }
    if let Some(published) = &findings.published {
        let held = format!(
            "{} of {} values that are held to a tolerance are within it. Rates are counted as the source counts them: \
             until the last completion. Source: {}",
            published.within, published.held, published.source
        );
        let table = table("", "value", &PUBLISHED_COLUMNS.map(str::to_owned), &published_rows(published));
        doc = doc.section(Section::new("Beside the published figures").paragraph(held).table(table));
    }
    let runs =
        Section::new("Runs").details("Every run, in the order in which they were made", [Block::Table(runs(findings))]);
    let file = Section::new("The experiment").details("Its file", [Block::Verbatim(source.to_owned())]);
    doc.section(runs).section(definitions()).section(file)
}

fn stand(findings: &Findings) -> String {
    let said = findings.stand.iter().map(|(key, value)| format!("{key} {value}"));
    format!("{} runs; {}", findings.runs.len(), said.collect::<Vec<_>>().join(", "))
}

fn section(workload: &WorkloadFindings, several: bool) -> Section {
    let title = if several { workload.name.clone() } else { "What the arms reach, and the effects".to_owned() };
    let (columns, rows) = levels(workload);
    let mut section = Section::new(title);
    if workload.effects.iter().any(|e| e.pairs.len() > 1) {
        section = section.picture(forest(workload).draw());
    }
    section = section.table(table("Figures by arm", "median (least to most)", &columns, &rows));
    for effects in &workload.effects {
        let title = format!("{} against {}", effects.changed, effects.base);
        let rows = effect_rows(effects, &workload.figures);
        section = section.paragraph(effects.sentence.clone());
        section = section.table(table(&title, "figure", &EFFECT_COLUMNS.map(str::to_owned), &rows));
    }
    section
}

/// The effects of each figure, a group each, with a line for each arm.
fn forest(workload: &WorkloadFindings) -> Forest {
    let whole = workload.figures.iter().filter(|f| f.tenant.is_none());
    let groups = whole.filter_map(|figure| {
        let found: Vec<(&Effects, &Effect)> =
            workload.effects.iter().filter_map(|e| Some((e, e.effect(figure).filter(|f| f.n > 0)?))).collect();
        let (_, first) = found.first()?;
        let (unit, better) = (first.unit.of_differences(), better(first.direction));
        let drawn = found.iter().filter_map(|(effects, effect)| {
            let interval = effect.difference.interval;
            Some(Drawn {
                name: effects.changed.clone(),
                value: effect.difference.median?,
                low: interval.map(|i| i.low),
                high: interval.map(|i| i.high),
                n: effect.n as u64,
            })
        });
        Some(EffectGroup { name: figure.label(), unit, better, effects: drawn.collect() })
    });
    let base = workload.effects.first().map_or("", |e| e.base.as_str());
    Forest {
        title: format!("Paired differences against {base}"),
        note: "Medians over pairs of runs of the same arrivals.".to_owned(),
        confidence: 0.95,
        groups: groups.collect(),
    }
}

const fn better(direction: Direction) -> Better {
    match direction {
        Direction::Up => Better::Higher,
        Direction::Down => Better::Lower,
        Direction::Open => Better::Neither,
    }
}

type Rows = Vec<(String, Vec<String>)>;

/// A line for each figure, a column for each arm.
fn levels(workload: &WorkloadFindings) -> (Vec<String>, Rows) {
    let columns = workload.arms.iter().map(|a| format!("{} (n {})", a.arm, a.runs)).collect();
    let cell = |arm: &ArmFindings, figure: &Figure| {
        let unit = figure.kind.unit().of_values();
        arm.figures.get(&figure.to_string()).map_or_else(
            || MISSING.to_owned(),
            |s| match s.n {
                1 => unit.text(s.median),
                _ => unit.interval(Some(s.median), [Some(s.least), Some(s.most)]),
            },
        )
    };
    let row = |f: &Figure| (f.label(), workload.arms.iter().map(|arm| cell(arm, f)).collect());
    (columns, workload.figures.iter().map(row).collect())
}

const EFFECT_COLUMNS: [&str; 5] = ["difference", "interval", "bootstrap", "pairs", "finding"];

fn effect_rows(effects: &Effects, figures: &[Figure]) -> Rows {
    let row = |figure: &Figure| {
        let effect = effects.effect(figure).filter(|e| e.n > 0)?;
        let (unit, level) = (effect.unit.of_differences(), effect.difference);
        let all = [level.median, level.interval.map(|i| i.low), level.interval.map(|i| i.high)];
        let decimals = unit.decimals(&all.into_iter().flatten().collect::<Vec<_>>());
        let one = |value: f64| unit.signed_number(value, decimals);
        let interval = level.interval.map_or_else(
            || MISSING.to_owned(),
            |i| format!("{} to {} ({:.1}%)", one(i.low), one(i.high), i.confidence * 100.0),
        );
        let bootstrap =
            level.bootstrap.map_or_else(|| MISSING.to_owned(), |b| format!("{} to {}", one(b.low), one(b.high)));
        let difference = level.median.map_or_else(|| MISSING.to_owned(), one);
        let head = if unit.head().is_empty() { figure.label() } else { name_with(&figure.label(), unit.head()) };
        let cells = vec![difference, interval, bootstrap, effect.n.to_string(), word(effect.finding).to_owned()];
        Some((head, cells))
    };
    figures.iter().filter_map(row).collect()
}

/// A figure's name with the unit of its differences, where the name does not hold it.
fn name_with(label: &str, unit: &str) -> String {
    if label.ends_with(unit) { label.to_owned() } else { format!("{label}, {unit}") }
}

const fn word(finding: Finding) -> &'static str {
    match finding {
        Finding::Better => "better",
        Finding::Worse => "worse",
        Finding::Higher => "higher",
        Finding::Lower => "lower",
        Finding::NoDifference => "no difference",
        Finding::Undecided => "undecided",
    }
}

const PUBLISHED_COLUMNS: [&str; 5] = ["published", "here", "deviation", "n", ""];

fn published_rows(published: &PublishedFindings) -> Rows {
    published.values.iter().map(published_row).collect()
}

fn published_row(value: &Beside) -> (String, Vec<String>) {
    let seed = value.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
    let interval = |value: f64, interval: Option<[f64; 2]>| {
        let bounds = interval.map_or_else(String::new, |[low, high]| format!(" [{}, {}]", short(low), short(high)));
        format!("{}{bounds}", short(value))
    };
    let here = value.measured.map_or_else(|| MISSING.to_owned(), |m| interval(m, value.measured_interval));
    let deviation = value
        .deviation
        .map_or_else(|| MISSING.to_owned(), |d| if value.relative { format!("{:+.1}%", d * 100.0) } else { signed(d) });
    let mark = match value.within {
        Some(true) => "within",
        Some(false) => "outside",
        None => "",
    };
    let n = value.pairs.unwrap_or(1).to_string();
    let name = format!("{}, {}{seed}: {}", value.workload, value.arm, value.name);
    (name, vec![interval(value.published, value.published_interval), here, deviation, n, mark.to_owned()])
}

fn runs(findings: &Findings) -> Table {
    let columns = ["turn", "offered", "good", "refused", "cached", "valid"].map(str::to_owned);
    let row = |run: &super::findings::RunFindings| {
        let cached = run.cached_share.map_or_else(|| MISSING.to_owned(), |s| format!("{:.1}%", s * 100.0));
        let counts = [run.turn.to_string(), run.offered.to_string(), run.good.to_string(), run.rejected.to_string()];
        let cells = counts.into_iter().chain([cached, if run.valid { "yes" } else { "NO" }.to_owned()]);
        (format!("{}, {}, seed {}", run.workload, run.arm, run.seed), cells.collect())
    };
    let mut rows: Vec<(usize, (String, Vec<String>))> = findings.runs.iter().map(|r| (r.turn, row(r))).collect();
    rows.sort_by_key(|(turn, _)| *turn);
    table("", "run", &columns, &rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>())
}

fn definitions() -> Section {
    Section::new("Definitions").terms([
        ("pair", "two runs of the same plan, one of the baseline and one of another arm"),
        ("attainment", "answers that are whole and within every limit, of all that was offered"),
        ("goodput", "the same per second of the arrival window"),
        (
            "difference",
            "the median over the pairs of the arm's figure less the baseline's; of shares in percentage points",
        ),
        ("interval", "of that median, between order statistics, with its confidence: 95 % needs six pairs"),
        ("bootstrap", "of that median, by the percentile bootstrap at 95 %, as published studies give it"),
        ("cached", "prompt tokens that the engine took from its prefix cache, of those of the answers that tell"),
    ])
}

fn table(title: &str, corner: &str, columns: &[String], rows: &[(String, Vec<String>)]) -> Table {
    let table = Table::new(title, corner).numbers(columns.iter().cloned());
    rows.iter().fold(table, |table, (name, cells)| table.row(name.clone(), cells.iter().cloned()))
}
