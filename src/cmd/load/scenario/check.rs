//! From what a user wrote to what can be drawn and run.

use std::num::NonZeroU32;
use std::path::Path;

use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use elasticserve_core::work::{
    Class, Extent, Length, Lengths, Mix, Offering, PlanTenant, SessionSpec, SharedPrefix, Sizes, TextBounds, Texts,
    TraceOptions,
};

use super::super::flags::{TENANT, read_dataset, read_pairs, supply};
use super::Work;
use super::raw::{RawArrivals, RawPrefix, RawScenario, RawSizes, RawTenant};

/// What is wrong, after the key that it is wrong with.
pub(super) type Wrong = String;

/// The work of a scenario; files are relative to `folder`.
pub(super) fn work(raw: &RawScenario, folder: &Path) -> Result<Work, Wrong> {
    match &raw.trace {
        Some(_) => trace(raw, folder),
        None => Check { raw, folder }.mix().map(|mix| Work::Mix(Box::new(mix))),
    }
}

fn trace(raw: &RawScenario, folder: &Path) -> Result<Work, Wrong> {
    let Some(trace) = &raw.trace else { return Err(String::new()) };
    let beside = [
        ("requests", raw.requests.is_some()),
        ("duration", raw.duration.is_some()),
        ("seed", raw.seed.is_some()),
        ("arrivals", raw.arrivals.is_some()),
        ("closed", raw.closed.is_some()),
        ("sessions", raw.sessions.is_some()),
        ("lengths", raw.lengths.is_some()),
        ("prompts.shared_prefix", raw.prompts.shared_prefix.is_some()),
        ("prompts.dataset", raw.prompts.dataset.is_some()),
    ];
    if let Some((key, _)) = beside.into_iter().find(|(_, is)| *is) {
        return Err(format!("{key}: does not go with trace, which has its arrivals, lengths and prompts"));
    }
    let speed_up = trace.speed_up.unwrap_or(1.0);
    let check = Check { raw, folder };
    let tenants = raw.tenants.as_deref().unwrap_or_default().iter().map(|t| check.trace_tenant(t));
    let mut tenants = tenants.collect::<Result<Vec<PlanTenant>, Wrong>>()?;
    if tenants.is_empty() && raw.slo.slo() != Slo::default() {
        tenants.push(PlanTenant::new(TENANT, 1.0, raw.slo.slo()));
    }
    let options = TraceOptions { speed_up, limit: trace.rows, tenants };
    Ok(Work::Trace { path: folder.join(&trace.file), options })
}

struct Check<'a> {
    raw: &'a RawScenario,
    folder: &'a Path,
}

impl Check<'_> {
    fn mix(&self) -> Result<Mix, Wrong> {
        let texts = self.texts()?;
        let single = RawTenant::named(TENANT);
        let tenants = match self.raw.tenants.as_deref() {
            Some([]) => return Err("tenants: there must be at least one".to_owned()),
            Some(tenants) => tenants,
            None => std::slice::from_ref(&single),
        };
        let classes = (0u32..).zip(tenants).map(|(place, tenant)| self.class(place, tenant, texts.is_some()));
        let classes = classes.collect::<Result<Vec<Class>, Wrong>>()?;
        if let Some(name) = repeated(tenants) {
            return Err(format!("tenants: two are called '{name}'"));
        }
        Ok(Mix { seed: self.raw.seed.unwrap_or(0), offer: self.offering(tenants)?, classes, texts })
    }

    fn offering(&self, tenants: &[RawTenant]) -> Result<Offering, Wrong> {
        let raw = self.raw;
        let own = tenants.iter().filter(|t| t.arrivals.is_some()).count();
        match (&raw.closed, &raw.sessions) {
            (Some(_), Some(_)) => Err("closed: does not go with sessions; the load is one or the other".to_owned()),
            (None, Some(_)) | (Some(_), None) if own > 0 => {
                Err("tenants: arrivals of their own need an open load, without closed and sessions".to_owned())
            }
            (Some(closed), None) => {
                if raw.arrivals.is_some() {
                    return Err(
                        "arrivals: do not go with closed, whose workers send when an answer has ended".to_owned()
                    );
                }
                let supply = supply(closed.workers, raw.requests, raw.duration.map(|d| d.0));
                let (count, window) = supply.ok_or("requests: how many, or a duration")?;
                Ok(Offering::Closed { workers: closed.workers, count, window })
            }
            (None, Some(sessions)) => {
                if raw.requests.is_some() {
                    return Err("requests: do not go with sessions, whose users and turns are counted".to_owned());
                }
                Ok(Offering::Sessions(SessionSpec {
                    users: sessions.users,
                    process: raw.arrivals.as_ref().map(RawArrivals::process),
                    turns: sessions.turns.0,
                    think: sessions.think.0,
                    history: sessions.history.unwrap_or(true),
                    window: raw.duration.map(|d| d.0),
                }))
            }
            (None, None) if own > 0 => self.own(),
            (None, None) => {
                let arrivals = raw.arrivals.as_ref();
                let arrivals =
                    arrivals.ok_or("arrivals: missing; say when requests come, or closed, sessions or trace")?;
                Ok(Offering::Shared { process: arrivals.process(), extent: self.extent()? })
            }
        }
    }

    fn own(&self) -> Result<Offering, Wrong> {
        if self.raw.arrivals.is_some() {
            return Err("arrivals: the tenants have their own; leave it out, or give the tenants shares".to_owned());
        }
        match (self.raw.requests, self.raw.duration) {
            (None, Some(window)) => Ok(Offering::Own { window: window.0 }),
            _ => Err("duration: needed, without requests, where tenants have arrivals of their own".to_owned()),
        }
    }

    fn extent(&self) -> Result<Extent, Wrong> {
        match (self.raw.requests, self.raw.duration) {
            (Some(count), None) => Ok(Extent::Count(count.get())),
            (None, Some(duration)) if duration.0 > Span::ZERO => Ok(Extent::Duration(duration.0)),
            (None, Some(_)) => Err("duration: must be above 0".to_owned()),
            (Some(_), Some(_)) => Err("requests: does not go with duration; say one of the two".to_owned()),
            (None, None) => Err("requests: how many, or a duration".to_owned()),
        }
    }

    fn class(&self, place: u32, tenant: &RawTenant, from_dataset: bool) -> Result<Class, Wrong> {
        let key = |key: &str| format!("tenants.{place}.{key}");
        if tenant.arrivals.is_some() && tenant.share.is_some() {
            return Err(format!("{}: does not go with arrivals of its own", key("share")));
        }
        let lengths = tenant.lengths.as_ref().map(|l| (key("lengths"), l));
        let lengths = lengths.or_else(|| self.raw.lengths.as_ref().map(|l| ("lengths".to_owned(), l)));
        let sizes = match lengths {
            // Those of the dataset take their place.
            _ if from_dataset => fixed(1, 1),
            Some((key, lengths)) => self.sizes(&key, lengths)?,
            None => return Err("lengths: missing; say input and output in tokens".to_owned()),
        };
        // Tenants without a prefix of their own share that of all.
        let own = tenant.shared_prefix.map(|p| prefix(p, place + 1));
        let prefix = own.or_else(|| self.raw.prompts.shared_prefix.map(|p| prefix(p, 0)));
        Ok(Class { tenant: self.tenant(place, tenant)?, sizes, prefix })
    }

    fn tenant(&self, place: u32, tenant: &RawTenant) -> Result<PlanTenant, Wrong> {
        for (name, value) in &tenant.headers {
            let checked = super::super::args::checked_header(name, value);
            checked.map_err(|problem| format!("tenants.{place}.headers.{name}: {problem}"))?;
        }
        if tenant.key_env.as_deref().is_some_and(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(format!("tenants.{place}.key_env: must be the name of an environment variable"));
        }
        Ok(PlanTenant {
            class: tenant.class.clone(),
            key_env: tenant.key_env.clone(),
            headers: tenant.headers.clone(),
            arrivals: tenant.arrivals.as_ref().map(RawArrivals::process),
            ..PlanTenant::new(&tenant.name, tenant.share.unwrap_or(1.0), tenant.slo.unwrap_or(self.raw.slo).slo())
        })
    }

    /// A tenant of a trace, which has times and lengths of its own.
    fn trace_tenant(&self, tenant: &RawTenant) -> Result<PlanTenant, Wrong> {
        let given = [
            ("share", tenant.share.is_some()),
            ("arrivals", tenant.arrivals.is_some()),
            ("lengths", tenant.lengths.is_some()),
            ("shared_prefix", tenant.shared_prefix.is_some()),
        ];
        match given.into_iter().find(|(_, is)| *is) {
            Some((key, _)) => Err(format!("tenants.{}.{key}: does not go with trace, which says it", tenant.name)),
            None => self.tenant(0, tenant),
        }
    }

    fn sizes(&self, key: &str, raw: &RawSizes) -> Result<Sizes, Wrong> {
        match (&raw.pairs, raw.input, raw.output) {
            (Some(file), None, None) => {
                let path = self.folder.join(file);
                read_pairs(&path).map_err(|problem| format!("{key}.pairs: {}: {problem}", path.display()))
            }
            (None, Some(input), Some(output)) => {
                let input = input.length().map_err(|problem| format!("{key}.input: {problem}"))?;
                let output = output.length().map_err(|problem| format!("{key}.output: {problem}"))?;
                Ok(Sizes::Independent { input, output })
            }
            _ => Err(format!("{key}: needs either input and output, or pairs")),
        }
    }

    fn texts(&self) -> Result<Option<Texts>, Wrong> {
        let prompts = &self.raw.prompts;
        let Some(file) = &prompts.dataset else {
            return match (prompts.max_input, prompts.max_total) {
                (None, None) => Ok(None),
                _ => Err("prompts: max_input and max_total are bounds on the texts of a dataset".to_owned()),
            };
        };
        let path = self.folder.join(file);
        let dataset = read_dataset(&path).map_err(|p| format!("prompts.dataset: {}: {p}", path.display()))?;
        let output = match &self.raw.lengths {
            None => None,
            Some(RawSizes { input: None, output: Some(output), pairs: None }) => {
                Some(output.length().map_err(|problem| format!("lengths.output: {problem}"))?)
            }
            Some(_) => return Err("lengths: with a dataset only output can be said".to_owned()),
        };
        if self.raw.tenants.iter().flatten().any(|t| t.lengths.is_some()) {
            return Err("tenants: lengths of their own do not go with a dataset".to_owned());
        }
        let default = TextBounds::default();
        let bounds = TextBounds {
            input: prompts.max_input.unwrap_or(default.input),
            total: prompts.max_total.unwrap_or(default.total),
            ..default
        };
        Ok(Some(Texts { dataset, bounds, output }))
    }
}

impl RawTenant {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            share: None,
            arrivals: None,
            lengths: None,
            shared_prefix: None,
            slo: None,
            class: None,
            key_env: None,
            headers: std::collections::BTreeMap::new(),
        }
    }
}

fn prefix(raw: RawPrefix, scope: u32) -> SharedPrefix {
    SharedPrefix { tokens: raw.tokens, groups: raw.groups.unwrap_or(NonZeroU32::MIN), scope }
}

fn fixed(input: u32, output: u32) -> Sizes {
    let length = |tokens| Length::Uniform(Lengths::fixed(tokens));
    Sizes::Independent { input: length(input), output: length(output) }
}

fn repeated(tenants: &[RawTenant]) -> Option<&str> {
    let known = |i: usize, name: &str| tenants.iter().take(i).any(|t| t.name == name);
    tenants.iter().enumerate().find(|(i, t)| known(*i, &t.name)).map(|(_, t)| t.name.as_str())
}
