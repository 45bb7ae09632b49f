//! A calibration as a document: the fitted curves with their points, what is left, and the knee.

use elasticserve_core::calibrate::{Calibration, Estimate, Kind, PUBLISHED_CASE, Point, Seats};
use elasticserve_report::Unit;
use elasticserve_report::chart::{self, Axis, Fit, Picture, Plot, Reference, Series, Shape, residuals};
use elasticserve_report::doc::{Block, Doc, Section, Table, Tone};

use super::outcome::Outcome;
use super::text::{counted, crowds, interval_cells, line, name, residual, short, standing, value};

/// Points of a fitted curve.
const CURVE: u32 = 48;

pub(super) fn page(outcome: &Outcome) -> Doc {
    let mut doc = Doc::new("calibrate", format!("Calibration: {}", outcome.name), outcome.answer()).subject(format!(
        "{}: {}, {}",
        outcome.model,
        outcome.measured,
        counted(outcome)
    ));
    if let Some(line) = line(outcome) {
        doc = doc.answer(format!("The {line}."));
    }
    for warning in &outcome.warnings {
        doc = doc.point(Tone::Warn, warning.clone());
    }
    for note in &outcome.notes {
        doc = doc.point(Tone::Neutral, note.clone());
    }
    if !outcome.skipped.is_empty() {
        doc = doc.point(Tone::Warn, format!("left out for want of time: {}", outcome.skipped.join(", ")));
    }
    let calibration = &outcome.calibration;
    doc.section(Section::new("Parameters").table(parameters(outcome)))
        .section(first_tokens(calibration))
        .section(steps(calibration))
        .section(knee(calibration))
        .section(
            Section::new("All points")
                .details("what was measured, what is fitted, and what is left", [points(calibration)]),
        )
        .section(Section::new("Definitions").terms(TERMS).paragraph(PUBLISHED_CASE))
}

const TERMS: [(&str, &str); 6] = [
    ("first token", "from the send of a request that is alone with the server to its first content"),
    ("step", "the time between the tokens of one batch and those of the batch before, as clients see it"),
    (
        "fitted",
        "by least squares over the medians of points; standard error and 95% interval by resampling each point's observations",
    ),
    ("observed", "counted or read off, not fitted"),
    ("assumed", "not known from outside, or not from these probes"),
    ("permits of use", "the fewest requests at once whose throughput is within 5% of the highest, at most the seats"),
];

fn parameters(outcome: &Outcome) -> Table {
    let table = Table::new("", "parameter").numbers(["value", "± standard error", "95% interval"]);
    let table = table.words("known as").words("what there is to say");
    outcome.parameters.iter().fold(table, |table, p| {
        let (error, interval) = p.estimate.map_or((None, None), |e| (e.error, e.interval));
        let cells =
            [vec![value(p)], interval_cells(error, interval), vec![standing(p.standing).to_owned(), p.note.clone()]];
        table.row(p.key, cells.concat())
    })
}

fn first_tokens(calibration: &Calibration) -> Section {
    let firsts: Vec<&Point> = calibration.points.iter().filter(|p| p.kind == Kind::First).collect();
    let place = |p: &Point, y: f64| chart::Point::new(f64::from(p.prefill), y).n(p.n as u64);
    let measured = firsts.iter().map(|p| match p.spread {
        Some(spread) if spread > 0.0 => place(p, p.ms).between(p.ms - spread, p.ms + spread),
        _ => place(p, p.ms),
    });
    let longest = firsts.iter().map(|p| p.prefill).max().unwrap_or(1);
    let fitted = &calibration.fitted;
    let at = |tokens: u32| fitted.first_token.value + fitted.base.value + fitted.prompt_cost(tokens);
    let curve = (0..=CURVE)
        .map(|i| (longest * i / CURVE).max(1))
        .map(|tokens| chart::Point::new(f64::from(tokens), at(tokens)));
    let picture = Fit {
        title: "First token of a lone request".into(),
        x: Axis::new("prompt tokens computed", Unit::Count).from_zero(),
        y: Axis::new("first token", Unit::Millis),
        measured: vec![Series::new("medians, with their spread", Shape::Marks, measured.collect())],
        fitted: vec![Series::new(formula(calibration), Shape::Line, curve.collect())],
        note: "Flat up to the roof, then a line, then a bend.".into(),
    };
    let left = firsts.iter().map(|p| place(p, p.residual())).collect();
    Section::new("First tokens").picture(picture.draw()).picture(left_over(
        "What is left of first tokens",
        "prompt tokens computed",
        left,
    ))
}

fn formula(calibration: &Calibration) -> String {
    let fitted = &calibration.fitted;
    let of = |e: Option<Estimate>| short(e.map_or(0.0, |e| e.value));
    let flat = fitted.first_token.value + fitted.base.value;
    let (token, roof, bend) = (of(fitted.prefill_token), of(fitted.roof), of(fitted.attention));
    format!("{flat:.2} + {token} · (tokens − {roof})⁺ + {bend} · (tokens / 1000)²")
}

fn steps(calibration: &Calibration) -> Section {
    let decode: Vec<&Point> = calibration.points.iter().filter(|p| p.kind == Kind::Decode).collect();
    let place = |p: &Point, y: f64| chart::Point::new(p.kv, y).n(p.n as u64).named(format!("{} sequences", p.decoding));
    let of = |name: &str, keep: &dyn Fn(u32) -> bool| {
        let points: Vec<_> = decode.iter().filter(|p| keep(p.decoding)).map(|p| place(p, p.ms)).collect();
        (!points.is_empty()).then(|| Series::new(name, Shape::Marks, points))
    };
    let groups = [
        of("one sequence", &|d| d == 1),
        of("2 to 7 sequences", &|d| (2..8).contains(&d)),
        of("8 or more", &|d| d >= 8),
    ];
    let most = decode.iter().map(|p| p.kv).fold(1.0, f64::max);
    let kv = calibration.fitted.kv.map_or(0.0, |kv| kv.value);
    let base = calibration.fitted.base.value;
    let ends = [0.0, most].map(|tokens| chart::Point::new(tokens, base + kv * tokens));
    let picture = Fit {
        title: "Steps that only decode".into(),
        x: Axis::new("KV tokens read", Unit::Count).from_zero(),
        y: Axis::new("step", Unit::Millis),
        measured: groups.into_iter().flatten().collect(),
        fitted: vec![Series::new(format!("{base:.2} + {} · KV tokens", short(kv)), Shape::Line, ends.to_vec())],
        note: "Points of many sequences above those of few at the same KV tokens would mean a cost by sequence.".into(),
    };
    let mixed = calibration.points.iter().filter(|p| p.kind == Kind::Mixed);
    let left: Vec<_> =
        mixed.map(|p| chart::Point::new(f64::from(p.prefill), p.residual()).n(p.n as u64).named(name(p))).collect();
    let mut section = Section::new("Steps").picture(picture.draw());
    if !left.is_empty() {
        section = section.picture(left_over("What is left of steps with a prompt", "prompt tokens computed", left));
    }
    section
}

fn left_over(title: &str, x: &str, points: Vec<chart::Point>) -> Picture {
    let groups = vec![Series::new("measured less fitted", Shape::Marks, points)];
    residuals(title, Axis::new(x, Unit::Count), Axis::new("measured less fitted", Unit::Named(" ms", 2)), groups, "")
}

fn knee(calibration: &Calibration) -> Section {
    let mut tried: Vec<(u32, f64)> =
        calibration.crowds.iter().filter_map(|c| Some((c.offered, c.tokens_per_s?))).collect();
    tried.sort_by_key(|(offered, _)| *offered);
    let section = Section::new("Requests at once");
    if tried.is_empty() {
        return section;
    }
    let points = tried.iter().map(|(offered, tokens)| chart::Point::new(f64::from(*offered), *tokens)).collect();
    let seats = calibration.seats.filter(|s| matches!(s, Seats::Exactly(_)));
    let seats = seats.map(|s| Reference::Upright(f64::from(s.count()), format!("{} seats", s.count())));
    let found = calibration
        .knee
        .as_ref()
        .filter(|knee| seats.is_none() || Some(knee.permits) != calibration.seats.map(Seats::count));
    let found = found.map(|k| Reference::Upright(f64::from(k.permits), format!("{} permits", k.permits)));
    let picture = Plot {
        title: "Throughput by requests at once".into(),
        x: Axis::new("requests in flight", Unit::Count).from_zero(),
        y: Axis::new("answer tokens", Unit::PerSecond).from_zero(),
        series: vec![Series::new("closed loads", Shape::Joined, points)],
        references: seats.into_iter().chain(found).collect(),
        note: "Beyond the seats a request waits inside the engine, where nobody can reorder or refuse it.".into(),
    };
    let table = Table::new("", "requests in flight").numbers(["ran at once", "answer tokens/s"]);
    let table =
        crowds(&calibration.crowds).into_iter().fold(table, |table, (offered, cells)| table.row(offered, cells));
    section.picture(picture.draw()).table(table)
}

fn points(calibration: &Calibration) -> Block {
    let table = Table::new("", "point").numbers(["n", "measured, ms", "fitted, ms", "off"]);
    Block::Table(calibration.points.iter().fold(table, |table, p| table.row(name(p), residual(p))))
}
