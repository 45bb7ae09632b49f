//! One request and its answer.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use elasticserve_core::ledger::{Row, Timeouts};
use elasticserve_core::time::Tick;
use hyper::body::Incoming;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Halt, Texts};
use crate::clock::Clock;
use crate::dial::{Connection, Dialer, Stamps};
use crate::judge::{Ending, Limit, judge};
use crate::request::Prepared;

/// What every exchange of a run shares.
pub(crate) struct Exchanges {
    pub(crate) clock: Clock,
    pub(crate) dialer: Dialer,
    pub(crate) timeouts: Timeouts,
    pub(crate) streaming: bool,
    /// Whether every byte of an answer is content.
    pub(crate) plain: bool,
    /// Ends what is open.
    pub(crate) cut: CancellationToken,
}

impl Exchanges {
    /// Sends a request that was planned for `planned` and reads the answer; the row of one attempt, counted
    /// from 0, whatever happens, and the texts of the answer if the request says that they are kept.
    pub(crate) async fn run(&self, prepared: &Prepared, tenant: &str, planned: Tick, attempt: u32) -> (Row, Texts) {
        let arrival = &prepared.arrival;
        let mut row = Row::new(arrival.index, tenant, planned, arrival.input, arrival.output);
        row.attempt = attempt;
        let sent = self.clock.now();
        row.send_started = Some(sent);
        let mut attempt = Attempt {
            shared: self,
            limits: Limits::new(self.clock, sent, &self.timeouts),
            row: &mut row,
            answer: if self.plain { Answer::plain() } else { Answer::new(prepared.forced, prepared.keeps_text) },
            resent: None,
        };
        let ending = tokio::select! {
            ending = attempt.run(prepared) => ending,
            () = self.cut.cancelled() => Ending::RunEnded,
        };
        let Attempt { answer, resent, .. } = attempt;
        let (facts, texts) = answer.close(&mut row);
        let (state, why) = judge(&ending, &facts);
        row.state = state;
        row.end = row.end.or_else(|| Some(self.clock.now()));
        // The server's own words, where there are any, say more than ours.
        row.error = row.error.take().or(why).or(resent);
        if !state.was_sent() {
            (row.send_started, row.end) = (None, None);
        }
        (row, texts)
    }
}

struct Attempt<'a> {
    shared: &'a Exchanges,
    limits: Limits,
    row: &'a mut Row,
    answer: Answer,
    /// Why it was sent over a second connection, if it was.
    resent: Option<String>,
}

impl Attempt<'_> {
    async fn run(&mut self, prepared: &Prepared) -> Ending {
        if let Some(connection) = self.shared.dialer.idle().await {
            match self.exchange(connection, prepared).await {
                // Servers close connections that have been idle just when a request is under way. Not a
                // byte came back, so the request goes once more over a new connection.
                Err(Stale(why)) => self.resent = Some(format!("sent again over a new connection: {why}")),
                Ok(ending) => return ending,
            }
        }
        let deadline = self.limits.connecting(self.shared.clock, &self.shared.timeouts);
        let connection = match self.limits.within(deadline, self.shared.dialer.dial()).await {
            Err(limit) => return Ending::TimedOut(limit),
            Ok(Err(error)) if is_out_of_sockets(&error) => return Ending::NoSocket(error.to_string()),
            Ok(Err(error)) => return Ending::NoConnection(error.to_string()),
            Ok(Ok(connection)) => connection,
        };
        self.exchange(connection, prepared).await.unwrap_or_else(|Stale(why)| Ending::NoHead(why))
    }

    /// One try over one connection.
    async fn exchange(&mut self, mut connection: Connection, prepared: &Prepared) -> Result<Ending, Stale> {
        let stamps = Arc::clone(connection.stamps());
        self.row.connected = Some(self.shared.clock.now());
        self.row.reused_connection = Some(connection.reused);
        let request = prepared.request(self.row.attempt);
        let noted = NoteStamps { row: self.row, stamps: &stamps };
        let head = self.limits.within(self.limits.waiting(), connection.send(request)).await;
        drop(noted);
        let response = match head {
            Err(limit) => return Ok(Ending::TimedOut(limit)),
            Ok(Err(error)) if is_garbage(&error) => return Ok(Ending::Garbage(describe(&error))),
            Ok(Err(error)) if connection.reused && stamps.first_read().is_none() => {
                return Err(Stale(describe(&error)));
            }
            Ok(Err(error)) => return Ok(Ending::NoHead(describe(&error))),
            Ok(Ok(response)) => response,
        };
        let (head, body) = response.into_parts();
        let now = self.shared.clock.now();
        self.answer.head(now, head.status.as_u16(), &head.headers, self.shared.streaming, self.row);
        let ending = self.read_body(&mut connection, body, now).await;
        if ending == Ending::Whole {
            self.shared.dialer.keep(connection).await;
        }
        Ok(ending)
    }

    async fn read_body(&mut self, connection: &mut Connection, mut body: Incoming, mut last: Tick) -> Ending {
        let clock = self.shared.clock;
        loop {
            let has_content = self.row.first_content.is_some();
            let deadline = self.limits.reading(clock, &self.shared.timeouts, last, has_content);
            let next = match self.limits.within(deadline, connection.read(&mut body)).await {
                Err(limit) => return Ending::TimedOut(limit),
                Ok(next) => next,
            };
            last = clock.now();
            let taken = match next {
                None => {
                    self.row.end = Some(last);
                    return match self.answer.end(last, self.row) {
                        Err(Halt::Garbage(why)) => Ending::Garbage(why),
                        Ok(()) | Err(Halt::Enough) => Ending::Whole,
                    };
                }
                Some(Ok(bytes)) => self.answer.bytes(last, &bytes, self.row),
                Some(Err(error)) if is_garbage(&error) => return Ending::Garbage(describe(&error)),
                Some(Err(error)) => {
                    // An event without its blank line still counts as seen.
                    let _ = self.answer.end(last, self.row);
                    return Ending::Cut(describe(&error));
                }
            };
            match taken {
                Ok(()) => {}
                Err(Halt::Garbage(why)) => return Ending::Garbage(why),
                Err(Halt::Enough) => return Ending::Cut("the rest was not read".to_owned()),
            }
        }
    }
}

/// A connection that had been used before ended without a byte of an answer.
struct Stale(String);

/// Writes into the row what the socket has done, also when the wait is given up.
struct NoteStamps<'a> {
    row: &'a mut Row,
    stamps: &'a Stamps,
}

impl Drop for NoteStamps<'_> {
    fn drop(&mut self) {
        self.row.request_written = self.stamps.written();
        self.row.first_byte = self.stamps.first_read();
    }
}

/// The limits on an exchange's time, and one timer for all of them.
struct Limits {
    ttft: Instant,
    total: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Limits {
    fn new(clock: Clock, sent: Tick, timeouts: &Timeouts) -> Self {
        let ttft = clock.instant(sent + timeouts.ttft);
        let total = clock.instant(sent + timeouts.total);
        Self { ttft, total, timer: Box::pin(tokio::time::sleep_until(total.into())) }
    }

    /// What runs out first while there is no connection.
    fn connecting(&self, clock: Clock, timeouts: &Timeouts) -> (Instant, Limit) {
        self.waiting().min((clock.instant(clock.now() + timeouts.connect), Limit::Connect))
    }

    /// What runs out first while there is no content.
    fn waiting(&self) -> (Instant, Limit) {
        (self.ttft, Limit::Ttft).min((self.total, Limit::Total))
    }

    /// What runs out first within the body, of which something last came at `last`.
    fn reading(&self, clock: Clock, timeouts: &Timeouts, last: Tick, has_content: bool) -> (Instant, Limit) {
        let so_far = if has_content { (self.total, Limit::Total) } else { self.waiting() };
        so_far.min((clock.instant(last + timeouts.idle), Limit::Idle))
    }

    /// The result of `future`, or the limit if that runs out first.
    async fn within<F: Future>(&mut self, (deadline, limit): (Instant, Limit), future: F) -> Result<F::Output, Limit> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.has_passed(cx, deadline).map(|()| Err(limit)),
        })
        .await
    }

    /// Ready once `deadline` has passed. The deadline of a stream moves with each read; the timer is
    /// only moved when it fires too early or would fire too late.
    fn has_passed(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        if self.timer.deadline() > deadline.into() {
            self.timer.as_mut().reset(deadline.into());
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(deadline.into());
        }
        Poll::Pending
    }
}

/// Whether the client has no descriptor or port left: a finding about the client, not the server.
fn is_out_of_sockets(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) || error.kind() == io::ErrorKind::AddrNotAvailable
}

/// Whether the bytes were not HTTP. A body's framing is reported as an I/O error of a kind that no
/// socket gives.
fn is_garbage(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    let kind = cause.map(io::Error::kind);
    error.is_parse() || matches!(kind, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData))
}

/// An error with its causes.
fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_core::time::Span;
    use std::time::Duration;

    #[test]
    fn the_limit_that_runs_out_first_is_named() {
        let clock = Clock::starting_in(Duration::ZERO);
        let timeouts = Timeouts {
            connect: Span::from_secs(10),
            ttft: Span::from_secs(30),
            idle: Span::from_secs(20),
            total: Span::from_secs(60),
            drain: Span::ZERO,
        };
        let at = |s: u64| Tick::ZERO + Span::from_secs(s);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _guard = runtime.enter();
        let limits = Limits::new(clock, at(0), &timeouts);
        assert_eq!(limits.connecting(clock, &timeouts).1, Limit::Connect);
        assert_eq!(limits.waiting(), (clock.instant(at(30)), Limit::Ttft));
        assert_eq!(limits.reading(clock, &timeouts, at(5), false), (clock.instant(at(25)), Limit::Idle));
        assert_eq!(limits.reading(clock, &timeouts, at(15), false), (clock.instant(at(30)), Limit::Ttft));
        assert_eq!(limits.reading(clock, &timeouts, at(15), true), (clock.instant(at(35)), Limit::Idle));
        assert_eq!(limits.reading(clock, &timeouts, at(45), true), (clock.instant(at(60)), Limit::Total));
    }

    #[test]
    fn running_out_of_descriptors_is_not_a_refusal_by_the_server() {
        assert!(is_out_of_sockets(&io::Error::from_raw_os_error(24)));
        assert!(is_out_of_sockets(&io::ErrorKind::AddrNotAvailable.into()));
        assert!(!is_out_of_sockets(&io::ErrorKind::ConnectionRefused.into()));
    }
}
