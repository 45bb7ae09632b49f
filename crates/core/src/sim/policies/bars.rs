//! What policies must reach.

use super::table::{BUDGET, FAIR_CAPPED, HALF, HAND_CAPPED, HINTED, LEAST_SLACK, PRICED, UNKNOWN, VALUE};
use super::{Admission, Outcome, Policy, Table};
use crate::sched::Order;
use crate::sim::Declares;

/// A figure with the bound that it must keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it says.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// At least so much.
    pub least: f64,
    /// Whether it does.
    pub ok: bool,
}

impl Bar {
    fn least(name: impl Into<String>, value: f64, least: f64) -> Self {
        Self { name: name.into(), value, least, ok: value >= least }
    }
}

/// The bars of the tenants' table and of the fixed workload's, cold and warm; `hindsight` is the attainment
/// of the search that knows everything, if it was run.
///
/// Values are in percent and points, and turned so that more is better.
#[must_use]
pub fn bars(tenants: &Table, cold: &Table, warm: &Table, hindsight: Option<f64>) -> Vec<Bar> {
    let mut all = Vec::new();
    if let Some(plain) = tenants.mean_of(&LEAST_SLACK) {
        all.push(Bar::least("least-slack + predict: attainment", percent(plain.attainment), 65.0));
        all.push(Bar::least("least-slack + predict: offered work that is not admitted to miss", met(&plain), 98.0));
        if let Some(best) = hindsight {
            let behind = percent(plain.attainment - best);
            all.push(Bar::least("least-slack + predict: against the search in hindsight", behind, -3.0));
        }
    }
    if let Some(capped) = tenants.mean_of(&FAIR_CAPPED) {
        let name = FAIR_CAPPED.to_string();
        all.push(Bar::least(format!("{name}: attainment"), percent(capped.attainment), 60.0));
        all.push(Bar::least(format!("{name}: Jain"), capped.jain.unwrap_or(0.0), 0.90));
        all.push(Bar::least(format!("{name}: lowest tenant"), percent(capped.lowest.unwrap_or(0.0)), 33.0));
    }
    if let (Some(priced), Some(capped)) = (tenants.mean_of(&PRICED), tenants.mean_of(&HAND_CAPPED)) {
        all.extend(dominates(&priced, &capped));
    }
    all.extend(undeclared(tenants));
    all.extend(signs(tenants));
    all.extend(fixed(cold));
    all.extend(fixed(warm));
    all
}

fn percent(share: f64) -> f64 {
    share * 100.0
}

fn met(outcome: &Outcome) -> f64 {
    percent(1.0 - outcome.missed)
}

/// A price against a cap, in every column.
fn dominates(priced: &Outcome, capped: &Outcome) -> [Bar; 5] {
    let name = |what: &str| format!("{PRICED} over a cap of 10: {what}");
    let lowest = |o: &Outcome| percent(o.lowest.unwrap_or(0.0));
    [
        Bar::least(name("attainment"), percent(priced.attainment), percent(capped.attainment)),
        Bar::least(name("goodput"), priced.goodput, capped.goodput),
        Bar::least(name("Jain"), priced.jain.unwrap_or(0.0), capped.jain.unwrap_or(0.0)),
        Bar::least(name("lowest tenant"), lowest(priced), lowest(capped)),
        Bar::least(name("offered work that is not admitted to miss"), met(priced), met(capped)),
    ]
}

/// What must be reached where the lengths of answers are not declared, or hardly.
fn undeclared(tenants: &Table) -> Vec<Bar> {
    let of = |policy: Policy| tenants.mean_of(&policy).map(|o| (format!("{policy}: "), o));
    let mut all = Vec::new();
    for (policy, least) in [(UNKNOWN, 50.0), (UNKNOWN.aborting(), 53.0), (HINTED.aborting(), 58.0), (VALUE, 65.0)] {
        let Some((name, outcome)) = of(policy) else { continue };
        all.push(Bar::least(format!("{name}attainment"), percent(outcome.attainment), least));
        if policy.declares == Declares::None {
            // The first tenant has the tightest limits.
            let strictest = outcome.tenants.first().copied().unwrap_or(0.0);
            all.push(Bar::least(format!("{name}strictest tenant"), percent(strictest), 10.0));
        }
    }
    if let (Some((_, nothing)), Some((name, half)), Some((_, everything))) =
        (of(UNKNOWN.aborting()), of(HALF.aborting()), of(VALUE))
    {
        let gain = |more: &Outcome, less: &Outcome| percent(more.attainment - less.attainment);
        all.push(Bar::least(format!("{name}gain over none"), gain(&half, &nothing), 0.0));
        all.push(Bar::least(format!("{name}what all would gain"), gain(&everything, &half), 0.0));
    }
    all
}

/// The effects of fair queueing that were measured: it is fairer, and moves answers from the last tenant
/// to the first.
fn signs(tenants: &Table) -> Vec<Bar> {
    let of = |order| tenants.mean_of(&Policy::new(order, BUDGET));
    let (Some(fcfs), Some(wfq)) = (of(Order::Fcfs), of(Order::Wfq)) else { return Vec::new() };
    let gain = |of: &dyn Fn(&Outcome) -> Option<f64>| of(&wfq).zip(of(&fcfs)).map_or(0.0, |(a, b)| a - b);
    let above = f64::MIN_POSITIVE;
    vec![
        Bar::least("wfq against fcfs, 750 ms: gain of Jain's index", gain(&|o| o.jain), above),
        Bar::least(
            "wfq against fcfs, 750 ms: first tenant's gain",
            percent(gain(&|o| o.tenants.first().copied())),
            above,
        ),
        Bar::least(
            "wfq against fcfs, 750 ms: last tenant's loss",
            -percent(gain(&|o| o.tenants.last().copied())),
            above,
        ),
    ]
}

fn fixed(table: &Table) -> Vec<Bar> {
    let Some(budget) = table.mean_of(&Policy::new(Order::Fcfs, BUDGET)) else { return Vec::new() };
    let mut all = Vec::new();
    for policy in [Policy::new(Order::Fcfs, Admission::Predict), LEAST_SLACK, PRICED] {
        let Some(outcome) = table.mean_of(&policy) else { continue };
        let name = |what: &str| format!("{}, {policy}: {what}", table.workload);
        let gain = percent(outcome.attainment - budget.attainment);
        all.push(Bar::least(name("attainment against a budget of 750 ms"), gain, -0.5));
        let told = percent(outcome.at_arrival.unwrap_or(1.0));
        all.push(Bar::least(name("refusals told at arrival"), told, 85.0));
    }
    all
}
