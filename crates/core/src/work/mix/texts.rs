//! Prompts that are texts of a dataset.

use super::{Mix, Texts};
use crate::rng::{Random, Stream};
use crate::work::{Arrival, Conversation, Dataset, Length, LoadModel, Plan, PlanError, TextRef, Turn};

/// Which texts of a dataset become prompts, by the approximate count of their tokens.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TextBounds {
    /// The fewest tokens of a message and of its answer; answers are not looked at if theirs are not used.
    pub least: u32,
    /// The most tokens of a message.
    pub input: u32,
    /// The most tokens of a message and its answer together.
    pub total: u32,
}

/// What `vllm bench serve` takes of ShareGPT.
impl Default for TextBounds {
    fn default() -> Self {
        Self { least: 4, input: 1024, total: 2048 }
    }
}

impl TextBounds {
    /// Whether a message may be used, with its answer or with one of another length.
    fn admits(self, (message, answer): &(String, String), other: Option<&Length>) -> bool {
        let (input, output) = (Dataset::tokens(message), Dataset::tokens(answer));
        let fits = input >= self.least && input <= self.input;
        let answered = output >= self.least && input.saturating_add(output) <= self.total;
        fits && (answered || other.is_some())
    }
}

impl Texts {
    pub(super) fn words(&self) -> String {
        let info = self.dataset.info();
        let answers = self.output.map_or_else(|| "its answers".to_owned(), |output| format!("output {output}"));
        format!("of {} ({answers}), counted as {}", info.source, info.counts)
    }

    /// The conversations whose first turn is within the bounds, in a random order.
    fn shuffled(&self, seed: u64) -> Vec<u32> {
        let usable =
            |c: &Conversation| c.turns.first().is_some_and(|first| self.bounds.admits(first, self.output.as_ref()));
        let conversations = (0u32..).zip(self.dataset.conversations());
        let mut order: Vec<u32> = conversations.filter(|(_, c)| usable(c)).map(|(i, _)| i).collect();
        let mut random = Random::new(seed, Stream::Texts);
        // Fisher and Yates.
        for i in (1..order.len()).rev() {
            order.swap(i, random.between(0, i as u64) as usize);
        }
        order
    }
}

impl Mix {
    /// The plan with a text for each prompt, and the lengths that follow from it. Conversations are used in a random
    /// order and again from its start when all have been used.
    pub(super) fn with_texts(&self, plan: Plan, texts: &Texts) -> Result<Plan, PlanError> {
        let order = texts.shuffled(self.seed);
        if order.is_empty() {
            let TextBounds { least, input, total } = texts.bounds;
            return Err(PlanError::Spec(format!(
                "no conversation of the dataset starts with {least} to {input} tokens and {total} with the answer"
            )));
        }
        let sessions = matches!(plan.header().model, LoadModel::Sessions { .. });
        let place = |a: &Arrival| match plan.turn(a) {
            Some(Turn { session, place, .. }) if sessions => (session, place),
            _ => (a.index, 0),
        };
        // A conversation may have fewer turns than were drawn.
        let text = |a: &Arrival| {
            let (use_, message) = place(a);
            let conversation = order[use_ as usize % order.len()];
            let text = TextRef { conversation, message };
            texts.dataset.text(text).map(|_| text)
        };
        let refs: Vec<Option<TextRef>> = plan.arrivals().iter().map(text).collect();
        let mut lengths = Random::new(self.seed, Stream::Lengths);
        let plan = plan.keeping(&refs, |arrival, text| {
            let (input, answer) = texts.dataset.turn(text).unwrap_or(("", ""));
            let drawn = texts.output.as_ref().map(|output| output.draw(&mut lengths));
            Arrival {
                input: Dataset::tokens(input),
                output: drawn.unwrap_or_else(|| Dataset::tokens(answer)),
                prompt: crate::rng::mix(u64::from(text.conversation), u64::from(text.message)),
                ..arrival
            }
        });
        plan.with_texts(std::sync::Arc::clone(&texts.dataset), refs.into_iter().flatten().map(Some).collect())
    }
}
