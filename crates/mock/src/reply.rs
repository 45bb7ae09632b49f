//! HTTP answers: the body type, JSON, and every error in OpenAI's shape.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use serde::Serialize;

use crate::stream::Events;

/// The body of an answer: whole, or a stream of events.
pub(crate) enum Reply {
    Whole(Option<Bytes>),
    Events(Box<Events>),
}

/// The engine stopped before the answer's end: the connection is cut, so that nobody takes it for whole.
#[derive(Debug, thiserror::Error)]
#[error("the engine has stopped")]
pub(crate) struct Cut;

impl Body for Reply {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Events(events) => events.poll_event(cx).map(|event| event.map(|e| e.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Events(events) => events.is_done(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// An answer without a body.
pub(crate) fn empty() -> Response<Reply> {
    Response::new(Reply::Whole(None))
}

/// An answer of this content type.
pub(crate) fn whole(content_type: &'static str, bytes: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Reply::Whole(Some(bytes.into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A JSON answer.
pub(crate) fn json(value: &impl Serialize) -> Response<Reply> {
    match serde_json::to_vec(value) {
        Ok(bytes) => whole("application/json", bytes),
        Err(error) => Refusal::internal(format!("the answer cannot be written: {error}")).into_response(),
    }
}

/// A stream of events.
pub(crate) fn events(events: Events) -> Response<Reply> {
    let mut response = Response::new(Reply::Events(Box::new(events)));
    let content_type = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Why a request is not served.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
    allow: Option<&'static str>,
}

impl Refusal {
    /// A field of the request is wrong.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// The body cannot be read at all.
    pub(crate) fn body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The body is larger than the limit.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {limit} bytes"))
    }

    /// The body did not arrive in time.
    pub(crate) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
    }

    /// The model is not the one that is served.
    pub(crate) fn model(asked: &str, served: &str) -> Self {
        Self {
            param: Some("model".into()),
            code: Some("model_not_found"),
            ..Self::new(
                StatusCode::NOT_FOUND,
                format!("there is no model '{asked}' here; this server serves '{served}'"),
            )
        }
    }

    /// The prompt and the answer do not fit into the context together.
    pub(crate) fn context(param: &'static str, message: String) -> Self {
        Self { code: Some("context_length_exceeded"), ..Self::field(param, message) }
    }

    /// Nothing is served at this path.
    pub(crate) fn path(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("nothing is served at '{path}'"))
    }

    /// The path is served with another method.
    pub(crate) fn method(asked: &http::Method, allow: &'static str) -> Self {
        let message = format!("{asked} is not served here; use {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }

    /// The engine does not run any more.
    pub(crate) fn stopped() -> Self {
        Self { kind: "server_error", ..Self::new(StatusCode::SERVICE_UNAVAILABLE, Cut.to_string()) }
    }

    fn internal(message: String) -> Self {
        Self { kind: "server_error", ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, message) }
    }

    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message, kind: "invalid_request_error", param: None, code: None, allow: None }
    }

    pub(crate) fn into_response(self) -> Response<Reply> {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: Detail<'a>,
        }
        #[derive(Serialize)]
        struct Detail<'a> {
            message: &'a str,
            r#type: &'a str,
            param: Option<&'a str>,
            code: Option<&'a str>,
        }
        let Self { status, message, kind, param, code, allow } = self;
        let error = Detail { message: &message, r#type: kind, param: param.as_deref(), code };
        // Strings always serialise; without that the status still says what is wrong.
        let bytes = serde_json::to_vec(&Envelope { error }).unwrap_or_default();
        let mut response = whole("application/json", bytes);
        *response.status_mut() = status;
        if let Some(allow) = allow {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        if matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
            // The rest of the body is not read, so nothing can follow on this connection.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
