//! Scenario files: what is offered, by whom, to which server and within which limits, in TOML.

mod check;
mod raw;
mod settings;
mod value;

use std::path::{Path, PathBuf};

use elasticserve_core::work::{Mix, TraceOptions};

use self::raw::RawScenario;
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
