//! Requests and tokens per minute, of tenants and of keys: taken when a request is admitted, settled when it has ended.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use elasticserve_core::limit::{Exceeded, Level, Limited, Limits, Quota, Reserved};
use elasticserve_core::time::{Span, Tick};
use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::auth::Caller;
use crate::clock::Clock;
use crate::config::Config;
use crate::task::Task;

/// The tokens that an answer is taken for while nothing is known of its length.
const ASSUMED_OUTPUT: u64 = 256;
/// What has been taken of tenants and keys that are configured no more is forgotten beyond so many.
const MAX_OWNERS: usize = 1 << 17;

/// Whose limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Tenant(String),
    Key(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(name) => write!(f, "tenant '{name}'"),
            Self::Key(id) => write!(f, "key '{id}'"),
        }
    }
}

/// What all owners have left. It knows owners by name and takes their limits from each request's configuration, so
/// another configuration fills no bucket.
#[derive(Debug)]
pub(crate) struct Quotas {
    clock: Clock,
    quotas: Mutex<BTreeMap<Owner, (Limits, Quota)>>,
}

/// The limits that one request is under.
#[derive(Clone, Debug)]
pub(crate) struct Under(Vec<(Owner, Limits)>);

impl Under {
    /// Those of the tenant and of the key, where there are any.
    pub(crate) fn of(config: &Config, caller: &Caller, task: &Task) -> Self {
        let tenant = &config.tenants[task.tenant.index()];
        let key = caller.key.as_ref().map(|key| (Owner::Key(key.id.clone()), key.limits));
        let all = [Some((Owner::Tenant(tenant.name.clone()), tenant.limits)), key];
        Self(all.into_iter().flatten().filter(|(_, limits)| !limits.is_none()).collect())
    }
}

/// Why a request is one too many.
#[derive(Clone, Debug)]
pub(crate) struct RateLimited {
    owner: Owner,
    exceeded: Exceeded,
    levels: Levels,
}

impl RateLimited {
    pub(crate) const fn limited(&self) -> Limited {
        self.exceeded.limited
    }

    /// The time after which the same request would be let in, if nothing else is.
    pub(crate) const fn wait(&self) -> Span {
        self.exceeded.wait
    }

    pub(crate) const fn levels(&self) -> Levels {
        self.levels
    }
}

impl fmt::Display for RateLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exceeded { limited, level, asked, wait } = self.exceeded;
        let Self { owner, .. } = self;
        write!(
            f,
            "rate limit of {owner}: {} {limited} per minute, of which {} are left and this request needs {asked}; try again in {}",
            level.limit,
            level.remaining,
            duration(wait)
        )
    }
}

/// How the limits of a request stand; of several owners, the one that has least.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Levels {
    requests: Option<Level>,
    tokens: Option<Level>,
}

impl Levels {
    /// Tells them as OpenAI does.
    pub(crate) fn put(&self, headers: &mut HeaderMap) {
        let names = [
            (
                self.requests,
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                "x-ratelimit-reset-requests",
            ),
            (self.tokens, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
        ];
        for (level, limit, remaining, reset) in names {
            let Some(level) = level else { continue };
            headers.insert(HeaderName::from_static(limit), level.limit.into());
            headers.insert(HeaderName::from_static(remaining), level.remaining.into());
            if let Ok(value) = HeaderValue::from_str(&duration(level.reset)) {
                headers.insert(HeaderName::from_static(reset), value);
            }
        }
    }
}

impl Quotas {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, quotas: Mutex::default() })
    }

    /// Takes one request and so many tokens from all owners, or nothing from any.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        under: &Under,
        expected: impl FnOnce() -> Expected,
        config: &Config,
    ) -> Result<Option<Charge>, Box<RateLimited>> {
        if under.0.is_empty() {
            return Ok(None);
        }
        let expected = expected();
        let now = self.clock.now();
        let mut quotas = self.lock();
        if quotas.len() >= MAX_OWNERS {
            quotas.retain(|owner, _| is_configured(config, owner));
        }
        let mut held = Vec::with_capacity(under.0.len());
        for (owner, limits) in &under.0 {
            let (known, quota) = quotas.entry(owner.clone()).or_insert_with(|| (*limits, Quota::new(*limits, now)));
            if known != limits {
                quota.set_limits(now, *limits);
                *known = *limits;
            }
            match quota.reserve(now, expected.total()) {
                Ok(reserved) => held.push((owner.clone(), reserved)),
                Err(exceeded) => {
                    for (owner, reserved) in held {
                        if let Some((_, quota)) = quotas.get_mut(&owner) {
                            quota.cancel(now, reserved);
                        }
                    }
                    let levels = levels(&quotas, under, self.clock);
                    return Err(Box::new(RateLimited { owner: owner.clone(), exceeded, levels }));
                }
            }
        }
        drop(quotas);
        Ok(Some(Charge { quotas: Arc::clone(self), held, expected }))
    }

    /// How the limits stand.
    pub(crate) fn levels(&self, under: &Under) -> Levels {
        if under.0.is_empty() { Levels::default() } else { levels(&self.lock(), under, self.clock) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, (Limits, Quota)>> {
        // Every entry is whole between any two statements.
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn levels(quotas: &BTreeMap<Owner, (Limits, Quota)>, under: &Under, clock: Clock) -> Levels {
    let now = clock.now();
    let least = |limited| {
        let all = under.0.iter().filter_map(|(owner, _)| quotas.get(owner)?.1.level(now, limited));
        all.min_by_key(|level| level.remaining)
    };
    Levels { requests: least(Limited::Requests), tokens: least(Limited::Tokens) }
}

fn is_configured(config: &Config, owner: &Owner) -> bool {
    match owner {
        Owner::Tenant(name) => config.tenants.iter().any(|tenant| tenant.name == *name),
        Owner::Key(id) => config.keys.iter().any(|key| key.id == *id),
    }
}

/// What one request has taken. Dropped unsettled it has cost nothing.
#[derive(Debug)]
#[must_use = "what is dropped is given back"]
pub(crate) struct Charge {
    quotas: Arc<Quotas>,
    held: Vec<(Owner, Reserved)>,
    expected: Expected,
}

impl Charge {
    /// The tokens that were expected.
    pub(crate) const fn expected(&self) -> Expected {
        self.expected
    }

    /// Replaces the tokens that were expected by those that were used.
    pub(crate) fn settle(mut self, used: u64) {
        self.end(|quota, now, reserved| quota.settle(now, reserved, used));
    }

    fn end(&mut self, end: impl Fn(&mut Quota, Tick, Reserved)) {
        if self.held.is_empty() {
            return;
        }
        let mut quotas = self.quotas.lock();
        let now = self.quotas.clock.now();
        for (owner, reserved) in self.held.drain(..) {
            if let Some((_, quota)) = quotas.get_mut(&owner) {
                end(quota, now, reserved);
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.end(|quota, now, reserved| quota.cancel(now, reserved));
    }
}

/// The tokens that a request is taken to need.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    input: u64,
    output: u64,
}

impl Expected {
    /// The prompt, and the answer that is declared, or that its tenant's usually are within its limit.
    pub(crate) fn of(task: &Task, usual: impl FnOnce() -> Option<f64>) -> Self {
        let guess = || match (usual().map(|mean| mean.round() as u64), task.output_limit().map(u64::from)) {
            (Some(usual), Some(limit)) => usual.min(limit),
            (Some(tokens), None) | (None, Some(tokens)) => tokens,
            (None, None) => ASSUMED_OUTPUT,
        };
        let each = task.declared_output().map_or_else(guess, u64::from);
        Self { input: task.input().into(), output: each.saturating_mul(task.choices().into()) }
    }

    pub(crate) const fn input(self) -> u64 {
        self.input
    }

    pub(crate) const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// A length of time as Go writes it, which is what OpenAI sends: `12ms`, `1.5s`, `6m0s`, rounded up to milliseconds.
fn duration(span: Span) -> String {
    let ms = span.as_millis_ceil();
    if ms < 1000 {
        return if ms == 0 { "0s".to_owned() } else { format!("{ms}ms") };
    }
    let (minutes, rest) = (ms / 60_000, ms % 60_000);
    let fraction = format!("{:03}", rest % 1000);
    let fraction = fraction.trim_end_matches('0');
    let seconds = rest / 1000;
    let seconds = if fraction.is_empty() { format!("{seconds}s") } else { format!("{seconds}.{fraction}s") };
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_written_as_go_writes_them() {
        // fmt.Println(time.Duration(N) * time.Millisecond)
        for (ms, text) in [
            (0, "0s"),
            (9, "9ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (8_640, "8.64s"),
            (59_999, "59.999s"),
            (60_000, "1m0s"),
            (72_005, "1m12.005s"),
            (360_000, "6m0s"),
            (3_600_000, "1h0m0s"),
            (5_400_250, "1h30m0.25s"),
        ] {
            assert_eq!(duration(Span::from_millis(ms)), text);
        }
        assert_eq!(duration(Span::from_nanos(1)), "1ms");
    }
}
