//! Every answer that the gateway gives itself. Nothing else in this crate makes a 4xx or a 5xx.

use bytes::Bytes;
use elasticserve_core::outcome::RejectReason;
use elasticserve_core::rng::mix;
use elasticserve_core::sched::{Rejection, TenantLimit};
use elasticserve_core::time::Span;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::auth::Denied;
use crate::headers::{DROPPED_REASON, OUTCOME, REASON, REQUEST_ID, RETRY_AFTER_MS, SHOULD_RETRY};
use crate::limits::RateLimited;
use crate::upstream::UpstreamError;

/// Why the gateway answers a request itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "no such path; this gateway serves /v1/chat/completions, /v1/completions, /v1/models and other inference paths"
    )]
    UnknownPath,
    #[error("this path takes {allow}")]
    WrongMethod { allow: &'static str },
    #[error("exactly one Host header is needed, with the name or address of this server")]
    Host,
    #[error("transfer-encoding must be chunked and nothing else, in one header")]
    Coding,
    #[error("there is no tunnel to other hosts here")]
    Tunnel,
    #[error("header {name} must be {expected}, once")]
    BadHeader { name: &'static str, expected: &'static str },
    /// One text for all, so that nobody learns what was wrong with a key.
    #[error("a valid API key is needed: Authorization: Bearer KEY")]
    Unauthorized(Denied),
    #[error("{}", forbidden(.key, .model.as_deref()))]
    Forbidden { key: String, model: Option<String> },
    #[error("request bodies must not be compressed: content-encoding {0} is not supported")]
    Encoded(String),
    #[error("the request body is larger than {limit} bytes")]
    BodyTooLarge { limit: u64 },
    #[error("the bodies of all requests would take more than {limit} bytes of memory")]
    MemoryFull { limit: u64 },
    #[error("the request body did not arrive within {limit}")]
    BodyTooSlow { limit: Span },
    #[error("the request body broke off")]
    BodyBroken,
    #[error("{0}")]
    BadBody(String),
    #[error("the model '{0}' does not exist or is not served here; GET /v1/models lists those that are")]
    UnknownModel(String),
    #[error("the request must name a model; GET /v1/models lists those that are served")]
    NoModel,
    /// By the scheduler; the tenant's name where the reason is a bound of its own.
    #[error("{}", rejected(.0, .1.as_deref()))]
    Rejected(Rejection, Option<String>),
    #[error("{0}")]
    RateLimited(Box<RateLimited>),
    #[error("the request was cut: it could not meet its latency limits any more")]
    DeadlineLost,
    #[error("the backend failed: {0}")]
    Upstream(#[source] UpstreamError),
    /// It failed, and then there was no other one.
    #[error("the backend failed, and no other one is up: {0}")]
    Stranded(String),
    #[error("the backend has gone")]
    Gone,
    #[error("the gateway has a defect that this request met; its log says where")]
    Defect,
}

/// The most of a name that a client made up which is told back.
const MAX_ECHO: usize = 128;

fn forbidden(key: &str, model: Option<&str>) -> String {
    match model {
        Some(model) => {
            let shown: String = model.chars().take(MAX_ECHO).collect();
            format!("the key '{key}' may not use the model '{shown}'")
        }
        None => format!("the key '{key}' may use certain models only, and the request names none"),
    }
}

fn rejected(rejection: &Rejection, tenant: Option<&str>) -> String {
    let tenant = tenant.unwrap_or("this tenant");
    match rejection.limit {
        Some(TenantLimit::Queued(max)) => {
            return format!("{tenant} has as many requests waiting as it may: max_queued is {max}");
        }
        Some(TenantLimit::QueuedBytes(max)) => {
            return format!(
                "the waiting requests of {tenant} would be larger than they may: max_queued_bytes is {max}"
            );
        }
        None => {}
    }
    match rejection.reason {
        RejectReason::SloInfeasible => "the latency limits of this request cannot be met, even by an idle server",
        RejectReason::PredictedLate => "this request would be answered later than its latency limits allow",
        RejectReason::QueueFull => "the queue is full: the server has more work than it can take",
        RejectReason::TenantLimit => "as much of this tenant waits as may",
        RejectReason::QueueExpired => "no seat became free within the time that a request may wait",
        RejectReason::NoBackend => "no backend is up",
        RejectReason::Draining => "the gateway is shutting down",
    }
    .to_owned()
}

/// The longest message: what a client or a backend has sent may be in it.
const MAX_MESSAGE: usize = 1024;

fn bounded(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

/// The code of a failure of the backend's.
pub(crate) const BACKEND_FAILED: &str = "backend_failed";
/// The code of what was cut because its deadline was lost.
pub(crate) const DEADLINE_LOST: &str = "deadline_lost";
/// Retries sooner than this help nobody.
const SOONEST_RETRY: Span = Span::from_secs(1);
/// The OpenAI SDKs ignore what is much longer.
const LATEST_RETRY: Span = Span::from_secs(60);

impl Refusal {
    /// The code in the body, the reason header and the metrics.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::UnknownPath => "not_found",
            Self::WrongMethod { .. } => "method_not_allowed",
            Self::Host => "bad_host",
            Self::Coding => "bad_transfer_encoding",
            Self::Tunnel => "method_not_allowed",
            Self::BadHeader { .. } => "bad_header",
            Self::Unauthorized(_) => "invalid_api_key",
            Self::Forbidden { .. } => "model_not_allowed",
            Self::Encoded(_) => "unsupported_encoding",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::MemoryFull { .. } => "memory_full",
            Self::BodyTooSlow { .. } => "body_timeout",
            Self::BodyBroken => "body_broken",
            Self::BadBody(_) => "bad_body",
            Self::UnknownModel(_) => "model_not_found",
            Self::NoModel => "model_missing",
            Self::Rejected(rejection, _) => rejection.reason.name(),
            Self::Upstream(UpstreamError::ConnectTimeout(_) | UpstreamError::HeadTimeout(_)) => "backend_timeout",
            Self::RateLimited(_) => "rate_limit_exceeded",
            Self::DeadlineLost => DEADLINE_LOST,
            Self::Upstream(_) | Self::Stranded(_) | Self::Gone => BACKEND_FAILED,
            Self::Defect => "internal_error",
        }
    }

    /// The status; `infeasible` is that of limits that cannot be met.
    pub(crate) fn status(&self, infeasible: StatusCode) -> StatusCode {
        match self {
            Self::UnknownPath | Self::UnknownModel(_) => StatusCode::NOT_FOUND,
            Self::WrongMethod { .. } | Self::Tunnel => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Encoded(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::RateLimited(_) | Self::MemoryFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Host
            | Self::Coding
            | Self::BadHeader { .. }
            | Self::BodyBroken
            | Self::BadBody(_)
            | Self::NoModel => StatusCode::BAD_REQUEST,
            Self::Rejected(rejection, _) => match rejection.reason {
                RejectReason::SloInfeasible => infeasible,
                RejectReason::PredictedLate
                | RejectReason::QueueFull
                | RejectReason::TenantLimit
                | RejectReason::QueueExpired => StatusCode::TOO_MANY_REQUESTS,
                RejectReason::NoBackend | RejectReason::Draining => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::DeadlineLost | Self::Upstream(UpstreamError::ConnectTimeout(_) | UpstreamError::HeadTimeout(_)) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Upstream(_) | Self::Stranded(_) | Self::Gone => StatusCode::BAD_GATEWAY,
            Self::Defect => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The type in the body, in OpenAI's words.
    fn kind(status: StatusCode) -> &'static str {
        match status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The field of the body that it is about.
    fn parameter(&self) -> Option<&'static str> {
        matches!(self, Self::UnknownModel(_) | Self::NoModel).then_some("model")
    }

    /// Whether the rest of the connection cannot be trusted or is not wanted.
    fn closes(&self) -> bool {
        match self {
            Self::BodyTooLarge { .. }
            | Self::MemoryFull { .. }
            | Self::BodyTooSlow { .. }
            | Self::BodyBroken
            | Self::Host
            | Self::Coding
            | Self::Tunnel => true,
            Self::Rejected(rejection, _) => rejection.reason == RejectReason::Draining,
            _ => false,
        }
    }

    /// Whether it is for what others do, or for how much is asked, and not for the request itself.
    const fn is_for_load(&self) -> bool {
        matches!(self, Self::Rejected(..) | Self::RateLimited(_) | Self::MemoryFull { .. })
    }

    /// The value that llm-d's router uses for the same reason.
    fn dropped_reason(&self) -> Option<&'static str> {
        if let Self::RateLimited(_) | Self::MemoryFull { .. } = self {
            return Some("rejected-saturated");
        }
        let Self::Rejected(rejection, _) = self else { return None };
        Some(match rejection.reason {
            RejectReason::SloInfeasible
            | RejectReason::PredictedLate
            | RejectReason::QueueFull
            | RejectReason::TenantLimit => "rejected-saturated",
            RejectReason::QueueExpired => "rejected-ttl-expired",
            RejectReason::NoBackend => "rejected-no-endpoints",
            RejectReason::Draining => "rejected-shutting-down",
        })
    }

    /// When to try again: by the measured drain rate, spread so that the refused do not return together.
    fn retry_after(&self) -> Option<Span> {
        let rejection = match self {
            Self::Rejected(rejection, _) => rejection,
            // A limit says exactly when it lets the same request in, be that soon or late.
            Self::RateLimited(limited) => return Some(limited.wait()),
            Self::MemoryFull { .. } => return Some(SOONEST_RETRY),
            _ => return None,
        };
        if rejection.reason == RejectReason::SloInfeasible {
            return None;
        }
        let base = rejection.retry_after.unwrap_or(SOONEST_RETRY).clamp(SOONEST_RETRY, LATEST_RETRY);
        let spread = mix(rejection.id.0, 0) % (base.as_nanos() / 4);
        Some((base + Span::from_nanos(spread)).min(LATEST_RETRY))
    }

    /// Whether SDKs, which retry by status, must be told not to: what cannot be met now never can, and a
    /// client that is too slow once will be too slow again. What was cut has missed its limits already. A limit that
    /// lets nothing in for longer than they wait would be asked at once, and again in vain.
    fn is_pointless_to_retry(&self) -> bool {
        match self {
            Self::BodyTooSlow { .. } | Self::DeadlineLost => true,
            Self::Rejected(rejection, _) => rejection.reason == RejectReason::SloInfeasible,
            Self::RateLimited(limited) => limited.wait() > LATEST_RETRY,
            _ => false,
        }
    }

    /// The answer.
    pub(crate) fn response(&self, request_id: &HeaderValue, infeasible: StatusCode) -> Response<Full<Bytes>> {
        let status = self.status(infeasible);
        let body = serde_json::json!({ "error": {
            "message": bounded(self.to_string()),
            "type": Self::kind(status),
            "param": self.parameter(),
            "code": self.code(),
        }});
        let mut response = Response::new(Full::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(REQUEST_ID, request_id.clone());
        headers.insert(REASON, HeaderValue::from_static(self.code()));
        headers.insert(OUTCOME, HeaderValue::from_static(if self.is_for_load() { "rejected" } else { "failed" }));
        if let Some(reason) = self.dropped_reason() {
            headers.insert(DROPPED_REASON, HeaderValue::from_static(reason));
        }
        if let Some(after) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, after.as_secs_ceil().into());
            headers.insert(RETRY_AFTER_MS, after.as_millis_ceil().into());
        }
        if self.is_pointless_to_retry() {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if let Self::RateLimited(limited) = self {
            limited.levels().put(headers);
        }
        if let Self::Unauthorized(_) = self {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let allow = match self {
            Self::WrongMethod { allow } => Some(*allow),
            Self::Tunnel => Some("GET, HEAD, POST"),
            _ => None,
        };
        if let Some(allow) = allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if self.closes() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The event that ends a stream that failed after its head: an error, and never a made-up `[DONE]`.
pub(crate) fn stream_error(message: &str, code: &str) -> Bytes {
    let body = serde_json::json!({ "error": {
        "message": message,
        "type": "server_error",
        "param": null,
        "code": code,
    }});
    Bytes::from(format!("data: {body}\n\n"))
}

#[cfg(test)]
mod tests {
    use elasticserve_core::ids::RequestId;

    use super::*;

    const INFEASIBLE: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;

    fn refusal(reason: RejectReason, retry_after: Option<Span>) -> Refusal {
        Refusal::Rejected(Rejection { id: RequestId(3), reason, limit: None, retry_after }, None)
    }

    #[test]
    fn overload_is_429_with_a_retry_time_and_no_backend_is_503() {
        for (reason, status) in [
            (RejectReason::QueueFull, 429),
            (RejectReason::QueueExpired, 429),
            (RejectReason::TenantLimit, 429),
            (RejectReason::PredictedLate, 429),
            (RejectReason::NoBackend, 503),
            (RejectReason::Draining, 503),
        ] {
            let response = refusal(reason, None).response(&HeaderValue::from_static("id"), INFEASIBLE);
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()[REASON], reason.name());
            assert!(response.headers().contains_key(header::RETRY_AFTER));
        }
    }

    #[test]
    fn what_can_never_be_met_is_not_to_be_tried_again() {
        let response = refusal(RejectReason::SloInfeasible, Some(Span::from_secs(9)))
            .response(&HeaderValue::from_static("id"), INFEASIBLE);
        assert_eq!(response.status(), 422);
        assert_eq!(response.headers()[SHOULD_RETRY], "false");
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
        let too_many = refusal(RejectReason::SloInfeasible, Some(Span::from_secs(9)))
            .response(&HeaderValue::from_static("id"), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!((too_many.status().as_u16(), &too_many.headers()[SHOULD_RETRY] == "false"), (429, true));
        assert!(!too_many.headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn retry_times_follow_the_drain_rate_within_bounds_and_are_spread() {
        let at = |after: Option<Span>, id: u64| {
            let reason = RejectReason::QueueFull;
            let rejection = Rejection { id: RequestId(id), reason, limit: None, retry_after: after };
            Refusal::Rejected(rejection, None).retry_after().unwrap()
        };
        assert!(at(Some(Span::from_millis(3)), 1) >= Span::from_secs(1));
        assert!(at(Some(Span::from_secs(3600)), 1) <= Span::from_secs(60));
        let ten = Span::from_secs(10);
        let times: std::collections::BTreeSet<Span> = (0..100).map(|id| at(Some(ten), id)).collect();
        assert!(times.len() > 90 && times.iter().all(|t| *t >= ten && *t < Span::from_millis(12_500)), "{times:?}");
    }
}
