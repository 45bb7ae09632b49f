//! A search that knows every arrival, its length and what each choice leads to.
//!
//! It looks for the set of requests that are best turned away at arrival; the rest goes by the least slack
//! behind the same predictive admission, without caution. Simulation tells how many answers are good. The search
//! climbs: it changes the set a little, simulates, and keeps what is no worse. What it finds is reachable, so the
//! true optimum is not below it; it says how much a rule that knows no future may still gain.

use super::{Admission, Policy, Workload, setup};
use crate::engine::Profile;
use crate::outcome::Terminal;
use crate::rng::{Random, Stream};
use crate::sched::{AuditError, Caution, Order};
use crate::sim::Setup;
use crate::time::Span;
use crate::work::{Arrival, Plan};

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hindsight {
    /// Good answers as a share of what was offered.
    pub attainment: f64,
    /// Simulations that it took.
    pub tried: u32,
}

/// Searches with at most so many simulations. The same seed finds the same.
///
/// # Errors
/// An [`AuditError`] if the scheduler's invariants break: a defect of this program.
pub fn search(
    workload: &Workload,
    plan: &Plan,
    profile: &Profile,
    seed: u64,
    budget: u32,
) -> Result<Hindsight, AuditError> {
    let policy = Policy::new(Order::LeastSlack, Admission::Predict);
    let mut setup = setup(workload, plan, profile, &policy);
    let mut random = Random::new(seed, Stream::Test);
    let count = plan.arrivals().len();
    let all = vec![false; count];
    // Where the rule itself ends is a good place to start.
    let good = simulate(plan, &setup, &all)?;
    let mut best: Vec<bool> = good.iter().map(|good| !good).collect();
    if let Some(predict) = setup.gateway.as_mut().and_then(|g| g.scheduler.predict.as_mut()) {
        predict.caution = Caution { pad: Span::ZERO, margin_permille: 0 };
    }
    let mut score = sum(&simulate(plan, &setup, &best)?).max(sum(&good));
    let mut tried = 2;
    while tried < budget {
        let mut banned = best.clone();
        for _ in 0..random.between(1, 3) {
            change(&mut banned, &mut random);
        }
        let found = sum(&simulate(plan, &setup, &banned)?);
        tried += 1;
        if found >= score {
            (score, best) = (found, banned);
        }
    }
    Ok(Hindsight { attainment: score as f64 / count.max(1) as f64, tried })
}

fn sum(good: &[bool]) -> usize {
    good.iter().filter(|good| **good).count()
}

/// Lets one in, turns one away, or both, near to each other in time.
fn change(banned: &mut [bool], random: &mut Random) {
    const NEAR: u64 = 20;
    let Some(last) = (banned.len() as u64).checked_sub(1) else { return };
    let place = random.between(0, last);
    let other = random.between(place.saturating_sub(NEAR), (place + NEAR).min(last)) as usize;
    let place = place as usize;
    if banned[place] != banned[other] {
        banned.swap(place, other);
    } else {
        banned[place] = !banned[place];
    }
}

/// Which requests get a good answer if some are turned away.
fn simulate(plan: &Plan, setup: &Setup, banned: &[bool]) -> Result<Vec<bool>, AuditError> {
    let kept = |a: &&Arrival| !banned.get(a.index as usize).copied().unwrap_or(false);
    let arrivals = plan.arrivals().iter().filter(kept).map(|a| (*a, plan.prompt(a)));
    let mut good = vec![false; plan.arrivals().len()];
    crate::sim::run_arrivals(&plan.header().tenants, arrivals, setup, |record| {
        let row = record.to_row();
        if let Some(good) = good.get_mut(row.index as usize) {
            *good = row.state == Terminal::Completed && row.is_good(&plan.tenant(&record.arrival).slo);
        }
    })?;
    Ok(good)
}
