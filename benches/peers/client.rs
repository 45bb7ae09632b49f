//! Clients: a closed loop for CPU, an open loop for latency, streams that stay open for memory.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::shape::{Gaps, Shape};

/// Tenants that the requests name in turns; who knows no tenants passes the header on.
const TENANTS: usize = 4;
/// What takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Streams that are opened at the same time.
const OPENING: usize = 50;

/// Where requests go, and what they carry.
#[derive(Clone)]
pub(crate) struct Target {
    addr: SocketAddr,
    headers: Vec<(String, String)>,
}

impl Target {
    pub(crate) fn new(addr: SocketAddr, headers: &[&str]) -> Self {
        let pair = |word: &&str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
        Self { addr, headers: headers.iter().map(pair).collect() }
    }

    fn request(&self, body: &Bytes, number: usize) -> Request<Full<Bytes>> {
        let mut request = Request::post("/v1/chat/completions")
            .header("host", self.addr.to_string())
            .header("content-type", "application/json")
            .header("authorization", "Bearer bench")
            .header("x-elasticserve-tenant", format!("t{}", number % TENANTS));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(body.clone())).unwrap()
    }

    async fn connect(&self) -> Result<Connection, String> {
        let stream = TcpStream::connect(self.addr).await.map_err(|e| format!("cannot connect: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, _driver: driver })
    }
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<()>,
}

impl Connection {
    /// Sends a request; the body of its answer, which must be a good one.
    async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Incoming, String> {
        // A connection that has just served is ready a moment later; one that was closed never is.
        self.sender.ready().await.map_err(|e| e.to_string())?;
        let response = self.sender.send_request(request).await.map_err(|e| e.to_string())?;
        match response.status().as_u16() {
            200 => Ok(response.into_body()),
            status => Err(format!("status {status}")),
        }
    }
}

/// What a time of sending gave.
#[derive(Default)]
struct Taken {
    done: usize,
    failed: usize,
    problem: Option<String>,
    /// Seconds from a request to the first piece of its answer, and between two pieces.
    firsts: Vec<f64>,
    gaps: Vec<f64>,
}

impl Taken {
    fn fail(&mut self, problem: String) {
        self.failed += 1;
        self.problem.get_or_insert(problem);
    }

    fn told(&mut self) -> Value {
        let ms = |values: &mut Vec<f64>, p: f64| quantile(values, p).map(|seconds| seconds * 1e3);
        json!({
            "done": self.done, "failed": self.failed, "problem": self.problem,
            "first_p50_ms": ms(&mut self.firsts, 0.5), "first_p99_ms": ms(&mut self.firsts, 0.99),
            "gap_p50_ms": ms(&mut self.gaps, 0.5), "gap_p99_ms": ms(&mut self.gaps, 0.99),
        })
    }
}

fn quantile(values: &mut [f64], p: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get((values.len().saturating_sub(1) as f64 * p).round() as usize).copied()
}

/// Sends on each connection its next request after its last answer, for so many seconds.
pub(crate) async fn closed(target: Target, shape: Shape, clients: usize, seconds: f64) -> Value {
    let (taken, body) = (Rc::new(RefCell::new(Taken::default())), shape.request());
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(seconds);
    let local = LocalSet::new();
    for client in 0..clients {
        let (target, taken, body) = (target.clone(), Rc::clone(&taken), body.clone());
        local.spawn_local(async move {
            while let Err(problem) = loop_on(&target, &body, client, until, &taken).await {
                taken.borrow_mut().fail(problem);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    local.await;
    let mut told = taken.borrow_mut().told();
    told["seconds"] = json!(started.elapsed().as_secs_f64());
    told
}

/// One connection of a closed loop, until the time is over or something fails.
async fn loop_on(
    target: &Target,
    body: &Bytes,
    client: usize,
    until: Instant,
    taken: &RefCell<Taken>,
) -> Result<(), String> {
    if Instant::now() >= until {
        return Ok(());
    }
    let mut connection = target.connect().await?;
    while Instant::now() < until {
        let answer = async {
            let mut answer = connection.ask(target.request(body, client)).await?;
            while let Some(frame) = answer.frame().await {
                frame.map_err(|e| format!("an answer broke off: {e}"))?;
            }
            Ok::<_, String>(())
        };
        timeout(PATIENCE, answer).await.map_err(|_| "an answer took too long".to_owned())??;
        taken.borrow_mut().done += 1;
    }
    Ok(())
}

/// Sends at a fixed rate to each target in turns, whatever it does.
pub(crate) async fn open(targets: [Target; 2], shape: Shape, rate: u32, seconds: f64, rounds: usize) -> Value {
    let mut taken = [Taken::default(), Taken::default()];
    let idle: [Idle; 2] = Default::default();
    // The first round opens the connections.
    for (target, idle) in targets.iter().zip(&idle) {
        at_rate(target, shape, rate, 0.3, idle, &mut Taken::default()).await;
    }
    for _ in 0..rounds {
        for ((target, idle), taken) in targets.iter().zip(&idle).zip(&mut taken) {
            at_rate(target, shape, rate, seconds, idle, taken).await;
        }
    }
    let [mut direct, mut through] = taken;
    json!({"direct": direct.told(), "through": through.told()})
}

/// Connections that wait for a request.
type Idle = Rc<RefCell<Vec<Connection>>>;

async fn at_rate(target: &Target, shape: Shape, rate: u32, seconds: f64, idle: &Idle, taken: &mut Taken) {
    let (all, body) = (Rc::new(RefCell::new(std::mem::take(taken))), shape.request());
    let count = (seconds * f64::from(rate)) as u32;
    let local = LocalSet::new();
    let sending = async {
        let start = Instant::now() + Duration::from_millis(20);
        let mut tasks = JoinSet::new();
        for i in 0..count {
            sleep_until(start + Duration::from_secs_f64(f64::from(i) / f64::from(rate))).await;
            let (target, idle, all, body) = (target.clone(), Rc::clone(idle), Rc::clone(&all), body.clone());
            tasks.spawn_local(async move {
                let one = one(&target, &body, i as usize, &idle, &all);
                match timeout(PATIENCE, one).await {
                    Ok(Ok(())) => all.borrow_mut().done += 1,
                    Ok(Err(problem)) => all.borrow_mut().fail(problem),
                    Err(_) => all.borrow_mut().fail("an answer took too long".to_owned()),
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    };
    local.run_until(sending).await;
    *taken = all.take();
}

async fn one(target: &Target, body: &Bytes, number: usize, idle: &Idle, all: &RefCell<Taken>) -> Result<(), String> {
    let pooled = idle.borrow_mut().pop();
    let mut connection = match pooled {
        Some(connection) if !connection.sender.is_closed() => connection,
        _ => target.connect().await?,
    };
    let sent = Instant::now();
    let mut answer = connection.ask(target.request(body, number)).await?;
    let (mut first, mut last) = (None, None);
    while let Some(frame) = answer.frame().await {
        frame.map_err(|e| format!("an answer broke off: {e}"))?;
        let now = Instant::now();
        first.get_or_insert(now);
        if let Some(before) = last.replace(now) {
            all.borrow_mut().gaps.push((now - before).as_secs_f64());
        }
    }
    let first = first.ok_or("an answer without a body")?;
    all.borrow_mut().firsts.push((first - sent).as_secs_f64());
    idle.borrow_mut().push(connection);
    Ok(())
}

/// A stream that has had its first event and stays open while it lives.
pub(crate) struct Held {
    _connection: Connection,
    _answer: Incoming,
}

/// Opens so many streams; what went wrong first, if anything did.
pub(crate) async fn hold(target: &Target, streams: usize) -> (Vec<Held>, Option<String>) {
    let body = Shape::Stream(64, Gaps::Held).request();
    let (mut held, mut problem) = (Vec::new(), None);
    let mut opening = JoinSet::new();
    let mut started = 0;
    while held.len() < streams && problem.is_none() {
        while opening.len() < OPENING && started < streams {
            let (target, body) = (target.clone(), body.clone());
            opening.spawn(async move { timeout(PATIENCE, hold_one(&target, &body, started)).await });
            started += 1;
        }
        match opening.join_next().await {
            Some(Ok(Ok(Ok(one)))) => held.push(one),
            Some(Ok(Ok(Err(e)))) => problem = Some(e),
            Some(Ok(Err(_))) => problem = Some("no first event in time".to_owned()),
            Some(Err(e)) => problem = Some(e.to_string()),
            None => break,
        }
    }
    (held, problem)
}

async fn hold_one(target: &Target, body: &Bytes, number: usize) -> Result<Held, String> {
    let mut connection = target.connect().await?;
    let mut answer = connection.ask(target.request(body, number)).await?;
    answer.frame().await.ok_or("a stream without events")?.map_err(|e| e.to_string())?;
    Ok(Held { _connection: connection, _answer: answer })
}
