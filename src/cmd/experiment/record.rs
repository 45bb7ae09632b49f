//! `experiment.json`: what the experiment is and what has been made of it, so that it can go on after an interruption.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use elasticserve_core::ledger::{MANIFEST_FILE, Manifest};
use elasticserve_report::{Summary, read_run, write_file};
use serde::{Deserialize, Serialize};

use super::design::{Design, Place};
use super::raw::RawSalt;
use crate::cmd::BadConfig;

/// The file in the folder of an experiment.
pub(super) const FILE: &str = "experiment.json";
/// Where runs that were not finished go.
const ASIDE: &str = "aside";
/// The most keys that an error names.
const MAX_NAMED: usize = 8;

/// The file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The format's version, 1.
    pub(super) format: u32,
    pub(super) name: String,
    pub(super) tool_version: String,
    /// Where the runs are made.
    pub(super) stand: BTreeMap<String, String>,
    /// Sets the salts of this experiment apart from those of others.
    pub(super) key: String,
    /// The experiment's file, word for word.
    pub(super) source: String,
    /// The runs in the order in which they are made.
    pub(super) runs: Vec<Recorded>,
    /// What the runs say, once all are made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) findings: Option<serde_json::Value>,
}

/// A run of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Recorded {
    pub(super) folder: String,
    pub(super) workload: String,
    pub(super) arm: String,
    pub(super) seed: u64,
    pub(super) plan_hash: String,
    /// Counted from 1: how often it was begun.
    pub(super) attempt: u32,
    pub(super) done: bool,
    /// What was done before it: how the engine came to rest, and its cache.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub(super) before: String,
}

impl Record {
    /// The record of an experiment that begins.
    pub(super) fn new(design: &Design, source: &str, stand: BTreeMap<String, String>, key: String, speed: f64) -> Self {
        let recorded = |place: &Place| {
            let plan = design.plan(*place);
            Recorded {
                folder: design.folder(*place),
                workload: design.workloads[place.workload].name.clone(),
                arm: design.arms[place.arm].name.clone(),
                seed: design.seed(*place),
                plan_hash: if speed == 1.0 { plan.hash() } else { plan.sped_up(speed).hash() },
                attempt: 1,
                done: false,
                before: String::new(),
            }
        };
        Self {
            format: 1,
            name: design.name.clone(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            stand,
            key,
            source: source.to_owned(),
            runs: design.schedule().iter().map(recorded).collect(),
            findings: None,
        }
    }

    /// The record in a folder, if it is of the same experiment; else `self`, written there. Runs that were not finished
    /// are set aside, with those that share their prompts; so are runs that say nothing about the server, if they are to
    /// be made again.
    ///
    /// # Errors
    /// [`BadConfig`] says what has changed since; else what the system says.
    pub(super) fn resume(self, folder: &Path, salt: RawSalt, repeat_invalid: bool) -> anyhow::Result<Self> {
        let path = folder.join(FILE);
        if !path.exists() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            self.write(folder)?;
            return Ok(self);
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut old: Self = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        if let Some(changed) = self.differs(&old) {
            let dir = folder.display();
            return Err(BadConfig(format!(
                "{dir} holds another experiment: {changed}; choose another --result-dir, or change it back to go on"
            ))
            .into());
        }
        for run in &mut old.runs {
            let path = folder.join(&run.folder);
            run.done = is_done(&path, &run.plan_hash)? && (!repeat_invalid || is_valid(&path));
        }
        old.set_aside(folder, salt)?;
        old.findings = None;
        old.write(folder)?;
        Ok(old)
    }

    /// Writes it as a whole or not at all.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        Ok(write_file(&folder.join(FILE), &text)?)
    }

    /// What makes this experiment another one than the old.
    fn differs(&self, old: &Self) -> Option<String> {
        // Where the runs are made comes first: the rest follows from it.
        let mut stand: Vec<(&String, &String)> = self.stand.iter().collect();
        stand.sort_by_key(|(key, _)| *key != "stand");
        for (key, value) in stand {
            let was = old.stand.get(key).map_or("", String::as_str);
            if was != value {
                return Some(format!("{key} was '{was}' and is '{value}'"));
            }
        }
        if self.source != old.source {
            let keys = changed_keys(&old.source, &self.source);
            return match keys.as_slice() {
                [] => None,
                keys => Some(format!("the file has changed in {}", keys.join(", "))),
            };
        }
        let same = |a: &Recorded, b: &Recorded| (&a.folder, a.seed, &a.plan_hash) == (&b.folder, b.seed, &b.plan_hash);
        if self.runs.len() != old.runs.len() {
            return Some(format!("it had {} runs and has {}", old.runs.len(), self.runs.len()));
        }
        let changed = self.runs.iter().zip(&old.runs).find(|(a, b)| !same(a, b))?;
        Some(format!("the plan of {} is another one, such as by a scenario file", changed.0.folder))
    }

    /// Moves what was begun and not finished out of the way. Where runs share prompts, one that is made again would find
    /// those of its first attempt in the cache, so all that share them are made again with another salt.
    fn set_aside(&mut self, folder: &Path, salt: RawSalt) -> anyhow::Result<()> {
        let begun = |run: &Recorded| !run.done && folder.join(&run.folder).exists();
        let group = |run: &Recorded| match salt {
            RawSalt::Own => run.folder.clone(),
            RawSalt::Pair => format!("{} {}", run.workload, run.seed),
            RawSalt::None => String::new(),
        };
        let half = |all: &[Recorded], key: &str| {
            let of = || all.iter().filter(|r| group(r) == key);
            of().any(begun) || (of().any(|r| r.done) && of().any(|r| !r.done) && salt != RawSalt::Own)
        };
        let again: Vec<bool> = self.runs.iter().map(|run| half(&self.runs, &group(run))).collect();
        for (run, _) in self.runs.iter_mut().zip(again).filter(|(_, again)| *again) {
            let from = folder.join(&run.folder);
            if from.exists() {
                let to = free_place(&folder.join(ASIDE), &run.folder);
                fs::create_dir_all(folder.join(ASIDE))
                    .and_then(|()| fs::rename(&from, &to))
                    .with_context(|| format!("cannot move {} to {}", from.display(), to.display()))?;
            }
            (run.done, run.attempt) = (false, run.attempt + 1);
        }
        Ok(())
    }
}

/// A name in a folder that is not taken yet.
fn free_place(folder: &Path, run: &str) -> PathBuf {
    let name = run.replace('/', "-");
    (1u32..).map(|n| folder.join(format!("{name}-{n}"))).find(|path| !path.exists()).unwrap_or_default()
}

/// Whether a folder holds a whole run of a plan.
fn is_done(folder: &Path, plan_hash: &str) -> anyhow::Result<bool> {
    let path = folder.join(MANIFEST_FILE);
    if !path.exists() {
        return Ok(false);
    }
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    // What was cut off while it was written is half a run.
    let Ok(manifest) = serde_json::from_str::<Manifest>(&text) else { return Ok(false) };
    Ok(manifest.plan_hash == plan_hash && manifest.end.is_some_and(|end| !end.interrupted))
}

/// Whether a whole run says something about the server.
fn is_valid(folder: &Path) -> bool {
    read_run(folder).is_ok_and(|run| {
        let summary = Summary::of(&run);
        summary.valid && summary.reconciled
    })
}

/// The keys, with dots, in which two files of TOML differ.
fn changed_keys(old: &str, new: &str) -> Vec<String> {
    let read = |text: &str| text.parse::<toml::Table>().map(toml::Value::Table);
    let (Ok(old), Ok(new)) = (read(old), read(new)) else { return vec!["all of it".to_owned()] };
    let mut keys = Vec::new();
    compare("", Some(&old), Some(&new), &mut keys);
    if keys.len() > MAX_NAMED {
        let more = keys.len() - MAX_NAMED;
        keys.truncate(MAX_NAMED);
        keys.push(format!("{more} more"));
    }
    keys
}

fn compare(key: &str, old: Option<&toml::Value>, new: Option<&toml::Value>, keys: &mut Vec<String>) {
    use toml::Value::{Array, Table};
    let join = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match (old, new) {
        (Some(Table(old)), Some(Table(new))) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                compare(&join(name), old.get(name), new.get(name), keys);
            }
        }
        (Some(Array(old)), Some(Array(new))) if old.iter().chain(new).all(toml::Value::is_table) => {
            for place in 0..old.len().max(new.len()) {
                compare(&format!("{key}[{place}]"), old.get(place), new.get(place), keys);
            }
        }
        (old, new) if old == new => {}
        _ => keys.push(key.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_told_by_its_keys_and_a_comment_changes_nothing() {
        let old = "name = 'a'\n[runs]\nseeds = [1, 2]\n[[arms]]\nname = 'x'\npolicy = 'fcfs'\n";
        assert!(changed_keys(old, &format!("# why\n{old}")).is_empty());
        let new = "name = 'a'\n[runs]\nseeds = [1, 3]\n[[arms]]\nname = 'x'\npolicy = 'wfq'\n[[arms]]\nname = 'y'\n";
        assert_eq!(changed_keys(old, new), ["arms[0].policy", "arms[1]", "runs.seeds"]);
    }
}
