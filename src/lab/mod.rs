//! Where runs are made, and how: what `experiment`, `sweep`, `capacity` and `calibrate` have in common.
//!
//! ```text
//! Stand ── open ──> Lab ── run(plan, way, terms, folder) ──> run folder, Manifest
//! ```
//!
//! - A [`Stand`] is what answers: the simulator on virtual time, the built-in mock in real time, or servers that
//!   are there already.
//! - A [`Way`] is how requests get to it: straight, through a gateway that is started for the run, or to another
//!   URL.
//! - [`Terms`] are what a run is told besides its plan.
//!
//! A plan is always given in real time. Where a stand runs faster, the lab scales the plan, the limits and the
//! gateway's knowledge of time, and the manifest says so in `time_scale`.
//!
//! Mock and gateway are processes of their own, so that the generator's figures about itself are its own. They end
//! with the value that holds them, and when this program is gone.
//!
//! ```text
//! let mut lab = Lab::open(Stand::Mock { profile: "gb10-qwen3-8b-fp8".into(), speed: 4.0 }, &folder).await?;
//! let way = Way::gateway("wfq+budget:750ms".parse()?, 32);
//! for (place, plan) in plans.iter().enumerate() {
//!     let quiet = lab.cool_down(COOL_DOWN).await?;          // nothing runs or waits any more
//!     let made = lab.run(plan, &way, &Terms::new("probe"), &folder.join(place.to_string()), &watch).await?;
//! }
//! ```

mod child;
mod idle;
mod live;
pub(crate) mod parallel;
mod simulate;
mod simulator;
mod terms;
mod way;

use std::path::Path;
use std::sync::Arc;

use elasticserve_core::engine::Profile;
use elasticserve_core::ledger::Manifest;
use elasticserve_core::sim::reproduce::GatewayTimes;
use elasticserve_core::time::Span;
use elasticserve_core::work::Plan;
use elasticserve_load::{BaseUrl, Progress, Stop};

pub(crate) use idle::{Quiet, Reset};
use live::Live;
pub(crate) use simulate::{simulated_manifest, write_simulation};
pub(crate) use simulator::Simulator;
pub(crate) use terms::{Salt, Terms};
pub(crate) use way::{Gate, Way, plan_policies};

/// What answers.
#[derive(Clone, Debug)]
pub(crate) enum Stand {
    /// The engine model on virtual time; each run meets an engine that holds nothing but what runs before it with
    /// the same salt have sent.
    Simulator {
        /// The engine.
        profile: Box<Profile>,
        /// What a gateway takes of a request's time.
        gateway: GatewayTimes,
    },
    /// The engine model in real time, as a process that lives as long as the lab.
    Mock {
        /// A built-in profile's name, or a file that ends in `.toml`.
        profile: String,
        /// How many times faster than real time everything runs, above 0 and at most 1000.
        speed: f64,
    },
    /// Servers that are there already, at least one. Without a gateway the first one gets everything.
    Servers(Vec<BaseUrl>),
}

/// What is told of a run while it is made, and how it is stopped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Live counters; of a simulation they stay at zero.
    pub(crate) progress: Arc<Progress>,
    /// Stops the run early: see [`Stop`]. A simulation is not stopped.
    pub(crate) stop: Stop,
}

/// An open stand. Dropping it ends the processes that it has started.
pub(crate) enum Lab {
    /// Virtual time.
    Simulator(Simulator),
    /// Real time, perhaps scaled.
    Live(Box<Live>),
}

impl Lab {
    /// Opens a stand; what it starts writes its log into `logs`, which is created.
    ///
    /// # Errors
    /// A configuration that is wrong, or a process that does not start, with its own words.
    pub(crate) async fn open(stand: Stand, logs: &Path) -> anyhow::Result<Self> {
        Ok(match stand {
            Stand::Simulator { profile, gateway } => Self::Simulator(Simulator::new(*profile, gateway)),
            Stand::Mock { profile, speed } => Self::Live(Box::new(Live::mock(&profile, speed, logs).await?)),
            Stand::Servers(urls) => Self::Live(Box::new(Live::servers(urls)?)),
        })
    }

    /// How many times faster than real time everything runs; 1 for the simulator, whose figures are in real time.
    pub(crate) const fn speed(&self) -> f64 {
        match self {
            Self::Simulator(_) => 1.0,
            Self::Live(live) => live.speed(),
        }
    }

    /// Makes a run into a folder, which must not hold one, and gives its manifest: `None` where it was stopped
    /// before its first arrival. One that was stopped later says so in its end.
    ///
    /// The gateway of a [`Way::Gateway`] is started before the run and stopped after it; its configuration and its
    /// log stay in the folder, as the log of a mock does in that of [`Lab::open`].
    ///
    /// # Errors
    /// A way that does not fit the plan, a process that does not start, a run that could not be made.
    pub(crate) async fn run(
        &mut self,
        plan: &Plan,
        way: &Way,
        terms: &Terms,
        folder: &Path,
        watch: &Watch,
    ) -> anyhow::Result<Option<Manifest>> {
        match self {
            Self::Simulator(simulator) => simulator.run(plan, way, terms, folder).map(Some),
            Self::Live(live) => live.run(plan, way, terms, folder, watch).await,
        }
    }

    /// Ends what was started, in good order; dropping the lab kills it.
    pub(crate) async fn close(self) {
        if let Self::Live(live) = self {
            live.close().await;
        }
    }

    /// Waits until no engine runs or holds anything, by its own metrics, at most `patience`; where it offers none,
    /// pauses. Times are of the clock, not scaled.
    ///
    /// # Errors
    /// An engine that is still busy then, or does not answer.
    pub(crate) async fn cool_down(&mut self, patience: Span) -> anyhow::Result<Quiet> {
        match self {
            Self::Simulator(_) => Ok(Quiet::Idle(Span::ZERO)),
            Self::Live(live) => live.cool_down(patience).await,
        }
    }

    /// Empties the engines' prefix caches where they offer that.
    ///
    /// # Errors
    /// An engine that does not answer.
    pub(crate) async fn reset_prefix_cache(&mut self) -> anyhow::Result<Reset> {
        match self {
            Self::Simulator(simulator) => {
                simulator.forget();
                Ok(Reset::Done)
            }
            Self::Live(live) => live.reset_prefix_cache().await,
        }
    }
}
