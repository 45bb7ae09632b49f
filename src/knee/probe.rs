//! Making probes: many at once on virtual time, one after the other on sockets.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use elasticserve_core::outcome::Terminal;
use elasticserve_core::search::{Series, Trial};
use elasticserve_core::time::Span;
use elasticserve_core::work::Plan;
use elasticserve_load::{Progress, Stop};
use elasticserve_report::check::Target;
use elasticserve_report::{Run, Summary, read_run};

use crate::cmd::load::progress;
use crate::lab::{Lab, Terms, Watch, Way, parallel};

/// How long an engine may take to come to rest after a probe.
const PATIENCE: Span = Span::from_secs(120);
/// Between two looks whether a probe can still be of use.
const LOOK: Duration = Duration::from_millis(20);

/// How the report begins to say that a run was stopped.
const CUT: &str = "the run was stopped";

/// What makes probes.
pub(crate) struct Prober {
    pub(crate) lab: Lab,
    pub(crate) way: Way,
    pub(crate) terms: Terms,
    pub(crate) targets: Vec<Target>,
}

/// What a probe on sockets came to.
pub(crate) enum Taken {
    /// It counts: a trial for each target.
    Counted(Vec<Trial>),
    /// It could not meet any more and was ended: so many misses by then.
    CutShort(u32),
    /// A finding about the generator, and which.
    Invalid(String),
    /// The server does not answer any more.
    Gone(String),
    /// Somebody stopped it.
    Interrupted,
}

impl Prober {
    /// The trials of plans on the simulator, one for each target, on all cores. Nothing is written.
    ///
    /// # Errors
    /// A way or a plan that is not for the simulator.
    pub(crate) fn simulated(&self, plans: &[Plan]) -> anyhow::Result<Vec<Vec<Trial>>> {
        let Lab::Simulator(simulator) = &self.lab else { anyhow::bail!("this is no simulator") };
        let of = |plan: &Plan| -> anyhow::Result<Vec<Trial>> {
            let rows = simulator.rows(plan, &self.way, &self.terms)?;
            let slo = |index: u32| plan.arrivals().get(index as usize).map(|a| plan.tenant(a).slo).unwrap_or_default();
            let series = |target: &Target| target.series_of(rows.iter().map(|row| (row, slo(row.index))));
            trials(self.targets.iter().map(series))
        };
        parallel::map(plans, parallel::all_cores(), of).into_iter().collect()
    }

    /// Brings the engine to rest.
    ///
    /// # Errors
    /// An engine that does not answer or does not come to rest.
    pub(crate) async fn rest(&mut self) -> anyhow::Result<()> {
        self.lab.cool_down(PATIENCE).await.map(|_| ())
    }

    /// Offers a plan into a folder of its own, shows the progress, and brings the engine to rest afterwards. After
    /// `doom` misses, if that many end it, what is open is cut.
    ///
    /// # Errors
    /// A process that does not start, a run that cannot be made or read.
    pub(crate) async fn take(
        &mut self,
        plan: &Plan,
        folder: &Path,
        doom: Option<u32>,
        stop: &Stop,
    ) -> anyhow::Result<Taken> {
        let watch = Watch { progress: std::sync::Arc::new(Progress::new()), stop: Stop::new() };
        let window = plan.header().window.unwrap_or(Span::ZERO).scaled_down(self.lab.speed());
        let made = {
            let run = self.lab.run(plan, &self.way, &self.terms, folder, &watch);
            let beside = beside(&watch, doom, window, stop);
            tokio::select! {
                made = run => made,
                never = beside => match never {},
            }
        };
        let interrupted = stop.is_pressed();
        let manifest = match made {
            Ok(manifest) => manifest,
            Err(_) if interrupted => return Ok(Taken::Interrupted),
            Err(error) if self.rest().await.is_err() => return Ok(Taken::Gone(format!("{error:#}"))),
            Err(error) => return Err(error),
        };
        if interrupted || manifest.is_none() {
            return Ok(Taken::Interrupted);
        }
        if let Err(error) = self.rest().await {
            return Ok(Taken::Gone(format!("{error:#}")));
        }
        let run = read_run(folder).with_context(|| folder.display().to_string())?;
        self.judge(&run, watch.stop.is_pressed())
    }

    fn judge(&self, run: &Run, cut: bool) -> anyhow::Result<Taken> {
        let summary = Summary::of(run);
        let faults = faults(&summary, cut);
        if !faults.is_empty() {
            return Ok(Taken::Invalid(faults.join("; ")));
        }
        if cut {
            let ended =
                |state: Terminal| state.was_sent() && !matches!(state, Terminal::Cancelled | Terminal::Censored);
            let misses = run.rows.iter().filter(|row| ended(row.state) && !row.is_good(&run.slo(row))).count();
            return Ok(Taken::CutShort(misses as u32));
        }
        let trials = trials(self.targets.iter().map(|target| target.series(run)))?;
        Ok(Taken::Counted(trials))
    }
}

/// What stands against the generator. Of a run that was cut on purpose it is not said that it was.
fn faults(summary: &Summary, cut: bool) -> Vec<String> {
    let all = summary.invalid_because.iter().chain(&summary.problems);
    all.filter(|fault| !(cut && fault.starts_with(CUT))).cloned().collect()
}

/// The trial of each series.
fn trials(series: impl Iterator<Item = Series>) -> anyhow::Result<Vec<Trial>> {
    series.map(|series| series.trial().context("a target is about arrivals of which a probe has none")).collect()
}

/// What goes on beside a run: the progress is shown, and the run is stopped when it is doomed or somebody says so.
async fn beside(watch: &Watch, doom: Option<u32>, window: Span, stop: &Stop) -> std::convert::Infallible {
    let shown = async {
        progress::show(&watch.progress, window).await;
        std::future::pending::<()>().await;
    };
    let watched = async {
        let mut looks = tokio::time::interval(LOOK);
        loop {
            looks.tick().await;
            if stop.is_pressed() || doom.is_some_and(|doom| misses(&watch.progress) >= doom) {
                // Nothing more is sent, and what is open is cut.
                watch.stop.press();
                watch.stop.press();
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = shown => {}
        () = watched => {}
    }
    std::future::pending().await
}

/// Arrivals that have ended and were not served as they should be.
fn misses(progress: &Progress) -> u32 {
    // Read in this order a good answer may be missed, never counted twice.
    let good = progress.good();
    (progress.completed() + progress.refused() + progress.other()).saturating_sub(good)
}
