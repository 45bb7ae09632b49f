//! Which configuration is in effect, and whether the last reload worked.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HashLabel {
    hash: String,
}

/// Figures about the configuration.
#[derive(Default)]
pub(crate) struct Reloads {
    done: Counter,
    failed: Counter,
    last_worked: Gauge,
    in_effect_since: Gauge,
    active: Family<HashLabel, Gauge>,
}

impl Reloads {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("config_reloads", "Times that a configuration took the place of another", self.done.clone());
        r.register("config_reload_failures", "Times that a configuration was refused", self.failed.clone());
        let worked = "1 if the last reload worked, or there was none yet";
        r.register("config_last_reload_successful", worked, self.last_worked.clone());
        let since = "Unix time at which the configuration in effect was read";
        r.register_with_unit("config_loaded_timestamp", since, Unit::Seconds, self.in_effect_since.clone());
        r.register("config_active", "1 for the configuration in effect, by its hash", self.active.clone());
    }

    /// A configuration is in effect from here on.
    pub(crate) fn in_effect(&self, hash: &str) {
        self.last_worked.set(1);
        // A wall clock before 1970 shows as 1970.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.in_effect_since.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        self.active.clear();
        self.active.get_or_create(&HashLabel { hash: hash.to_owned() }).set(1);
    }

    pub(crate) fn replaced(&self, hash: &str) {
        self.done.inc();
        self.in_effect(hash);
    }

    pub(crate) fn refused(&self) {
        self.failed.inc();
        self.last_worked.set(0);
    }
}
