//! Runs on virtual time.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use elasticserve_core::engine::{Profile, Prompt};
use elasticserve_core::ledger::{Manifest, Row};
use elasticserve_core::sched::Settings;
use elasticserve_core::sim::reproduce::GatewayTimes;
use elasticserve_core::sim::{self, Declares, GatewaySetup, Setup};
use elasticserve_core::work::Plan;

use super::simulate::{simulated_manifest, write_simulation};
use super::terms::{Salt, Terms};
use super::way::{Gate, Way, plan_policies};
use crate::cmd::{BadConfig, profile};

/// What the gateway of a simulation stands in front of; nothing is sent there.
const NOWHERE: &str = "http://127.0.0.1:1";

/// An engine model and what it has been sent.
#[derive(Clone, Debug)]
pub(crate) struct Simulator {
    profile: Profile,
    gateway: GatewayTimes,
    /// Prompts that were answered in full, by what their runs' prompts have in common. Runs that share nothing leave
    /// nothing here.
    seen: BTreeMap<String, Vec<(Prompt, u32)>>,
}

impl Simulator {
    /// An engine that has been sent nothing, behind gateways that take so long.
    pub(crate) const fn new(profile: Profile, gateway: GatewayTimes) -> Self {
        Self { profile, gateway, seen: BTreeMap::new() }
    }

    /// See [`Lab::run`](super::Lab::run).
    pub(crate) fn run(&mut self, plan: &Plan, way: &Way, terms: &Terms, folder: &Path) -> anyhow::Result<Manifest> {
        let settings = self.way(plan, way)?;
        let mut manifest = self.manifest(plan, terms, settings.as_ref());
        let completed = write_simulation(folder, plan, &self.setup(plan, settings, terms), &mut manifest)?;
        self.remember(plan, &terms.salt, &completed);
        Ok(manifest)
    }

    /// The rows of a run that leaves neither a folder nor anything in the prefix cache.
    ///
    /// # Errors
    /// A way or a plan that is not for the simulator.
    pub(crate) fn rows(&self, plan: &Plan, way: &Way, terms: &Terms) -> anyhow::Result<Vec<Row>> {
        let setup = self.setup(plan, self.way(plan, way)?, terms);
        let mut rows = Vec::with_capacity(plan.arrivals().len());
        sim::run(plan, &setup, |row| rows.push(row)).context("the scheduler broke its own rules")?;
        rows.sort_by_key(|row| row.index);
        Ok(rows)
    }

    /// The scheduler of a way; none if requests go straight to the engine.
    fn way(&self, plan: &Plan, way: &Way) -> anyhow::Result<Option<Settings>> {
        let model = plan.header().model;
        if !model.is_open() {
            return Err(BadConfig(format!("this is a {model} load; the simulator runs open plans only")).into());
        }
        match way {
            Way::Direct => Ok(None),
            Way::Gateway(gate) => Ok(Some(self.settings(gate, plan)?)),
            Way::Url(url) => Err(BadConfig(format!("{url}: there is nothing to send to on the simulator")).into()),
        }
    }

    fn setup(&self, plan: &Plan, settings: Option<Settings>, terms: &Terms) -> Setup {
        let gateway = settings.map(|scheduler| GatewaySetup {
            scheduler,
            overhead_in: self.gateway.overhead_in,
            overhead_out: self.gateway.overhead_out,
            release_delay: self.gateway.release_delay,
            declares: Declares::All,
        });
        Setup { engines: vec![self.profile.clone()], gateway, warm: self.warm(plan, terms) }
    }

    /// Adds to what the engine has seen: these places of a plan, whose prompts other runs may share.
    fn remember(&mut self, plan: &Plan, salt: &Salt, completed: &[u32]) {
        let Some(key) = shared(salt) else { return };
        let found = completed.iter().filter_map(|index| plan.arrivals().get(*index as usize));
        self.seen.entry(key).or_default().extend(found.map(|a| (plan.prompt(a), a.input)));
    }

    /// Empties the prefix cache.
    pub(crate) fn forget(&mut self) {
        self.seen.clear();
    }

    fn settings(&self, gate: &Gate, plan: &Plan) -> Result<Settings, BadConfig> {
        let tenants = &plan.header().tenants;
        // Only its costs are taken from the profile, below, where the configuration says none.
        let config = gate.checked(tenants, Some(profile::DEFAULT), &[NOWHERE.to_owned()])?;
        let own = gate.takes_costs_of_the_stand();
        let settings = Settings { tenants: plan_policies(&config, tenants)?, ..config.scheduler() };
        Ok(if own { with_costs(settings, &self.profile) } else { settings })
    }

    fn warm(&self, plan: &Plan, terms: &Terms) -> Vec<(Prompt, u32)> {
        let primed = plan.arrivals().iter().take(terms.primed as usize).map(|a| (plan.prompt(a), a.input));
        let seen = shared(&terms.salt).and_then(|key| self.seen.get(&key));
        primed.chain(seen.into_iter().flatten().cloned()).collect()
    }

    fn manifest(&self, plan: &Plan, terms: &Terms, settings: Option<&Settings>) -> Manifest {
        let load = &terms.load;
        let engines = std::slice::from_ref(&self.profile);
        let mut manifest = simulated_manifest(&load.name, plan, engines, settings);
        manifest.metadata.extend(load.metadata.clone());
        manifest.metadata.extend(terms.notes());
        manifest.prompts_salted = terms.salt == Salt::Fresh;
        (manifest.timeouts, manifest.tolerances) = (load.timeouts, load.tolerances);
        manifest
    }
}

/// What runs with this salt have in common; nothing if each has its own.
fn shared(salt: &Salt) -> Option<String> {
    match salt {
        Salt::Fresh => None,
        Salt::Shared(word) => Some(format!("shared {word}")),
        Salt::None => Some("none".to_owned()),
    }
}

/// The settings with what the engine's own profile says that requests take.
fn with_costs(settings: Settings, profile: &Profile) -> Settings {
    use elasticserve_core::sched::{CostModel, Price};
    let price = settings.price.map(|p| Price::from_profile(profile, p.mu));
    Settings { cost: CostModel::from_profile(profile), price, ..settings }
}
