//! From rows, as they come, to an account.

use std::collections::{BTreeMap, BTreeSet};

use elasticserve_core::ledger::{Manifest, Row};
use elasticserve_core::outcome::Terminal;
use elasticserve_core::time::{Span, Tick};
use elasticserve_core::work::LoadModel;

use super::columns::Columns;
use super::{Account, Arrival, Words, due};
use crate::MAX_DETAIL;

/// The most distinct endings that are kept apart while rows come; what is said beyond them is left out.
const MAX_WORDS: usize = 1 << 16;
/// The most examples of a problem that are kept.
pub(crate) const MAX_EXAMPLES: usize = 5;

/// What one row says, as far as an account needs it.
pub(crate) struct Parsed {
    arrival: Arrival,
    attempt: u32,
    words: Option<Words>,
}

impl Parsed {
    /// What a row says; its tenant has the given place in the plan.
    pub(crate) fn of(row: &Row, tenant: u32) -> Self {
        let words = (row.state != Terminal::Completed).then(|| {
            let said = row.reason.as_ref().or(row.error.as_ref());
            (row.status, said.map(|w| w.chars().take(MAX_DETAIL).collect()))
        });
        Self { arrival: Arrival::of(row, tenant), attempt: row.attempt, words }
    }

    /// Which row it is: the arrival and the attempt.
    pub(crate) const fn key(&self) -> (u32, u32) {
        (self.arrival.index, self.attempt)
    }
}

/// Arrivals with a problem: how many, and the first few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offenders {
    pub(crate) n: u32,
    pub(crate) first: Vec<u32>,
}

impl Offenders {
    pub(crate) fn add(&mut self, index: u32) {
        self.n += 1;
        if self.first.len() < MAX_EXAMPLES {
            self.first.push(index);
        }
    }
}

/// What does not add up in the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems {
    pub(crate) missing: Offenders,
    pub(crate) never_due: Offenders,
    pub(crate) sent_without_time: Offenders,
    pub(crate) unsent_with_time: Offenders,
    pub(crate) completed_without_times: Offenders,
    pub(crate) orphans: Offenders,
}

/// An account as it grows.
pub(crate) struct Gatherer {
    manifest: Manifest,
    tenants: BTreeMap<String, u32>,
    columns: Columns,
    /// The attempts of rows beyond the first of their arrival, by their place.
    attempts_of: BTreeMap<u32, u32>,
    /// Which further attempts there are.
    further: BTreeSet<(u32, u32)>,
    /// A bit for each arrival of the plan whose first attempt has come.
    first: Vec<u64>,
    words: BTreeMap<Words, u32>,
    attempts: u32,
    first_lags: Vec<Span>,
    last_end: Option<Tick>,
    problems: Problems,
    in_order: bool,
    due: u32,
}

impl Gatherer {
    /// For the rows of a run, of which about so many will come.
    pub(crate) fn new(manifest: &Manifest, rows: usize) -> Self {
        Self {
            manifest: manifest.clone(),
            tenants: tenant_places(manifest),
            columns: Columns::default(),
            attempts_of: BTreeMap::new(),
            further: BTreeSet::new(),
            first: vec![0; (manifest.plan.count as usize).div_ceil(64)],
            words: BTreeMap::new(),
            attempts: 0,
            first_lags: Vec::with_capacity(rows),
            last_end: None,
            problems: Problems::default(),
            in_order: is_in_order(manifest),
            due: due(manifest),
        }
    }

    /// The place of a tenant in the plan.
    pub(crate) fn tenant(&self, name: &str) -> Option<u32> {
        self.tenants.get(name).copied()
    }

    /// Whether this row has come already.
    pub(crate) fn holds(&self, (index, attempt): (u32, u32)) -> bool {
        if attempt > 0 { self.further.contains(&(index, attempt)) } else { self.has_first(index) }
    }

    fn has_first(&self, index: u32) -> bool {
        self.first.get(index as usize / 64).is_some_and(|bits| bits >> (index % 64) & 1 == 1)
    }

    /// Takes a row in.
    pub(crate) fn add(&mut self, row: Parsed) {
        let Parsed { mut arrival, attempt, words } = row;
        let place = self.columns.len() as u32;
        if attempt > 0 {
            self.further.insert((arrival.index, attempt));
            self.attempts_of.insert(place, attempt);
        } else {
            if let Some(bits) = self.first.get_mut(arrival.index as usize / 64) {
                *bits |= 1 << (arrival.index % 64);
            }
            self.first_lags.extend(arrival.send_started.map(|t| t.since(arrival.planned)));
        }
        self.attempts += u32::from(arrival.state.was_sent());
        self.last_end = self.last_end.max(arrival.end);
        self.examine(&arrival);
        arrival.ending = words.map(|words| self.place_of(words));
        self.columns.push(&arrival);
    }

    fn place_of(&mut self, words: Words) -> u32 {
        let next = self.words.len() as u32;
        let words =
            if self.words.len() < MAX_WORDS || self.words.contains_key(&words) { words } else { (words.0, None) };
        *self.words.entry(words).or_insert(next)
    }

    fn examine(&mut self, a: &Arrival) {
        let p = &mut self.problems;
        let sent = a.state.was_sent();
        for (holds, offenders) in [
            (self.in_order && a.index >= self.due, &mut p.never_due),
            (sent && a.send_started.is_none(), &mut p.sent_without_time),
            (!sent && a.send_started.is_some(), &mut p.unsent_with_time),
            (
                a.state == Terminal::Completed && (a.first_content.is_none() || a.end.is_none()),
                &mut p.completed_without_times,
            ),
        ] {
            if holds {
                offenders.add(a.index);
            }
        }
    }

    /// The account of all that came.
    pub(crate) fn finish(mut self, torn: bool) -> Account {
        for (place, attempt) in &self.attempts_of {
            let index = self.columns.index(*place as usize);
            let before =
                if *attempt > 1 { self.further.contains(&(index, attempt - 1)) } else { self.has_first(index) };
            if !before {
                self.problems.orphans.add(index);
            }
        }
        if self.in_order {
            let further: BTreeSet<u32> = self.further.iter().map(|f| f.0).collect();
            for index in 0..self.due {
                if !self.has_first(index) && !further.contains(&index) {
                    self.problems.missing.add(index);
                }
            }
        }
        self.put_in_order();
        let mut endings: Vec<(Words, u32)> = self.words.into_iter().collect();
        endings.sort_by_key(|e| e.1);
        Account {
            slos: self.manifest.plan.tenants.iter().map(|t| t.slo).collect(),
            manifest: self.manifest,
            torn,
            columns: self.columns,
            endings: endings.into_iter().map(|e| e.0).collect(),
            retries: self.attempts_of.len() as u32,
            attempts: self.attempts,
            first_lags: self.first_lags,
            last_end: self.last_end,
            problems: self.problems,
        }
    }

    /// Keeps the last attempt of each arrival, in order of the plan.
    fn put_in_order(&mut self) {
        let n = self.columns.len();
        if self.attempts_of.is_empty() && (1..n).all(|i| self.columns.index(i - 1) < self.columns.index(i)) {
            return;
        }
        // Index and place in one number sort faster than by a look-up each.
        let mut keys: Vec<u64> = (0..n).map(|i| u64::from(self.columns.index(i)) << 32 | i as u64).collect();
        keys.sort_unstable();
        let attempt = |place: u32| self.attempts_of.get(&place).copied().unwrap_or(0);
        let mut places: Vec<u32> = Vec::with_capacity(n);
        for of_arrival in keys.chunk_by(|a, b| a >> 32 == b >> 32) {
            let last = of_arrival.iter().map(|key| *key as u32).max_by_key(|place| attempt(*place));
            places.extend(last);
        }
        drop(keys);
        self.columns.pick(&places);
    }
}

/// The place of each tenant in the plan, by name.
pub(crate) fn tenant_places(manifest: &Manifest) -> BTreeMap<String, u32> {
    let mut places = BTreeMap::new();
    for (place, tenant) in (0..).zip(&manifest.plan.tenants) {
        places.entry(tenant.name.clone()).or_insert(place);
    }
    places
}

/// Whether what came due is the first of the plan. Of sessions that ended with their window it is not: each user got as
/// far as the answers let it.
pub(crate) const fn is_in_order(manifest: &Manifest) -> bool {
    !matches!(manifest.plan.model, LoadModel::Sessions { .. })
}
