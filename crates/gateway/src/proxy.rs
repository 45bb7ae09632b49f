//! The story of one request.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use elasticserve_core::openai;
use elasticserve_core::outcome::{How, RejectReason};
use elasticserve_core::sched::{Prediction, Rejection};
use elasticserve_core::time::{Span, Tick};
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio_util::sync::CancellationToken;

use crate::admit::Refused;
use crate::affinity;
use crate::ahead::UnderWay;
use crate::attempt::{Attempted, Held};
use crate::auth::{self, Caller};
use crate::body::{self, Bounds};
use crate::caught::{Caught, Panicked};
use crate::clock::Clock;
use crate::crowd::Crowd;
use crate::decisions::{Decided, Decision, DecisionLog, Known, Predicted};
use crate::form;
use crate::framing;
use crate::headers::{self, BACKEND, OUTCOME, QUEUE_MS, Wishes};
use crate::limits::{Expected, Quotas, Under};
use crate::live::{Active, Live};
use crate::memory::Memory;
use crate::metrics::{Account, Draft, Meter, Metrics};
use crate::model;
use crate::pool::Pools;
use crate::record::{Follow, Record};
use crate::relay::{Relay, RelayError, Silence, Work};
use crate::reload::Reloader;
use crate::reply::Refusal;
use crate::route::{Route, route};
use crate::task::Task;
use crate::trace::{Context as TraceContext, TRACEPARENT, Traced, Tracer};
use crate::upstream::{Outgoing, Upstream};

/// What the parts of a gateway share.
pub(crate) struct Shared {
    pub(crate) live: Arc<Live>,
    pub(crate) clock: Clock,
    pub(crate) pools: Arc<Pools>,
    pub(crate) upstream: Upstream,
    pub(crate) metrics: Arc<Metrics>,
    /// It is going, and says so to who asks whether it is ready.
    pub(crate) leaving: AtomicBool,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) draining: AtomicBool,
    /// An operator has asked to stop.
    pub(crate) stop_asked: CancellationToken,
    pub(crate) crowd: Arc<Crowd>,
    /// Requests so far, for ids of our own.
    pub(crate) requests: AtomicU64,
    /// Tells the ids of this process from those of another one.
    pub(crate) instance: u64,
    pub(crate) reloader: Reloader,
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Where each decision is written down, if it is.
    pub(crate) decisions: Option<DecisionLog>,
}

/// The address that a request comes from; one of its extensions, where it is known.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The body of an answer: a backend's, or our own.
pub(crate) enum Answer {
    Relayed(Box<Relay>),
    Own(Full<Bytes>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match self.get_mut() {
            Self::Relayed(relay) => Pin::new(&mut **relay).poll_frame(cx),
            Self::Own(full) => Pin::new(full).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Relayed(relay) => relay.is_end_stream(),
            Self::Own(full) => full.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Relayed(relay) => relay.size_hint(),
            Self::Own(full) => full.size_hint(),
        }
    }
}

impl Shared {
    /// The configuration in effect. A request goes by one all along, so it is asked for once.
    pub(crate) fn config(&self) -> Arc<Active> {
        self.live.now()
    }

    /// Answers a request, whatever it is. A panic ends that request alone.
    pub(crate) async fn handle(&self, request: Request<Incoming>) -> Response<Answer> {
        let own = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = headers::request_id(request.headers(), own, self.instance);
        match Caught::new(self.respond(request, id.clone())).await {
            Ok(response) => response,
            Err(Panicked) => {
                self.metrics.panicked();
                Refusal::Defect.response(&id, self.config().infeasible_status).map(Answer::Own)
            }
        }
    }

    async fn respond(&self, request: Request<Incoming>, id: HeaderValue) -> Response<Answer> {
        let arrived = self.clock.now();
        let config = self.config();
        let plain = framing::check(request.method(), request.headers());
        let result = match plain.map(|()| route(request.method(), request.uri().path())) {
            Err(refusal) => Err(unmetered(refusal)),
            Ok(Route::Scheduled) => self.schedule(&config, request, &id, arrived).await,
            Ok(Route::PassBy) => {
                let passed = self.pass_by(&config, request, &id).await;
                if let Ok(response) = &passed {
                    self.log_unscheduled(&config, &id, arrived, "passed_by", response.status());
                }
                passed
            }
            Ok(Route::WrongMethod { allow }) => Err(unmetered(Refusal::WrongMethod { allow })),
            Ok(Route::Unknown) => Err(unmetered(Refusal::UnknownPath)),
        };
        result.unwrap_or_else(|(refusal, meter)| {
            tracing::debug!(code = refusal.code(), "refused");
            if let Refusal::Unauthorized(why) = refusal {
                self.metrics.denied(why);
            }
            let status = refusal.status(config.infeasible_status);
            match meter {
                Some(mut meter) => {
                    meter.status(status);
                    meter.refused(refusal.code());
                }
                None => {
                    self.metrics.ended(refusal.code());
                    self.log_unscheduled(&config, &id, arrived, refusal.code(), status);
                }
            }
            refusal.response(&id, config.infeasible_status).map(Answer::Own)
        })
    }

    /// The way of a request that needs a permit. From the offer on, whatever is dropped here gives
    /// back what it holds: the place in the queue, the permit, the connection to the backend.
    async fn schedule(
        &self,
        config: &Active,
        request: Request<Incoming>,
        id: &HeaderValue,
        arrived: Tick,
    ) -> Scheduled {
        let traced = self.tracer.as_ref().and_then(|tracer| tracer.begin(request.headers(), request.uri().path()));
        let above = TraceContext::of(request.headers());
        let (mut outgoing, caller, wishes) = self.take_in(config, request, id).await.map_err(unmetered)?;
        if let Some(place) = traced.as_ref().and_then(|traced| traced.context.header()) {
            outgoing.headers.insert(TRACEPARENT, place);
        }
        let peek = peek(config, &caller, &outgoing).map_err(unmetered)?;
        caller.check_model(|| peek.model.clone()).map_err(unmetered)?;
        let place = config.models().pool(peek.model.as_deref()).map_err(unmetered)?;
        let Some(pool) = self.pools.get(place) else { return Err(unmetered(Refusal::Gone)) };
        let read = self.clock.now();
        let task = Task::of(config, &caller, &wishes, &peek);
        let affinity = affinity::key(&config.pools[place], &task, &outgoing.headers, &peek, &outgoing.body);
        let offer = task.offer(&wishes, outgoing.body.len() as u64, affinity);
        let draft = self.decisions.as_ref().map(|log| {
            let known = task.known(&wishes, &peek, &offer);
            let mut decision = draft(config, id, &task, known, arrived, pool.admission.predict(&offer));
            decision.pool = (self.pools.all().len() > 1).then(|| pool.name.clone());
            Box::new(Draft { decision, log: log.clone() })
        });
        let follow = self.follow(config, id, &task, &peek, traced, above);
        let again = wishes.retry > 0;
        let account = Account { tenant: task.tenant, arrived, slo: task.slo, again, draft, follow, charge: None };
        let mut meter = Meter::start(Arc::clone(&self.metrics), self.clock, account);
        let under = Under::of(config, &caller, &task);
        let usual = || pool.admission.lengths(task.tenant).map(|lengths| lengths.mean);
        match self.quotas.reserve(&under, || Expected::of(&task, usual), config) {
            Ok(charge) => meter.charge(charge, peek.stream),
            Err(limited) => {
                self.metrics.rate_limited(task.tenant, limited.limited());
                return Err((Refusal::RateLimited(limited), Some(meter)));
            }
        }
        let waiting = match pool.admission.offer(offer) {
            Ok(waiting) => waiting,
            Err(refused) => return Err(rejected(config, &task, refused, meter)),
        };
        let permit = match waiting.answer().await {
            Ok(permit) => permit,
            Err(refused) => return Err(rejected(config, &task, refused, meter)),
        };
        let waited = permit.waited();
        meter.granted(waited);
        self.metrics.spent_itself(self.clock.now().since(read).saturating_sub(waited));
        match self.attempt(pool, &outgoing, permit, &mut meter).await {
            Attempted::Answered(response, Held { permit, stay }) => {
                meter.status(response.status());
                let (number, status) = (stay.endpoint.number, response.status());
                if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
                    meter.excuse();
                }
                let work = Work { permit, stay, meter, success: status.is_success() };
                let mut response = answer(config, response, id, number, Some((work, waited)));
                self.quotas.levels(&under).put(response.headers_mut());
                Ok(response)
            }
            Attempted::Failed(refusal, number) => {
                let cut = matches!(refusal, Refusal::DeadlineLost);
                meter.status(refusal.status(config.infeasible_status));
                meter.failed(if cut { How::Aborted.name() } else { refusal.code() });
                let mut response = refusal.response(id, config.infeasible_status).map(Answer::Own);
                response.headers_mut().insert(BACKEND, HeaderValue::from(number));
                Ok(response)
            }
        }
    }

    /// The way of a question about the server, which needs no permit.
    async fn pass_by(&self, config: &Active, request: Request<Incoming>, id: &HeaderValue) -> Scheduled {
        let (outgoing, caller, _) = self.take_in(config, request, id).await.map_err(unmetered)?;
        if outgoing.method == Method::POST {
            let model = || openai::peek(&outgoing.body).ok().and_then(|peek| peek.model);
            caller.check_model(model).map_err(unmetered)?;
        }
        let (path, models) = (outgoing.path.path(), config.models());
        if path == MODELS && models.are_in_several_pools() {
            let response = self.list_models(config, &outgoing, id).await;
            self.metrics.ended("passed_by");
            return Ok(response.map(Answer::Own));
        }
        let asked = match path.strip_prefix(MODELS).and_then(|rest| rest.strip_prefix('/')) {
            Some(model) => Some(Some(model.to_owned())),
            None if outgoing.method == Method::POST => Some(peek(config, &caller, &outgoing).map_err(unmetered)?.model),
            None => None,
        };
        let pools = match asked {
            // It is about one model.
            Some(model) if models.matter() => {
                let place = models.pool(model.as_deref()).map_err(unmetered)?;
                self.pools.get(place).into_iter().collect::<Vec<_>>()
            }
            _ => self.pools.all().iter().collect(),
        };
        let mut refusal = Refusal::Rejected(self.nowhere_to_go(), None);
        // Questions change nothing, so another backend may be asked.
        for endpoint in pools.iter().flat_map(|pool| pool.open()).take(ASKED) {
            match self.upstream.send(&endpoint.backend, &outgoing).await {
                Ok(response) => {
                    self.metrics.ended("passed_by");
                    return Ok(answer(config, response, id, endpoint.number, None));
                }
                Err(error) => refusal = Refusal::Upstream(error),
            }
        }
        Err(unmetered(refusal))
    }

    /// What is told of a scheduled request at its end: a line in the access log, a span, both, or nothing.
    fn follow(
        &self,
        config: &Active,
        id: &HeaderValue,
        task: &Task,
        peek: &openai::Peek,
        traced: Option<Traced>,
        above: Option<TraceContext>,
    ) -> Option<Box<Follow>> {
        let access = config.access_log;
        let traced = self.tracer.clone().zip(traced).map(|(tracer, mut traced)| {
            traced.streamed(peek.stream);
            (tracer, traced)
        });
        (access || traced.is_some()).then(|| {
            let record = Record {
                id: id.to_str().unwrap_or_default().to_owned(),
                tenant: config.tenants[task.tenant.index()].name.clone(),
                model: peek.model.as_deref().map(model::shortened),
                trace: traced.as_ref().map(|(_, traced)| traced.context).or(above).map(|context| context.trace),
                ..Record::default()
            };
            Box::new(Follow { record, access, traced })
        })
    }

    /// A line about what did not come to the scheduler.
    fn log_unscheduled(
        &self,
        config: &Active,
        id: &HeaderValue,
        arrived: Tick,
        outcome: &'static str,
        status: StatusCode,
    ) {
        if config.access_log {
            let id = id.to_str().unwrap_or_default().to_owned();
            let e2e = self.clock.now().since(arrived);
            Record { id, outcome, status: Some(status.as_u16()), e2e, ..Record::default() }.log();
        }
    }

    fn nowhere_to_go(&self) -> Rejection {
        let draining = self.draining.load(Ordering::Relaxed);
        let reason = if draining { RejectReason::Draining } else { RejectReason::NoBackend };
        Rejection { id: elasticserve_core::ids::RequestId(0), reason, limit: None, retry_after: None }
    }

    /// Reads a request whole and checks what does not depend on the scheduler.
    async fn take_in(
        &self,
        config: &Active,
        request: Request<Incoming>,
        id: &HeaderValue,
    ) -> Result<(Outgoing, Caller, Wishes), Refusal> {
        let (parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.0);
        let caller = auth::identify(config, &parts.headers, peer)?;
        if let Some(encoding) = compressed(&parts.headers) {
            return Err(Refusal::Encoded(encoding));
        }
        let wishes = Wishes::read(&parts.headers, |name| config.classes.get(name).copied())?;
        let (bytes, memory, time) = (config.max_body_bytes, config.max_body_memory, config.timeouts.body);
        let mut body = body::read(body, Bounds { bytes, memory, time }, &self.memory).await?;
        if let Some(under_way) = parts.extensions.get::<UnderWay>() {
            under_way.is_whole();
        }
        // It means nothing there, and a backend that does not read it would take it for its next request.
        if parts.method != Method::POST {
            body = Bytes::new();
        }
        let path = parts.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let mut headers = headers::to_backend(&parts.headers, id);
        caller.strip(config, &mut headers);
        Ok((Outgoing { method: parts.method, path, headers, body }, caller, wishes))
    }
}

/// An answer, or the reason why there is none and the account that it belongs to.
type Scheduled = Result<Response<Answer>, (Refusal, Option<Meter>)>;

fn unmetered(refusal: Refusal) -> (Refusal, Option<Meter>) {
    (refusal, None)
}

/// A decision whose end is not known yet.
fn draft(
    config: &Active,
    id: &HeaderValue,
    task: &Task,
    known: Known,
    arrived: Tick,
    predicted: Option<Prediction>,
) -> Decision {
    let ms = |at: Tick| at.since(arrived).as_millis_f64();
    Decision {
        id: id.to_str().unwrap_or_default().to_owned(),
        tenant: config.tenants[task.tenant.index()].name.clone(),
        pool: None,
        tenant_from: task.tenant_from.to_owned(),
        arrived_ms: arrived.since(Tick::ZERO).as_millis_f64(),
        known,
        predicted: predicted.map(|p| Predicted {
            tpot_ms: p.tpot.as_millis_f64(),
            latest_start_ms: p.latest_start.filter(|at| *at < Tick::MAX).map(ms),
            start_ms: ms(p.start),
            basis: Some(p.basis),
            worth: p.quote.map(|q| q.worth),
            cost: p.quote.map(|q| q.cost),
            chance: Some(f64::from(p.chance_permille) / 1000.0),
        }),
        decided: Decided::default(),
        happened: None,
        result: String::new(),
        shadow: None,
    }
}

/// A refusal by the scheduler, with the tenant's name where it is about the tenant.
fn rejected(config: &Active, task: &Task, refused: Refused, mut meter: Meter) -> (Refusal, Option<Meter>) {
    let Refused { rejection, shadow } = refused;
    meter.shadowed(shadow);
    let name = rejection.limit.map(|_| config.tenants[task.tenant.index()].name.clone());
    (Refusal::Rejected(rejection, name), Some(meter))
}

fn answer(
    config: &Active,
    response: Response<Incoming>,
    id: &HeaderValue,
    backend: u32,
    work: Option<(Work, Span)>,
) -> Response<Answer> {
    let (mut parts, body) = response.into_parts();
    let events = headers::is_event_stream(&parts.headers);
    parts.headers = headers::to_client(parts.status, &parts.headers, id);
    parts.headers.insert(BACKEND, HeaderValue::from(backend));
    let outcome = if work.is_some() { "admitted" } else { "passed_by" };
    parts.headers.insert(OUTCOME, HeaderValue::from_static(outcome));
    let waited = work.as_ref().map(|(_, waited)| format!("{:.3}", waited.as_millis_f64()));
    if let Some(waited) = waited.and_then(|w| HeaderValue::from_str(&w).ok()) {
        parts.headers.insert(QUEUE_MS, waited);
    }
    let is_plain = events && !parts.headers.contains_key(header::CONTENT_ENCODING);
    let keep_alive = config.timeouts.keep_alive.filter(|_| is_plain);
    let relay =
        Relay::new(body, work.map(|(work, _)| work), events, Silence { limit: config.timeouts.idle, keep_alive });
    Response::from_parts(parts, Answer::Relayed(Box::new(relay)))
}

/// What a request says about its work. Audio comes as a form, of which only the model is read, where it matters.
fn peek(config: &Active, caller: &Caller, outgoing: &Outgoing) -> Result<openai::Peek, Refusal> {
    if outgoing.path.path().starts_with(AUDIO) {
        let matters = config.models().matter() || caller.is_bound_to_models();
        let model = if matters { form::model(&outgoing.headers, &outgoing.body)? } else { None };
        return Ok(openai::Peek { model, ..openai::Peek::unknown() });
    }
    openai::peek(&outgoing.body).map_err(|e| Refusal::BadBody(e.to_string()))
}

/// The encoding of a compressed body.
fn compressed(headers: &HeaderMap) -> Option<String> {
    let encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let named: Vec<&str> =
        encodings.map(|v| v.to_str().unwrap_or("?")).filter(|v| !v.eq_ignore_ascii_case("identity")).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// The list of models, and what comes before the name of one.
const MODELS: &str = "/v1/models";
/// Backends that are asked a question before it is given up.
const ASKED: usize = 2;
/// Paths whose requests are not JSON.
const AUDIO: &str = "/v1/audio/";
