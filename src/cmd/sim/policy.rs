//! The gateway in front of simulated engines: flags or the gateway's own configuration file.

use std::num::NonZeroU32;
use std::path::PathBuf;

use elasticserve_core::engine::Profile;
use elasticserve_core::sched::{Order, RulesError, Settings, TenantPolicy};
use elasticserve_core::time::Span;
use elasticserve_core::work::PlanTenant;
use elasticserve_gateway::config::{Config, RawConfig};

use crate::cmd::BadConfig;
use crate::lab::plan_policies;

pub(super) const GATEWAY: &str = "Gateway";
/// What may wait unless something else is said, as in the gateway.
const DEFAULT_DEPTH: u32 = 256;

/// The gateway; none if no flag of it is given.
#[derive(clap::Args)]
pub(super) struct GatewayArgs {
    /// The gateway's configuration file; see config/gateway.example.toml. Flags win over it
    #[arg(long, value_name = "CONFIG.toml", help_heading = GATEWAY)]
    gateway: Option<PathBuf>,
    /// Requests that each engine may work on at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = GATEWAY)]
    permits: Option<u32>,
    /// The most requests that may wait [default: 256]
    #[arg(long, value_name = "N", help_heading = GATEWAY)]
    queue_depth: Option<u32>,
    /// How long a request may wait, such as 750ms [default: no limit]
    #[arg(long, value_name = "TIME", help_heading = GATEWAY)]
    queue_budget: Option<Span>,
    /// Who goes next: fcfs, or wfq over tenants by weight [default: fcfs]
    #[arg(long, value_name = "ORDER", value_parser = parse_order, help_heading = GATEWAY)]
    order: Option<Order>,
    /// A tenant's share of the seats under wfq, relative to the others; may be repeated [default: 1 each]
    #[arg(long, value_name = "TENANT=WEIGHT", value_parser = parse_weight, help_heading = GATEWAY)]
    weight: Vec<(String, NonZeroU32)>,
    /// What the gateway itself takes of a request's time, half of it before and half after the engine
    #[arg(long, value_name = "TIME", default_value = "0", help_heading = GATEWAY)]
    pub(super) gateway_overhead: Span,
}

impl GatewayArgs {
    /// The scheduler's settings for the engines of [`GatewayArgs::engines`], `None` for a direct run.
    pub(super) fn settings(&self, engines: usize, tenants: &[PlanTenant]) -> Result<Option<Settings>, BadConfig> {
        let by_flag = self.permits.is_some()
            || self.queue_depth.is_some()
            || self.queue_budget.is_some()
            || self.order.is_some()
            || !self.weight.is_empty();
        let mut settings = match self.config()? {
            Some(config) => {
                let tenants = plan_policies(&config, tenants).map_err(|e| BadConfig(format!("--gateway: {e}")))?;
                Settings { tenants, ..config.scheduler() }
            }
            None if by_flag => {
                let backends = vec![Config::DEFAULT_PERMITS; engines];
                let tenants = vec![TenantPolicy::default(); tenants.len()];
                Settings { tenants, depth: DEFAULT_DEPTH as usize, ..Settings::fcfs(backends) }
            }
            None if self.gateway_overhead > Span::ZERO => {
                return Err(BadConfig(
                    "--gateway-overhead: there is no gateway; say --permits or --gateway".to_owned(),
                ));
            }
            None => return Ok(None),
        };
        if let Some(permits) = self.permits {
            settings.backends.fill(permits);
        }
        settings.depth = self.queue_depth.map_or(settings.depth, |depth| depth as usize);
        settings.budget = self.queue_budget.or(settings.budget);
        settings.order = self.order.unwrap_or(settings.order);
        set_weights(&mut settings.tenants, tenants, &self.weight)?;
        Ok(Some(settings))
    }

    /// The configuration that --gateway names, if it does.
    fn config(&self) -> Result<Option<Config>, BadConfig> {
        let Some(path) = &self.gateway else { return Ok(None) };
        let bad = |problem: &dyn std::fmt::Display| BadConfig(format!("--gateway {}: {problem}", path.display()));
        RawConfig::from_file(path).and_then(RawConfig::check).map(Some).map_err(|e| bad(&e))
    }

    /// One profile for each backend: those given, or the only one for all.
    pub(super) fn engines(&self, profiles: Vec<Profile>) -> Result<Vec<Profile>, BadConfig> {
        let Some(config) = self.config()? else { return Ok(profiles) };
        match (profiles.as_slice(), config.backends.len()) {
            ([only], backends) => Ok(vec![only.clone(); backends]),
            (several, backends) if several.len() == backends => Ok(profiles),
            (several, backends) => Err(BadConfig(format!(
                "--profile: {} are given for {backends} backends of --gateway: give one for all, or one for each",
                several.len()
            ))),
        }
    }
}

/// Gives tenants the weights of --weight.
fn set_weights(
    policies: &mut [TenantPolicy],
    tenants: &[PlanTenant],
    weights: &[(String, NonZeroU32)],
) -> Result<(), BadConfig> {
    for (name, weight) in weights {
        let place = tenants.iter().position(|t| t.name == *name);
        let Some(policy) = place.and_then(|place| policies.get_mut(place)) else {
            let known: Vec<&str> = tenants.iter().map(|t| t.name.as_str()).collect();
            return Err(BadConfig(format!("--weight: the plan has no tenant '{name}'; it has {}", known.join(", "))));
        };
        policy.weight = *weight;
    }
    Ok(())
}

/// An order by its name.
pub(super) fn parse_order(text: &str) -> Result<Order, String> {
    text.parse().map_err(|e: RulesError| e.to_string())
}

pub(super) fn parse_weight(text: &str) -> Result<(String, NonZeroU32), String> {
    let (name, weight) = text.split_once('=').ok_or("write TENANT=WEIGHT, such as gold=4")?;
    let weight = weight.trim().parse().map_err(|_| format!("a weight is a whole number from 1, not '{weight}'"))?;
    Ok((name.trim().to_owned(), weight))
}
