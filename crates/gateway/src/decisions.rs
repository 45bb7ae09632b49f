//! The decision log: one line of JSON about each scheduled request, and nothing of what it says.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use elasticserve_core::sched::{Basis, Word};
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Lines that may wait to be written; more are dropped and counted.
const MAX_UNWRITTEN: usize = 8192;
/// Lines that are written at once.
const BATCH: usize = 256;

/// What was known of a request, predicted, decided, and what then happened. Times are in ms and, unless
/// they are lengths, from the arrival of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The request's id, as in `x-request-id`.
    pub id: String,
    /// Whose it was.
    pub tenant: String,
    /// Where that comes from: `header` or `default`.
    pub tenant_from: String,
    /// The pool of its model, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// When its head had been read, since the gateway's start.
    pub arrived_ms: f64,
    /// What was known at the offer.
    pub known: Known,
    /// What was predicted then, under `admission = "predict"`.
    pub predicted: Option<Predicted>,
    /// What was decided.
    pub decided: Decided,
    /// What then happened; `None` if it got no permit.
    pub happened: Option<Happened>,
    /// `met`, `missed`, `rejected` or `cancelled`.
    pub result: String,
    /// What the shadow policy had decided by then, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Shadowed>,
}

/// What a shadow policy has decided about a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shadowed {
    /// `granted`, `refused`, or `waits`.
    pub decided: String,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// After how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<f64>,
}

/// What was known of a request at the offer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Prompt tokens.
    pub input: u32,
    /// `header`, `token_ids`, or `estimate` from the length of the text.
    pub input_from: String,
    /// Answer tokens, or the limit on them with `hint`; absent if nothing is said.
    pub output: Option<u32>,
    /// Declared by `header`, `ignore_eos` or `max_tokens`; else `hint` or `unknown`. Older logs have `assumed` for a
    /// length that was made up.
    pub output_from: String,
    /// The size of its body.
    pub bytes: u64,
    /// The class that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    /// Its limits.
    pub slo: Limits,
    /// Whether it states any of them itself: `request`, else `tenant`.
    pub slo_from: String,
    /// How long its client waits for bytes.
    pub patience_ms: Option<f64>,
    /// How long it may wait, by its own word.
    pub budget_ms: Option<f64>,
    /// Which further attempt it is, by its client's count; absent for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<u32>,
}

/// Limits in ms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Time to first token.
    pub ttft_ms: Option<f64>,
    /// Time per output token after the first.
    pub tpot_ms: Option<f64>,
    /// End to end.
    pub e2e_ms: Option<f64>,
}

/// What was predicted at the offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The live time per output token.
    pub tpot_ms: f64,
    /// The latest start that keeps the limits; absent if none does, or without limits.
    pub latest_start_ms: Option<f64>,
    /// When a seat was to be free.
    pub start_ms: f64,
    /// What the length of its answer was known by: `declared`, `hinted` or `learned`. Older logs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
    /// The chance that it was given to keep its limits, starting then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
    /// What it was worth under `admission = "price"`, in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worth: Option<f64>,
    /// What it cost the others, in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// What was decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Whether it got a permit.
    pub granted: bool,
    /// Why not: a code as in the answer's body, or `client_gone`.
    pub reason: Option<String>,
    /// When.
    pub at_ms: f64,
    /// The backend of its permit; the last one, if one failed before.
    pub backend: Option<u32>,
}

/// What happened to a request that got a permit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Happened {
    /// How it ended, as the outcome in the metrics.
    pub how: String,
    /// To the first content.
    pub ttft_ms: Option<f64>,
    /// Per output token after the first.
    pub tpot_ms: Option<f64>,
    /// To the end.
    pub e2e_ms: f64,
    /// Answer tokens that came, if any content did.
    pub output_tokens: Option<u32>,
}

impl From<Word> for Shadowed {
    fn from(word: Word) -> Self {
        let (decided, reason, after) = match word {
            Word::Waits => ("waits", None, None),
            Word::Granted(after) => ("granted", None, Some(after)),
            Word::Refused(after, reason) => ("refused", Some(reason.name().to_owned()), Some(after)),
        };
        Self { decided: decided.to_owned(), reason, after_ms: after.map(Span::as_millis_f64) }
    }
}

impl From<&Slo> for Limits {
    fn from(slo: &Slo) -> Self {
        let ms = |limit: Option<Span>| limit.map(Span::as_millis_f64);
        Self { ttft_ms: ms(slo.ttft), tpot_ms: ms(slo.tpot), e2e_ms: ms(slo.e2e) }
    }
}

/// Where decisions go. Never waits: what finds no room is dropped and counted.
#[derive(Clone)]
pub(crate) struct DecisionLog(mpsc::Sender<Decision>);

/// Writes decisions to their file.
pub(crate) struct Writer {
    lines: mpsc::Receiver<Decision>,
    file: Arc<File>,
}

impl DecisionLog {
    /// Opens the file, to append to it.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn open(path: &Path) -> std::io::Result<(Self, Writer)> {
        let file = File::options().append(true).create(true).open(path)?;
        let (sender, lines) = mpsc::channel(MAX_UNWRITTEN);
        Ok((Self(sender), Writer { lines, file: Arc::new(file) }))
    }

    pub(crate) fn add(&self, decision: Decision, metrics: &Metrics) {
        if self.0.try_send(decision).is_err() {
            metrics.decision_dropped();
        }
    }
}

impl Writer {
    /// Writes until it is told to stop, and then what is left.
    pub(crate) async fn run(mut self, metrics: Arc<Metrics>, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let lines = &mut self.lines;
            tokio::select! {
                biased;
                n = lines.recv_many(&mut batch, BATCH) => if n == 0 { return },
                () = stop.cancelled(), if !lines.is_closed() => {
                    lines.close();
                    continue;
                }
            }
            let (file, decisions) = (Arc::clone(&self.file), std::mem::take(&mut batch));
            let count = decisions.len();
            // A slow disk holds up this task, not the requests.
            match tokio::task::spawn_blocking(move || write(&file, &decisions)).await {
                Ok(Ok(())) => {}
                failed => {
                    (0..count).for_each(|_| metrics.decision_dropped());
                    tracing::warn!(?failed, "decisions could not be written");
                }
            }
        }
    }
}

fn write(mut file: &File, decisions: &[Decision]) -> std::io::Result<()> {
    let mut text = Vec::new();
    for decision in decisions {
        serde_json::to_writer(&mut text, decision)?;
        text.push(b'\n');
    }
    file.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;

    fn decision(n: usize) -> Decision {
        Decision {
            id: n.to_string(),
            tenant: "default".into(),
            tenant_from: "default".into(),
            pool: None,
            arrived_ms: 0.0,
            known: Known::default(),
            predicted: None,
            decided: Decided::default(),
            happened: None,
            result: "met".into(),
            shadow: None,
        }
    }

    #[tokio::test]
    async fn what_found_room_is_written_in_order_after_the_stop_and_the_rest_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.ndjson");
        let text = format!("[[backends]]\nurl = 'http://h:1'\n[log]\ndecisions = '{}'\n", path.display());
        let metrics = Metrics::new(&RawConfig::from_toml(&text).unwrap().check().unwrap());
        let (log, writer) = DecisionLog::open(&path).unwrap();
        for n in 0..MAX_UNWRITTEN + 7 {
            log.add(decision(n), &metrics);
        }
        let stop = CancellationToken::new();
        stop.cancel();
        writer.run(Arc::clone(&metrics), stop).await;
        log.add(decision(0), &metrics);

        let text = std::fs::read_to_string(&path).unwrap();
        let ids = text.lines().map(|line| serde_json::from_str::<Decision>(line).unwrap().id);
        assert!(ids.eq((0..MAX_UNWRITTEN).map(|n| n.to_string())));
        assert!(metrics.encode(&[]).unwrap().contains("elasticserve_dropped_decisions_total 8"));
    }
}
