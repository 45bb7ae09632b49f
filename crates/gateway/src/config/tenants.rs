//! The tenants: names, shares and limits.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use elasticserve_core::ids::TenantId;
use elasticserve_core::limit::Limits;
use elasticserve_core::sched::{OnMiss, TenantPolicy};
use elasticserve_core::slo::Slo;

use super::raw::RawTenant;
use super::{ConfigError, keys, value};

/// The most tenants: each has metrics of its own.
pub const MAX_TENANTS: usize = 4096;
/// The longest name of a tenant, in bytes.
pub const MAX_NAME: usize = 64;
/// The tenant of what is unknown, unless another one is named.
const DEFAULT: &str = "default";

/// A checked tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Its share of the seats relative to the others.
    pub weight: NonZeroU32,
    /// The most permits that it may hold at once.
    pub max_permits: Option<u32>,
    /// The most requests of it that may wait.
    pub max_queued: Option<u32>,
    /// The most bytes of its bodies that may wait.
    pub max_queued_bytes: Option<u64>,
    /// What may be taken by it in a minute.
    pub limits: Limits,
    /// The highest class that its requests may ask for, and have unless they do; 0 the first.
    pub class: u32,
    /// What becomes of its running work whose deadline is lost.
    pub on_miss: OnMiss,
    /// Its limits.
    pub slo: Slo,
    /// Whether it is gone from the configuration: its requests that still wait or run end by what it had last.
    pub retired: bool,
}

impl Tenant {
    /// What the scheduler knows of it.
    #[must_use]
    pub const fn policy(&self) -> TenantPolicy {
        TenantPolicy {
            weight: self.weight,
            max_permits: self.max_permits,
            max_queued: self.max_queued,
            max_queued_bytes: self.max_queued_bytes,
            class: self.class,
            slo: Some(self.slo),
            on_miss: self.on_miss,
        }
    }
}

/// The tenants, and the place of the one for what is unknown. One called `default`, of weight 1 and the
/// last class, is added if none is named for that.
pub(super) fn check(
    raw: Option<Vec<RawTenant>>,
    default: Option<&str>,
    slo: Slo,
    on_miss: OnMiss,
) -> Result<(Vec<Tenant>, TenantId), ConfigError> {
    let raw = raw.unwrap_or_default();
    if raw.len() >= MAX_TENANTS {
        return Err(value("tenants", &format!("{} are given; at most {} can be", raw.len(), MAX_TENANTS - 1)));
    }
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut tenants = Vec::with_capacity(raw.len() + 1);
    for (i, tenant) in raw.into_iter().enumerate() {
        let tenant = one(tenant, &format!("tenants[{i}]"), slo, on_miss)?;
        if let Some(first) = places.insert(tenant.name.clone(), i) {
            let problem = format!("'{}' is the name of tenants[{first}] too; names must differ", tenant.name);
            return Err(value(&format!("tenants[{i}].name"), &problem));
        }
        tenants.push(tenant);
    }
    let place = match default {
        Some(name) => places.get(name).copied().ok_or_else(|| {
            let known: Vec<&str> = places.keys().map(String::as_str).collect();
            value("default_tenant", &format!("there is no tenant '{name}'; there are: {}", known.join(", ")))
        })?,
        None => places.get(DEFAULT).copied().unwrap_or_else(|| {
            let class = tenants.iter().map(|t| t.class).max().unwrap_or(0);
            tenants.push(Tenant {
                name: DEFAULT.to_owned(),
                weight: NonZeroU32::MIN,
                max_permits: None,
                max_queued: None,
                max_queued_bytes: None,
                limits: Limits::default(),
                class,
                on_miss,
                slo,
                retired: false,
            });
            tenants.len() - 1
        }),
    };
    Ok((tenants, TenantId(place as u16)))
}

fn one(raw: RawTenant, key: &str, slo: Slo, miss: OnMiss) -> Result<Tenant, ConfigError> {
    let RawTenant { name, weight, max_permits, max_queued, max_queued_bytes, class, on_miss, slo: own, .. } = raw;
    let limits = keys::limits(key, raw.requests_per_minute, raw.tokens_per_minute)?;
    is_name(&format!("{key}.name"), &name)?;
    let weight = NonZeroU32::new(weight.unwrap_or(1)).ok_or_else(|| {
        value(&format!("{key}.weight"), "must be 1 or more; max_permits bounds what a tenant may take")
    })?;
    if max_permits == Some(0) {
        return Err(value(&format!("{key}.max_permits"), "must be 1 or more; leave it out for no bound"));
    }
    let slo = own.map(|own| own.check(&format!("{key}.slo"))).transpose()?.unwrap_or(slo);
    let (class, on_miss) = (class.unwrap_or(0), on_miss.unwrap_or(miss));
    Ok(Tenant { name, weight, max_permits, max_queued, max_queued_bytes, limits, class, on_miss, slo, retired: false })
}

/// Whether a text may be a name.
pub(super) fn is_name(key: &str, text: &str) -> Result<(), ConfigError> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(());
    }
    Err(value(key, &format!("must be 1 to {MAX_NAME} letters, digits, '.', '_' or '-'")))
}
