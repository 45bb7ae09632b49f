//! Scenario files: what is offered, by whom, to which server and within which limits, in TOML.

mod check;
mod raw;
mod settings;
mod value;

use std::path::{Path, PathBuf};

use elasticserve_core::work::{Mix, Plan, TraceOptions};
use serde::Deserialize;

use self::raw::{RawRun, RawScenario, RawTarget};
use super::work::WorkArgs;
use crate::cmd::{BadConfig, BadUsage};

pub(super) use settings::Settings;

/// A checked scenario.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) work: Work,
    pub(super) settings: Settings,
}

/// What is offered.
#[derive(Debug)]
pub(super) enum Work {
    /// To be drawn.
    Mix(Box<Mix>),
    /// To be replayed.
    Trace { path: PathBuf, options: TraceOptions },
}

impl Scenario {
    /// Reads a scenario file. What the flags say of the work takes the place of what the file says.
    ///
    /// # Errors
    /// [`BadConfig`] names the file, the key and what would be right; [`BadUsage`] a flag that has no place in it.
    pub(super) fn read(path: &Path, args: &WorkArgs) -> anyhow::Result<Self> {
        let bad = |problem: String| BadConfig(format!("--scenario {}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        let mut raw: RawScenario = elasticserve_core::config::from_toml(&text).map_err(bad)?;
        raw.overridden_by(args)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let work = check::work(&raw, folder).map_err(bad)?;
        Ok(Self { work, settings: Settings::checked(raw).map_err(bad)? })
    }
}

/// The work of a scenario as a part of another file. What it says of target and run is left aside.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct WorkPart(RawScenario);

impl WorkPart {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// Names the file, the key and what would be right.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        elasticserve_core::config::from_toml(&text).map(Self).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The plan for a seed, which takes the place of the scenario's own; in the name of a trace's file `{seed}` stands
    /// for it. Files are relative to `folder`.
    ///
    /// # Errors
    /// Names the key and what would be right.
    pub(crate) fn plan(&self, folder: &Path, seed: u64) -> Result<Plan, String> {
        let mut raw = self.0.clone();
        match &mut raw.trace {
            Some(trace) => {
                let named = trace.file.to_string_lossy().replace("{seed}", &seed.to_string());
                trace.file = PathBuf::from(named);
            }
            None => raw.seed = Some(seed),
        }
        super::plan::draw(check::work(&raw, folder)?)
    }
}

/// `[target]` and `[run]` of a scenario as parts of another file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct TargetPart(RawTarget);

/// See [`TargetPart`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct RunPart(RawRun);

impl RunPart {
    /// Whether it says how late the generator may be.
    pub(crate) const fn says_send_lag(&self) -> bool {
        self.0.max_send_lag.is_some()
    }
}

impl TargetPart {
    /// Whether it says that answers may be shorter than planned.
    pub(crate) const fn says_ignore_eos(&self) -> bool {
        self.0.ignore_eos.is_some()
    }

    /// Checked, with the kind of prompts: `ids` or `text`.
    pub(super) fn settings(self, run: RunPart, prompts: Option<String>) -> Result<Settings, String> {
        let mut raw = RawScenario { target: self.0, run: run.0, ..RawScenario::default() };
        raw.prompts.kind = prompts;
        Settings::checked(raw)
    }
}

impl RawScenario {
    fn overridden_by(&mut self, args: &WorkArgs) -> Result<(), BadUsage> {
        self.seed = args.seed.or(self.seed);
        if let Some(count) = args.num_prompts {
            (self.requests, self.duration) = (std::num::NonZeroU32::new(count), None);
        }
        if let Some(window) = args.duration {
            (self.requests, self.duration) = (None, Some(value::Time(window)));
        }
        if let Some(rate) = args.request_rate {
            let place = self.arrivals.as_mut().and_then(raw::RawArrivals::rate_mut);
            *place.ok_or_else(|| no_place("--request-rate", "arrivals with a rate for all tenants"))? = rate;
        }
        if let Some(workers) = args.concurrency {
            let closed = self.closed.as_mut().ok_or_else(|| no_place("--concurrency", "closed"))?;
            closed.workers = workers;
        }
        Ok(())
    }
}

fn no_place(flag: &str, what: &str) -> BadUsage {
    BadUsage(format!("{flag} cannot be used with this --scenario: the file has no {what}"))
}
