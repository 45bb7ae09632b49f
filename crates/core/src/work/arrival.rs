//! Arrival processes: the planned times of an open load.

mod times;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// When requests arrive, whatever the server does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "process", rename_all = "kebab-case")]
pub enum ArrivalProcess {
    /// Evenly spaced, the first one gap after the start.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// Independent arrivals: exponential gaps.
    ///
    /// With a fixed number of requests the times are rescaled so that the last one is at exactly
    /// count / rate, as `vllm bench serve` does: a Poisson process given its count, whose offered
    /// rate is the rate that was asked for.
    Poisson {
        /// Requests per second.
        rate: f64,
    },
    /// Gaps of a gamma distribution of shape `burstiness` and mean 1 / rate, rescaled like [`Self::Poisson`].
    ///
    /// Their coefficient of variation is 1 / √burstiness: below 1 the arrivals come in clumps, 1 is Poisson, and
    /// above it they are more even.
    Gamma {
        /// Requests per second.
        rate: f64,
        /// The shape.
        burstiness: f64,
    },
    /// Poisson arrivals at one rate after the other. The last rate goes on for as long as it must.
    Steps {
        /// The rates in order.
        steps: Vec<Step>,
    },
    /// Poisson arrivals at a rate that moves evenly from one value to another over the window.
    Ramp {
        /// Requests per second at the start.
        from: f64,
        /// Requests per second at the end of the window.
        to: f64,
    },
    /// Many at once, again and again, the first of them at the start.
    Bursts {
        /// Requests at once.
        size: u32,
        /// From one burst to the next.
        #[serde(rename = "every_ns")]
        every: Span,
    },
    /// Recorded arrival times in seconds at one request per second, divided by the rate.
    Recorded {
        /// Requests per second.
        rate: f64,
        /// Where the times come from.
        source: String,
        /// The times, ascending.
        #[serde(skip)]
        unit_times: Vec<f64>,
    },
    /// Each tenant's own: see [`PlanTenant::arrivals`](super::PlanTenant::arrivals).
    Mixed {
        /// Requests per second of all together.
        rate: f64,
    },
    /// None: requests are sent when a worker is free, or by users who are all there from the start.
    OnDemand,
}

/// A rate and how long it holds.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Requests per second; 0 is a pause.
    pub rate: f64,
    /// For how long.
    #[serde(rename = "length_ns")]
    pub length: Span,
}

/// How many requests are planned.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// So many requests.
    Count(u32),
    /// All that arrive in so much time.
    Duration(Span),
}

impl ArrivalProcess {
    /// The least shape of [`Self::Gamma`]: below it nearly all gaps are 0.
    pub const MIN_BURSTINESS: f64 = 0.01;

    /// Requests per second, as a mean over the window; none if the plan fixes no rate.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match self {
            Self::Constant { rate }
            | Self::Poisson { rate }
            | Self::Gamma { rate, .. }
            | Self::Recorded { rate, .. }
            | Self::Mixed { rate } => Some(*rate),
            Self::Steps { steps } => {
                let length: f64 = steps.iter().map(|s| s.length.as_secs_f64()).sum();
                Some(steps.iter().map(|s| s.rate * s.length.as_secs_f64()).sum::<f64>() / length)
            }
            Self::Ramp { from, to } => Some(f64::midpoint(*from, *to)),
            Self::Bursts { size, every } => Some(f64::from(*size) / every.as_secs_f64()),
            Self::OnDemand => None,
        }
    }

    /// The same process in time that runs `factor` times faster.
    #[must_use]
    pub fn sped_up(mut self: ArrivalProcess, factor: f64) -> Self {
        match &mut self {
            Self::Constant { rate }
            | Self::Poisson { rate }
            | Self::Gamma { rate, .. }
            | Self::Recorded { rate, .. }
            | Self::Mixed { rate } => *rate *= factor,
            Self::Steps { steps } => {
                for step in steps {
                    *step = Step { rate: step.rate * factor, length: step.length.scaled_down(factor) };
                }
            }
            Self::Ramp { from, to } => (*from, *to) = (*from * factor, *to * factor),
            Self::Bursts { every, .. } => *every = every.scaled_down(factor),
            Self::OnDemand => {}
        }
        self
    }

    /// What is wrong with the parameters, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        let positive = |rate: f64| rate > 0.0 && rate.is_finite();
        let not_negative = |rate: f64| rate >= 0.0 && rate.is_finite();
        match self {
            Self::Constant { rate }
            | Self::Poisson { rate }
            | Self::Gamma { rate, .. }
            | Self::Recorded { rate, .. }
            | Self::Mixed { rate }
                if !positive(*rate) =>
            {
                Some(format!("the request rate must be above 0 requests/s, not {rate}"))
            }
            Self::Gamma { burstiness, .. } if !(*burstiness >= Self::MIN_BURSTINESS && burstiness.is_finite()) => {
                let least = Self::MIN_BURSTINESS;
                Some(format!("the burstiness must be {least} or more and finite, not {burstiness}"))
            }
            Self::Steps { steps } if steps.iter().any(|s| !not_negative(s.rate) || s.length == Span::ZERO) => {
                Some("each step needs a rate of 0 requests/s or more and a length above 0".into())
            }
            Self::Steps { steps } if !steps.last().is_some_and(|last| positive(last.rate)) => {
                Some("the last step needs a rate above 0 requests/s".into())
            }
            Self::Ramp { from, to } if !(not_negative(*from) && not_negative(*to) && from + to > 0.0) => {
                Some(format!("a ramp needs rates of 0 requests/s or more, not both 0, and not {from} to {to}"))
            }
            Self::Bursts { size, every } if *size == 0 || *every == Span::ZERO => {
                Some(format!("bursts need 1 request or more and a time between them, not {size} every {every}"))
            }
            _ => None,
        }
    }
}

/// What is offered, in words.
impl fmt::Display for ArrivalProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant { rate } => write!(f, "evenly spaced at {}/s", short(*rate)),
            Self::Poisson { rate } => write!(f, "Poisson at {}/s", short(*rate)),
            Self::Gamma { rate, burstiness } => {
                write!(f, "gamma with burstiness {} at {}/s", short(*burstiness), short(*rate))
            }
            Self::Steps { steps } => {
                f.write_str("Poisson at ")?;
                for (i, step) in steps.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{}/s for {}", short(step.rate), step.length)?;
                }
                Ok(())
            }
            Self::Ramp { from, to } => write!(f, "Poisson from {}/s to {}/s", short(*from), short(*to)),
            Self::Bursts { size, every } => write!(f, "bursts of {size} every {every}"),
            Self::Recorded { rate, source, .. } => write!(f, "recorded ({source}) at {}/s", short(*rate)),
            Self::Mixed { rate } => write!(f, "each tenant's own, together {}/s", short(*rate)),
            Self::OnDemand => f.write_str("on demand"),
        }
    }
}

/// A number with two decimals at most.
fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
