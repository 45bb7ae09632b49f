//! Users who hold conversations.

use std::fmt;
use std::num::NonZeroU32;

use super::{Mix, Random, Stream};
use crate::rng::mix;
use crate::time::Span;
use crate::work::{Arrival, ArrivalProcess, Extent, Lengths, Plan, PlanError, Turn};

/// Conversations, one of each user.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSpec {
    /// Users.
    pub users: NonZeroU32,
    /// When users come; without it all come at the start.
    pub process: Option<ArrivalProcess>,
    /// Turns of a conversation. One with texts of a dataset has as many as those, if they are fewer.
    pub turns: Lengths,
    /// From the end of an answer to the user's next turn.
    pub think: Think,
    /// Whether a turn carries the ones before it, with the server's own answers.
    pub history: bool,
    /// When the run ends, if not with the last conversation.
    pub window: Option<Span>,
}

/// How long users think.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Think {
    /// Between two times, equally likely; equal ends are a fixed time.
    Uniform(Span, Span),
    /// Exponential, of this mean.
    Exponential(Span),
}

impl Think {
    fn draw(self, random: &mut Random) -> Span {
        match self {
            Self::Uniform(low, high) => Span::from_nanos(random.between(low.as_nanos(), high.as_nanos())),
            Self::Exponential(mean) => Span::from_secs_f64(mean.as_secs_f64() * random.exponential()),
        }
    }
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform(low, high) if low == high => write!(f, "{low}"),
            Self::Uniform(low, high) => write!(f, "{low} to {high}"),
            Self::Exponential(mean) => write!(f, "exponential, mean {mean}"),
        }
    }
}

impl Mix {
    /// A plan of conversations. They stand in it one after the other, each with its turns in order.
    pub(super) fn sessions(&self, spec: &SessionSpec) -> Result<Plan, PlanError> {
        if let Some(problem) = spec.turns.problem("turns: as").or_else(|| spec.problem()) {
            return Err(PlanError::Spec(problem));
        }
        let users = spec.users.get();
        let starts: Vec<Span> = match &spec.process {
            Some(process) => process.times(self.seed, Extent::Count(users)).collect(),
            None => vec![Span::ZERO; users as usize],
        };
        let mut random = Random::new(self.seed, Stream::Turns);
        let mut lengths = self.lengths();
        let (mut arrivals, mut turns) = (Vec::new(), Vec::new());
        for (session, (at, tenant)) in (0u32..).zip(self.tenants_by_share(starts.into_iter())) {
            for place in 0..spec.turns.draw(&mut random) {
                let (input, output) = lengths.draw(tenant);
                let prompt = mix(mix(self.seed, u64::from(session)), u64::from(place));
                arrivals.push(Arrival { index: 0, at, tenant, input, output, prompt });
                let think = if place == 0 { Span::ZERO } else { spec.think.draw(&mut random) };
                turns.push(Turn { session, place, think });
            }
        }
        let process = spec.process.clone().unwrap_or(ArrivalProcess::OnDemand);
        let plan = Plan::of_arrivals(self.seed, process, spec.window, self.tenants(), arrivals)?;
        let plan = plan.with_turns(spec.users, spec.history, turns)?;
        match &self.texts {
            Some(texts) => self.with_texts(plan, texts),
            None => self.with_prefixes(plan),
        }
    }
}

impl SessionSpec {
    fn problem(&self) -> Option<String> {
        match self.think {
            Think::Uniform(low, high) if low > high => Some(format!("think times from {low} to {high} are empty")),
            _ => None,
        }
    }
}
