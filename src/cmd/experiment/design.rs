//! What an experiment is, checked: its arms, its workloads with their plans, and which run comes when.

use std::collections::BTreeSet;
use std::path::Path;

use elasticserve_core::rng::{Random, Stream, mix};
use elasticserve_core::sched::Rules;
use elasticserve_core::sim::reproduce::{GatewayTimes, mixed_lengths, vllm_bench};
use elasticserve_core::time::Span;
use elasticserve_core::work::{Arrival, Plan, PlanTenant};
use elasticserve_gateway::config::{Config, RawConfig};

use super::published::Published;
use super::raw::{RawArm, RawExperiment, RawOrder, RawPrimed, RawRecorded, RawSalt, RawVllmBench, RawWorkload, Time};
use crate::cmd::load::scenario::{RunPart, TargetPart, WorkPart};
use crate::lab::{Gate, Way};

/// What is wrong, after the key that it is wrong with.
pub(super) type Wrong = String;

/// The most runs of one experiment.
const MAX_RUNS: usize = 2_000;
/// The seeds of an experiment that names none.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
/// How long an engine may take to come to rest between two runs.
const COOL_DOWN: Span = Span::from_secs(120);
/// Sets the order of arms apart from other uses of a seed.
const ORDER: u64 = 0x6f72_6465_722d_2d31;

/// A checked experiment.
pub(super) struct Design {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) question: Option<String>,
    /// The stand's profile and speed, where the file says them.
    pub(super) profile: Option<String>,
    pub(super) speed: Option<f64>,
    pub(super) simulated_gateway: GatewayTimes,
    pub(super) target: TargetPart,
    pub(super) run: RunPart,
    pub(super) prompts: Option<String>,
    pub(super) salt: RawSalt,
    pub(super) reset_cache: bool,
    pub(super) cool_down: Span,
    /// The first is the baseline.
    pub(super) arms: Vec<Arm>,
    pub(super) workloads: Vec<Workload>,
    /// Manifest keys in which runs may differ.
    pub(super) allow: Vec<String>,
    pub(super) published: Option<Published>,
    order: RawOrder,
    order_seed: u64,
}

/// A policy, or another target.
pub(super) struct Arm {
    pub(super) name: String,
    pub(super) way: Way,
}

/// What is offered, for each seed.
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) primed: u32,
    pub(super) plans: Vec<(u64, Plan)>,
}

/// One run: the places of its workload, its seed and its arm.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) workload: usize,
    pub(super) seed: usize,
    pub(super) arm: usize,
}

impl Design {
    /// Reads the text of a file whose paths are relative to `folder`; `seeds` take the place of the file's.
    ///
    /// # Errors
    /// Names the key and what would be right.
    pub(super) fn read(text: &str, folder: &Path, seeds: &[u64]) -> Result<Self, Wrong> {
        let raw: RawExperiment = elasticserve_core::config::from_toml(text)?;
        let arms = arms(&raw, folder)?;
        let chosen = if seeds.is_empty() { None } else { Some(seeds) };
        let usual = raw.runs.seeds.as_deref().unwrap_or(&SEEDS);
        let workloads = raw.workloads.iter().enumerate().map(|(i, w)| workload(i, w, usual, chosen, folder));
        let workloads: Vec<Workload> = workloads.collect::<Result<_, _>>()?;
        distinct("workloads", workloads.iter().map(|w| w.name.as_str()))?;
        if workloads.is_empty() {
            return Err("workloads: there must be at least one".to_owned());
        }
        let runs: usize = workloads.iter().map(|w| w.plans.len() * arms.len()).sum();
        if runs > MAX_RUNS {
            return Err(format!("workloads: {runs} runs in all; at most {MAX_RUNS} can be made"));
        }
        let names = (arms.iter().map(|a| a.name.as_str()).collect(), workloads.iter().collect());
        let published = raw.published.map(|p| Published::checked(p, &names)).transpose()?;
        let times = raw.stand.simulated_gateway;
        let span = |time: Option<Time>| time.map_or(Span::ZERO, |t| t.0);
        let salt = raw.runs.salt.unwrap_or_default();
        Ok(Self {
            title: raw.title.unwrap_or_else(|| raw.name.clone()),
            name: raw.name,
            question: raw.question,
            profile: raw.stand.profile,
            speed: raw.stand.speed,
            simulated_gateway: GatewayTimes {
                overhead_in: span(times.before),
                overhead_out: span(times.out),
                release_delay: span(times.release),
            },
            target: raw.target,
            run: raw.run,
            prompts: raw.runs.prompts,
            salt,
            // A study of shared prompts is about what the cache holds.
            reset_cache: raw.runs.reset_cache.unwrap_or(salt == RawSalt::Own),
            cool_down: raw.runs.cool_down.map_or(COOL_DOWN, |t| t.0),
            arms,
            workloads,
            allow: raw.allow,
            published,
            order: raw.runs.order.unwrap_or_default(),
            order_seed: raw.runs.order_seed.unwrap_or(0),
        })
    }

    /// Every run in the order in which they are made: workload by workload, seed by seed.
    pub(super) fn schedule(&self) -> Vec<Place> {
        let mut all = Vec::new();
        for (workload, of) in self.workloads.iter().enumerate() {
            for seed in 0..of.plans.len() {
                all.extend(self.arms_of(workload, seed).into_iter().map(|arm| Place { workload, seed, arm }));
            }
        }
        all
    }

    /// The arms in the order in which a seed of a workload meets them.
    fn arms_of(&self, workload: usize, seed: usize) -> Vec<usize> {
        let count = self.arms.len();
        match self.order {
            RawOrder::AsListed => (0..count).collect(),
            RawOrder::Alternate => (0..count).map(|i| (i + seed) % count).collect(),
            RawOrder::Random => {
                let mixed = mix(mix(self.order_seed, workload as u64), seed as u64);
                let mut random = Random::new(mix(mixed, ORDER), Stream::Test);
                let mut arms: Vec<usize> = (0..count).collect();
                // Fisher and Yates.
                for last in (1..count).rev() {
                    arms.swap(last, random.between(0, last as u64) as usize);
                }
                arms
            }
        }
    }

    pub(super) fn plan(&self, place: Place) -> &Plan {
        &self.workloads[place.workload].plans[place.seed].1
    }

    pub(super) fn seed(&self, place: Place) -> u64 {
        self.workloads[place.workload].plans[place.seed].0
    }

    /// The folder of a run below that of the experiment: those of an arm lie together.
    pub(super) fn folder(&self, place: Place) -> String {
        let (arm, workload) = (&self.arms[place.arm].name, &self.workloads[place.workload].name);
        let seed = self.seed(place);
        let run =
            if self.workloads.len() == 1 { format!("seed{seed}") } else { format!("{}-seed{seed}", slug(workload)) };
        format!("{}/{run}", slug(arm))
    }

    /// Checks that each arm's gateway takes the tenants of each plan.
    ///
    /// # Errors
    /// What the gateway says.
    pub(super) fn check_ways(&self, profile: Option<&str>) -> Result<(), Wrong> {
        for arm in &self.arms {
            let Way::Gateway(gate) = &arm.way else { continue };
            for plan in self.workloads.iter().filter_map(|w| w.plans.first()) {
                let engine = ["http://127.0.0.1:1".to_owned()];
                let config: Result<Config, _> = gate.checked(&plan.1.header().tenants, profile, &engine);
                config.map_err(|e| format!("arms: '{}': {e}", arm.name))?;
            }
        }
        Ok(())
    }
}

/// A name as a part of a path.
pub(super) fn slug(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.') { c } else { '_' };
    let slug: String = name.chars().map(safe).collect();
    let slug = slug.trim_matches('.').to_owned();
    if slug.is_empty() { "_".to_owned() } else { slug }
}

fn arms(raw: &RawExperiment, folder: &Path) -> Result<Vec<Arm>, Wrong> {
    if let Some(raw) = &raw.gateway {
        leaves_the_stand_alone("gateway", raw)?;
    }
    let arms = raw.arms.iter().enumerate().map(|(i, arm)| {
        let way = way(i, arm, raw, folder)?;
        Ok(Arm { name: arm.name.clone(), way })
    });
    let mut arms: Vec<Arm> = arms.collect::<Result<_, Wrong>>()?;
    distinct("arms", arms.iter().map(|a| a.name.as_str()))?;
    if arms.is_empty() {
        return Err("arms: there must be at least one".to_owned());
    }
    if let Some(name) = &raw.baseline {
        let place = arms.iter().position(|a| a.name == *name);
        let place = place.ok_or_else(|| format!("baseline: no arm is called '{name}'"))?;
        arms[..=place].rotate_right(1);
    }
    Ok(arms)
}

fn way(place: usize, arm: &RawArm, all: &RawExperiment, folder: &Path) -> Result<Way, Wrong> {
    let key = |key: &str| format!("arms[{place}].{key}");
    let own = arm.policy.is_some() || arm.permits.is_some() || arm.gateway.is_some() || arm.gateway_file.is_some();
    let (direct, url) = (arm.direct, arm.url.as_deref());
    match (direct, url) {
        (true, Some(_)) => Err(format!("{}: does not go with direct", key("url"))),
        (true, None) | (false, Some(_)) if own => {
            Err(format!("{}: there is no gateway in this arm", key(if direct { "direct" } else { "url" })))
        }
        (true, None) => Ok(Way::Direct),
        (false, Some(url)) => url.parse().map(Way::Url).map_err(|e| format!("{}: {e}", key("url"))),
        (false, None) if !own && all.gateway.is_none() => {
            Err(format!("{}: say policy, gateway, gateway_file, direct or url", key("policy")))
        }
        (false, None) => gate(place, arm, all, folder).map(|gate| Way::Gateway(Box::new(gate))),
    }
}

fn gate(place: usize, arm: &RawArm, all: &RawExperiment, folder: &Path) -> Result<Gate, Wrong> {
    let key = |key: &str| format!("arms[{place}].{key}");
    let mut config = match (&arm.gateway, &arm.gateway_file) {
        (Some(_), Some(_)) => return Err(format!("{}: does not go with gateway", key("gateway_file"))),
        (Some(own), None) => {
            leaves_the_stand_alone(&key("gateway"), own)?;
            written_in(folder, own)
        }
        (None, Some(file)) => {
            let path = folder.join(file);
            let read = RawConfig::from_file(&path).map_err(|e| format!("{}: {e}", key("gateway_file")))?;
            // Its servers and addresses are those of another place.
            RawConfig { listen: None, admin: None, backends: None, ..read }
        }
        (None, None) => all.gateway.as_ref().map_or_else(RawConfig::default, |all| written_in(folder, all)),
    };
    if let Some(text) = &arm.policy {
        let rules: Rules = text.parse().map_err(|e| format!("{}: '{text}': {e}", key("policy")))?;
        config.queue.set_rules(rules);
    }
    let permits = arm.permits.or(all.permits).unwrap_or(Config::DEFAULT_PERMITS);
    if permits == 0 {
        return Err(format!("{}: must be 1 or more", key("permits")));
    }
    Ok(Gate { config, permits })
}

/// A configuration whose files lie beside the experiment's.
fn written_in(folder: &Path, config: &RawConfig) -> RawConfig {
    let mut config = config.clone();
    config.beside(folder);
    config
}

/// Listeners and backends are made anew for every run.
fn leaves_the_stand_alone(key: &str, raw: &RawConfig) -> Result<(), Wrong> {
    let said = [
        ("listen", raw.listen.is_some()),
        ("admin", raw.admin.is_some()),
        ("backends", raw.backends.is_some()),
        ("tenants_file", raw.tenants_file.is_some()),
    ];
    match said.into_iter().find(|(_, is)| *is) {
        Some((name, _)) => Err(format!("{key}.{name}: an experiment's gateway has its own; leave it out")),
        None => Ok(()),
    }
}

fn workload(
    place: usize,
    raw: &RawWorkload,
    usual: &[u64],
    chosen: Option<&[u64]>,
    folder: &Path,
) -> Result<Workload, Wrong> {
    let key = |key: &str| format!("workloads[{place}].{key}");
    let seeds = chosen.or(raw.seeds.as_deref()).unwrap_or(usual);
    if seeds.is_empty() || seeds.iter().collect::<BTreeSet<_>>().len() != seeds.len() {
        return Err(format!("{}: there must be at least one, and no two alike", key("seeds")));
    }
    let file = raw.scenario.as_ref().map(|file| {
        let path = folder.join(file);
        let part = WorkPart::read(&path).map_err(|e| format!("{}: {e}", key("scenario")))?;
        Ok::<_, Wrong>((part, path.parent().unwrap_or(Path::new("")).to_owned()))
    });
    let file = file.transpose()?;
    let plan = |seed: u64| match (&file, &raw.work, &raw.vllm_bench) {
        (Some((part, beside)), None, None) => part.plan(beside, seed).map_err(|e| format!("{}: {e}", key("scenario"))),
        (None, Some(part), None) => part.plan(folder, seed).map_err(|e| format!("{}.{e}", key("work"))),
        (None, None, Some(recorded)) => of_vllm_bench(recorded, seed).map_err(|e| format!("{}.{e}", key("vllm_bench"))),
        _ => Err(format!("{}: say one of work, scenario and vllm_bench", key("work"))),
    };
    let plans = seeds.iter().map(|seed| Ok((*seed, plan(*seed)?))).collect::<Result<Vec<_>, Wrong>>()?;
    Ok(Workload { name: raw.name.clone(), primed: raw.primed.map_or(0, |RawPrimed(count)| count), plans })
}

/// The recorded arrivals; prompts are told apart by their place, so that runs without a salt share them.
fn of_vllm_bench(raw: &RawVllmBench, seed: u64) -> Result<Plan, Wrong> {
    let count = raw.requests.unwrap_or(200);
    if !(raw.rate > 0.0 && raw.rate.is_finite()) {
        return Err(format!("rate: must be above 0, not {}", raw.rate));
    }
    let times = vllm_bench(seed, count, raw.rate).ok_or_else(|| {
        format!("requests: no arrivals of seed {seed} with {count} requests are recorded; there are 200 of the seeds 7, 11, 23, 37, 53, 71 and 101, and 50 of 7")
    })?;
    let lengths: Vec<(u32, u32)> = match (raw.lengths, raw.input, raw.output) {
        (None, Some(input), Some(output)) if input > 0 && output > 0 => vec![(input, output); times.len()],
        (Some(RawRecorded::Recorded), None, None) => mixed_lengths(seed, count)
            .ok_or_else(|| format!("lengths: none are recorded for seed {seed}; those of 101 are"))?,
        _ => return Err("input: say input and output in tokens, or lengths = \"recorded\"".to_owned()),
    };
    let arrival = |((at, (input, output)), place): ((Span, (u32, u32)), u32)| Arrival {
        index: place,
        at,
        tenant: 0,
        input,
        output,
        prompt: u64::from(place),
    };
    let arrivals: Vec<Arrival> = times.into_iter().zip(lengths).zip(0..).map(arrival).collect();
    let window = Span::from_secs_f64(f64::from(count) / raw.rate);
    let tenants = vec![PlanTenant::new("default", 1.0, raw.slo.slo())];
    let source = format!("vllm bench serve, seed {seed}, {count} requests");
    Plan::recorded(&source, raw.rate, window, tenants, arrivals).map_err(|e| e.to_string())
}

fn distinct<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Wrong> {
    let (mut known, mut slugs) = (BTreeSet::new(), BTreeSet::new());
    for name in names {
        if !known.insert(name) {
            return Err(format!("{key}: two are called '{name}'"));
        }
        if name.trim().is_empty() {
            return Err(format!("{key}: a name is empty"));
        }
        if !slugs.insert(slug(name)) {
            return Err(format!("{key}: '{name}' and another are the same as the name of a folder, {}", slug(name)));
        }
    }
    Ok(())
}
