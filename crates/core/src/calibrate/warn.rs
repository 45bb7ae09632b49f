//! What to know before a calibration is used.

use super::{Calibration, Seats, Shared};

/// The published case of prompts that shared a prefix.
pub const PUBLISHED_CASE: &str = "A published cost model was measured like that: its four prompts were the beginning of one \
    text, each computed only what lay beyond the one before, and a prompt token came out at 0.02864 ms where the engine \
    takes 0.0732, 2.6 times too small.";

/// The part of the highest throughput that must be left with more requests in flight than seats.
const BEYOND: f64 = 0.9;
/// The root mean square of residuals, as a part of the values, that the model may leave.
const MISFIT: f64 = 0.05;
/// The part of requests that must show the same number of steps fixed at once.
const AGREED: f64 = 0.7;

impl Calibration {
    /// In sentences, the gravest first.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let all = [
            self.shared_prompts(),
            self.failures(),
            self.model_misfit(),
            self.few_seats(),
            self.falling_throughput(),
            self.unseen_roof(),
            self.unsure_depth(),
        ];
        all.into_iter().flatten().collect()
    }

    fn shared_prompts(&self) -> Option<String> {
        Some(match self.shared.as_ref()? {
            Shared::Counted { prompts, of, share } => format!(
                "prompts were not new to the server: by its own count it found {:.0}% of all prompt tokens in its prefix cache, in \
                 {prompts} of {of} prompts. The parameters count only what was computed; the straight line counts all and is too \
                 flat. {PUBLISHED_CASE} Measure with a salt",
                100.0 * share
            ),
            Shared::Timed { length, grid, fresh } => format!(
                "prompts were not new to the server: one of {length} tokens took {grid:.2} ms to its first token, where by a prompt \
                 that was never sent before it takes about {fresh:.2} ms. What a prompt costs comes out too small. \
                 {PUBLISHED_CASE} Measure with a salt"
            ),
        })
    }

    fn failures(&self) -> Option<String> {
        let all = self.answers + self.failed as usize;
        (self.failed > 0).then(|| format!("{} of {all} requests had no whole answer and are left out", self.failed))
    }

    fn model_misfit(&self) -> Option<String> {
        let (misfit, worst) = self.misfit().filter(|(misfit, _)| *misfit > MISFIT)?;
        let off = 100.0 * worst.residual() / worst.ms;
        Some(format!(
            "the engine does not keep to the model's formula, or was disturbed: points lie {:.0}% off it (root mean square), at \
             worst {off:+.0}% where {} prompt tokens met {} running sequences",
            100.0 * misfit,
            worst.prefill,
            worst.decoding
        ))
    }

    fn few_seats(&self) -> Option<String> {
        match self.seats {
            Some(Seats::Exactly(_)) => None,
            Some(Seats::AtLeast(count)) => Some(format!(
                "the number of seats was not reached: {count} ran at once, and more were not in flight. If the server was started \
                 with more, raise --max-concurrency or put its number into max_seqs"
            )),
            None => Some("several requests at once were not tried, so max_seqs and the knee are not known".to_owned()),
        }
    }

    fn falling_throughput(&self) -> Option<String> {
        let beyond = self.knee.as_ref()?.beyond.filter(|beyond| *beyond < BEYOND)?;
        Some(format!(
            "throughput falls with the server's own queue: with the most requests in flight it was {:.0}% of the highest. Hold the \
             queue in front of it",
            100.0 * beyond
        ))
    }

    fn unseen_roof(&self) -> Option<String> {
        let shortest = self.points.iter().filter(|p| p.kind == super::Kind::First).map(|p| p.prefill).min()?;
        let roof = self.fitted.roof.filter(|roof| roof.value < f64::from(shortest))?;
        Some(format!(
            "the roof ({:.0} tokens) lies below the shortest prompt of {shortest} tokens: only the sum of the overhead and what \
             those tokens would cost is known",
            roof.value
        ))
    }

    fn unsure_depth(&self) -> Option<String> {
        let depth = self.pipeline_depth.filter(|d| (d.votes as f64) < AGREED * d.of as f64)?;
        Some(format!(
            "requests that came into a running batch do not agree on how many steps are fixed at once: {} of {} showed {}",
            depth.votes, depth.of, depth.steps
        ))
    }
}
