//! The configuration in effect, which can be replaced while the gateway runs.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};

use elasticserve_core::ids::TenantId;

use crate::config::Config;

/// Where the configuration in effect is found.
///
/// Who works on something takes it once and goes by it to the end, so nothing is ever seen half old and half new.
#[derive(Debug)]
pub(crate) struct Live(RwLock<Arc<Active>>);

impl Live {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(Active::new(config)))))
    }

    /// The configuration of this moment.
    pub(crate) fn now(&self) -> Arc<Active> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A configuration in effect, with what is looked up in it.
#[derive(Debug)]
pub(crate) struct Active {
    config: Config,
    tenants: BTreeMap<String, TenantId>,
}

impl Active {
    fn new(config: Config) -> Self {
        let places = config.tenants.iter().enumerate();
        let tenants = places.map(|(i, t)| (t.name.clone(), TenantId(i as u16))).collect();
        Self { config, tenants }
    }

    /// The tenant of a name.
    pub(crate) fn tenant(&self, name: &str) -> Option<TenantId> {
        self.tenants.get(name).copied()
    }
}

impl Deref for Active {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}
