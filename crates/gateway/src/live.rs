//! The configuration in effect, which can be replaced while the gateway runs.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use elasticserve_core::ids::TenantId;
use sha2::{Digest, Sha256};

use crate::config::{Config, ConfigError, Fixed, Tenant};
use crate::model::Models;

/// The most tenants that come and go in the life of a gateway: each keeps its place and its metrics.
const MAX_PLACES: usize = 16_384;

/// Where the configuration in effect is found.
///
/// Who works on something takes it once and goes by it to the end, so nothing is ever seen half old and half new.
#[derive(Debug)]
pub(crate) struct Live(RwLock<Arc<Active>>);

/// Why a configuration cannot take the place of the one in effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// It is wrong.
    #[error(transparent)]
    Wrong(#[from] ConfigError),
    /// It changes what is set up once.
    #[error("these keys can change with a restart only: {}", .0.join(", "))]
    NeedsRestart(Vec<&'static str>),
    /// More tenants came and went than can be kept apart.
    #[error("tenants: more than {MAX_PLACES} names since the start; restart to forget those that are gone")]
    TooManyTenants,
    /// It did not come from a file, or from anything else that could be read again.
    #[error("there is no configuration file to be read again; start with --config FILE")]
    NoSource,
}

impl Live {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(Active::new(config)))))
    }

    /// The configuration of this moment.
    pub(crate) fn now(&self) -> Arc<Active> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A configuration that can take the place of the one in effect, with each tenant at the place that it has there.
    ///
    /// # Errors
    /// A [`ReloadError`] other than [`ReloadError::Wrong`].
    pub(crate) fn successor(&self, config: Config) -> Result<Arc<Active>, ReloadError> {
        let active = self.now();
        let keys = needs_restart(&active, &config);
        if !keys.is_empty() {
            return Err(ReloadError::NeedsRestart(keys));
        }
        Ok(Arc::new(Active::new(in_place(&active, config)?)))
    }

    /// Puts a successor into effect.
    pub(crate) fn set(&self, successor: Arc<Active>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = successor;
    }
}

/// A configuration in effect, with what is looked up in it.
#[derive(Debug)]
pub(crate) struct Active {
    config: Config,
    tenants: BTreeMap<String, TenantId>,
    hash: String,
    models: Models,
}

impl Active {
    fn new(config: Config) -> Self {
        let places = config.tenants.iter().enumerate().filter(|(_, t)| !t.retired);
        let tenants = places.map(|(i, t)| (t.name.clone(), TenantId(i as u16))).collect();
        // What TOML cannot hold shows in no hash.
        let digest = Sha256::digest(config.to_toml().unwrap_or_default());
        let hash = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let models = Models::new(&config);
        Self { config, tenants, hash, models }
    }

    /// Which pool serves what.
    pub(crate) fn models(&self) -> &Models {
        &self.models
    }

    /// The tenant of a name.
    pub(crate) fn tenant(&self, name: &str) -> Option<TenantId> {
        self.tenants.get(name).copied()
    }

    /// Tells this configuration from others: the first 64 bits of the SHA-256 of all values in effect, in hex.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }
}

impl Deref for Active {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}

/// The keys in which two configurations differ, and that are set up once.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let Fixed { listen, admin, admin_token, admin_api, state, decisions, log_level, log_format, trace, watch, pools } =
        &new.fixed;
    let differs = [
        ("listen", *listen != old.fixed.listen),
        ("admin", *admin != old.fixed.admin),
        ("admin_token_sha256", *admin_token != old.fixed.admin_token),
        ("admin_api", *admin_api != old.fixed.admin_api),
        ("state", *state != old.fixed.state),
        ("log.decisions", *decisions != old.fixed.decisions),
        ("log.level", *log_level != old.fixed.log_level),
        ("log.format", *log_format != old.fixed.log_format),
        ("trace", *trace != old.fixed.trace),
        ("reload.watch", *watch != old.fixed.watch),
        ("pools[].name", *pools != old.fixed.pools),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}

/// The new configuration with each tenant at the place that it has had: its number is in tickets, accounts and
/// figures. Those that are gone stay as retired ones, for what still waits and runs of them.
fn in_place(old: &Config, mut new: Config) -> Result<Config, ReloadError> {
    let default = new.tenants.get(new.default_tenant.index()).map(|t| t.name.clone()).unwrap_or_default();
    let named = std::mem::take(&mut new.tenants);
    let by_name: BTreeMap<&str, &Tenant> = named.iter().map(|t| (t.name.as_str(), t)).collect();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for tenant in &old.tenants {
        places.insert(&tenant.name, new.tenants.len());
        let kept = by_name.get(tenant.name.as_str()).map(|t| (*t).clone());
        new.tenants.push(kept.unwrap_or_else(|| Tenant { retired: true, ..tenant.clone() }));
    }
    new.tenants.extend(named.iter().filter(|t| !places.contains_key(t.name.as_str())).cloned());
    if new.tenants.len() > MAX_PLACES {
        return Err(ReloadError::TooManyTenants);
    }
    let place = new.tenants.iter().position(|t| t.name == default).unwrap_or(0);
    new.default_tenant = TenantId(place as u16);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;

    fn config(text: &str) -> Config {
        let text = format!("listen = '127.0.0.1:1'\n{text}\n[[backends]]\nurl = 'http://h:1'\n");
        RawConfig::from_toml(&text).unwrap().check().unwrap()
    }

    fn replace(live: &Live, config: Config) -> Result<Arc<Active>, ReloadError> {
        live.set(live.successor(config)?);
        Ok(live.now())
    }

    fn tenants(names: &[&str], default: &str) -> Config {
        let all: String = names.iter().map(|name| format!("[[tenants]]\nname = '{name}'\n")).collect();
        config(&format!("default_tenant = '{default}'\n{all}"))
    }

    #[test]
    fn tenants_keep_their_places_whatever_comes_goes_and_comes_back() {
        let live = Live::new(tenants(&["a", "b", "c"], "a"));
        let place = |active: &Active, name: &str| active.tenant(name).map(|t| t.0);
        let second = replace(&live, tenants(&["d", "c", "a"], "d")).unwrap();
        assert_eq!(["a", "b", "c", "d"].map(|n| place(&second, n)), [Some(0), None, Some(2), Some(3)]);
        assert_eq!(second.default_tenant, TenantId(3));
        assert!(second.config.tenants[1].retired && second.config.tenants[1].name == "b");
        let third = replace(&live, tenants(&["e", "b"], "b")).unwrap();
        assert_eq!(["a", "b", "e"].map(|n| place(&third, n)), [None, Some(1), Some(4)]);
        assert_eq!(third.default_tenant, TenantId(1));
        let shown = RawConfig::from_toml(&third.to_toml().unwrap()).unwrap().check().unwrap();
        assert_eq!(shown.tenants.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["b", "e"]);
    }

    #[test]
    fn what_is_set_up_once_is_refused_by_name_with_everything_beside_it() {
        let live = Live::new(config(""));
        let before = live.now();
        let mut other = config("default_tenant = 'x'\n[[tenants]]\nname = 'x'");
        other.fixed.listen.set_port(2);
        other.fixed.watch = false;
        other.fixed.pools.push("another".into());
        let keys = vec!["listen", "reload.watch", "pools[].name"];
        let error = replace(&live, other).unwrap_err();
        assert_eq!(error, ReloadError::NeedsRestart(keys));
        assert!(error.to_string().contains("listen, reload.watch, pools[].name"), "{error}");
        assert!(Arc::ptr_eq(&before, &live.now()));
    }

    #[test]
    fn the_hash_tells_configurations_apart_by_their_values_alone() {
        let live = Live::new(config(""));
        let first = live.now().hash().to_owned();
        let mut more = config("");
        more.backends[0].permits = 7;
        assert_ne!(replace(&live, more).unwrap().hash(), first);
        assert_eq!(replace(&live, config("# with a remark")).unwrap().hash(), first);
        assert_eq!(first.len(), 16);
    }

    #[test]
    fn more_tenants_than_can_be_kept_apart_are_refused() {
        let mut many = config("");
        let model = many.tenants[0].clone();
        many.tenants.extend((0..MAX_PLACES - 2).map(|i| Tenant { name: format!("t{i}"), ..model.clone() }));
        let live = Live::new(many);
        replace(&live, tenants(&["one-more"], "one-more")).unwrap();
        assert_eq!(replace(&live, tenants(&["too-many"], "too-many")).unwrap_err(), ReloadError::TooManyTenants);
    }
}
