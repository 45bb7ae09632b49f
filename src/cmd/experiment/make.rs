//! Making the runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use elasticserve_core::engine::Profile;
use elasticserve_core::ledger::Tolerances;
use elasticserve_core::time::Span;
use elasticserve_load::{CeilingCheck, Stop};
use elasticserve_report::write_run;

use super::design::{Design, Place};
use super::raw::RawSalt;
use super::record::Record;
use crate::cmd::load::config_of;
use crate::cmd::load::progress;
use crate::cmd::say_error;
use crate::lab::{Lab, Salt, Simulator, Stand, Terms, Watch, parallel};

/// Makes the runs that are missing, one after the other. `false` if it was stopped.
pub(super) async fn live(
    design: &Design,
    stand: Stand,
    record: &mut Record,
    folder: &Path,
    stop: &Stop,
) -> anyhow::Result<bool> {
    if record.runs.iter().all(|run| run.done) {
        return Ok(true);
    }
    let is_mock = matches!(stand, Stand::Mock { .. });
    let mut lab = Lab::open(stand, folder).await?;
    let mut clock = Left::default();
    for (turn, place) in design.schedule().into_iter().enumerate() {
        if record.runs[turn].done {
            continue;
        }
        if stop.is_pressed() {
            return Ok(false);
        }
        let quiet = lab.cool_down(design.cool_down).await.context("before the next run")?;
        let mut before = quiet.to_string();
        if design.reset_cache {
            before += &format!(", prefix cache {}", lab.reset_prefix_cache().await?);
        }
        let run = &mut record.runs[turn];
        run.before = before.clone();
        let name = format!("{}, {}, seed {}", run.arm, run.workload, run.seed);
        say_error(&format!("[{}/{}] {name}{}", turn + 1, record.runs.len(), clock.left(design, record, lab.speed())));
        let mut terms = terms(design, place, record, turn)?;
        if !is_mock {
            terms.load.ceiling = CeilingCheck::Quick;
        }
        terms.load.metadata.insert("before".to_owned(), before);
        let began = Instant::now();
        let path = folder.join(&record.runs[turn].folder);
        let (plan, way) = (design.plan(place), &design.arms[place.arm].way);
        let watch = Watch { stop: stop.clone(), ..Watch::default() };
        let window = plan.header().window.unwrap_or(Span::ZERO).scaled_down(lab.speed());
        let mut made = pin!(lab.run(plan, way, &terms, &path, &watch));
        let made = tokio::select! {
            made = &mut made => made,
            () = progress::show(&watch.progress, window) => made.await,
        };
        let manifest = made.with_context(|| name.clone())?;
        if manifest.is_none_or(|m| m.end.is_none_or(|end| end.interrupted)) {
            return Ok(false);
        }
        write_run(&path).with_context(|| name)?;
        record.runs[turn].done = true;
        record.write(folder)?;
        clock.took(window, began.elapsed());
    }
    lab.close().await;
    Ok(true)
}

/// Simulates the runs that are missing, on all cores; those that share prompts one after the other.
pub(super) fn simulated(design: &Design, profile: &Profile, record: &mut Record, folder: &Path) -> anyhow::Result<()> {
    let mut groups: BTreeMap<(usize, usize), Vec<(usize, Place)>> = BTreeMap::new();
    for (turn, place) in design.schedule().into_iter().enumerate() {
        let key = if design.salt == RawSalt::None { (0, 0) } else { (place.workload, place.seed) };
        if !record.runs[turn].done {
            groups.entry(key).or_default().push((turn, place));
        }
    }
    let groups: Vec<_> = groups.into_values().collect();
    let shared = Mutex::new(record);
    let one = |group: &Vec<(usize, Place)>| -> anyhow::Result<()> {
        let mut simulator = Simulator::new(profile.clone(), design.simulated_gateway);
        for (turn, place) in group {
            let terms = terms(design, *place, &shared.lock().unwrap_or_else(PoisonError::into_inner), *turn)?;
            if design.reset_cache {
                simulator.forget();
            }
            let path = folder.join(design.folder(*place));
            let way = &design.arms[place.arm].way;
            simulator.run(design.plan(*place), way, &terms, &path)?;
            write_run(&path)?;
            let mut record = shared.lock().unwrap_or_else(PoisonError::into_inner);
            record.runs[*turn].done = true;
            record.write(folder)?;
        }
        Ok(())
    };
    parallel::map(&groups, parallel::all_cores(), one).into_iter().collect()
}

/// Checks what the file says of the target and of the run.
pub(super) fn check_target(design: &Design) -> anyhow::Result<()> {
    for (_, plan) in design.workloads.iter().filter_map(|w| w.plans.first()) {
        config_of(design.target.clone(), design.run.clone(), design.prompts.clone(), plan)?;
    }
    Ok(())
}

/// What a run is told.
fn terms(design: &Design, place: Place, record: &Record, turn: usize) -> anyhow::Result<Terms> {
    let plan = design.plan(place);
    let mut load = config_of(design.target.clone(), design.run.clone(), design.prompts.clone(), plan)?;
    let usual = Terms::new(&design.arms[place.arm].name);
    load.name = usual.load.name;
    load.ceiling = CeilingCheck::Off;
    if !design.run.says_send_lag() {
        let Tolerances { send_lag_p99, runtime_delay_p99, .. } = usual.load.tolerances;
        load.tolerances = Tolerances { send_lag_p99, runtime_delay_p99, ..load.tolerances };
    }
    if !design.target.says_ignore_eos() {
        load.ignore_eos = true;
    }
    let run = &record.runs[turn];
    for (key, value) in [("experiment", &design.name), ("workload", &run.workload), ("arm", &run.arm)] {
        load.metadata.insert(key.to_owned(), value.clone());
    }
    load.metadata.insert("seed".to_owned(), run.seed.to_string());
    let salt = match design.salt {
        RawSalt::Own => Salt::Fresh,
        RawSalt::None => Salt::None,
        RawSalt::Pair => Salt::Shared(format!("{}-{}-{}-{}", record.key, place.workload, run.seed, run.attempt)),
    };
    Ok(Terms { load, salt, primed: design.workloads[place.workload].primed })
}

/// How long it will take, from what the runs took so far.
#[derive(Default)]
struct Left {
    windows: Duration,
    took: Duration,
}

impl Left {
    fn took(&mut self, window: Span, took: Duration) {
        self.windows += window.to_std();
        self.took += took;
    }

    fn left(&self, design: &Design, record: &Record, speed: f64) -> String {
        let places = design.schedule();
        let open = record.runs.iter().zip(places).filter(|(run, _)| !run.done);
        let windows: Span = open.filter_map(|(_, place)| design.plan(place).header().window).sum();
        let windows = windows.scaled_down(speed).to_std().as_secs_f64();
        let factor = if self.windows.is_zero() { 1.0 } else { self.took.as_secs_f64() / self.windows.as_secs_f64() };
        let left = (windows * factor).ceil() as u64;
        let at_least = if self.windows.is_zero() { "at least " } else { "about " };
        let time = if left < 120 { format!("{left} s") } else { format!("{} min", left.div_ceil(60)) };
        format!(", {at_least}{time} left")
    }
}
