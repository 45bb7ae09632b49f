//! A client that leaves in any phase of its request takes everything with it at that moment (R4).
//!
//! The clock is paused and moves only when nothing else is to be done, so what happens without its moving follows from
//! the client's leaving alone, and at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use elasticserve_core::outcome::How;
use elasticserve_core::rng::{Random, Stream};
use elasticserve_gateway::{Dial, DialFuture};
use http::uri::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;

use crate::support::backend::{Backend, Responding};
use crate::support::gateway::Piped;
use crate::support::soon;

const TRIALS: u64 = 500;
/// The turns that other tasks have before something counts as not happening.
const TURNS: usize = 10_000;
const BODY: &str = r#"{"model":"m","prompt":[1,2,3],"max_tokens":8,"stream":true}"#;
const TOKEN: &str = r#"{"choices":[{"text":"a"}]}"#;

/// A gateway with one permit.
struct World {
    gateway: Piped,
    backend: Backend,
    dials: Arc<Dials>,
    random: Random,
}

/// A client's connection, and the task that serves it.
struct Client {
    pipe: DuplexStream,
    serving: JoinSet<()>,
}

#[tokio::test(start_paused = true)]
async fn who_leaves_within_the_head_of_a_request_leaves_nothing() {
    let mut world = World::new();
    for _ in 0..TRIALS {
        let (head, _) = request();
        let mut client = world.connect();
        client.write(&head[..world.between(0, head.len() - 1)]).await;
        world.turns(4).await;
        world.leaves(client).await;
    }
    assert_eq!(world.gateway.service.totals().offers, 0);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_within_the_body_of_a_request_leaves_nothing() {
    let mut world = World::new();
    for _ in 0..TRIALS {
        let (head, body) = request();
        let mut client = world.connect();
        client.write(&head).await;
        client.write(&body[..world.between(0, body.len() - 1)]).await;
        let service = world.gateway.service.clone();
        follows("the body has its memory", || service.body_memory() > 0).await;
        world.turns(4).await;
        world.leaves(client).await;
    }
    assert_eq!(world.gateway.service.totals().offers, 0);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_leaves_its_place_and_is_never_asked_for() {
    let mut world = World::new();
    let (holder, holding) = world.running().await;
    for _ in 0..TRIALS {
        let client = world.waiting().await;
        world.turns(4).await;
        drop(client.pipe);
        world.follow(client.serving, (0, 1)).await;
        assert!(!world.backend.has_call());
    }
    holding.finish();
    world.ends(holder).await;
    assert_eq!(world.gateway.service.totals().cancelled, TRIALS);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_as_it_gets_its_permit_gives_it_back() {
    let mut world = World::new();
    for _ in 0..TRIALS {
        let (holder, holding) = world.running().await;
        let client = world.waiting().await;
        if world.between(0, 3) == 0 {
            drop(client.pipe);
            world.turns(2).await;
            holding.finish();
        } else {
            holding.finish();
            world.turns(10).await;
            drop(client.pipe);
        }
        world.follow(client.serving, (0, 0)).await;
        world.ends(holder).await;
        // What was on its way to the backend gets there, and is given up.
        for _ in 0..50 {
            yield_now().await;
        }
        if world.backend.has_call() {
            at_once("the backend's connection is closed", world.backend.call().await.abandoned()).await;
        }
    }
    let totals = world.gateway.service.totals();
    let gone = totals.released.get(&How::ClientGone).copied().unwrap_or(0);
    assert_eq!((totals.cancelled + gone, totals.released[&How::Finished]), (TRIALS, TRIALS));
    assert!(totals.cancelled > 50 && gone > 50, "before and after the grant: {totals:?}");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_the_backend_is_dialled_ends_the_dialling() {
    let mut world = World::new();
    world.dials.hold.store(true, Ordering::Relaxed);
    for _ in 0..TRIALS {
        let client = world.asking().await;
        let dials = Arc::clone(&world.dials);
        follows("the backend is dialled", || dials.under_way.load(Ordering::Relaxed) == 1).await;
        world.turns(4).await;
        world.leaves(client).await;
        follows("nobody is dialled any more", || dials.under_way.load(Ordering::Relaxed) == 0).await;
    }
    assert_eq!(world.gateway.service.totals().released[&How::ClientGone], TRIALS);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_before_the_head_of_the_answer_closes_the_backends_connection() {
    let mut world = World::new();
    for _ in 0..TRIALS {
        let client = world.asking().await;
        let mut call = world.backend.call().await;
        world.turns(4).await;
        world.leaves(client).await;
        at_once("the backend's connection is closed", call.abandoned()).await;
    }
    assert_eq!(world.gateway.service.totals().released[&How::ClientGone], TRIALS);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_within_a_stream_closes_the_backends_connection() {
    let mut world = World::new();
    for _ in 0..TRIALS {
        let (mut client, mut responding) = world.running().await;
        let (sent, read) = (world.between(1, 5), world.between(0, 5));
        (0..sent).for_each(|_| responding.event(TOKEN));
        client.read(&format!("{TOKEN}\n\n"), read.min(sent)).await;
        world.turns(4).await;
        world.leaves(client).await;
        at_once("the backend's connection is closed", responding.abandoned()).await;
    }
    assert_eq!(world.gateway.service.totals().released[&How::ClientGone], TRIALS);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_at_the_last_byte_of_its_answer_leaves_nothing() {
    let mut world = World::new();
    for _ in 0..TRIALS {
        let (client, responding) = world.running().await;
        let gone = responding.gone();
        responding.event("[DONE]");
        responding.finish();
        world.turns(10).await;
        world.leaves(client).await;
        at_once("the exchange with the backend is over", gone).await;
    }
    let totals = world.gateway.service.totals();
    let of = |how| totals.released.get(&how).copied().unwrap_or(0);
    assert_eq!(of(How::Finished) + of(How::ClientGone), TRIALS);
    assert!(of(How::Finished) > 20 && of(How::ClientGone) > 20, "before and after the end: {totals:?}");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_after_its_answer_held_nothing_any_more() {
    let mut world = World::new();
    for _ in 0..TRIALS {
        let (mut client, responding) = world.running().await;
        responding.event("[DONE]");
        responding.finish();
        client.read("0\r\n\r\n", 1).await;
        let gateway = &world.gateway;
        follows("its permit is back", || gateway.in_use() == 0).await;
        assert!(client.serving.try_join_next().is_none(), "the connection is kept");
        world.turns(4).await;
        world.leaves(client).await;
    }
    assert_eq!(world.gateway.service.totals().released[&How::Finished], TRIALS);
}

impl World {
    fn new() -> Self {
        let dials = Arc::new(std::sync::OnceLock::new());
        let kept = Arc::clone(&dials);
        let (gateway, backend) = Piped::through(1, move |dial| {
            let held = Dials { dial, hold: AtomicBool::new(false), under_way: Arc::default() };
            Arc::clone(kept.get_or_init(|| Arc::new(held))) as Arc<dyn Dial>
        });
        let dials = Arc::clone(dials.get().unwrap());
        Self { gateway, backend, dials, random: Random::new(4, Stream::Test) }
    }

    fn connect(&self) -> Client {
        let (pipe, theirs) = tokio::io::duplex(64 << 10);
        let (service, mut serving) = (self.gateway.service.clone(), JoinSet::new());
        serving.spawn(async move { service.serve(theirs).await });
        Client { pipe, serving }
    }

    /// A client that has sent its request.
    async fn asking(&self) -> Client {
        let mut client = self.connect();
        let (head, body) = request();
        client.write(&head).await;
        client.write(&body).await;
        client
    }

    /// One whose request waits.
    async fn waiting(&self) -> Client {
        let client = self.asking().await;
        follows("the request waits", || self.gateway.queued() == 1).await;
        client
    }

    /// One whose answer has begun.
    async fn running(&mut self) -> (Client, Responding) {
        let mut client = self.asking().await;
        let responding = self.backend.call().await.stream();
        client.read("\r\n\r\n", 1).await;
        (client, responding)
    }

    /// The client goes, and nothing of it is left.
    async fn leaves(&self, client: Client) {
        drop(client.pipe);
        self.follow(client.serving, (0, 0)).await;
    }

    /// Reads an answer to its end and goes.
    async fn ends(&self, mut client: Client) {
        client.read("0\r\n\r\n", 1).await;
        self.leaves(client).await;
    }

    /// What must follow at once: the connection is served no more, and so many wait and run.
    async fn follow(&self, mut serving: JoinSet<()>, (queued, in_use): (usize, u32)) {
        let served = at_once("the connection ends", serving.join_next()).await;
        served.unwrap().unwrap();
        let gateway = &self.gateway;
        follows("its place and permit are back", || (gateway.queued(), gateway.in_use()) == (queued, in_use)).await;
        let of_the_holder = if in_use == 0 { 0 } else { BODY.len() as u64 };
        follows("its memory is back", || gateway.service.body_memory() <= of_the_holder).await;
        gateway.service.audit().unwrap();
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        self.random.between(low as u64, high as u64) as usize
    }

    /// Gives the other tasks up to so many turns.
    async fn turns(&mut self, most: usize) {
        for _ in 0..self.between(0, most) {
            yield_now().await;
        }
    }
}

impl Client {
    async fn write(&mut self, bytes: &[u8]) {
        self.pipe.write_all(bytes).await.unwrap();
    }

    /// Reads until a text has come so many times.
    async fn read(&mut self, text: &str, times: usize) {
        let (mut bytes, text) = (Vec::new(), text.as_bytes());
        while bytes.windows(text.len()).filter(|window| *window == text).count() < times {
            let read = soon("the answer goes on", self.pipe.read_buf(&mut bytes)).await.unwrap();
            assert!(read > 0, "the answer ends early: {}", String::from_utf8_lossy(&bytes));
        }
    }
}

/// A request's head and body.
fn request() -> (Vec<u8>, Vec<u8>) {
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    (head.into_bytes(), BODY.as_bytes().to_vec())
}

/// Waits for what must happen before the clock moves.
async fn at_once<T>(what: &str, future: impl Future<Output = T>) -> T {
    let before = Instant::now();
    let value = soon(what, future).await;
    assert!(before.elapsed().is_zero(), "{what}, but only after {:?}", before.elapsed());
    value
}

/// Waits for what must hold before the clock moves.
async fn follows(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..TURNS {
        if condition() {
            return;
        }
        yield_now().await;
    }
    panic!("this does not follow: {what}");
}

/// Dials as it is told, or for ever.
struct Dials {
    dial: Arc<dyn Dial>,
    hold: AtomicBool,
    under_way: Arc<AtomicUsize>,
}

impl Dial for Dials {
    fn dial(&self, authority: &Authority) -> DialFuture {
        if !self.hold.load(Ordering::Relaxed) {
            return self.dial.dial(authority);
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(Arc::clone(&self.under_way));
        Box::pin(async move {
            let _under_way = under_way;
            std::future::pending().await
        })
    }
}

/// Counts down when it is dropped.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
