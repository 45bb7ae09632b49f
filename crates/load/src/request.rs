//! Requests: what is the same for a whole run is made once, the rest shortly before it is due.

use std::fmt::Write;

use bytes::Bytes;
use elasticserve_core::slo::Slo;
use elasticserve_core::work::{Arrival, Plan};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use serde_json::{Map, Value, json};

use crate::config::{Endpoint, LoadConfig};
use crate::prompt::Prompts;

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
    /// The body's fields that are the same for all, an open object.
    common: String,
    endpoint: Endpoint,
    prompts: Prompts,
    sends_prompt: bool,
    sends_max_tokens: bool,
    sends_min_tokens: bool,
    forces_length: bool,
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
    /// [`BadHeader`] names a tenant or key that no header can hold.
    pub(crate) fn new(config: &LoadConfig, model: &str, plan: &Plan, tag: &str) -> Result<Self, BadHeader> {
        let path = config.url.join(config.endpoint.path());
        let uri = path.parse().map_err(|_| BadHeader(format!("the path {path}")))?;
        let sets = |field: &str| config.extra_body.contains_key(field);
        let forces_length = config.ignore_eos && !["ignore_eos", "min_tokens", "max_tokens"].into_iter().any(sets);
        let sends_prompt = !sets("prompt") && !sets("messages");
        let prompt_is_exact = sends_prompt && config.endpoint == Endpoint::Completions;
        let mut headers = common_headers(config)?;
        for (name, value) in &config.headers {
            headers.insert(name.clone(), value.clone());
        }
        let several = plan.header().tenants.len() > 1;
        let tenants = plan.header().tenants.iter().map(|tenant| {
            let mut own = HeaderMap::new();
            if several {
                own.insert(HeaderName::from_static("x-elasticserve-tenant"), value(&tenant.name, "the tenant's name")?);
            }
            if config.slo_headers {
                add_slo(&mut own, &tenant.slo);
            }
            Ok(own)
        });
        let tenants = tenants.collect::<Result<_, _>>()?;
        // Exact counts are promised in these headers, so they go only where they hold.
        if prompt_is_exact {
            headers.insert(INPUT_TOKENS, HeaderValue::from(0u32));
        }
        if forces_length {
            headers.insert(OUTPUT_TOKENS, HeaderValue::from(0u32));
        }
        Ok(Self {
            uri,
            headers,
            common: common_body(config, model),
            endpoint: config.endpoint,
            prompts: Prompts::new(config.salt.as_deref()),
            sends_prompt,
            sends_max_tokens: !sets("max_tokens"),
            sends_min_tokens: config.ignore_eos && !sets("min_tokens"),
            forces_length,
            tenants,
            tag: tag.to_owned(),
        })
    }

    /// The request of an arrival. Takes a few microseconds for a prompt of 256 tokens.
    pub(crate) fn prepare(&self, arrival: Arrival) -> Prepared {
        self.prepare_as(arrival, &format!("{}-{}", self.tag, arrival.index))
    }

    /// A request that no figure counts.
    pub(crate) fn prepare_warmup(&self, arrival: Arrival) -> Prepared {
        self.prepare_as(arrival, &format!("{}-w{}", self.tag, arrival.index))
    }

    fn prepare_as(&self, arrival: Arrival, id: &str) -> Prepared {
        let mut head = Request::new(()).into_parts().0;
        head.method = if self.endpoint == Endpoint::Plain { Method::GET } else { Method::POST };
        head.uri = self.uri.clone();
        head.headers = self.headers.clone();
        if let Some(own) = self.tenants.get(usize::from(arrival.tenant)) {
            head.headers.extend(own.clone());
        }
        if let Ok(id) = HeaderValue::from_str(id) {
            head.headers.insert(REQUEST_ID, id);
        }
        for (name, count) in [(INPUT_TOKENS, arrival.input), (OUTPUT_TOKENS, arrival.output)] {
            if let Some(value) = head.headers.get_mut(name) {
                *value = HeaderValue::from(count);
            }
        }
        let forced = self.forces_length.then_some(arrival.output);
        let body = if self.endpoint == Endpoint::Plain { String::new() } else { self.body(&arrival) };
        Prepared { arrival, forced, head, body: Bytes::from(body) }
    }

    fn body(&self, arrival: &Arrival) -> String {
        // Token ids have five digits and a comma at most; a word and its space four bytes.
        let mut body = String::with_capacity(self.common.len() + 128 + arrival.input as usize * 6);
        body.push_str(&self.common);
        // Writing to a string cannot fail.
        if self.sends_max_tokens {
            let _ = write!(body, ",\"max_tokens\":{}", arrival.output);
        }
        if self.sends_min_tokens {
            let _ = write!(body, ",\"min_tokens\":{}", arrival.output);
        }
        match self.endpoint {
            _ if !self.sends_prompt => {}
            Endpoint::Plain => {}
            Endpoint::Completions => {
                body.push_str(",\"prompt\":[");
                self.prompts.write_ids(&mut body, arrival.prompt, arrival.input);
                body.push(']');
            }
            Endpoint::Chat => {
                body.push_str(",\"messages\":[{\"role\":\"user\",\"content\":\"");
                self.prompts.write_text(&mut body, arrival.prompt, arrival.input);
                body.push_str("\"}]");
            }
        }
        body.push('}');
        body
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
        let mut bearer = value(&format!("Bearer {}", key.expose()), "the API key")?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    Ok(headers)
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

fn common_body(config: &LoadConfig, model: &str) -> String {
    let mut fields = Map::new();
    fields.insert("model".into(), model.into());
    fields.insert("temperature".into(), 0.into());
    fields.insert("stream".into(), config.streaming.into());
    if config.streaming {
        fields.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if config.ignore_eos {
        fields.insert("ignore_eos".into(), true.into());
    }
    fields.extend(config.extra_body.clone());
    let mut text = Value::Object(fields).to_string();
    text.pop(); // The object stays open.
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticserve_core::time::Span;
    use elasticserve_core::work::PlanTenant;

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
        Requests::new(config, "m", plan, "tag").unwrap().prepare(plan.arrivals()[0])
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
