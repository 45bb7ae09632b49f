//! The decision log: one line of JSON about each scheduled request, and nothing of what it says.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
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
    /// Whether the last line in the file has no end.
    torn: bool,
}

impl DecisionLog {
    /// Opens the file, to append to it.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn open(path: &Path) -> std::io::Result<(Self, Writer)> {
        let file = File::options().append(true).create(true).open(path)?;
        let (sender, lines) = mpsc::channel(MAX_UNWRITTEN);
        Ok((Self(sender), Writer { lines, file: Arc::new(file), torn: false }))
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
            let (file, decisions, torn) = (Arc::clone(&self.file), std::mem::take(&mut batch), self.torn);
            let count = decisions.len();
            // A slow disk holds up this task, not the requests.
            let written = tokio::task::spawn_blocking(move || write(&*file, &decisions, torn)).await;
            let unwritten = match written {
                Ok(Ok(())) => {
                    self.torn = false;
                    continue;
                }
                Ok(Err(unwritten)) => unwritten,
                Err(error) => Unwritten { lines: count, torn: true, error: io::Error::other(error) },
            };
            self.torn = unwritten.torn;
            (0..unwritten.lines).for_each(|_| metrics.decision_dropped());
            tracing::warn!(error = %unwritten.error, lines = unwritten.lines, "decisions could not be written");
        }
    }
}

/// What is missing in the file, as where a disk is full.
#[derive(Debug)]
struct Unwritten {
    lines: usize,
    /// Whether the file ends within a line.
    torn: bool,
    error: io::Error,
}

/// Writes each decision on a line of its own. A line that was torn before is ended first, so that it takes no other
/// one with it.
fn write(mut file: impl Write, decisions: &[Decision], torn: bool) -> Result<(), Unwritten> {
    let mut text = if torn { vec![b'\n'] } else { Vec::new() };
    for decision in decisions {
        let written = serde_json::to_writer(&mut text, decision);
        written.map_err(|e| Unwritten { lines: decisions.len(), torn, error: e.into() })?;
        text.push(b'\n');
    }
    let mut out = 0;
    while out < text.len() {
        let error = match file.write(&text[out..]) {
            Ok(0) => io::Error::from(ErrorKind::WriteZero),
            Ok(n) => {
                out += n;
                continue;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        let lines = text[out..].iter().filter(|byte| **byte == b'\n').count().min(decisions.len());
        let torn = if out == 0 { torn } else { text[out - 1] != b'\n' };
        return Err(Unwritten { lines, torn, error });
    }
    Ok(())
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

    /// A disk with room for so many bytes.
    struct Disk {
        room: usize,
        held: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room);
            if n == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= n;
            self.held.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_the_lines_that_found_no_room_and_none_of_those_after() {
        let decisions: Vec<Decision> = (0..4).map(decision).collect();
        let length = serde_json::to_vec(&decisions[0]).unwrap().len() + 1;
        for room in 0..4 * length {
            let mut disk = Disk { room, held: Vec::new() };
            let unwritten = write(&mut disk, &decisions, false).unwrap_err();
            assert_eq!(unwritten.error.kind(), ErrorKind::StorageFull);
            assert_eq!((unwritten.lines, unwritten.torn), (4 - room / length, room % length > 0), "room for {room}");
            // While it is full nothing changes.
            let still = write(&mut disk, &decisions[..1], unwritten.torn).unwrap_err();
            assert_eq!((still.lines, still.torn), (1, unwritten.torn));
            disk.room = usize::MAX;
            write(&mut disk, &[decision(9)], still.torn).unwrap();
            let text = String::from_utf8(disk.held).unwrap();
            let read = text.lines().filter_map(|line| serde_json::from_str::<Decision>(line).ok()).map(|d| d.id);
            // A line that lacks its end alone gets it.
            let expected = (0..(room + 1) / length).map(|n| n.to_string()).chain(["9".to_owned()]);
            assert!(read.eq(expected), "room for {room}: {text}");
            assert!(!text.contains("\n\n"), "no line is empty");
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
