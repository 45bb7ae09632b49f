//! What a conversation has held so far: the user's turns and the server's own answers to them.

use elasticserve_core::work::Arrival;

/// The most bytes of answers that a conversation keeps; of a longer one the oldest turns are forgotten.
const MAX_BYTES: usize = 16 << 20;

/// The turns before the next one of a conversation, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    past: Vec<Past>,
    bytes: usize,
}

/// A turn and the answer to it.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    /// The turn; its text is made again from it.
    pub(crate) arrival: Arrival,
    /// What the server said.
    pub(crate) answer: String,
}

impl History {
    /// Adds a turn that has been answered.
    pub(crate) fn push(&mut self, arrival: Arrival, answer: String) {
        self.bytes += answer.len();
        self.past.push(Past { arrival, answer });
        let mut forgotten = 0;
        while self.bytes > MAX_BYTES && forgotten + 1 < self.past.len() {
            self.bytes -= self.past[forgotten].answer.len();
            forgotten += 1;
        }
        self.past.drain(..forgotten);
    }

    /// The turns, oldest first.
    pub(crate) fn past(&self) -> &[Past] {
        &self.past
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_core::time::Span;

    #[test]
    fn a_conversation_that_outgrows_its_bound_forgets_its_oldest_turns() {
        let mut history = History::default();
        for index in 0..5 {
            let arrival = Arrival { index, at: Span::ZERO, tenant: 0, input: 1, output: 1, prompt: 0 };
            history.push(arrival, "x".repeat(MAX_BYTES / 3));
        }
        let kept: Vec<u32> = history.past().iter().map(|past| past.arrival.index).collect();
        assert_eq!(kept, [2, 3, 4]);
    }
}
