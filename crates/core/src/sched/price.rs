//! Admission at a price: what a request is worth against the time that it takes from others.
//!
//! Every request slows the engine's steps for all that run beside it: once while its prompt is computed,
//! and a little in every step in which its KV cache is read. This *stall*, in ms, differs by far more than
//! the requests' worth, and a few requests make most of it. So the price of a ms is estimated, and who
//! costs more than it is worth is turned away:
//!
//! ```text
//! stall  S(r) = c · (input − free)⁺ + q · (input / 1000)² + d · output · (input + output / 2)
//! worth  v(k) = 1 + mu · ∂ Jain / ∂ (a further answer for tenant k)
//! price  p₀: of the time per token.  p₁: of the stall of the moment, for what runs
//! refuse if  v < (p₀ + p₁) · S
//! ```
//!
//! Recent offers differ in the time per token that they tolerate, `crit`. A longer step loses those
//! whose `crit` it passes; p₀ is the worth of the offers just around the present step, less what they
//! would cost themselves. p₁ is the worth of running requests times the chance that one more ms makes them
//! late, and more than that: what they have cost already is lost with them.
//!
//! With `mu` above 0 a tenant is judged as if steps were shorter by a part of its rivals' share of the
//! stall, the rivals being those for whom a further answer is worth less than half as much. That is a
//! promise, which p₁ then makes the rivals keep.
//!
//! Prices are floating-point numbers from + − × ÷ and `libm`, and so the same everywhere. Nothing is ordered by them.

use std::collections::{BTreeMap, VecDeque};

use super::estimate::{Caution, CostModel, Need};
use crate::engine::Profile;
use crate::time::{Span, Tick};

/// What admission at a price goes by; see [`Settings::price`](super::Settings::price).
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Price {
    /// How much Jain's index over the tenants counts beside attainment: 0 not at all, 1 as much.
    pub mu: f64,
    /// What a request takes from the others.
    pub stall: Stall,
}

/// The stall of a request. See [`Profile`] for the parameters' sources.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Stall {
    /// Of a prompt token beyond those that are free, in ms.
    pub per_token_ms: f64,
    /// Prompt tokens that a full batch's steps hide.
    pub free_tokens: f64,
    /// Of (1000 prompt tokens)², in ms.
    pub attention_ms: f64,
    /// Of reading one token of KV cache once, in ms.
    pub kv_ms_per_token: f64,
    /// Of running for one step, whatever the context, in ms.
    pub sequence_ms: f64,
}

impl Price {
    /// A price on an engine whose profile is known.
    #[must_use]
    pub fn from_profile(profile: &Profile, mu: f64) -> Self {
        let free_tokens = (profile.roof_tokens - f64::from(profile.max_seqs)).max(0.0);
        let stall = Stall {
            per_token_ms: profile.prefill_ms_per_token,
            free_tokens,
            attention_ms: profile.attention_ms,
            kv_ms_per_token: profile.kv_ms_per_token,
            sequence_ms: profile.sequence_ms,
        };
        Self { mu, stall }
    }
}

impl Stall {
    /// In ms, over a request's life.
    fn of(&self, need: &Need) -> f64 {
        let (input, output) = (f64::from(need.input), f64::from(need.output));
        let thousands = input / 1000.0;
        self.per_token_ms * (input - self.free_tokens).max(0.0)
            + self.attention_ms * thousands * thousands
            + self.kv_ms_per_token * output * (input + output / 2.0)
            + self.sequence_ms * output
    }
}

/// Offers that are remembered.
const RING: usize = 64;
/// What was counted weighs 1/e after so long.
const MEMORY: Span = Span::from_secs(8);
/// Offers are looked at over at least so long.
const LEAST_AGE: Span = Span::from_secs(3);
/// Half the width of the band of `crit` around the present time per token that p₀ looks at.
const BAND: f64 = 0.12;
/// Steps that decide p₀'s fixed point.
const ROUNDS: usize = 40;
/// What the loss of a running request counts, in answers: the stall that it caused was paid already.
const RUNNING: f64 = 1.5;
/// The part of the rivals' stall that a promise counts on.
const PROMISE: f64 = 0.2;
/// A rival is a tenant that a further answer is worth less than this part.
const RIVAL: f64 = 0.5;
/// The uncertainty of a running request's end: a part of what is left, and a constant in ms.
const END_PART: f64 = 0.04;
const END_MS: f64 = 15.0;
/// So many tenants are looked at with each offer; more take turns, all of them at once every so many offers.
const AT_ONCE: usize = 64;
/// A tenant is forgotten when so little is left of its offers.
const FORGOTTEN: f64 = 0.01;

/// What a request is worth against what it costs the others, in answers.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Quote {
    /// What one more answer for its tenant is worth.
    pub worth: f64,
    /// Its stall at the price of the moment; above its worth it is turned away.
    pub cost: f64,
}

/// The memory of admission at a price.
#[derive(Debug)]
pub(super) struct Market {
    price: Price,
    idle_ms: f64,
    /// The tenants that offered lately; the counts have decayed up to `at`.
    tenants: BTreeMap<usize, Counts>,
    at: Tick,
    /// Offers since the tenants were valued.
    fresh: usize,
    /// The tenants' worth then, rising, with the stall of all up to each.
    stalls: Vec<(f64, f64)>,
    ring: VecDeque<Seen>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Counts {
    offered: f64,
    admitted: f64,
    stall: f64,
    /// Its worth at the last look.
    worth: f64,
}

/// An offer of the last few.
#[derive(Debug)]
struct Seen {
    at: Tick,
    lane: usize,
    /// The longest mean time per token that it tolerates, in ms.
    crit: f64,
    stall: f64,
}

/// What runs, as far as p₁ is concerned.
pub(super) struct InFlight {
    pub(super) lane: usize,
    /// From its predicted end to its limit, in ms.
    pub(super) slack_ms: f64,
    /// To its predicted end, in ms.
    pub(super) left_ms: f64,
}

impl Market {
    pub(super) fn new(price: Price, cost: &CostModel) -> Self {
        let idle_ms = cost.idle_tpot.as_millis_f64();
        Self {
            price,
            idle_ms,
            tenants: BTreeMap::new(),
            at: Tick::ZERO,
            fresh: 0,
            stalls: Vec::new(),
            ring: VecDeque::with_capacity(RING),
        }
    }

    /// Whether it goes by that price, and an engine of that pace.
    pub(super) fn is_of(&self, price: &Price, cost: &CostModel) -> bool {
        self.price == *price && self.idle_ms == cost.idle_tpot.as_millis_f64()
    }

    /// Counts an offer.
    pub(super) fn offered(&mut self, now: Tick, lane: usize, need: &Need, cost: &CostModel, caution: &Caution) {
        self.fresh += 1;
        let all = self.fresh * AT_ONCE >= self.tenants.len();
        if all {
            self.fresh = 0;
            self.decay(now);
        }
        // What is new has the worth of a tenant of which nothing is known until the next look at all.
        self.tenants.entry(lane).or_insert(Counts { worth: 1.0, ..Counts::default() }).offered += 1.0;
        if self.ring.len() == RING {
            self.ring.pop_front();
        }
        let crit = cost.tolerated_ms(need, caution);
        self.ring.push_back(Seen { at: now, lane, crit, stall: self.price.stall.of(need) });
        if all {
            self.value();
        }
    }

    /// Counts an admission.
    pub(super) fn admitted(&mut self, lane: usize, need: &Need) {
        let counts = self.tenants.entry(lane).or_default();
        counts.admitted += 1.0;
        counts.stall += self.price.stall.of(need);
    }

    /// The part of the time per token at which a tenant is judged.
    pub(super) fn promise(&self, lane: usize) -> f64 {
        let own = self.worth(lane) * RIVAL;
        let (all, rivals) = if self.tenants.len() <= AT_ONCE {
            let stall = |less: f64| self.tenants.values().filter(|t| t.worth < less).map(|t| t.stall).sum();
            (stall(f64::INFINITY), stall(own))
        } else {
            let up_to = |n: usize| n.checked_sub(1).and_then(|i| self.stalls.get(i)).map_or(0.0, |(_, sum)| *sum);
            (up_to(self.stalls.len()), up_to(self.stalls.partition_point(|(worth, _)| *worth < own)))
        };
        if self.price.mu > 0.0 && all > 0.0 { 1.0 - PROMISE * rivals / all } else { 1.0 }
    }

    /// What a request is worth, and what it costs the others.
    pub(super) fn quote(
        &self,
        now: Tick,
        lane: usize,
        need: &Need,
        tpot: Span,
        running: impl Iterator<Item = InFlight>,
    ) -> Quote {
        let stall = self.price.stall.of(need);
        let price = self.of_the_step(now, tpot.as_millis_f64()) + self.of_the_moment(running);
        Quote { worth: self.worth(lane), cost: price * stall }
    }

    fn worth(&self, lane: usize) -> f64 {
        self.tenants.get(&lane).map_or(1.0, |t| t.worth)
    }

    /// p₀: `p = k · Σ (v − p·S)⁺` over the offers around the present time per token. The right side falls
    /// as p rises, so there is one solution, found by halving.
    fn of_the_step(&self, now: Tick, tpot: f64) -> f64 {
        let Some(oldest) = self.ring.front() else { return 0.0 };
        let age = now.since(oldest.at).max(LEAST_AGE).as_millis_f64();
        let k = tpot / (self.idle_ms * age * 2.0 * BAND);
        let near: Vec<(f64, f64)> = self
            .ring
            .iter()
            .filter(|seen| libm::fabs(seen.crit / tpot - 1.0) <= BAND)
            .map(|seen| (self.worth(seen.lane), seen.stall))
            .filter(|(worth, _)| *worth > 0.0)
            .collect();
        let demand = |p: f64| k * near.iter().map(|(worth, stall)| (worth - p * stall).max(0.0)).sum::<f64>();
        let (mut low, mut high) = (0.0, demand(0.0));
        for _ in 0..ROUNDS {
            let middle = f64::midpoint(low, high);
            if demand(middle) > middle { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    }

    /// p₁.
    fn of_the_moment(&self, running: impl Iterator<Item = InFlight>) -> f64 {
        let chance = |r: &InFlight| {
            let deviation = END_PART * r.left_ms + END_MS;
            let z = r.slack_ms / deviation;
            libm::exp(-0.5 * z * z) / (deviation * libm::sqrt(2.0 * core::f64::consts::PI))
        };
        running.map(|r| RUNNING * self.worth(r.lane).max(0.0) * chance(&r)).sum()
    }

    fn decay(&mut self, now: Tick) {
        let factor = libm::exp(-(now.since(self.at).as_secs_f64() / MEMORY.as_secs_f64()));
        self.at = self.at.max(now);
        for counts in self.tenants.values_mut() {
            counts.offered *= factor;
            counts.admitted *= factor;
            counts.stall *= factor;
        }
        self.tenants.retain(|_, counts| counts.offered > FORGOTTEN);
    }

    /// What one more answer is worth to each tenant. Shares served start from the mean over all, with the
    /// weight of two requests.
    fn value(&mut self) {
        let offered: f64 = self.tenants.values().map(|t| t.offered).sum();
        let admitted: f64 = self.tenants.values().map(|t| t.admitted).sum();
        let mean = (admitted + 1.0) / (offered + 1.0);
        let share = |t: &Counts| ((t.admitted + 2.0 * mean) / (t.offered + 2.0)).min(1.0);
        let s1: f64 = self.tenants.values().map(share).sum();
        let s2: f64 = self.tenants.values().map(|t| share(t) * share(t)).sum();
        let count = self.tenants.len() as f64;
        let jain = s1 * s1 / (count * s2);
        let n = offered + 2.0 * count;
        for t in self.tenants.values_mut() {
            t.worth = 1.0 + self.price.mu * n / (t.offered + 2.0) * (2.0 * jain / s1) * (1.0 - share(t) * s1 / s2);
        }
        self.stalls.clear();
        if self.tenants.len() > AT_ONCE {
            self.stalls.extend(self.tenants.values().map(|t| (t.worth, t.stall)));
            self.stalls.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            let mut sum = 0.0;
            for (_, stall) in &mut self.stalls {
                sum += *stall;
                *stall = sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slo::Slo;

    const TPOT: Span = Span::from_millis(50);

    fn need(input: u32, output: u32, e2e: u64) -> Need {
        Need { input, output, slo: Slo { e2e: Some(Span::from_millis(e2e)), ..Slo::default() } }
    }

    /// A market that has seen tenant 0 served and tenant 1 refused, with limits close to the present step.
    fn market(mu: f64) -> Market {
        let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
        let cost = CostModel::from_profile(&profile);
        let mut market = Market::new(Price::from_profile(&profile, mu), &cost);
        for i in 0..60 {
            let (lane, need) = ((i % 2) as usize, need(500, 100, 5_500));
            market.offered(Tick::from_nanos(i * 50_000_000), lane, &need, &cost, &Caution::NONE);
            if lane == 0 {
                market.admitted(lane, &need);
            }
        }
        market
    }

    fn running() -> impl Iterator<Item = InFlight> {
        (0..20).map(|i| InFlight { lane: 0, slack_ms: f64::from(i * 20), left_ms: 2_000.0 })
    }

    #[test]
    fn what_stalls_others_more_is_turned_away_first() {
        let market = market(0.0);
        let now = Tick::from_nanos(3_000_000_000);
        let worth = |input| {
            let quote = market.quote(now, 0, &need(input, 100, 5_500), TPOT, running());
            quote.worth >= quote.cost
        };
        let answers: Vec<bool> = (1..40).map(|i| worth(i * 100)).collect();
        assert!(answers[0] && !answers[38], "{answers:?}");
        assert!(answers.is_sorted_by(|a, b| a >= b), "{answers:?}");
    }

    #[test]
    fn a_price_solves_its_own_equation() {
        let market = market(0.0);
        let now = Tick::from_nanos(3_000_000_000);
        let p = market.of_the_step(now, 50.0);
        let age = now.since(market.ring.front().unwrap().at).max(LEAST_AGE).as_millis_f64();
        let near = market.ring.iter().filter(|s| (s.crit / 50.0 - 1.0).abs() <= BAND);
        let sum: f64 = near.map(|s| (1.0 - p * s.stall).max(0.0)).sum();
        assert!(p > 0.0 && (50.0 / (market.idle_ms * age * 0.24) * sum - p).abs() < 1e-9, "{p}");
    }

    #[test]
    fn with_fairness_the_worse_served_is_worth_more_and_is_judged_by_a_promise() {
        let (fair, plain) = (market(0.7), market(0.0));
        assert!(fair.worth(1) > 2.0 * fair.worth(0) && fair.worth(0) < 1.0, "{} {}", fair.worth(0), fair.worth(1));
        assert_eq!((plain.worth(0), plain.worth(1)), (1.0, 1.0));
        // All of the stall is the other's.
        assert!((fair.promise(1) - (1.0 - PROMISE)).abs() < 1e-9 && fair.promise(0) == 1.0);
        assert_eq!(plain.promise(1), 1.0);
    }

    #[test]
    fn many_tenants_are_judged_like_few_though_they_take_turns() {
        // The same two kinds of tenants, one served and one refused, once two and once two thousand.
        let of = |tenants: u64| {
            let profile = Profile::built_in("gb10-qwen3-8b-fp8").unwrap();
            let cost = CostModel::from_profile(&profile);
            let mut market = Market::new(Price::from_profile(&profile, 0.7), &cost);
            for i in 0..tenants * 40 {
                let lane = (i % tenants) as usize;
                let need = need(500, 100, 5_500);
                // In all cases as many offers per tenant and second.
                market.offered(Tick::from_nanos(i * 50_000_000 / tenants), lane, &need, &cost, &Caution::NONE);
                if lane.is_multiple_of(2) {
                    market.admitted(lane, &need);
                }
            }
            (market.worth(0), market.worth(1), market.promise(1), market.promise(0))
        };
        let (few, many) = (of(2), of(2_000));
        assert!((few.0 - many.0).abs() < 0.05 && (few.1 - many.1).abs() < 0.05, "{few:?} {many:?}");
        assert!((few.2 - many.2).abs() < 0.01 && few.3 == many.3, "{few:?} {many:?}");
    }

    #[test]
    fn tenants_that_are_gone_are_forgotten() {
        let mut market = market(0.5);
        let cost = CostModel::from_profile(&Profile::built_in("gb10-qwen3-8b-fp8").unwrap());
        let later = Tick::from_nanos(200_000_000_000);
        market.offered(later, 7, &need(500, 100, 5_500), &cost, &Caution::NONE);
        assert_eq!(market.tenants.len(), 1);
        assert_eq!(market.ring.len(), 61);
    }
}
