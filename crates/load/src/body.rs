//! The JSON of request bodies, in the shape of each interface.

use std::fmt::Write;
use std::sync::Arc;

use elasticserve_core::work::{Arrival, LoadModel, Plan};
use serde_json::{Map, Value, json};

use crate::config::{Endpoint, LoadConfig, PromptKind};
use crate::history::History;
use crate::prompt::{Piece, Prompts, pieces};

/// What makes the bodies of a run.
pub(crate) struct Bodies {
    plan: Arc<Plan>,
    /// The fields that are the same for all, an open object.
    common: String,
    endpoint: Endpoint,
    prompts: Prompts,
    sends_prompt: bool,
    /// Prompts go as token ids, and not as text.
    as_ids: bool,
    sends_limit: bool,
    sends_min_tokens: bool,
    /// Whether answers have the planned length, unless the server does not do as asked.
    pub(crate) forces_length: bool,
}

/// What the text of a request's prompt is made of.
enum Source<'a> {
    Made(Vec<Piece>),
    Given(&'a str),
}

impl Bodies {
    pub(crate) fn new(config: &LoadConfig, model: &str, plan: Arc<Plan>) -> Self {
        let sets = |field: &str| config.extra_body.contains_key(field);
        let limit = config.endpoint.limit_field();
        let header = plan.header();
        let history = matches!(header.model, LoadModel::Sessions { history: true, .. });
        let takes_ids = config.endpoint == Endpoint::Completions && config.prompt == PromptKind::Ids;
        Self {
            common: common_body(config, model),
            endpoint: config.endpoint,
            prompts: Prompts::new(config.salt.as_deref()),
            sends_prompt: !["prompt", "messages", "input"].into_iter().any(sets),
            // An answer that becomes part of a prompt is text, and so are those of a dataset.
            as_ids: takes_ids && !history && header.dataset.is_none(),
            sends_limit: !sets(limit),
            sends_min_tokens: config.ignore_eos && !sets("min_tokens"),
            forces_length: config.ignore_eos && !["ignore_eos", "min_tokens", limit].into_iter().any(sets),
            plan,
        }
    }

    /// Whether the number of a prompt's tokens is exactly as planned.
    pub(crate) const fn prompt_is_exact(&self) -> bool {
        self.sends_prompt && self.as_ids
    }

    /// Whether requests have no body at all.
    pub(crate) fn are_empty(&self) -> bool {
        self.endpoint == Endpoint::Plain
    }

    /// The body of an arrival's request, after what came before it in its conversation.
    pub(crate) fn planned(&self, arrival: &Arrival, history: Option<&History>) -> String {
        let source = self.source(arrival);
        self.write(arrival, &source, history)
    }

    /// The body of a request that is in no plan.
    pub(crate) fn unplanned(&self, arrival: &Arrival) -> String {
        self.write(arrival, &Source::Made(vec![Piece::of(arrival)]), None)
    }

    fn source(&self, arrival: &Arrival) -> Source<'_> {
        match self.plan.text(arrival) {
            Some(text) => Source::Given(text),
            None => Source::Made(pieces(&self.plan, arrival)),
        }
    }

    fn write(&self, arrival: &Arrival, source: &Source<'_>, history: Option<&History>) -> String {
        if self.are_empty() {
            return String::new();
        }
        // Token ids have five digits and a comma at most; a word and its space four bytes.
        let before: usize = history.map_or(0, |h| h.past().iter().map(|p| p.answer.len() + 64).sum());
        let mut body = String::with_capacity(self.common.len() + 128 + before + arrival.input as usize * 6);
        body.push_str(&self.common);
        // Writing to a string cannot fail.
        if self.sends_limit {
            let _ = write!(body, ",\"{}\":{}", self.endpoint.limit_field(), arrival.output);
        }
        if self.sends_min_tokens {
            let _ = write!(body, ",\"min_tokens\":{}", arrival.output);
        }
        if self.sends_prompt {
            self.write_prompt(&mut body, source, history);
        }
        body.push('}');
        body
    }

    fn write_prompt(&self, body: &mut String, source: &Source<'_>, history: Option<&History>) {
        match (self.endpoint, source) {
            (Endpoint::Completions, Source::Made(pieces)) if self.as_ids => {
                body.push_str(",\"prompt\":[");
                self.prompts.write_ids(body, pieces);
                body.push(']');
            }
            (Endpoint::Completions, _) => {
                body.push_str(",\"prompt\":\"");
                let mut is_first = true;
                for past in history.into_iter().flat_map(History::past) {
                    self.write_text(body, &self.source(&past.arrival), is_first);
                    body.push_str("\\n");
                    push_escaped(body, &past.answer);
                    body.push_str("\\n");
                    is_first = false;
                }
                self.write_text(body, source, is_first);
                body.push('"');
            }
            (Endpoint::Plain, _) => {}
            (Endpoint::Chat | Endpoint::Responses, _) => {
                let field = if self.endpoint == Endpoint::Chat { "messages" } else { "input" };
                let _ = write!(body, ",\"{field}\":[");
                let mut is_first = true;
                for past in history.into_iter().flat_map(History::past) {
                    body.push_str("{\"role\":\"user\",\"content\":\"");
                    self.write_text(body, &self.source(&past.arrival), is_first);
                    body.push_str("\"},{\"role\":\"assistant\",\"content\":\"");
                    push_escaped(body, &past.answer);
                    body.push_str("\"},");
                    is_first = false;
                }
                body.push_str("{\"role\":\"user\",\"content\":\"");
                self.write_text(body, source, is_first);
                body.push_str("\"}]");
            }
        }
    }

    /// A prompt as text within a JSON string. The first text of a request stands behind the run's mark if
    /// it is not salted by itself.
    fn write_text(&self, body: &mut String, source: &Source<'_>, is_first: bool) {
        match source {
            Source::Made(pieces) => self.prompts.write_text(body, pieces),
            Source::Given(text) => {
                if is_first {
                    body.push_str(self.prompts.mark());
                }
                push_escaped(body, text);
            }
        }
    }
}

/// Appends text as it stands within a JSON string.
fn push_escaped(body: &mut String, text: &str) {
    let quoted = Value::from(text).to_string();
    body.push_str(&quoted[1..quoted.len() - 1]);
}

fn common_body(config: &LoadConfig, model: &str) -> String {
    let mut fields = Map::new();
    fields.insert("model".into(), model.into());
    fields.insert("temperature".into(), 0.into());
    fields.insert("stream".into(), config.streaming.into());
    // Responses give their counts without being asked.
    if config.streaming && config.endpoint != Endpoint::Responses {
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
    use elasticserve_core::slo::Slo;
    use elasticserve_core::time::Span;
    use elasticserve_core::work::{PlanTenant, TraceFormat, TraceOptions, read_trace};

    fn config(endpoint: Endpoint) -> LoadConfig {
        LoadConfig { endpoint, salt: Some("s".into()), ..LoadConfig::new("t", "http://h:1".parse().unwrap(), "m") }
    }

    fn arrival(index: u32, prompt: u64) -> Arrival {
        Arrival { index, at: Span::ZERO, tenant: 0, input: 20, output: 8, prompt }
    }

    fn plan() -> Plan {
        let tenants = vec![PlanTenant::new("default", 1.0, Slo::default())];
        Plan::recorded("test", 1.0, Span::from_secs(1), tenants, vec![arrival(0, 77), arrival(1, 78)]).unwrap()
    }

    /// A plan read from its own text, to which `more` was added in each arrival's line.
    fn plan_with(header: &str, more: impl Fn(usize) -> String) -> Plan {
        let text = plan().to_ndjson().replace("\"model\":\"open\"", &format!("\"model\":{header}"));
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (index, line) in lines[1..].iter_mut().enumerate() {
            line.pop();
            line.push_str(&more(index));
            line.push('}');
        }
        Plan::from_ndjson(&lines.join("\n")).unwrap()
    }

    fn bodies(config: &LoadConfig, plan: &Plan) -> Vec<Value> {
        let bodies = Bodies::new(config, "m", Arc::new(plan.clone()));
        plan.arrivals().iter().map(|a| serde_json::from_str(&bodies.planned(a, None)).unwrap()).collect()
    }

    fn ids(body: &Value) -> &[Value] {
        body["prompt"].as_array().unwrap()
    }

    #[test]
    fn a_response_is_asked_for_in_its_own_fields() {
        let config = LoadConfig { ignore_eos: true, ..config(Endpoint::Responses) };
        let body = &bodies(&config, &plan())[0];
        assert_eq!(
            (&body["max_output_tokens"], &body["min_tokens"], &body["stream"]),
            (&json!(8), &json!(8), &json!(true))
        );
        assert_eq!((body.get("max_tokens"), body.get("stream_options")), (None, None));
        assert_eq!(body["input"][0]["role"], "user");
        assert_eq!(body["input"][0]["content"].as_str().unwrap().split(' ').count(), 20);
    }

    #[test]
    fn prompts_of_one_family_share_exactly_their_prefix() {
        let plan = plan_with("\"open\"", |_| r#","prefix":{"family":5,"tokens":12}"#.into());
        let made = bodies(&config(Endpoint::Completions), &plan);
        assert_eq!((ids(&made[0]).len(), ids(&made[1]).len()), (20, 20));
        assert_eq!(ids(&made[0])[..12], ids(&made[1])[..12]);
        assert_ne!(ids(&made[0])[12], ids(&made[1])[12]);
        let other = LoadConfig { salt: Some("other".into()), ..config(Endpoint::Completions) };
        assert_ne!(ids(&bodies(&other, &plan)[0])[..12], ids(&made[0])[..12], "the salt comes first");
        let chats = bodies(&config(Endpoint::Chat), &plan);
        let text = |i: usize| chats[i]["messages"][0]["content"].as_str().unwrap().to_owned();
        assert_eq!(text(0)[..12 * 4], text(1)[..12 * 4]);
    }

    #[test]
    fn equal_block_hashes_are_equal_tokens_and_the_length_is_exact() {
        let trace = "{\"timestamp\":0,\"input_length\":1100,\"output_length\":5,\"hash_ids\":[1,2,3]}\n\
                     {\"timestamp\":1,\"input_length\":1536,\"output_length\":5,\"hash_ids\":[1,2,4]}\n\
                     {\"timestamp\":2,\"input_length\":600,\"output_length\":5,\"hash_ids\":[2,5]}\n";
        let tenants = vec![PlanTenant::new("default", 1.0, Slo::default())];
        let options = TraceOptions { speed_up: 1.0, limit: None, tenants };
        let plan = read_trace(TraceFormat::Mooncake, trace, "t", &options).unwrap();
        let made = bodies(&config(Endpoint::Completions), &plan);
        assert_eq!((ids(&made[0]).len(), ids(&made[1]).len()), (1100, 1536));
        assert_eq!(ids(&made[0])[..1024], ids(&made[1])[..1024]);
        assert_ne!(ids(&made[0])[1024..1040], ids(&made[1])[1024..1040]);
        assert_ne!(ids(&made[0])[..512], ids(&made[0])[512..1024]);
        assert_eq!(
            (ids(&made[2]).len(), &ids(&made[2])[..512]),
            (600, &ids(&made[0])[512..1024]),
            "wherever it stands"
        );
    }

    #[test]
    fn a_turn_carries_the_turns_before_it_and_the_servers_own_answers() {
        let (first, second) = (arrival(0, 77), arrival(1, 78));
        let mut history = History::default();
        history.push(first, "it \"said\"\n\u{20ac}".into());
        let plan = Arc::new(plan());
        for endpoint in [Endpoint::Chat, Endpoint::Responses] {
            let bodies = Bodies::new(&config(endpoint), "m", Arc::clone(&plan));
            let messages = |body: String| {
                let body: Value = serde_json::from_str(&body).unwrap();
                body[if endpoint == Endpoint::Chat { "messages" } else { "input" }].as_array().unwrap().clone()
            };
            let (alone, turn) =
                (messages(bodies.planned(&first, None)), messages(bodies.planned(&second, Some(&history))));
            assert_eq!(turn.len(), 3);
            assert_eq!(turn[0], alone[0]);
            assert_eq!(turn[1], json!({"role": "assistant", "content": "it \"said\"\n\u{20ac}"}));
            assert_eq!(turn[2], messages(bodies.planned(&second, None))[0]);
        }
    }

    #[test]
    fn texts_that_are_not_made_here_stand_behind_the_mark_of_the_run_once() {
        let bodies = Bodies::new(&config(Endpoint::Chat), "m", Arc::new(plan()));
        let mut body = String::new();
        bodies.write_text(&mut body, &Source::Given("one"), true);
        bodies.write_text(&mut body, &Source::Given("two"), false);
        let mark = body.strip_suffix("onetwo").unwrap();
        assert!(mark.len() >= 16 && mark.ends_with(' '), "{mark:?}");
    }

    #[test]
    fn a_completion_that_carries_a_conversation_is_text() {
        let turn = |session| format!(r#","turn":{{"session":{session},"place":0,"think_ns":0}}"#);
        let plan = Arc::new(plan_with(r#"{"sessions":{"users":2,"history":true}}"#, turn));
        let bodies = Bodies::new(&config(Endpoint::Completions), "m", Arc::clone(&plan));
        assert!(!bodies.prompt_is_exact());
        let mut history = History::default();
        history.push(plan.arrivals()[0], "answer".into());
        let prompt =
            |body: String| serde_json::from_str::<Value>(&body).unwrap()["prompt"].as_str().unwrap().to_owned();
        let alone = |i: usize| prompt(bodies.planned(&plan.arrivals()[i], None));
        let turn = prompt(bodies.planned(&plan.arrivals()[1], Some(&history)));
        assert_eq!(turn, format!("{}\nanswer\n{}", alone(0), alone(1)));
    }
}
