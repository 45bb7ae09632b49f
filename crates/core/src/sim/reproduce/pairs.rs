//! The published pairs and the effects that were published of them, as figures: nothing is simulated.

use std::collections::BTreeMap;

use super::column::Column;
use super::published::{Cells, Effect, Pair, Published, PublishedError, columns};

/// A published table of pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct PairTable {
    /// The table's name.
    pub group: &'static str,
    /// What the sides are called: without the change, with it.
    pub sides: [&'static str; 2],
    /// Requests of each run.
    pub requests: u32,
    /// The pairs, in the order in which they ran.
    pub pairs: Vec<PairRow>,
    /// The medians that were published of them.
    pub effects: Vec<PublishedEffect>,
}

/// A published pair.
#[derive(Clone, Debug, PartialEq)]
pub struct PairRow {
    /// The seed of its trace.
    pub seed: u64,
    /// What was measured without the change and with it.
    pub sides: [Vec<(Column, f64)>; 2],
    /// Which side ran first, where that is known: 0 without the change, 1 with it.
    pub first: Option<usize>,
}

/// A published median over pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedEffect {
    /// Its name.
    pub name: String,
    /// The median.
    pub median: f64,
    /// The interval, where one was published.
    pub interval: Option<[f64; 2]>,
}

impl Published {
    /// The tables of pairs that have any.
    ///
    /// # Errors
    /// [`PublishedError::Row`] names a pair with a figure that there is not.
    pub fn pair_tables(&self) -> Result<Vec<PairTable>, PublishedError> {
        let admission = self.pair_table(
            "admission_pairs",
            ["control", "candidate"],
            &self.admission_pairs,
            &self.admission_effects,
        );
        let order =
            self.pair_table("queue_order_pairs", ["fcfs", "wfq"], &self.queue_order_pairs, &self.queue_order_effects);
        let tables = [admission?, order?];
        Ok(tables.into_iter().filter(|t| !t.pairs.is_empty()).collect())
    }

    fn pair_table(
        &self,
        group: &'static str,
        sides: [&'static str; 2],
        pairs: &[Pair],
        effects: &BTreeMap<String, Effect>,
    ) -> Result<PairTable, PublishedError> {
        let order = self.pair_order.get(group);
        let row = |(place, pair): (usize, &Pair)| {
            let first = order.and_then(|o| o.get(place)).and_then(|name| sides.iter().position(|s| s == name));
            let side = |name: &str| side(group, pair.seed, &pair.cells, name);
            Ok(PairRow { seed: pair.seed, sides: [side(sides[0])?, side(sides[1])?], first })
        };
        let medians = effects.iter().filter_map(|(name, effect)| match effect {
            Effect::Median { median, low, high } => Some(PublishedEffect {
                name: name.clone(),
                median: *median,
                interval: low.zip(*high).map(<[f64; 2]>::from),
            }),
            Effect::Other(_) => None,
        });
        Ok(PairTable {
            group,
            sides,
            requests: self.requests.get(group).copied().unwrap_or(self.workload.requests),
            pairs: pairs.iter().enumerate().map(row).collect::<Result<_, PublishedError>>()?,
            effects: medians.collect(),
        })
    }
}

fn side(group: &str, seed: u64, cells: &Cells, name: &str) -> Result<Vec<(Column, f64)>, PublishedError> {
    columns(&format!("{group}/{seed}"), cells, Some(name))
}
