//! What a scenario says of the target and of the run.

use std::collections::BTreeMap;

use elasticserve_core::time::Span;
use elasticserve_load::{BaseUrl, Endpoint, HeaderName, HeaderValue, PromptKind};
use serde_json::{Map, Value};

use super::check::Wrong;
use super::raw::{RawRun, RawScenario, RawTarget};
use super::value::Time;
use crate::cmd::load::args::{self, Args};
use crate::cmd::load::given::Given;

/// Checked settings; what the file does not say is `None` or empty.
#[derive(Debug, Default)]
pub(in crate::cmd::load) struct Settings {
    name: Option<String>,
    target: Target,
    run: RawRun,
    salt: Option<bool>,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Target {
    url: Option<BaseUrl>,
    endpoint: Option<Endpoint>,
    prompt: Option<PromptKind>,
    model: Option<String>,
    streaming: Option<bool>,
    ignore_eos: Option<bool>,
    send_slo: Option<bool>,
    headers: Vec<(HeaderName, HeaderValue)>,
    extra_body: Option<Map<String, Value>>,
}

impl Settings {
    pub(super) fn checked(raw: RawScenario) -> Result<Self, Wrong> {
        if raw.run.max_client_cpu.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
            return Err("run.max_client_cpu: must be a share above 0 and up to 1".to_owned());
        }
        let mut target = Target::checked(raw.target)?;
        let kind = raw.prompts.kind.as_deref().map(args::parse_prompt).transpose();
        target.prompt = kind.map_err(|problem| format!("prompts.kind: {problem}"))?;
        Ok(Self { name: raw.name, target, run: raw.run, salt: raw.prompts.salt, metadata: raw.metadata })
    }

    /// Puts the settings in the place of flags that were not given.
    pub(in crate::cmd::load) fn fill(self, args: &mut Args, given: &Given) {
        let Self { name, target, run, salt, metadata } = self;
        given.fill("name", &mut args.name, name);
        target.fill(args, given);
        fill_run(&run, args, given);
        given.fill("no_salt", &mut args.no_salt, salt.map(|salt| !salt));
        // Notes of the command line come later, so they win.
        args.metadata = metadata.into_iter().chain(std::mem::take(&mut args.metadata)).collect();
    }
}

impl Target {
    fn checked(raw: RawTarget) -> Result<Self, Wrong> {
        let url = raw.url.map(|url| url.parse().map_err(|e| format!("target.url: {e}"))).transpose()?;
        let endpoint = raw.endpoint.as_deref().map(|name| {
            let endpoint = args::parse_endpoint(name).or_else(|_| args::parse_endpoint_type(name));
            endpoint.map_err(|problem| format!("target.endpoint: {problem}"))
        });
        let header = |(name, value): (&String, &String)| {
            args::checked_header(name, value).map_err(|problem| format!("target.headers.{name}: {problem}"))
        };
        let extra_body = raw.extra_body.map(|table| match serde_json::to_value(table) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(_) => Err("target.extra_body: must be a table".to_owned()),
            Err(error) => Err(format!("target.extra_body: {error}")),
        });
        Ok(Self {
            url,
            endpoint: endpoint.transpose()?,
            prompt: None,
            model: raw.model,
            streaming: raw.streaming,
            ignore_eos: raw.ignore_eos,
            send_slo: raw.send_slo,
            headers: raw.headers.iter().map(header).collect::<Result<_, Wrong>>()?,
            extra_body: extra_body.transpose()?,
        })
    }

    fn fill(self, args: &mut Args, given: &Given) {
        given.fill("url", &mut args.url, self.url.map(Some));
        if !given.has("endpoint_type") {
            given.fill("endpoint", &mut args.endpoint, self.endpoint.map(Some));
        }
        given.fill("prompt", &mut args.prompt, self.prompt.map(Some));
        given.fill("model", &mut args.model, self.model.map(Some));
        if !given.has("streaming") {
            given.fill("no_streaming", &mut args.no_streaming, self.streaming.map(|streams| !streams));
        }
        given.fill("ignore_eos", &mut args.ignore_eos, self.ignore_eos);
        given.fill("send_slo", &mut args.send_slo, self.send_slo);
        given.fill("extra_body", &mut args.extra_body, self.extra_body.map(Some));
        // Later headers take the place of earlier ones of their name.
        args.header = self.headers.into_iter().chain(std::mem::take(&mut args.header)).collect();
    }
}

fn fill_run(run: &RawRun, args: &mut Args, given: &Given) {
    let span = |time: Option<Time>| -> Option<Span> { time.map(|t| t.0) };
    given.fill("num_warmups", &mut args.num_warmups, run.warmups);
    given.fill("max_concurrency", &mut args.max_concurrency, run.max_concurrency.map(|n| Some(n.get())));
    given.fill("retries", &mut args.retries, run.retries);
    given.fill("ready_check_timeout_sec", &mut args.ready_check_timeout_sec, span(run.ready_check).map(Some));
    given.fill("connect_timeout", &mut args.connect_timeout, span(run.connect_timeout));
    given.fill("ttft_timeout", &mut args.ttft_timeout, span(run.ttft_timeout));
    given.fill("idle_timeout", &mut args.idle_timeout, span(run.idle_timeout));
    given.fill("timeout", &mut args.timeout, span(run.timeout));
    given.fill("drain", &mut args.drain, span(run.drain));
    given.fill("max_send_lag", &mut args.max_send_lag, span(run.max_send_lag));
    given.fill("max_client_cpu", &mut args.max_client_cpu, run.max_client_cpu);
}
