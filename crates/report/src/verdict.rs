//! What the figures mean, in one or two plain sentences.

use crate::doc::Tone;
use crate::fmt;
use crate::summary::Summary;
use crate::table;

/// The difference in attainment below which two runs count as alike: a pair shows no spread, and less than
/// this follows from the chance of a few arrivals.
const ALIKE: f64 = 0.02;

/// What any number of runs mean; the first is the one that the others are compared to.
#[must_use]
pub fn finding(summaries: &[Summary]) -> String {
    match summaries {
        [] => "No runs.".to_owned(),
        [one] => alone(one),
        [direct, gateway] => verdict_sentence(direct, gateway),
        many => several(many),
    }
}

/// The finding in a word, and how it is to be taken: of two runs whether the second is better, of others only whether
/// they can be believed.
pub(crate) fn tone(summaries: &[Summary]) -> Option<(&'static str, Tone)> {
    if summaries.iter().any(|s| !s.complete || !s.reconciled || !s.valid) {
        return Some(("not valid", Tone::Warn));
    }
    let [direct, gateway] = summaries else { return None };
    if not_comparable(summaries).is_some() {
        return Some(("no pair", Tone::Warn));
    }
    let gain = gateway.figures.attainment.unwrap_or(0.0) - direct.figures.attainment.unwrap_or(0.0);
    Some(match gain {
        gain if gain.abs() < ALIKE => ("alike", Tone::Neutral),
        gain if gain < 0.0 => ("worse", Tone::Bad),
        _ => ("better", Tone::Good),
    })
}

/// What a comparison of a run with the gateway to one without it means.
///
/// It also says so if the gateway does not help, if the two cannot be compared and if one of them is not valid.
#[must_use]
pub fn verdict_sentence(direct: &Summary, gateway: &Summary) -> String {
    let pair = [direct.clone(), gateway.clone()];
    let names = table::labels(&pair);
    if let Some(reason) = not_comparable(&pair) {
        return reason;
    }
    let (d, g) = (&direct.figures, &gateway.figures);
    let good = |f: &crate::Figures| fmt::part(f.good, f.planned);
    let more = format!("{} got a good answer with {} and {} with {}", good(g), names[1], good(d), names[0]);
    let gain = g.attainment.unwrap_or(0.0) - d.attainment.unwrap_or(0.0);
    let same = same_arrivals(&pair);
    let head = if gain.abs() < ALIKE {
        format!("It makes no difference here: {same}, {more}.")
    } else if gain < 0.0 {
        format!("{} does not help here: {same}, {more}.", names[1])
    } else {
        let times = if d.good == 0 { String::new() } else { times(f64::from(g.good) / f64::from(d.good)) };
        format!("O{}, {more}{times}.", &same[1..])
    };
    format!("{head} With {}; with {}.{}", rest(&names[1], gateway), rest(&names[0], direct), caveats(&pair))
}

fn times(factor: f64) -> String {
    format!(": {} times as many", fmt::trimmed(factor, 1))
}

fn alone(s: &Summary) -> String {
    if let Some(reason) = incomplete(s) {
        return reason;
    }
    let f = &s.figures;
    let limits: Vec<String> = s.tenants.iter().map(|t| table::limits(&t.slo)).collect();
    let limits = match limits.as_slice() {
        [first, rest @ ..] if rest.iter().all(|l| l == first) && first != "none" => {
            format!(" within the limits {first}")
        }
        _ => String::new(),
    };
    let name = table::labels(std::slice::from_ref(s)).concat();
    format!(
        "Of {}, {} got a good answer{limits}. With {}.{}",
        fmt::counted(f.planned, "arrival"),
        fmt::part(f.good, f.planned),
        rest(&name, s),
        caveats(std::slice::from_ref(s))
    )
}

fn several(summaries: &[Summary]) -> String {
    if let Some(reason) = not_comparable(summaries) {
        return reason;
    }
    let names = table::labels(summaries);
    let mut ranked: Vec<(&String, &Summary)> = names.iter().zip(summaries).collect();
    ranked.sort_by_key(|(_, s)| std::cmp::Reverse(s.figures.good));
    let listed: Vec<String> = ranked
        .iter()
        .map(|(name, s)| format!("{} with {name}", fmt::part(s.figures.good, s.figures.planned)))
        .collect();
    let same = same_arrivals(summaries);
    format!("O{}, these got a good answer: {}.{}", &same[1..], listed.join(", "), caveats(summaries))
}

/// What the runs were offered. Of a plan that is a supply, each run draws as much as its answers let it.
fn same_arrivals(summaries: &[Summary]) -> String {
    let planned: Vec<String> = summaries.iter().map(|s| fmt::count(u64::from(s.figures.planned))).collect();
    match planned.as_slice() {
        [first, rest @ ..] if rest.iter().all(|n| n == first) => format!("of the same {first} arrivals"),
        _ => format!("of what came due ({} arrivals of one plan)", planned.join(", ")),
    }
}

fn not_comparable(summaries: &[Summary]) -> Option<String> {
    if let Some(reason) = summaries.iter().find_map(incomplete) {
        return Some(format!("{reason} Without it there is nothing to compare."));
    }
    if summaries.iter().any(|s| s.plan_hash != summaries[0].plan_hash) {
        return Some(
            "These runs were offered different work (their plans differ): they cannot be compared.".to_owned(),
        );
    }
    if summaries.iter().any(|s| s.time_scale != summaries[0].time_scale || s.simulated != summaries[0].simulated) {
        return Some(
            "These runs are of different kinds (time scale, or simulated against measured): they cannot be compared."
                .to_owned(),
        );
    }
    None
}

fn incomplete(s: &Summary) -> Option<String> {
    let name = fmt::one_line(&s.name, 40);
    if s.figures.planned == 0 {
        return Some(format!("{name} planned no arrivals."));
    }
    let rows = fmt::count(u64::from(s.figures.planned - s.missing));
    let planned = fmt::count(u64::from(s.figures.planned));
    (!s.complete).then(|| format!("{name} is incomplete: its ledger accounts for {rows} of {planned} arrivals."))
}

/// What a run did with the arrivals that got no good answer.
fn rest(name: &str, s: &Summary) -> String {
    let f = &s.figures;
    let turned = match f.rejected {
        0 => "none was turned away".to_owned(),
        1 => "1 was turned away".to_owned(),
        n => format!("{} were turned away{}", fmt::count(u64::from(n)), half_within(f.rejection.p50)),
    };
    let answers = fmt::counted(f.completed, "answer");
    let late = match (f.completed, f.late) {
        (0, _) => "there was no whole answer".to_owned(),
        (_, 0) => format!("none of its {answers} was late"),
        (_, 1) => format!("1 of its {answers} was late"),
        (_, n) => format!("{} of its {answers} were late", fmt::count(u64::from(n))),
    };
    let failed = if f.failed == 0 { String::new() } else { format!(", {} failed", fmt::count(u64::from(f.failed))) };
    let unsent = if f.unsent == 0 { String::new() } else { format!(", {} not sent", fmt::count(u64::from(f.unsent))) };
    format!("{name} {turned} and {late}{failed}{unsent}")
}

fn half_within(p50: Option<f64>) -> String {
    p50.map_or_else(String::new, |p50| format!(", half of them within {},", fmt::duration(p50)))
}

fn caveats(summaries: &[Summary]) -> String {
    let mut out = String::new();
    for (name, s) in table::labels(summaries).iter().zip(summaries) {
        if let Some(reason) = s.problems.first().or(s.invalid_because.first()) {
            out += &format!(" But {name} is not valid: {reason}.");
        }
    }
    if let Some(s) = summaries.first().filter(|s| s.time_scale != 1.0) {
        out += &format!(" All times ran at {} and are given as they ran.", table::scale(s));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn pair() -> [Summary; 2] {
        fixture::pair().map(|run| Summary::of(&run))
    }

    #[test]
    fn the_gateways_gain_is_told_with_its_numbers() {
        let [direct, gateway] = pair();
        let said = verdict_sentence(&direct, &gateway);
        assert!(said.starts_with("Of the same 200 arrivals, 128 (64.0%) got a good answer with gateway"), "{said}");
        assert!(said.contains("32 (16.0%) with direct: 4 times as many"), "{said}");
        assert!(said.contains("With gateway 72 were turned away, half of them within 750 ms, and none"), "{said}");
        assert!(said.contains("none of its 128 answers was late; with direct none was turned away"), "{said}");
        assert!(said.contains("168 of its 200 answers were late"), "{said}");
    }

    #[test]
    fn a_gateway_that_does_not_help_is_not_praised() {
        let [direct, gateway] = pair();
        let worse = verdict_sentence(
            &Summary { name: "direct".into(), ..gateway },
            &Summary { name: "gateway".into(), ..direct.clone() },
        );
        assert!(worse.starts_with("gateway does not help here"), "{worse}");
        let alike = verdict_sentence(&direct, &Summary { name: "gateway".into(), ..direct.clone() });
        assert!(alike.starts_with("It makes no difference here"), "{alike}");
    }

    #[test]
    fn runs_that_cannot_be_compared_are_not() {
        let [direct, mut gateway] = pair();
        gateway.plan_hash = "other".into();
        assert!(verdict_sentence(&direct, &gateway).contains("cannot be compared"));
        let [direct, mut gateway] = fixture::pair();
        gateway.rows.pop();
        let said = verdict_sentence(&Summary::of(&direct), &Summary::of(&gateway));
        assert!(said.contains("gateway is incomplete: its ledger accounts for 199 of 200 arrivals"), "{said}");
    }

    #[test]
    fn closed_runs_that_drew_different_numbers_are_not_said_to_have_had_the_same() {
        let [direct, mut gateway] = pair();
        gateway.figures.planned = 260;
        let said = verdict_sentence(&direct, &gateway);
        assert!(said.starts_with("Of what came due (200, 260 arrivals of one plan), 128"), "{said}");
    }

    #[test]
    fn an_invalid_run_is_named_in_the_verdict() {
        let [direct, mut gateway] = fixture::pair();
        for row in &mut gateway.rows {
            row.send_started = Some(row.planned + elasticserve_core::time::Span::from_millis(50));
        }
        let said = verdict_sentence(&Summary::of(&direct), &Summary::of(&gateway));
        assert!(said.contains("But gateway is not valid: the p99 of the send lag is 50.0 ms"), "{said}");
    }
}
