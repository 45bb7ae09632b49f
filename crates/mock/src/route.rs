//! From a request's path to its answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use elasticserve_core::rng::mix;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::Serialize;

use crate::answer::Answer;
use crate::driver::{Handle, Task};
use crate::lane::{Lane, Script};
use crate::metrics;
use crate::reply::{self, Refusal, Reply};
use crate::request::{self, Api, Ask, Served};
use crate::response::ResponseAnswer;
use crate::server::Limits;
use crate::stream::{Events, Lanes, Shape, Work};
use crate::truth::{Arrived, Truth};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A longer id is replaced, not cut.
const MAX_REQUEST_ID: usize = 64;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Handle,
    pub(crate) served: Served,
    /// Tokens that the KV cache holds.
    pub(crate) kv_capacity: u64,
    pub(crate) limits: Limits,
    pub(crate) truth: Option<Truth>,
    /// Seconds since 1970 at the start.
    pub(crate) started: u64,
    pub(crate) next_id: AtomicU64,
}

/// Answers one request. Dropping the future, or the body it returned, frees what the request holds.
pub(crate) async fn answer(app: Arc<App>, request: Request<Incoming>) -> Result<Response<Reply>, Infallible> {
    let id = request_id(request.headers(), &app);
    let mut response = dispatch(&app, &id, request).await.unwrap_or_else(Refusal::into_response);
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    Ok(response)
}

async fn dispatch(app: &App, id: &str, request: Request<Incoming>) -> Result<Response<Reply>, Refusal> {
    let path = request.uri().path();
    let Some(route) = Route::find(path) else { return Err(Refusal::path(path)) };
    if request.method().as_str() != route.method() {
        return Err(Refusal::method(request.method(), route.method()));
    }
    match route {
        Route::Ask(api) => ask(app, api, id, request).await,
        Route::Tokenize => tokenize(app, request).await,
        Route::ResetPrefixCache => {
            app.engine.reset_prefix_cache();
            Ok(reply::empty())
        }
        Route::Models => Ok(models(app)),
        Route::Health => Ok(reply::empty()),
        Route::Version => Ok(version()),
        Route::Metrics => {
            let text = metrics::render(&app.engine.snapshot(), &app.served.model, app.kv_capacity);
            Ok(reply::whole(metrics::CONTENT_TYPE, text))
        }
    }
}

#[derive(Copy, Clone)]
enum Route {
    Ask(Api),
    Tokenize,
    ResetPrefixCache,
    Models,
    Health,
    Version,
    Metrics,
}

impl Route {
    fn find(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/completions" => Self::Ask(Api::Completion),
            "/v1/chat/completions" => Self::Ask(Api::Chat),
            "/v1/responses" => Self::Ask(Api::Response),
            "/tokenize" => Self::Tokenize,
            "/reset_prefix_cache" => Self::ResetPrefixCache,
            "/v1/models" => Self::Models,
            "/health" => Self::Health,
            "/version" => Self::Version,
            "/metrics" => Self::Metrics,
            _ => return None,
        })
    }

    const fn method(self) -> &'static str {
        match self {
            Self::Ask(_) | Self::Tokenize | Self::ResetPrefixCache => "POST",
            Self::Models | Self::Health | Self::Version | Self::Metrics => "GET",
        }
    }
}

async fn ask(app: &App, api: Api, id: &str, request: Request<Incoming>) -> Result<Response<Reply>, Refusal> {
    let mut record = app.truth.as_ref().map(|truth| truth.record(id, api.path(), Arrived::now(app.engine.now())));
    let body = read_body(request, &app.limits).await?;
    // The profile's way in begins at the client's send, so the reading of the body's JSON is part of it.
    let arrived = app.engine.now();
    let ask = request::read_ask(api, &body, &app.served)?;
    drop(body);
    if let Some(record) = &mut record {
        record.body_read(arrived, ask.stream);
    }
    let lane = |index| {
        let script = Script::new(id, index, &ask.task, &ask.stops);
        let task = Task { output: script.output, finish: script.finish, ..ask.task.clone() };
        Lane::new(script, app.engine.submit(arrived, task))
    };
    let lanes = Lanes::new((0..ask.choices).map(lane).collect());
    let work = Work { shape: shape(api, id, app, &ask), lanes, engine: app.engine.clone(), record };
    if ask.stream {
        return Ok(reply::events(Events::new(work)));
    }
    Ok(reply::whole("application/json", work.whole().await?))
}

fn shape(api: Api, id: &str, app: &App, ask: &Ask) -> Shape {
    let (created, model) = (now_seconds(), &app.served.model);
    match api {
        Api::Response => Shape::Response(ResponseAnswer::new(id, created, model, ask)),
        Api::Completion | Api::Chat => Shape::Choices(Answer::new(api, id, created, model, ask)),
    }
}

async fn tokenize(app: &App, request: Request<Incoming>) -> Result<Response<Reply>, Refusal> {
    #[derive(Serialize)]
    struct Tokens {
        count: usize,
        max_model_len: u32,
        tokens: Vec<u32>,
        token_strs: (),
    }
    let body = read_body(request, &app.limits).await?;
    let tokens = request::read_tokenize(&body, &app.served)?;
    let max_model_len = app.served.max_model_len;
    Ok(reply::json(&Tokens { count: tokens.len(), max_model_len, tokens, token_strs: () }))
}

fn models(app: &App) -> Response<Reply> {
    #[derive(Serialize)]
    struct List<'a> {
        object: &'static str,
        data: [Model<'a>; 1],
    }
    #[derive(Serialize)]
    struct Model<'a> {
        id: &'a str,
        object: &'static str,
        created: u64,
        owned_by: &'static str,
        root: &'a str,
        parent: (),
        max_model_len: u32,
    }
    let Served { model, max_model_len, .. } = &app.served;
    let model = Model {
        id: model,
        object: "model",
        created: app.started,
        owned_by: "elasticserve",
        root: model,
        parent: (),
        max_model_len: *max_model_len,
    };
    reply::json(&List { object: "list", data: [model] })
}

fn version() -> Response<Reply> {
    #[derive(Serialize)]
    struct Version {
        version: &'static str,
    }
    reply::json(&Version { version: concat!(env!("CARGO_PKG_VERSION"), "+elasticserve-mock") })
}

/// Reads a body up to the limits on its size and its time.
async fn read_body(request: Request<Incoming>, limits: &Limits) -> Result<Bytes, Refusal> {
    let max = limits.body_bytes;
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    if declared.is_some_and(|bytes: u64| bytes > max as u64) {
        return Err(Refusal::too_large(max));
    }
    let body = Limited::new(request.into_body(), max).collect();
    match tokio::time::timeout(limits.body_time.to_std(), body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refusal::too_large(max)),
        Ok(Err(error)) => Err(Refusal::body(format!("the body broke off: {error}"))),
        Err(_) => Err(Refusal::too_slow()),
    }
}

/// The client's id if it is one that can stand in a log, else one of our own.
fn request_id(headers: &HeaderMap, app: &App) -> String {
    let usable = |id: &&str| {
        (1..=MAX_REQUEST_ID).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    let own = || {
        // A number only: no other memory hangs on it.
        let number = app.next_id.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}", mix(app.started, number))
    };
    headers.get(REQUEST_ID).and_then(|v| v.to_str().ok()).filter(usable).map_or_else(own, str::to_owned)
}

/// Seconds since 1970.
pub(crate) fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
