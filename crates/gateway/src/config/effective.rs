//! The effective configuration, as a file that gives it again.

use std::num::NonZeroU64;

use elasticserve_core::sched::{Order, Stall};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;

use super::keys;
use super::policy::compares_costs;
use super::raw::{
    Affinity, Discovery, RawAdmission, RawBackend, RawConfig, RawHealth, RawLimits, RawLog, RawPool, RawPredict,
    RawQueue, RawReload, RawSlo, RawStall, RawState, RawTenant, RawTimeouts, RawTls,
};
use super::{Config, ConfigError, Pool, Watch};

impl Config {
    /// All values in effect as TOML. Reading it gives the same configuration, without any other file.
    ///
    /// # Errors
    /// [`ConfigError::Parse`] for what TOML cannot hold: a number above 2⁶³.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string(&self.effective()).map_err(|e| ConfigError::Parse(e.to_string()))
    }

    /// The same as it would be written, to be changed and checked again.
    pub(crate) fn effective(&self) -> RawConfig {
        let backend = |b: &super::Backend| RawBackend {
            url: format!("{}://{}{}", if b.tls.is_some() { "https" } else { "http" }, b.authority, b.base_path),
            permits: Some(b.permits),
            drain: b.drain.then_some(true),
            pool: self.pools.get(b.pool).map(|p| p.name.clone()),
            weight: Some(b.weight.get()),
            profile: b.profile.as_ref().map(|(name, _)| name.clone()),
            discover: b.look_up.map(|_| Discovery::Dns),
            interval: b.look_up.and_then(exact),
            engine: b.engine.as_ref().map(|(name, _)| name.clone()),
            key_env: b.credential.as_ref().and_then(|c| c.env()),
            key_file: b.credential.as_ref().and_then(|c| c.file()),
            ca_file: b.tls.as_ref().and_then(|t| t.ca_file.clone()),
        };
        let tenant = |t: &super::Tenant| RawTenant {
            name: t.name.clone(),
            weight: Some(t.weight.get()),
            max_permits: t.max_permits,
            max_queued: t.max_queued,
            max_queued_bytes: t.max_queued_bytes,
            class: Some(t.class),
            on_miss: Some(t.on_miss),
            slo: Some(slo(&t.slo)),
            requests_per_minute: t.limits.requests.map(NonZeroU64::get),
            tokens_per_minute: t.limits.tokens.map(NonZeroU64::get),
            keys: keys::written(&self.keys, &t.name),
        };
        let t = &self.timeouts;
        RawConfig {
            listen: Some(self.fixed.listen.to_string()),
            admin: Some(self.fixed.admin.to_string()),
            admin_token_sha256: self.fixed.admin_token.map(|digest| digest.to_string()),
            admin_api: Some(self.fixed.admin_api),
            tenants_file: None,
            default_tenant: self.tenants.get(self.default_tenant.index()).map(|t| t.name.clone()),
            default_pool: self.default_pool.and_then(|place| self.pools.get(place)).map(|p| p.name.clone()),
            trusted_proxies: Some(self.trusted_proxies.iter().map(ToString::to_string).collect()),
            backends: Some(self.backends.iter().map(backend).collect()),
            pools: Some(self.pools.iter().map(pool).collect()),
            health: health(&self.watch),
            engines: self.backends.iter().filter_map(|b| b.engine.clone()).collect(),
            tenants: Some(self.tenants.iter().filter(|t| !t.retired).map(tenant).collect()),
            queue: self.queue(),
            predict: self.cost_model(),
            limits: RawLimits {
                connections: Some(self.max_connections),
                body_bytes: Some(self.max_body_bytes),
                body_memory: Some(self.max_body_memory),
            },
            tls: RawTls {
                cert: self.tls.as_ref().map(|t| t.cert.clone()),
                key: self.tls.as_ref().map(|t| t.key.clone()),
                client_ca: self.tls.as_ref().and_then(|t| t.client_ca.clone()),
                handshake: self.tls.as_ref().and_then(|t| exact(t.handshake)),
            },
            timeouts: RawTimeouts {
                header: exact(t.header),
                body: exact(t.body),
                connect: exact(t.connect),
                head: exact(t.head),
                idle: exact(t.idle),
                keep_alive: t.keep_alive.and_then(exact),
                write: exact(t.write),
                drain: exact(t.drain),
                drain_delay: exact(t.drain_delay),
            },
            slo: slo(&self.slo),
            state: RawState {
                file: self.fixed.state.as_ref().map(|s| s.file.clone()),
                interval: self.fixed.state.as_ref().and_then(|s| exact(s.interval)),
            },
            log: RawLog {
                decisions: self.fixed.decisions.clone(),
                access: Some(self.access_log),
                level: Some(self.fixed.log_level),
                format: self.fixed.log_format,
            },
            trace: self.fixed.trace.as_ref().map(super::Trace::effective).unwrap_or_default(),
            reload: RawReload { watch: Some(self.fixed.watch) },
            files: self.files.clone(),
        }
    }

    fn queue(&self) -> RawQueue {
        let admission = match (self.price, self.predict, self.queue_budget) {
            (Some(_), ..) => RawAdmission::Price,
            (None, Some(_), _) => RawAdmission::Predict,
            (None, None, Some(_)) => RawAdmission::Budget,
            (None, None, None) => RawAdmission::None,
        };
        RawQueue {
            order: Some(self.order),
            admission: Some(admission),
            depth: Some(self.queue_depth),
            bytes: Some(self.queue_bytes),
            budget: self.queue_budget.and_then(exact),
            fairness: self.price.map(|p| p.mu),
            guard: if self.goes_by_class() { exact(self.guard) } else { None },
            on_miss: None,
            classes: Some(self.classes.clone()).filter(|c| !c.is_empty()),
            shadow: self.shadow.map(|s| s.rules.to_string()),
            infeasible_status: Some(self.infeasible_status.as_u16()),
        }
    }

    fn goes_by_class(&self) -> bool {
        let orders = [Some(self.order), self.shadow.map(|s| s.rules.order)];
        orders.contains(&Some(Order::Priority))
    }

    fn cost_model(&self) -> RawPredict {
        let shadow = self.shadow.as_ref();
        let predict = self.predict.or_else(|| shadow?.predict);
        let price = self.price.or_else(|| shadow?.price);
        let orders = [Some(self.order), shadow.map(|s| s.rules.order)];
        if predict.is_none() && !orders.into_iter().flatten().any(compares_costs) {
            return RawPredict::default();
        }
        RawPredict {
            profile: None,
            overhead: exact(self.cost.overhead),
            prefill_per_token: exact(self.cost.prefill_per_token),
            first_token_steps: Some(self.cost.first_token_steps),
            idle_tpot: exact(self.cost.idle_tpot),
            pad: predict.and_then(|p| exact(p.caution.pad)),
            margin: predict.map(|p| p.caution.margin_permille as f64 / 1000.0),
            lengths: predict.map(|_| self.lengths),
            stall: price.map(|p| stall(&p.stall)),
        }
    }
}

fn pool(pool: &Pool) -> RawPool {
    let has_affinity = pool.affinity != Affinity::None;
    RawPool {
        name: pool.name.clone(),
        models: pool.models.as_ref().map(|models| models.iter().cloned().collect()),
        profile: pool.profile.as_ref().map(|p| p.name.clone()),
        affinity: Some(pool.affinity),
        affinity_slack: if has_affinity { exact(pool.affinity_slack) } else { None },
        prefix_bytes: Some(pool.prefix_bytes).filter(|_| pool.affinity == Affinity::Prefix),
    }
}

fn health(watch: &Watch) -> RawHealth {
    RawHealth {
        path: Some(watch.path.to_string()),
        interval: exact(watch.interval),
        timeout: exact(watch.timeout),
        probes: Some(watch.gate.probes),
        failures: Some(watch.gate.failures),
        open: exact(watch.gate.open),
        slow_start: exact(watch.gate.slow_start),
        metrics_interval: exact(watch.metrics_interval),
    }
}

fn stall(stall: &Stall) -> RawStall {
    RawStall {
        per_token_ms: stall.per_token_ms,
        free_tokens: stall.free_tokens,
        attention_ms: stall.attention_ms,
        kv_ms_per_token: stall.kv_ms_per_token,
        sequence_ms: stall.sequence_ms,
    }
}

fn slo(slo: &Slo) -> RawSlo {
    RawSlo { ttft: slo.ttft.and_then(exact), tpot: slo.tpot.and_then(exact), e2e: slo.e2e.and_then(exact) }
}

fn exact(span: Span) -> Option<String> {
    Some(span.exact())
}
