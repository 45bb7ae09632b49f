//! API keys: whose they are, until when, and for what.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elasticserve_core::limit::Limits;
use toml::value::{Datetime, Offset};

use super::raw::{RawKey, RawTenant};
use super::{ConfigError, tenants, value};
use crate::secret::{self, Digest, Secret};

/// The most keys of all tenants together.
pub const MAX_KEYS: usize = 65_536;
/// The most models that one key may name.
const MAX_MODELS: usize = 256;

/// The keys of all tenants, to be looked up by what a client shows.
#[derive(Clone, Debug)]
pub struct Keys {
    keys: Vec<Arc<Key>>,
    /// Places by salted digest. Nobody outside knows the salt, so how long a look-up takes tells nothing of a key.
    places: BTreeMap<[u8; 32], usize>,
    salt: [u8; 32],
}

/// A checked key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// A name for it, which may be shown.
    pub id: String,
    /// The name of the tenant whose it is.
    pub tenant: String,
    /// What it is known by.
    pub digest: Digest,
    /// When it ends; `None` for never.
    pub expires: Option<Expiry>,
    /// What it may be used for; `None` for everything.
    pub models: Option<Vec<String>>,
    /// What may be taken by it in a minute, beside its tenant's limits.
    pub limits: Limits,
}

/// A moment of the calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    text: String,
    at: SystemTime,
}

impl Keys {
    /// Whether there are none, so that clients need not show any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All keys, by tenant.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.keys.iter()
    }

    /// The key that a client shows, if there is such a one.
    #[must_use]
    pub fn find(&self, secret: &Secret) -> Option<&Arc<Key>> {
        let digest = secret.digest();
        let place = self.places.get(&digest.salted(&self.salt));
        place.and_then(|place| self.keys.get(*place)).filter(|key| key.digest == digest)
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

impl Key {
    /// Whether it may use a model; one that is bound to models needs a request to name one of them.
    #[must_use]
    pub fn may_use(&self, model: Option<&str>) -> bool {
        let fits = |pattern: &String, model: &str| match pattern.strip_suffix('*') {
            Some(start) => model.starts_with(start),
            None => model == pattern,
        };
        self.models.as_ref().is_none_or(|all| model.is_some_and(|model| all.iter().any(|p| fits(p, model))))
    }
}

impl Expiry {
    /// Whether the moment has come.
    #[must_use]
    pub fn is_over(&self, now: SystemTime) -> bool {
        self.at <= now
    }

    /// The moment as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads a date, which stands for its first moment in UTC, or a date and time with an offset.
    ///
    /// # Errors
    /// A text that says what would be right.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z");
        let read: Datetime = text.parse().map_err(|_| wrong())?;
        let date = read.date.ok_or_else(wrong)?;
        let (time, offset) = match (read.time, read.offset) {
            (None, None) => (0, 0),
            (Some(time), Some(offset)) => {
                let seconds = u64::from(time.second.unwrap_or(0));
                let minutes = if let Offset::Custom { minutes } = offset { i64::from(minutes) } else { 0 };
                (u64::from(time.hour) * 3600 + u64::from(time.minute) * 60 + seconds, minutes * 60)
            }
            _ => return Err(format!("'{text}' does not say of which time zone it is; write a Z behind it for UTC")),
        };
        let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
        let seconds = u64::try_from(days * 86_400 + time as i64 - offset).map_err(|_| wrong())?;
        Ok(Self { text: text.to_owned(), at: UNIX_EPOCH + Duration::from_secs(seconds) })
    }
}

/// Days from 1 January 1970 in the Gregorian calendar. Years are counted from 1 March, so that a leap day is the last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // Months from March on have 31, 30, 31, 30, 31 days, and again.
    let days_of_months = (153 * month + 2) / 5;
    365 * year + leap_days + days_of_months + day - 1 - 719_468
}

/// All keys of the tenants as they are written.
pub(super) fn check(tenants: &[RawTenant]) -> Result<Keys, ConfigError> {
    let salt = secret::random().map_err(|e| value("tenants", &e.to_string()))?;
    let mut keys = Keys { keys: Vec::new(), places: BTreeMap::new(), salt };
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    for (i, tenant) in tenants.iter().enumerate() {
        for (j, raw) in tenant.keys.iter().flatten().enumerate() {
            let place = format!("tenants[{i}].keys[{j}]");
            let key = one(raw, &place, &tenant.name)?;
            if let Some(first) = ids.insert(key.id.clone(), place.clone()) {
                let problem = format!("'{}' is the id of {first} too; ids must differ", key.id);
                return Err(value(&format!("{place}.id"), &problem));
            }
            let at = keys.keys.len();
            if let Some(first) = keys.places.insert(key.digest.salted(&salt), at) {
                let problem = format!("is the key '{}' again; every key must be of its own", keys.keys[first].id);
                return Err(value(&format!("{place}.sha256"), &problem));
            }
            if at == MAX_KEYS {
                return Err(value(&place, &format!("there are more than {MAX_KEYS} keys")));
            }
            keys.keys.push(Arc::new(key));
        }
    }
    Ok(keys)
}

fn one(raw: &RawKey, place: &str, tenant: &str) -> Result<Key, ConfigError> {
    let RawKey { id, sha256, expires, models, requests_per_minute, tokens_per_minute } = raw;
    tenants::is_name(&format!("{place}.id"), id)?;
    let digest = sha256.parse().map_err(|e| value(&format!("{place}.sha256"), &format!("{e}")))?;
    let read = |text: &String| Expiry::read(text).map_err(|e| value(&format!("{place}.expires"), &e));
    let expires = expires.as_ref().map(read).transpose()?;
    let models_key = format!("{place}.models");
    match models.as_deref() {
        Some([]) => return Err(value(&models_key, "names no model; leave it out for all of them")),
        Some(all) if all.len() > MAX_MODELS => return Err(value(&models_key, &format!("at most {MAX_MODELS}"))),
        Some(all) if all.iter().any(|m| m.is_empty() || m.trim_end_matches('*').contains('*')) => {
            return Err(value(&models_key, "must be names of models; a * can stand at the end only"));
        }
        _ => {}
    }
    let limits = limits(place, *requests_per_minute, *tokens_per_minute)?;
    Ok(Key { id: id.clone(), tenant: tenant.to_owned(), digest, expires, models: models.clone(), limits })
}

/// What may be taken in a minute.
pub(super) fn limits(place: &str, requests: Option<u64>, tokens: Option<u64>) -> Result<Limits, ConfigError> {
    let read = |name: &str, limit: Option<u64>| {
        let problem = "must be 1 or more; leave it out for no limit";
        limit.map(|n| NonZeroU64::new(n).ok_or_else(|| value(&format!("{place}.{name}"), problem))).transpose()
    };
    Ok(Limits { requests: read("requests_per_minute", requests)?, tokens: read("tokens_per_minute", tokens)? })
}

/// The keys of one tenant as they are written.
pub(super) fn written(keys: &Keys, tenant: &str) -> Option<Vec<RawKey>> {
    let raw = |key: &Arc<Key>| RawKey {
        id: key.id.clone(),
        sha256: key.digest.to_string(),
        expires: key.expires.as_ref().map(|e| e.text.clone()),
        models: key.models.clone(),
        requests_per_minute: key.limits.requests.map(NonZeroU64::get),
        tokens_per_minute: key.limits.tokens.map(NonZeroU64::get),
    };
    let all: Vec<RawKey> = keys.iter().filter(|key| key.tenant == tenant).map(raw).collect();
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> u64 {
        Expiry::read(text).unwrap().at.duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        // date -u -d TEXT +%s
        for (text, unix) in [
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2000-03-01", 951_868_800),
            ("2027-01-31", 1_801_353_600),
            ("2027-01-31T12:00:00Z", 1_801_396_800),
            ("2027-01-31T12:00:00+02:00", 1_801_389_600),
            ("2100-03-01", 4_107_542_400),
        ] {
            assert_eq!(seconds(text), unix, "{text}");
        }
        for bad in ["", "soon", "31.01.2027", "2027-02-30T", "12:00:00", "1969-12-31"] {
            assert!(Expiry::read(bad).unwrap_err().contains("2027-01-31"), "{bad}");
        }
        assert!(Expiry::read("2027-01-31T12:00:00").unwrap_err().contains("time zone"));
    }

    #[test]
    fn a_key_is_over_from_its_moment_on() {
        let expiry = Expiry::read("2027-01-31").unwrap();
        let at = UNIX_EPOCH + Duration::from_secs(1_801_353_600);
        assert!(expiry.is_over(at) && !expiry.is_over(at - Duration::from_nanos(1)));
    }

    #[test]
    fn a_key_that_is_bound_to_models_uses_no_other() {
        let digest = Secret::new("esk-0123456789abcdef0123").unwrap().digest();
        let key = |models: Option<&[&str]>| {
            let models = models.map(|all| all.iter().map(|m| (*m).to_owned()).collect());
            let (tenant, limits) = ("t".to_owned(), Limits::default());
            Key { id: "k".into(), tenant, digest, expires: None, models, limits }
        };
        assert!(key(None).may_use(None) && key(None).may_use(Some("any")));
        let bound = key(Some(&["small", "Qwen/*"]));
        for (model, may) in [
            (Some("small"), true),
            (Some("smaller"), false),
            (Some("Qwen/Qwen3-8B"), true),
            (Some("qwen/Qwen3-8B"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(bound.may_use(model), may, "{model:?}");
        }
    }
}
