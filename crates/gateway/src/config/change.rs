//! Changes of a policy and of tenants, as operators make them while the gateway runs.

use elasticserve_core::sched::{Admission, Order, Rules};

use super::policy::compares_costs;
use super::raw::{RawAdmission, RawConfig, RawPredict, RawQueue};
use super::{ConfigError, value};

impl RawQueue {
    /// Puts an order and an admission in the place of its own.
    pub fn set_rules(&mut self, rules: Rules) {
        self.order = Some(rules.order);
        (self.budget, self.fairness) = (None, None);
        self.admission = Some(match rules.admission {
            Admission::None => RawAdmission::None,
            Admission::Budget(budget) => {
                self.budget = Some(budget.exact());
                RawAdmission::Budget
            }
            Admission::Predict => RawAdmission::Predict,
            Admission::Price(fairness) => {
                self.fairness = Some(fairness);
                RawAdmission::Price
            }
        });
    }
}

impl RawConfig {
    /// Goes by another policy; what was said for the one before and is of no use to this one is left out, as a file
    /// would have to.
    pub(crate) fn set_policy(&mut self, rules: Rules, profile: Option<String>) {
        let shadow: Option<Rules> = self.queue.shadow.as_deref().and_then(|text| text.parse().ok());
        let predicted = matches!(self.queue.admission, Some(RawAdmission::Predict | RawAdmission::Price))
            || shadow.is_some_and(|s| s.admission.predicts());
        self.queue.set_rules(rules);
        let queue = &mut self.queue;
        let all: Vec<Rules> = [Some(rules), shadow].into_iter().flatten().collect();
        if !all.iter().any(|r| r.order == Order::Priority) {
            queue.guard = None;
        }
        let predicts = all.iter().any(|r| r.admission.predicts());
        if !predicted || !predicts {
            // What fair queueing compares requests by was no statement about this engine.
            self.predict = RawPredict::default();
        }
        if !all.iter().any(|r| matches!(r.admission, Admission::Price(_))) {
            self.predict.stall = None;
        }
        if profile.is_some() && (predicts || all.iter().any(|r| compares_costs(r.order))) {
            let RawPredict { pad, margin, lengths, stall, .. } = std::mem::take(&mut self.predict);
            self.predict = RawPredict { profile, pad, margin, lengths, stall, ..RawPredict::default() };
        }
    }

    /// The backends of a name as in metrics, host and port and what comes before the paths, to be changed.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if there is none; it names those that there are, as far as they are few.
    pub(crate) fn backends_mut(
        &mut self,
        name: &str,
    ) -> Result<impl Iterator<Item = &mut super::RawBackend>, ConfigError> {
        let all = self.backends.get_or_insert_default();
        let of = |url: &str| url.split_once("://").map_or(url, |(_, rest)| rest).to_owned();
        let known: Vec<String> = all.iter().take(MAX_SHOWN).map(|b| of(&b.url)).collect();
        if !all.iter().any(|b| of(&b.url) == name) {
            let problem = format!("there is no backend of that name; there are: {}", known.join(", "));
            return Err(value("backends", &problem));
        }
        Ok(all.iter_mut().filter(move |b| of(&b.url) == name))
    }

    /// The tenant of a name, to be changed.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if there is none; it names those that there are, as far as they are few.
    pub(crate) fn tenant_mut(&mut self, name: &str) -> Result<&mut super::RawTenant, ConfigError> {
        let all = self.tenants.get_or_insert_default();
        let known: Vec<&str> = all.iter().take(MAX_SHOWN).map(|t| t.name.as_str()).collect();
        let problem = format!("there is no tenant of that name; there are: {}", known.join(", "));
        all.iter_mut().find(|t| t.name == name).ok_or_else(|| value("tenants", &problem))
    }
}

/// Names in a message.
const MAX_SHOWN: usize = 20;
