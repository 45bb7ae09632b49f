//! What effects mean, in plain sentences.

use super::figure::percent;
use super::{Effect, Effects, Finding, MIN_PAIRS, More, ORDER_P, Side};
use crate::fmt::{counted, one_line};

/// What the pairs say of the figure in question.
pub(super) fn sentence(all: &Effects, effect: &Effect) -> String {
    let (base, changed) = (one_line(&all.base, 40), one_line(&all.changed, 40));
    let label = effect.figure.label();
    let (Some(without), Some(with), Some(difference)) =
        (effect.base.median, effect.changed.median, effect.difference.median)
    else {
        return format!("No pair has {label} on both sides, so there is nothing to compare.");
    };
    let (values, differences) = (effect.unit.of_values(), effect.unit.of_differences());
    let pairs = counted(effect.n as u32, "pair");
    let measured = format!(
        "{label} {} with {changed} against {} with {base}: {} in the median of {pairs}{}",
        values.text(with),
        values.text(without),
        differences.signed(difference),
        interval(effect)
    );
    let margin = differences.text(effect.margin);
    match effect.finding {
        Finding::Better => format!("{changed} is better: {measured}."),
        Finding::Worse => format!("{changed} is worse: {measured}."),
        Finding::Higher | Finding::Lower => format!(
            "{measured}. That is a difference, but neither better nor worse in itself: ask about another figure."
        ),
        Finding::NoDifference => {
            format!("{changed} makes no difference that matters (less than {margin}): {measured}.")
        }
        Finding::Undecided => format!("It cannot be told yet: {measured}. {}", needed(effect, &margin)),
    }
}

/// What would decide it.
fn needed(effect: &Effect, margin: &str) -> String {
    let few =
        if effect.n < MIN_PAIRS { format!("Fewer than {MIN_PAIRS} pairs decide nothing. ") } else { String::new() };
    match effect.more {
        Some(More::Pairs(more)) => {
            format!("{few}About {} would decide it, if the differences go on as they are.", counted(more, "more pair"))
        }
        Some(More::MoreThan(most)) => {
            format!(
                "{few}More than {most} more pairs would be needed: as good as no difference between 0 and {margin}."
            )
        }
        None => few,
    }
}

fn interval(effect: &Effect) -> String {
    let unit = effect.unit.of_differences();
    effect.difference.interval.map_or_else(String::new, |i| {
        let decimals = unit.decimals(&[i.low, i.high]);
        let [low, high] = [i.low, i.high].map(|v| unit.signed_number(v, decimals));
        format!(" ({} interval {low} to {high})", percent(i.confidence))
    })
}

/// Whether the effect goes with the order of the runs, or that it cannot be told.
pub(super) fn order(all: &Effects, effect: &Effect) -> Vec<String> {
    let mut said = Vec::new();
    let unit = effect.unit.of_differences();
    let known: Vec<Side> = all.first.iter().copied().flatten().collect();
    let changed_first = known.iter().filter(|s| **s == Side::Changed).count();
    if known.len() > 1 && (changed_first == 0 || changed_first == known.len()) {
        let first = one_line(if changed_first == 0 { &all.base } else { &all.changed }, 40);
        said.push(format!(
            "{first} ran first in every pair: what the earlier run leaves behind (a warm cache, a hot engine) cannot be told from the change. Alternate the order."
        ));
    }
    if let Some(test) = effect.order.changed_first.filter(|t| t.p < ORDER_P) {
        said.push(format!(
            "The effect on {} goes with the order of the runs: the difference is {} {} where {} ran first (p = {}). Look for what the earlier run leaves behind, such as prompts in the prefix cache.",
            effect.figure.label(),
            unit.text(test.value.abs()),
            if test.value > 0.0 { "higher" } else { "lower" },
            one_line(&all.changed, 40),
            p_value(test.p)
        ));
    }
    if let Some(test) = effect.order.by_pair.filter(|t| t.p < ORDER_P) {
        said.push(format!(
            "The effect on {} drifts: it {} by {} from one pair to the next (p = {}).",
            effect.figure.label(),
            if test.value > 0.0 { "grows" } else { "falls" },
            unit.text(test.value.abs()),
            p_value(test.p)
        ));
    }
    said
}

/// A p-value with the digits that mean something.
pub(super) fn p_value(p: f64) -> String {
    if p < 0.0001 { "below 0.0001".to_owned() } else { format!("{p:.4}") }
}
