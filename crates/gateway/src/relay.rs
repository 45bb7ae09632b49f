//! The response body: a backend's bytes as they come, and the permit that lives as long as they do.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use elasticserve_core::openai::{self, DONE};
use elasticserve_core::outcome::How;
use elasticserve_core::sse::Parser;
use elasticserve_core::time::Span;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use memchr::memmem;
use tokio::time::{Instant, Sleep};

use crate::endpoint::Stay;
use crate::metrics::Meter;
use crate::permit::Permit;
use crate::reply;

/// Why a body ended before its end. The connection to the client is then aborted, never ended cleanly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("the backend's answer broke off: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the backend was silent for {0}")]
    Silent(Span),
    #[error("the answer was cut: it could not meet its latency limits any more")]
    DeadlineLost,
}

/// The most bytes of an answer that is not streamed which are kept to read its token counts.
const MAX_KEPT: usize = 1 << 20;

/// What a client gets of a stream that is silent. A comment is no event, and a reader passes over it.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// What comes of a backend that says nothing.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Silence {
    /// After so long its answer is given up.
    pub(crate) limit: Span,
    /// After so long the client of a stream of events gets a comment.
    pub(crate) keep_alive: Option<Span>,
}

/// A backend's response body on its way to the client.
pub(crate) struct Relay {
    /// Dropped as soon as nothing more of it is wanted, which closes the backend's connection.
    inner: Option<Incoming>,
    work: Option<Work>,
    reader: Reader,
    silence: Silence,
    timer: Pin<Box<Sleep>>,
    last_data: Instant,
    /// When the client got something last, or would have if it had not been in the middle of an event.
    last_sent: Instant,
    /// An error that follows the event that announces it.
    failing: Failing,
}

/// The steps of a failure within a stream of events.
enum Failing {
    No,
    /// The event is with hyper, but not yet on its way: an error now would throw it away.
    Announced(RelayError),
    /// hyper has had its turn to write the event.
    Due(RelayError),
}

/// What ends together with the body.
pub(crate) struct Work {
    pub(crate) permit: Permit,
    /// Ends with the work, however that ends.
    pub(crate) stay: Stay,
    pub(crate) meter: Meter,
    pub(crate) success: bool,
}

impl Work {
    fn end(mut self, how: How) {
        let shadow = self.permit.release(how, self.meter.used());
        self.meter.shadowed(shadow);
        self.meter.answered(how, self.success);
        drop(self.stay);
    }
}

/// How the body is read on the way.
enum Reader {
    /// Server-sent events.
    Events(Box<Parser>),
    /// One JSON document, kept to its end.
    Document(Vec<Bytes>, usize),
    /// Not read.
    Opaque,
}

impl Relay {
    /// A body that carries `work`, or none if the request needed no permit.
    pub(crate) fn new(inner: Incoming, work: Option<Work>, events: bool, silence: Silence) -> Self {
        let reader = match (&work, events) {
            (None, _) => Reader::Opaque,
            (Some(_), true) => Reader::Events(Box::default()),
            (Some(_), false) => Reader::Document(Vec::new(), 0),
        };
        // A body of known length has no room for anything else.
        let keep_alive = silence.keep_alive.filter(|_| inner.size_hint().exact().is_none());
        let (silence, now) = (Silence { keep_alive, ..silence }, Instant::now());
        let timer = Box::pin(tokio::time::sleep(keep_alive.unwrap_or(silence.limit).min(silence.limit).to_std()));
        let mut relay = Self {
            inner: Some(inner),
            work,
            reader,
            silence,
            timer,
            last_data: now,
            last_sent: now,
            failing: Failing::No,
        };
        // hyper does not poll a body that is known to be empty.
        if relay.is_over() {
            relay.end(How::Finished);
        }
        relay
    }

    /// Whether all of the backend's body has come.
    fn is_over(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn observe(&mut self, data: &Bytes) {
        let Some(work) = &mut self.work else { return };
        match &mut self.reader {
            Reader::Events(parser) => {
                let mut events = 0;
                parser.feed(data, |event| events += u32::from(read_event(event.data, &mut work.meter)));
                if events > 0 {
                    let gap = work.meter.content(events);
                    work.permit.observe(events, gap);
                }
            }
            Reader::Document(kept, size) => {
                work.meter.content(0);
                *size += data.len();
                if *size <= MAX_KEPT {
                    kept.push(data.clone());
                }
            }
            Reader::Opaque => {}
        }
    }

    fn end(&mut self, how: How) {
        let Some(mut work) = self.work.take() else { return };
        if let Reader::Document(kept, size) = &self.reader
            && work.success
            && *size <= MAX_KEPT
        {
            let usage = openai::read_piece(&kept.concat()).ok().and_then(|piece| piece.usage);
            usage.into_iter().for_each(|u| work.meter.usage(u));
        }
        work.end(how);
    }

    /// The backend has nothing for now: waits for it, for as long as it may be silent.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        // The timer is moved only when it fires, not for each piece of data.
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let end = self.last_data + self.silence.limit.to_std();
            if end <= now {
                return self.fail(RelayError::Silent(self.silence.limit));
            }
            let Some(keep_alive) = self.silence.keep_alive else {
                self.timer.as_mut().reset(end);
                continue;
            };
            let due = self.last_sent.max(self.last_data) + keep_alive.to_std();
            if due > now {
                self.timer.as_mut().reset(due.min(end));
                continue;
            }
            self.last_sent = now;
            if let Reader::Events(parser) = &self.reader
                && parser.is_between_events()
            {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE)))));
            }
        }
    }

    /// Ends the body with an error; a stream of events says so in an event first.
    fn fail(&mut self, error: RelayError) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        self.inner = None;
        let code = match error {
            RelayError::DeadlineLost => {
                self.end(How::Aborted);
                reply::DEADLINE_LOST
            }
            RelayError::Broken(_) | RelayError::Silent(_) => {
                tracing::warn!(%error, "an answer ended early");
                self.end(How::BackendFailed);
                reply::BACKEND_FAILED
            }
        };
        let Reader::Events(parser) = &self.reader else { return Poll::Ready(Some(Err(error))) };
        let event = reply::stream_error(&error.to_string(), code);
        // Half an event may be out already; a blank line ends it, so that ours is read as one.
        let event = if parser.is_between_events() { event } else { [b"\n\n", &event[..]].concat().into() };
        self.failing = Failing::Announced(error);
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

/// The name of the field with token counts, and the colon after it.
static USAGE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\"usage\":"));

/// Whether an event carries content. Only the first ones are read in full, to tell a role from content;
/// after that an event counts as content unless it ends the stream.
fn read_event(data: &[u8], meter: &mut Meter) -> bool {
    if data == DONE {
        return false;
    }
    let is_object = |at: usize| data[at + USAGE.needle().len()..].trim_ascii_start().starts_with(b"{");
    if meter.has_content() && !USAGE.find_iter(data).any(is_object) {
        return true;
    }
    let Ok(piece) = openai::read_piece(data) else { return false };
    if let Some(usage) = piece.usage {
        meter.usage(usage);
    }
    piece.is_usable() || piece.reasoning > 0
}

impl Body for Relay {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let this = &mut *self;
        match std::mem::replace(&mut this.failing, Failing::No) {
            Failing::No => {}
            Failing::Announced(error) => {
                this.failing = Failing::Due(error);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Failing::Due(error) => return Poll::Ready(Some(Err(error))),
        }
        if this.work.as_mut().is_some_and(|work| work.permit.poll_lost(cx).is_ready()) {
            return this.fail(RelayError::DeadlineLost);
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        match Pin::new(inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.last_data = Instant::now();
                if let Some(data) = frame.data_ref() {
                    this.observe(data);
                }
                // After the last byte of a body of known length hyper does not ask again.
                if this.is_over() {
                    this.end(How::Finished);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.end(How::Finished);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => this.fail(error.into()),
            Poll::Pending => this.poll_silence(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.failing, Failing::No) && self.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
