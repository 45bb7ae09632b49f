//! Headers: what is read from a request, and what is left out on the way.

use elasticserve_core::ids::TenantId;
use elasticserve_core::slo::Slo;
use elasticserve_core::time::Span;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::reply::Refusal;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) const QUEUE_MS: HeaderName = HeaderName::from_static("x-elasticserve-queue-ms");
pub(crate) const BACKEND: HeaderName = HeaderName::from_static("x-elasticserve-backend");
pub(crate) const OUTCOME: HeaderName = HeaderName::from_static("x-elasticserve-outcome");
pub(crate) const REASON: HeaderName = HeaderName::from_static("x-elasticserve-reason");
pub(crate) const DROPPED_REASON: HeaderName = HeaderName::from_static("x-llm-d-request-dropped-reason");
pub(crate) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub(crate) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const QUEUE_BUDGET_MS: &str = "x-elasticserve-queue-budget-ms";
const OUTPUT_TOKENS: &str = "x-elasticserve-output-tokens";
const INPUT_TOKENS: &str = "x-elasticserve-input-tokens";
const READ_TIMEOUT: &str = "x-stainless-read-timeout";
const RETRY_COUNT: &str = "x-stainless-retry-count";
/// Names of the header that says whose a request is, the first that is there wins.
pub(crate) const TENANT: [&str; 3] =
    ["x-elasticserve-tenant", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"];
/// Names of the header that asks for a class, the first that is there wins.
const CLASS: [&str; 3] = ["x-elasticserve-class", "x-llm-d-inference-objective", "x-gateway-inference-objective"];
/// Names of the headers with a request's own limits, the first that is there wins.
const SLO_TTFT: [&str; 3] = ["x-elasticserve-slo-ttft-ms", "x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"];
const SLO_TPOT: [&str; 3] = ["x-elasticserve-slo-tpot-ms", "x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"];
const SLO_E2E: [&str; 3] = ["x-elasticserve-slo-e2e-ms", "x-llm-d-slo-e2e-ms", "x-slo-e2e-ms"];
const OWN_PREFIX: &str = "x-elasticserve-";

/// The longest request id that is taken from a client.
const MAX_REQUEST_ID: usize = 64;
/// The largest number that a header may state, for times in ms and tokens alike.
const MAX_NUMBER: f64 = 1e9;

/// Headers of one hop, which are not forwarded (RFC 9110, section 7.6.1), and those that hyper sets.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// What a request's headers say about how it wants to be scheduled.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(crate) struct Wishes {
    /// The class that it asks for.
    pub(crate) class: Option<u32>,
    /// The limits that it states itself.
    pub(crate) slo: Slo,
    /// How long its client waits for bytes.
    pub(crate) patience: Option<Span>,
    /// How long it is willing to wait in the queue; zero means not at all.
    pub(crate) budget: Option<Span>,
    /// Prompt tokens, if the client has counted them.
    pub(crate) input: Option<u32>,
    /// Answer tokens, if the client knows them.
    pub(crate) output: Option<u32>,
    /// Which further attempt it is by its client's count; 0 for the first one.
    pub(crate) retry: u32,
}

impl Wishes {
    /// Reads the headers; a bad value is refused by name, never taken as a privilege.
    pub(crate) fn read(headers: &HeaderMap, class: impl Fn(&str) -> Option<u32>) -> Result<Self, Refusal> {
        let ms = number(headers, QUEUE_BUDGET_MS, "a number of milliseconds from 0 to 1e9")?;
        // A client that gives up after so many seconds need not be kept in the queue for longer.
        let patience = number(headers, READ_TIMEOUT, "a number of seconds from 0 to 1e9")?.filter(|s| *s > 0.0);
        let budget = ms.map(Span::from_millis_f64);
        let patience = patience.map(Span::from_secs_f64);
        let tokens = |name| Ok(number(headers, name, "a number of tokens from 0 to 1e9")?.map(|n| n as u32));
        Ok(Self {
            class: text(headers, CLASS)?.map(|(name, value)| asked_class(name, value, class)).transpose()?,
            slo: Slo {
                ttft: limit(headers, SLO_TTFT)?,
                tpot: limit(headers, SLO_TPOT)?,
                e2e: limit(headers, SLO_E2E)?,
            },
            patience,
            budget: [budget, patience].into_iter().flatten().min(),
            input: tokens(INPUT_TOKENS)?,
            output: tokens(OUTPUT_TOKENS)?,
            retry: number(headers, RETRY_COUNT, "a number from 0 to 1e9")?.unwrap_or(0.0) as u32,
        })
    }
}

/// Whose a request says that it is; `None` if it does not say, or names a tenant that is not configured.
pub(crate) fn tenant(
    headers: &HeaderMap,
    known: impl Fn(&str) -> Option<TenantId>,
) -> Result<Option<TenantId>, Refusal> {
    Ok(text(headers, TENANT)?.and_then(|(_, name)| known(name)))
}

/// A class by its number or its name.
fn asked_class(name: &'static str, value: &str, class: impl Fn(&str) -> Option<u32>) -> Result<u32, Refusal> {
    let expected = "a class: a whole number from 0, or a name of queue.classes";
    value.parse().ok().or_else(|| class(value)).ok_or(Refusal::BadHeader { name, expected })
}

/// The first of the names that is there, with its value.
fn text<'a>(headers: &'a HeaderMap, names: [&'static str; 3]) -> Result<Option<(&'static str, &'a str)>, Refusal> {
    let Some(name) = names.into_iter().find(|name| headers.contains_key(*name)) else { return Ok(None) };
    let mut values = headers.get_all(name).iter();
    match (values.next().and_then(|v| v.to_str().ok()), values.next()) {
        (Some(value), None) => Ok(Some((name, value.trim()))),
        _ => Err(Refusal::BadHeader { name, expected: "visible ASCII characters" }),
    }
}

/// A limit in ms; zero would be one that nothing can meet.
fn limit(headers: &HeaderMap, names: [&'static str; 3]) -> Result<Option<Span>, Refusal> {
    let Some(name) = names.into_iter().find(|name| headers.contains_key(*name)) else { return Ok(None) };
    let expected = "a number of milliseconds above 0, up to 1e9";
    match number(headers, name, expected)?.map(Span::from_millis_f64) {
        Some(Span::ZERO) => Err(Refusal::BadHeader { name, expected }),
        span => Ok(span),
    }
}

fn number(headers: &HeaderMap, name: &'static str, expected: &'static str) -> Result<Option<f64>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
    match parsed {
        Some(n) if (0.0..=MAX_NUMBER).contains(&n) && values.next().is_none() => Ok(Some(n)),
        _ => Err(Refusal::BadHeader { name, expected }),
    }
}

/// The client's request id if it is harmless, else one made from the gateway's own number.
pub(crate) fn request_id(headers: &HeaderMap, own: u64, instance: u64) -> HeaderValue {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
    headers
        .get(REQUEST_ID)
        .filter(|v| (1..=MAX_REQUEST_ID).contains(&v.len()) && v.as_bytes().iter().all(allowed))
        .cloned()
        .or_else(|| HeaderValue::from_str(&format!("es-{instance:08x}-{own}")).ok())
        .unwrap_or(HeaderValue::from_static("es"))
}

/// A client's headers as they go to a backend.
pub(crate) fn to_backend(headers: &HeaderMap, request_id: &HeaderValue) -> HeaderMap {
    let mut out = forwardable(headers);
    // The connection to the backend has its own host and framing; the whole body is at hand already.
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        out.remove(name);
    }
    out.insert(REQUEST_ID, request_id.clone());
    out
}

/// A backend's headers as they go to the client.
pub(crate) fn to_client(status: StatusCode, headers: &HeaderMap, request_id: &HeaderValue) -> HeaderMap {
    let mut out = forwardable(headers);
    // Beside chunks it is wrong (RFC 9112, section 6.3), and where no body can be it announces one.
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if bodiless || headers.contains_key(header::TRANSFER_ENCODING) {
        out.remove(header::CONTENT_LENGTH);
    }
    out.insert(REQUEST_ID, request_id.clone());
    if is_event_stream(headers) {
        // Proxies in front must pass each event on as it comes.
        out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        out.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    out
}

/// All but the headers of one hop, those that `Connection` names, and those that are ours to set.
fn forwardable(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<&str> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(str::trim)
        .collect();
    let mut out = HeaderMap::with_capacity(headers.len() + 6);
    for (name, value) in headers {
        let stays = HOP_BY_HOP.contains(name)
            || name.as_str().starts_with(OWN_PREFIX)
            || named.iter().any(|n| n.eq_ignore_ascii_case(name.as_str()));
        if !stays {
            out.append(name.clone(), value.clone());
        }
    }
    out
}

pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|k| k.trim().eq_ignore_ascii_case("text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &HeaderMap) -> Result<Wishes, Refusal> {
        Wishes::read(headers, |name: &str| (name == "bulk").then_some(9))
    }

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, value) in pairs {
            out.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
        }
        out
    }

    #[test]
    fn headers_of_one_hop_and_those_that_connection_names_stay_behind() {
        let out = to_backend(
            &map(&[
                ("connection", "keep-alive, X-Hop"),
                ("x-hop", "1"),
                ("keep-alive", "5"),
                ("te", "trailers"),
                ("upgrade", "websocket"),
                ("host", "evil"),
                ("content-length", "3"),
                ("x-elasticserve-tenant", "gold"),
                ("authorization", "Bearer k"),
                ("traceparent", "00-a"),
            ]),
            &HeaderValue::from_static("id"),
        );
        let mut names: Vec<&str> = out.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "traceparent", "x-request-id"]);
    }

    #[test]
    fn a_request_id_is_kept_only_if_it_is_harmless() {
        let long = "a".repeat(65);
        for bad in ["", "a b", "a;b", "<script>", long.as_str()] {
            let id = request_id(&map(&[("x-request-id", bad)]), 7, 0xabc);
            assert_eq!(id, "es-00000abc-7", "{bad}");
        }
        assert_eq!(request_id(&map(&[("x-request-id", "A.b_c-1")]), 7, 0), "A.b_c-1");
    }

    #[test]
    fn a_bad_number_in_a_header_is_refused_by_name_and_never_a_privilege() {
        for bad in ["-1", "nan", "1e309", "inf", "x", "", "99999999999"] {
            let refusal = read(&map(&[(QUEUE_BUDGET_MS, bad)])).unwrap_err();
            assert!(matches!(refusal, Refusal::BadHeader { name: QUEUE_BUDGET_MS, .. }), "{bad}");
        }
        assert!(read(&map(&[(QUEUE_BUDGET_MS, "1"), (QUEUE_BUDGET_MS, "9")])).is_err());
    }

    #[test]
    fn the_clients_patience_bounds_its_wait() {
        let wishes = read(&map(&[(READ_TIMEOUT, "2.5"), (QUEUE_BUDGET_MS, "4000")])).unwrap();
        assert_eq!(wishes.budget, Some(Span::from_millis(2500)));
        let none = read(&map(&[(QUEUE_BUDGET_MS, "0")])).unwrap();
        assert_eq!(none.budget, Some(Span::ZERO));
    }

    #[test]
    fn the_number_of_a_retry_is_read_and_a_bad_one_refused_by_name() {
        assert_eq!((read(&map(&[])).unwrap().retry, read(&map(&[(RETRY_COUNT, "2")])).unwrap().retry), (0, 2));
        for bad in ["-1", "nan", "1e309", "x", ""] {
            let refusal = read(&map(&[(RETRY_COUNT, bad)])).unwrap_err();
            assert!(matches!(refusal, Refusal::BadHeader { name: RETRY_COUNT, .. }), "{bad}");
        }
    }

    #[test]
    fn limits_are_read_by_any_of_their_names_and_bad_ones_refused_by_name() {
        for name in ["x-elasticserve-slo-ttft-ms", "x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"] {
            assert_eq!(read(&map(&[(name, "600")])).unwrap().slo.ttft, Some(Span::from_millis(600)));
            for bad in ["-1", "0", "nan", "1e309", "x", "1e-9"] {
                let refusal = read(&map(&[(name, bad)])).unwrap_err();
                assert!(matches!(refusal, Refusal::BadHeader { name: n, .. } if n == name), "{name}: {bad}");
            }
        }
        let both = read(&map(&[("x-slo-e2e-ms", "1"), ("x-elasticserve-slo-e2e-ms", "2")])).unwrap();
        assert_eq!(both.slo.e2e, Some(Span::from_millis(2)), "ours goes first");
        assert_eq!(read(&map(&[("x-slo-tpot-ms", "50")])).unwrap().slo.tpot, Some(Span::from_millis(50)));
    }

    #[test]
    fn a_class_is_read_by_any_of_its_names_as_a_number_or_a_known_name_and_a_bad_one_refused_by_name() {
        for name in CLASS {
            assert_eq!(read(&map(&[(name, "2")])).unwrap().class, Some(2));
            assert_eq!(read(&map(&[(name, " bulk ")])).unwrap().class, Some(9));
            for bad in ["-1", "1.5", "4294967296", "premium", "", "nan"] {
                let refusal = read(&map(&[(name, bad)])).unwrap_err();
                assert!(matches!(refusal, Refusal::BadHeader { name: n, .. } if n == name), "{name}: {bad}");
            }
            assert!(read(&map(&[(name, "1"), (name, "1")])).is_err());
        }
        let both = read(&map(&[("x-gateway-inference-objective", "1"), ("x-elasticserve-class", "2")])).unwrap();
        assert_eq!(both.class, Some(2), "ours goes first");
        assert_eq!(read(&HeaderMap::new()).unwrap().class, None);
    }

    #[test]
    fn a_tenant_is_read_by_any_of_its_names_and_an_unknown_one_is_nobody() {
        let read = |headers: &HeaderMap| tenant(headers, |name| (name == "gold").then_some(TenantId(3)));
        for name in TENANT {
            assert_eq!(read(&map(&[(name, " gold ")])).unwrap(), Some(TenantId(3)));
            assert_eq!(read(&map(&[(name, "gilt")])).unwrap(), None);
            assert!(
                matches!(read(&map(&[(name, "gold"), (name, "gold")])), Err(Refusal::BadHeader { name: n, .. }) if n == name)
            );
        }
    }
}
