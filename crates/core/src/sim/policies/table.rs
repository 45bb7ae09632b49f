//! Which policies are compared on which workload, and what is expected of them.

use super::{Admission, Outcome, Policy, Workload};
use crate::sched::Order;
use crate::sim::Declares;
use crate::time::Span;

/// What was measured or computed before, to stand beside a row: attainment in percent, good answers per
/// second and Jain's index, as far as they are known.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Expected {
    /// Where it is from.
    pub source: &'static str,
    /// Attainment, in percent.
    pub attainment: f64,
    /// Good answers per second.
    pub goodput: Option<f64>,
    /// Jain's index.
    pub jain: Option<f64>,
}

/// A policy on a workload.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy.
    pub policy: Policy,
    /// What stands beside it.
    pub expected: Option<Expected>,
    /// By seed.
    pub seeds: Vec<(u64, Outcome)>,
}

impl Row {
    /// The mean over the seeds.
    #[must_use]
    pub fn mean(&self) -> Option<Outcome> {
        let all: Vec<Outcome> = self.seeds.iter().map(|(_, outcome)| outcome.clone()).collect();
        Outcome::mean(&all)
    }
}

/// All policies on a workload.
#[derive(Clone, Debug)]
pub struct Table {
    /// The workload's name.
    pub workload: String,
    /// The policies.
    pub rows: Vec<Row>,
}

impl Table {
    /// The mean of a policy's row.
    #[must_use]
    pub fn mean_of(&self, policy: &Policy) -> Option<Outcome> {
        self.rows.iter().find(|row| row.policy == *policy)?.mean()
    }
}

/// How long a request may wait under a budget, as in the published runs.
pub(super) const BUDGET: Admission = Admission::Budget(Span::from_millis(750));
/// The weight of fairness that stands for [`Admission::Price`] in the tables.
pub(super) const MU: f64 = 0.5;
/// The cap that a price is compared with.
pub(super) const HAND_CAP: u32 = 10;
/// The last tenant's permits where fairness is bought by a cap alone.
pub(super) const FAIR_CAP: u32 = 9;

pub(super) const LEAST_SLACK: Policy = Policy::new(Order::LeastSlack, Admission::Predict);
pub(super) const HAND_CAPPED: Policy = LEAST_SLACK.capped(HAND_CAP);
pub(super) const FAIR_CAPPED: Policy = Policy::new(Order::LeastSlack, Admission::Price(0.0)).capped(FAIR_CAP);
pub(super) const PRICED: Policy = Policy::new(Order::LeastSlack, Admission::Price(MU));

/// Where lengths are not declared: an answer is worth the same whoever's it is, as attainment counts it.
pub(super) const VALUE: Policy = Policy::new(Order::Value, Admission::Predict).unweighted();
pub(super) const UNKNOWN: Policy = VALUE.knowing(Declares::None);
pub(super) const HINTED: Policy = VALUE.knowing(Declares::Hint);
pub(super) const HALF: Policy = VALUE.knowing(Declares::Half);

/// A workload with the policies to run on it.
pub type Compared = (Workload, Vec<(Policy, Option<Expected>)>);

/// What is compared: tenants, the fixed workload cold and warm, and what else is given.
#[must_use]
pub fn tables(tenants: Workload, cold: Workload, warm: Workload, others: Vec<Workload>) -> Vec<Compared> {
    let mut all = vec![(tenants, on_tenants()), (cold, on_fixed(64.0)), (warm, on_fixed(77.2))];
    all.extend(others.into_iter().map(|workload| (workload, everything())));
    all
}

fn on_tenants() -> Vec<(Policy, Option<Expected>)> {
    use Order::{Fcfs, Priority, ShortestFirst, Wfq};
    let published = |attainment, goodput, jain| {
        Some(Expected { source: "measured", attainment, goodput: Some(goodput), jain: Some(jain) })
    };
    let other = |attainment, goodput, jain| {
        Some(Expected { source: "another simulator", attainment, goodput: Some(goodput), jain: Some(jain) })
    };
    [
        (Policy::new(Fcfs, Admission::None), other(18.4, 0.74, 0.710)),
        (Policy::new(Fcfs, BUDGET), published(39.0, 2.29, 0.744)),
        (Policy::new(Wfq, BUDGET), published(38.7, 2.26, 0.904)),
        (Policy::new(Priority, BUDGET), other(39.0, 2.31, 0.948)),
        (Policy::new(Fcfs, Admission::Predict), None),
        (Policy::new(Wfq, Admission::Predict), other(67.0, 3.97, 0.829)),
        (Policy::new(Priority, Admission::Predict), None),
        (Policy::new(ShortestFirst, Admission::Predict), None),
        (LEAST_SLACK, other(67.3, 3.98, 0.828)),
        (HAND_CAPPED, other(62.7, 3.38, 0.906)),
        (FAIR_CAPPED, None),
        (Policy::new(Order::LeastSlack, Admission::Price(0.0)), None),
        (PRICED, other(64.2, 3.98, 0.917)),
    ]
    .into_iter()
    .chain(by_knowledge())
    .collect()
}

/// What is known of the lengths of answers, from nothing to everything.
#[must_use]
pub fn by_knowledge() -> Vec<(Policy, Option<Expected>)> {
    let other = |attainment| Some(Expected { source: "another simulator", attainment, goodput: None, jain: None });
    vec![
        (Policy::new(Order::Wfq, BUDGET).knowing(Declares::None), other(40.2)),
        (UNKNOWN, other(53.9)),
        (UNKNOWN.aborting(), other(57.1)),
        (Policy::new(Order::Value, Admission::Predict).knowing(Declares::None).aborting(), None),
        (Policy::new(Order::LeastSlack, Admission::Predict).knowing(Declares::None).aborting(), None),
        (HINTED, None),
        (HINTED.aborting(), other(61.4)),
        (HALF, None),
        (HALF.aborting(), other(62.3)),
        (VALUE, other(67.3)),
    ]
}

fn on_fixed(best_budget: f64) -> Vec<(Policy, Option<Expected>)> {
    let budget = Expected { source: "another simulator", attainment: best_budget, goodput: None, jain: None };
    vec![
        (Policy::new(Order::Fcfs, Admission::None), None),
        (Policy::new(Order::Fcfs, BUDGET), Some(budget)),
        (Policy::new(Order::Fcfs, Admission::Predict), None),
        (LEAST_SLACK, None),
        (PRICED, None),
    ]
}

/// Every order with every kind of admission.
fn everything() -> Vec<(Policy, Option<Expected>)> {
    let orders = [Order::Fcfs, Order::Wfq, Order::Priority, Order::LeastSlack, Order::ShortestFirst, Order::Value];
    let of = |admission: Admission| orders.map(|order| (Policy::new(order, admission), None));
    [BUDGET, Admission::Predict, Admission::Price(0.0), Admission::Price(MU)].into_iter().flat_map(of).collect()
}

/// A line of policies from attainment to fairness: caps, or prices.
#[derive(Clone, Debug)]
pub struct Front {
    /// What is varied.
    pub name: &'static str,
    /// The policies, with what sets each apart.
    pub policies: Vec<(String, Policy)>,
}

/// The two ways from attainment to fairness: caps on the last tenant's permits, and a price on stalls.
#[must_use]
pub fn front_policies() -> [Front; 2] {
    let cap = |permits: u32| (format!("cap {permits}"), LEAST_SLACK.capped(permits));
    let price = |mu: f64| (format!("mu {mu}"), Policy::new(Order::LeastSlack, Admission::Price(mu)));
    [
        Front {
            name: "predict, the last tenant's permits capped",
            policies: [32, 16, 14, 12, 11, 10, 9, 8, 7, 6].map(cap).into(),
        },
        Front {
            name: "price and promise",
            policies: [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.25, 1.5].map(price).into(),
        },
    ]
}

impl Front {
    /// The attainment at a value of Jain's index, between the two neighbours that enclose it first.
    #[must_use]
    pub fn attainment_at(means: &[Outcome], jain: f64) -> Option<f64> {
        means.windows(2).find_map(|pair| {
            let [a, b] = pair else { return None };
            let (low, high) = (a.jain?, b.jain?);
            let inside = low.min(high) <= jain && jain <= low.max(high) && low != high;
            inside.then(|| a.attainment + (b.attainment - a.attainment) * (jain - low) / (high - low))
        })
    }
}
