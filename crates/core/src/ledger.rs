//! The ledger: one row for every planned arrival, and the manifest that says what was run.
//!
//! A run folder holds `manifest.json`, written before the first arrival and completed at the end, and
//! `ledger.ndjson` with one [`Row`] a line. All times are nanoseconds from the start of the run on one
//! monotonic clock; a time that was not observed is absent, never 0.

use serde::{Deserialize, Serialize};

pub use crate::health::Tolerances;
use crate::health::{Ceiling, Health};
use crate::outcome::Terminal;
use crate::slo::Slo;
use crate::time::{Span, Tick};
use crate::work::PlanHeader;

/// The name of the ledger in a run folder.
pub const LEDGER_FILE: &str = "ledger.ndjson";
/// The name of the manifest in a run folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The name of the plan in a run folder.
pub const PLAN_FILE: &str = "plan.ndjson";

/// How a planned arrival ended, with every time that was observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its place in the plan.
    pub index: u32,
    /// 0 for the first try; retries are rows of their own.
    pub attempt: u32,
    /// Whose request it was.
    pub tenant: String,
    /// How it ended.
    pub state: Terminal,
    /// The HTTP status, if a head came.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<u16>,
    /// Why the server turned it away, in the server's words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// What went wrong, in our words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,

    /// When it was to be sent.
    #[serde(rename = "planned_ns")]
    pub planned: Tick,
    /// When the generator began to send it.
    #[serde(rename = "send_started_ns", skip_serializing_if = "Option::is_none", default)]
    pub send_started: Option<Tick>,
    /// When it had a connection.
    #[serde(rename = "connected_ns", skip_serializing_if = "Option::is_none", default)]
    pub connected: Option<Tick>,
    /// When the socket had taken the last byte of the request.
    #[serde(rename = "request_written_ns", skip_serializing_if = "Option::is_none", default)]
    pub request_written: Option<Tick>,
    /// When the first byte of the answer came.
    #[serde(rename = "first_byte_ns", skip_serializing_if = "Option::is_none", default)]
    pub first_byte: Option<Tick>,
    /// When the answer's head was complete.
    #[serde(rename = "head_ns", skip_serializing_if = "Option::is_none", default)]
    pub head: Option<Tick>,
    /// When the first event came, whatever it held.
    #[serde(rename = "first_event_ns", skip_serializing_if = "Option::is_none", default)]
    pub first_event: Option<Tick>,
    /// When the first reasoning came.
    #[serde(rename = "first_reasoning_ns", skip_serializing_if = "Option::is_none", default)]
    pub first_reasoning: Option<Tick>,
    /// When the first tool call came, which is usable content too.
    #[serde(rename = "first_tool_call_ns", skip_serializing_if = "Option::is_none", default)]
    pub first_tool_call: Option<Tick>,
    /// When the first usable content came.
    #[serde(rename = "first_content_ns", skip_serializing_if = "Option::is_none", default)]
    pub first_content: Option<Tick>,
    /// When the last usable content came.
    #[serde(rename = "last_content_ns", skip_serializing_if = "Option::is_none", default)]
    pub last_content: Option<Tick>,
    /// When it ended; for a censored row, when it was last seen open.
    #[serde(rename = "end_ns", skip_serializing_if = "Option::is_none", default)]
    pub end: Option<Tick>,
    /// The gaps between consecutive content events.
    #[serde(rename = "gaps_ns", skip_serializing_if = "Vec::is_empty", default)]
    pub gaps: Vec<Span>,

    /// Comments in the stream, which servers send to keep a connection open; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub keep_alives: Option<u32>,
    /// Prompt tokens in the plan.
    pub input_planned: u32,
    /// Answer tokens in the plan.
    pub output_planned: u32,
    /// Prompt tokens as the server counted them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub input_tokens: Option<u32>,
    /// Answer tokens.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_tokens: Option<u32>,
    /// Where the count of answer tokens comes from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_tokens_from: Option<CountSource>,
    /// Prompt tokens served from the prefix cache, if the server says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cached_tokens: Option<u32>,

    /// How long it waited in the gateway, by the gateway's own clock and header.
    #[serde(rename = "queue_ns", skip_serializing_if = "Option::is_none", default)]
    pub queue: Option<Span>,
    /// The backend that served it, by the gateway's header.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backend: Option<String>,
    /// The request id that the server echoed or gave.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<String>,
    /// When a retry makes sense, by the server's word.
    #[serde(rename = "retry_after_ns", skip_serializing_if = "Option::is_none", default)]
    pub retry_after: Option<Span>,
    /// Whether a retry makes sense, by the server's word (`x-should-retry`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub should_retry: Option<bool>,
    /// Whether it went over a connection that had been used before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reused_connection: Option<bool>,
}

/// Where a count of answer tokens comes from.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountSource {
    /// The server's `usage`.
    Usage,
    /// The number of content events, which a server may have merged or split.
    Events,
}

impl Row {
    /// A row with nothing observed yet.
    #[must_use]
    pub fn new(index: u32, tenant: &str, planned: Tick, input_planned: u32, output_planned: u32) -> Self {
        Self {
            index,
            attempt: 0,
            tenant: tenant.to_owned(),
            state: Terminal::UnsentAbort,
            status: None,
            reason: None,
            error: None,
            planned,
            send_started: None,
            connected: None,
            request_written: None,
            first_byte: None,
            head: None,
            first_event: None,
            first_reasoning: None,
            first_tool_call: None,
            first_content: None,
            last_content: None,
            end: None,
            gaps: Vec::new(),
            keep_alives: None,
            input_planned,
            output_planned,
            input_tokens: None,
            output_tokens: None,
            output_tokens_from: None,
            cached_tokens: None,
            queue: None,
            backend: None,
            request_id: None,
            retry_after: None,
            should_retry: None,
            reused_connection: None,
        }
    }

    /// Time to first token *from the plan*: what a user waits who came when planned.
    #[must_use]
    pub fn ttft(&self) -> Option<Span> {
        self.first_content.map(|t| t.since(self.planned))
    }

    /// Time to first token from the send, as most tools report it.
    #[must_use]
    pub fn ttft_from_send(&self) -> Option<Span> {
        Some(self.first_content?.since(self.send_started?))
    }

    /// Time per output token after the first: (last content − first content) / (output tokens − 1).
    #[must_use]
    pub fn tpot(&self) -> Option<Span> {
        let gaps = u64::from(self.output_tokens?).checked_sub(1).filter(|n| *n > 0)?;
        let content = self.last_content?.since(self.first_content?);
        Some(Span::from_nanos(content.as_nanos() / gaps))
    }

    /// End to end *from the plan*.
    #[must_use]
    pub fn e2e(&self) -> Option<Span> {
        self.end.map(|t| t.since(self.planned))
    }

    /// How late the send started.
    #[must_use]
    pub fn send_lag(&self) -> Option<Span> {
        self.send_started.map(|t| t.since(self.planned))
    }

    /// Whether it is a valid answer within every limit.
    #[must_use]
    pub fn is_good(&self, slo: &Slo) -> bool {
        self.state == Terminal::Completed && slo.is_met(self.ttft(), self.tpot(), self.e2e(), self.output_tokens)
    }
}

/// What was run: everything that two runs must share to be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format's version, 1.
    pub format: u32,
    /// The run's name, such as `direct`.
    pub name: String,
    /// Whether the figures come from the simulator.
    pub simulated: bool,
    /// The program's version.
    pub tool_version: String,
    /// When the run began, on the wall clock, RFC 3339 in UTC; absent for simulated runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<String>,
    /// SHA-256 of the plan.
    pub plan_hash: String,
    /// The plan's header: arrivals, window, tenants and their SLOs.
    pub plan: PlanHeader,
    /// How many times faster than real time everything ran: 1 unless said.
    pub time_scale: f64,
    /// What was measured.
    pub target: Target,
    /// Requests sent before the plan, in no figure.
    pub warmups: u32,
    /// Whether each run's prompts differ from every other run's, so that the prefix cache starts cold.
    pub prompts_salted: bool,
    /// When to give up.
    pub timeouts: Timeouts,
    /// What the generator may at most show of itself, for the run to be valid.
    pub tolerances: Tolerances,
    /// The most requests in flight at once; an arrival that finds no slot is never sent. Absent: no cap.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_in_flight: Option<u32>,
    /// The most further attempts of an arrival.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub retries: u32,
    /// What the generator was shown to keep up with before the run; absent if that was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ceiling: Option<Ceiling>,
    /// Free notes: `--metadata` and what a command adds.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty", default)]
    pub metadata: std::collections::BTreeMap<String, String>,
    /// How the run ended; absent while it runs or after it was killed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<RunEnd>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its base URL, without credentials.
    pub url: String,
    /// The path that requests went to.
    pub endpoint: String,
    /// The model asked for.
    pub model: String,
    /// Whether answers were streamed.
    pub streaming: bool,
    /// What its `/version` said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// The models it lists.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub models: Vec<String>,
}

/// When the generator gives up on a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// For a connection.
    #[serde(rename = "connect_ns")]
    pub connect: Span,
    /// From the send to the first usable content.
    #[serde(rename = "ttft_ns")]
    pub ttft: Span,
    /// Between two reads of the answer.
    #[serde(rename = "idle_ns")]
    pub idle: Span,
    /// From the send to the end.
    #[serde(rename = "total_ns")]
    pub total: Span,
    /// After the window, for what is still open.
    #[serde(rename = "drain_ns")]
    pub drain: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Span::from_secs(10),
            ttft: Span::from_secs(300),
            idle: Span::from_secs(120),
            total: Span::from_secs(600),
            drain: Span::from_secs(120),
        }
    }
}

/// How a run ended.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// When the last row was written.
    #[serde(rename = "at_ns")]
    pub at: Tick,
    /// Whether it was stopped before its plan was done.
    pub interrupted: bool,
    /// The most requests in flight at once.
    pub peak_in_flight: u32,
    /// Connections opened.
    pub connections: u32,
    /// CPU time that the process used during the run, user and system; absent where it is not known.
    #[serde(rename = "cpu_ns", skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<Span>,
    /// Arrivals that came due, where that follows from the answers; absent where every arrival of the plan has
    /// its time. Of a closed load they are the first of the plan; of sessions those whose turn came within
    /// the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drawn: Option<u32>,
    /// What was seen of the generator itself; absent for simulated runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub health: Option<Health>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Tick {
        Tick::from_nanos(n * 1_000_000)
    }

    #[test]
    fn latencies_count_from_the_plan_not_from_the_send() {
        let mut row = Row::new(0, "default", ms(1000), 256, 3);
        row.send_started = Some(ms(1400));
        row.first_content = Some(ms(1500));
        row.last_content = Some(ms(1580));
        row.end = Some(ms(1590));
        row.output_tokens = Some(3);
        assert_eq!(row.ttft(), Some(Span::from_millis(500)));
        assert_eq!(row.ttft_from_send(), Some(Span::from_millis(100)));
        assert_eq!(row.tpot(), Some(Span::from_millis(40)));
        assert_eq!(row.e2e(), Some(Span::from_millis(590)));
    }

    #[test]
    fn what_was_not_observed_is_absent_from_the_line_and_stays_absent() {
        let row = Row::new(3, "default", ms(1), 256, 64);
        let line = serde_json::to_string(&row).unwrap();
        assert!(!line.contains("first_content"), "{line}");
        assert!(!line.contains(":0,\"state"), "{line}");
        let back: Row = serde_json::from_str(&line).unwrap();
        assert_eq!(back, row);
        assert_eq!((back.ttft(), back.tpot(), back.e2e()), (None, None, None));
    }

    #[test]
    fn only_a_completed_answer_can_be_good() {
        let mut row = Row::new(0, "default", ms(0), 256, 1);
        row.state = Terminal::Truncated;
        assert!(!row.is_good(&Slo::default()));
        row.state = Terminal::Completed;
        assert!(row.is_good(&Slo::default()));
    }
}
