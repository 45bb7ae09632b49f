//! How requests get to the engine.

use std::net::{Ipv4Addr, SocketAddr};

use elasticserve_core::sched::{Order, Rules, TenantPolicy};
use elasticserve_core::slo::Slo;
use elasticserve_core::work::PlanTenant;
use elasticserve_gateway::config::{Config, RawAdmission, RawBackend, RawConfig, RawPredict, RawSlo, RawTenant};
use elasticserve_load::BaseUrl;

use crate::cmd::BadConfig;

/// The way of a run's requests.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// Straight to the stand.
    Direct,
    /// Through a gateway that is started for the run, in front of all of the stand's engines.
    Gateway(Box<Gate>),
    /// To another server, which is also what is asked whether it is idle. Not on the simulator.
    Url(BaseUrl),
}

/// A gateway in real time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    /// Its configuration. Listeners and backends are the lab's. Tenants of the plan that it does not name, and limits
    /// that it does not say, are the plan's; a policy that needs to know the engine and is told nothing of it goes by
    /// the stand's profile.
    pub(crate) config: RawConfig,
    /// Requests that each engine may work on at once.
    pub(crate) permits: u32,
}

impl Way {
    /// Through a gateway with this policy, all else at its default.
    pub(crate) fn gateway(rules: Rules, permits: u32) -> Self {
        let mut config = RawConfig::default();
        config.queue.set_rules(rules);
        Self::Gateway(Box::new(Gate { config, permits }))
    }
}

impl Gate {
    /// The checked configuration for a plan in front of engines, in real time.
    ///
    /// # Errors
    /// What the gateway itself would say of it.
    pub(crate) fn checked(
        &self,
        tenants: &[PlanTenant],
        profile: Option<&str>,
        engines: &[String],
    ) -> Result<Config, BadConfig> {
        let mut raw = self.config.clone();
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).to_string();
        (raw.listen, raw.admin) = (Some(any_port.clone()), Some(any_port));
        let backend =
            |url: &String| RawBackend { url: url.clone(), permits: Some(self.permits), ..RawBackend::default() };
        raw.backends = Some(engines.iter().map(backend).collect());
        add_tenants(&mut raw, tenants);
        if let Some(profile) = profile.filter(|_| self.takes_costs_of_the_stand()) {
            raw.predict.profile = Some(profile.to_owned());
        }
        raw.check().map_err(|e| BadConfig(e.to_string()))
    }

    /// Whether its policy goes by what requests cost, and it is told nothing of that.
    pub(crate) fn takes_costs_of_the_stand(&self) -> bool {
        goes_by_costs(&self.config) && says_no_costs(&self.config.predict)
    }
}

/// What a configuration says of each of the plan's tenants. The gateway treats a tenant that it does not know as its
/// default one; several of those would share a queue there, which a plan cannot say.
///
/// # Errors
/// Names two tenants that are one to the configuration.
pub(crate) fn plan_policies(config: &Config, tenants: &[PlanTenant]) -> Result<Vec<TenantPolicy>, BadConfig> {
    let place = |t: &PlanTenant| {
        config.tenants.iter().position(|known| known.name == t.name).unwrap_or(config.default_tenant.index())
    };
    let places: Vec<usize> = tenants.iter().map(place).collect();
    for (i, tenant) in tenants.iter().enumerate() {
        if let Some(other) = places[..i].iter().position(|p| *p == places[i]) {
            return Err(BadConfig(format!(
                "to this configuration the plan's tenants '{}' and '{}' are one, '{}'; name them under [[tenants]]",
                tenants[other].name, tenant.name, config.tenants[places[i]].name
            )));
        }
    }
    let policies = config.scheduler().tenants;
    Ok(places.into_iter().map(|place| policies.get(place).copied().unwrap_or_default()).collect())
}

/// Adds the plan's tenants and limits where the configuration does not say them. The generator names tenants to the
/// server where there are several; the only one of a plan is the gateway's default.
fn add_tenants(raw: &mut RawConfig, tenants: &[PlanTenant]) {
    if let [only] = tenants {
        if raw.slo == RawSlo::default() {
            raw.slo = limits(&only.slo);
        }
        return;
    }
    let known = raw.tenants.get_or_insert_default();
    for tenant in tenants {
        let slo = Some(limits(&tenant.slo));
        match known.iter_mut().find(|k| k.name == tenant.name) {
            Some(known) if known.slo.is_none() => known.slo = slo,
            Some(_) => {}
            None => known.push(RawTenant { name: tenant.name.clone(), slo, ..RawTenant::default() }),
        }
    }
}

fn limits(slo: &Slo) -> RawSlo {
    RawSlo { ttft: slo.ttft.map(|t| t.exact()), tpot: slo.tpot.map(|t| t.exact()), e2e: slo.e2e.map(|t| t.exact()) }
}

/// Whether the policy, or the one beside it, looks at what requests cost.
fn goes_by_costs(raw: &RawConfig) -> bool {
    let compares = |order: Order| matches!(order, Order::Wfq | Order::ShortestFirst);
    let shadow = raw.queue.shadow.as_deref().and_then(|text| text.parse::<Rules>().ok());
    matches!(raw.queue.admission, Some(RawAdmission::Predict | RawAdmission::Price))
        || raw.queue.order.is_some_and(compares)
        || shadow.is_some_and(|rules| rules.admission.predicts() || compares(rules.order))
}

const fn says_no_costs(raw: &RawPredict) -> bool {
    raw.profile.is_none()
        && raw.overhead.is_none()
        && raw.prefill_per_token.is_none()
        && raw.first_token_steps.is_none()
        && raw.idle_tpot.is_none()
}

#[cfg(test)]
mod tests {
    use elasticserve_core::time::Span;

    use super::*;

    const ENGINE: &str = "http://127.0.0.1:1";

    fn checked(policy: &str, tenants: &[PlanTenant]) -> Config {
        let Way::Gateway(gate) = Way::gateway(policy.parse().unwrap(), 16) else { unreachable!() };
        gate.checked(tenants, Some("gb10-qwen3-8b-fp8"), &[ENGINE.to_owned()]).unwrap()
    }

    fn tenant(name: &str, ttft_ms: u64) -> PlanTenant {
        let slo = Slo { ttft: Some(Span::from_millis(ttft_ms)), ..Slo::default() };
        PlanTenant::new(name, 1.0, slo)
    }

    #[test]
    fn every_policy_becomes_a_configuration_that_the_gateway_takes() {
        for policy in ["fcfs", "wfq+budget:750ms", "priority+budget:1s", "least-slack+predict", "least-slack+price:0.3"]
        {
            let config = checked(policy, &[tenant("default", 1000)]);
            assert_eq!(config.order.to_string(), policy.split('+').next().unwrap());
            assert_eq!(config.backends[0].permits, 16);
            assert_eq!(config.predict.is_some(), policy.contains("pr") && policy.contains("slack"), "{policy}");
        }
        assert_eq!(checked("fcfs+budget:750ms", &[]).queue_budget, Some(Span::from_millis(750)));
    }

    #[test]
    fn limits_and_tenants_of_the_plan_are_the_gateways_unless_it_says_others() {
        assert_eq!(checked("fcfs", &[tenant("default", 900)]).slo.ttft, Some(Span::from_millis(900)));
        let own = RawTenant { name: "gold".into(), weight: Some(4), ..RawTenant::default() };
        let mut gate = Gate { permits: 4, ..Gate::default() };
        gate.config.tenants = Some(vec![own]);
        let plan = [tenant("gold", 600), tenant("batch", 5000)];
        let config = gate.checked(&plan, None, &[ENGINE.to_owned()]).unwrap();
        let policies = plan_policies(&config, &plan).unwrap();
        assert_eq!(policies.iter().map(|p| p.weight.get()).collect::<Vec<_>>(), [4, 1]);
        let ttft = |i: usize| policies[i].slo.unwrap().ttft.unwrap();
        assert_eq!((ttft(0), ttft(1)), (Span::from_millis(600), Span::from_secs(5)));
    }
}
