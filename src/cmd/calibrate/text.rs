//! A calibration as text.

use elasticserve_core::calibrate::{Crowd, Kind, Parameter, Point, Standing};
use elasticserve_report::grid;

use super::outcome::Outcome;

/// Points with the largest residuals that are listed.
const WORST: usize = 6;

pub(super) fn text(outcome: &Outcome) -> String {
    let mut text = format!("{}\n\nmeasured: {}, {}\n\n", outcome.answer(), outcome.measured, counted(outcome));
    text += &grid("parameter", &["value", "± se", "95% interval", "known as"].map(str::to_owned), &parameters(outcome));
    if !outcome.calibration.crowds.is_empty() {
        let columns = ["ran at once", "answer tokens/s"].map(str::to_owned);
        let rows = crowds(&outcome.calibration.crowds);
        text += &format!("\n{}", grid("requests in flight", &columns, &rows));
    }
    text += &format!("\n{}", residuals(outcome));
    for (head, lines) in [("warning", &outcome.warnings), ("note", &outcome.notes)] {
        for line in lines {
            text += &format!("\n{head}: {line}\n");
        }
    }
    if !outcome.skipped.is_empty() {
        text += &format!("\nnote: left out for want of time: {}\n", outcome.skipped.join(", "));
    }
    text
}

/// What the figures are made of.
pub(super) fn counted(outcome: &Outcome) -> String {
    let calibration = &outcome.calibration;
    format!("{} answers, {} points", calibration.answers, calibration.points.len())
}

/// The cost model in two numbers.
pub(super) fn line(outcome: &Outcome) -> Option<String> {
    let line = outcome.calibration.line?;
    Some(format!(
        "first token as a straight line: {:.2} ms + {:.5} ms for each prompt token",
        line.intercept, line.slope
    ))
}

fn parameters(outcome: &Outcome) -> Vec<(String, Vec<String>)> {
    let around = &outcome.calibration.fitted.around;
    let mut rows: Vec<(String, Vec<String>)> =
        outcome.parameters.iter().map(|p| (p.key.to_owned(), cells(p))).collect();
    let sum = interval_cells(around.error, around.interval);
    let sum = [vec![short(around.value)], sum, vec!["fitted; only as a sum".to_owned()]].concat();
    let place = rows.iter().position(|(key, _)| key == "in_ms").unwrap_or(0);
    rows.insert(place, ("in_ms + out_ms".to_owned(), sum));
    rows
}

fn cells(parameter: &Parameter) -> Vec<String> {
    let (error, interval) = parameter.estimate.map_or((None, None), |e| (e.error, e.interval));
    [vec![value(parameter)], interval_cells(error, interval), vec![standing(parameter.standing).to_owned()]].concat()
}

pub(super) fn interval_cells(error: Option<f64>, interval: Option<(f64, f64)>) -> Vec<String> {
    let interval = interval.map(|(low, high)| format!("{} to {}", short(low), short(high)));
    vec![error.map(short).unwrap_or_default(), interval.unwrap_or_default()]
}

pub(super) fn value(parameter: &Parameter) -> String {
    match (parameter.table, parameter.key) {
        (_, "prefix_cache") => (parameter.value > 0.0).to_string(),
        ("engine", _) => format!("{:.0}", parameter.value),
        _ => short(parameter.value),
    }
}

pub(super) const fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Fitted => "fitted",
        Standing::Observed => "observed",
        Standing::Assumed => "assumed",
    }
}

/// Loads that show seats or throughput, by requests in flight: long contexts show neither.
pub(super) fn crowds(crowds: &[Crowd]) -> Vec<(String, Vec<String>)> {
    let mut shown: Vec<&Crowd> = crowds.iter().filter(|c| c.tokens_per_s.is_some() || c.is_full()).collect();
    shown.sort_by_key(|c| c.offered);
    let tokens = |c: &Crowd| c.tokens_per_s.map_or_else(|| "–".to_owned(), |tokens| format!("{tokens:.1}"));
    shown.into_iter().map(|c| (c.offered.to_string(), vec![c.running.to_string(), tokens(c)])).collect()
}

fn residuals(outcome: &Outcome) -> String {
    let mut points: Vec<&Point> = outcome.calibration.points.iter().collect();
    points.sort_by(|a, b| (b.residual() / b.ms).abs().total_cmp(&(a.residual() / a.ms).abs()));
    let columns = ["n", "measured, ms", "fitted, ms", "off"].map(str::to_owned);
    let rows: Vec<_> = points.iter().take(WORST).map(|p| (name(p), residual(p))).collect();
    let mut text = String::new();
    if let Some((misfit, _)) = outcome.calibration.misfit() {
        text += &format!("points lie {:.2}% off the formula (root mean square)\n", 100.0 * misfit);
    }
    text += &line(outcome).map_or_else(String::new, |line| line + "\n");
    text + &grid("points furthest off", &columns, &rows)
}

/// What a point is a measurement of.
pub(super) fn name(point: &Point) -> String {
    let (prefill, decoding, kv) = (point.prefill, point.decoding, point.kv);
    match point.kind {
        Kind::First => format!("first token of {prefill}"),
        Kind::Decode => format!("step of {decoding} sequences, {kv:.0} KV tokens"),
        Kind::Mixed => format!("step of {decoding} sequences and a prompt of {prefill}"),
    }
}

pub(super) fn residual(point: &Point) -> Vec<String> {
    let off = 100.0 * point.residual() / point.ms;
    vec![point.n.to_string(), format!("{:.3}", point.ms), format!("{:.3}", point.fitted), format!("{off:+.2}%")]
}

/// Four significant digits.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let decimals = (3.0 - value.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}
