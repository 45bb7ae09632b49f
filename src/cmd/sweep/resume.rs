//! What is in the folder of a sweep already.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use elasticserve_core::work::Plan;
use elasticserve_report::check::Target;
use elasticserve_report::{Summary, is_run_folder, read_run};

use crate::cmd::BadConfig;

/// Where a run goes.
pub(super) struct Place {
    folder: PathBuf,
    plan: Plan,
    state: State,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is there.
    Empty,
    /// The run is there.
    Finished,
    /// A run is there that was not finished or does not count.
    Broken,
}

/// The most runs that are set aside at one place.
const MAX_ASIDE: u32 = 1000;

impl Place {
    /// What is at a place for a run of this plan.
    ///
    /// # Errors
    /// A run of another plan, or a target about a tenant that the plan does not have.
    pub(super) fn look(folder: PathBuf, plan: Plan, target: &Target) -> anyhow::Result<Self> {
        if let Some(tenant) = target.tenant.as_ref().filter(|t| !plan.header().tenants.iter().any(|p| p.name == **t)) {
            return Err(BadConfig(format!("--target: the plan has no tenant '{tenant}'")).into());
        }
        let state = match folder.exists() {
            false => State::Empty,
            true if !is_run_folder(&folder) => State::Broken,
            true => finished(&folder, &plan)?,
        };
        Ok(Self { folder, plan, state })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) const fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// Makes room for a run.
    pub(super) fn clear(&self) -> anyhow::Result<()> {
        match self.state {
            State::Broken => self.set_aside(),
            State::Empty | State::Finished => Ok(()),
        }
    }

    /// Renames what is there, so that nothing that was measured is lost.
    pub(super) fn set_aside(&self) -> anyhow::Result<()> {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let aside = (1..=MAX_ASIDE).map(|n| self.folder.with_file_name(format!("{name}.aside-{n}")));
        let free = aside.into_iter().find(|path| !path.exists());
        let free = free.with_context(|| format!("{} was set aside {MAX_ASIDE} times", self.folder.display()))?;
        fs::rename(&self.folder, &free).with_context(|| self.folder.display().to_string())
    }
}

/// Whether the run in a folder is finished and counts.
fn finished(folder: &Path, plan: &Plan) -> anyhow::Result<State> {
    // Half a manifest or a broken ledger is what a kill leaves.
    let Ok(run) = read_run(folder) else { return Ok(State::Broken) };
    let header = plan.header();
    if run.manifest.plan.count != header.count || run.manifest.plan.seed != header.seed || !same_work(&run, plan) {
        let problem = format!(
            "{} holds a run of other work: take another --result-dir, or the flags that it was made with",
            folder.display()
        );
        return Err(BadConfig(problem).into());
    }
    let summary = Summary::of(&run);
    Ok(if summary.valid && summary.reconciled { State::Finished } else { State::Broken })
}

/// Whether a run was of this plan. What a faster stand was given is the same plan in scaled time.
fn same_work(run: &elasticserve_report::Run, plan: &Plan) -> bool {
    let scale = run.manifest.time_scale;
    run.manifest.plan_hash == if scale == 1.0 { plan.hash() } else { plan.sped_up(scale).hash() }
}
