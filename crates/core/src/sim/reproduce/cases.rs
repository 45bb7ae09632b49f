//! From a file of measurements to the runs behind its rows.

use std::num::NonZeroU32;

use super::column::Column;
use super::published::{Arrivals, CacheOfRows, CacheWord, Cells, Published, PublishedError, Tenant, columns};
use super::scenario::{Cache, GatewayConditions, Scenario};
use super::traces;
use crate::sched::{Order, TenantPolicy};
use crate::slo::Slo;
use crate::time::Span;
use crate::work::{Arrival, ArrivalProcess, Extent, Lengths, Plan, PlanSpec, PlanTenant};

/// A published run: its conditions, and what was measured.
#[derive(Clone, Debug)]
pub struct Case {
    /// The table.
    pub group: &'static str,
    /// The row, with what tells it apart: `saturation/8`.
    pub row: String,
    /// The conditions.
    pub scenario: Scenario,
    /// What was measured.
    pub measured: Vec<(Column, f64)>,
    /// Where it is one of a pair: of which, and whether it is the run with the change.
    pub side: Option<(String, bool)>,
}

impl Case {
    /// Whether several tenants share the run.
    #[must_use]
    pub fn with_tenants(&self) -> bool {
        self.scenario.plan.header().tenants.len() > 1
    }

    /// What was offered.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.scenario.plan
    }

    /// The scheduler's tenants, where there was a gateway.
    #[must_use]
    pub fn tenants(&self) -> &[TenantPolicy] {
        self.scenario.gateway.as_ref().map_or(&[], |g| &g.tenants)
    }
}

/// Runs that share a prefix cache, one after the other.
pub type Sequence = Vec<Case>;

/// One at a time: so far apart that no two requests meet.
const APART: Span = Span::from_secs(600);

type Found<T> = Result<T, PublishedError>;

impl Published {
    /// The runs of every row, in the order of the tables.
    ///
    /// # Errors
    /// [`PublishedError::Row`] names a row that cannot be replayed, and why.
    pub fn sequences(&self) -> Found<Vec<Sequence>> {
        let mut all = Vec::new();
        self.unloaded_rows(&mut all)?;
        self.direct_rows(&mut all)?;
        self.overhead_rows(&mut all)?;
        self.gateway_rows(&mut all)?;
        self.admission_rows(&mut all)?;
        self.mixed_rows(&mut all)?;
        self.tenant_rows(&mut all)?;
        Ok(all)
    }

    fn unloaded_rows(&self, all: &mut Vec<Sequence>) -> Found<()> {
        let mut shared = 0;
        for point in &self.unloaded {
            let row = format!("unloaded/{}+{}", point.input, point.output);
            let arrivals = (0..self.requests("unloaded", 5))
                .map(|i| Arrival { at: APART * u64::from(i), ..arrival(i, point.input, point.output) });
            let plan = self.plan(&row, 1.0, self.alone(), arrivals.collect())?;
            // The four points' prompts go on where those of the point before end.
            let cache = self.cache_of("unloaded", 0, Cache::Leading(shared))?;
            let scenario = self.scenario(plan, None, cache);
            all.push(vec![case("unloaded", row, scenario, &point.cells, None)?]);
            shared = point.input;
        }
        Ok(())
    }

    fn direct_rows(&self, all: &mut Vec<Sequence>) -> Found<()> {
        let low = self.low_rate.iter().map(|rate| ("low_rate", 0, rate));
        let saturation = self.saturation.iter().enumerate().map(|(i, rate)| ("saturation", i, rate));
        for (group, place, rate) in low.chain(saturation) {
            let row = format!("{group}/{}", rate.offered);
            let plan = self.fixed(group, &row, self.workload.seed, rate.offered)?;
            let scenario = self.scenario(plan, None, self.cache_of(group, place, Cache::First(0))?);
            self.push(all, case(group, row, scenario, &rate.cells, None)?);
        }
        Ok(())
    }

    fn overhead_rows(&self, all: &mut Vec<Sequence>) -> Found<()> {
        const GROUP: &str = "gateway_overhead";
        let Some(overhead) = &self.gateway_overhead else { return Ok(()) };
        let sides = [("direct", None, &overhead.direct), ("gateway", Some(self.gateway(None)), &overhead.gateway)];
        for (side, gateway, cells) in sides {
            let row = format!("{GROUP}/{side}");
            let plan = self.fixed(GROUP, &row, self.workload.seed, overhead.offered)?;
            let scenario = self.scenario(plan, gateway, self.cache_of(GROUP, 0, Cache::First(0))?);
            self.push(all, case(GROUP, row, scenario, cells, None)?);
        }
        Ok(())
    }

    fn gateway_rows(&self, all: &mut Vec<Sequence>) -> Found<()> {
        for (place, permits) in self.permits.iter().enumerate() {
            let gateway = GatewayConditions { permits: permits.permits, ..self.gateway(None) };
            let row = format!("permits/{}", permits.permits);
            self.gateway_row(all, ("permits", place, row), gateway, &permits.cells)?;
        }
        for (place, budget) in self.queue_budget.iter().enumerate() {
            let gateway = self.gateway(budget_of(budget.budget_ms));
            let row = format!("queue_budget/{}", budget_name(budget.budget_ms));
            self.gateway_row(all, ("queue_budget", place, row), gateway, &budget.cells)?;
        }
        Ok(())
    }

    fn gateway_row(
        &self,
        all: &mut Vec<Sequence>,
        (group, place, row): (&'static str, usize, String),
        gateway: GatewayConditions,
        cells: &Cells,
    ) -> Found<()> {
        let plan = self.fixed(group, &row, self.workload.seed, self.gateway.offered)?;
        let scenario = self.scenario(plan, Some(gateway), self.cache_of(group, place, Cache::First(0))?);
        self.push(all, case(group, row, scenario, cells, None)?);
        Ok(())
    }

    fn admission_rows(&self, all: &mut Vec<Sequence>) -> Found<()> {
        const GROUP: &str = "admission_pairs";
        let budget = budget_of(self.gateway.budget_ms);
        for (place, pair) in self.admission_pairs.iter().enumerate() {
            let pair_name = format!("{GROUP}/{}", pair.seed);
            let first = self.pair_order.get(GROUP).and_then(|order| order.get(place));
            let sides = match first.map(String::as_str) {
                None | Some("control") => [("control", None), ("candidate", budget)],
                Some("candidate") => [("candidate", budget), ("control", None)],
                Some(other) => {
                    return Err(problem(&pair_name, format!("pair_order is control or candidate, not '{other}'")));
                }
            };
            let mut sequence = Vec::new();
            for (side, budget) in sides {
                let row = format!("{pair_name}/{side}");
                let plan = self.fixed(GROUP, &row, pair.seed, self.gateway.offered)?;
                let scenario = self.scenario(plan, Some(self.gateway(budget)), Cache::Partner);
                let told = Some((pair_name.clone(), side == "candidate"));
                sequence.push(Case { side: told, ..case(GROUP, row, scenario, &pair.cells, Some(side))? });
            }
            all.push(sequence);
        }
        Ok(())
    }

    fn mixed_rows(&self, all: &mut Vec<Sequence>) -> Found<()> {
        const GROUP: &str = "mixed_pilot";
        for (place, budget) in self.mixed_pilot.iter().enumerate() {
            let row = format!("{GROUP}/{}", budget_name(budget.budget_ms));
            let (seed, count) = (self.mixed.seed, self.requests(GROUP, self.workload.requests));
            let plan = match self.workload.arrivals {
                Arrivals::Load => self.drawn(&row, seed, count, self.mixed.offered, self.alone())?,
                Arrivals::VllmBench => {
                    let mut arrivals = self.recorded(&row, seed, count, self.mixed.offered)?;
                    let lengths = traces::mixed_lengths(seed, count).ok_or_else(|| unrecorded(&row, seed, count))?;
                    for (arrival, (input, output)) in arrivals.iter_mut().zip(lengths) {
                        (arrival.input, arrival.output) = (input, output);
                    }
                    self.plan(&row, self.mixed.offered, self.alone(), arrivals)?
                }
            };
            let gateway = self.gateway(budget_of(budget.budget_ms));
            let scenario = self.scenario(plan, Some(gateway), self.cache_of(GROUP, place, Cache::First(0))?);
            self.push(all, case(GROUP, row, scenario, &budget.cells, None)?);
        }
        Ok(())
    }

    fn tenant_rows(&self, all: &mut Vec<Sequence>) -> Found<()> {
        const GROUP: &str = "queue_order_pairs";
        for pair in &self.queue_order_pairs {
            for (side, order) in [("fcfs", Order::Fcfs), ("wfq", Order::Wfq)] {
                let pair_name = format!("{GROUP}/{}", pair.seed);
                let row = format!("{pair_name}/{side}");
                let gateway = GatewayConditions {
                    order,
                    tenants: self.tenants.iter().map(|t| policy(t, &row)).collect::<Found<_>>()?,
                    ..self.gateway(budget_of(self.gateway.budget_ms))
                };
                let cache = self.cache_of(GROUP, 0, Cache::First(0))?;
                let plan = self.tenant_plan(&row, pair.seed)?;
                // The warm-ups' prompt is not among those of a tenant run.
                let scenario = Scenario { first_prompt_warm: false, ..self.scenario(plan, Some(gateway), cache) };
                let told = Some((pair_name, side == "wfq"));
                all.push(vec![Case { side: told, ..case(GROUP, row, scenario, &pair.cells, Some(side))? }]);
            }
        }
        Ok(())
    }

    fn tenant_plan(&self, row: &str, seed: u64) -> Found<Plan> {
        let tenant = |t: &Tenant| PlanTenant::new(t.name.clone(), t.share, t.slo());
        let tenants: Vec<PlanTenant> = self.tenants.iter().map(tenant).collect();
        let count = self.requests("queue_order_pairs", self.workload.requests);
        if self.workload.arrivals == Arrivals::Load {
            return self.drawn(row, seed, count, self.mixed.offered, tenants);
        }
        let recorded = traces::tenants(seed, count).ok_or_else(|| unrecorded(row, seed, count))?;
        let place = |name: &str| tenants.iter().position(|t| t.name == name);
        let arrivals = (0..).zip(&recorded).map(|(i, a)| {
            let tenant = place(a.tenant).ok_or_else(|| problem(row, format!("no tenant is called '{}'", a.tenant)))?;
            Ok(Arrival { at: a.at, tenant: tenant as u16, ..arrival(i, a.input, a.output) })
        });
        let arrivals = arrivals.collect::<Found<_>>()?;
        self.plan(row, self.mixed.offered, tenants, arrivals)
    }

    /// The workload of one length at a rate.
    fn fixed(&self, group: &str, row: &str, seed: u64, rate: f64) -> Found<Plan> {
        let count = self.requests(group, self.workload.requests);
        let arrivals = match self.workload.arrivals {
            Arrivals::VllmBench => self.recorded(row, seed, count, rate)?,
            Arrivals::Load => {
                let lengths = (Lengths::fixed(self.workload.input), Lengths::fixed(self.workload.output));
                return draw(row, seed, count, rate, lengths, self.alone());
            }
        };
        self.plan(row, rate, self.alone(), arrivals)
    }

    fn recorded(&self, row: &str, seed: u64, count: u32, rate: f64) -> Found<Vec<Arrival>> {
        let times = traces::vllm_bench(seed, count, rate).ok_or_else(|| unrecorded(row, seed, count))?;
        let (input, output) = (self.workload.input, self.workload.output);
        Ok((0..).zip(times).map(|(i, at)| Arrival { at, ..arrival(i, input, output) }).collect())
    }

    /// The mixed workload, drawn.
    fn drawn(&self, row: &str, seed: u64, count: u32, rate: f64, tenants: Vec<PlanTenant>) -> Found<Plan> {
        let lengths = |[low, high]: [u32; 2]| Lengths { low, high };
        draw(row, seed, count, rate, (lengths(self.mixed.input), lengths(self.mixed.output)), tenants)
    }

    fn plan(&self, row: &str, rate: f64, tenants: Vec<PlanTenant>, arrivals: Vec<Arrival>) -> Found<Plan> {
        let window = Span::from_secs_f64(arrivals.len() as f64 / rate);
        Plan::recorded(row, rate, window, tenants, arrivals).map_err(|e| problem(row, e.to_string()))
    }

    fn alone(&self) -> Vec<PlanTenant> {
        vec![PlanTenant::new("default", 1.0, Slo::from(self.slo))]
    }

    fn gateway(&self, budget: Option<Span>) -> GatewayConditions {
        GatewayConditions {
            permits: self.gateway.permits,
            depth: self.gateway.depth,
            budget,
            order: Order::Fcfs,
            tenants: vec![TenantPolicy::default()],
        }
    }

    fn scenario(&self, plan: Plan, gateway: Option<GatewayConditions>, cache: Cache) -> Scenario {
        Scenario { plan, gateway, cache, first_prompt_warm: self.workload.first_prompt_warm }
    }

    fn requests(&self, group: &str, otherwise: u32) -> u32 {
        self.requests.get(group).copied().unwrap_or(otherwise).max(1)
    }

    fn cache_of(&self, group: &str, place: usize, otherwise: Cache) -> Found<Cache> {
        let word = match self.cache.get(group) {
            None => return Ok(otherwise),
            Some(CacheOfRows::All(word)) => word,
            Some(CacheOfRows::Each(words)) => words
                .get(place)
                .ok_or_else(|| problem(group, "cache has fewer entries than the table has rows".into()))?,
        };
        match word {
            CacheWord::First(count) => Ok(Cache::First(*count)),
            CacheWord::Named(name) => match name.as_str() {
                "cold" => Ok(Cache::First(0)),
                "warm" => Ok(Cache::First(u32::MAX)),
                "partner" => Ok(Cache::Partner),
                _ => Err(problem(group, format!("cache is cold, warm, partner or a number, not '{name}'"))),
            },
        }
    }

    /// Adds a run: to the sequence before it if it needs to know what that completed.
    fn push(&self, all: &mut Vec<Sequence>, case: Case) {
        match all.last_mut() {
            Some(before) if case.scenario.cache == Cache::Partner => before.push(case),
            _ => all.push(vec![case]),
        }
    }
}

fn case(group: &'static str, row: String, scenario: Scenario, cells: &Cells, side: Option<&str>) -> Found<Case> {
    let measured = columns(&row, cells, side)?;
    Ok(Case { group, row, scenario, measured, side: None })
}

fn draw(
    row: &str,
    seed: u64,
    count: u32,
    rate: f64,
    (input, output): (Lengths, Lengths),
    tenants: Vec<PlanTenant>,
) -> Found<Plan> {
    let (process, extent) = (ArrivalProcess::Poisson { rate }, Extent::Count(count));
    let spec = PlanSpec { seed, process, extent, input, output, tenants };
    Plan::generate(&spec).map_err(|e| problem(row, e.to_string()))
}

/// An arrival whose prompt is told apart by its place.
fn arrival(place: u32, input: u32, output: u32) -> Arrival {
    Arrival { index: place, at: Span::ZERO, tenant: 0, input, output, prompt: u64::from(place) }
}

fn policy(tenant: &Tenant, row: &str) -> Found<TenantPolicy> {
    let whole = tenant.weight.fract() == 0.0 && (1.0..=1e6).contains(&tenant.weight);
    let weight = NonZeroU32::new(tenant.weight as u32).filter(|_| whole);
    let weight =
        weight.ok_or_else(|| problem(row, format!("the weight of '{}' must be a whole number from 1", tenant.name)))?;
    Ok(TenantPolicy { weight, ..TenantPolicy::default() })
}

fn budget_of(ms: f64) -> Option<Span> {
    (ms > 0.0).then(|| Span::from_millis_f64(ms))
}

fn budget_name(ms: f64) -> String {
    if ms > 0.0 { format!("{ms}ms") } else { "none".to_owned() }
}

fn problem(row: &str, problem: String) -> PublishedError {
    PublishedError::Row { row: row.to_owned(), problem }
}

fn unrecorded(row: &str, seed: u64, count: u32) -> PublishedError {
    problem(
        row,
        format!(
            "no arrivals of seed {seed} with {count} requests are recorded; say arrivals = \"load\" under [workload]"
        ),
    )
}
