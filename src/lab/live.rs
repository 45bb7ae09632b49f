//! Runs on sockets.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use elasticserve_core::ledger::{Manifest, Timeouts, Tolerances};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{Arrival, Plan, PlanTenant};
use elasticserve_load::{BaseUrl, LoadConfig, LoadError, Progress, Secret};
use elasticserve_report::write_file;

use super::Watch;
use super::child::Child;
use super::idle::{self, Quiet, Reset};
use super::terms::{Salt, Terms};
use super::way::{Gate, Way};
use crate::cmd::load::fresh_salt;
use crate::cmd::{BadConfig, profile};

/// How long a server that was just started may take to answer.
const READY: Span = Span::from_secs(30);
/// Between two requests that fill the prefix cache.
const PRIMING_GAP: Span = Span::from_millis(40);
/// The folder of the run that fills the prefix cache, inside of the one that it is for.
const PRIMING: &str = "priming";

/// Engines on sockets.
pub(crate) struct Live {
    mock: Option<Child>,
    engines: Vec<BaseUrl>,
    /// The mock's profile.
    profile: Option<String>,
    speed: f64,
    /// Other servers that runs went to.
    others: Vec<BaseUrl>,
}

impl Live {
    /// A mock engine of its own.
    pub(super) async fn mock(profile: &str, speed: f64, logs: &Path) -> anyhow::Result<Self> {
        profile::load(profile)?;
        fs::create_dir_all(logs).with_context(|| logs.display().to_string())?;
        let args = ["--profile", profile, "--listen", "127.0.0.1:0", "--speed", &speed.to_string()];
        let mock = Child::start("mock", &args, &logs.join("mock.log")).await?;
        let engines = vec![mock.url().clone()];
        Ok(Self { mock: Some(mock), engines, profile: Some(profile.to_owned()), speed, others: Vec::new() })
    }

    /// Servers that are there.
    pub(super) fn servers(engines: Vec<BaseUrl>) -> anyhow::Result<Self> {
        if engines.is_empty() {
            return Err(BadConfig("there must be at least one server".to_owned()).into());
        }
        Ok(Self { mock: None, engines, profile: None, speed: 1.0, others: Vec::new() })
    }

    pub(super) const fn speed(&self) -> f64 {
        self.speed
    }

    /// Ends what was started.
    pub(super) async fn close(self) {
        if let Some(mock) = self.mock {
            mock.stop().await;
        }
    }

    /// See [`Lab::run`](super::Lab::run).
    pub(super) async fn run(
        &mut self,
        plan: &Plan,
        way: &Way,
        terms: &Terms,
        folder: &Path,
        watch: &Watch,
    ) -> anyhow::Result<Option<Manifest>> {
        let load = self.load(terms);
        let scaled = if self.speed == 1.0 { plan.clone() } else { plan.sped_up(self.speed) };
        let (url, gateway) = match way {
            Way::Direct => (self.engine()?.clone(), None),
            Way::Gateway(gate) => {
                let gateway = self.gateway(gate, plan, folder).await?;
                (gateway.url().clone(), Some(gateway))
            }
            Way::Url(url) => {
                if !self.others.contains(url) {
                    self.others.push(url.clone());
                }
                (url.clone(), None)
            }
        };
        let load = LoadConfig { url, ..load };
        let made = self.prime_and_offer(&load, &scaled, way, terms, folder, watch).await;
        if let Some(gateway) = gateway {
            gateway.stop().await;
        }
        match made {
            Ok(manifest) => Ok(Some(manifest)),
            Err(LoadError::StoppedEarly) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn cool_down(&mut self, patience: Span) -> anyhow::Result<Quiet> {
        let mut all = Quiet::Idle(Span::ZERO);
        for server in self.servers_asked() {
            let quiet = idle::wait(&server, patience).await?;
            all = match (all, quiet) {
                (Quiet::Idle(a), Quiet::Idle(b)) => Quiet::Idle(a + b),
                (Quiet::Paused(a), Quiet::Idle(b)) | (Quiet::Idle(a), Quiet::Paused(b)) => Quiet::Paused(a + b),
                (Quiet::Paused(a), Quiet::Paused(b)) => Quiet::Paused(a + b),
            };
        }
        Ok(all)
    }

    pub(super) async fn reset_prefix_cache(&mut self) -> anyhow::Result<Reset> {
        let mut all = Reset::Done;
        for server in self.servers_asked() {
            if idle::reset(&server).await? == Reset::NotOffered {
                all = Reset::NotOffered;
            }
        }
        Ok(all)
    }

    fn engine(&self) -> anyhow::Result<&BaseUrl> {
        self.engines.first().context("no engine")
    }

    /// Every server that runs went to, as one to ask.
    fn servers_asked(&self) -> Vec<LoadConfig> {
        let terms = self.load(&Terms::new("question"));
        let asked = |url: &BaseUrl| LoadConfig { url: url.clone(), ..terms.clone() };
        self.engines.iter().chain(&self.others).map(asked).collect()
    }

    /// What the generator is told, in the stand's time.
    fn load(&self, terms: &Terms) -> LoadConfig {
        let mut load = terms.load.clone();
        load.metadata.extend(terms.notes());
        load.salt = match &terms.salt {
            Salt::Fresh => Some(fresh_salt()),
            Salt::Shared(word) => Some(word.clone()),
            Salt::None => None,
        };
        if let Some(salt) = &load.salt {
            // With it the prompts of this run can be made again.
            load.metadata.insert("salt".to_owned(), salt.clone());
        }
        let own_key = || std::env::var("OPENAI_API_KEY").ok().filter(|key| !key.is_empty()).map(Secret::new);
        load.api_key = load.api_key.or_else(own_key);
        load.ready_timeout = load.ready_timeout.or(Some(READY));
        load.time_scale = self.speed;
        let scaled = |span: Span| span.scaled_down(self.speed);
        load.tolerances = Tolerances {
            send_lag_p99: scaled(load.tolerances.send_lag_p99),
            runtime_delay_p99: scaled(load.tolerances.runtime_delay_p99),
            ..load.tolerances
        };
        let t = load.timeouts;
        load.timeouts = Timeouts {
            connect: t.connect,
            ttft: scaled(t.ttft),
            idle: scaled(t.idle),
            total: scaled(t.total),
            drain: scaled(t.drain),
        };
        load
    }

    /// Starts the gateway of a run.
    async fn gateway(&self, gate: &Gate, plan: &Plan, folder: &Path) -> anyhow::Result<Child> {
        let engines: Vec<String> = self.engines.iter().map(BaseUrl::to_string).collect();
        let config = gate.checked(&plan.header().tenants, self.profile.as_deref(), &engines)?.sped_up(self.speed);
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let file = folder.join("gateway.toml");
        write_file(&file, &config.to_toml().map_err(|e| BadConfig(e.to_string()))?)?;
        let file = file.to_string_lossy();
        Child::start("gateway", &["--config", &file], &folder.join("gateway.log")).await
    }

    async fn prime_and_offer(
        &self,
        load: &LoadConfig,
        plan: &Plan,
        way: &Way,
        terms: &Terms,
        folder: &Path,
        watch: &Watch,
    ) -> Result<Manifest, LoadError> {
        if terms.primed > 0 {
            let engine = if let Way::Url(url) = way { Some(url) } else { self.engines.first() };
            let url = engine.unwrap_or(&load.url).clone();
            let priming = LoadConfig { name: PRIMING.to_owned(), url, warmups: 0, ..load.clone() };
            let progress = Arc::new(Progress::new());
            let once = once(plan, terms.primed, self.speed)?;
            elasticserve_load::run(&priming, &once, &folder.join(PRIMING), progress, watch.stop.clone()).await?;
        }
        elasticserve_load::run(load, plan, folder, Arc::clone(&watch.progress), watch.stop.clone()).await
    }
}

/// The first prompts of a plan, one after the other, for one token each.
fn once(plan: &Plan, count: u32, speed: f64) -> Result<Plan, LoadError> {
    let first = plan.arrivals().iter().take(count as usize);
    if first.clone().any(|a| plan.prefix(a).is_some() || plan.text_ref(a).is_some() || !plan.blocks(a).is_empty()) {
        let problem = "only prompts that share nothing and come from no dataset can be sent before the run";
        return Err(LoadError::Request(problem.to_owned()));
    }
    let gap = PRIMING_GAP.scaled_down(speed);
    let arrivals = first.map(|a| Arrival { at: gap * u64::from(a.index), output: 1, tenant: 0, ..*a });
    let arrivals: Vec<Arrival> = arrivals.collect();
    let (window, rate) = (gap * (arrivals.len() as u64).max(1), 1.0 / gap.as_secs_f64().max(1e-9));
    let tenants = vec![PlanTenant::new("default", 1.0, Slo::default())];
    let plan = Plan::recorded("the first prompts of a plan", rate, window, tenants, arrivals);
    plan.map_err(|e| LoadError::Request(e.to_string()))
}
