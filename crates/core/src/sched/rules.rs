//! A policy in a word: who goes next and who is turned away.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};

use super::order::Order;
use crate::time::Span;

/// Order and admission, written `ORDER+ADMISSION`:
///
/// ```text
/// ORDER      fcfs, wfq, priority, least-slack, shortest-first, …
/// ADMISSION  none, budget:TIME, predict, price, price:FAIRNESS; none if it is left out
/// ```
///
/// so `wfq+budget:750ms`, or `least-slack+price:0.5`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Rules {
    /// Who goes next.
    pub order: Order,
    /// Who is turned away.
    pub admission: Admission,
}

/// Who is turned away, short of a full queue.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Admission {
    /// Nobody.
    None,
    /// Who has waited so long.
    Budget(Span),
    /// Who is predicted to be late.
    Predict,
    /// Also who costs others more than it is worth, with this weight of fairness.
    Price(f64),
}

impl Admission {
    /// The weight of fairness in a price that does not say one.
    pub const FAIRNESS: f64 = 0.5;
    /// The greatest: beyond, most of what would be met is turned away for the sake of equality.
    pub const MAX_FAIRNESS: f64 = 4.0;

    /// Whether it goes by predictions.
    #[must_use]
    pub const fn predicts(self) -> bool {
        matches!(self, Self::Predict | Self::Price(_))
    }
}

/// Why a text is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// There is no such order.
    #[error("{0}")]
    Order(String),
    /// There is no such admission.
    #[error("'{0}' is no admission; write none, budget:TIME such as budget:750ms, predict, or price:FAIRNESS")]
    Admission(String),
    /// The order goes by what the admission does not compute.
    #[error("{0} goes by predictions: write {0}+predict or {0}+price")]
    NeedsPrediction(Order),
}

impl FromStr for Rules {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        let (order, admission) = text.split_once('+').unwrap_or((text, "none"));
        let rules = Self { order: order.trim().parse()?, admission: admission.trim().parse()? };
        if rules.order.predicts() && !rules.admission.predicts() {
            return Err(RulesError::NeedsPrediction(rules.order));
        }
        Ok(rules)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.admission {
            Admission::None => write!(f, "{}", self.order),
            admission => write!(f, "{}+{admission}", self.order),
        }
    }
}

impl FromStr for Admission {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        let wrong = || RulesError::Admission(text.to_owned());
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value.trim())));
        match (name.trim(), value) {
            ("none", None) => Ok(Self::None),
            ("budget", Some(budget)) => budget.parse().map(Self::Budget).map_err(|_| wrong()),
            ("predict", None) => Ok(Self::Predict),
            ("price", None) => Ok(Self::Price(Self::FAIRNESS)),
            ("price", Some(fairness)) => fairness
                .parse()
                .ok()
                .filter(|f| (0.0..=Self::MAX_FAIRNESS).contains(f))
                .map(Self::Price)
                .ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Budget(budget) => write!(f, "budget:{}", budget.exact()),
            Self::Predict => f.write_str("predict"),
            Self::Price(fairness) => write!(f, "price:{fairness}"),
        }
    }
}

impl FromStr for Order {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        let name: StrDeserializer<'_, NameError> = text.into_deserializer();
        Self::deserialize(name).map_err(|e| RulesError::Order(e.to_string()))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in
            ["fcfs", "wfq+budget:750ms", "least-slack+predict", "least-slack+price:0.7", "shortest-first", "priority"]
        {
            assert_eq!(text.parse::<Rules>().unwrap().to_string(), text);
        }
        let usual: Rules = " least-slack + price ".parse().unwrap();
        assert_eq!(usual.admission, Admission::Price(0.5));
        assert_eq!("wfq+none".parse::<Rules>(), "wfq".parse());
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, says) in [
            ("lifo", "`fcfs`"),
            ("", "`fcfs`"),
            ("wfq+budget", "budget:750ms"),
            ("wfq+budget:750", "budget:750ms"),
            ("wfq+predicted", "predict"),
            ("wfq+price:-1", "price:FAIRNESS"),
            ("wfq+price:nan", "price:FAIRNESS"),
            ("wfq+predict:1", "'predict:1'"),
            ("least-slack", "least-slack+predict"),
            ("least-slack+budget:1s", "least-slack+predict"),
        ] {
            let message = text.parse::<Rules>().unwrap_err().to_string();
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
