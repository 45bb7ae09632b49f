//! Plans of several tenants, each with its own lengths, prompts and perhaps arrivals, under any load model.

mod sessions;
mod texts;

use std::num::NonZeroU32;
use std::sync::Arc;

use super::{
    Arrival, ArrivalProcess, Dataset, Extent, Length, LoadModel, Plan, PlanError, PlanTenant, Prefix, Sizes, tenant,
};
use crate::rng::{Random, Stream, mix};
use crate::time::Span;

pub use sessions::{SessionSpec, Think};
pub use texts::TextBounds;

/// What a plan is drawn from. Each tenant has random numbers of its own, so that a change of one moves no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The seed of every random choice.
    pub seed: u64,
    /// When requests are sent.
    pub offer: Offering,
    /// Whose requests they are, at least one.
    pub classes: Vec<Class>,
    /// Where prompts come from, if they are not made from numbers.
    pub texts: Option<Texts>,
}

/// When the requests of a [`Mix`] are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Offering {
    /// One process for all; each arrival is a tenant's by their shares.
    Shared {
        /// When requests arrive.
        process: ArrivalProcess,
        /// How many.
        extent: Extent,
    },
    /// Every tenant has a process of its own, in [`PlanTenant::arrivals`].
    Own {
        /// For how long requests arrive.
        window: Span,
    },
    /// Workers that send one request after the other.
    Closed {
        /// Workers.
        workers: NonZeroU32,
        /// Requests in the supply.
        count: NonZeroU32,
        /// When the run ends, if not with the supply.
        window: Option<Span>,
    },
    /// Users who hold conversations.
    Sessions(SessionSpec),
}

/// A tenant with what its requests are.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The tenant.
    pub tenant: PlanTenant,
    /// How long its prompts and answers are. A shared prefix is on top.
    pub sizes: Sizes,
    /// What its prompts start with.
    pub prefix: Option<SharedPrefix>,
}

/// A text that prompts start with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SharedPrefix {
    /// Tokens.
    pub tokens: NonZeroU32,
    /// How many different ones there are; each prompt has one of them, all equally often.
    pub groups: NonZeroU32,
    /// Sets these apart from those of other tenants; equal numbers are the same texts.
    pub scope: u32,
}

/// Prompts from a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Texts {
    /// The conversations.
    pub dataset: Arc<Dataset>,
    /// Which of them are used.
    pub bounds: TextBounds,
    /// How long answers are, in place of those of the dataset.
    pub output: Option<Length>,
}

/// The most arrivals of one plan: about 2 GB of plan.
pub const MAX_ARRIVALS: u32 = 20_000_000;
/// Sets families of prefixes apart from prompts.
const FAMILIES: u64 = 0x7072_6566_6978_6573;

impl Mix {
    /// Draws the plan. The same specification gives the same plan everywhere.
    ///
    /// # Errors
    /// [`PlanError::Spec`] names what is wrong and what would be right.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        if let Some(problem) = self.problem() {
            return Err(PlanError::Spec(problem));
        }
        let plan = match &self.offer {
            Offering::Shared { process, extent } => {
                let window = process.window(*extent);
                let times = self.tenants_by_share(process.times(self.seed, *extent));
                self.drawn(process.clone(), Some(window), times)?
            }
            Offering::Own { window } => self.drawn(self.mixed(), Some(*window), self.own_times(*window))?,
            Offering::Closed { workers, count, window } => {
                let at_once = std::iter::repeat_n(Span::ZERO, count.get() as usize);
                let plan = self.drawn(ArrivalProcess::OnDemand, None, self.tenants_by_share(at_once))?;
                plan.as_supply(*workers, *window)
            }
            Offering::Sessions(spec) => return self.sessions(spec),
        };
        if plan.arrivals().is_empty() {
            return Err(PlanError::Spec("the duration is too short for a single request at this rate".into()));
        }
        match &self.texts {
            Some(texts) => self.with_texts(plan, texts),
            None => self.with_prefixes(plan),
        }
    }

    fn problem(&self) -> Option<String> {
        let tenants: Vec<PlanTenant> = self.classes.iter().map(|c| c.tenant.clone()).collect();
        let sizes = || self.classes.iter().find_map(|c| c.sizes.problem(&self.whose(c)));
        let texts = || self.texts.as_ref()?.output.as_ref()?.problem("output");
        let both = || {
            let both = self.texts.is_some() && self.classes.iter().any(|c| c.prefix.is_some());
            both.then(|| "prompts are either texts of a dataset or have a shared prefix, not both".to_owned())
        };
        tenant::problem(&tenants).or_else(sizes).or_else(texts).or_else(both).or_else(|| self.offer_problem())
    }

    fn offer_problem(&self) -> Option<String> {
        let processes: Vec<&ArrivalProcess> = match &self.offer {
            Offering::Shared { process, .. } => vec![process],
            Offering::Own { .. } => self.classes.iter().filter_map(|c| c.tenant.arrivals.as_ref()).collect(),
            Offering::Closed { .. } => Vec::new(),
            Offering::Sessions(spec) => spec.process.iter().collect(),
        };
        let own = matches!(self.offer, Offering::Own { .. });
        for class in &self.classes {
            match (own, &class.tenant.arrivals) {
                (true, None) => return Some(format!("tenant '{}' needs arrivals of its own", class.tenant.name)),
                (false, Some(_)) => {
                    return Some(format!("tenant '{}' has arrivals of its own beside a share", class.tenant.name));
                }
                _ => {}
            }
        }
        let drawn = |p: &&ArrivalProcess| matches!(p, ArrivalProcess::Mixed { .. } | ArrivalProcess::OnDemand);
        if processes.iter().any(drawn) {
            return Some("an open load needs an arrival process".into());
        }
        processes.iter().find_map(|p| p.problem()).or_else(|| self.size_problem(&processes))
    }

    /// Refuses a plan that would not fit in memory, before it is drawn.
    fn size_problem(&self, processes: &[&ArrivalProcess]) -> Option<String> {
        let rate: f64 = processes.iter().filter_map(|p| p.rate()).sum();
        let arrivals = match &self.offer {
            Offering::Shared { extent: Extent::Count(n), .. } => f64::from(*n),
            Offering::Shared { extent: Extent::Duration(window), .. } | Offering::Own { window } => {
                rate * window.as_secs_f64()
            }
            Offering::Closed { count, .. } => f64::from(count.get()),
            Offering::Sessions(spec) => f64::from(spec.users.get()) * f64::from(spec.turns.high),
        };
        (arrivals > f64::from(MAX_ARRIVALS))
            .then(|| format!("more than {MAX_ARRIVALS} requests; take a shorter time or a lower rate"))
    }

    fn whose(&self, class: &Class) -> String {
        if self.classes.len() > 1 { format!("tenant '{}': ", class.tenant.name) } else { String::new() }
    }

    /// A random source of a tenant's own. The first tenant has that of the plan, so that one tenant alone is the
    /// same plan as [`PlanSpec`](super::PlanSpec) draws.
    fn random(&self, tenant: usize, stream: Stream) -> Random {
        Random::new(self.tenant_seed(tenant), stream)
    }

    fn tenant_seed(&self, tenant: usize) -> u64 {
        if tenant == 0 { self.seed } else { mix(self.seed, tenant as u64) }
    }

    /// Gives each time a tenant by their shares.
    fn tenants_by_share<'a>(
        &'a self,
        times: impl Iterator<Item = Span> + 'a,
    ) -> Box<dyn Iterator<Item = (Span, u16)> + 'a> {
        let mut random = Random::new(self.seed, Stream::Tenants);
        let shares: Vec<f64> = self.classes.iter().map(|c| c.tenant.share).collect();
        let total: f64 = shares.iter().sum();
        Box::new(times.map(move |at| (at, tenant::pick(&shares, random.unit() * total))))
    }

    /// The times of all tenants' own processes, in order; at the same moment the first tenant goes first.
    fn own_times(&self, window: Span) -> Box<dyn Iterator<Item = (Span, u16)> + '_> {
        let own = |(i, class): (usize, &Class)| {
            let times = class
                .tenant
                .arrivals
                .as_ref()
                .map(|p| p.times(self.tenant_seed(i), Extent::Duration(window)).map(move |at| (at, i as u16)));
            times.into_iter().flatten().collect::<Vec<_>>()
        };
        let mut all: Vec<(Span, u16)> = self.classes.iter().enumerate().flat_map(own).collect();
        all.sort_unstable();
        Box::new(all.into_iter())
    }

    /// What the tenants' own processes are together.
    fn mixed(&self) -> ArrivalProcess {
        let rates = self.classes.iter().filter_map(|c| c.tenant.arrivals.as_ref()?.rate());
        ArrivalProcess::Mixed { rate: rates.sum() }
    }

    /// A plan of these times and tenants, with lengths and prompts.
    fn drawn(
        &self,
        process: ArrivalProcess,
        window: Option<Span>,
        times: impl Iterator<Item = (Span, u16)>,
    ) -> Result<Plan, PlanError> {
        let mut lengths = self.lengths();
        let arrivals = (0u32..).zip(times).map(|(index, (at, tenant))| {
            let (input, output) = lengths.draw(tenant);
            Arrival { index, at, tenant, input, output, prompt: mix(self.seed, u64::from(index)) }
        });
        Plan::of_arrivals(self.seed, process, window, self.tenants(), arrivals.collect())
    }

    fn lengths(&self) -> DrawLengths<'_> {
        let random = (0..self.classes.len()).map(|i| self.random(i, Stream::Lengths)).collect();
        DrawLengths { classes: &self.classes, random }
    }

    /// The tenants as the header has them.
    fn tenants(&self) -> Vec<PlanTenant> {
        // One uniform distribution for all can be seen in the arrivals, and earlier versions did not say it.
        let uniform =
            |s: &Sizes| matches!(s, Sizes::Independent { input: Length::Uniform(_), output: Length::Uniform(_) });
        let plain = self.classes.iter().all(|c| uniform(&c.sizes) && c.sizes == self.classes[0].sizes);
        let said = |class: &Class| {
            let texts = self.texts.as_ref().map(Texts::words);
            let own = (!plain).then(|| class.sizes.to_string());
            PlanTenant { lengths: texts.or(own), ..class.tenant.clone() }
        };
        self.classes.iter().map(said).collect()
    }

    /// Adds the prefixes of the tenants that have one.
    fn with_prefixes(&self, plan: Plan) -> Result<Plan, PlanError> {
        if self.classes.iter().all(|c| c.prefix.is_none()) {
            return Ok(plan);
        }
        let mut random: Vec<Random> = (0..self.classes.len()).map(|i| self.random(i, Stream::Texts)).collect();
        let mut prefix = |arrival: &Arrival| {
            let place = usize::from(arrival.tenant);
            let shared = self.classes.get(place)?.prefix?;
            let carries = matches!(plan.header().model, LoadModel::Sessions { history: true, .. });
            if carries && plan.turn(arrival).is_some_and(|turn| turn.place > 0) {
                return None;
            }
            Some(shared.draw(self.seed, random.get_mut(place)?))
        };
        let prefixes: Vec<Option<Prefix>> = plan.arrivals().iter().map(&mut prefix).collect();
        plan.lengthened(|arrival| prefixes[arrival.index as usize].map_or(0, |p| p.tokens)).with_prefixes(prefixes)
    }
}

impl SharedPrefix {
    fn draw(self, seed: u64, random: &mut Random) -> Prefix {
        let group = random.between(0, u64::from(self.groups.get()) - 1);
        Prefix { family: mix(mix(seed ^ FAMILIES, u64::from(self.scope)), group), tokens: self.tokens.get() }
    }
}

struct DrawLengths<'a> {
    classes: &'a [Class],
    random: Vec<Random>,
}

impl DrawLengths<'_> {
    fn draw(&mut self, tenant: u16) -> (u32, u32) {
        // A tenant is a place in both lists.
        let place = usize::from(tenant);
        self.classes[place].sizes.draw(&mut self.random[place])
    }
}

#[cfg(test)]
mod tests;
