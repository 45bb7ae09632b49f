//! Order, admission and cost model, and what of them goes together.

use elasticserve_core::engine::Profile;
use elasticserve_core::sched::{Caution, CostModel, Order, Predict, Price, Stall};
use elasticserve_core::time::Span;

use super::check::{limit, optional_span};
use super::raw::{RawAdmission, RawPredict, RawQueue, RawStall, is_file};
use super::{ConfigError, value};

/// The engine that costs are compared by where none is named: `wfq` and `shortest-first` look at the
/// proportions between requests only.
const COMPARED_BY: &str = "gb10-qwen3-8b-fp8";
/// How long a class may hold back what came before it, unless set.
const GUARD: Span = Span::from_secs(10);
/// The weight of fairness in a price, unless set, and the greatest: beyond, most of what would be met is
/// turned away for the sake of equality.
const FAIRNESS: f64 = 0.5;
const MAX_FAIRNESS: f64 = 4.0;
/// The greatest number in a stall, far above any engine's.
const MAX_STALL: f64 = 1e6;

/// The scheduler's rules, checked.
pub(super) struct Policy {
    pub(super) order: Order,
    pub(super) guard: Span,
    pub(super) budget: Option<Span>,
    pub(super) predict: Option<Predict>,
    pub(super) price: Option<Price>,
    pub(super) cost: CostModel,
}

pub(super) fn check(queue: &RawQueue, raw: &RawPredict) -> Result<Policy, ConfigError> {
    let order = queue.order.unwrap_or_default();
    let budget = optional_span("queue.budget", queue.budget.as_deref())?;
    let by_default = if budget.is_some() { RawAdmission::Budget } else { RawAdmission::None };
    let admission = queue.admission.unwrap_or(by_default);
    go_together(queue, order, admission, budget)?;
    if raw.stall.is_some() && admission != RawAdmission::Price {
        return Err(value("predict.stall", "goes with queue.admission = \"price\" only; set that, or leave it out"));
    }
    let guard = optional_span("queue.guard", queue.guard.as_deref())?.unwrap_or(GUARD);
    let engine = raw.profile.as_deref().map(profile).transpose()?;
    let cost = cost(raw, engine.as_ref())?;
    let predict = match (predicts(admission), cost) {
        (true, Some(_)) => Some(Predict { caution: caution(raw)? }),
        (true, None) => return Err(needs_a_profile(admission)),
        (false, _) => {
            is_of_use(raw, cost, order)?;
            None
        }
    };
    let price = match admission {
        RawAdmission::Price => Some(price(queue, raw, engine.as_ref())?),
        _ => None,
    };
    let cost = match cost {
        Some(cost) => cost,
        None => CostModel::from_profile(&profile(COMPARED_BY)?),
    };
    Ok(Policy { order, guard, budget, predict, price, cost })
}

const fn predicts(admission: RawAdmission) -> bool {
    matches!(admission, RawAdmission::Predict | RawAdmission::Price)
}

const fn name(admission: RawAdmission) -> &'static str {
    match admission {
        RawAdmission::None => "none",
        RawAdmission::Budget => "budget",
        RawAdmission::Predict => "predict",
        RawAdmission::Price => "price",
    }
}

fn needs_a_profile(admission: RawAdmission) -> ConfigError {
    value(
        "predict.profile",
        &format!(
            "is needed with admission = \"{}\": one of {}, or a .toml file; or set predict.overhead, \
             prefill_per_token, first_token_steps and idle_tpot",
            name(admission),
            Profile::built_in_names().collect::<Vec<_>>().join(", ")
        ),
    )
}

/// Whether something goes by what is said of predictions, where admission does not predict.
fn is_of_use(raw: &RawPredict, cost: Option<CostModel>, order: Order) -> Result<(), ConfigError> {
    if cost.is_some() && !compares_costs(order) {
        return Err(value("predict", "nothing goes by it; set queue.admission = \"predict\", or leave it out"));
    }
    let extra = [("pad", raw.pad.is_some()), ("margin", raw.margin.is_some())];
    match extra.iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err(value(
            &format!("predict.{key}"),
            "goes with queue.admission = \"predict\" or \"price\" only; set that, or leave it out",
        )),
        None => Ok(()),
    }
}

/// Whether what the queue says of order, admission, budget, fairness and guard fits.
fn go_together(
    queue: &RawQueue,
    order: Order,
    admission: RawAdmission,
    budget: Option<Span>,
) -> Result<(), ConfigError> {
    match (admission, budget) {
        (RawAdmission::Budget, None) => {
            return Err(value("queue.budget", "is needed with admission = \"budget\", such as \"750ms\""));
        }
        (RawAdmission::None | RawAdmission::Predict | RawAdmission::Price, Some(_)) => {
            return Err(value("queue.budget", "goes with admission = \"budget\" only; set that, or leave it out"));
        }
        _ => {}
    }
    if order.predicts() && !predicts(admission) {
        let problem =
            format!("\"{order}\" goes by predictions; set admission = \"predict\" or \"price\", or another order");
        return Err(value("queue.order", &problem));
    }
    if queue.fairness.is_some() && admission != RawAdmission::Price {
        return Err(value("queue.fairness", "goes with admission = \"price\" only; set that, or leave it out"));
    }
    if queue.guard.is_some() && order != Order::Priority {
        return Err(value("queue.guard", "goes with order = \"priority\" only; set that, or leave it out"));
    }
    Ok(())
}

/// Whether the order looks at what requests cost.
pub(super) const fn compares_costs(order: Order) -> bool {
    matches!(order, Order::Wfq | Order::ShortestFirst)
}

/// The cost model, if any of it is given.
fn cost(raw: &RawPredict, engine: Option<&Profile>) -> Result<Option<CostModel>, ConfigError> {
    let overhead = optional_span("predict.overhead", raw.overhead.as_deref())?;
    let prefill = optional_span("predict.prefill_per_token", raw.prefill_per_token.as_deref())?;
    let tpot = limit("predict.idle_tpot", raw.idle_tpot.as_deref())?;
    let steps = raw.first_token_steps;
    if steps.is_some_and(|n| n > 1000) {
        return Err(value("predict.first_token_steps", "must be 0 to 1000"));
    }
    let base = engine.map(CostModel::from_profile);
    if base.is_none() && overhead.is_none() && prefill.is_none() && tpot.is_none() && steps.is_none() {
        return Ok(None);
    }
    fn needed<T>(key: &str, own: Option<T>, of_profile: Option<T>) -> Result<T, ConfigError> {
        own.or(of_profile)
            .ok_or_else(|| value(&format!("predict.{key}"), "is needed where there is no predict.profile"))
    }
    Ok(Some(CostModel {
        overhead: needed("overhead", overhead, base.map(|b| b.overhead))?,
        prefill_per_token: needed("prefill_per_token", prefill, base.map(|b| b.prefill_per_token))?,
        first_token_steps: needed("first_token_steps", steps, base.map(|b| b.first_token_steps))?,
        idle_tpot: needed("idle_tpot", tpot, base.map(|b| b.idle_tpot))?,
    }))
}

fn profile(name: &str) -> Result<Profile, ConfigError> {
    let key = "predict.profile";
    if is_file(name) {
        let text = std::fs::read_to_string(name).map_err(|e| value(key, &format!("{name}: {e}")))?;
        Profile::from_toml(&text).map_err(|e| value(key, &format!("{name}: {e}")))
    } else {
        Profile::built_in(name).map_err(|e| value(key, &format!("{e}; or name a .toml file")))
    }
}

fn caution(raw: &RawPredict) -> Result<Caution, ConfigError> {
    let usual = Caution::default();
    let margin_permille = match raw.margin {
        None => usual.margin_permille,
        Some(margin) if (0.0..=1.0).contains(&margin) => (margin * 1000.0).round() as u64,
        Some(margin) => {
            return Err(value(
                "predict.margin",
                &format!("must be a fraction from 0 to 1, such as 0.05, not {margin}"),
            ));
        }
    };
    Ok(Caution { pad: optional_span("predict.pad", raw.pad.as_deref())?.unwrap_or(usual.pad), margin_permille })
}

fn price(queue: &RawQueue, raw: &RawPredict, engine: Option<&Profile>) -> Result<Price, ConfigError> {
    let mu = queue.fairness.unwrap_or(FAIRNESS);
    if !(0.0..=MAX_FAIRNESS).contains(&mu) {
        return Err(value("queue.fairness", &format!("must be from 0 to {MAX_FAIRNESS}, such as 0.5, not {mu}")));
    }
    match (&raw.stall, engine) {
        (Some(own), _) => Ok(Price { mu, stall: stall(own)? }),
        (None, Some(engine)) => Ok(Price::from_profile(engine, mu)),
        (None, None) => Err(value(
            "predict.profile",
            "is needed with admission = \"price\", to know what a request takes from the others; or set predict.stall",
        )),
    }
}

fn stall(raw: &RawStall) -> Result<Stall, ConfigError> {
    let checked = |key, n: f64| {
        let problem = || format!("must be a number from 0 to {MAX_STALL}, not {n}");
        if (0.0..=MAX_STALL).contains(&n) { Ok(n) } else { Err(value(&format!("predict.stall.{key}"), &problem())) }
    };
    Ok(Stall {
        per_token_ms: checked("per_token_ms", raw.per_token_ms)?,
        free_tokens: checked("free_tokens", raw.free_tokens)?,
        attention_ms: checked("attention_ms", raw.attention_ms)?,
        kv_ms_per_token: checked("kv_ms_per_token", raw.kv_ms_per_token)?,
    })
}
