//! Requests: what is the same for a whole run is made once, the rest shortly before it is due.

use std::sync::Arc;

use bytes::Bytes;
use elasticserve_core::slo::Slo;
use elasticserve_core::work::{Arrival, LoadModel, Plan, PlanTenant};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

use crate::body::Bodies;
use crate::config::{LoadConfig, Secret};
use crate::history::History;
use crate::validate::Validator;

/// The body of a request.
pub(crate) type RequestBody = Full<Bytes>;

/// Why a configuration makes no valid request.
#[derive(Debug, thiserror::Error)]
#[error("{0} cannot be sent in a request header")]
pub(crate) struct BadHeader(String);

/// What makes the requests of a run.
pub(crate) struct Requests {
    uri: Uri,
    headers: HeaderMap,
    bodies: Bodies,
    carries_history: bool,
    keeps_text: bool,
    /// By tenant: headers of its own.
    tenants: Vec<HeaderMap>,
    /// The part of request ids that is the run's own.
    tag: String,
}

/// A request that can be sent more than once, as far as the connection is concerned.
#[derive(Clone)]
pub(crate) struct Prepared {
    /// Whose place in the plan it has.
    pub(crate) arrival: Arrival,
    /// The length that is forced, if one is.
    pub(crate) forced: Option<u32>,
    /// Whether the text of the answer is needed.
    pub(crate) keeps_text: bool,
    head: http::request::Parts,
    body: Bytes,
}

impl Prepared {
    /// The request of an attempt, counted from 0. A further one says so as the OpenAI SDKs do, so that a
    /// server can tell demand from repetition.
    pub(crate) fn request(&self, attempt: u32) -> Request<RequestBody> {
        let mut request = Request::from_parts(self.head.clone(), Full::new(self.body.clone()));
        if attempt > 0 {
            request.headers_mut().insert(RETRY_COUNT, HeaderValue::from(attempt));
        }
        request
    }
}

impl Requests {
    /// What makes the requests of a run whose ids start with `tag`.
    ///
    /// # Errors
    /// [`BadHeader`] names a tenant, key or header that no request can hold.
    pub(crate) fn new(config: &LoadConfig, model: &str, plan: &Arc<Plan>, tag: &str) -> Result<Self, BadHeader> {
        let path = config.url.join(config.endpoint.path());
        let uri = path.parse().map_err(|_| BadHeader(format!("the path {path}")))?;
        let bodies = Bodies::new(config, model, Arc::clone(plan));
        let mut headers = common_headers(config)?;
        for (name, value) in &config.headers {
            headers.insert(name.clone(), value.clone());
        }
        let tenants = &plan.header().tenants;
        let several = tenants.len() > 1;
        let tenants = tenants.iter().map(|tenant| tenant_headers(config, tenant, several)).collect::<Result<_, _>>()?;
        // Exact counts are promised in these headers, so they go only where they hold.
        if bodies.prompt_is_exact() {
            headers.insert(INPUT_TOKENS, HeaderValue::from(0u32));
        }
        if bodies.forces_length {
            headers.insert(OUTPUT_TOKENS, HeaderValue::from(0u32));
        }
        let carries_history = matches!(plan.header().model, LoadModel::Sessions { history: true, .. });
        let keeps_text = carries_history || config.validators.iter().any(Validator::needs_text);
        Ok(Self { uri, headers, bodies, carries_history, keeps_text, tenants, tag: tag.to_owned() })
    }

    /// Whether a turn's prompt carries the turns before it.
    pub(crate) const fn carries_history(&self) -> bool {
        self.carries_history
    }

    /// The request of an arrival. Takes a few microseconds for a prompt of 256 tokens, and milliseconds for
    /// one of 200,000.
    pub(crate) fn prepare(&self, arrival: Arrival) -> Prepared {
        self.prepare_as(arrival, &format!("{}-{}", self.tag, arrival.index), self.bodies.planned(&arrival, None))
    }

    /// The request of a turn that follows on others.
    pub(crate) fn prepare_turn(&self, arrival: Arrival, history: &History) -> Prepared {
        let body = self.bodies.planned(&arrival, Some(history));
        self.prepare_as(arrival, &format!("{}-{}", self.tag, arrival.index), body)
    }

    /// A request that no figure counts.
    pub(crate) fn prepare_warmup(&self, arrival: Arrival) -> Prepared {
        self.prepare_as(arrival, &format!("{}-w{}", self.tag, arrival.index), self.bodies.unplanned(&arrival))
    }

    fn prepare_as(&self, arrival: Arrival, id: &str, body: String) -> Prepared {
        let mut head = Request::new(()).into_parts().0;
        head.method = if self.bodies.are_empty() { Method::GET } else { Method::POST };
        head.uri = self.uri.clone();
        head.headers = self.headers.clone();
        for (name, value) in self.tenants.get(usize::from(arrival.tenant)).into_iter().flatten() {
            head.headers.insert(name.clone(), value.clone());
        }
        if let Ok(id) = HeaderValue::from_str(id) {
            head.headers.insert(REQUEST_ID, id);
        }
        for (name, count) in [(INPUT_TOKENS, arrival.input), (OUTPUT_TOKENS, arrival.output)] {
            if let Some(value) = head.headers.get_mut(name) {
                *value = HeaderValue::from(count);
            }
        }
        let forced = self.bodies.forces_length.then_some(arrival.output);
        Prepared { arrival, forced, keeps_text: self.keeps_text, head, body: Bytes::from(body) }
    }
}

const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const INPUT_TOKENS: HeaderName = HeaderName::from_static("x-elasticserve-input-tokens");
const OUTPUT_TOKENS: HeaderName = HeaderName::from_static("x-elasticserve-output-tokens");

fn value(text: &str, what: &str) -> Result<HeaderValue, BadHeader> {
    HeaderValue::from_str(text).map_err(|_| BadHeader(what.to_owned()))
}

/// Host, key and user agent: what a probe sends too.
pub(crate) fn identity_headers(config: &LoadConfig) -> Result<HeaderMap, BadHeader> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, value(&config.url.authority(), "the host")?);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("elasticserve-load/", env!("CARGO_PKG_VERSION"))));
    if let Some(key) = &config.api_key {
        headers.insert(AUTHORIZATION, bearer(key, "the API key")?);
    }
    Ok(headers)
}

fn bearer(key: &Secret, what: &str) -> Result<HeaderValue, BadHeader> {
    let mut bearer = value(&format!("Bearer {}", key.expose()), what)?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

/// The headers of one tenant, which take the place of the run's. A tenant with a key of its own is known
/// by it, so its name is not sent.
fn tenant_headers(config: &LoadConfig, tenant: &PlanTenant, several: bool) -> Result<HeaderMap, BadHeader> {
    let mut own = HeaderMap::new();
    let name = &tenant.name;
    if several && tenant.key_env.is_none() {
        own.insert(HeaderName::from_static("x-elasticserve-tenant"), value(name, "the tenant's name")?);
    }
    if let Some(class) = &tenant.class {
        let what = format!("the class of tenant '{name}'");
        own.insert(HeaderName::from_static("x-elasticserve-class"), value(class, &what)?);
    }
    if config.slo_headers {
        add_slo(&mut own, &tenant.slo);
    }
    if let Some(env) = &tenant.key_env {
        let missing = || BadHeader(format!("the key of tenant '{name}', {env}, which is not in the environment,"));
        let key = config.tenant_keys.get(env).ok_or_else(missing)?;
        own.insert(AUTHORIZATION, bearer(key, &format!("the key of tenant '{name}'"))?);
    }
    for (header, text) in &tenant.headers {
        let what = format!("the header '{header}' of tenant '{name}'");
        let header = header.parse::<HeaderName>().map_err(|_| BadHeader(what.clone()))?;
        own.insert(header, value(text, &what)?);
    }
    Ok(own)
}

fn common_headers(config: &LoadConfig) -> Result<HeaderMap, BadHeader> {
    let mut headers = identity_headers(config)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let accept = if config.streaming { "text/event-stream" } else { "application/json" };
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    Ok(headers)
}

fn add_slo(headers: &mut HeaderMap, slo: &Slo) {
    let limits = [
        ("x-elasticserve-slo-ttft-ms", slo.ttft),
        ("x-elasticserve-slo-tpot-ms", slo.tpot),
        ("x-elasticserve-slo-e2e-ms", slo.e2e),
    ];
    for (name, limit) in limits {
        if let Some(value) = limit.and_then(|l| HeaderValue::from_str(&l.as_millis_f64().to_string()).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Endpoint;
    use elasticserve_core::time::Span;
    use serde_json::{Value, json};

    fn plan(tenants: &[&str]) -> Plan {
        let slo = Slo { ttft: Some(Span::from_millis(1500)), ..Slo::default() };
        let tenants = tenants.iter().map(|name| PlanTenant::new(*name, 1.0, slo)).collect();
        let arrival = Arrival { index: 0, at: Span::ZERO, tenant: 0, input: 20, output: 8, prompt: 77 };
        Plan::recorded("test", 1.0, Span::from_secs(1), tenants, vec![arrival]).unwrap()
    }

    fn config() -> LoadConfig {
        LoadConfig { ignore_eos: true, ..LoadConfig::new("t", "http://h:1".parse().unwrap(), "m") }
    }

    fn prepared(config: &LoadConfig, plan: &Plan) -> Prepared {
        Requests::new(config, "m", &Arc::new(plan.clone()), "tag").unwrap().prepare(plan.arrivals()[0])
    }

    fn body(prepared: &Prepared) -> Value {
        serde_json::from_slice(&prepared.body).unwrap()
    }

    #[test]
    fn a_completion_asks_for_exact_lengths() {
        let made = prepared(&config(), &plan(&["default"]));
        let body = body(&made);
        assert_eq!(body["prompt"].as_array().unwrap().len(), 20);
        assert_eq!(
            (&body["max_tokens"], &body["min_tokens"], &body["ignore_eos"]),
            (&json!(8), &json!(8), &json!(true))
        );
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(body["temperature"], 0);
        assert_eq!(made.forced, Some(8));
        let header = |name: &str| made.head.headers.get(name).map(|v| v.to_str().unwrap().to_owned());
        assert_eq!(header("x-elasticserve-input-tokens").as_deref(), Some("20"));
        assert_eq!(header("x-elasticserve-output-tokens").as_deref(), Some("8"));
        assert_eq!(header("x-request-id").as_deref(), Some("tag-0"));
        assert_eq!(header("host").as_deref(), Some("h:1"));
        assert_eq!((header("x-elasticserve-tenant"), header("x-elasticserve-slo-ttft-ms")), (None, None));
    }

    #[test]
    fn counts_that_are_not_exact_are_not_promised() {
        let chat = LoadConfig { endpoint: Endpoint::Chat, ignore_eos: false, ..config() };
        let made = prepared(&chat, &plan(&["default"]));
        assert_eq!(made.head.uri, "/v1/chat/completions");
        assert!(!made.head.headers.contains_key("x-elasticserve-input-tokens"));
        assert!(!made.head.headers.contains_key("x-elasticserve-output-tokens"));
        let body = body(&made);
        assert_eq!(body["messages"][0]["content"].as_str().unwrap().split(' ').count(), 20);
        assert_eq!((body.get("min_tokens"), body.get("ignore_eos"), made.forced), (None, None, None));
    }

    #[test]
    fn several_tenants_are_named_and_slos_sent_if_asked() {
        let asked = LoadConfig { slo_headers: true, ..config() };
        let made = prepared(&asked, &plan(&["a", "b"]));
        assert_eq!(made.head.headers["x-elasticserve-tenant"], "a");
        assert_eq!(made.head.headers["x-elasticserve-slo-ttft-ms"], "1500");
    }

    #[test]
    fn a_tenant_may_have_a_key_a_class_and_headers_of_its_own() {
        let mut plan = plan(&["a", "b"]);
        let mut tenants = plan.header().tenants.clone();
        tenants[0].class = Some("batch".into());
        tenants[0].key_env = Some("KEY_A".into());
        tenants[0].headers.insert("x-team".into(), "one".into());
        plan = Plan::recorded("test", 1.0, Span::from_secs(1), tenants, plan.arrivals().to_vec()).unwrap();
        let mut config = config();
        config.api_key = Some(Secret::new("common".into()));
        let error = Requests::new(&config, "m", &Arc::new(plan.clone()), "tag").err().unwrap().to_string();
        assert!(error.contains("KEY_A") && error.contains("'a'"), "{error}");
        config.tenant_keys.insert("KEY_A".into(), Secret::new("own".into()));
        let headers = prepared(&config, &plan).head.headers;
        assert_eq!(headers.get_all(AUTHORIZATION).iter().collect::<Vec<_>>(), ["Bearer own"]);
        assert_eq!(
            (&headers["x-elasticserve-class"], &headers["x-team"]),
            (&"batch".parse().unwrap(), &"one".parse().unwrap())
        );
        assert!(!headers.contains_key("x-elasticserve-tenant"), "it is known by its key");
        let other = Arrival { tenant: 1, ..plan.arrivals()[0] };
        let headers = Requests::new(&config, "m", &Arc::new(plan), "tag").unwrap().prepare(other).head.headers;
        assert_eq!(
            (&headers[AUTHORIZATION], &headers["x-elasticserve-tenant"]),
            (&"Bearer common".parse().unwrap(), &"b".parse().unwrap())
        );
    }

    #[test]
    fn extra_fields_take_the_place_of_ours_and_appear_once() {
        let mut changed = config();
        changed.extra_body = json!({"temperature": 0.7, "max_tokens": 5}).as_object().unwrap().clone();
        let made = prepared(&changed, &plan(&["default"]));
        let text = String::from_utf8(made.body.to_vec()).unwrap();
        assert_eq!(text.matches("\"max_tokens\"").count(), 1, "{text}");
        assert_eq!((&body(&made)["temperature"], &body(&made)["max_tokens"]), (&json!(0.7), &json!(5)));
        assert_eq!(made.forced, None, "the length that the plan holds is no longer forced");
    }

    #[test]
    fn a_header_of_the_user_takes_the_place_of_ours() {
        let mut changed = config();
        changed.api_key = Some(crate::Secret::new("k".into()));
        changed.headers = vec![(AUTHORIZATION, HeaderValue::from_static("Basic x"))];
        let made = prepared(&changed, &plan(&["default"]));
        assert_eq!(made.head.headers.get_all(AUTHORIZATION).iter().collect::<Vec<_>>(), ["Basic x"]);
    }
}
