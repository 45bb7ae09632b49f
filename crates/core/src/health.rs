//! What a run says of the generator itself, and how much of it is tolerated.
//!
//! Past a declared tolerance a run is a finding about the generator, not about the server.

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// Declared before the run: what the generator may at most show of itself.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tolerances {
    /// The 99th percentile of the send lag.
    #[serde(rename = "send_lag_p99_ns")]
    pub send_lag_p99: Span,
    /// The 99th percentile of a timer's lateness on the runtime that serves the connections.
    #[serde(rename = "runtime_delay_p99_ns", default = "default_lateness")]
    pub runtime_delay_p99: Span,
    /// CPU of the busiest second, as a share of the cores that the process may use.
    #[serde(default = "default_share")]
    pub cpu: f64,
    /// Open descriptors, as a share of their limit.
    #[serde(default = "default_share")]
    pub descriptors: f64,
    /// A step of the wall clock against the monotonic one: the machine slept, or its clock was set.
    #[serde(rename = "clock_step_ns", default = "default_step")]
    pub clock_step: Span,
    /// The busiest second's sends, as a share of the rate that the generator was shown to keep.
    #[serde(default = "default_of_ceiling")]
    pub of_ceiling: f64,
    /// Arrivals whose answer broke the protocol, as a share of the planned ones.
    #[serde(default = "default_protocol_errors")]
    pub protocol_errors: f64,
}

const fn default_lateness() -> Span {
    Span::from_millis(10)
}

const fn default_share() -> f64 {
    0.9
}

const fn default_step() -> Span {
    Span::from_millis(250)
}

const fn default_of_ceiling() -> f64 {
    0.5
}

const fn default_protocol_errors() -> f64 {
    0.01
}

impl Tolerances {
    /// The defaults, with one limit for the lateness of sends and of the client's timers.
    #[must_use]
    pub fn of_lateness(p99: Span) -> Self {
        Self { send_lag_p99: p99, runtime_delay_p99: p99, ..Self::default() }
    }
}

impl Default for Tolerances {
    fn default() -> Self {
        Self {
            send_lag_p99: default_lateness(),
            runtime_delay_p99: default_lateness(),
            cpu: default_share(),
            descriptors: default_share(),
            clock_step: default_step(),
            of_ceiling: default_of_ceiling(),
            protocol_errors: default_protocol_errors(),
        }
    }
}

/// What was seen of the generator while it ran. What the system does not tell is absent.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// From the planned time to the start of the send, over first attempts.
    pub send_lag: Lateness,
    /// How late a timer was that fired all through the run, on the runtime that serves the connections.
    pub runtime_delay: Lateness,
    /// Requests sent in the busiest second.
    pub peak_sends_per_s: u32,
    /// Requests that went over a connection which had been used before.
    pub reused: u32,
    /// The cores that the process may use.
    pub cores: u32,
    /// CPU of the busiest second, as a share of the cores.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_peak: Option<f64>,
    /// The most descriptors that were open at a look, once a second; connections are among them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub descriptors_peak: Option<u32>,
    /// The most that may be open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub descriptors_limit: Option<u32>,
    /// The largest step of the wall clock against the monotonic one, between two looks.
    #[serde(rename = "clock_step_ns", default)]
    pub clock_step: Span,
}

/// How late something was that happens often.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// How often it happened.
    pub n: u64,
    /// The median, at most 1.6 % too high.
    #[serde(rename = "p50_ns", skip_serializing_if = "Option::is_none", default)]
    pub p50: Option<Span>,
    /// The 99th percentile, at most 1.6 % too high; the largest where n is below 100.
    #[serde(rename = "p99_ns", skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<Span>,
    /// The largest.
    #[serde(rename = "max_ns", skip_serializing_if = "Option::is_none", default)]
    pub max: Option<Span>,
}

/// The rate that this generator keeps on this machine, against a server that costs next to nothing.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Requests per second that were sent with a p99 of the send lag within `clean_lag`; 0 if none of the
    /// rates tried was.
    pub per_s: f64,
    /// What counted as clean.
    #[serde(rename = "clean_lag_ns")]
    pub clean_lag: Span,
    /// Whether a higher rate was tried and was not clean. If not, the true ceiling may lie higher.
    pub is_highest: bool,
}

impl Health {
    /// What is past its tolerance, each with both figures: empty for a sound generator.
    ///
    /// The send lag is left out: the ledger holds it exactly.
    #[must_use]
    pub fn violations(&self, tolerances: &Tolerances, ceiling: Option<&Ceiling>) -> Vec<String> {
        let mut found = Vec::new();
        let limit = tolerances.runtime_delay_p99;
        if let Some(p99) = self.runtime_delay.p99.filter(|p99| *p99 > limit) {
            found.push(format!(
                "the p99 of the client's own timers' lateness is {p99}, past the declared {limit}: it was short of CPU"
            ));
        }
        if let Some(cpu) = self.cpu_peak.filter(|cpu| *cpu > tolerances.cpu) {
            found.push(format!(
                "the client used {:.0} % of its {} cores in its busiest second, past the declared {:.0} %",
                cpu * 100.0,
                self.cores,
                tolerances.cpu * 100.0
            ));
        }
        if let Some((open, limit)) = self.descriptors_peak.zip(self.descriptors_limit)
            && f64::from(open) > f64::from(limit) * tolerances.descriptors
        {
            found.push(format!(
                "{open} descriptors were open of {limit} allowed, past the declared {:.0} %: raise `ulimit -n`",
                tolerances.descriptors * 100.0
            ));
        }
        if self.clock_step > tolerances.clock_step {
            found.push(format!(
                "the wall clock stepped by {} against the monotonic one, past the declared {}: \
                 the machine slept or its clock was set",
                self.clock_step, tolerances.clock_step
            ));
        }
        if let Some(ceiling) = ceiling
            && f64::from(self.peak_sends_per_s) > ceiling.per_s * tolerances.of_ceiling
        {
            found.push(format!(
                "{} requests were sent in the busiest second, more than {:.0} % of the {:.0}/s that this \
                 generator was shown to keep here",
                self.peak_sends_per_s,
                tolerances.of_ceiling * 100.0,
                ceiling.per_s
            ));
        }
        found
    }
}

/// Counts of spans in classes that are at most 1/64 wide, so that the memory does not grow with what is
/// counted.
#[derive(Clone, Debug)]
pub struct LatenessCounts {
    classes: Vec<u32>,
    n: u64,
    max: Span,
}

/// Classes for each power of two.
const SUB: u64 = 64;
/// Below this a class is one nanosecond wide.
const EXACT: u64 = 2 * SUB;

impl Default for LatenessCounts {
    fn default() -> Self {
        Self::new()
    }
}

impl LatenessCounts {
    /// Nothing counted.
    #[must_use]
    pub fn new() -> Self {
        Self { classes: vec![0; class_of(u64::MAX) + 1], n: 0, max: Span::ZERO }
    }

    /// Counts one.
    pub fn add(&mut self, late: Span) {
        let class = &mut self.classes[class_of(late.as_nanos())];
        *class = class.saturating_add(1);
        self.n += 1;
        self.max = self.max.max(late);
    }

    /// What was counted.
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        if self.n == 0 {
            return Lateness::default();
        }
        let p99 = if self.n < 100 { self.max } else { self.at_rank(self.n - self.n / 100) };
        Lateness { n: self.n, p50: Some(self.at_rank(self.n.div_ceil(2))), p99: Some(p99), max: Some(self.max) }
    }

    /// The upper edge of the class that holds the value of a rank, counted from 1.
    fn at_rank(&self, rank: u64) -> Span {
        let mut below = 0;
        for (class, count) in self.classes.iter().enumerate() {
            below += u64::from(*count);
            if below >= rank {
                return Span::from_nanos(upper_edge(class)).min(self.max);
            }
        }
        self.max
    }
}

/// The class of a number: itself while it is small, else its leading seven bits and how many follow.
const fn class_of(ns: u64) -> usize {
    if ns < EXACT {
        return ns as usize;
    }
    let shift = ns.ilog2() - SUB.ilog2();
    (SUB * shift as u64 + (ns >> shift)) as usize
}

/// The largest number of a class.
const fn upper_edge(class: usize) -> u64 {
    let class = class as u64;
    if class < EXACT {
        return class;
    }
    let shift = class / SUB - 1;
    let lead = class - SUB * shift;
    (lead << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_lies_in_its_class_and_classes_are_at_most_a_sixty_fourth_wide() {
        let samples = (0..64).flat_map(|p| [1u64 << p, (1 << p) | 1, (1u64 << p) - 1, (1u64 << p) | ((1u64 << p) / 3)]);
        for ns in samples.chain([0, 127, 128, 129, u64::MAX]) {
            let class = class_of(ns);
            let top = upper_edge(class);
            assert!(top >= ns && class_of(top) == class, "{ns} in {class} up to {top}");
            assert!(top == u64::MAX || class_of(top + 1) == class + 1, "{ns}");
            assert!(top - ns <= ns / 64, "{ns} up to {top}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_ranks_and_never_above_the_largest() {
        let mut counts = LatenessCounts::new();
        assert_eq!(counts.lateness(), Lateness::default());
        (1..=1000u64).for_each(|us| counts.add(Span::from_nanos(us * 1000)));
        let found = counts.lateness();
        let near = |span: Option<Span>, us: f64| {
            let ratio = span.unwrap().as_nanos() as f64 / (us * 1000.0);
            (1.0..1.0 + 1.0 / 64.0).contains(&ratio)
        };
        assert!(near(found.p50, 500.0) && near(found.p99, 990.0), "{found:?}");
        assert_eq!((found.n, found.max), (1000, Some(Span::from_millis(1))));
        let mut few = LatenessCounts::new();
        few.add(Span::from_nanos(1000));
        few.add(Span::from_nanos(2_000_003));
        assert_eq!(few.lateness().p99, Some(Span::from_nanos(2_000_003)), "too few for a p99: the largest");
    }

    #[test]
    fn a_manifest_that_declares_the_send_lag_alone_has_the_defaults_for_the_rest() {
        let old: Tolerances = serde_json::from_str(r#"{"send_lag_p99_ns":5000000}"#).unwrap();
        assert_eq!(old, Tolerances { send_lag_p99: Span::from_millis(5), ..Tolerances::default() });
    }

    #[test]
    fn each_tolerance_is_named_when_it_is_passed_and_only_then() {
        let sound = Health {
            runtime_delay: Lateness { n: 100, p99: Some(Span::from_millis(10)), ..Lateness::default() },
            peak_sends_per_s: 500,
            cores: 2,
            cpu_peak: Some(0.9),
            descriptors_peak: Some(900),
            descriptors_limit: Some(1000),
            clock_step: Span::from_millis(250),
            ..Health::default()
        };
        let ceiling = Ceiling { per_s: 1000.0, clean_lag: Span::from_millis(10), is_highest: true };
        let found = |health: Health| health.violations(&Tolerances::default(), Some(&ceiling));
        assert_eq!(found(sound), Vec::<String>::new(), "a limit itself is not past it");
        let late = Lateness { p99: Some(Span::from_nanos(10_000_001)), ..sound.runtime_delay };
        for (health, says) in [
            (Health { runtime_delay: late, ..sound }, "timers"),
            (Health { cpu_peak: Some(0.91), ..sound }, "91 % of its 2 cores"),
            (Health { descriptors_peak: Some(901), ..sound }, "ulimit"),
            (Health { clock_step: Span::from_nanos(250_000_001), ..sound }, "wall clock"),
            (Health { peak_sends_per_s: 501, ..sound }, "501 requests"),
        ] {
            let found = found(health);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(says), "{found:?}");
        }
        let unknown = Health { cpu_peak: None, descriptors_peak: None, descriptors_limit: None, ..Health::default() };
        assert!(
            unknown.violations(&Tolerances::default(), None).is_empty(),
            "what is not known is not held against it"
        );
    }
}
