//! Order, admission and cost model, and what of them goes together.

use elasticserve_core::engine::Profile;
use elasticserve_core::sched::{Admission, Caution, CostModel, Order, Predict, Price, Rules, RulesError, Stall};
use elasticserve_core::time::Span;

use super::check::{limit, optional_span};
use super::raw::{Lengths, RawAdmission, RawPredict, RawQueue, RawStall, is_file};
use super::{ConfigError, ShadowPolicy, value};

/// The engine that costs are compared by where none is named: `wfq` and `shortest-first` look at the
/// proportions between requests only.
const COMPARED_BY: &str = "gb10-qwen3-8b-fp8";
const PROFILE: &str = "predict.profile";
/// How long a class may hold back what came before it, unless set.
const GUARD: Span = Span::from_secs(10);
/// The greatest number in a stall, far above any engine's.
const MAX_STALL: f64 = 1e6;

/// The scheduler's rules, checked.
pub(super) struct Policy {
    pub(super) order: Order,
    pub(super) guard: Span,
    pub(super) budget: Option<Span>,
    pub(super) predict: Option<Predict>,
    pub(super) price: Option<Price>,
    pub(super) shadow: Option<ShadowPolicy>,
    pub(super) lengths: Lengths,
    pub(super) cost: CostModel,
}

pub(super) fn check(queue: &RawQueue, raw: &RawPredict) -> Result<Policy, ConfigError> {
    let live = rules(queue)?;
    let shadow = queue.shadow.as_deref().map(shadow_rules).transpose()?;
    let all: Vec<Rules> = [Some(live), shadow].into_iter().flatten().collect();
    if queue.guard.is_some() && !all.iter().any(|r| r.order == Order::Priority) {
        return Err(value("queue.guard", "goes with order = \"priority\" only; set that, or leave it out"));
    }
    let guard = optional_span("queue.guard", queue.guard.as_deref())?.unwrap_or(GUARD);
    let engine = raw.profile.as_deref().map(|name| profile(PROFILE, name)).transpose()?;
    let given = cost(raw, engine.as_ref())?;
    if let Some(rules) = all.iter().find(|r| r.admission.predicts()).filter(|_| given.is_none()) {
        return Err(needs_a_profile(*rules));
    }
    is_of_use(raw, given, &all)?;
    let caution = caution(raw)?;
    let stall = match all.iter().any(|r| matches!(r.admission, Admission::Price(_))) {
        true => Some(stall(raw, engine.as_ref())?),
        false => None,
    };
    let predict = |rules: Rules| rules.admission.predicts().then_some(Predict { caution });
    let price = |rules: Rules| match (rules.admission, stall) {
        (Admission::Price(mu), Some(stall)) => Some(Price { mu, stall }),
        _ => None,
    };
    Ok(Policy {
        order: live.order,
        guard,
        budget: match live.admission {
            Admission::Budget(budget) => Some(budget),
            _ => None,
        },
        predict: predict(live),
        price: price(live),
        shadow: shadow.map(|rules| ShadowPolicy { rules, predict: predict(rules), price: price(rules) }),
        lengths: raw.lengths.unwrap_or_default(),
        cost: match given {
            Some(cost) => cost,
            None => CostModel::from_profile(&profile(PROFILE, COMPARED_BY)?),
        },
    })
}

/// Order and admission, if what the queue says of them, of budget and of fairness fits.
fn rules(queue: &RawQueue) -> Result<Rules, ConfigError> {
    let order = queue.order.unwrap_or_default();
    let budget = optional_span("queue.budget", queue.budget.as_deref())?;
    let by_default = if budget.is_some() { RawAdmission::Budget } else { RawAdmission::None };
    let admission = match (queue.admission.unwrap_or(by_default), budget) {
        (RawAdmission::Budget, Some(budget)) => Admission::Budget(budget),
        (RawAdmission::Budget, None) => {
            return Err(value("queue.budget", "is needed with admission = \"budget\", such as \"750ms\""));
        }
        (_, Some(_)) => {
            return Err(value("queue.budget", "goes with admission = \"budget\" only; set that, or leave it out"));
        }
        (RawAdmission::None, None) => Admission::None,
        (RawAdmission::Predict, None) => Admission::Predict,
        (RawAdmission::Price, None) => Admission::Price(queue.fairness.unwrap_or(Admission::FAIRNESS)),
    };
    if order.predicts() && !admission.predicts() {
        let problem =
            format!("\"{order}\" goes by predictions; set admission = \"predict\" or \"price\", or another order");
        return Err(value("queue.order", &problem));
    }
    match (queue.fairness, admission) {
        (Some(_), Admission::Price(mu)) if !(0.0..=Admission::MAX_FAIRNESS).contains(&mu) => {
            let most = Admission::MAX_FAIRNESS;
            Err(value("queue.fairness", &format!("must be from 0 to {most}, such as 0.5, not {mu}")))
        }
        (Some(_), Admission::None | Admission::Budget(_) | Admission::Predict) => {
            Err(value("queue.fairness", "goes with admission = \"price\" only; set that, or leave it out"))
        }
        _ => Ok(Rules { order, admission }),
    }
}

fn shadow_rules(text: &str) -> Result<Rules, ConfigError> {
    text.parse().map_err(|e: RulesError| {
        value("queue.shadow", &format!("'{text}' is no policy such as \"wfq+budget:750ms\": {e}"))
    })
}

fn needs_a_profile(rules: Rules) -> ConfigError {
    let name = if rules.admission == Admission::Predict { "predict" } else { "price" };
    value(
        "predict.profile",
        &format!(
            "is needed with admission by \"{name}\": one of {}, or a .toml file; or set predict.overhead, \
             prefill_per_token, first_token_steps and idle_tpot",
            Profile::built_in_names().collect::<Vec<_>>().join(", ")
        ),
    )
}

/// Whether one of the policies goes by what is said of predictions.
fn is_of_use(raw: &RawPredict, cost: Option<CostModel>, all: &[Rules]) -> Result<(), ConfigError> {
    let predicts = all.iter().any(|r| r.admission.predicts());
    let prices = all.iter().any(|r| matches!(r.admission, Admission::Price(_)));
    if cost.is_some() && !predicts && !all.iter().any(|r| compares_costs(r.order)) {
        return Err(value("predict", "nothing goes by it; set queue.admission = \"predict\", or leave it out"));
    }
    let extra = [("pad", raw.pad.is_some()), ("margin", raw.margin.is_some()), ("lengths", raw.lengths.is_some())];
    if let Some((key, _)) = extra.iter().find(|(_, is_set)| *is_set && !predicts) {
        let problem = "goes with queue.admission = \"predict\" or \"price\" only; set that, or leave it out";
        return Err(value(&format!("predict.{key}"), problem));
    }
    if raw.stall.is_some() && !prices {
        return Err(value("predict.stall", "goes with queue.admission = \"price\" only; set that, or leave it out"));
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

pub(super) fn profile(key: &str, name: &str) -> Result<Profile, ConfigError> {
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

fn stall(raw: &RawPredict, engine: Option<&Profile>) -> Result<Stall, ConfigError> {
    match (&raw.stall, engine) {
        (Some(own), _) => checked_stall(own),
        (None, Some(engine)) => Ok(Price::from_profile(engine, 0.0).stall),
        (None, None) => Err(value(
            "predict.profile",
            "is needed with admission by \"price\", to know what a request takes from the others; or set predict.stall",
        )),
    }
}

fn checked_stall(raw: &RawStall) -> Result<Stall, ConfigError> {
    let checked = |key, n: f64| {
        let problem = || format!("must be a number from 0 to {MAX_STALL}, not {n}");
        if (0.0..=MAX_STALL).contains(&n) { Ok(n) } else { Err(value(&format!("predict.stall.{key}"), &problem())) }
    };
    Ok(Stall {
        per_token_ms: checked("per_token_ms", raw.per_token_ms)?,
        free_tokens: checked("free_tokens", raw.free_tokens)?,
        attention_ms: checked("attention_ms", raw.attention_ms)?,
        kv_ms_per_token: checked("kv_ms_per_token", raw.kv_ms_per_token)?,
        sequence_ms: checked("sequence_ms", raw.sequence_ms)?,
    })
}
