//! What policies are compared on.

use crate::engine::Profile;
use crate::rng::mix;
use crate::sched::{AuditError, Order, TenantPolicy};
use crate::sim::reproduce::{Case, GatewayTimes, Published, PublishedError};
use crate::slo::Slo;
use crate::time::Span;
use crate::work::{
    Arrival, ArrivalProcess, Extent, Lengths, Plan, PlanError, PlanSpec, PlanTenant, TraceError, TraceFormat,
    TraceOptions, read_trace,
};

/// Plans of one kind, one for each seed, and the gateway that they meet.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is.
    pub name: String,
    /// The plans with their seeds.
    pub plans: Vec<(u64, Plan)>,
    /// The scheduler's tenants.
    pub tenants: Vec<TenantPolicy>,
    /// Permits of the engine.
    pub permits: u32,
    /// The most requests that may wait.
    pub depth: usize,
    /// What the gateway itself takes.
    pub gateway: GatewayTimes,
    /// What the prefix cache holds.
    pub cache: Cache,
}

/// What the prefix cache holds before a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Nothing.
    Cold,
    /// Every prompt.
    Warm,
}

/// Why there is no workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The measurements that come with the program.
    #[error(transparent)]
    Published(#[from] PublishedError),
    /// A trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The scheduler, while capacity was measured.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The measurements have no such runs.
    #[error("the published measurements have no rows of {0}")]
    Missing(&'static str),
}

/// What is offered, in multiples of capacity, in deep overload.
const OVERLOAD: f64 = 2.0;
/// Rows of the conversation trace.
const ROWS: u32 = 2_000;

impl Workload {
    const PERMITS: u32 = 32;
    const DEPTH: usize = 256;

    /// Mixed lengths of three tenants: the recorded arrivals of the published runs.
    ///
    /// # Errors
    /// [`WorkloadError`] if the measurements lack them.
    pub fn tenants(published: &Published) -> Result<Self, WorkloadError> {
        Self::of(published, "queue_order_pairs", "three tenants, mixed lengths, 8/s", Cache::Cold)
    }

    /// Prompts of 256 and answers of 64 tokens at 16/s: the recorded arrivals of the published runs.
    ///
    /// # Errors
    /// [`WorkloadError`] if the measurements lack them.
    pub fn fixed(published: &Published, cache: Cache) -> Result<Self, WorkloadError> {
        let name = match cache {
            Cache::Cold => "256/64 tokens at 16/s, cold",
            Cache::Warm => "256/64 tokens at 16/s, warm",
        };
        Self::of(published, "admission_pairs", name, cache)
    }

    /// Work like [`Workload::tenants`], drawn anew for each seed.
    ///
    /// # Errors
    /// [`WorkloadError`] if the measurements lack the tenants.
    pub fn fresh(published: &Published, seeds: impl IntoIterator<Item = u64>) -> Result<Self, WorkloadError> {
        let like = Self::tenants(published)?;
        let (_, plan) = like.plans.first().ok_or(WorkloadError::Missing("queue_order_pairs"))?;
        let spec = |seed| PlanSpec {
            seed,
            process: ArrivalProcess::Poisson { rate: rate(plan) },
            extent: Extent::Count(plan.header().count),
            input: Lengths { low: 64, high: 960 },
            output: Lengths { low: 32, high: 224 },
            tenants: plan.header().tenants.clone(),
        };
        let plans = seeds.into_iter().map(|seed| Ok((seed, Plan::generate(&spec(seed))?)));
        Ok(Self { plans: plans.collect::<Result<_, PlanError>>()?, name: "fresh traces of that kind".into(), ..like })
    }

    /// Deep overload: the first rows of Azure's conversation trace, sped up to twice of what this engine can do.
    ///
    /// The trace names no tenants; every row is given one by its place, in the shares and with the limits of
    /// `conversation_tenants`. Capacity is the rate of completions when all rows wait from the start.
    ///
    /// # Errors
    /// [`WorkloadError`] if the text is not that trace.
    pub fn conversation(text: &str, published: &Published, profile: &Profile) -> Result<Self, WorkloadError> {
        let options = TraceOptions { limit: std::num::NonZeroU32::new(ROWS), ..TraceOptions::default() };
        let trace = read_trace(TraceFormat::Azure, text, "conversation", &options)?;
        let tenants = conversation_tenants();
        let mut workload = Self {
            name: String::new(),
            plans: Vec::new(),
            tenants: vec![TenantPolicy::default(); tenants.len()],
            permits: Self::PERMITS,
            depth: ROWS as usize,
            gateway: published.gateway_times(),
            cache: Cache::Cold,
        };
        let at_once = assigned(&trace, &tenants, f64::INFINITY)?;
        let open = super::Policy::new(Order::Fcfs, super::Admission::None);
        let mut completed = 0u32;
        let mut last = Span::ZERO;
        crate::sim::run(&at_once, &super::setup(&workload, &at_once, profile, &open), |row| {
            completed += u32::from(row.state == crate::outcome::Terminal::Completed);
            last = last.max(row.e2e().unwrap_or(Span::ZERO));
        })?;
        let capacity = f64::from(completed) / last.as_secs_f64().max(1e-9);
        let faster = OVERLOAD * capacity / rate(&trace);
        let plan = assigned(&trace, &tenants, faster)?;
        workload.name = format!("Azure conversation trace at {OVERLOAD} × {capacity:.2}/s, cold");
        workload.depth = Self::DEPTH;
        workload.plans = vec![(0, plan)];
        Ok(workload)
    }

    fn of(published: &Published, group: &'static str, name: &str, cache: Cache) -> Result<Self, WorkloadError> {
        let cases: Vec<Case> = published.sequences()?.into_iter().flatten().filter(|c| c.group == group).collect();
        let first = cases.first().ok_or(WorkloadError::Missing(group))?;
        let tenants = first.tenants().to_vec();
        let mut plans: Vec<(u64, Plan)> = Vec::new();
        for case in &cases {
            // Rows are called `group/seed/side`, and both sides have one plan.
            let seed = case.row.split('/').nth(1).and_then(|seed| seed.parse().ok());
            let seed = seed.ok_or(WorkloadError::Missing(group))?;
            if plans.iter().all(|(known, _)| *known != seed) {
                plans.push((seed, case.plan().clone()));
            }
        }
        plans.sort_by_key(|(seed, _)| *seed);
        let (permits, depth) = (Self::PERMITS, Self::DEPTH);
        Ok(Self { name: name.into(), plans, tenants, permits, depth, gateway: published.gateway_times(), cache })
    }
}

/// The classes of the conversation trace: in a hurry (20 %: first token in 2 s, answer in 10 s), normal
/// (50 %: 4 s, 25 s) and patient (30 %: 15 s, 60 s).
fn conversation_tenants() -> Vec<PlanTenant> {
    let tenant = |(name, share, ttft, e2e): (&str, f64, u64, u64)| {
        PlanTenant::new(
            name,
            share,
            Slo { ttft: Some(Span::from_secs(ttft)), tpot: None, e2e: Some(Span::from_secs(e2e)) },
        )
    };
    [("hurried", 0.2, 2, 10), ("normal", 0.5, 4, 25), ("patient", 0.3, 15, 60)].map(tenant).into()
}

/// Requests per second of a plan that has a process.
fn rate(plan: &Plan) -> f64 {
    plan.header().process.rate().unwrap_or(0.0)
}

/// The trace with a tenant for every row, and in faster time; all at once if infinitely fast.
fn assigned(trace: &Plan, tenants: &[PlanTenant], faster: f64) -> Result<Plan, PlanError> {
    let assign = |a: &Arrival| {
        // The top of a mixed number as a point between 0 and 1.
        let point = (mix(1, u64::from(a.index)) >> 11) as f64 / (1u64 << 53) as f64;
        let until = |k: usize| tenants.iter().take(k + 1).map(|t| t.share).sum::<f64>();
        let tenant = (0..tenants.len()).find(|&k| point < until(k)).unwrap_or(tenants.len() - 1) as u16;
        Arrival { tenant, at: a.at.scaled_down(faster), ..*a }
    };
    let arrivals: Vec<Arrival> = trace.arrivals().iter().map(assign).collect();
    let window = trace.header().window.unwrap_or(Span::ZERO).scaled_down(faster).max(Span::from_nanos(1));
    Plan::recorded("conversation", rate(trace) * faster, window, tenants.to_vec(), arrivals)
}
