//! Replays of published rows on all cores; shared by `reproduce` and `fit`.

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::sim::Figures;
use elasticserve_core::sim::reproduce::{Case, Deployment, Published, Report, Sequence, replay};

use crate::cmd::BadConfig;
use crate::lab::parallel;

/// Measurements with the runs that are to be replayed.
pub(super) struct Replay {
    published: Published,
    sequences: Vec<Sequence>,
}

/// The groups of rows that `--rows` knows, and the tables that they stand for.
pub(super) const ROWS: [(&str, &[&str]); 10] = [
    ("direct", &["low_rate", "saturation"]),
    ("gateway", &["permits", "queue_budget", "admission_pairs", "mixed_pilot"]),
    ("unloaded", &["unloaded"]),
    ("low-rate", &["low_rate"]),
    ("saturation", &["saturation"]),
    ("overhead", &["gateway_overhead"]),
    ("permits", &["permits"]),
    ("budgets", &["queue_budget"]),
    ("pairs", &["admission_pairs", "mixed_pilot"]),
    ("tenants", &["queue_order_pairs"]),
];

impl Replay {
    pub(super) fn new(published: Published) -> anyhow::Result<Self> {
        let sequences = published.sequences().map_err(|e| BadConfig(e.to_string()))?;
        Ok(Self { published, sequences })
    }

    /// Only the rows of these groups; all if none is named.
    pub(super) fn only(mut self, groups: &[String]) -> Result<Self, BadConfig> {
        let mut tables: Vec<&str> = Vec::new();
        for group in groups {
            let known = ROWS.iter().find(|(name, _)| name == group);
            let names = || ROWS.map(|(name, _)| name).join(", ");
            tables.extend(known.ok_or_else(|| BadConfig(format!("--rows: '{group}' is none of {}", names())))?.1);
        }
        if !groups.is_empty() {
            self.sequences.retain(|sequence| sequence.iter().any(|case| tables.contains(&case.group)));
        }
        if self.sequences.is_empty() {
            return Err(BadConfig("--rows: the measurements have no such rows".to_owned()));
        }
        Ok(self)
    }

    /// Simulates every run with each of the profiles.
    pub(super) fn reports(&self, profiles: &[Profile]) -> anyhow::Result<Vec<Report>> {
        let gateway = self.published.gateway_times();
        let deployments: Vec<Deployment> =
            profiles.iter().map(|profile| Deployment { profile: profile.clone(), gateway }).collect();
        let jobs: Vec<(&Deployment, &Sequence)> =
            deployments.iter().flat_map(|d| self.sequences.iter().map(move |s| (d, s))).collect();
        let results =
            parallel::map(&jobs, parallel::all_cores(), |(deployment, sequence)| replay(sequence, deployment));
        let figures: Vec<Vec<Figures>> =
            results.into_iter().collect::<Result<_, _>>().context("the scheduler broke its own rules")?;
        let reports = figures.chunks(self.sequences.len()).map(|figures| {
            let cases = self.sequences.iter().zip(figures).flat_map(|(cases, figures)| cases.iter().zip(figures));
            Report::new(&self.published, &cases.collect::<Vec<(&Case, &Figures)>>())
        });
        Ok(reports.collect())
    }

    /// Simulates every run.
    pub(super) fn report(&self, profile: &Profile) -> anyhow::Result<Report> {
        let mut reports = self.reports(std::slice::from_ref(profile))?;
        reports.pop().context("no report")
    }
}
